package policy

import (
	"context"

	"github.com/weirflow/weir"
	"github.com/weirflow/weir/keyed"
)

// A single is the charge and the decision of a request that meets one limit, in a store. Engines
// reuse it, since a store does not touch it after returning.
type single struct {
	batch [1]weir.Charge
	out   [1]weir.Decision
}

// decideStored decides by a single limit in a store whose charge need not be remembered. It reports
// false if the general path must decide: for a queue, and for a body of unknown length.
func (v *Verdict) decideStored(ctx context.Context, e *Engine, r *request) bool {
	l := v.evaluated[0]
	if l.wait || l.opens(r) != openNot {
		return false
	}
	var buf [maxKey]byte
	key, cost, q := l.keyAndCost(buf[:0], r)
	if q != charged {
		v.withoutCharge(l, key, q, r)
		return true
	}
	s, _ := e.singles.Get().(*single)
	if s == nil {
		s = new(single)
	}
	defer e.singles.Put(s)
	s.batch[0] = weir.Charge{Name: l.state, Key: l.keyInStore(key, r), Limit: l.Limit.Limit, Plan: l.plan, Cost: cost}
	s.out[0] = weir.Decision{}
	if err := l.store.Do(ctx, s.batch[:], s.out[:]); err != nil {
		v.fallBackOne(ctx, e, s, err)
		return true
	}
	d := s.out[0]
	d.By, v.cost = l.Name, cost
	if v.Decision = d; !d.Allowed {
		v.deny(l, l.text(key), d)
	}
	l.counts.add(d, 0)
	l.counts.sources[d.Source].Add(1)
	l.tops.note(s.batch[0].Key, cost, d.Allowed)
	return true
}

// fallBackOne handles a charge that the store did not decide, like the general path does.
func (v *Verdict) fallBackOne(ctx context.Context, e *Engine, s *single, err error) {
	c := s.batch[0]
	v.charges = []keyed.Charge[string]{{Key: c.Key, Cost: c.Cost}}
	v.shared = &sharing{charges: []weir.Charge{c}, e: e}
	if v.fallBack(ctx, err, s.batch[:], []int{0}) {
		v.Decision = v.least()
	} else {
		v.giveBack(ctx)
	}
	v.count()
}
