// Package failover decides while a shared store is slow or down: a weir.Store over a weir.Store,
// with a deadline for each call, a circuit breaker, and a fallback for each limit.
//
//	store, err := failover.New(redis, failover.Options{OnFailure: failover.Local, Nodes: 4})
//	...
//	shared, err := weir.NewShared(limit, store, weir.Named("per-user"))
//
// A caller never waits longer than the deadline, and always gets a decision: Decision.Source says
// where it was made. The Store notices by itself when the other store is back, without a request
// that fails for it.
package failover

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"maps"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weirflow/weir"
	"github.com/weirflow/weir/keyed"
)

// OnFailure is the fallback: what decides about a charge that the store did not answer.
type OnFailure uint8

// The fallbacks. The zero value is Deny.
const (
	Deny  OnFailure = iota // refuse; RetryAfter is the time until the store is called again
	Allow                  // admit, and count nothing
	// a limiter in this process, with this node's share of the limit: see Share
	Local
)

// String returns the name, as in policy files.
func (f OnFailure) String() string {
	names := [...]string{"deny", "allow", "local"}
	if int(f) < len(names) {
		return names[f]
	}
	return fmt.Sprintf("OnFailure(%d)", uint8(f))
}

// The defaults of Options.
const (
	DefaultDeadline    = 20 * time.Millisecond
	DefaultFailures    = 5
	DefaultProbe       = 250 * time.Millisecond
	DefaultMaxCalls    = 1024
	DefaultMaxReceipts = 10_000
	DefaultBeatEvery   = time.Second
	DefaultBeatTTL     = 5 * time.Second
)

// Options are the settings of a Store. The zero value refuses what the store does not answer.
type Options struct {
	OnFailure OnFailure            // the fallback
	ByName    map[string]OnFailure // the fallbacks of single limits, by their names

	// how many processes share the limits, until heartbeats report it; at least 1 if any fallback
	// is Local
	Nodes int
	// local shares begin an outage full, so that a burst can be spent at once; default: they begin
	// empty
	StartFull bool

	// of each call of the store, unless the caller's is earlier; default: 20 ms
	Deadline time.Duration
	// call the store in the caller's goroutine: for stores that return when their context ends
	Direct bool
	// how many calls may be in flight at once, unless Direct; further callers wait, up to the
	// deadline; default: 1024
	MaxCalls int

	Failures int // how many failures in a row open the breaker; default: 5
	// how long after a failure an open breaker probes the store; default: 250 ms
	Probe time.Duration

	// how many local states are kept for each limit; default: keyed.DefaultMaxKeys
	MaxKeys int
	Full    keyed.Full // what happens to a new key beyond them
	// how many local reservations can be settled; the oldest is dropped first; default: 10,000
	MaxReceipts int

	ID        string        // of this node in heartbeats; default: random
	BeatEvery time.Duration // how often a heartbeat is sent, if the store is a Beater; default: 1 s
	BeatTTL   time.Duration // how long a heartbeat counts; default: 5 s

	// OnTransition is called with each change of a breaker's state: those of one shard in order,
	// one at a time, in a goroutine of the Store's own. While it runs, that shard is not probed. The
	// name of the shard is "" if the store is not Sharded. The cause is the error for which the
	// breaker is open: that of a call, or of the latest probe; nil for the other transitions.
	OnTransition func(shard string, from, to State, cause error)

	// OnCall is called with how long each call of the store took, in the goroutine of the call: it must
	// not block. A call whose caller has left is measured, too. default: none
	OnCall func(took time.Duration)
}

// A store, or one that it wraps and returns from Unwrap() weir.Store, may be a Pinger, a Beater and
// a Sharded too.

// A Pinger is a store that can be probed: Ping reports whether it would carry out charges, not only
// whether something listens. Other stores are probed with a Peek of 0.
type Pinger interface {
	Ping(ctx context.Context) error
}

// A Beater is a store that counts its nodes: Beat is a heartbeat of the node called id, which
// counts for ttl, and returns how many nodes are alive.
type Beater interface {
	Beat(ctx context.Context, id string, ttl time.Duration) (nodes int, err error)
}

