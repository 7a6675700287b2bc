package weir

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"
)

// A Shared is a limit whose states are in a Store, one for each key, so that all processes that use the same name share them. It has the
// verbs of a Limiter, with a context and the key first and an error last. All methods are safe for concurrent use.
//
// A refusal is a Decision, not an error. An error says that the store did not answer, or could not; see the failover package for what
// decides then.
type Shared struct {
	name  string
	store Store
	after func(time.Duration, func()) Timer
	rule  atomic.Pointer[sharedRule]
}

// sharedRule is a limit and what has to be known of it here.
type sharedRule struct {
	limit Limit
	books bool
}

// storeTick is the clock unit of stores.
const storeTick = time.Microsecond

// NewShared returns a limit in a store. It needs a name, by the option Named: all who use that name share the states, and decisions carry it in
// By. WithTimers replaces what Wait sleeps by; other options have no meaning here, as a store has its own clock. The error says which
// number of the limit is wrong: a store counts in microseconds. Concurrency is not taken but entered: see the store for it.
func NewShared(l Limit, s Store, opts ...Option) (*Shared, error) {
	var o Limiter
	for _, opt := range opts {
		opt(&o)
	}
	switch {
	case s == nil:
		return nil, errors.New("weir: NewShared without a store: make one, like weirredis.New")
	case o.name == "":
		return nil, errors.New("weir: a shared limit needs a name, which is part of its keys: pass Named(\"per-user\")")
	}
	shared := &Shared{name: o.name, store: s, after: o.after}
	if shared.after == nil {
		shared.after = func(d time.Duration, f func()) Timer { return time.AfterFunc(d, f) }
	}
	if err := shared.SetLimit(l); err != nil {
		return nil, err
	}
	return shared, nil
}

// Name returns the name under which states are shared.
func (s *Shared) Name() string { return s.name }

// Limit returns the limit in force in this process.
func (s *Shared) Limit() Limit { return s.rule.Load().limit }

// SetLimit changes the limit of this process. A key's state is carried over, keeping what has been used, when it is next asked about. While some
// processes have the one limit and others the other, states go back and forth between the two, each time rounded up.
func (s *Shared) SetLimit(next Limit) error {
	if _, ok := next.(Concurrency); ok {
		return errors.New("weir: Concurrency is entered and left, not taken: it cannot be a Shared")
	}
	r, err := compile(next, storeTick)
	if err != nil {
		return err
	}
	s.rule.Store(&sharedRule{next, r.CanBook()})
	return nil
}

// one asks the store about a single charge.
func (s *Shared) one(ctx context.Context, c *Charge) (d Decision, err error) {
	c.Name = s.name
	if c.Limit == nil {
		c.Limit = s.Limit()
	}
	a := singles.Get().(*single)
	a.batch[0] = *c
	err = s.store.Do(ctx, a.batch[:], a.out[:])
	*c, d = a.batch[0], a.out[0]
	*a = single{}
	singles.Put(a)
	return d, err
}

// single is room for a batch of one, which would otherwise be made for each call.
type single struct {
	batch [1]Charge
	out   [1]Decision
}

var singles = sync.Pool{New: func() any { return new(single) }}

// Allow reports whether one unit for the key may go now, and charges it if so.
func (s *Shared) Allow(ctx context.Context, key string) (bool, error) {
	d, err := s.Take(ctx, key, 1)
	return d.Allowed, err
}

// Take asks for cost units now, and charges them if the answer is yes.
func (s *Shared) Take(ctx context.Context, key string, cost int64) (Decision, error) {
	return s.one(ctx, &Charge{Key: key, Cost: cost})
}

// Peek answers as Take would, and charges nothing.
func (s *Shared) Peek(ctx context.Context, key string, cost int64) (Decision, error) {
	return s.one(ctx, &Charge{Key: key, Cost: cost, Op: OpPeek})
}

// Reset forgets what a key has used.
func (s *Shared) Reset(ctx context.Context, key string) error {
	_, err := s.one(ctx, &Charge{Key: key, Op: OpReset})
	return err
}

