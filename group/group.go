package group

import (
	"context"
	"math"
	"slices"
	"time"

	"github.com/weirflow/weir"
)

// Take makes all charges, or none. It does not wait.
//
// If all limits admit, the Decision is the one with the least Remaining, and the Reservation holds
// the places: every admitted caller must call its Done, or Cancel. If a limit refuses, the Decision
// is the one with the longest RetryAfter among those that were evaluated: Never counts as the
// longest, and the first wins a tie. By is its name.
//
// An error means that a store failed or is unavailable, that the context ended before it responded,
// or that a cost is below 0 (weir.ErrCost). Nothing stays charged then, but for what a store could
// not give back. The Reservation is never nil; if the call was not admitted, it holds nothing.
func Take(ctx context.Context, charges ...Charge) (*Reservation, weir.Decision, error) {
	p, err := newPlan(charges)
	if err != nil {
		return &Reservation{}, weir.Decision{}, err
	}
	d, _, err := p.take(ctx, nil)
	if err != nil || !d.Allowed {
		return &Reservation{}, d, err
	}
	return &Reservation{plan: p}, d, nil
}

// Wait blocks the caller until all charges may go together, and makes them then.
//
// A caller waits in the queue of the limit that refused it, behind the other callers there, and has
// its turn with nothing else charged. If another limit refuses then, it gives the turn up, and waits
// for that one. A limit in a store has no queue: its callers wait for RetryAfter, and the first one
// that finds room goes first; only if it is the sole limit of a call, the call waits as
// weir.Shared.Wait does. So callers of a group are not served in a fixed order.
//
// Wait returns at once and charges nothing if no wait helps, or if the turn would come after the
// context's deadline: errors.Is finds weir.ErrLimited in the error, and for the deadline
// context.DeadlineExceeded. If the context ends first, Wait returns its error. A Concurrency without
// a queue, or whose queue is full, refuses at once. Other errors are as with Take.
func Wait(ctx context.Context, charges ...Charge) (*Reservation, error) {
	if err := ctx.Err(); err != nil {
		return &Reservation{}, err
	}
	p, err := newPlan(charges)
	if err != nil {
		return &Reservation{}, err
	}
	if s, ok := p.alone(); ok {
		return p.waitStored(ctx, s)
	}
	var turn *entry // the limit whose turn has come: it is charged already
	for {
		d, by, err := p.take(ctx, turn)
		switch {
		case err != nil:
			return &Reservation{}, err
		case d.Allowed:
			return &Reservation{plan: p}, nil
		}
		if by.held, err = by.limit.wait(ctx, by.cost, d); err != nil {
			by.held = held{}
			return &Reservation{}, err
		}
		if turn = by; by.limit.stage() == inStores {
			turn = nil // it has only waited
			continue
		}
		by.decision.Allowed, by.decision.RetryAfter, by.decision.Remaining = true, 0, 0
	}
}

// A plan is the charges of a call in the order in which they are made, with what they hold.
type plan struct {
	entries []*entry
	of      []*entry // the entry of each charge
}

// An entry is the charges of one state.
type entry struct {
	limit    limit
	cost     int64
	estimate bool
	decision weir.Decision
	held     held
	charge   weir.Charge             // of a limit in a store, with its receipt
	waited   *weir.SharedReservation // of a limit in a store that is the sole one, and has waited
}

func newPlan(charges []Charge) (*plan, error) {
	p := &plan{of: make([]*entry, 0, len(charges))}
	for _, c := range charges {
		if c.limit == nil {
			panic("group: a Charge that is empty: make it with One, Keyed, Shared, InFlight, KeyedInFlight, SharedInFlight or Adaptive")
		}
		if c.cost < 0 {
			return nil, weir.ErrCost
		}
		i := slices.IndexFunc(p.entries, func(e *entry) bool { return e.limit.same(c.limit) })
		if i < 0 {
			i = len(p.entries)
			p.entries = append(p.entries, &entry{limit: c.limit})
		}
		e := p.entries[i]
		e.cost, e.estimate = sum(e.cost, c.cost), e.estimate || c.estimate
		p.of = append(p.of, e)
	}
	slices.SortStableFunc(p.entries, func(a, b *entry) int { return int(a.limit.stage() - b.limit.stage()) })
	return p, nil
}

