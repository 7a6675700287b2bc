package keyed

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/weirflow/weir"
)

// A Group is several limiters that are charged together or not at all. It holds no state of its own; it is safe for concurrent use.
type Group[K comparable] struct {
	limiters []*Limiter[K]
	locks    []*Limiter[K] // the same, in the order in which they are locked
}

// NewGroup returns a group of limiters, each with a name of its own: their locks are taken in the order of the names, whatever the
// order here, so that groups that share limiters never wait for each other in a circle.
func NewGroup[K comparable](limiters ...*Limiter[K]) (*Group[K], error) {
	g := &Group[K]{limiters: limiters, locks: slices.Clone(limiters)}
	slices.SortFunc(g.locks, func(a, b *Limiter[K]) int { return cmp.Compare(a.opts.Name, b.opts.Name) })
	for i := 1; i < len(g.locks); i++ {
		if g.locks[i].opts.Name == g.locks[i-1].opts.Name {
			return nil, fmt.Errorf("weir: two limiters of a group are named %q: give each a name of its own", g.locks[i].opts.Name)
		}
	}
	return g, nil
}

// A Charge is what a group is asked to charge to one of its limiters, and what came of it.
type Charge[K comparable] struct {
	Key  K
	Cost int64
	Skip bool // this limiter is not asked
	Wait bool // get in line where it cannot go now: then Place is set
	Keep bool // the charge may be settled or cancelled later

	Decision weir.Decision // of this limiter alone
	Place    *weir.Place   // where there is a wait

	kept *Reservation[K]
}

// ErrCharges is what Take returns for charges that are not one for each limiter.
var ErrCharges = errors.New("weir: a group takes one charge for each of its limiters, in their order")

// Take charges all, at one moment, or none: charges[i] is for the i-th limiter. It returns the decision of the group: where any
// refuses, that of the limiter with the longest RetryAfter (Never before all, the first on a tie); else that with the least Remaining.
//
// Charges that are made while another of them has to wait for its turn are kept, so that they can be cancelled if the wait is given up.
func (g *Group[K]) Take(charges []Charge[K]) (weir.Decision, error) {
	if len(charges) != len(g.limiters) {
		return weir.Decision{RetryAfter: weir.Never}, ErrCharges
	}
	for _, k := range g.locks {
		k.mu.Lock()
		defer k.mu.Unlock()
	}
	for i, k := range g.limiters {
		if c := &charges[i]; !c.Skip {
			k.look(c)
		}
	}
	if refused := decider(charges); !refused.Allowed {
		return refused, nil
	}
	waits := false
	for i, k := range g.limiters {
		if c := &charges[i]; !c.Skip && c.Wait {
			c.Place, c.Decision = k.join(c.Key, c.Cost, -1)
			waits = waits || c.Place != nil
		}
	}
	for i, k := range g.limiters {
		switch c := &charges[i]; {
		case c.Skip || c.Wait:
		case waits || c.Keep:
			r, _ := k.reserve(c.Key, c.Cost, 0)
			c.kept, c.Decision = &r, r.Decision()
		default:
			c.Decision = k.take(c.Key, c.Cost)
		}
	}
	return decider(charges), nil
}

// look sets a charge's decision without charging.
func (k *Limiter[K]) look(c *Charge[K]) {
	c.Decision = k.peek(c.Key, c.Cost)
	if !c.Wait || c.Decision.Allowed || k.needsNone(c.Key, c.Cost) {
		return
	}
	e, err := k.promote(c.Key)
	if err != nil {
		return
	}
	c.Decision = e.lim.PeekJoin(c.Cost, -1)
}

// decider picks the decision that speaks for all.
func decider[K comparable](charges []Charge[K]) (d weir.Decision) {
	d.Allowed = true
	first := true
	for i := range charges {
		c := charges[i].Decision
		switch {
		case charges[i].Skip:
			continue
		case first:
			d = c
		case d.Allowed && (!c.Allowed || c.Remaining < d.Remaining):
			d = c
		case !d.Allowed && !c.Allowed && longer(c.RetryAfter, d.RetryAfter):
			d = c
		}
		first = false
	}
	return d
}

// longer compares two waits; Never is the longest.
func longer(a, b time.Duration) bool {
	return b != weir.Never && (a == weir.Never || a > b)
}

// Cancel gives back what the charge took, as far as it was kept or still waits.
func (c *Charge[K]) Cancel() {
	if c.Place != nil {
		c.Place.Leave()
	}
	if c.kept != nil {
		c.kept.Cancel()
	}
}

// Settle puts the actual cost in place of a charge that was kept.
func (c *Charge[K]) Settle(actual int64) {
	if c.kept != nil {
		c.kept.Settle(actual)
	}
}
