// Package lease makes shared limits as fast as local ones: a weir.Store over a weir.Store that takes tokens ahead and decides with them in
// this process, so that a hot key costs no trip for most calls.
//
//	leased, err := lease.New(store, lease.Options{Lifetime: 250 * time.Millisecond})
//	...
//	defer leased.Close()
//	perItem, err := weir.NewShared(limit, leased, weir.Named("per-item"))
//
// Tokens are charged to the store when they are taken, so that no node ever has what the store has not granted. What is given up is when they
// are used: up to a lifetime later. With Q the tokens that all nodes together hold at most, and d the lifetime, a TokenBucket admits no more
// than Burst + rate*D + min(Q, rate*d) in any interval of length D. A lease from a FixedWindow, a SlidingWindow or a SlidingCounter ends with
// the window or the slot that it was counted in, and so their own bounds hold.
package lease

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weirflow/weir"
)

// The settings where Options do not name others.
const (
	DefaultLifetime       = 250 * time.Millisecond
	DefaultMaxOutstanding = 1 << 20
	DefaultMaxKeys        = 1 << 14
)

// ErrClosed is the error of a Store that was closed.
var ErrClosed = errors.New("weir: lease: the store is closed")

// Options are the settings of a Store. The zero value is ready to use.
type Options struct {
	// Lifetime is how long after asking for them tokens may be used; from 1 ms to 1 minute. Longer ones save trips, but a burst may come later
	// by as much, and so long may tokens lie with a node that has no use for them.
	Lifetime time.Duration
	// MaxOutstanding is how many tokens of a key this node may hold at once, at most 2^40. Calls that cost more are decided by the store.
	MaxOutstanding int64
	// MaxKeys is how many keys are leased at once, at most 2^24, some 600 bytes each while they are in use. All others are decided by the store.
	MaxKeys int
	// Timeout is the deadline of a trip that the Store makes by itself, on behalf of callers or ahead of them; 0 means Lifetime, as
	// what comes later is of no use.
	// Trips for a single call have the deadline of its context alone.
	Timeout time.Duration

	// Clock and Timers replace the clock, which reads nanoseconds and only goes forward, and what wakes the Store, for virtual time. Trips
	// are made in goroutines, and so they must be safe for concurrent use. In a testing/synctest bubble neither is needed.
	Clock  func() int64
	Timers func(time.Duration, func()) weir.Timer
}

// validate says what is wrong with the options, and sets what is not.
func (o *Options) validate() error {
	switch {
	case o.Lifetime != 0 && (o.Lifetime < time.Millisecond || o.Lifetime > time.Minute):
		return fmt.Errorf("weir: lease.Options.Lifetime: %v is not between 1ms and 1m: use 0 for %v", o.Lifetime, DefaultLifetime)
	case o.MaxOutstanding < 0 || o.MaxOutstanding > mostDemand:
		return fmt.Errorf("weir: lease.Options.MaxOutstanding: %d is not between 1 and 2^40: use 0 for %d", o.MaxOutstanding, DefaultMaxOutstanding)
	case o.MaxKeys < 0 || o.MaxKeys > 1<<24:
		return fmt.Errorf("weir: lease.Options.MaxKeys: %d is not between 1 and 2^24: use 0 for %d", o.MaxKeys, DefaultMaxKeys)
	case o.Timeout < 0:
		return fmt.Errorf("weir: lease.Options.Timeout: %v is no time: use 0 for Lifetime", o.Timeout)
	}
	if o.Lifetime == 0 {
		o.Lifetime = DefaultLifetime
	}
	if o.MaxOutstanding == 0 {
		o.MaxOutstanding = DefaultMaxOutstanding
	}
	if o.MaxKeys == 0 {
		o.MaxKeys = DefaultMaxKeys
	}
	if o.Timeout == 0 {
		o.Timeout = o.Lifetime
	}
	return nil
}

// A Store is a weir.Store that leases from another. All methods are safe for concurrent use. A decision from leased tokens takes no lock and
// allocates nothing. It has at most one trip under way for each key, besides those of callers that ask for exactly their own cost, and one
// timer while there are keys.
//
// What it decides by itself:
//
//   - OpTake, of a cost above 0, alone in its group, and without Keep. It is allowed where there are tokens here, or where the store gives
//     some. A refusal is always the store's: it holds here for its RetryAfter or a part of it, or, where that is less, for 1/32 of Lifetime at
//     most, and RetryAfter says so. What others give back meanwhile is noticed after it.
//   - Decision.Source is SourceLease for all that was decided here. Remaining is what is left here and what the store last said to have;
//     Limit, ResetAfter and By are what the store last said.
//
// All else is decided by the store, which knows nothing of what is used here: for it all leased tokens are used. So it is for groups,
// OpReserve, OpTakeSome, and OpTake with Keep: they are exact, and may be refused while nodes hold tokens. An OpPeek is told what is left here
// too. An OpReset drops what this node holds; others may use theirs, up to a lifetime. A limit that is not Leasable is refused with
// ErrLimit, whatever is asked.
//
// Each look at a key, eight times in a Lifetime, gives back what will not be used in time, or all where nobody asks any more. What a node
// holds that crashes is lost, until the limit has refilled.
type Store struct {
	opts  Options
	inner weir.Store
	start time.Time
	clock func() int64 // nil for the time since start
	after func(time.Duration, func()) weir.Timer
	carry func(*trip) // makes a trip and lands it, later

	keys   table
	closed atomic.Bool
	stats  counters

	// Locks are taken in this order, with an entry's before mu.
	sweeping sync.Mutex // of who looks at all keys
	mu       sync.Mutex // of the table, of closed and of what follows
	timer    weir.Timer
	flights  sync.WaitGroup
}

