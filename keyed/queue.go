package keyed

import (
	"context"
	"errors"
	"math"
	"time"

	"github.com/weirflow/weir"
	"github.com/weirflow/weir/internal/claim"
)

// Wait blocks the caller until cost units may go for the key, as weir.Limiter.Wait does: in the
// order of arrival for each key. Without room for a new key it returns ErrFull at once. An invalid
// key is ErrKey.
func (k *Limiter[K]) Wait(ctx context.Context, key K, cost int64) (err error) {
	if err := ctx.Err(); err != nil {
		return err
	}
	if cost < 0 {
		return weir.ErrCost
	}
	if cost == 0 {
		return nil
	}
	h, ok := k.hash(key)
	if !ok {
		return ErrKey
	}
	if k.top != nil {
		defer func() { k.top.noteWait(key, h, cost, err) }()
	}
	x, err := k.pinEntry(key, h, cost)
	switch {
	case errors.Is(err, ErrFull) && k.shared != nil:
		k.stats.shared.Add(1)
		return k.shared.Wait(ctx, k.group(key), cost)
	case err != nil || x == nil:
		return err
	}
	defer k.unpinEntry(x, key)
	return x.lim.Wait(ctx, cost)
}

// pinEntry takes the cost if it may go now. Otherwise it returns the key's entry with a limiter
// that stays until unpinEntry.
func (k *Limiter[K]) pinEntry(key K, h uint64, cost int64) (*entry[K], error) {
	g := k.grip(key, h)
	defer g.release()
	d, ok := g.take(cost)
	if !ok {
		if _, ok := g.makeRoom(); !ok {
			return nil, ErrFull
		}
		d, _ = g.take(cost)
	}
	switch {
	case d.Allowed:
		return nil, nil
	case g.needsNone(cost) || g.fixed():
		return nil, &weir.LimitedError{Decision: d}
	}
	x, ok := g.promoted()
	if !ok {
		return nil, ErrFull
	}
	x.pins++
	return x, nil
}

// promoted is promote, after making room if there is none.
func (g *grip[K]) promoted() (*entry[K], bool) {
	if x, ok := g.promote(); ok {
		return x, true
	}
	if _, ok := g.makeRoom(); !ok {
		return nil, false
	}
	return g.promote()
}

func (k *Limiter[K]) unpinEntry(x *entry[K], key K) {
	g := k.grip(key, x.h)
	defer g.release()
	x.pins--
	if !x.gone {
		g.extendBound() // a caller that gave up the wait may have made the key idle sooner than expected
	}
}

// Join is Wait without blocking, as weir.Limiter.Join is.
func (k *Limiter[K]) Join(key K, cost int64, maxDelay time.Duration) (*weir.Place, weir.Decision) {
	h, ok := k.hash(key)
	if !ok {
		return nil, k.refused(weir.Never)
	}
	p, d := k.join(key, h, cost, maxDelay)
	if k.top != nil {
		k.top.note(key, h, cost, p != nil || d.Allowed)
	}
	return p, d
}

func (k *Limiter[K]) join(key K, h uint64, cost int64, maxDelay time.Duration) (*weir.Place, weir.Decision) {
	g := k.grip(key, h)
	defer g.release()
	return g.join(cost, maxDelay)
}

func (g *grip[K]) join(cost int64, maxDelay time.Duration) (*weir.Place, weir.Decision) {
	d, ok := g.take(cost)
	if !ok {
		if wait, ok := g.makeRoom(); !ok {
			var place *weir.Place
			d = g.decideWithoutRoom(wait, func(s *Limiter[K], key K) (d weir.Decision) {
				place, d = s.Join(key, cost, maxDelay)
				return d
			})
			return place, d
		}
		d, _ = g.take(cost)
	}
	if d.Allowed || g.needsNone(cost) || g.fixed() {
		return nil, d
	}
	x, ok := g.promoted()
	if !ok {
		d, _ = g.take(max(cost, 1))
		return nil, d
	}
	return x.lim.Join(cost, maxDelay)
}

// A Reservation is a charge made ahead for a key, like weir.Reservation.
type Reservation[K comparable] struct {
	r        weir.Reservation
	decision weir.Decision
	k        *Limiter[K]
	x        *entry[K]
	key      K
	mark     claim.Mark
	cost     int64
	place    *weir.Place // of a charge that may have waited; then r is not used
}

// exempted is the cost of a reservation that Settle never charges.
const exempted = math.MaxInt64

// Reserve charges cost units for the key ahead, as weir.Limiter.Reserve does.
func (k *Limiter[K]) Reserve(key K, cost int64, maxDelay time.Duration) (r Reservation[K], ok bool) {
	h, ok := k.hash(key)
	if !ok {
		return Reservation[K]{decision: k.refused(weir.Never)}, false
	}
	if k.top != nil {
		defer func() { k.top.note(key, h, cost, ok) }()
	}
	g := k.grip(key, h)
	defer g.release()
	return g.reserve(cost, maxDelay)
}