// find returns what a store can do besides carrying out charges: the store itself, or the first one
// that it wraps which can.
func find[T any](store weir.Store) (can T, ok bool) {
	for {
		if can, ok = store.(T); ok {
			return can, true
		}
		wrapper, wraps := store.(interface{ Unwrap() weir.Store })
		if !wraps {
			return can, false
		}
		store = wrapper.Unwrap()
	}
}

// An Instant is a store that can decide about some charges at once, in the caller's goroutine, as a
// lease.Store does from its tokens. It reports false, and has charged nothing, if it cannot: then
// Do is called.
type Instant interface {
	TryNow(c *weir.Charge, d *weir.Decision) (decided bool)
}

// ErrUnavailable means that the store is down, and that only the store can carry out the operation:
// to settle one of its charges, or to reset a key. errors.Is finds it, and the store's own error
// too, if there is one.
var ErrUnavailable = errors.New("weir: the store is unavailable")

// ErrClosed is the error of Do after Close.
var ErrClosed = errors.New("weir: the failover store was closed")

// A Store calls another one, and decides by the fallback if that one does not answer. All methods
// are safe for concurrent use.
//
// A call fails if the store does not answer in time, or with an error that is about the store and
// not about a charge (see weir.ErrCharge). A call whose own context ended says nothing about the
// store; but after 5 of these in a row, a probe finds out.
//
// The breaker opens after 5 failures in a row (Options.Failures), or after at least 20 calls, and
// in both cases only if at least half of the calls failed: of those since the first failure, and of
// the last second or two. While it is open, the store is not called, and the fallback decides at
// once. One probe at a time, in a goroutine of the Store's own, finds out whether the store is
// back: 250 ms after the breaker opened and after each failed probe, and up to 1 s after if the
// store answers probes and then fails again. The first success closes the breaker.
//
// A Sharded store has a breaker for each shard, which counts and probes that shard alone. While some
// of them are open, a batch is divided: the store decides about the charges of the other shards, in
// one call. A group is charged to the local shares first, then to the store, and is given back to
// the shares if the store refuses: all are made or none. A call that fails before a breaker opens
// counts for the shards whose charges were not answered.
//
// Memory is bounded by Options, and by the number of shards. Goroutines: one for each open breaker,
// one for heartbeats if the store is a Beater, and one for each call in flight unless
// Options.Direct is set. A store that panics has failed.
type Store struct {
	inner    weir.Store
	instant  Instant // the same, if it is one
	holder   Holder  // the same, or what it wraps, if that is one
	opts     Options
	policies map[string]OnFailure
	base     time.Time
	mark     string // the prefix of local receipts

	closed   atomic.Bool
	counters counters

	slots  chan struct{} // one for each call in flight
	calls  sync.Pool     // of *call
	waits  chan struct{} // the same for callers that wait for a place
	asides chan struct{} // the same for probes and heartbeats
	life   context.Context
	end    context.CancelFunc
	tasks  sync.WaitGroup

	telling  sync.Mutex // held while OnTransition is called
	shards   shards
	nodes    nodeCount
	shares   shares
	receipts receipts
	inside   inside
}

// New returns a Store over another one, which it does not close. The error says which option is
// wrong.
func New(store weir.Store, o Options) (*Store, error) {
	if store == nil {
		return nil, errors.New("weir: failover.New without a store: make one, like weirredis.New")
	}
	if err := o.validate(); err != nil {
		return nil, err
	}
	o.fill()
	s := &Store{
		inner:    store,
		opts:     o,
		policies: maps.Clone(o.ByName),
		base:     time.Now(),
		mark:     receiptPrefix + rand.Text() + ".",
		slots:    make(chan struct{}, o.MaxCalls),
		waits:    make(chan struct{}, o.MaxCalls),
		asides:   make(chan struct{}, mostAsides),
	}
	s.instant, _ = store.(Instant)
	s.holder, _ = find[Holder](store)
	s.calls.New = func() any { return &call{done: make(chan struct{}, 1)} }
	s.life, s.end = context.WithCancel(context.Background())
	s.nodes.count.Store(int64(max(o.Nodes, 1)))
	s.shards.whole.interval, s.shards.whole.answered = o.Probe, &s.counters.answered
	s.shards.byName.Store(&map[string]*shard{})
	if s.shards.sharded, _ = find[Sharded](store); s.shards.sharded != nil {
		s.asides = make(chan struct{}, mostAsides+maxShards)
	}
	s.shares.records = map[string]*record{}
	s.receipts.byReceipt = map[weir.Receipt]heldCharge{}
	if b, ok := find[Beater](store); ok && o.uses(Local) {
		s.tasks.Go(func() { s.beat(b) })
	}
	return s, nil
}

