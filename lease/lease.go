// Package lease makes shared limits as fast as local ones: a weir.Store over a weir.Store that
// takes tokens ahead of demand and decides with them in this process, so that most calls for a hot
// key need no round trip.
//
//	leased, err := lease.New(store, lease.Options{Lifetime: 250 * time.Millisecond})
//	...
//	defer leased.Close()
//	perItem, err := weir.NewShared(limit, leased, weir.Named("per-item"))
//
// The store charges tokens when they are leased, so no node ever uses more than the store has
// granted. The price is when they are used: up to a lifetime later. Let Q be the most tokens that
// all nodes together hold, and d the lifetime. A TokenBucket then admits no more than Burst +
// rate*D + min(Q, rate*d) in any interval of length D. A lease from a FixedWindow, a SlidingWindow
// or a SlidingCounter ends with the window or slot that it was counted in, so the bounds of these
// limits hold unchanged.
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

// The defaults of Options.
const (
	DefaultLifetime       = 250 * time.Millisecond
	DefaultMaxOutstanding = 1 << 20
	DefaultMaxKeys        = 1 << 14
)

// ErrClosed is the error of a Store that was closed.
var ErrClosed = errors.New("weir: lease: the store is closed")

// Options are the settings of a Store. The zero value is ready to use.
type Options struct {
	// Lifetime is how long leased tokens may be used, from the moment they were requested; from 1
	// ms to 1 minute. A longer lifetime saves round trips. But a burst may come later by as much,
	// and a node that has no use for its tokens keeps them for longer. Default: 250 ms.
	Lifetime time.Duration
	// MaxOutstanding is how many tokens of a key this node may hold at once, at most 2^40. The
	// store decides about calls that cost more. Default: 2^20.
	MaxOutstanding int64
	// MaxKeys is how many keys are leased at once, at most 2^24, some 600 bytes each. The store
	// decides about all other keys. Default: 2^14.
	MaxKeys int
	// Timeout is the deadline of round trips that lease tokens, for several callers or ahead of
	// demand. Default: Lifetime, as tokens that arrive later are of no use. A round trip for a
	// single call has the deadline of that call's context alone.
	Timeout time.Duration

	// Clock and Timers are for virtual time. Clock reads nanoseconds and only goes forward. Both
	// must be safe for concurrent use, as round trips run in goroutines. In a testing/synctest
	// bubble neither is needed.
	Clock  func() int64
	Timers func(time.Duration, func()) weir.Timer
}

