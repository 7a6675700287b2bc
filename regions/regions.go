// Package regions divides a shared limit between several regions, each with a store of its own, in
// parts that follow demand: a weir.Store over the store of this region. A decision needs no call of
// another region.
//
//	store, err := regions.New(here, home, regions.Options{
//		Here:    "eu",
//		Regions: []regions.Region{{Name: "eu", Guaranteed: 10}, {Name: "us", Guaranteed: 10}, {Name: "ap", Guaranteed: 10}},
//	})
//	...
//	defer store.Close()
//	api, err := weir.NewShared(weir.TokenBucket{Rate: weir.PerSecond(10_000), Burst: 6_000}, store, weir.Named("api"))
//
// The limit is that of all regions together. A region may always use its guaranteed percentage. The
// rest of the rate is divided anew in each Term, in proportion to the demand of the regions, by a
// count in one of the stores, the home. Each region has an equal part of the burst, which does not
// move. All regions together stay within the limit's own bound, Burst + rate*D in any interval of
// length D, whatever fails between them. A region that cannot reach the home keeps its share until
// its Term ends, and then has its guaranteed percentage.
package regions

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"regexp"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weirflow/weir"
)

// The defaults of Options, and the longest Term.
const (
	DefaultTerm    = time.Minute
	MaxTerm        = time.Hour
	DefaultTimeout = time.Second
	DefaultMargin  = 100 * time.Millisecond
)

// MaxLimits is how many limits a Store divides by demand. Of any others, each region has its
// guaranteed part.
const MaxLimits = 1024

// ErrClosed is the error of a Store that was closed.
var ErrClosed = errors.New("weir: regions: the store is closed")

// A Region is one of the regions between which limits are divided.
type Region struct {
	Name string // lower-case letters, digits and hyphens
	// Guaranteed is how many percent of each limit the region may use at any time, whatever the
	// other regions need, and also if it cannot reach the home. At least 1. What is not guaranteed to
	// any region follows demand. If all of it is guaranteed, 100 percent together, no part moves: then
	// windows may be of any length, and the home is never called.
	Guaranteed int
}

// Options are the settings of a Store. Here and Regions are required. All nodes of all regions have
// the same settings, except Here.
type Options struct {
	// Here is the name of this region.
	Here string
	// Regions are all regions, this one included; from 2 to 16.
	Regions []Region
	// Term is how long a division of the limits is in force, from 1 s to 1 h. The shares follow a
	// change of demand within two Terms. A longer Term keeps the shares for longer while the home is
	// unavailable, and is needed for large bursts and long windows: a bucket has to fill, and eight
	// windows have to pass, in a quarter of it. Default: 1 minute.
	Term time.Duration
	// Timeout is the longest that a call of a store may take. Calls without an earlier deadline get
	// this one. With leases, it is at least twice their Lifetime. Default: 1 s.
	Timeout time.Duration
	// Margin is how far apart the clocks may be by which the home decides about its keys. It is 0
	// for a single server, and the difference between the clocks of all nodes for a home in
	// memcached, etcd or NATS. Default: 100 ms.
	Margin time.Duration

	// OnHome is called when the home becomes unavailable, with the error, and with nil when it has
	// responded again: one call at a time, after a call of the home. It must not wait.
	OnHome func(cause error)

	// Clock and Timers are for virtual time. Clock reads nanoseconds and only goes forward. Both
	// must be safe for concurrent use. In a testing/synctest bubble neither is needed.
	Clock  func() int64
	Timers func(time.Duration, func()) weir.Timer
}

var regionName = regexp.MustCompile(`^[a-z0-9][a-z0-9-]*$`)

