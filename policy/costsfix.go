package policy

import (
	"fmt"
	"math"
	"strings"

	"github.com/weirflow/weir/internal/nearest"
	"github.com/weirflow/weir/internal/usage"
)

// costFix returns what to write in place of a cost that is no number. A term of before or after is put
// where it belongs.
func costFix(l *Limit) string {
	size := int64(math.MaxInt64)
	if l.Limit != nil {
		size, _ = capacityOf(l.Limit)
	}
	estimate := max(min(size, 2000), 1)
	if e, err := parseEstimate(CostTerm{Of: l.Cost}); err == nil && e.source != estimateFixed {
		return fmt.Sprintf("cost: { before: %s, default: %d, after: openai }", l.Cost, estimate)
	}
	if _, err := usage.Compile([]usage.Term{{Of: l.Cost, Weight: 1}}); err == nil {
		return fmt.Sprintf("cost: { default: %d, after: %s }", estimate, l.Cost)
	}
	return "write a whole number of at least 1, header.NAME or bytes, or { before: ..., after: ... } for a cost that the response tells"
}

// termFix returns a line with a valid term in place of the i-th of a list; of a longer list, the term
// alone.
func termFix(field, of string, terms []CostTerm, i int) string {
	if w := terms[i].Weight; w > 1 {
		of = fmt.Sprintf("{ of: %s, weight: %d }", of, w)
	}
	if len(terms) > 1 {
		return of
	}
	return field + ": " + of
}

// estimateMeant returns the term that was probably meant by a text that is no estimate.
func estimateMeant(of string) string {
	if strings.HasPrefix(of, "prompt") {
		return "prompt/4"
	}
	if near := nearest.To(of, []string{"learned", "prompt/4", "body.max_tokens"}); near != "" {
		return near
	}
	return "body.max_tokens"
}

// fits reports whether a limit of a size can admit requests at all. The numbers in before are part of
// each estimate; least is their sum.
func (c *Costs) fits(size int64) (least int64, ok bool) {
	for _, t := range c.Before {
		if e, err := parseEstimate(t); err == nil && e.source == estimateFixed {
			least = addCost(least, e.weight, e.n)
		}
	}
	return least, least <= size
}

// countsNothing reports whether each request costs 0 by its estimate, and no response changes that.
func (c *Costs) countsNothing() bool {
	if c.settles() || len(c.Before) == 0 {
		return false
	}
	for _, t := range c.Before {
		if e, err := parseEstimate(t); err != nil || e.source != estimateFixed || e.n != 0 {
			return false
		}
	}
	return true
}
