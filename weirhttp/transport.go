package weirhttp

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"time"

	"github.com/weirflow/weir"
	"github.com/weirflow/weir/adaptive"
	"github.com/weirflow/weir/group"
	"github.com/weirflow/weir/internal/pacing"
	"github.com/weirflow/weir/internal/pause"
	"github.com/weirflow/weir/internal/rules"
	"github.com/weirflow/weir/policy"
)

// A Transport is an http.RoundTripper that keeps to limits: to those that you give it, and to what
// servers say. Make one with NewTransport, for all requests of a program:
//
//	client := &http.Client{Transport: weirhttp.NewTransport(nil,
//		weirhttp.Pace(weirhttp.One(requests), weirhttp.Global()))}
//
// # Waiting
//
// A request waits until all its limits admit it, and until the server lets it. It never waits past
// the deadline of its context, which http.Client.Timeout sets too: if its turn would come later, the
// error comes at once, and errors.Is finds weir.ErrLimited and context.DeadlineExceeded in it. Where
// the time of the turn is not known, as for requests in flight, it waits until the context ends, and
// returns its error. Without a deadline, it waits for as long as it takes.
//
// Requests that wait for the same limits and keys go in order of arrival, and by WithPriority. Limits
// in stores admit them one by one, each after a call of the store, while some wait.
//
// # What servers say
//
// A response with 429, 503 or 529, or with 403 and fields that tell of a limit, holds back all
// requests with the same key (PauseBy), for as long as Retry-After says, in seconds or as a date. If
// it does not, it is until the reset of a limit that is used up, or else a guess: 0.5 to 1 s, doubled
// with each further refusal up to a minute. After it, one request goes first, then another, and then
// as many more as responses come.
//
// If a server refuses with 429 and says nothing about its limit, or Retry-After alone, its rate is
// learned: after two pauses, requests go evenly, at 98 % of the rate that was admitted between them, and
// in a burst after a rest. The rate grows slowly until the server refuses a request, so that a raised
// limit is found: some 1 of 3000 requests is refused then. The rate is forgotten when it has held back
// no request for 10 minutes, or when refusals show that they do not depend on it. See NoLearnedRate.
//
// While the fields RateLimit and RateLimit-Policy, RateLimit-Limit, -Remaining and -Reset,
// X-RateLimit-* and those of OpenAI and Anthropic say how much remains, no more requests are in
// flight than that, and none until the reset if nothing remains. After it, one request goes first.
// Before the first response nothing is known, and requests go at once. Dates are compared with the
// server's own Date. No pause is longer than MaxPause.
//
// # Retries
//
// A request is sent again after such a refusal, after 502 and 504, and after an error of the
// connection, if it may be repeated (Repeatable) and has no body or one with GetBody. There are at
// most Retries of it, and RetryBudget of all to its host. Before each, it waits for the pause, or after a
// failure for a random time up to 100 ms, doubled with each retry up to 10 s. If that would pass the
// deadline, or no retry is left, the caller gets the response or error as it is. The response that is
// not returned is read up to 64 KiB or 250 ms, so that its connection can be used again.
//
// # Overload
//
// With Throttle, some requests are refused before they are sent while a server accepts too few. With
// Adapt, no more requests are in flight than the server can bear. With Hedge, a request whose response
// is late is sent a second time.
//
// # Responses
//
// Close each response's body, or read it to its end: places of requests in flight are held until
// then, and costs settled. Requests are not modified, and their bodies are always closed.
//
// A Transport is safe for concurrent use. Without Hedge, it starts no goroutine.
type Transport struct {
	base   http.RoundTripper
	opts   transportSettings
	gate   *pacing.Gate
	lines  *pacing.Lines
	shared *pacing.SharedPauses // nil if pauses are not shared
	left   pacing.Signal        // a request has ended, and has left its places
	counts counts

	budgets   *pacing.Table[pacing.Budget]    // by host
	throttles *pacing.Table[pacing.Throttle]  // by the key of PauseBy; nil without Throttle
	hedging   *pacing.Table[pacing.Hedges]    // by host; nil without Hedge
	adapting  *pacing.Table[adaptive.Limiter] // by the key of PauseBy; nil without Adapt
}