// Reserve charges cost units ahead, if the work has to be delayed for no longer than maxDelay (below 0: however long is fine), and reports
// whether it did. SlidingCounter and All cannot book ahead: they have to be free now.
func (s *Shared) Reserve(ctx context.Context, key string, cost int64, maxDelay time.Duration) (*SharedReservation, bool, error) {
	rule := s.rule.Load()
	if !rule.books {
		maxDelay = 0
	}
	c := Charge{Key: key, Limit: rule.limit, Cost: cost, Op: OpReserve, Within: max(maxDelay, -1)}
	d, err := s.one(ctx, &c)
	return &SharedReservation{shared: s, charge: c, decision: d}, d.Allowed && err == nil, err
}

// A SharedReservation is a charge made ahead in a store.
type SharedReservation struct {
	shared   *Shared
	charge   Charge
	decision Decision
	settled  atomic.Bool
}

// Delay is how long after Reserve the work may go: 0 for at once. For a reservation that was refused it is Decision().RetryAfter.
func (r *SharedReservation) Delay() time.Duration {
	if !r.decision.Allowed {
		return r.decision.RetryAfter
	}
	return r.charge.Delay
}

// Decision is what Reserve decided.
func (r *SharedReservation) Decision() Decision { return r.decision }

// Settle puts the actual cost in place of the reserved one, as Reservation.Settle does. The first Settle or Cancel wins. On an error it is not
// known whether it was done; what was not given back is lost at most until the limit has refilled.
func (r *SharedReservation) Settle(ctx context.Context, actual int64) error {
	if actual < 0 || !r.decision.Allowed || r.charge.Receipt == "" || !r.settled.CompareAndSwap(false, true) || actual == r.charge.Cost {
		return nil
	}
	c := r.charge
	c.Op, c.Cost = OpSettle, actual
	_, err := r.shared.one(ctx, &c)
	return err
}

// Cancel gives back what was reserved, as far as that never admits too much.
func (r *SharedReservation) Cancel(ctx context.Context) error { return r.Settle(ctx, 0) }

// Wait returns nil once cost units were charged and may go. It returns an error that errors.Is finds ErrLimited in where that can never be, or
// not before the context's deadline, and then charges nothing; the context's error where that ends first, and then gives back what was
// charged ahead; and the store's error where it did not answer.
//
// Callers of one key go in the order in which the store heard of them, where the limit books ahead; SlidingCounter and All cannot, and who
// comes first when there is room again goes first.
func (s *Shared) Wait(ctx context.Context, key string, cost int64) error {
	if cost < 0 {
		return ErrCost
	}
	for {
		within := time.Duration(-1)
		if end, ok := ctx.Deadline(); ok {
			within = max(time.Until(end), 0)
		}
		if err := ctx.Err(); err != nil {
			return err
		}
		r, ok, err := s.Reserve(ctx, key, cost, within)
		if err != nil {
			return err
		}
		wait := r.Delay()
		if !ok {
			d := r.decision
			if s.rule.Load().books || d.RetryAfter == Never || within >= 0 && d.RetryAfter > within {
				return &LimitedError{Decision: s.turn(d, within), Deadline: d.RetryAfter != Never && within >= 0}
			}
		}
		if err := s.sleep(ctx, wait); err != nil {
			if ok {
				err = errors.Join(err, s.giveBack(ctx, r))
			}
			return err
		}
		if ok {
			return nil
		}
	}
}

// turn is the decision of a Wait that would have come too late: its RetryAfter is the whole wait, and not how much too long it is.
func (s *Shared) turn(d Decision, within time.Duration) Decision {
	if s.rule.Load().books && d.RetryAfter > 0 && within > 0 {
		d.RetryAfter += within
	}
	return d
}

// patience is how long a charge may take to be given back whose caller has gone.
const patience = time.Second

// giveBack cancels a reservation although its context has ended.
func (s *Shared) giveBack(ctx context.Context, r *SharedReservation) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), patience)
	defer cancel()
	if err := r.Cancel(ctx); err != nil {
		return fmt.Errorf("weir: what was charged ahead was not given back: %w", err)
	}
	return nil
}

// sleep waits, or returns the context's error.
func (s *Shared) sleep(ctx context.Context, d time.Duration) error {
	if d <= 0 {
		return nil
	}
	done := make(chan struct{})
	timer := s.after(d, func() { close(done) })
	defer timer.Stop()
	select {
	case <-done:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
