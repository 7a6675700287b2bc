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
	"github.com/weirflow/weir/adaptive"
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
// A negative pushback means not to retry. Retries are at most a tenth of all calls to a target, and ten
// more; and none waits beyond the call's deadline. default: no retries
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
	budgets *pacing.Table[pacing.Budget] // by target
	callees *pacing.Table[callee]        // by key; nil if no option needs it
	longest time.Duration
	pauseBy func(string) string

	retries    int
	repeatable []string
	throttle   float64
	adapt      *adaptive.Options
	hedging    *pacing.Hedging
	hedged     []string // methods
	counts     *Counts
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
	c := &client{pauseBy: func(method string) string { return method }, counts: &Counts{}}
	if len(limits) > 0 {
		c.limits = limits.checked()
	}
	for i := range c.limits {
		if c.limits[i].limit == nil {
			panic("weirgrpc: Adaptive is for servers: pass the option Adapt to the interceptor of a client")
		}
	}
	for _, o := range options {
		o(c)
	}
	c.admission = admission{wait: -1, waiting: make(chan struct{}, mostWaiting), shadows: make(chan struct{}, mostShadows)}
	c.gate = pacing.NewGate(pacing.GateOptions{MaxPause: c.longest})
	c.lines = pacing.NewLines(mostWaiting)
	c.budgets = pacing.NewTable(0, func() *pacing.Budget { return pacing.NewBudget(retryPercent, retryBurst, 0) })
	if c.throttle > 0 || c.adapt != nil || c.hedging != nil {
		c.callees = pacing.NewTable(0, c.newCallee)
	}
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
		key := c.key(cc, method)
		u := &unary{client: c, callee: c.callee(key), method: method, key: key, of: c.of(method), cc: cc, invoker: invoker, arrived: time.Now()}
		if err := u.throttled(method); err != nil {
			return err
		}
		budget := c.budgets.Of(target(cc))
		in := &invocation{req, reply, opts}
		var last error
		for n := 0; ; n++ {
			got := u.attempt(ctx, n, in)
			if !got.sent && last != nil {
				return last // there is no time for another attempt
			}
			if n == 0 && got.sent {
				budget.Request()
			}
			if last = got.err; last == nil || n >= c.retries || !c.mayRetry(method, last, got.advice) || u.throttled(method) != nil {
				return last
			}
			if !budget.Retry() {
				c.counts.NoBudget.Add(1)
				return last
			}
			if !got.refused && !backoff(ctx, n) {
				return last
			}
			c.counts.Retried.Add(1)
		}
	}
}

// unary is a call.
type unary struct {
	*client
	*callee
	method, key string
	of          *applying
	cc          *grpc.ClientConn
	invoker     grpc.UnaryInvoker
	arrived     time.Time // a retry goes before calls that came after it
}

// advice is what a server says with an error.
type advice struct {
	sent    bool // the call was sent
	refused bool // the server says when to retry
	pause   time.Duration
	never   bool // it says not to
}

// A flight is what an attempt holds.
type flight struct {
	pass *pacing.Pass
	stay *stay
	hold adaptive.Hold // of Adapt
	sent time.Time
}

// attempt sends the call once, when the limits and the server's pauses let it; or twice, see Hedge.
func (u *unary) attempt(ctx context.Context, n int, in *invocation) result {
	f, err := u.enterAll(ctx, in)
	switch {
	case err != nil:
		return result{err: err}
	case u.hedgeable(n, in):
		return u.sendTwice(ctx, f, in)
	}
	return u.send(ctx, f, in)
}

// enterAll waits until the call may be sent.
func (u *unary) enterAll(ctx context.Context, in *invocation) (*flight, error) {
	for {
		pass, stay, err := u.enter(ctx, u.key, u.arrived, u.call(ctx, in), u.of.all)
		if err != nil {
			return nil, err
		}
		f, err := u.board(ctx, pass, stay, true)
		if err != nil {
			return nil, err
		}
		if u.callee.adapt == nil || u.gate.Left(u.key) == 0 {
			return f, nil
		}
		f.cancel(ctx) // a pause has begun while it waited for its place
	}
}

// tryEnter is enterAll without a wait.
func (u *unary) tryEnter(ctx context.Context, in *invocation) (*flight, error) {
	pass, _ := u.gate.Enter(u.key)
	if pass == nil {
		return nil, weir.ErrLimited
	}
	stay, err := u.admitWith(pass, u.call(ctx, in), u.of.all)
	if err != nil {
		return nil, err
	}
	return u.board(ctx, pass, stay, false)
}

func (u *unary) call(ctx context.Context, in *invocation) *Call {
	return &Call{Context: ctx, Method: u.method, Message: in.req, client: true}
}

// board takes a place of Adapt. Without one, it gives back the rest.
func (u *unary) board(ctx context.Context, pass *pacing.Pass, stay *stay, wait bool) (*flight, error) {
	f := &flight{pass: pass, stay: stay}
	boarded := false
	defer func() {
		if !boarded {
			f.cancel(ctx)
		}
	}()
	var err error
	f.hold, err = u.place(ctx, u.method, wait)
	if boarded = err == nil; !boarded {
		return nil, err
	}
	return f, nil
}

// cancel gives everything back: the attempt was not made.
func (f *flight) cancel(ctx context.Context) {
	f.pass.Cancel()
	f.stay.cancel(ctx)
	f.hold.Done(weir.Ignore)
}

// send sends an attempt and ends it.
func (u *unary) send(ctx context.Context, f *flight, in *invocation) (got result) {
	outcome := weir.Dropped // an interceptor that panics
	defer func() {
		f.pass.Done(pacing.Report{Refused: got.refused, Pause: got.pause})
		f.stay.done(outcome)
		f.hold.Done(outcome)
	}()
	f.sent = time.Now()
	u.client.counts.Sent.Add(1)
	var trailer metadata.MD
	got.err = u.invoker(ctx, u.method, in.req, in.reply, u.cc, append(in.opts[:len(in.opts):len(in.opts)], grpc.Trailer(&trailer))...)
	got.advice = adviceOf(got.err, trailer)
	outcome = f.outcomeOf(ctx, got.err, u.arrived)
	if got.sent {
		u.result(outcome)
	}
	return got
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
	return target(cc) + " " + c.pauseBy(method)
}

func target(cc *grpc.ClientConn) string {
	if cc == nil {
		return ""
	}
	return cc.Target()
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