// NewTransport returns a Transport that sends requests by base; nil is http.DefaultTransport. It
// panics if an option is invalid: that is a mistake of the program, and shows when it starts.
func NewTransport(base http.RoundTripper, options ...TransportOption) *Transport {
	s := transportSettings{pauseKey: ByHost(), retries: DefaultRetries, percent: defaultPercent, burst: defaultBurst, repeatable: idempotent, most: DefaultMostQueued}
	for _, o := range options {
		o(&s)
	}
	if base == nil {
		base = http.DefaultTransport
	}
	t := &Transport{base: base, opts: s, gate: pacing.NewGate(s.gate), lines: pacing.NewLines(s.most)}
	t.budgets = pacing.NewTable(s.gate.MaxKeys, func() *pacing.Budget { return pacing.NewBudget(s.percent, s.burst, s.floor) })
	if s.throttle > 0 {
		t.throttles = pacing.NewTable(s.gate.MaxKeys, func() *pacing.Throttle {
			return pacing.NewThrottle(pacing.ThrottleOptions{K: s.throttle})
		})
	}
	if s.adapt != nil {
		t.adapting = newAdaptive(*s.adapt, s.gate.MaxKeys)
	}
	if s.hedging != nil {
		t.hedging = pacing.NewTable(s.gate.MaxKeys, func() *pacing.Hedges { return pacing.NewHedges(*s.hedging) })
	}
	if s.store != nil {
		var err error
		if t.shared, err = pacing.NewSharedPauses(s.store, s.storeName); err != nil {
			panic("weirhttp: SharePauses: " + err.Error())
		}
	}
	return t
}

// CloseIdleConnections closes those of the base, if it can.
func (t *Transport) CloseIdleConnections() {
	if c, ok := t.base.(interface{ CloseIdleConnections() }); ok {
		c.CloseIdleConnections()
	}
}

// RoundTrip sends a request when it may be sent, and repeats it as described.
func (t *Transport) RoundTrip(r *http.Request) (*http.Response, error) {
	all, err := dues(t.opts.limits, r)
	if err != nil {
		closeBody(r)
		return nil, err
	}
	t.counts.requests.Add(1)
	c := &call{Transport: t, request: r, dues: all, pauseKey: t.pauseKey(r), arrived: time.Now()}
	c.line = c.lineKey()
	host, _ := ByHost()(r)
	host = policy.SealKey(host)
	c.budget = t.budgets.Of(host)
	if t.hedging != nil {
		c.hedges = t.hedging.Of(host)
	}
	if t.adapting != nil {
		c.adapt = t.adapting.Of(c.pauseKey)
	}
	if t.throttles != nil {
		c.throttle = t.throttles.Of(c.pauseKey)
	}
	for {
		resp, again, err := c.attempt()
		if !again {
			return resp, err
		}
		c.number++
	}
}

// pauseKey returns what the server's refusals of a request apply to.
func (t *Transport) pauseKey(r *http.Request) string {
	text, _ := t.opts.pauseKey(r)
	return policy.SealKey(text)
}

// A call is a request on its way through a Transport.
type call struct {
	*Transport
	request  *http.Request
	dues     []due
	pauseKey string
	line     string
	arrived  time.Time
	budget   *pacing.Budget
	throttle *pacing.Throttle  // nil without Throttle
	hedges   *pacing.Hedges    // nil without Hedge
	adapt    *adaptive.Limiter // nil without Adapt
	number   int               // of the attempt
	delay    time.Duration     // before the attempt

	flight
}

// A flight is what an attempt holds.
type flight struct {
	pass     *pacing.Pass
	reserved *group.Reservation
	hold     adaptive.Hold // of Adapt
	sent     time.Time
	cancel   func()        // the attempt's context; nil if it is the caller's
	hedge    *http.Request // what is sent, of a second attempt: see Hedge; nil for others
}

// lineKey tells the requests apart that wait for different limits or keys.
func (c *call) lineKey() string {
	parts := []string{c.pauseKey}
	for i := range c.dues {
		parts = append(parts, strconv.Itoa(c.dues[i].index), c.dues[i].text)
	}
	return policy.EncodeKey(parts...)
}

// attempt sends the request once. again says that it is to be sent again.
func (c *call) attempt() (resp *http.Response, again bool, err error) {
	c.flight = flight{}
	seen := Attempt{Request: c.request, Number: c.number}
	if c.opts.observe != nil {
		defer func() {
			seen.Err, seen.Retried = err, again
			returned := false
			defer func() {
				if !returned && resp != nil {
					_ = resp.Body.Close() // the function panicked: the caller does not get the response
				}
			}()
			c.opts.observe(seen)
			returned = true
		}()
	}
	hedgeable := c.hedgeable()
	began := time.Now()
	r, err := c.ready()
	if seen.Waited = time.Since(began); err != nil {
		return nil, false, err
	}
	seen.Sent = true
	c.counts.sent.Add(1)
	if c.number == 0 {
		c.budget.Request()
	}
	c.sent = time.Now()
	if hedgeable {
		resp, err = c.sendTwice(r)
	} else {
		resp, err = c.send(r)
	}
	if seen.Hedge = c.hedge != nil; err != nil {
		return nil, c.failed(err), err
	}
	seen.Status = resp.StatusCode
	resp.Request = c.request
	if seen.Pause, again = c.responded(resp); again {
		return nil, true, nil
	}
	return resp, false, nil
}

// send sends the request. If the base panics, nothing is held any more.
func (c *call) send(r *http.Request) (resp *http.Response, err error) {
	returned := false
	defer func() {
		if !returned {
			c.pass.Cancel()
			c.leave(weir.Dropped)
		}
	}()
	resp, err = c.base.RoundTrip(r)
	returned = true
	return resp, err
}