// sum adds two costs; a sum that is too large is the largest cost.
func sum(a, b int64) int64 {
	if a > math.MaxInt64-b {
		return math.MaxInt64
	}
	return a + b
}

// take makes all charges or none. The entry turn is charged already, and is given back too if
// another refuses. After a refusal, by is the entry that refused.
func (p *plan) take(ctx context.Context, turn *entry) (d weir.Decision, by *entry, err error) {
	admitted := false
	defer func() {
		if !admitted {
			p.giveBack(ctx) // also if a store panics
		}
	}()
	if by, err = p.takeAll(ctx, turn); by != nil {
		d = by.decision
	}
	if admitted = by == nil && err == nil; admitted {
		d = p.least()
	}
	return d, by, err
}

// takeAll charges the entries in order, up to one that refuses.
func (p *plan) takeAll(ctx context.Context, turn *entry) (refused *entry, err error) {
	var first, rest, last []*entry // those that would refuse are asked first, as their refusal costs the others nothing
	for _, e := range p.entries {
		switch can, ok := e.limit.(peeker); {
		case e == turn || e.limit.stage() == inStores:
		case ok && !can.peek(e.cost).Allowed:
			first = append(first, e)
		case e.limit.stage() == ofAdaptive:
			last = append(last, e)
		default:
			rest = append(rest, e)
		}
	}
	for _, e := range first { // all of them, to find the longest wait
		if ok, err := e.take(ctx); err != nil {
			return nil, err
		} else if !ok && (refused == nil || longer(e.decision.RetryAfter, refused.decision.RetryAfter)) {
			refused = e
		}
	}
	for i := 0; i < len(rest) && refused == nil; i++ {
		if ok, err := rest[i].take(ctx); err != nil {
			return nil, err
		} else if !ok {
			return rest[i], nil
		}
	}
	for _, of := range byStore(p.entries) {
		if refused == nil {
			refused, err = takeStore(ctx, of)
		}
		if err != nil {
			return nil, err
		}
	}
	for i := 0; i < len(last) && refused == nil; i++ {
		if ok, err := last[i].take(ctx); err != nil {
			return nil, err
		} else if !ok {
			refused = last[i]
		}
	}
	return refused, nil
}

// take charges an entry, and reports whether it was admitted.
func (e *entry) take(ctx context.Context) (ok bool, err error) {
	h, d, err := e.limit.take(ctx, e.cost)
	if e.decision = d; err != nil || !d.Allowed {
		return false, err
	}
	e.held = h
	return true, nil
}

// giveBack gives back what all entries hold.
func (p *plan) giveBack(ctx context.Context) {
	p.cancel()
	ctx, end := context.WithTimeout(context.WithoutCancel(ctx), giveBackTimeout)
	defer end()
	_ = settleStores(ctx, p.entries, nothing) // what a store cannot give back stays charged there
}

// cancel gives back what the entries of this process hold, the last one first.
func (p *plan) cancel() {
	for _, e := range slices.Backward(p.entries) {
		e.held.cancel()
		e.held = held{}
	}
}

func nothing(*entry) int64 { return 0 }

// least is the decision with the least remaining, among those that say how much remains.
func (p *plan) least() weir.Decision {
	d := weir.Decision{Allowed: true}
	for i, e := range p.entries {
		if c := e.decision; i == 0 || c.Limit > 0 && (d.Limit == 0 || c.Remaining < d.Remaining) {
			d = c
		}
	}
	return d
}

// longer compares two waits. Never is the longest.
func longer(a, b time.Duration) bool { return b != weir.Never && (a == weir.Never || a > b) }
