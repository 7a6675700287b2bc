package weirhttp

import (
	"context"
	"fmt"
	"net/http"
	"time"

	"github.com/weirflow/weir/internal/pacing"
)

// Hedging says when a request is sent a second time while its response is late: see Hedge.
type Hedging struct {
	// Delay is how late the response is then. default: learned from the latest 500 to 1000 requests to
	// the host, as Share says. Before the first 100 responses, there is no second attempt
	Delay time.Duration
	// Share is the share of the requests whose response comes within the learned delay. default: 0.95
	Share float64
	// Percent and Burst bound the second attempts to a host: percent of its requests, and burst more.
	// default: 5 and 10
	Percent, Burst int
}

// Hedge sends a request a second time if its response is late, and returns the response that comes
// first. The other attempt is cancelled. If a few responses are much later than the others, that
// makes the late ones rare, for a few more requests. A response with 429 or 5xx, or with 403 and
// fields that tell of a limit, or an error, is returned only if that of the other attempt is not better.
//
// A request is sent a second time only if it may be repeated (Repeatable), and has no body or one with
// GetBody; and only the first attempt, no retry. The second attempt never waits: there is none
// while other requests wait for the same limits, if a limit does not admit it at once, while the server
// holds back requests or has done so within 20 s, or while Throttle refuses some. It is charged to all
// limits, as is the first one. The cost of the cancelled one stays as estimated.
//
// Both attempts have the context's values, so functions of httptrace are called for both. With Hedge, a
// Transport starts a goroutine for each second attempt, which ends soon after the response has come.
// default: no second attempts
//
// The idea is of "The Tail at Scale" by Dean and Barroso (2013).
func Hedge(h Hedging) TransportOption {
	all, err := pacing.Hedging(h).Complete()
	if err != nil {
		panic("weirhttp: Hedge: " + err.Error())
	}
	return func(t *transportSettings) { t.hedging = &all }
}

// hedgeable reports whether the attempt may have a second one beside it.
func (c *call) hedgeable() bool {
	r := c.request
	return c.hedges != nil && c.number == 0 && r.Header["Upgrade"] == nil && bodyAgain(r) && c.opts.repeatable(r)
}

// bodyAgain reports whether the body of a request can be sent again.
func bodyAgain(r *http.Request) bool {
	return r.Body == nil || r.Body == http.NoBody || r.GetBody != nil
}

// A result is what an attempt ended with.
type result struct {
	resp *http.Response
	err  error
}

// good reports whether no other attempt can have a better result.
func (r result) good() bool {
	return r.err == nil && r.resp.StatusCode < 500 && r.resp.StatusCode != http.StatusTooManyRequests && !limitedBy403(r.resp)
}

// sendTwice sends a request, and once more if the response does not come in time. Afterwards the call
// has the flight of the attempt whose result it returns.
func (c *call) sendTwice(r *http.Request) (*http.Response, error) {
	delay, ok := c.hedges.Request()
	if !ok {
		first := c.sends(r)
		c.measure(first)
		return first.resp, first.err
	}
	ctx, cancel := context.WithCancel(r.Context())
	c.cancel = cancel
	var beside *call
	race := pacing.Race[result]{Delay: delay, Good: result.good, CancelFirst: cancel, Begin: func() *pacing.Second[result] {
		if !c.mayHedge() {
			return nil
		}
		beside = new(call)
		return c.beside(beside)
	}}
	first, second := race.Run(func() result { return c.sends(r.WithContext(ctx)) })
	if second == nil {
		c.measure(first)
		return first.resp, first.err
	}
	c.hedges.Measure(time.Since(c.sent)) // it would have been later
	c.lose(first)
	c.flight = beside.flight
	c.counts.hedgesWon.Add(1)
	return second.resp, second.err
}

func (c *call) sends(r *http.Request) result {
	resp, err := c.send(r)
	return result{resp, err}
}

// measure counts the latency of a first attempt.
func (c *call) measure(first result) {
	if first.good() {
		c.hedges.Measure(time.Since(c.sent))
	}
}

// beside makes another call a second attempt: a copy with a flight of its own.
func (c *call) beside(second *call) *pacing.Second[result] {
	ctx, cancel := context.WithCancel(c.request.Context())
	*second = *c
	r := c.request.Clone(ctx) // the caller may change its own when it has the response
	second.flight = flight{cancel: cancel, hedge: r}
	return &pacing.Second[result]{
		Send:   func() (result, bool) { sent, got := second.sendHedge(r); return got, sent },
		Cancel: cancel,
		Lose:   second.lose,
	}
}

// mayHedge reports whether this is a time for a second attempt.
func (c *call) mayHedge() bool {
	if c.request.Context().Err() != nil || c.gate.Held(c.pauseKey) || c.lines.Busy(c.line) || c.throttle != nil && c.throttle.Throttling() {
		return false
	}
	return c.hedges.Hedge()
}

// sendHedge sends the second attempt, if all limits admit it at once. It is on no goroutine of the
// caller, so a panic ends the attempt alone.
func (c *call) sendHedge(r *http.Request) (sent bool, got result) {
	defer func() {
		if p := recover(); p != nil {
			sent = false // what it held is given back
			c.seen(Attempt{Sent: true, Err: fmt.Errorf("weirhttp: the second attempt panicked: %v", p)})
		}
	}()
	if r.GetBody != nil && r.Body != nil {
		body, err := r.GetBody()
		if err != nil {
			return false, got
		}
		r.Body = body
	}
	if t := c.try(r.Context()); !t.Sent || c.place(r.Context()) != nil {
		closeBody(r)
		return false, got
	}
	c.counts.sent.Add(1)
	c.counts.hedged.Add(1)
	c.sent = time.Now()
	got.resp, got.err = c.send(r)
	return true, got
}

// lose ends an attempt whose result the caller does not get.
func (c *call) lose(got result) {
	a := Attempt{Sent: true, Err: got.err}
	if got.err != nil {
		c.end(got.err)
	} else {
		a.Status = got.resp.StatusCode
		v := c.judge(got.resp)
		a.Pause = v.held
		if got.resp.Body != nil {
			_ = got.resp.Body.Close()
		}
		c.settle(nil, nil, v.report.Refused)
		c.leave(v.outcome)
	}
	c.seen(a)
}

// seen tells OnAttempt of an attempt whose result the caller does not get. A panic of its function ends
// here: it would end the whole program where it is on no goroutine of the caller, and elsewhere keep
// the caller from the response of the other attempt.
func (c *call) seen(a Attempt) {
	if c.opts.observe == nil {
		return
	}
	defer func() { _ = recover() }()
	a.Request, a.Number, a.Lost = c.request, c.number, true
	if c.hedge != nil {
		a.Request, a.Hedge = c.hedge, true
	}
	c.opts.observe(a)
}