// ready waits until the request may be sent, and returns it: the caller's own for the first attempt,
// and for others a copy with a new body. After an error, the caller's body is closed.
func (c *call) ready() (*http.Request, error) {
	ctx := c.request.Context()
	if c.delay > 0 {
		if err := pause.For(ctx, c.delay); err != nil {
			return nil, err
		}
	}
	if c.number == 0 { // that a retry is admitted was decided before
		if err := c.throttled(); err != nil {
			closeBody(c.request)
			return nil, err
		}
	}
	if err := c.turn(ctx); err != nil {
		if c.number == 0 {
			closeBody(c.request)
		}
		return nil, fmt.Errorf("weirhttp: the request was not sent: %w", err)
	}
	if c.number == 0 {
		return c.request, nil
	}
	made := false
	defer func() {
		if !made { // also if GetBody panicked
			c.unsend(ctx)
		}
	}()
	r := *c.request
	if r.GetBody != nil {
		body, err := r.GetBody()
		if err != nil {
			return nil, fmt.Errorf("weirhttp: the body cannot be sent again: %w", err)
		}
		r.Body = body
	}
	made = true
	return &r, nil
}

// turn waits until the request may be sent.
func (c *call) turn(ctx context.Context) error {
	costs := make([]int64, len(c.opts.limits)+1)
	costs[len(c.opts.limits)] = 1 // of the number of requests, which a learned rate limits
	for i := range c.dues {
		costs[c.dues[i].index] = c.dues[i].cost
	}
	request := pacing.Request{Key: c.line, Level: priorityOf(ctx), Arrived: c.arrived, Costs: costs, TooLate: c.tooLate}
	for {
		if err := c.lines.Wait(ctx, request, func() pacing.Try { return c.try(ctx) }); err != nil {
			return err
		}
		if err := c.place(ctx); err != nil {
			return err
		}
		if c.adapt == nil || c.gate.Left(c.pauseKey) == 0 {
			return nil
		}
		c.unsend(ctx) // a pause has begun while it waited for its place
	}
}

// try charges all limits if the request may be sent now.
func (c *call) try(ctx context.Context) pacing.Try {
	if c.shared != nil {
		if left := c.shared.Left(ctx, c.pauseKey); left > c.gate.Left(c.pauseKey) {
			c.gate.Pause(c.pauseKey, left)
		}
	}
	entered, left := c.gate.Changed(), c.left.Changed()
	pass, wait, sooner := c.gate.EnterTokens(c.pauseKey, c.tokens())
	if pass == nil {
		return pacing.Try{Wait: wait, Sooner: sooner, Changed: entered, By: weir.Decision{By: "the server", RetryAfter: wait}}
	}
	charges := make([]group.Charge, len(c.dues))
	for i := range c.dues {
		charges[i] = c.dues[i].charge(c.dues[i].text, c.dues[i].cost)
		if c.dues[i].settles() {
			charges[i] = charges[i].Estimated()
		}
	}
	reserved, d, err := group.Take(ctx, charges...)
	switch {
	case err != nil:
		pass.Cancel()
		return pacing.Try{Err: err}
	case d.Allowed || len(charges) == 0:
		c.pass, c.reserved = pass, reserved
		return pacing.Try{Sent: true}
	}
	pass.Cancel()
	if d.RetryAfter == weir.Never && (d.Source != weir.SourceLocal || slices.ContainsFunc(c.dues, func(d due) bool { return d.never() })) {
		return pacing.Try{Err: &weir.LimitedError{Decision: d}}
	}
	return pacing.Try{Wait: d.RetryAfter, Changed: left, By: d}
}

// tokens is what the request is expected to take of the server's limits of tokens.
func (c *call) tokens() (most int64) {
	for i := range c.dues {
		if c.dues[i].settles() {
			most = max(most, c.dues[i].cost)
		}
	}
	return most
}

// tooLate returns an error if the turn after other requests comes after the context's deadline, as far
// as that is known now. costs is what they and this one cost together.
func (c *call) tooLate(costs []int64) error {
	end, _ := c.request.Context().Deadline()
	wait, by := max(c.gate.Left(c.pauseKey), c.gate.Turn(c.pauseKey, costs[len(c.opts.limits)])), weir.Decision{By: "the server"}
	for i := range c.dues {
		d := &c.dues[i]
		if d.peek == nil {
			continue
		}
		now := d.peek(d.text, 1)
		lacks := costs[d.index] - now.Remaining
		of, ok := rules.ParamsOf(d.limit()).(rules.Leased)
		if lacks <= 0 || !ok || now.RetryAfter == weir.Never {
			continue
		}
		if more, ok := of.MoreWait(lacks - 1); ok && now.RetryAfter+more > wait {
			wait, by = now.RetryAfter+more, now
		}
	}
	if wait == 0 || time.Until(end) > wait {
		return nil
	}
	by.Allowed, by.RetryAfter = false, wait
	return &weir.LimitedError{Decision: by, Deadline: true}
}