// validate says what is wrong with the options.
func (o Options) validate() error {
	wrong := func(name string, v any, what string) error {
		return fmt.Errorf("weir: failover.Options.%s: %v %s", name, v, what)
	}
	for name, f := range o.ByName {
		if f > Local {
			return wrong("ByName", fmt.Sprintf("%v of %q", f, name), "is invalid: use Deny, Allow or Local")
		}
	}
	for name, d := range map[string]time.Duration{"Deadline": o.Deadline, "Probe": o.Probe, "BeatEvery": o.BeatEvery, "BeatTTL": o.BeatTTL} {
		if d < 0 {
			return wrong(name, d, "is negative: give a duration, or 0 for the default")
		}
	}
	for name, n := range map[string]int{"MaxCalls": o.MaxCalls, "Failures": o.Failures, "MaxKeys": o.MaxKeys, "MaxReceipts": o.MaxReceipts} {
		if n < 0 {
			return wrong(name, n, "is negative: give a positive number, or 0 for the default")
		}
	}
	switch {
	case o.OnFailure > Local:
		return wrong("OnFailure", o.OnFailure, "is invalid: use Deny, Allow or Local")
	case o.Full > keyed.Share:
		return wrong("Full", o.Full, "is invalid: use keyed.Evict, keyed.Refuse or keyed.Share")
	case o.Nodes < 0 || o.Nodes == 0 && o.uses(Local):
		return wrong("Nodes", o.Nodes, "is invalid: the fallback local gives each node its share of the limit, so set Nodes to how many nodes share it")
	}
	return nil
}

// uses reports whether a fallback is used by any limit.
func (o Options) uses(f OnFailure) bool {
	for _, by := range o.ByName {
		if by == f {
			return true
		}
	}
	return o.OnFailure == f
}

// fill fills in the defaults.
func (o *Options) fill() {
	or := func(d *time.Duration, usual time.Duration) {
		if *d == 0 {
			*d = usual
		}
	}
	or(&o.Deadline, DefaultDeadline)
	or(&o.Probe, DefaultProbe)
	or(&o.BeatEvery, DefaultBeatEvery)
	or(&o.BeatTTL, DefaultBeatTTL)
	orNumber := func(n *int, usual int) {
		if *n == 0 {
			*n = usual
		}
	}
	orNumber(&o.MaxCalls, DefaultMaxCalls)
	orNumber(&o.Failures, DefaultFailures)
	orNumber(&o.MaxKeys, keyed.DefaultMaxKeys)
	orNumber(&o.MaxReceipts, DefaultMaxReceipts)
	if o.ID == "" {
		o.ID = rand.Text()
	}
}

// Keeps implements weir.Keeper: the store that is called tells. The fallbacks keep every limit that it keeps.
func (s *Store) Keeps(l weir.Limit) error {
	if k, ok := find[weir.Keeper](s.inner); ok {
		return k.Keeps(l)
	}
	return nil
}

// now is the process's time, in nanoseconds.
func (s *Store) now() int64 { return int64(time.Since(s.base)) }

