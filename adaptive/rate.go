package adaptive

import (
	"context"
	"errors"
	"math"
	"sync"
	"time"

	"github.com/weirflow/weir"
	"github.com/weirflow/weir/internal/list"
)

// RateOptions are the settings of a Rate.
type RateOptions struct {
	Min  float64 // requests per second that may always go; default: 0.5
	Max  float64 // the highest rate, also before a server has refused anything; 0: there is none
	Name string  // becomes Decision.By of a refusal

	// Clock replaces the clock: nanoseconds that never go back. Waits are in real time.
	Clock func() int64
}

// A Rate is the rate of requests of a client whose server refuses what is too much, with 429 for
// example, and says nothing more. It finds itself by the formulas of the adaptive retry mode of the
// AWS SDKs, which are those of CUBIC: a refusal lowers the rate to 0.7 of what was sent. Then it
// returns quickly to just below where it was, stays there for a while, and rises the faster the
// longer nothing is refused. Before the first refusal there is no limit but Max.
//
// It differs from them in what fails there. Refusals of requests that were all sent before the rate
// fell lower it once, and not once for each. A rate that is not in use does not change: theirs falls
// to twice what is sent, and after a rest the first requests have to wait. Callers go in order of
// arrival.
//
// All methods are safe for concurrent use. A Rate starts no goroutine and needs no Close.
type Rate struct {
	opts  RateOptions
	clock func() int64
	start time.Time

	mu      sync.Mutex
	limited bool    // a server has refused something, or there is Max
	fill    float64 // requests per second
	most    float64 // tokens
	tokens  float64
	filled  int64   // when tokens was computed
	paused  int64   // nothing goes before
	inUse   bool    // a request had to wait since the rate was last computed
	cuts    uint64  // how often the rate was lowered
	sent    float64 // requests per second, measured
	count   int     // responses since bucket
	bucket  float64 // the half second in which they are counted, in seconds
	highest float64 // the rate at the last refusal
	refused float64 // when that was, in seconds
	line    list.List[turnWaiter]
}

// The constants of the AWS SDKs.
const (
	cutTo     = 0.7 // of the rate, after a refusal
	cubic     = 0.4 // how fast the rate rises, in requests per second and cubic second
	smoothing = 0.8 // the weight of the latest half second in the measured rate
	leastRate = 0.5
)

type turnWaiter struct {
	node list.Node[turnWaiter]
	wake chan struct{} // it is first, or the rate has changed
}

// NewRate returns a Rate. The error says which parameter is invalid.
func NewRate(o RateOptions) (*Rate, error) {
	fail := func(field, text string) error {
		return &weir.FieldError{Limit: "adaptive.RateOptions", Field: field, Err: errors.New(text)}
	}
	if o.Min == 0 {
		o.Min = leastRate
		if o.Max > 0 {
			o.Min = min(leastRate, o.Max)
		}
	}
	switch {
	case !(o.Min > 0) || math.IsInf(o.Min, 0):
		return nil, fail("Min", "it must be above 0: a rate of 0 would never be found to be too low")
	case o.Max != 0 && !(o.Max >= o.Min) || math.IsInf(o.Max, 0):
		return nil, fail("Max", "it must be at least Min; 0 is none")
	}
	r := &Rate{opts: o, clock: o.Clock, start: time.Now()}
	if r.clock == nil {
		r.clock = func() int64 { return int64(time.Since(r.start)) }
	}
	now := r.clock()
	r.filled, r.paused = now, now
	r.bucket = halfSecond(now)
	if o.Max > 0 {
		r.limited = true
		r.set(o.Max)
		r.tokens = r.most
	}
	return r, nil
}

func halfSecond(now int64) float64 { return math.Floor(float64(now)/1e9*2) / 2 }

// A Turn is a request that may be sent. The zero Turn is none, and its Done does nothing.
type Turn struct {
	r    *Rate
	cuts uint64
}

// Enter waits until the next request may be sent, in order of arrival. If that would be after the
// deadline of the context, it returns an error at once, in which errors.Is finds weir.ErrLimited and
// context.DeadlineExceeded. The caller calls Done when it has the response.
func (r *Rate) Enter(ctx context.Context) (Turn, error) {
	if err := ctx.Err(); err != nil {
		return Turn{}, err
	}
	r.mu.Lock()
	if r.line.Len() == 0 {
		if wait := r.wait(1); wait == 0 {
			defer r.mu.Unlock()
			return r.take(), nil
		}
	}
	r.inUse = true
	wait := r.wait(float64(r.line.Len() + 1))
	if deadline, ok := ctx.Deadline(); ok && time.Until(deadline) < wait {
		defer r.mu.Unlock()
		return Turn{}, &weir.LimitedError{Deadline: true, Decision: weir.Decision{
			Limit: int64(max(r.most, 1)), RetryAfter: wait, ResetAfter: wait, By: r.opts.Name,
		}}
	}
	w := &turnWaiter{wake: make(chan struct{}, 1)}
	r.line.PushBack(&w.node, w)
	r.mu.Unlock()
	return r.await(ctx, w)
}

