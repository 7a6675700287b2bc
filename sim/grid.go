package sim

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/weirflow/weir"
	"github.com/weirflow/weir/policy"
)

// MaxCombinations limits how many combinations one Sweep tries.
const MaxCombinations = 256

// A Grid is a policy with several values for parameters of one of its limits. NewGrid makes it.
type Grid struct {
	Limit      string   // the limit
	Parameters []string // their names, in the order in which they were written
	policy     policy.Policy
	index      int        // of the limit
	values     [][]string // of each parameter
}

// NewGrid reads which parameters of which limit to vary. Each text has words PARAMETER=VALUES, with spaces between
// them, and limit=NAME, which is needed only if the policy has several limits. VALUES are FROM..TO, which stands for both
// ends and the steps 1, 2, 5, 10, 20, 50 ... between them, or values separated by commas: rate=1/s..100/s burst=10,25.
//
// A limit that is a shadow, or only rolled out to some, is tried as one that is enforced for all.
func NewGrid(p policy.Policy, texts ...string) (*Grid, error) {
	g := &Grid{policy: p, index: -1}
	written := make(map[string]string)
	for _, word := range strings.Fields(strings.Join(texts, " ")) {
		name, values, ok := strings.Cut(word, "=")
		if !ok || name == "" || values == "" {
			return nil, fmt.Errorf("%q is not of the form PARAMETER=VALUES: write it like rate=1/s..100/s, burst=10,20 or limit=NAME", word)
		}
		if _, again := written[name]; again {
			return nil, fmt.Errorf("%s= is written twice: write all its values in one list, like %s=A,B", name, name)
		}
		written[name] = values
		if name == "limit" {
			g.Limit = values
			continue
		}
		g.Parameters = append(g.Parameters, name)
	}
	if err := g.findLimit(); err != nil {
		return nil, err
	}
	if len(g.Parameters) == 0 {
		return nil, fmt.Errorf("no parameter varies: write at least one, like rate=1/s..100/s or burst=1..200")
	}
	known := parametersOf(p.Limits[g.index].Limit)
	combinations := 1
	for _, name := range g.Parameters {
		switch {
		case len(known) == 0:
			return nil, fmt.Errorf("the limit %s has no rate: only a token_bucket, leaky_bucket, nginx_bucket, interval_bucket, smooth_bursty or warm_up can be varied", g.Limit)
		case !slices.Contains(known, name):
			return nil, fmt.Errorf("the limit %s has no parameter %q that can be varied: it has %s", g.Limit, name, strings.Join(known, " and "))
		}
		values, err := valuesOf(name, written[name])
		if err != nil {
			return nil, fmt.Errorf("%s=%s: %w", name, written[name], err)
		}
		g.values = append(g.values, values)
		combinations *= len(values) // at most 256 values each, of at most two parameters
	}
	if combinations > MaxCombinations {
		return nil, fmt.Errorf("these are %d combinations, and %d is the most: give fewer values, like %s=%s,%s", combinations, MaxCombinations, g.Parameters[0], g.values[0][0], g.values[0][len(g.values[0])-1])
	}
	return g, nil
}

// findLimit finds the limit in the policy.
func (g *Grid) findLimit() error {
	var names []string
	for i, l := range g.policy.Limits {
		names = append(names, l.Name)
		if l.Name == g.Limit || g.Limit == "" && len(g.policy.Limits) == 1 {
			g.index = i
		}
	}
	switch {
	case len(names) == 0:
		return fmt.Errorf("the policy has no limits that could be varied")
	case g.Limit == "" && len(names) > 1:
		return fmt.Errorf("the policy has several limits: say which one varies, with limit=NAME; it has %s", strings.Join(names, ", "))
	case g.index < 0:
		return fmt.Errorf("limit=%s: the policy has no such limit; it has %s", g.Limit, strings.Join(names, ", "))
	}
	g.Limit = g.policy.Limits[g.index].Name
	return nil
}

