package weirhttp

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"net/http"
	"slices"
	"time"

	"github.com/weirflow/weir"
	"github.com/weirflow/weir/internal/pacing"
)

// failed ends an attempt without a response, and reports whether the request is sent again.
func (c *call) failed(err error) (again bool) {
	return c.end(err) == weir.Dropped && c.request.Context().Err() == nil && transient(err) && c.repeats(c.backoff())
}

// end ends an attempt without a response.
func (c *call) end(err error) weir.Outcome {
	c.pass.Cancel()
	outcome := c.outcomeOf(err)
	if outcome == weir.Dropped {
		c.accepted(false)
	}
	c.leave(outcome)
	return outcome
}

func (c *call) backoff() time.Duration {
	return pacing.Backoff(c.number, firstBackoff, longestBackoff)
}

// The wait before a retry after a failure.
const (
	firstBackoff   = 100 * time.Millisecond
	longestBackoff = 10 * time.Second
)

// transient reports whether an error may go away by itself: one of the connection, and not one of the
// request or of a certificate.
func transient(err error) bool {
	var broken *net.OpError
	var certificate *tls.CertificateVerificationError
	if errors.As(err, &certificate) {
		return false
	}
	return errors.As(err, &broken) || errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF)
}

// A verdict is what a response means.
type verdict struct {
	report  pacing.Report
	held    time.Duration // for how long it holds back other requests
	outcome weir.Outcome
}

// judge tells the gate and the throttle of a response.
func (c *call) judge(resp *http.Response) (v verdict) {
	v.report = reportOf(resp)
	switch {
	case c.eased(resp, v.report): // it is no reason to hold back others
		v.report.Refused, v.outcome = false, weir.Dropped
	case v.report.Refused, resp.StatusCode == http.StatusBadGateway, resp.StatusCode == http.StatusGatewayTimeout:
		v.outcome = weir.Dropped
	}
	c.accepted(!overload(resp.StatusCode))
	if v.held = c.pass.Done(v.report); v.held > 0 && c.shared != nil {
		_ = c.shared.Set(c.request.Context(), c.pauseKey, v.held) // without the store, others learn it from the server
	}
	return v
}

// responded ends an attempt with a response, or lets it end with the response's body. It reports for
// how long the response holds back others, and whether the request is sent again.
func (c *call) responded(resp *http.Response) (held time.Duration, again bool) {
	decided := false
	defer func() {
		if !decided { // the function of Repeatable panicked: the caller does not get the response
			if resp.Body != nil {
				_ = resp.Body.Close()
			}
			c.leave(weir.Dropped)
		}
	}()
	v := c.judge(resp)
	switch {
	case v.report.Refused: // the pause is wait enough
		again = c.repeats(0)
	case v.outcome == weir.Dropped:
		again = c.repeats(c.backoff())
	}
	decided = true
	if again {
		drain(resp.Body)
		c.settle(nil, nil, v.report.Refused)
		c.leave(v.outcome)
		return v.held, true
	}
	m := newMeter(c.dues, resp, c.sent)
	watch(resp, m, func(whole bool) {
		defer func() { c.leave(c.ended(v.outcome, whole)) }() // also if the function of Actual panics
		c.settle(resp, m, v.report.Refused)
	})
	return v.held, false
}

// repeats reports whether the request is sent again, after a delay and the server's pause.
func (c *call) repeats(delay time.Duration) bool {
	r := c.request
	if c.number >= c.opts.retries || !bodyAgain(r) || !c.opts.repeatable(r) {
		return false
	}
	if end, ok := r.Context().Deadline(); ok && time.Until(end) <= max(delay, c.gate.Left(c.pauseKey)) {
		return false // the caller gets what there is, and not an error later
	}
	if c.throttled() != nil {
		return false
	}
	if !c.budget.Retry() {
		c.counts.noBudget.Add(1)
		return false
	}
	c.delay = delay
	c.counts.retried.Add(1)
	return true
}

// idempotent reports whether a request may be sent again: the rule of net/http, for its own retries.
func idempotent(r *http.Request) bool {
	switch r.Method {
	case "", http.MethodGet, http.MethodHead, http.MethodOptions, http.MethodTrace, http.MethodPut, http.MethodDelete:
		return true
	}
	return r.Header["Idempotency-Key"] != nil || r.Header["X-Idempotency-Key"] != nil
}

// settleTime is how long settling a cost in a store may take.
const settleTime = time.Second

// settle replaces the estimates by the actual costs. resp is nil for a response that is not returned.
func (c *call) settle(resp *http.Response, m *meter, refused bool) {
	if !slices.ContainsFunc(c.dues, func(d due) bool { return d.settles() }) {
		return
	}
	actual := make([]int64, len(c.dues))
	for i := range c.dues {
		d := &c.dues[i]
		actual[i] = d.cost
		var read readCost
		switch {
		case !d.settles():
		case refused:
			read.known = true
		case resp == nil:
		case d.usage != nil:
			read = m.costs[i]
		default:
			read.cost, read.known = d.actual(resp)
		}
		if read.known && read.cost >= 0 {
			actual[i] = read.cost
		}
	}
	ctx, end := context.WithTimeout(context.WithoutCancel(c.request.Context()), settleTime)
	defer end()
	_ = c.reserved.Settle(ctx, actual...) // what a store could not settle stays charged as estimated
}

// leave gives the places back, and lets requests that wait for them look again.
func (c *call) leave(o weir.Outcome) {
	c.reserved.Done(o)
	c.hold.Done(o)
	c.left.Notify()
	if c.cancel != nil {
		c.cancel()
	}
}

// The bounds within which a response that is not returned is read.
const (
	mostDrained = 64 << 10
	drainTime   = 250 * time.Millisecond
)

// drain reads a body to its end, so that its connection can be used again, and closes it.
func drain(body io.ReadCloser) {
	if body == nil {
		return
	}
	late := time.AfterFunc(drainTime, func() { _ = body.Close() })
	defer late.Stop()
	_, _ = io.CopyN(io.Discard, body, mostDrained)
	_ = body.Close()
}

// closeBody closes the body of a request that is not sent.
func closeBody(r *http.Request) {
	if r.Body != nil {
		_ = r.Body.Close()
	}
}
