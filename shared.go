package weir

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weirflow/weir/internal/attached"
	"github.com/weirflow/weir/internal/pause"
	"github.com/weirflow/weir/internal/rules"
)

// A Shared is a limit whose states are in a Store, one for each key. All processes that use the
// same name share them. It has the methods of a Limiter, with a context and the key first and an
// error last. All methods are safe for concurrent use.
//
// A refusal is a Decision, not an error. An error means that the store is unavailable or failed;
// see package failover for a fallback.
type Shared struct {
	name  string
	store Store
	after func(time.Duration, func()) Timer
	rule  atomic.Pointer[sharedRule]

	attached attached.Box
}

// sharedRule is a limit, whether it can charge ahead, and whether its states list their outstanding
// reservations.
type sharedRule struct {
	limit Limit
	books bool
	lists bool
}

// storeTick is the clock unit of stores.
const storeTick = time.Microsecond

// NewShared returns a limit in a store. The option Named is required: all processes that use the
// name share the states, and decisions carry it in By. WithTimers replaces the timers of Wait.
// Other options have no effect, as a store has its own clock.
//
// The error says which parameter of the limit is invalid; a store counts in microseconds.
// Concurrency is refused, as it is entered and not taken: see weirredis.NewConcurrency.
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

// Name returns the name under which processes share the states.
func (s *Shared) Name() string { return s.name }

// Store returns the store that keeps the states.
func (s *Shared) Store() Store { return s.store }

// Attached is for the other packages of this module: what they keep for the limit.
func (s *Shared) Attached() *attached.Box { return &s.attached }

// Limit returns the limit in force in this process.
func (s *Shared) Limit() Limit { return s.rule.Load().limit }

// SetLimit changes the limit of this process. A key begins with what has been used of it when it is
// next evaluated. While other processes have another limit, each decides by its own, and what it
// admits counts for both: see docs/guarantees.md, "Two versions of a limit at once".
func (s *Shared) SetLimit(next Limit) error {
	if _, ok := next.(Concurrency); ok {
		return errors.New("weir: Concurrency is entered and left, not taken: it cannot be a Shared")
	}
	r, err := compile(next, storeTick)
	if err != nil {
		return err
	}
	if k, ok := s.store.(Keeper); ok {
		if err := k.Keeps(next); err != nil {
			return err
		}
	}
	s.rule.Store(&sharedRule{next, r.CanBook(), rules.Lists(Parts(next))})
	return nil
}

