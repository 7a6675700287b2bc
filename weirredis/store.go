// Package weirredis keeps limits in Redis: each charge is decided by a script on the server,
// exactly as in process, in units of a microsecond of the server's clock, and in one round trip.
//
// It contains no Redis client: use weirrueidis or weirgoredis, or write the two methods of an
// Evaler. It needs Redis 6.2 or later: standalone, with Sentinel, or as a Cluster.
package weirredis

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weirflow/weir"
	"github.com/weirflow/weir/internal/scripted"
)

// An Evaler runs scripts on Redis: what a Store needs of a client. It must not repeat a call by
// itself, as a call whose reply was lost may have been carried out; the Store repeats calls so that
// they are carried out once. Both methods are safe for concurrent use, and end when their context
// does.
type Evaler interface {
	// Eval runs a script by EVALSHA, or by EVAL if Call.Send is set, and returns its reply, which
	// is a bulk string. The text of a server's error is passed on unchanged.
	Eval(ctx context.Context, c Call) (string, error)

	// EvalAll runs several calls, in one round trip for each node of a cluster. replies is as long
	// as calls.
	EvalAll(ctx context.Context, calls []Call, replies []Reply)
}

// A Call is a script with its arguments. On a cluster, all keys of a call are in one slot.
type Call struct {
	Script *Script
	Send   bool // send the source, by EVAL: the server lacks the script
	Keys   []string
	Args   []string
}

// A Reply is the result of a Call.
type Reply struct {
	Text string
	Err  error
}

// Options are the settings of a Store. The zero value is for a standalone server, or one with
// Sentinel.
type Options struct {
	// Cluster says that keys are spread over slots: each slot gets a call of its own.
	Cluster bool

	// Prefix begins all keys. It must not contain braces, or end in "limit:" or "hold:". Default:
	// "weir:".
	Prefix string

	// Tag returns the hash tag of a key: keys with the same tag share a slot of a cluster, and a
	// group of them is charged in one step. It must return the same tag each time, as a key with
	// another tag has another state. Default: the key itself, so that all limits of one key share a
	// slot.
	Tag func(name, key string) string

	// Grace is how long a state is kept after it is full: steps of the server's clock back by no
	// more than that give nothing away. Default: 0.
	Grace time.Duration

	// Timeout is how long a call without a deadline may take. A call that has more time is repeated
	// if it was not answered after so long. Default: 1 s.
	Timeout time.Duration

	// ClockKey is for tests: a hash from which the scripts read the time, as s and us, instead of
	// the server's clock. Only that one line of the scripts differs.
	ClockKey string

	// RoundTrips is how many round trips are in flight at once; what comes meanwhile shares the
	// next one. Default: 2.
	RoundTrips int
}

// Store is a weir.Store in Redis. Callers share round trips: those that come while some are in
// flight are sent together in the next one. It is safe for concurrent use.
type Store struct {
	evaler  Evaler
	opts    Options
	scripts *scripts
	limits  scripted.Limits[*limit]
	clock   clock   // of the server that answered last
	self    [8]byte // part of each nonce
	nonces  atomic.Uint64
	queues  queues
	holds   holds
	steps   scripted.StepWatch
	inexact atomic.Uint64

	topology topology                  // of a cluster
	entered  sync.Map                  // by name, the *Concurrency of Enter
	warmed   atomic.Pointer[[]kindSet] // the argument of the last Warm

	ctx     context.Context
	cancel  context.CancelFunc
	sending sync.WaitGroup
}

// The second part of keys that are not states of limits.
const (
	namedPrefix = "limit:"
	holdPrefix  = "hold:"
)

// errClosed is what callers get after Close.
var errClosed = errors.New("weirredis: the store is closed")