// validate returns what is wrong with the options, and fills in the defaults.
func (o *Options) validate() error {
	switch {
	case o.Lifetime != 0 && (o.Lifetime < time.Millisecond || o.Lifetime > time.Minute):
		return fmt.Errorf("weir: lease.Options.Lifetime: %v is not between 1ms and 1m: use 0 for %v", o.Lifetime, DefaultLifetime)
	case o.MaxOutstanding < 0 || o.MaxOutstanding > mostDemand:
		return fmt.Errorf("weir: lease.Options.MaxOutstanding: %d is not between 1 and 2^40: use 0 for %d", o.MaxOutstanding, DefaultMaxOutstanding)
	case o.MaxKeys < 0 || o.MaxKeys > 1<<24:
		return fmt.Errorf("weir: lease.Options.MaxKeys: %d is not between 1 and 2^24: use 0 for %d", o.MaxKeys, DefaultMaxKeys)
	case o.Timeout < 0:
		return fmt.Errorf("weir: lease.Options.Timeout: %v is negative: use 0 for the default, which is Lifetime", o.Timeout)
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

// A Store is a weir.Store that leases tokens from another one. All methods are safe for concurrent
// use. A decision from leased tokens takes no lock and allocates nothing. For each key there is at
// most one round trip that leases, besides those of callers that ask for exactly their own cost.
// There is one timer while there are keys.
//
// The Store decides by itself about an OpTake with a cost above 0, alone in its group and without
// Keep:
//
//   - It is allowed if this node holds enough tokens, or if the store grants some.
//   - A refusal always comes from the store. This node repeats it for its RetryAfter or a part of it, or, where that is shorter, for 1/32 of
//     Lifetime at most. RetryAfter says so. Tokens that other nodes return meanwhile are noticed after that.
//   - Decision.Source is SourceLease. Remaining is what this node holds and what the store had when it last answered; Limit, ResetAfter and By are
//     the store's last answer.
//
// The store decides about everything else. For the store, all leased tokens are used: groups,
// OpReserve, OpTakeSome and OpTake with Keep are exact, and may be refused while nodes hold tokens.
// OpPeek adds what this node holds. OpReset drops the tokens of this node; other nodes may use
// theirs for up to a lifetime. A limit that is not Leasable is refused with ErrLimit, for every
// operation.
//
// Each key is inspected eight times in a Lifetime: tokens that will not be used in time go back to
// the store, and all of them when no calls come any more. The tokens of a node that crashes are
// lost until the limit has refilled.
type Store struct {
	opts  Options
	inner weir.Store
	start time.Time
	clock func() int64 // nil for the time since start
	after func(time.Duration, func()) weir.Timer
	run   func(*roundTrip) // makes a round trip and takes in its answers, in the background

	keys   table
	closed atomic.Bool
	stats  counters

	// Locks are taken in this order, with an entry's before mu.
	sweeping sync.Mutex // held while all keys are inspected
	mu       sync.Mutex // of the table, of closed and of what follows
	timer    weir.Timer
	inFlight sync.WaitGroup
}

// counters are what Stats is made of.
type counters struct{ roundTrips, leased, returned, lost atomic.Uint64 }

// Stats is what a Store has counted since it was made. Decisions are not counted, as counting one
// would cost more than making it.
type Stats struct {
	Keys       int    // that have an entry now
	RoundTrips uint64 // calls of the wrapped store
	Leased     uint64 // tokens leased, ahead of demand or for several callers at once
	Returned   uint64 // of these, returned to the store, as far as the limit permits
	Lost       uint64 // tokens whose lease or return may have failed, as the round trip did
}

// New returns a Store that leases from another one, which it does not close. The error says which
// option is wrong.
//
// Wrap failover around a lease, not a lease around failover: tokens of this node's local share must
// not be leased.
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
	s.run = s.runInBackground
	return s, nil
}

// Stats returns the counters.
func (s *Store) Stats() Stats {
	s.mu.Lock()
	keys := len(s.keys.all)
	s.mu.Unlock()
	return Stats{keys, s.stats.roundTrips.Load(), s.stats.leased.Load(), s.stats.returned.Load(), s.stats.lost.Load()}
}

// Unwrap returns the store that this one leases from, for its other capabilities: heartbeats,
// probes, concurrency.
func (s *Store) Unwrap() weir.Store { return s.inner }

// Keeps implements weir.Keeper: the inner store tells.
func (s *Store) Keeps(l weir.Limit) error {
	if k, ok := s.inner.(weir.Keeper); ok {
		return k.Keeps(l)
	}
	return nil
}

// shardOf returns the shard of a key, if the store has several: see failover.Sharded.
func (s *Store) shardOf(e *entry) string {
	if sharded, ok := s.inner.(interface{ Shard(name, key string) string }); ok {
		return sharded.Shard(e.name, e.key)
	}
	return ""
}

// now reads the clock.
func (s *Store) now() int64 {
	if s.clock == nil {
		return int64(time.Since(s.start))
	}
	return s.clock()
}

// Do decides a batch, as weir.Store describes: from leased tokens if there are enough, and by the
// store otherwise. It waits no longer than the context lasts, and then returns the context's error;
// tokens that arrive later are for other callers. Charges are carried out in the order of the
// batch: neighbours that are decided from leases together, and neighbours that the store decides
// together.
func (s *Store) Do(ctx context.Context, batch []weir.Charge, out []weir.Decision) error {
	if len(out) < len(batch) {
		return fmt.Errorf("weir: lease: %d charges, and room for %d decisions", len(batch), len(out))
	}
	if len(batch) == 1 && s.TryNow(&batch[0], &out[0]) {
		return nil
	}
	return s.do(ctx, batch, out)
}

// TryNow decides about a charge if that needs no round trip: from leased tokens, or by a refusal of
// the store that is still in force. It takes no lock, sets no timer and allocates nothing. It
// reports false, and has charged nothing, if only Do can decide.
func (s *Store) TryNow(c *weir.Charge, d *weir.Decision) (decided bool) {
	if c.Op != weir.OpTake || c.Cost <= 0 || c.Keep {
		return false
	}
	e := s.keys.find(c.Name, c.Key)
	if e == nil {
		return false
	}
	now, left := s.now(), int64(0)
	if g := e.current.Load(); g != nil && g.limit == c.Limit && now < g.ends {
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
	if e.spare.Load() > 0 || !e.refused.Load().decide(d, c, left, now) {
		return false
	}
	e.unmet(c.Cost)
	c.Err = nil
	return true
}

// Close returns all tokens to the store, stops the timer, and waits for round trips in flight.
// Calls fail with ErrClosed from then on. It takes up to three Timeouts. The error is the store's;
// tokens that could not be returned are lost until the limit has refilled. A second Close does
// nothing.
func (s *Store) Close() error {
	s.sweeping.Lock() // an inspection that has begun sends what it returns
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
	s.inFlight.Wait()
	t := new(roundTrip)
	for _, e := range s.snapshot() {
		e.mu.Lock()
		e.endAll(s.now())
		t.settle(e)
		e.removed = true
		e.mu.Unlock()
	}
	ctx, cancel := context.WithTimeout(context.Background(), s.opts.Timeout)
	defer cancel()
	var errs []error
	all := t.cut(s.shardOf)
	sent := make(chan error, len(all))
	for _, t := range all {
		go func() {
			err := s.transmit(ctx, t)
			s.receive(t)
			sent <- err
		}()
	}
	for range all {
		errs = append(errs, <-sent)
	}
	return errors.Join(errs...)
}