// doOne sends a single charge to the store.
func (s *Shared) doOne(ctx context.Context, c *Charge) (d Decision, err error) {
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

// single is a reusable batch of one charge.
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

// Take decides about cost units now, and charges them if they are allowed.
func (s *Shared) Take(ctx context.Context, key string, cost int64) (Decision, error) {
	return s.doOne(ctx, &Charge{Key: key, Cost: cost})
}

// Peek returns the decision that Take would return, and charges nothing.
func (s *Shared) Peek(ctx context.Context, key string, cost int64) (Decision, error) {
	return s.doOne(ctx, &Charge{Key: key, Cost: cost, Op: OpPeek})
}

// Reset makes the state of a key unused again: it starts over without counts.
func (s *Shared) Reset(ctx context.Context, key string) error {
	_, err := s.doOne(ctx, &Charge{Key: key, Op: OpReset})
	return err
}

// Reserve charges cost units ahead and reports whether it did. It refuses if the work would have to
// be delayed for longer than maxDelay; below 0, any delay is accepted. SlidingCounter and All
// cannot charge ahead: they succeed only if the work may go now.
func (s *Shared) Reserve(ctx context.Context, key string, cost int64, maxDelay time.Duration) (*SharedReservation, bool, error) {
	return s.reserve(ctx, key, cost, maxDelay, true)
}

// reserve is Reserve. settles is whether the reservation may be settled once its work may go.
func (s *Shared) reserve(ctx context.Context, key string, cost int64, maxDelay time.Duration, settles bool) (*SharedReservation, bool, error) {
	rule := s.rule.Load()
	if !rule.books {
		maxDelay = 0
	}
	c := Charge{Key: key, Limit: rule.limit, Cost: cost, Op: OpReserve, Within: max(maxDelay, -1), Estimate: settles}
	d, err := s.doOne(ctx, &c)
	return &SharedReservation{shared: s, charge: c, lists: rule.lists && settles, decision: d}, d.Allowed && err == nil, err
}

// A SharedReservation is a charge made ahead in a store.
type SharedReservation struct {
	shared   *Shared
	charge   Charge
	lists    bool // the key's state lists the reservation until it is settled
	decision Decision
	settled  atomic.Bool
}

// Delay is how long after Reserve the work may go; 0 means at once. If the reservation was refused,
// Delay is Decision().RetryAfter.
func (r *SharedReservation) Delay() time.Duration {
	if !r.decision.Allowed {
		return r.decision.RetryAfter
	}
	return r.charge.Delay
}

// Decision is the decision of Reserve.
func (r *SharedReservation) Decision() Decision { return r.decision }

// Settle replaces the reserved cost by the actual cost, as Reservation.Settle does. The first
// Settle or Cancel wins. A state of a TokenBucket, LeakyBucket, SmoothBursty, IntervalBucket or
// WarmUp remembers a reservation until then, so settle also what cost exactly what was reserved.
//
// With an error in which errors.Is finds ErrExpired, the reservation stays charged: Redis keeps it
// until 15 minutes after its work may go. After any other error, the store may or may not have
// settled; what was not given back stays charged at most until the limit has refilled.
func (r *SharedReservation) Settle(ctx context.Context, actual int64) error {
	if actual < 0 || !r.decision.Allowed || r.charge.Receipt == "" || !r.settled.CompareAndSwap(false, true) || actual == r.charge.Cost && !r.lists {
		return nil
	}
	c := r.charge
	c.Op, c.Cost = OpSettle, actual
	_, err := r.shared.doOne(ctx, &c)
	return err
}

// Cancel gives back what was reserved, as far as that never admits too much.
func (r *SharedReservation) Cancel(ctx context.Context) error { return r.Settle(ctx, 0) }

// Wait blocks until cost units are charged and may go, and returns nil. It fails in three cases:
//
//   - No wait helps, or the turn would come after the context's deadline: an error in which
//     errors.Is finds ErrLimited. Nothing is charged.
//   - The context ends first: the context's error. What was charged ahead is given back.
//   - The store fails or is unavailable: the store's error.
//
// If the limit can charge ahead, callers of one key go in the order in which the store received
// them. SlidingCounter and All cannot: the first caller that finds room goes first.
func (s *Shared) Wait(ctx context.Context, key string, cost int64) error {
	_, err := s.wait(ctx, key, cost, false)
	return err
}

// WaitKept is Wait for work that may be settled or cancelled after its turn has come. Without an
// error, the reservation's work may go.
func (s *Shared) WaitKept(ctx context.Context, key string, cost int64) (*SharedReservation, error) {
	return s.wait(ctx, key, cost, true)
}

func (s *Shared) wait(ctx context.Context, key string, cost int64, settles bool) (*SharedReservation, error) {
	if cost < 0 {
		return nil, ErrCost
	}
	for {
		within := time.Duration(-1)
		if end, ok := ctx.Deadline(); ok {
			within = max(time.Until(end), 0)
		}
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		r, ok, err := s.reserve(ctx, key, cost, within, settles)
		if err != nil {
			return nil, err
		}
		wait := r.Delay()
		if !ok {
			d := r.decision
			if s.rule.Load().books || d.RetryAfter == Never || within >= 0 && d.RetryAfter > within {
				return nil, &LimitedError{Decision: s.tooLate(d, within), Deadline: d.RetryAfter != Never && within >= 0}
			}
		}
		if err := s.sleep(ctx, wait); err != nil {
			if ok {
				err = errors.Join(err, s.giveBack(ctx, r))
			}
			return nil, err
		}
		if ok {
			return r, nil
		}
	}
}

// tooLate is the decision of a Wait whose turn would come too late. Its RetryAfter is the whole
// wait, and not only the part beyond within.
func (s *Shared) tooLate(d Decision, within time.Duration) Decision {
	if s.rule.Load().books && d.RetryAfter > 0 && within > 0 {
		d.RetryAfter += within
	}
	return d
}

// giveBackTimeout is the timeout for giving back a charge whose caller's context has ended.
const giveBackTimeout = time.Second

// giveBack cancels a reservation although its context has ended.
func (s *Shared) giveBack(ctx context.Context, r *SharedReservation) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), giveBackTimeout)
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
	return pause.Until(ctx, done)
}
