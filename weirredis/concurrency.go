package weirredis

import (
	"context"
	_ "embed"
	"encoding/binary"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"time"

	"github.com/weirflow/weir"
	"github.com/weirflow/weir/internal/pause"
	"github.com/weirflow/weir/internal/scripted"
)

// A Concurrency limits how much may be in flight for each key, over all processes that use the same
// name. All methods are safe for concurrent use. It has the verbs of weir.ConcurrencyLimiter, with
// a context and the key first and an error last. Its Store sends the heartbeats; closing the Store
// ends the holds.
//
// MaxHold is how long a place stays taken without a heartbeat. The Store sends three heartbeats in
// that time, until Done. So the place of a process that crashed comes back after MaxHold, and a
// holder that is cut off knows by its own clock when to stop: see Hold.Lost. By the server's clock,
// the places held never exceed Limit. The work that really runs may exceed it if holders do not
// stop in time; Hold.Fence guards what must not happen twice. A server that loses its data forgets
// its holders: until their heartbeats fail, as many again may enter.
//
// A waiter polls every 5 to 100 ms, the first in the queue most often. A queue of n waiters makes
// some 700 questions a second, and 10 more for each waiter beyond the first 20; those of one
// process share calls. So a place may be free for 5 ms and a round trip before it is taken, longer
// if many are freed at once. A waiter that has not polled for a second loses its place in the
// queue.
type Concurrency struct {
	store  *Store
	name   string
	limit  atomic.Pointer[weir.Concurrency]
	counts [3]atomic.Uint64
	lost   atomic.Uint64
}

// MinHold is the shortest MaxHold: there have to be some heartbeats in it.
const MinHold = 10 * time.Millisecond

// NewConcurrency returns a Concurrency in a store, under a name that is part of its keys. MaxHold
// is required, at least 10 ms: without it, the place of a process that crashed would never come
// back. The error says which parameter is wrong.
func NewConcurrency(s *Store, l weir.Concurrency, name string) (*Concurrency, error) {
	if s == nil || name == "" {
		return nil, errors.New("weirredis: a Concurrency needs a store, and a name, which is part of its keys")
	}
	c := &Concurrency{store: s, name: name}
	return c, c.SetLimit(l)
}

// SetLimit changes the parameters of this process. No place is taken away: after the limit was
// lowered, no caller enters until enough have left. A waiter whose cost no longer fits gets
// ErrLimited when it next polls. MaxHold applies to holds that begin or are extended from now on.
func (c *Concurrency) SetLimit(next weir.Concurrency) error {
	if err := next.Validate(); err != nil {
		return err
	}
	if next.MaxHold < MinHold {
		return fmt.Errorf("weirredis: Concurrency.MaxHold: %v is too short: in a store it is required, and at least %v", next.MaxHold, MinHold)
	}
	next.Queue = min(next.Queue, most)
	c.limit.Store(&next)
	return nil
}

// Limit returns the parameters in force in this process.
func (c *Concurrency) Limit() weir.Concurrency { return *c.limit.Load() }

// Name returns the name under which places are shared.
func (c *Concurrency) Name() string { return c.name }

// Outcomes returns how many holds of this process have ended, and how. Expired are those that were
// lost.
func (c *Concurrency) Outcomes() weir.Outcomes {
	return weir.Outcomes{OK: c.counts[weir.OK].Load(), Ignored: c.counts[weir.Ignore].Load(), Dropped: c.counts[weir.Dropped].Load(), Expired: c.lost.Load()}
}

func (c *Concurrency) count(o weir.Outcome) {
	if o != weir.OK && o != weir.Dropped {
		o = weir.Ignore
	}
	c.counts[o].Add(1)
}

