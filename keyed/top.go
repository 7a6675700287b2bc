package keyed

import (
	"errors"
	"fmt"
	"math"
	"math/bits"
	"math/rand/v2"
	"strings"
	"sync/atomic"

	"github.com/weirflow/weir"
	"github.com/weirflow/weir/internal/topk"
)

// A Top is one of the heaviest or most limited keys. Its true count is at most Count, and at least
// Count-Error.
type Top[K comparable] struct {
	Key          K
	Count, Error uint64
}

// topCounters finds the heaviest and most limited keys. It is separate from the states, so it also
// knows keys that were evicted long ago.
type topCounters[K comparable] struct {
	heaviest, limited *topk.Sketch[K]
	oneIn             uint32       // a power of 2
	exact             atomic.Int64 // how many more decisions are counted before one in oneIn is
}

// exactAtFirst is how many decisions are all counted, whatever Options.TopOneIn is: a few refusals would
// otherwise not be seen at all.
const exactAtFirst = 20_000

func newTops[K comparable](counters, oneIn int) *topCounters[K] {
	if counters == 0 {
		return nil
	}
	t := &topCounters[K]{heaviest: topk.New[K](counters), limited: topk.New[K](counters), oneIn: uint32(max(oneIn, 1))}
	t.exact.Store(exactAtFirst)
	return t
}

// validateTop returns an error if Options.Top is invalid.
func (o Options) validateTop() error {
	if o.Top < 0 || o.Top > topk.Most {
		return fmt.Errorf("weir: keyed.Options.Top: %d is not a number of counters: it must be within 0 and %d", o.Top, topk.Most)
	}
	if o.TopOneIn < 0 || o.TopOneIn > 1024 || o.TopOneIn&(o.TopOneIn-1) != 0 {
		return fmt.Errorf("weir: keyed.Options.TopOneIn: %d is not a power of 2 within 1 and 1024", o.TopOneIn)
	}
	return nil
}

// note counts a decision.
func (t *topCounters[K]) note(key K, h uint64, cost int64, allowed bool) {
	if s, weight := t.pick(cost, allowed); s != nil {
		s.Add(key, h, weight)
	}
}

// noteText is note for a key in a buffer. It copies the key only if the key gets a counter.
func noteText(t *topCounters[string], view string, h uint64, cost int64, allowed bool) {
	if s, weight := t.pick(cost, allowed); s != nil && !s.AddKnown(view, h, weight) {
		s.Add(strings.Clone(view), h, weight)
	}
}

// pick returns the sketch that counts a decision, and the amount; none for an admitted cost of 0.
func (t *topCounters[K]) pick(cost int64, allowed bool) (*topk.Sketch[K], uint64) {
	weight := uint64(1)
	if t.oneIn > 1 {
		if t.exact.Load() > 0 {
			t.exact.Add(-1)
		} else if weight = uint64(t.oneIn); rand.Uint32()&(t.oneIn-1) != 0 {
			return nil, 0
		}
	}
	switch {
	case !allowed:
		return t.limited, weight
	case cost > 0:
		if hi, lo := bits.Mul64(uint64(cost), weight); hi == 0 {
			return t.heaviest, lo
		}
		return t.heaviest, math.MaxUint64
	}
	return nil, 0
}

// noteWait counts how a wait ended. A wait that was given up does not count.
func (t *topCounters[K]) noteWait(key K, h uint64, cost int64, err error) {
	if err == nil || errors.Is(err, weir.ErrLimited) {
		t.note(key, h, cost, err == nil)
	}
}

// Heaviest returns at most n of the keys with the largest sum of admitted costs since New or
// ResetTop, the heaviest first. It returns none if Options.Top is 0.
//
// Let c be the number of counters, and t the total of all admitted costs. Every key with more than
// t/c is among the results if n is large enough, and no Error is larger than t/c. This holds for
// any keys in any order. Commonly the error of the first key is 0 or small. A charge counts when it
// is made: settling or cancelling it later does not change the count.
func (k *Limiter[K]) Heaviest(n int) []Top[K] {
	if k.top == nil {
		return nil
	}
	return topOf(k.top.heaviest, n)
}

// MostLimited returns at most n of the keys that were refused most often, as Heaviest does. Each
// refusal counts 1, whatever its cost, including refusals for lack of room.
func (k *Limiter[K]) MostLimited(n int) []Top[K] {
	if k.top == nil {
		return nil
	}
	return topOf(k.top.limited, n)
}

func topOf[K comparable](s *topk.Sketch[K], n int) []Top[K] {
	counted := s.Heaviest(n)
	list := make([]Top[K], len(counted))
	for i, c := range counted {
		list[i] = Top[K](c)
	}
	return list
}

// ResetTop resets the counts of Heaviest and MostLimited, and nothing else. Called once a minute,
// after reading them, it makes them cover the last minute. A concurrent decision is counted before
// or after the reset.
func (k *Limiter[K]) ResetTop() {
	if k.top != nil {
		k.top.heaviest.Reset()
		k.top.limited.Reset()
	}
}

// note counts a group's decision: all charges if they were made, or those that were refused.
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