// await waits until a caller is first and a request may be sent.
func (r *Rate) await(ctx context.Context, w *turnWaiter) (t Turn, err error) {
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	r.mu.Lock()
	defer r.mu.Unlock()
	defer func() {
		r.line.Remove(&w.node)
		r.wakeFirst()
	}()
	for {
		wait := time.Duration(math.MaxInt64)
		if r.line.First() == w {
			if wait = r.wait(1); wait == 0 {
				return r.take(), nil
			}
		}
		timer.Reset(wait)
		r.mu.Unlock()
		select {
		case <-w.wake:
		case <-timer.C:
		case <-ctx.Done():
			err = ctx.Err()
		}
		r.mu.Lock()
		if err != nil {
			return Turn{}, err
		}
	}
}

func (r *Rate) wakeFirst() {
	if w := r.line.First(); w != nil {
		select {
		case w.wake <- struct{}{}:
		default:
		}
	}
}

// refill adds the tokens of the time that has passed.
func (r *Rate) refill(now int64) {
	if passed := now - r.filled; passed > 0 {
		r.tokens = min(r.tokens+float64(passed)/1e9*r.fill, r.most)
	}
	r.filled = now
}

// wait returns how long it takes until there are n tokens.
func (r *Rate) wait(n float64) time.Duration {
	now := r.clock()
	pause := max(r.paused-now, 0)
	if !r.limited {
		return time.Duration(pause)
	}
	r.refill(now)
	if r.tokens >= n {
		return time.Duration(pause)
	}
	// rounded up, so that the tokens are there then
	return max(time.Duration(pause), time.Duration(min((n-r.tokens)/r.fill*1e9+1, math.MaxInt64/2)))
}

func (r *Rate) take() Turn {
	if r.limited {
		r.tokens--
	}
	return Turn{r: r, cuts: r.cuts}
}

// Done says what became of the request:
//
//   - weir.OK: the server has accepted it, whether or not it could do it.
//   - weir.Dropped: it refused it because there were too many.
//   - weir.Ignore: nothing is known, as the connection failed or the caller gave up.
func (t Turn) Done(o weir.Outcome) {
	r := t.r
	if r == nil || o != weir.OK && o != weir.Dropped {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	now := r.clock()
	r.measure(now)
	switch {
	case o == weir.OK:
		r.accept(now)
	case t.cuts == r.cuts:
		r.refuse(now)
	}
}

// Pause lets no request go for a time: as long as Retry-After says, for example. A shorter pause does
// not end a longer one.
func (r *Rate) Pause(d time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	now := r.clock()
	if d > 0 {
		r.paused = max(r.paused, now+min(int64(d), math.MaxInt64/2))
	}
}

// PerSecond returns the rate, in requests per second. It is false as long as there is none: no server
// has refused a request, and there is no Max.
func (r *Rate) PerSecond() (float64, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.fill, r.limited
}

// Do enters and calls fn. If it cannot enter, it returns Enter's error and does not call fn;
// otherwise it returns fn's error. The outcome is Dropped if errors.Is finds weir.ErrLimited in it,
// OK if fn returns nil, and Ignore otherwise.
func (r *Rate) Do(ctx context.Context, fn func(context.Context) error) error {
	t, err := r.Enter(ctx)
	if err != nil {
		return err
	}
	err = fn(ctx)
	switch {
	case err == nil:
		t.Done(weir.OK)
	case errors.Is(err, weir.ErrLimited):
		t.Done(weir.Dropped)
	}
	return err
}

// measure counts a response, and measures the rate of them twice a second.
func (r *Rate) measure(now int64) {
	r.count++
	at := halfSecond(now)
	if at <= r.bucket {
		return
	}
	rate := float64(r.count) / (at - r.bucket)
	r.sent = rate*smoothing + r.sent*(1-smoothing)
	r.count, r.bucket = 0, at
}

// plateau is how long it takes until the rate is what it was at the last refusal, in seconds.
func (r *Rate) plateau() float64 { return math.Cbrt(r.highest * (1 - cutTo) / cubic) }

func (r *Rate) refuse(now int64) {
	rate := r.sent
	if r.limited {
		rate = min(rate, r.fill)
	}
	r.highest, r.refused = rate, float64(now)/1e9
	r.limited = true
	r.cuts++
	r.change(rate*cutTo, now)
}

func (r *Rate) accept(now int64) {
	if !r.limited || !r.inUse && r.idle(now) {
		return
	}
	past := float64(now)/1e9 - r.refused - r.plateau()
	r.change(cubic*past*past*past+r.highest, now)
}

// idle reports whether the rate is not in use: no request had to wait, and there are tokens.
func (r *Rate) idle(now int64) bool {
	r.refill(now)
	return r.tokens >= 1
}

// change sets the rate, to at most twice what is sent.
func (r *Rate) change(rate float64, now int64) {
	r.refill(now)
	r.inUse = r.line.Len() > 0
	r.set(min(rate, 2*r.sent))
	r.wakeFirst()
}

func (r *Rate) set(rate float64) {
	r.fill = max(rate, r.opts.Min)
	if r.opts.Max > 0 {
		r.fill = min(r.fill, r.opts.Max)
	}
	r.most = max(r.fill, 1)
	r.tokens = min(r.tokens, r.most)
}