// counters are what Stats is made of.
type counters struct{ trips, leased, returned, lost atomic.Uint64 }

// Stats is what a Store has counted since it was made. Decisions are not counted: that would cost more than to make them.
type Stats struct {
	Keys     int    // that have an entry now
	Trips    uint64 // calls of the store below
	Leased   uint64 // tokens taken ahead, or for several callers at once
	Returned uint64 // of these, given back, as far as the limit permits
	Lost     uint64 // tokens that may have been taken, or not have been given back, as a trip failed
}

// New returns a Store that leases from another one, which it does not close. The error says which option is wrong.
//
// A failover goes around a lease and not into it: tokens of a share of this node are not to be leased.
func New(store weir.Store, o Options) (*Store, error) {
	if store == nil {
		return nil, errors.New("weir: lease.New without a store: make one, like weirredis.New")
	}
	if err := o.validate(); err != nil {
		return nil, err
	}
	s := &Store{opts: o, inner: store, start: time.Now(), clock: o.Clock, after: o.Timers, keys: newTable(o.MaxKeys)}
	if s.after == nil {
		s.after = func(d time.Duration, f func()) weir.Timer { return time.AfterFunc(d, f) }
	}
	s.carry = s.fly
	return s, nil
}

// Stats returns the counters.
func (s *Store) Stats() Stats {
	s.mu.Lock()
	keys := len(s.keys.all)
	s.mu.Unlock()
	return Stats{keys, s.stats.trips.Load(), s.stats.leased.Load(), s.stats.returned.Load(), s.stats.lost.Load()}
}

// Unwrap returns the store that this one leases from, which can do what a lease has no part in.
func (s *Store) Unwrap() weir.Store { return s.inner }

// now reads the clock.
func (s *Store) now() int64 {
	if s.clock == nil {
		return int64(time.Since(s.start))
	}
	return s.clock()
}

// Do decides a batch, as weir.Store says: from leased tokens where there are, and by the store otherwise. It waits for as long as the context
// lasts; then its error is returned, and what the caller did not get is there for others. The charges that are decided here and those that
// the store decides are carried out in the order of the batch, each stretch of them together.
func (s *Store) Do(ctx context.Context, batch []weir.Charge, out []weir.Decision) error {
	if len(out) < len(batch) {
		return fmt.Errorf("weir: lease: %d charges, and room for %d decisions", len(batch), len(out))
	}
	if len(batch) == 1 && s.TryNow(&batch[0], &out[0]) {
		return nil
	}
	return s.do(ctx, batch, out)
}

// TryNow decides about a charge if that takes no round trip: from leased tokens, or by a refusal of the store that is still in force. It takes no
// lock, starts nothing and allocates nothing. It reports false, and has charged nothing, where Do has to decide.
func (s *Store) TryNow(c *weir.Charge, d *weir.Decision) (decided bool) {
	if c.Op != weir.OpTake || c.Cost <= 0 || c.Keep {
		return false
	}
	e := s.keys.find(c.Name, c.Key)
	if e == nil {
		return false
	}
	now, left := s.now(), int64(0)
	if g := e.cur.Load(); g != nil && g.limit == c.Limit && now < g.ends {
		for left = g.left.Load(); left >= c.Cost; left = g.left.Load() {
			if !g.left.CompareAndSwap(left, left-c.Cost) {
				continue
			}
			left -= c.Cost
			if g.decide(d, left, now); left <= g.low {
				s.ahead(e, g, now)
			}
			c.Err = nil
			return true
		}
	}
	if e.spare.Load() > 0 || !e.no.Load().decide(d, c, left, now) {
		return false
	}
	e.unmet(c.Cost)
	c.Err = nil
	return true
}

// Close gives back all tokens that are left, and ends the timer and the trips that are under way, for each of which it waits. Calls fail
// with ErrClosed from then on. It takes up to three Timeouts. The error is the store's; what was not given back is lost until the limit
// has refilled. A second Close does nothing.
func (s *Store) Close() error {
	s.sweeping.Lock() // a look that has begun sends what it has to give back
	defer s.sweeping.Unlock()
	s.mu.Lock()
	was := s.closed.Swap(true)
	if s.timer != nil {
		s.timer.Stop()
	}
	s.mu.Unlock()
	if was {
		return nil
	}
	s.flights.Wait()
	t := new(trip)
	for _, e := range s.snapshot() {
		e.mu.Lock()
		e.endAll(s.now())
		t.settle(e)
		e.gone = true
		e.mu.Unlock()
	}
	ctx, cancel := context.WithTimeout(context.Background(), s.opts.Timeout)
	defer cancel()
	var errs []error
	for _, t := range t.cut() {
		errs = append(errs, s.call(ctx, t))
		s.land(t)
	}
	return errors.Join(errs...)
}
