package group

import (
	"context"
	"fmt"
	"sync/atomic"

	"github.com/weirflow/weir"
)

// A Reservation is what an admitted caller holds: its charges, and its places. Every admitted caller
// calls Done, or Cancel. All methods are safe for concurrent use; those of a Reservation that was
// not admitted do nothing.
type Reservation struct {
	plan    *plan       // nil if nothing was admitted
	settled atomic.Bool // the costs are final
	left    atomic.Bool // the places are left
}

// Settle replaces the costs by the actual ones, given in the order of the charges, as
// weir.Reservation.Settle does. The costs of places are ignored: a place is held until Done. Call it
// before Done. The first Settle, Done or Cancel makes the costs final, and later calls of Settle do
// nothing.
//
// The limits of this process are settled first, then stores with one call each. After an error, that
// store may or may not have settled. A charge of 0 in a store cannot be settled to more, which is an
// error too: charge at least 1. A wrong number of costs is weir.ErrCosts, one below 0
// weir.ErrCost, and both change nothing.
func (r *Reservation) Settle(ctx context.Context, actual ...int64) error {
	if r.plan == nil {
		return nil
	}
	if len(actual) != len(r.plan.of) {
		return fmt.Errorf("%w: %d, for %d charges", weir.ErrCosts, len(actual), len(r.plan.of))
	}
	total := map[*entry]int64{}
	for i, n := range actual {
		if n < 0 {
			return weir.ErrCost
		}
		e := r.plan.of[i]
		total[e] = sum(total[e], n)
	}
	return r.settle(ctx, func(e *entry) int64 { return total[e] })
}

// settle makes the costs final, once.
func (r *Reservation) settle(ctx context.Context, actual func(*entry) int64) error {
	if !r.settled.CompareAndSwap(false, true) {
		return nil
	}
	for _, e := range r.plan.entries {
		if e.held.settle != nil {
			e.held.settle(actual(e))
		}
	}
	return settleStores(ctx, r.plan.entries, actual)
}

// Done leaves the places; the outcome is that of the work. What was charged and not settled stays
// charged. The first Done or Cancel leaves.
func (r *Reservation) Done(o weir.Outcome) {
	if r.plan == nil {
		return
	}
	if r.settled.CompareAndSwap(false, true) {
		for _, e := range r.plan.entries {
			if e.held.settle != nil {
				e.held.settle(e.cost) // the limiter need not remember the charge any longer
			}
		}
	}
	r.leave(o)
}

func (r *Reservation) leave(o weir.Outcome) {
	if !r.left.CompareAndSwap(false, true) {
		return
	}
	for _, e := range r.plan.entries {
		if e.held.done != nil {
			e.held.done(o)
		}
	}
}

// Cancel gives back all charges, as far as the package comment says, and leaves the places. It does
// nothing to costs that are final, nor to places that are left. After an error, a store may or may
// not have given its charges back.
func (r *Reservation) Cancel(ctx context.Context) error {
	if r.plan == nil {
		return nil
	}
	err := r.settle(ctx, nothing)
	r.leave(weir.Ignore)
	return err
}

// Decisions returns the decision about each charge, in their order; none if the call was not
// admitted.
func (r *Reservation) Decisions() []weir.Decision {
	if r.plan == nil {
		return nil
	}
	all := make([]weir.Decision, len(r.plan.of))
	for i, e := range r.plan.of {
		all[i] = e.decision
	}
	return all
}
