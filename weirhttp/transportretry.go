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
	c.pass.Cancel()
	outcome := weir.Dropped
	if c.request.Context().Err() != nil {
		outcome = weir.Ignore
	}
	c.leave(outcome)
	return outcome == weir.Dropped && transient(err) && c.repeats(pacing.Backoff(c.number, firstBackoff, longestBackoff))
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

// responded ends an attempt with a response, or lets it end with the response's body. It reports for
// how long the response holds back others, and whether the request is sent again.
func (c *call) responded(resp *http.Response, sent time.Time) (held time.Duration, again bool) {
	decided := false
	defer func() {
		if !decided { // the function of Repeatable panicked: the caller does not get the response
			if resp.Body != nil {
				_ = resp.Body.Close()
			}
			c.leave(weir.Dropped)
		}
	}()
	report := reportOf(resp)
	held = c.pass.Done(report)
	if held > 0 && c.shared != nil {
		_ = c.shared.Set(c.request.Context(), c.pauseKey, held) // without the store, others learn it from the server
	}
	outcome := weir.OK
	switch {
	case report.Refused:
		outcome, again = weir.Dropped, c.repeats(0)
	case resp.StatusCode == http.StatusBadGateway, resp.StatusCode == http.StatusGatewayTimeout:
		outcome, again = weir.Dropped, c.repeats(pacing.Backoff(c.number, firstBackoff, longestBackoff))
	}
	decided = true
	if again {
		drain(resp.Body)
		c.settle(nil, nil, report.Refused)
		c.leave(outcome)
		return held, true
	}
	m := newMeter(c.dues, resp, sent)
	watch(resp, m, func() {
		defer c.leave(outcome) // also if the function of Actual panics
		c.settle(resp, m, report.Refused)
	})
	return held, false
}

// repeats reports whether the request is sent again, after a delay and the server's pause.
func (c *call) repeats(delay time.Duration) bool {
	r := c.request
	if c.number >= c.opts.retries || r.Body != nil && r.Body != http.NoBody && r.GetBody == nil || !c.opts.repeatable(r) {
		return false
	}
	if end, ok := r.Context().Deadline(); ok && time.Until(end) <= max(delay, c.gate.Left(c.pauseKey)) {
		return false // the caller gets what there is, and not an error later
	}
	c.delay = delay
	return c.budget.Retry()
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
	c.left.Notify()
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
