package weirgrpc

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/weirflow/weir"
	"github.com/weirflow/weir/adaptive"
	"github.com/weirflow/weir/internal/pacing"
)

// Throttle makes a client refuse calls before they are sent, while the server accepts too few of them:
// the adaptive throttling of Google's book on site reliability engineering. Of all calls that wait
// together (PauseBy: those of the same method to a target) within two minutes, the next one is refused
// with the probability
//
//	max(0, (requests - k*accepts) / (requests + 1))
//
// so a server gets k times as many calls as it accepts; the book has 2. Those that are refused here
// count as requests. Not accepted are RESOURCE_EXHAUSTED, UNAVAILABLE and DEADLINE_EXCEEDED. What the
// caller has cancelled does not count. A stream counts when its first message has come, or when it ends.
//
// A refused call fails with RESOURCE_EXHAUSTED, and errors.Is finds weir.ErrLimited. Throttle differs from
// the book as weirhttp.Throttle does. default: no throttle
func Throttle(k float64) ClientOption {
	if !(k >= 1 && k <= pacing.MostK) {
		panic(fmt.Sprintf("weirgrpc: Throttle(%v): write a factor from 1 to %d, like Throttle(2)", k, pacing.MostK))
	}
	return func(c *client) { c.throttle = k }
}

// Adapt limits how many unary calls are in flight, of those that wait together (PauseBy: of the same
// method to a target), with a limit that finds itself from the latency and the refusals: see package
// adaptive. A call that finds no place fails with RESOURCE_EXHAUSTED, and errors.Is finds weir.ErrLimited;
// or it waits if the options have a Queue. WithPriority says how important it is.
//
// RESOURCE_EXHAUSTED, UNAVAILABLE and DEADLINE_EXCEEDED lower the limit. What the caller cancels counts
// as nothing. Streams are not limited. default: no such limit
//
// Adapt panics if the options are invalid.
func Adapt(o adaptive.Options) ClientOption {
	if _, err := adaptive.New(o); err != nil {
		panic("weirgrpc: Adapt: " + err.Error())
	}
	return func(c *client) { c.adapt = &o }
}

// Counts are what the clients have done that count in it: see CountIn. The zero value is ready.
type Counts struct {
	Sent      atomic.Uint64 // attempts to send a call or to open a stream, retries and second attempts included
	Retried   atomic.Uint64 // retries
	NoBudget  atomic.Uint64 // retries that were not made because their budget had none left
	Throttled atomic.Uint64 // calls, retries and streams that Throttle has refused
	NoPlace   atomic.Uint64 // calls and retries that Adapt has refused
	Hedged    atomic.Uint64 // second attempts
	HedgesWon atomic.Uint64 // second attempts whose response the caller got
}

// CountIn counts what the client does, for metrics. Several interceptors may have the same Counts.
func CountIn(counts *Counts) ClientOption {
	if counts == nil {
		panic("weirgrpc: CountIn without Counts: pass a pointer to one")
	}
	return func(c *client) { c.counts = counts }
}

type priorityKey struct{}

// WithPriority returns a context for calls of a priority, for Adapt: while there are not enough places,
// the less important calls are refused first. default: adaptive.Critical
func WithPriority(ctx context.Context, p adaptive.Priority) context.Context {
	return context.WithValue(ctx, priorityKey{}, p)
}

// A callee is what a client knows of the calls with a key. What no option asks for is nil.
type callee struct {
	counts   *Counts
	throttle *pacing.Throttle
	adapt    *adaptive.Limiter
	hedges   *pacing.Hedges
}

func (c *client) newCallee() *callee {
	of := &callee{counts: c.counts}
	if c.throttle > 0 {
		of.throttle = pacing.NewThrottle(pacing.ThrottleOptions{K: c.throttle})
	}
	if c.adapt != nil {
		l, err := adaptive.New(*c.adapt)
		if err != nil {
			panic("weirgrpc: Adapt: " + err.Error())
		}
		of.adapt = l
	}
	if c.hedging != nil {
		of.hedges = pacing.NewHedges(*c.hedging)
	}
	return of
}

// callee returns what the client knows of the calls with a key.
func (c *client) callee(key string) *callee {
	if c.callees == nil {
		return &none
	}
	return c.callees.Of(key)
}

var none callee

// throttled returns an error if the throttle refuses a call.
func (c *callee) throttled(method string) error {
	if c.throttle == nil {
		return nil
	}
	if ok, requests, accepts := c.throttle.Admit(); !ok {
		c.counts.Throttled.Add(1)
		return &refused{Response{Method: method, Decision: weir.Decision{RetryAfter: weir.Never},
			unsent: fmt.Sprintf("its server has accepted %d of %d calls within %v, so Throttle sends only some", accepts, requests, c.throttle.Window())}}
	}
	return nil
}

// result tells the throttle how a call has ended.
func (c *callee) result(o weir.Outcome) {
	if c.throttle != nil && o != weir.Ignore {
		c.throttle.Done(o == weir.OK)
	}
}

// place takes a place of Adapt. wait is whether it may wait for one.
func (c *callee) place(ctx context.Context, method string, wait bool) (h adaptive.Hold, err error) {
	if c.adapt == nil {
		return h, nil
	}
	p, _ := ctx.Value(priorityKey{}).(adaptive.Priority)
	if !wait {
		h, ok := c.adapt.TryEnterAs(adaptive.Request{Priority: p})
		if !ok {
			err = weir.ErrLimited
		}
		return h, err
	}
	h, err = c.adapt.EnterAs(ctx, adaptive.Request{Priority: p})
	var limited *weir.LimitedError
	switch {
	case err == nil:
		return h, nil
	case errors.As(err, &limited):
		c.counts.NoPlace.Add(1)
		return h, &refused{Response{Method: method, Decision: limited.Decision, unsent: "as many are in flight as its server can bear"}}
	}
	return h, status.FromContextError(err).Err()
}

// outcomeOf is how a call has ended: Ignore if its caller has cancelled it, or if its deadline has come
// and it has spent most of its time in our queue.
func (f *flight) outcomeOf(ctx context.Context, err error, arrived time.Time) weir.Outcome {
	late := status.Code(err) == codes.DeadlineExceeded || errors.Is(ctx.Err(), context.DeadlineExceeded) && err != nil
	switch now := time.Now(); {
	case late && now.Sub(f.sent) < now.Sub(arrived)/2, ctx.Err() != nil && !late:
		return weir.Ignore
	case late:
		return weir.Dropped
	}
	return outcomeOf(err)
}
