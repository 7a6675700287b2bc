package policy

import (
	"context"
	"errors"
	"time"

	"github.com/weirflow/weir"
	"github.com/weirflow/weir/keyed"
)

// defaultQueued is the default of Waiting.Max. Each request that waits keeps a connection, or a
// stream of one.
const defaultQueued = 10000

// defaultTimeout is the default of Waiting.Timeout.
const defaultTimeout = 5 * time.Minute

// A Queue counts the requests of a route that wait, and bounds them by a Waiting: in total, and per
// client. It delays nobody itself. All methods are safe for concurrent use.
type Queue struct {
	all     *weir.ConcurrencyLimiter
	clients *keyed.Concurrency[string] // nil for no bound
	timeout time.Duration
}

// errWaited ends the context of Queue.Within.
var errWaited = errors.New("policy: the request has waited for as long as it may")

// Within returns a context for the wait of a request for places: see Verdict.EnterQueued. When it ends
// because the request has waited for as long as it may, the request is refused.
func (q *Queue) Within(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeoutCause(ctx, q.timeout, errWaited)
}

// waited turns the error of a wait that Within ended into a refusal.
func waited(ctx context.Context, limit string, err error) error {
	if err == nil || context.Cause(ctx) != errWaited || errors.Is(err, weir.ErrLimited) {
		return err
	}
	return &weir.LimitedError{Decision: weir.Decision{RetryAfter: time.Second, By: limit}}
}

// NewQueue returns a queue. With an old one, which may be nil, the requests that wait there count
// in this one too.
func NewQueue(w Waiting, old *Queue) *Queue {
	bound := weir.Concurrency{Limit: defaultQueued}
	if w.Max > 0 {
		bound.Limit = int64(w.Max)
	}
	q := &Queue{timeout: w.Timeout}
	if q.timeout <= 0 {
		q.timeout = defaultTimeout
	}
	if old != nil && old.all.SetLimit(bound) == nil {
		q.all = old.all
	} else {
		q.all, _ = weir.NewConcurrency(bound) // the bound is at least 1: there is no other error
	}
	if w.PerClient <= 0 {
		return q
	}
	each := weir.Concurrency{Limit: int64(w.PerClient)}
	if old != nil && old.clients != nil && old.clients.SetLimit(each) == nil {
		q.clients = old.clients
	} else {
		q.clients, _ = keyed.NewConcurrency[string](each, keyed.Options{MaxKeys: int(bound.Limit)})
	}
	return q
}

// A QueuePlace is the place of a request among those that wait. The zero value is none.
type QueuePlace struct {
	all    weir.Hold
	client keyed.Hold[string]
	taken  bool
}

// Taken reports whether this is a place.
func (p *QueuePlace) Taken() bool { return p.taken }

// Leave gives the place up, once.
func (p *QueuePlace) Leave() {
	if !p.taken {
		return
	}
	p.all.Done(weir.OK)
	p.client.Done(weir.OK)
}

// Join counts a request of a client that is about to wait for a limit. If too many wait, it returns
// the error that refuses the request. delay is how long it would wait, 0 if unknown.
func (q *Queue) Join(client, limit string, delay time.Duration) (p QueuePlace, full *weir.LimitedError) {
	full = &weir.LimitedError{Decision: weir.Decision{RetryAfter: max(delay, time.Second), By: limit}}
	if q.clients != nil {
		hold, d := q.clients.TryEnter(client)
		if !d.Allowed {
			return p, full
		}
		p.client = hold
	}
	all, d := q.all.TryEnter()
	if !d.Allowed {
		p.client.Done(weir.OK)
		return QueuePlace{}, full
	}
	p.all, p.taken = all, true
	return p, nil
}

// Len returns how many requests wait.
func (q *Queue) Len() int { return int(q.all.Holding()) }