// Enter waits for a place and returns it as a Hold: the caller must call Done when the work has
// ended. Callers get places in the order in which the server first received their calls. No caller
// takes a place that an earlier waiter would fit into.
//
// If the queue is full, Enter returns at once with a *weir.LimitedError, in which errors.Is finds
// weir.ErrLimited. Its RetryAfter is the longest time until there is a place, if no calls and no
// heartbeats come. If the context ends first, Enter returns its error, and later waiters move up.
// If the store does not answer within its Timeout, Enter returns that error, and the place in the
// queue is lost.
func (c *Concurrency) Enter(ctx context.Context, key string) (Hold, error) {
	return c.EnterCost(ctx, key, 1)
}

// EnterCost is Enter for work that takes up more than one unit. A cost above the limit is refused
// at once with Never; a cost below 0 is weir.ErrCost; a cost of 0 always enters, and returns a zero
// Hold.
func (c *Concurrency) EnterCost(ctx context.Context, key string, cost int64) (Hold, error) {
	h, d, err := c.enter(ctx, key, cost, true)
	if err == nil && !d.Allowed {
		err = &weir.LimitedError{Decision: d}
	}
	return h, err
}

// TryEnter takes a place if one is free and no caller waits for it. After a refusal, RetryAfter is
// the longest time until there is a place, if no calls and no heartbeats come.
func (c *Concurrency) TryEnter(ctx context.Context, key string) (Hold, weir.Decision, error) {
	return c.TryEnterCost(ctx, key, 1)
}

// TryEnterCost is TryEnter for work that takes up more than one unit.
func (c *Concurrency) TryEnterCost(ctx context.Context, key string, cost int64) (Hold, weir.Decision, error) {
	return c.enter(ctx, key, cost, false)
}

// Do enters, calls fn and leaves, as weir.ConcurrencyLimiter.Do does. If the hold is lost, the
// context of fn ends with the cause ErrLost.
func (c *Concurrency) Do(ctx context.Context, key string, fn func(context.Context) error) error {
	h, err := c.Enter(ctx, key)
	if err != nil {
		return err
	}
	outcome := weir.Dropped
	defer func() { h.Done(outcome) }()
	switch err = fn(h.Context(ctx)); {
	case err == nil:
		outcome = weir.OK
	case !errors.Is(err, context.DeadlineExceeded) && !errors.Is(err, weir.ErrLimited):
		outcome = weir.Ignore
	}
	return err
}

// Peek returns the decision that TryEnterCost would return, and takes nothing.
func (c *Concurrency) Peek(ctx context.Context, key string, cost int64) (weir.Decision, error) {
	r := c.request(opLook, key, cost)
	if err := c.store.answered(ctx, r); err != nil {
		return weir.Decision{}, err
	}
	return c.decision(r), nil
}

// Inspect returns how much of a key is held, over all processes, and how many callers wait.
func (c *Concurrency) Inspect(ctx context.Context, key string) (holding, waiting int64, err error) {
	r := c.request(opLook, key, 0)
	if err := c.store.answered(ctx, r); err != nil {
		return 0, 0, err
	}
	return r.answer.fence, r.answer.place, nil
}

// request makes a request about a key.
func (c *Concurrency) request(op int, key string, n int64) *placeRequest {
	l := c.Limit()
	s := c.store
	return s.newPlace(placeOp{op: op, key: s.placeKey(c.name, key), cost: scripted.Cost(n), limit: l.Limit, queue: l.Queue, span: int64(l.MaxHold / tick)})
}

// decision is the result of a request.
func (c *Concurrency) decision(r *placeRequest) weir.Decision {
	a := &r.answer
	return weir.Decision{
		Allowed:    a.code == codeHeld,
		Limit:      r.limit,
		Remaining:  a.remaining,
		RetryAfter: scripted.Span(a.retry),
		ResetAfter: scripted.Span(a.reset),
		By:         c.name,
		Source:     weir.SourceStore,
	}
}