// Do calls the store, for at most the deadline, and decides by the fallback about charges that the
// store did not answer. The error is that of the first charge that has one: ErrUnavailable for an
// operation that needs the store, or the store's error about a charge. If the caller's own context
// ends first, it is that context's error, and nothing was decided.
func (s *Store) Do(ctx context.Context, batch []weir.Charge, out []weir.Decision) error {
	switch {
	case len(out) < len(batch):
		return fmt.Errorf("weir: %d decisions have no room for a batch of %d charges", len(out), len(batch))
	case s.closed.Load():
		return ErrClosed
	case len(batch) == 0:
		return nil
	}
	for i := range batch {
		if isLocal(&batch[i]) {
			return s.sorted(ctx, batch, out)
		}
	}
	return s.do(ctx, batch, out)
}

// sorted is Do for a batch that settles local receipts, which never go to the store.
func (s *Store) sorted(ctx context.Context, batch []weir.Charge, out []weir.Decision) (err error) {
	var rest []weir.Charge
	for i := range batch {
		if !isLocal(&batch[i]) {
			rest = append(rest, batch[i])
		} else if out[i] = s.settle(&batch[i]); err == nil {
			err = batch[i].Err
		}
	}
	if len(rest) == 0 {
		return err
	}
	answers := make([]weir.Decision, len(rest))
	failed := s.do(ctx, rest, answers)
	for i, j := 0, 0; i < len(batch); i++ {
		if !isLocal(&batch[i]) {
			batch[i], out[i] = rest[j], answers[j]
			j++
		}
	}
	return errors.Join(failed, err)
}

// do is Do for charges that the store decides about.
func (s *Store) do(ctx context.Context, batch []weir.Charge, out []weir.Decision) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if s.shards.down.Load() > 0 {
		return s.around(ctx, batch, out)
	}
	return s.through(ctx, batch, out)
}

// through calls the store, and has the fallback decide about the charges that it did not answer.
func (s *Store) through(ctx context.Context, batch []weir.Charge, out []weir.Decision) error {
	if len(batch) == 1 && s.instant != nil && s.instant.TryNow(&batch[0], &out[0]) {
		return nil // the store was not called: this says nothing about it
	}
	limited, cancel := context.WithTimeout(ctx, s.opts.Deadline)
	defer cancel()
	err := s.ask(limited, batch, out)
	if err == nil {
		s.answered(batch)
		return nil
	}
	all, failed := blame(err, batch)
	switch {
	case !failed:
		s.answered(batch)
		return err
	case ctx.Err() != nil:
		s.counters.left.Add(1)
		s.unanswered(batch, err, all, true)
		return err
	case limited.Err() != nil, errors.Is(err, context.DeadlineExceeded):
		s.counters.late.Add(1)
	default:
		s.counters.failed.Add(1)
	}
	s.unanswered(batch, err, all, false)
	return s.decide(batch, out, all, err)
}

// blame reports whether an error is about the store, and whether about all charges or only those
// with an Err.
func blame(err error, batch []weir.Charge) (all, failed bool) {
	matches := false
	for i := range batch {
		if e := batch[i].Err; e != nil {
			matches = matches || errors.Is(err, e)
			failed = failed || ofStore(e)
		}
	}
	if matches {
		return false, failed
	}
	return true, ofStore(err)
}

// ofStore reports whether an error is about the store, and not about a charge.
func ofStore(err error) bool {
	return err != nil && !errors.Is(err, weir.ErrCharge) && !errors.Is(err, weir.ErrCost)
}

// Close ends probes and heartbeats, and waits for them and for calls in flight. The error says that
// some calls did not return although their contexts have ended: their goroutines end when they do.
// Close does not close the wrapped store.
func (s *Store) Close() error {
	s.shards.mu.Lock()
	first := s.closed.CompareAndSwap(false, true)
	s.shards.mu.Unlock()
	if !first {
		return nil
	}
	s.end()
	s.tasks.Wait()
	s.shares.close()
	timer := time.NewTimer(s.opts.Deadline)
	defer timer.Stop()
	for _, places := range []chan struct{}{s.slots, s.waits, s.asides} {
		for range cap(places) {
			select {
			case places <- struct{}{}:
			case <-timer.C:
				return errors.New("weir: calls of the store are still in flight, although their contexts have ended")
			}
		}
	}
	return nil
}