// parametersOf returns the names of the parameters of a limit that a Grid can vary; none of a limit without a rate.
func parametersOf(l weir.Limit) (names []string) {
	fields := policy.Fields(weir.Algorithm(l))
	for _, name := range []string{"rate", "refill", "burst", "queue"} {
		if slices.Contains(fields, name) {
			names = append(names, name)
		}
	}
	if !slices.Contains(names, "rate") && !slices.Contains(names, "refill") {
		return nil
	}
	return names
}

// valuesOf reads the values of a parameter.
func valuesOf(name, text string) ([]string, error) {
	from, to, isRange := strings.Cut(text, "..")
	if !isRange {
		var values []string
		for value := range strings.SplitSeq(text, ",") {
			n, unit, err := valueOf(name, value)
			switch {
			case err != nil:
				return nil, err
			case slices.Contains(values, joined(n, unit)):
				return nil, fmt.Errorf("%s is written twice: write it once", value)
			case len(values) == MaxCombinations:
				return nil, fmt.Errorf("it has more than %d values: give fewer", MaxCombinations)
			}
			values = append(values, joined(n, unit))
		}
		return values, nil
	}
	least, unit, err := valueOf(name, from)
	if err != nil {
		return nil, err
	}
	most, other, err := valueOf(name, to)
	switch {
	case err != nil:
		return nil, err
	case unit != other:
		return nil, fmt.Errorf("its ends are per %s and per %s: write both with the same unit, or a list like rate=10/m,1/s", unit, other)
	case least > most:
		return nil, fmt.Errorf("its end is before its beginning: write %s..%s", to, from)
	}
	var values []string
	for _, n := range steps(least, most) {
		values = append(values, joined(n, unit))
	}
	return values, nil
}

// valueOf reads one value: a number, and of a rate the unit of time.
func valueOf(name, text string) (n int64, unit string, err error) {
	if name != "rate" {
		n, err := strconv.ParseInt(text, 10, 64)
		if err != nil || n < 0 {
			return 0, "", fmt.Errorf("%q is not a whole number: write one like 20", text)
		}
		return n, "", nil
	}
	rate, err := weir.ParseRate(text)
	if err != nil {
		return 0, "", errors.New(strings.TrimPrefix(err.Error(), "weir: ")) // what calls it names itself
	}
	if rate == weir.Unlimited {
		return 0, "", fmt.Errorf("%q is no rate to compare with others: write one like 100/s", text)
	}
	_, unit, _ = strings.Cut(rate.String(), "/")
	return rate.N, unit, nil
}

func joined(n int64, unit string) string {
	if unit == "" {
		return strconv.FormatInt(n, 10)
	}
	return strconv.FormatInt(n, 10) + "/" + unit
}

// steps returns both ends, and between them 1, 2, 5, 10, 20, 50 and so on.
func steps(least, most int64) []int64 {
	all := []int64{least}
	for power := int64(1); ; power *= 10 {
		for _, digit := range []int64{1, 2, 5} {
			if power > math.MaxInt64/digit || power*digit >= most {
				if most > least {
					all = append(all, most)
				}
				return all
			}
			if power*digit > least {
				all = append(all, power*digit)
			}
		}
		if power > math.MaxInt64/10 {
			return append(all, most)
		}
	}
}

// combinations returns the values of each combination, the first parameter changing last.
func (g *Grid) combinations() [][]string {
	all := [][]string{nil}
	for _, values := range g.values {
		var next [][]string
		for _, before := range all {
			for _, v := range values {
				next = append(next, append(slices.Clone(before), v))
			}
		}
		all = next
	}
	return all
}

// policyOf returns the policy with the values of a combination.
func (g *Grid) policyOf(values []string) (policy.Policy, error) {
	p := g.policy
	p.Limits = slices.Clone(p.Limits)
	l := &p.Limits[g.index]
	l.Shadow, l.RollOut = false, ""
	fields := make(map[string]any)
	for i, name := range g.Parameters {
		fields[name] = values[i]
		if n, err := strconv.ParseInt(values[i], 10, 64); err == nil {
			fields[name] = n
		}
	}
	var err error
	l.Limit, err = policy.WithFields(l.Limit, fields)
	return p, err
}