// validate returns what is wrong with the options, and fills in the defaults.
func (o *Options) validate() error {
	if n := len(o.Regions); n < 2 || n > 16 {
		return fmt.Errorf("weir: regions.Options.Regions: %d regions: list from 2 to 16, this one included", n)
	}
	seen, sum := map[string]bool{}, 0
	for _, r := range o.Regions {
		switch {
		case !regionName.MatchString(r.Name):
			return fmt.Errorf("weir: regions.Options.Regions: %q is no name of a region: use lower-case letters, digits and hyphens", r.Name)
		case seen[r.Name]:
			return fmt.Errorf("weir: regions.Options.Regions: %q is listed twice", r.Name)
		case r.Guaranteed < 1:
			return fmt.Errorf("weir: regions.Options.Regions: %q has %d percent guaranteed: guarantee at least 1", r.Name, r.Guaranteed)
		}
		seen[r.Name] = true
		if sum += min(r.Guaranteed, 101); sum > 100 {
			return fmt.Errorf("weir: regions.Options.Regions: more than 100 percent are guaranteed: lower Guaranteed of some regions, and leave a part that can follow demand")
		}
	}
	switch {
	case !seen[o.Here]:
		return fmt.Errorf("weir: regions.Options.Here: %q is not one of the Regions: add it there", o.Here)
	case o.Term != 0 && (o.Term < time.Second || o.Term > MaxTerm):
		return fmt.Errorf("weir: regions.Options.Term: %v is not between 1s and 1h: use 0 for %v", o.Term, DefaultTerm)
	case o.Term%time.Millisecond != 0:
		return fmt.Errorf("weir: regions.Options.Term: %v is not a whole number of milliseconds", o.Term)
	case o.Timeout < 0:
		return fmt.Errorf("weir: regions.Options.Timeout: %v is negative: use 0 for %v", o.Timeout, DefaultTimeout)
	case o.Margin < 0:
		return fmt.Errorf("weir: regions.Options.Margin: %v is negative: use 0 for %v", o.Margin, DefaultMargin)
	}
	if o.Term == 0 {
		o.Term = DefaultTerm
	}
	if o.Timeout == 0 {
		o.Timeout = min(DefaultTimeout, o.Term/8)
	}
	if o.Margin == 0 {
		o.Margin = min(DefaultMargin, o.Term/64)
	}
	switch {
	case o.Timeout > o.Term/8:
		return fmt.Errorf("weir: regions.Options.Timeout: %v is more than an eighth of the Term, %v: choose a longer Term", o.Timeout, o.Term)
	case o.Margin > o.Term/64:
		return fmt.Errorf("weir: regions.Options.Margin: %v is more than 1/64 of the Term, %v: choose a longer Term", o.Margin, o.Term)
	}
	return nil
}

// A Store is a weir.Store that passes charges on to the store of this region, with this region's part
// of their limits. All methods are safe for concurrent use.
//
// It divides TokenBucket, FixedWindow and SlidingWindow; a charge of any other limit fails with
// ErrLimit. All keys of a limit (of a Charge.Name) have the same share. A decision is about the part:
// its Limit, Remaining and RetryAfter are those of this region. A cost above the part never fits.
//
// Wrap it around failover and leases, so that their part is that of the region.
type Store struct {
	opts  Options
	inner weir.Store
	home  weir.Store
	start time.Time
	clock func() int64
	after func(time.Duration, func()) weir.Timer
	run   func(*exchange) // carries out a call of the home and takes in its reply, in the background

	shares atomic.Pointer[map[string]*share] // replaced, never changed
	stats  counters

	reportAt, claimAt int64 // when in a window this node calls the home, after its begin

	mu       sync.Mutex // of what follows, and of each share's terms
	closed   bool
	timer    weir.Timer
	busy     bool // a call of the home is in flight
	homeDown bool // its latest call failed; only of the call in flight
	window   window
	again    int64 // not before this time, after a failure
	inFlight sync.WaitGroup
}

// counters are what Stats is made of.
type counters struct {
	calls, failures atomic.Uint64
	latest          atomic.Pointer[error]
}

