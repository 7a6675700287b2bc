package weirgrpc

import (
	"context"
	"errors"
	"fmt"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/weirflow/weir"
	"github.com/weirflow/weir/internal/pacing"
	"github.com/weirflow/weir/internal/pause"
)

// A ClientOption changes the interceptors of a client.
type ClientOption func(*client)

// Retry makes the client send a unary call of some methods up to most times more, like
// "/shop.Cart/Get" or "/shop.Cart/*". A call is sent again only if the server was overloaded:
//
//   - RESOURCE_EXHAUSTED, if the server says when to retry, with google.rpc.RetryInfo or
//     grpc-retry-pushback-ms.
//   - UNAVAILABLE. The server may have carried the call out all the same: name only methods that may
//     be repeated.
//
// A negative pushback means not to retry. Retries are at most a tenth of all calls, and ten more; and
// none waits beyond the call's deadline. default: no retries
func Retry(most int, methods ...string) ClientOption {
	methods = checkedMethods("Retry", methods)
	if len(methods) == 0 {
		panic("weirgrpc: Retry without methods: name those that may be repeated, like \"/shop.Cart/*\"")
	}
	if most < 0 {
		panic(fmt.Sprintf("weirgrpc: Retry(%d): write a number of at least 0", most))
	}
	return func(c *client) { c.retries, c.repeatable = most, methods }
}

// PauseBy says which calls wait when the server asks one of them to: those with the same text.
// default: those of the same method
func PauseBy(of func(method string) string) ClientOption {
	if of == nil {
		panic("weirgrpc: PauseBy without a function")
	}
	return func(c *client) { c.pauseBy = of }
}

// MaxPause is the longest time that the client waits because the server has asked it to. default: 5
// minutes
func MaxPause(longest time.Duration) ClientOption {
	if longest <= 0 {
		panic(fmt.Sprintf("weirgrpc: MaxPause(%v): write a time above 0, like time.Hour", longest))
	}
	return func(c *client) { c.longest = longest }
}

// client is what the calls of an interceptor share.
type client struct {
	admission admission
	table
	gate    *pacing.Gate
	lines   *pacing.Lines
	budget  *pacing.Budget
	longest time.Duration
	pauseBy func(string) string

	retries    int
	repeatable []string
}

// What bounds the retries of a client, in percent of its calls and in calls.
const (
	retryPercent = 10
	retryBurst   = 10
)

// The delays before a retry if the server does not say when.
const (
	firstBackoff   = 100 * time.Millisecond
	longestBackoff = 5 * time.Second
)

func newClient(limits Limits, options []ClientOption) *client {
	c := &client{pauseBy: func(method string) string { return method }}
	if len(limits) > 0 {
		c.limits = limits.checked()
	}
	for _, o := range options {
		o(c)
	}
	c.admission = admission{wait: -1, waiting: make(chan struct{}, mostWaiting), shadows: make(chan struct{}, mostShadows)}
	c.gate = pacing.NewGate(pacing.GateOptions{MaxPause: c.longest})
	c.lines = pacing.NewLines(mostWaiting)
	c.budget = pacing.NewBudget(retryPercent, retryBurst)
	return c
}

// UnaryClient returns an interceptor that keeps a client within limits, which may be none, and that
// obeys what servers say.
//
// A call waits for its turn, for no longer than its deadline: if its turn would come later, it fails
// at once with RESOURCE_EXHAUSTED, and errors.Is finds weir.ErrLimited and context.DeadlineExceeded.
// A call without a deadline waits for as long as it takes.
//
// If the server refuses a call with RESOURCE_EXHAUSTED or UNAVAILABLE and says when to retry, all
// calls of the method to this target wait until then. After that, one goes first, and then more.
//
// UnaryClient panics if the limits are invalid.
func UnaryClient(limits Limits, options ...ClientOption) grpc.UnaryClientInterceptor {
	c := newClient(limits, options)
	return func(ctx context.Context, method string, req, reply any, cc *grpc.ClientConn, invoker grpc.UnaryInvoker, opts ...grpc.CallOption) error {
		u := &unary{client: c, method: method, key: c.key(cc, method), of: c.of(method), message: req, arrived: time.Now()}
		c.budget.Request()
		var last error
		for n := 0; ; n++ {
			a, err := u.attempt(ctx, func(trailer *metadata.MD) error {
				return invoker(ctx, method, req, reply, cc, append(opts[:len(opts):len(opts)], grpc.Trailer(trailer))...)
			})
			if !a.sent && last != nil {
				return last // there is no time for another attempt
			}
			if last = err; err == nil || n >= c.retries || !c.mayRetry(method, err, a) || !c.budget.Retry() {
				return err
			}
			if !a.refused && !backoff(ctx, n) {
				return err
			}
		}
	}
}

