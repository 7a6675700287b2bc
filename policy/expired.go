package policy

import (
	"context"
	"slices"

	"github.com/weirflow/weir"
)

// An Expired is a charge in a store that is left to settle after its reservation has expired.
type Expired struct {
	e      *Engine
	l      *limit
	charge weir.Charge
	shadow func() // settles the charge of a shadow limit; nil for others
}

// Expire ends a reservation as Keep does, without a call of a store: limits in memory are settled, and
// SettleExpired does the rest. Nothing is left to do in a store that keeps no list of open reservations.
func (a *Answer) Expire() (left []Expired) {
	if !a.kept || !a.Allowed {
		return nil
	}
	a.ending.Lock()
	defer a.ending.Unlock()
	if a.ended {
		return nil
	}
	a.ended = true
	if b := a.booked; b != nil {
		if b.l.store == nil {
			b.charge.Settle(a.Each[0].Cost)
		} else if !nothingToSettle(&b.stored, b.stored.Cost) {
			left = append(left, Expired{e: b.e, l: b.l, charge: b.stored})
		}
	}
	for i := range a.verdicts {
		left = a.verdicts[i].v.expire(left)
	}
	return left
}

// expire is Expire for the charges of a verdict.
func (v *Verdict) expire(left []Expired) []Expired {
	for i := range v.charges {
		_ = v.charges[i].Settle(v.charges[i].Cost) // those in stores have nothing to settle here
	}
	if v.shared != nil {
		for i := range v.shared.charges {
			if c := &v.shared.charges[i]; !nothingToSettle(c, c.Cost) {
				left = append(left, Expired{e: v.shared.e, l: v.evaluated[v.shared.first+i], charge: *c})
			}
		}
	}
	if v.late == nil {
		return left
	}
	for _, s := range v.late.shadows {
		if s.l.store == nil {
			s.settle(s.estimate)
		} else {
			left = append(left, Expired{l: s.l, shadow: func() { s.settle(s.estimate) }})
		}
	}
	v.late.shadows = nil
	return left
}

// expiredBatch is how many charges one call of a store settles.
const expiredBatch = 100

// SettleExpired settles what is left of reservations that have expired, many with one call of a store. What
// cannot be settled is counted, and stays charged. It ends early, between two calls, if the context ends.
func SettleExpired(ctx context.Context, all []Expired) {
	type store struct {
		e    *Engine // after a reload, another store can have the same name
		name string
	}
	batches := map[store][]Expired{}
	for _, x := range all {
		if ctx.Err() != nil {
			return
		}
		if x.shadow != nil {
			x.shadow()
			continue
		}
		of := store{x.e, x.l.Store}
		if batches[of] = append(batches[of], x); len(batches[of]) == expiredBatch {
			settleExpired(ctx, batches[of])
			delete(batches, of)
		}
	}
	for _, some := range batches {
		settleExpired(ctx, some)
	}
}

// settleExpired is SettleExpired for one call of a store.
func settleExpired(ctx context.Context, some []Expired) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	batch := make([]weir.Charge, len(some))
	for i := range some {
		batch[i] = settlementOf(&some[i].charge, some[i].charge.Cost)
	}
	err := some[0].l.store.Do(ctx, batch, make([]weir.Decision, len(batch)))
	if err == nil {
		return
	}
	byCharge := slices.ContainsFunc(batch, func(c weir.Charge) bool { return c.Err != nil })
	for i := range some {
		if !byCharge || batch[i].Err != nil {
			some[i].l.counts.lost.Add(1)
		}
	}
}