// New returns a Store for this region. here is the store of the region, possibly with leases and
// failover around it. home is the store by which the regions divide the limits, without a fallback:
// that of one of the regions, the same for all; it may be nil if no part moves. Neither is closed by
// Close. The error says which option is wrong.
func New(here, home weir.Store, o Options) (*Store, error) {
	o.Regions = slices.Clone(o.Regions)
	if err := o.validate(); err != nil {
		return nil, err
	}
	if here == nil || home == nil && !o.fixed() {
		return nil, errors.New("weir: regions.New needs the store of this region, and the home by which the regions divide their limits: make both, like weirredis.New")
	}
	s := &Store{opts: o, inner: here, home: home, start: time.Now(), clock: o.Clock, after: o.Timers}
	if s.clock == nil {
		s.clock = func() int64 { return int64(time.Since(s.start)) }
	}
	if s.after == nil {
		s.after = func(d time.Duration, f func()) weir.Timer { return time.AfterFunc(d, f) }
	}
	s.run = s.runInBackground
	s.shares.Store(&map[string]*share{})
	// Nodes call at different times, but all reports come before the first claim.
	term := int64(o.Term)
	s.reportAt = term*3/16 + rand.Int64N(term*3/16)
	s.claimAt = term/2 + rand.Int64N(term/16)
	return s, nil
}

// Unwrap returns the store of this region, for its other capabilities.
func (s *Store) Unwrap() weir.Store { return s.inner }

// Do carries out a batch in the store of this region, as weir.Store describes, with this region's
// part of each limit.
func (s *Store) Do(ctx context.Context, batch []weir.Charge, out []weir.Decision) error {
	var few [8]weir.Limit
	whole := few[:0]
	// A call that was sent before a share became smaller is carried out soon after, or never, also if
	// this process stands still meanwhile.
	latest, now := time.Now().Add(s.opts.Timeout), s.clock()
	for i := range batch {
		l := batch[i].Limit
		part, err := s.partOf(&batch[i], now)
		if err != nil {
			for j := range whole {
				batch[j].Limit = whole[j]
			}
			batch[i].Err = err
			return err
		}
		whole = append(whole, l)
		batch[i].Limit = part
	}
	if end, ok := ctx.Deadline(); !ok || end.After(latest) {
		var cancel context.CancelFunc
		ctx, cancel = context.WithDeadline(ctx, latest)
		defer cancel()
	}
	err := s.inner.Do(ctx, batch, out)
	for i := range batch {
		batch[i].Limit = whole[i] // it may be sent again, as that of a reservation
	}
	return err
}

// TryNow decides about a charge if that needs no call of a store, as lease.Store does.
func (s *Store) TryNow(c *weir.Charge, d *weir.Decision) (decided bool) {
	can, ok := s.inner.(interface {
		TryNow(c *weir.Charge, d *weir.Decision) bool
	})
	if !ok {
		return false
	}
	l := c.Limit
	part, err := s.partOf(c, s.clock())
	if err != nil {
		return false // Do returns the error
	}
	c.Limit = part
	if decided = can.TryNow(c, d); !decided {
		s.find(c.Name).uncount(c) // Do counts it
	}
	c.Limit = l
	return decided
}

// Close ends the calls of the home. Charges fail with ErrClosed from then on. It closes neither store.
// The region's share ends with its term.
func (s *Store) Close() error {
	s.mu.Lock()
	s.closed = true
	if s.timer != nil {
		s.timer.Stop()
	}
	s.shares.Store(nil)
	s.mu.Unlock()
	s.inFlight.Wait()
	return nil
}

// Stats is what a Store has counted since it was made.
type Stats struct {
	Calls    uint64 // of the home
	Failures uint64 // of these, without a reply
	Err      error  // of the latest call; nil if it succeeded
}

// Stats returns the counters.
func (s *Store) Stats() Stats {
	all := Stats{Calls: s.stats.calls.Load(), Failures: s.stats.failures.Load()}
	if err := s.stats.latest.Load(); err != nil {
		all.Err = *err
	}
	return all
}
