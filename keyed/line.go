package keyed

import (
	"context"
	"time"

	"github.com/weirflow/weir"
	"github.com/weirflow/weir/internal/claim"
)

// Wait holds the caller until cost units may go for the key, as weir.Limiter.Wait does: in the order of arrival for each key. Without
// room for a new key it returns ErrFull at once, and ErrKey for a key that is none.
func (k *Limiter[K]) Wait(ctx context.Context, key K, cost int64) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if cost < 0 {
		return weir.ErrCost
	}
	if cost == 0 {
		return nil
	}
	e, d, err := k.pin(key, cost)
	if err != nil || d.Allowed {
		return err
	}
	defer k.unpin(e)
	return e.lim.Wait(ctx, cost)
}

// pin takes the cost if it may go now, and otherwise returns the key's entry with a limiter that stays until unpin.
func (k *Limiter[K]) pin(key K, cost int64) (*entry[K], weir.Decision, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	d := k.take(key, cost)
	switch {
	case d.Allowed:
		return nil, d, nil
	case k.needsNone(key, cost):
		return nil, d, &weir.LimitedError{Decision: d}
	}
	e, err := k.promote(key)
	if err != nil {
		return nil, d, err
	}
	e.pins++
	return e, d, nil
}

func (k *Limiter[K]) unpin(e *entry[K]) {
	k.mu.Lock()
	defer k.mu.Unlock()
	e.pins--
	if k.entries[e.key] == e {
		k.refresh(e, k.now()) // who gave up the wait may have freed it sooner than was known
	}
}

// promote gives the key an entry whose state is in a limiter of its own.
func (k *Limiter[K]) promote(key K) (*entry[K], error) {
	e, err := k.find(key)
	if err != nil {
		return nil, err
	}
	if e == nil {
		e = &entry[K]{key: key}
		if _, ok := k.add(e, k.now(), 0); !ok {
			return nil, ErrFull
		}
	}
	if e.lim == nil {
		lim, err := k.prepared.New(e.state, weir.Named(k.opts.Name), weir.WithClock(k.clock), weir.WithWallClock(k.times), weir.WithTimers(k.timers))
		if err != nil {
			return nil, err
		}
		e.lim, e.state = lim, nil
	}
	return e, nil
}

// needsNone reports whether a key without a state needs none for a cost: one that is never charged. It is not to take the room of
// another key.
func (k *Limiter[K]) needsNone(key K, cost int64) bool {
	if cost > 0 && cost <= k.prepared.Peek(nil, 0, 0).Limit {
		return false
	}
	e, err := k.find(key)
	return e == nil && err == nil
}

// Join is Wait without blocking, as weir.Limiter.Join.
func (k *Limiter[K]) Join(key K, cost int64, maxDelay time.Duration) (*weir.Place, weir.Decision) {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.join(key, cost, maxDelay)
}

func (k *Limiter[K]) join(key K, cost int64, maxDelay time.Duration) (*weir.Place, weir.Decision) {
	if d := k.take(key, cost); d.Allowed || k.needsNone(key, cost) {
		return nil, d
	}
	e, err := k.promote(key)
	if err != nil {
		return nil, k.take(key, max(cost, 1)) // which is refused, and says why
	}
	return e.lim.Join(cost, maxDelay)
}

// A Reservation is a charge made ahead for a key, as weir.Reservation.
type Reservation[K comparable] struct {
	r        weir.Reservation
	decision weir.Decision
	k        *Limiter[K]
	e        *entry[K]
	mark     claim.Mark
	cost     int64
}

// Reserve charges cost units for the key ahead, as weir.Limiter.Reserve does.
func (k *Limiter[K]) Reserve(key K, cost int64, maxDelay time.Duration) (Reservation[K], bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.reserve(key, cost, maxDelay)
}

func (k *Limiter[K]) reserve(key K, cost int64, maxDelay time.Duration) (Reservation[K], bool) {
	if k.needsNone(key, cost) {
		d := k.take(key, cost)
		if !d.Allowed {
			return Reservation[K]{decision: d}, false
		}
		return Reservation[K]{decision: d, k: k, e: &entry[K]{key: key}, mark: k.marks.Next()}, true // Settle may charge it
	}
	e, err := k.promote(key)
	if err != nil {
		return Reservation[K]{decision: k.take(key, max(cost, 1))}, false // which is refused, and says why
	}
	r, ok := e.lim.Reserve(cost, maxDelay)
	if !ok {
		return Reservation[K]{decision: r.Decision()}, false
	}
	return Reservation[K]{r, r.Decision(), k, e, k.marks.Next(), cost}, true
}

// Delay is how long after Reserve the work may go: 0 for at once. For a reservation that was refused it is Decision().RetryAfter.
func (r Reservation[K]) Delay() time.Duration {
	if !r.decision.Allowed {
		return r.decision.RetryAfter
	}
	return r.r.Delay()
}

// Decision is what Reserve decided.
func (r Reservation[K]) Decision() weir.Decision { return r.decision }

// Settle puts the actual cost in place of the reserved one, as weir.Reservation.Settle does. It does so too for a key that has been
// let go meanwhile.
func (r Reservation[K]) Settle(actual int64) {
	if actual < 0 || !r.mark.Claim() {
		return
	}
	r.k.mu.Lock()
	defer r.k.mu.Unlock()
	r.settle(actual)
}

// settle is Settle under the lock, the mark claimed.
func (r Reservation[K]) settle(actual int64) {
	k := r.k
	if k.entries[r.e.key] == r.e {
		r.r.Settle(actual)
		k.refresh(r.e, k.now()) // it may be free sooner than was known
		return
	}
	if actual <= r.cost {
		return // the key was let go: there is nothing left to give back
	}
	e, err := k.promote(r.e.key)
	if err != nil {
		return // no room: the key is not limited
	}
	late, _ := e.lim.Reserve(0, 0)
	late.Settle(actual - r.cost)
}

// Cancel gives back what was reserved, as weir.Reservation.Cancel does.
func (r Reservation[K]) Cancel() { r.Settle(0) }
