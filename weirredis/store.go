// Package weirredis keeps limits in Redis: each charge is decided by a script on the server, exactly as in process, in units of a microsecond
// of the server's clock, and in one round trip.
//
// It knows no client: see weirrueidis and weirgoredis for those, or write the two methods of an Evaler. Redis 6.2 or later, standalone,
// with Sentinel, or as a Cluster.
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
)

// An Evaler runs scripts on Redis: what a client has to do for a Store. It must not send a call again by itself, as a call whose reply was lost
// may have been carried out; the Store does that, and knows how. Both methods are safe for concurrent use, and end when their context does.
type Evaler interface {
	// Eval runs a script by EVALSHA, or by EVAL where the call asks for that, and returns its reply, which is a bulk string. An error of the
	// server's is returned such that its text is that of the server.
	Eval(ctx context.Context, c Call) (string, error)

	// EvalAll does so for several calls, in one round trip for each node of a cluster. The replies are put into replies, which is as long
	// as calls.
	EvalAll(ctx context.Context, calls []Call, replies []Reply)
}

// A Call is a script with its arguments. On a cluster, all keys of a call are in one slot.
type Call struct {
	Script *Script
	Send   bool // the source, by EVAL: the server does not know the script
	Keys   []string
	Args   []string
}

// A Reply is what came of a Call.
type Reply struct {
	Text string
	Err  error
}

// Options are what a Store is given. The zero value is a Store for a standalone server, or one with Sentinel.
type Options struct {
	// Cluster says that the keys are spread over slots: charges are then sent for each slot apart.
	Cluster bool

	// Prefix is what all keys begin with; "weir:" where it is empty. It must not contain braces, or end in "limit:" or "hold:".
	Prefix string

	// Tag names the slot of a cluster that a key is kept in: keys of the same tag are kept together, and groups of them are charged in one
	// step. nil means the key itself: so all limits of one key are together. It is called for each charge, and answers the same each time: a key
	// with another tag has another state.
	Tag func(name, key string) string

	// Grace is how long a state is kept after it is as good as new: that long may the server's clock be stepped back without giving anything
	// away.
	Grace time.Duration

	// Timeout is how long a call may take whose context has no deadline; 0 means a second. Where one has more time, what was not answered in
	// this much is sent again.
	Timeout time.Duration

	// ClockKey is for tests: a hash in which the scripts read the time, as s and us, in place of the server's clock. That one line of theirs is
	// all that differs.
	ClockKey string

	// RoundTrips is how many round trips are in flight at once; what comes meanwhile shares the next one. Default: 2.
	RoundTrips int
}

// Store is a weir.Store in Redis. Charges of several callers are sent together: callers who come while others are under way share the next
// trip. It is safe for concurrent use.
type Store struct {
	evaler  Evaler
	opts    Options
	scripts *scripts
	limits  limits
	clock   clock   // of the server that answered last
	self    [8]byte // part of each nonce
	nonces  atomic.Uint64
	queues  queues
	holds   holds
	entered sync.Map                  // by name, the *Concurrency of Enter
	warmed  atomic.Pointer[[]kindSet] // what Warm was asked for at last

	ctx     context.Context
	cancel  context.CancelFunc
	sending sync.WaitGroup
}

// What follows the prefix in keys that are not states.
const (
	namedPrefix = "limit:"
	holdPrefix  = "hold:"
)

// errClosed is what callers get after Close.
var errClosed = errors.New("weirredis: the store is closed")

// New returns a Store over a client. Close ends what is under way; the client stays open.
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
	for i := range s.queues.parts {
		s.queues.parts[i].clock = clock{start: s.clock.start, others: &s.clock}
	}
	s.ctx, s.cancel = context.WithCancel(context.Background())
	rand.Read(s.self[:])
	return s, nil
}

// Close lets nobody begin, ends what is under way, and waits for that: no longer than Timeout, even where the client only looks at deadlines.
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
	if !ok {
		end = time.Now().Add(s.opts.Timeout)
		var cancel context.CancelFunc
		ctx, cancel = context.WithDeadline(ctx, end) // whatever the client does
		defer cancel()
	}
	return s.until(ctx, end, batch, out)
}

// until carries out a batch up to its end. The caller waits no longer than its context lasts.
func (s *Store) until(ctx context.Context, end time.Time, batch []weir.Charge, out []weir.Decision) error {
	requests, split, err := s.requests(batch)
	if err != nil {
		return err
	}
	if split != nil {
		return s.inTurn(ctx, end, batch, out, split)
	}
	for i := range requests {
		requests[i].end, requests[i].done = end, make(chan struct{})
		if !s.queues.add(s, &requests[i]) {
			return errClosed
		}
	}
	var first error
	for i := range requests {
		if err := s.wait(ctx, &requests[i]); err != nil {
			return err
		}
		if err := requests[i].deliver(batch, out); err != nil && first == nil {
			first = err
		}
	}
	return first
}
