package weirtest

import (
	"context"
	"crypto/rand"
	"errors"
	"time"

	"github.com/weirflow/weir"
	"github.com/weirflow/weir/internal/rules"
)

// Stored returns a Taker of a limit in a store, for the Open of a Subject: a store's test hands it to
// Conform so. It is a Peeker, a Reserver, a Keeper, a SomeTaker, a Setter and a Switcher, and
// closing it closes the store. It panics where the store fails.
func Stored(s weir.Store, l weir.Limit) Taker { return &storeTaker{s, l, map[string]bool{}} }

// storeTaker is a limit in a store.
type storeTaker struct {
	weir.Store
	limit weir.Limit
	keys  map[string]bool
}

func (s *storeTaker) do(c weir.Charge) (weir.Charge, weir.Decision) {
	s.keys[c.Key] = true
	if c.Name = "limit"; c.Limit == nil {
		c.Limit = s.limit
	}
	batch, out := []weir.Charge{c}, make([]weir.Decision, 1)
	if err := s.Do(context.Background(), batch, out); err != nil {
		panic(err)
	}
	return batch[0], out[0]
}

// Take implements Taker.
func (s *storeTaker) Take(key string, cost int64) weir.Decision {
	_, d := s.do(weir.Charge{Key: key, Cost: cost})
	return d
}

// Peek implements Peeker.
func (s *storeTaker) Peek(key string, cost int64) weir.Decision {
	_, d := s.do(weir.Charge{Key: key, Cost: cost, Op: weir.OpPeek})
	return d
}

// Reserve implements Reserver.
func (s *storeTaker) Reserve(key string, cost int64, maxDelay time.Duration) (Reservation, bool) {
	c, d := s.do(weir.Charge{Key: key, Cost: cost, Op: weir.OpReserve, Within: max(maxDelay, -1), Estimate: true})
	return &storeReservation{s, c, d}, d.Allowed
}

// TakeKept implements Keeper.
func (s *storeTaker) TakeKept(key string, cost int64, estimate bool) (Reservation, bool) {
	c, d := s.do(weir.Charge{Key: key, Cost: cost, Keep: true, Estimate: estimate})
	return &storeReservation{s, c, d}, d.Allowed
}

// TakeSome implements SomeTaker.
func (s *storeTaker) TakeSome(key string, cost int64) (taken int64, d weir.Decision) {
	c, d := s.do(weir.Charge{Key: key, Cost: cost, Op: weir.OpTakeSome})
	return c.Taken, d
}

// SetLimit implements Setter. It carries over all keys at once, as a model does. A store itself does so
// when a key is next used.
func (s *storeTaker) SetLimit(l weir.Limit) error {
	s.limit = l
	for key := range s.keys {
		s.do(weir.Charge{Key: key, Op: weir.OpCarry})
	}
	return nil
}

// Switch implements Switcher.
func (s *storeTaker) Switch(l weir.Limit) error {
	s.limit = l
	return nil
}

// storeReservation is a charge of a storeTaker that can be settled.
type storeReservation struct {
	s        *storeTaker
	charge   weir.Charge
	decision weir.Decision
}

// Delay implements Reservation.
func (r *storeReservation) Delay() time.Duration {
	if !r.decision.Allowed {
		return r.decision.RetryAfter
	}
	return r.charge.Delay
}

// Decision implements Reservation.
func (r *storeReservation) Decision() weir.Decision { return r.decision }

// Cancel implements Reservation.
func (r *storeReservation) Cancel() { r.Settle(0) }

// Settle implements Reservation.
func (r *storeReservation) Settle(actual int64) { r.SettleInTime(actual) }

// SettleInTime settles, and reports whether the store still remembered the reservation.
func (r *storeReservation) SettleInTime(actual int64) bool {
	if actual < 0 || r.charge.Receipt == "" {
		return true
	}
	if actual == r.charge.Cost && !rules.Lists(weir.Parts(r.charge.Limit)) {
		return true // as a Shared does: there is nothing to tell the store
	}
	c := r.charge
	r.charge.Receipt, c.Op, c.Cost = "", weir.OpSettle, actual
	c.Once, c.OnceFor = rand.Text(), time.Hour
	batch := []weir.Charge{c}
	err := r.s.Do(context.Background(), batch, make([]weir.Decision, 1))
	if err != nil && !errors.Is(err, weir.ErrExpired) {
		panic(err)
	}
	if err == nil { // a repeat, as after a lost reply, changes nothing, whatever its cost
		c.Cost = actual + 3
		if err := r.s.Do(context.Background(), []weir.Charge{c}, make([]weir.Decision, 1)); err != nil && !errors.Is(err, weir.ErrCharge) {
			panic(err)
		}
	}
	return err == nil
}