// New returns a Store over a client. Close ends calls in flight; the client stays open.
func New(e Evaler, o Options) (*Store, error) {
	if o.Prefix == "" {
		o.Prefix = "weir:"
	}
	if strings.ContainsAny(o.Prefix, "{}") {
		return nil, fmt.Errorf("weirredis: the prefix %q has a brace, which names slots", o.Prefix)
	}
	if strings.HasSuffix(o.Prefix, namedPrefix) || strings.HasSuffix(o.Prefix, holdPrefix) {
		return nil, fmt.Errorf("weirredis: the prefix %q: so do keys of named limits or of holds begin, under a shorter prefix: end it with another word", o.Prefix)
	}
	if o.Grace < 0 || o.Timeout < 0 || o.RoundTrips < 0 {
		return nil, fmt.Errorf("weirredis: a negative number among the options: %+v", o)
	}
	if o.Timeout == 0 {
		o.Timeout = time.Second
	}
	if o.RoundTrips == 0 {
		o.RoundTrips = 2
	}
	s := &Store{evaler: e, opts: o, scripts: &scripts{clock: timeLine}, clock: clock{start: time.Now()}}
	if o.ClockKey != "" {
		s.scripts.clock = fmt.Sprintf("local clock = redis.call('HMGET', %q, 's', 'us')\n", o.ClockKey)
	}
	if o.Cluster {
		s.topology.mapper, _ = e.(Mapper)
	}
	for i := range s.queues.parts {
		s.queues.parts[i].clock = clock{start: s.clock.start, others: &s.clock}
	}
	s.ctx, s.cancel = context.WithCancel(context.Background())
	rand.Read(s.self[:])
	return s, nil
}

// Inexact returns how many reservations of this Store were too many to be remembered in the states of
// their keys: cancelling them, or settling them for less, may give back less than was charged.
func (s *Store) Inexact() uint64 { return s.inexact.Load() }

// Close refuses new calls, ends those in flight, and waits for them: no longer than Timeout, even
// if the client only obeys deadlines.
func (s *Store) Close() error {
	s.closeHolds()
	s.queues.close()
	s.cancel()
	s.sending.Wait()
	return nil
}

// Do carries out a batch of charges: see weir.Store.
func (s *Store) Do(ctx context.Context, batch []weir.Charge, out []weir.Decision) error {
	if len(out) < len(batch) {
		return fmt.Errorf("weirredis: room for %d decisions about %d charges", len(out), len(batch))
	}
	if len(batch) == 0 {
		return nil
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	end, ok := ctx.Deadline()
	soon := ctx.Done() == nil || ok && time.Until(end) <= soonEnough
	if !ok {
		end = time.Now().Add(s.opts.Timeout)
		var cancel context.CancelFunc
		ctx, cancel = context.WithDeadline(ctx, end) // whatever the client does
		defer cancel()
	}
	return s.until(ctx, end, batch, out, soon)
}

// until carries out a batch up to its end. The caller waits no longer than its context lasts, or, with own, than its
// end: it may then make the first attempt itself.
func (s *Store) until(ctx context.Context, end time.Time, batch []weir.Charge, out []weir.Decision, own bool) error {
	requests, split, err := s.requests(batch)
	if err != nil {
		return err
	}
	if split != nil {
		return s.inTurn(ctx, end, batch, out, split)
	}
	if own && len(requests) == 1 {
		requests[0].end = end
		if s.lone(ctx, &requests[0]) {
			return requests[0].deliver(batch, out)
		}
	}
	for i := range requests {
		if requests[i].done != nil { // its attempts go on
			continue
		}
		requests[i].end, requests[i].done = end, make(chan struct{})
		if !s.queues.add(s, &requests[i]) {
			return errClosed
		}
	}
	var first error
	for i := range requests {
		r := &requests[i]
		err := s.wait(ctx, r)
		if err == nil {
			err = r.deliver(batch, out)
		} else {
			r.fail(batch, err) // others may have been answered, by other nodes
		}
		if err != nil && first == nil {
			first = err
		}
	}
	return first
}
