package group

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"time"

	"github.com/weirflow/weir"
	"github.com/weirflow/weir/internal/pause"
	"github.com/weirflow/weir/internal/rules"
)

// sharedPlaces is a key of a Concurrency in a store.
type sharedPlaces struct {
	h    Holder
	name string
	key  string
	of   weir.Concurrency
}

func (p sharedPlaces) stage() stage { return ofStoredPlaces }

func (p sharedPlaces) same(other limit) bool {
	o, ok := other.(sharedPlaces)
	return ok && o.name == p.name && o.key == p.key && o.of == p.of && identical(o.h, p.h)
}

func (p sharedPlaces) take(ctx context.Context, cost int64) (held, weir.Decision, error) {
	return p.enter(ctx, cost, 0)
}

func (p sharedPlaces) wait(ctx context.Context, cost int64, _ weir.Decision) (held, error) {
	h, d, err := p.enter(ctx, cost, -1)
	if err == nil && !d.Allowed {
		err = &weir.LimitedError{Decision: d}
	}
	return h, err
}

func (p sharedPlaces) enter(ctx context.Context, cost int64, wait time.Duration) (held, weir.Decision, error) {
	done, d, err := p.h.Enter(ctx, weir.Charge{Name: p.name, Key: p.key, Limit: p.of, Cost: cost, Within: wait})
	switch {
	case err != nil:
		d.Allowed = false
		return held{}, d, ofStore(p.name, err)
	case !d.Allowed:
		return held{}, d, nil
	}
	return held{done: done}, d, nil
}

// shared is a key of a limit in a store. A plan charges it together with the others of its store.
type shared struct {
	s   *weir.Shared
	key string
}

func (s shared) stage() stage { return inStores }

func (s shared) same(other limit) bool {
	o, ok := other.(shared)
	return ok && o.key == s.key && (o.s == s.s || o.s.Name() == s.s.Name() && identical(o.s.Store(), s.s.Store()) && weir.Equal(o.s.Limit(), s.s.Limit()))
}

func (s shared) take(context.Context, int64) (held, weir.Decision, error) {
	panic("group: a limit in a store is charged by its stage")
}

// wait waits until the limit may admit, and charges nothing: what a store would charge ahead could
// not always be given back.
func (s shared) wait(ctx context.Context, _ int64, refused weir.Decision) (held, error) {
	if w := within(ctx); refused.RetryAfter == weir.Never || w >= 0 && refused.RetryAfter > w {
		return held{}, refusal(refused)
	}
	return held{}, pause.For(ctx, refused.RetryAfter)
}

// alone returns the only limit of a plan, if it is in a store.
func (p *plan) alone() (s shared, ok bool) {
	if len(p.entries) == 1 {
		s, ok = p.entries[0].limit.(shared)
	}
	return s, ok
}

// waitStored waits for the only limit of a plan. The store charges it ahead, so that the call is not
// repeated for each waiter whenever one goes.
func (p *plan) waitStored(ctx context.Context, s shared) (*Reservation, error) {
	e := p.entries[0]
	r, err := s.s.WaitKept(ctx, s.key, e.cost)
	if err != nil {
		return &Reservation{}, err
	}
	e.waited, e.decision = r, r.Decision()
	return &Reservation{plan: p}, nil
}

// identical reports whether two interface values are the same, also if their type cannot be
// compared.
func identical(a, b any) bool {
	return reflect.ValueOf(a).Comparable() && reflect.ValueOf(b).Comparable() && a == b
}

// ofStore says which store failed: its own error may be no more than that the context has ended.
func ofStore(limit string, err error) error {
	return fmt.Errorf("group: the store of the limit %q: %w", limit, err)
}

// takeStore charges the limits of one store together. It reports the entry that refused; nil if all
// admitted.
func takeStore(ctx context.Context, entries []*entry) (refused *entry, err error) {
	batch, out := make([]weir.Charge, len(entries)), make([]weir.Decision, len(entries))
	for i, e := range entries {
		s := e.limit.(shared)
		batch[i] = weir.Charge{Name: s.s.Name(), Key: s.key, Limit: s.s.Limit(), Cost: e.cost, Keep: true, Estimate: e.estimate}
		if len(entries) > 1 {
			batch[i].Group = 1
		}
	}
	store := entries[0].limit.(shared).s.Store()
	if err = store.Do(ctx, batch, out); err != nil {
		err = ofStore(entries[0].limit.(shared).s.Name(), err)
	}
	for i, e := range entries {
		e.charge = batch[i] // after an error, some charges may have been carried out
		if e.decision = out[i]; err == nil && !e.decision.Allowed && (refused == nil || longer(e.decision.RetryAfter, refused.decision.RetryAfter)) {
			refused = e
		}
	}
	if refused != nil {
		for _, e := range entries {
			e.charge.Receipt = "" // the store has charged none of them
		}
	}
	return refused, err
}

// giveBackTimeout is how long stores have to give back what a refused caller was charged.
const giveBackTimeout = time.Second

// settleStores replaces the costs of charges in stores, with one call for each store. Each charge is
// settled once.
func settleStores(ctx context.Context, entries []*entry, actual func(*entry) int64) error {
	var errs []error
	for _, of := range byStore(entries) {
		var batch []weir.Charge
		for _, e := range of {
			if e.waited != nil {
				errs = append(errs, e.waited.Settle(ctx, actual(e)))
				continue
			}
			c := e.charge
			switch n := actual(e); {
			case n == c.Cost && !(c.Estimate && rules.Lists(weir.Parts(c.Limit))):
			case e.cost == 0:
				errs = append(errs, fmt.Errorf("weir: %q was charged 0, which no store remembers: charge at least 1 of what is settled later", c.Name))
			case c.Receipt != "":
				batch = append(batch, weir.Charge{Name: c.Name, Key: c.Key, Limit: c.Limit, Op: weir.OpSettle, Cost: n, Receipt: c.Receipt})
			}
			e.charge.Receipt = ""
		}
		if len(batch) == 0 {
			continue
		}
		if err := of[0].limit.(shared).s.Store().Do(ctx, batch, make([]weir.Decision, len(batch))); err != nil {
			errs = append(errs, fmt.Errorf("weir: what a store had charged was not settled: %w", err))
		}
	}
	return errors.Join(errs...)
}

// byStore sorts the limits in stores by their stores, in the order of the first of each.
func byStore(entries []*entry) (all [][]*entry) {
next:
	for _, e := range entries {
		s, ok := e.limit.(shared)
		if !ok {
			continue
		}
		for i, of := range all {
			if identical(of[0].limit.(shared).s.Store(), s.s.Store()) {
				all[i] = append(of, e)
				continue next
			}
		}
		all = append(all, []*entry{e})
	}
	return all
}