// enter requests a place until it is given or refused, or once if wait is false.
func (c *Concurrency) enter(ctx context.Context, key string, n int64, wait bool) (Hold, weir.Decision, error) {
	switch {
	case n < 0:
		return Hold{}, weir.Decision{RetryAfter: weir.Never, Limit: c.Limit().Limit, By: c.name}, weir.ErrCost
	case n == 0:
		d, err := c.Peek(ctx, key, 0)
		return Hold{}, d, err
	}
	w := waiter{c: c, key: key, cost: n, wait: wait, id: c.store.id()}
	for {
		r := w.request()
		err := c.store.answered(ctx, r)
		w.note(r, err)
		switch {
		case err != nil:
		case r.answer.code == codeHeld:
			h, err := w.hold(r)
			return h, c.decision(r), err
		case r.answer.code == codeWaits:
			err = w.pause(ctx, r)
		case r.answer.code != codeLate:
			return Hold{}, c.decision(r), nil
		}
		if err != nil {
			w.leave()
			return Hold{}, weir.Decision{}, err
		}
	}
}

// A waiter is a caller that enters, from its first request to its last.
type waiter struct {
	c      *Concurrency
	key    string
	at     string // the key in Redis
	id     string
	cost   int64
	wait   bool
	unsure time.Time // the end of a question that the server may still receive
	place  int64     // in the queue
	since  time.Time
}

// id is one that no other holder has.
func (s *Store) id() string {
	var id [16]byte
	copy(id[:], s.self[:])
	binary.BigEndian.PutUint64(id[8:], s.nonces.Add(1))
	return string(id[:])
}

func (w *waiter) request() *placeRequest {
	r := w.c.request(opEnter, w.key, w.cost)
	if r.id, w.at = w.id, r.key; !w.wait {
		r.queue = 0
	}
	return r
}

// note records whether the server may receive a request after its reply, or without one.
func (w *waiter) note(r *placeRequest, err error) {
	if err != nil || r.repeated {
		w.unsure = r.end
	}
}

// hold returns the Hold of an admitted request.
func (w *waiter) hold(r *placeRequest) (Hold, error) {
	h := &heldPlace{
		c: w.c, key: w.at, id: w.id, cost: w.cost, fence: r.answer.fence, unsure: w.unsure, lost: make(chan struct{}), span: time.Duration(r.span) * tick,
	}
	if !w.c.store.hold(h, r.sent) {
		return Hold{}, errClosed
	}
	return Hold{h}, nil
}

// leave gives up the place, or the place in the queue, that a question may have brought.
func (w *waiter) leave() {
	s := w.c.store
	s.holds.mu.Lock()
	defer s.holds.mu.Unlock()
	s.leaveLocked(w.at, w.id, w.unsure, time.Now().Add(s.opts.Timeout))
}

// The polling of a waiter.
const (
	soonest = 5 * time.Millisecond
	latest  = 100 * time.Millisecond
)

// pause waits before the next request, or returns the context's error. It waits 5 ms for each place
// in the queue, but at most half of the time that is left at the pace of the queue; from 5 to 100
// ms.
func (w *waiter) pause(ctx context.Context, r *placeRequest) error {
	now, place := time.Now(), max(r.answer.place, 1)
	next := time.Duration(min(place, int64(latest/soonest))) * soonest
	if moved := w.place - place; moved > 0 {
		left := time.Duration(float64(now.Sub(w.since)) * float64(place) / float64(moved))
		next = min(next, max(left/2, soonest))
	}
	w.place, w.since = place, now
	return pause.For(ctx, next)
}

//go:embed lua/concurrency.lua
var concurrencyLua string

// concurrency is the script of Concurrency.
func (s *scripts) concurrency() *Script {
	const key = "concurrency"
	if made, ok := s.made.Load(key); ok {
		return made.(*Script)
	}
	made, _ := s.made.LoadOrStore(key, newScript(strings.Replace(concurrencyLua, timeLine, s.clock, 1)))
	return made.(*Script)
}