// unary is a call.
type unary struct {
	*client
	method, key string
	of          *applying
	message     any
	arrived     time.Time // a retry goes before calls that came after it
}

// advice is what a server says with an error.
type advice struct {
	sent    bool // the call was sent
	refused bool // the server says when to retry
	pause   time.Duration
	never   bool // it says not to
}

// attempt sends the call once, when the limits and the server's pauses let it.
func (u *unary) attempt(ctx context.Context, send func(*metadata.MD) error) (a advice, err error) {
	pass, stay, err := u.enter(ctx, u.key, u.arrived, &Call{Context: ctx, Method: u.method, Message: u.message, client: true}, u.of.all)
	if err != nil {
		return a, err
	}
	outcome := weir.Dropped // an interceptor that panics
	defer func() {
		pass.Done(pacing.Report{Refused: a.refused, Pause: a.pause})
		stay.done(ended(ctx, outcome))
	}()
	var trailer metadata.MD
	err = send(&trailer)
	a, outcome = adviceOf(err, trailer), outcomeOf(err)
	return a, err
}

// enter waits until a call may be sent. The pass and the stay must be ended.
//
// The pass comes first: calls leave their line by it in order. A call that must wait for a limit gives
// it back meanwhile, as it would hold up calls that other limits admit.
func (c *client) enter(ctx context.Context, key string, arrived time.Time, call *Call, limits []*Limit) (*pacing.Pass, *stay, error) {
	pass, err := c.await(ctx, key, arrived, call.Method)
	if err != nil {
		return nil, nil, err // no place is held while the server wants a pause
	}
	stay, err := c.admitWith(pass, call, limits)
	if stay != nil || !errors.Is(err, weir.ErrLimited) {
		return pass, stay, err
	}
	if stay, err = c.admission.admit(call, limits); err != nil {
		return nil, nil, err
	}
	if pass, err = c.await(ctx, key, arrived, call.Method); err != nil {
		stay.cancel(ctx)
		return nil, nil, err
	}
	return pass, stay, nil
}

// admitWith charges the limits without a wait. The pass is given back unless they admit the call.
func (c *client) admitWith(pass *pacing.Pass, call *Call, limits []*Limit) (s *stay, err error) {
	defer func() {
		if s == nil {
			pass.Cancel() // also if a function of a key or a cost panics
		}
	}()
	now := c.admission
	now.wait = 0
	return now.admit(call, limits)
}

// await waits in the queue of the method until the server lets a call be sent.
func (c *client) await(ctx context.Context, key string, arrived time.Time, method string) (pass *pacing.Pass, err error) {
	err = c.lines.Wait(ctx, pacing.Request{Key: key, Arrived: arrived}, func() pacing.Try {
		changed := c.gate.Changed()
		if pass, _ = c.gate.Enter(key); pass != nil {
			return pacing.Try{Sent: true}
		}
		if left := c.gate.Left(key); left > 0 {
			return pacing.Try{Wait: left, Changed: changed}
		}
		return pacing.Try{Wait: weir.Never, Changed: changed} // other calls go first, and when they end is not known
	})
	var limited *weir.LimitedError
	switch {
	case err == nil:
		return pass, nil
	case errors.As(err, &limited):
		return nil, &refused{Response{Method: method, Decision: limited.Decision, late: limited.Deadline, paused: true}}
	}
	return nil, status.FromContextError(err).Err()
}

// key returns the key of the calls that wait together.
func (c *client) key(cc *grpc.ClientConn, method string) string {
	target := ""
	if cc != nil {
		target = cc.Target()
	}
	return target + " " + c.pauseBy(method)
}

// mayRetry reports whether a call that failed may be sent again.
func (c *client) mayRetry(method string, err error, a advice) bool {
	if !a.sent || a.never || !matches(c.repeatable, method) {
		return false
	}
	code := status.Code(err)
	return code == codes.Unavailable || code == codes.ResourceExhausted && a.refused
}

// backoff waits before a retry. It reports false if there is no time.
func backoff(ctx context.Context, n int) bool {
	d := pacing.Backoff(n, firstBackoff, longestBackoff)
	if end, ok := ctx.Deadline(); ok && time.Until(end) <= d {
		return false
	}
	return pause.For(ctx, d) == nil
}