func (g *grip[K]) reserve(cost int64, maxDelay time.Duration) (Reservation[K], bool) {
	k := g.k
	if fixed := g.fixed(); fixed || g.needsNone(cost) {
		d, _ := g.take(cost)
		if !d.Allowed {
			return Reservation[K]{decision: d}, false
		}
		// Settle may charge the key
		r := Reservation[K]{decision: d, k: k, x: &entry[K]{h: g.h, gone: true}, key: g.key, mark: k.claimMark()}
		if fixed {
			// Settle never charges a key with a fixed decision, like an exempt one
			r.cost = exempted
		}
		return r, true
	}
	x, ok := g.promote()
	if !ok {
		if wait, ok := g.makeRoom(); !ok {
			var r Reservation[K]
			r.decision = g.decideWithoutRoom(wait, func(s *Limiter[K], key K) weir.Decision {
				r, ok = s.Reserve(key, cost, maxDelay)
				return r.decision
			})
			return r, ok
		}
		if x, ok = g.promote(); !ok {
			return Reservation[K]{decision: k.refused(weir.Never)}, false
		}
	}
	r, ok := x.lim.Reserve(cost, maxDelay)
	if !ok {
		return Reservation[K]{decision: r.Decision()}, false
	}
	return Reservation[K]{r: r, decision: r.Decision(), k: k, x: x, key: g.key, mark: k.claimMark(), cost: cost}, true
}

// joinKept is Join for a charge that may be given back after its turn. There must be room for the
// key.
func (g *grip[K]) joinKept(cost int64) (Reservation[K], bool) {
	if g.fixed() || g.needsNone(cost) {
		return g.reserve(cost, 0)
	}
	k := g.k
	x, ok := g.promote()
	if !ok {
		return Reservation[K]{decision: k.refused(weir.Never)}, false
	}
	place, d := x.lim.JoinKept(cost, -1)
	if place == nil {
		return Reservation[K]{decision: d}, false
	}
	return Reservation[K]{decision: d, k: k, x: x, key: g.key, mark: k.claimMark(), cost: cost, place: place}, true
}

// claimMark returns a mark that can be claimed once.
func (k *Limiter[K]) claimMark() claim.Mark {
	k.marking.Lock()
	defer k.marking.Unlock()
	return k.marks.Next()
}

// Delay is how long after Reserve the work may go; 0 means at once. If the reservation was refused,
// Delay is Decision().RetryAfter.
func (r Reservation[K]) Delay() time.Duration {
	if !r.decision.Allowed {
		return r.decision.RetryAfter
	}
	return r.r.Delay()
}

// Decision is the decision of Reserve.
func (r Reservation[K]) Decision() weir.Decision { return r.decision }

// Settle replaces the reserved cost by the actual cost, as weir.Reservation.Settle does, even if
// the key has been evicted meanwhile.
func (r Reservation[K]) Settle(actual int64) {
	if actual < 0 || !r.mark.Claim() {
		return
	}
	if !r.k.opts.Keys {
		r.settle(actual)
		return
	}
	settled, difference := r.settleMoved(actual)
	if settled != nil && difference != 0 {
		settled(r.key, difference)
	}
}

// settleMoved is settle for a limiter that may have been moved: it returns what to call then, and with what.
func (r Reservation[K]) settleMoved(actual int64) (settled func(key K, difference int64), difference int64) {
	r.k.moving.RLock()
	defer r.k.moving.RUnlock()
	settled = r.k.settled
	before, after := r.settle(actual)
	switch {
	case r.place != nil || r.cost == exempted:
	case actual > r.cost:
		difference = actual - r.cost
	case after > before: // not so if the window has ended
		difference = before - after
	}
	return settled, difference
}

// settle is Settle for a mark that was claimed. It returns what was left before and after.
func (r Reservation[K]) settle(actual int64) (before, after int64) {
	g := r.k.grip(r.key, r.x.h)
	defer g.release()
	if r.place != nil && r.x.gone {
		r.place.Leave() // after a Reset it may still wait
	}
	if !r.x.gone {
		if r.k.opts.Keys {
			before = g.peek(0).Remaining
		}
		if r.place != nil {
			r.place.Settle(actual)
		} else {
			r.r.Settle(actual)
		}
		if r.k.opts.Keys {
			after = g.peek(0).Remaining
		}
		g.extendBound() // the key may be idle sooner than expected
		return before, after
	}
	if actual <= r.cost {
		return 0, 0 // the key was evicted: there is nothing left to give back
	}
	if x, ok := g.promoted(); ok { // without room, the key is not limited
		late, _ := x.lim.Reserve(0, 0)
		late.Settle(actual - r.cost)
	}
	return 0, 0
}

// Cancel gives back what was reserved, as weir.Reservation.Cancel does.
func (r Reservation[K]) Cancel() { r.Settle(0) }
