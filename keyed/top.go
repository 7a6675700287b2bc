package keyed

import (
	"errors"
	"fmt"
	"strings"

	"github.com/weirflow/weir"
	"github.com/weirflow/weir/internal/topk"
)

// A Top is a key among the heaviest, or the most limited, and how much of it was counted: at most Count, and at least Count-Error.
type Top[K comparable] struct {
	Key          K
	Count, Error uint64
}

// tops finds the keys that are worth a look, beside the states: it knows keys whose states are long gone.
type tops[K comparable] struct {
	heaviest, limited *topk.Sketch[K]
}

func newTops[K comparable](counters int) *tops[K] {
	if counters == 0 {
		return nil
	}
	return &tops[K]{topk.New[K](counters), topk.New[K](counters)}
}

// validateTop says what is wrong with Options.Top.
func (o Options) validateTop() error {
	if o.Top < 0 || o.Top > topk.Most {
		return fmt.Errorf("weir: keyed.Options.Top: %d is not a number of counters: it must be within 0 and %d", o.Top, topk.Most)
	}
	return nil
}

// note counts what was decided.
func (t *tops[K]) note(key K, h uint64, cost int64, allowed bool) {
	if s, weight := t.pick(cost, allowed); s != nil {
		s.Add(key, h, weight)
	}
}

// noteText is note for a key that stands in a buffer. It is copied only when it gets a counter.
func noteText(t *tops[string], view string, h uint64, cost int64, allowed bool) {
	if s, weight := t.pick(cost, allowed); s != nil && !s.AddKnown(view, h, weight) {
		s.Add(strings.Clone(view), h, weight)
	}
}

// pick says where a decision is counted, and as how much; nowhere for what was admitted at no cost.
func (t *tops[K]) pick(cost int64, allowed bool) (*topk.Sketch[K], uint64) {
	switch {
	case !allowed:
		return t.limited, 1
	case cost > 0:
		return t.heaviest, uint64(cost)
	}
	return nil, 0
}

// noteWait counts how a wait ended. One that was given up is neither.
func (t *tops[K]) noteWait(key K, h uint64, cost int64, err error) {
	if err == nil || errors.Is(err, weir.ErrLimited) {
		t.note(key, h, cost, err == nil)
	}
}

// Heaviest returns at most n of the keys that were admitted most, by the sum of their costs, the heaviest first, since New or ResetTop. It
// returns none where Options.Top is 0.
//
// With c counters, and a total t of all costs that were admitted, each key with more than t/c is among them if n is large enough, and no
// Error is larger than t/c. It holds for any keys in any order. Commonly the error of the first is 0 or small. A charge counts when it is
// made: what is settled or cancelled later is not taken back.
func (k *Limiter[K]) Heaviest(n int) []Top[K] {
	if k.top == nil {
		return nil
	}
	return listed(k.top.heaviest, n)
}

// MostLimited returns at most n of the keys that were refused most often, as Heaviest does: each refusal counts 1, whatever its cost, and
// those for want of room too.
func (k *Limiter[K]) MostLimited(n int) []Top[K] {
	if k.top == nil {
		return nil
	}
	return listed(k.top.limited, n)
}

func listed[K comparable](s *topk.Sketch[K], n int) []Top[K] {
	counted := s.Heaviest(n)
	list := make([]Top[K], len(counted))
	for i, c := range counted {
		list[i] = Top[K](c)
	}
	return list
}

// ResetTop forgets what Heaviest and MostLimited go by, and nothing else. Called once a minute, after a look, it makes them speak of the
// last minute. What is decided at that moment is counted before or after it.
func (k *Limiter[K]) ResetTop() {
	if k.top != nil {
		k.top.heaviest.Reset()
		k.top.limited.Reset()
	}
}

// note counts what was decided about the charges of a group: all that were made, or those that were refused.
func (g *Group[K]) note(charges []Charge[K], allowed bool) {
	for i, k := range g.limiters {
		c := &charges[i]
		if k.top == nil || c.Skip || !allowed && c.Decision.Allowed {
			continue
		}
		if h, ok := k.hash(c.Key); ok {
			k.top.note(c.Key, h, c.Cost, allowed)
		}
	}
}
