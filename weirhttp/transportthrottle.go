package weirhttp

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"time"

	"github.com/weirflow/weir"
	"github.com/weirflow/weir/internal/pacing"
)

// Throttle refuses requests before they are sent, while a server accepts too few of them: the adaptive
// throttling of Google's book on site reliability engineering. Of all requests with the same key
// (PauseBy) within two minutes, the next one is refused with the probability
//
//	max(0, (requests - k*accepts) / (requests + 1))
//
// so a server gets k times as many requests as it accepts; the book has 2. Those that are refused here
// count as requests. Not accepted are responses with 429, 502, 503, 504 and 529, timeouts, and failed
// connections. What the caller has cancelled does not count, nor do errors of the request.
//
// Unlike in the book, nothing is refused before 10 requests are counted, and one request a second is
// always sent (or one of 20, if those take longer). When the server has accepted all that was sent in 5 s, only
// the last second counts: so the throttle ends within some seconds after an outage, and not within minutes.
//
// A refused request gets a *ThrottledError. With Throttle, a response with 503 or 529 that does not
// say when to retry holds back no other request. default: no throttle
func Throttle(k float64) TransportOption {
	if !(k >= 1 && k <= pacing.MostK) {
		panic(fmt.Sprintf("weirhttp: Throttle(%v): write a factor from 1 to %d, like Throttle(2)", k, pacing.MostK))
	}
	return func(t *transportSettings) { t.throttle = k }
}

// A ThrottledError is the error of a request that Throttle has refused. errors.Is finds
// weir.ErrLimited in it.
type ThrottledError struct {
	Requests, Accepts int64         // how many were counted within the window, and how many accepted
	Window            time.Duration // of the counts
}

// Error says that the request was not sent, and why.
func (e *ThrottledError) Error() string {
	return fmt.Sprintf("weirhttp: the request was not sent: its server has accepted %d of %d requests within %v, so Throttle sends only some; retry later", e.Accepts, e.Requests, e.Window)
}

// Is makes errors.Is find weir.ErrLimited.
func (e *ThrottledError) Is(target error) bool { return target == weir.ErrLimited }

// throttled returns an error if the throttle refuses the request.
func (c *call) throttled() error {
	if c.throttle == nil {
		return nil
	}
	ok, requests, accepts := c.throttle.Admit()
	if ok {
		return nil
	}
	c.counts.throttled.Add(1)
	return &ThrottledError{Requests: requests, Accepts: accepts, Window: c.throttle.Window()}
}

// accepted tells the throttle about a request that was sent.
func (c *call) accepted(yes bool) {
	if c.throttle != nil {
		c.throttle.Done(yes)
	}
}

// overload reports whether a status means that the server, or one behind it, has too much load.
func overload(status int) bool {
	switch status {
	case http.StatusTooManyRequests, http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout, overloaded:
		return true
	}
	return false
}

// unguided reports whether a server refuses because of too much load and does not say until when.
func unguided(resp *http.Response, r pacing.Report) bool {
	return r.Refused && !r.Limit && r.Pause == 0 && len(r.Quotas) == 0 && overload(resp.StatusCode)
}

// outcomeOf is how an attempt without a response has ended: Ignore if the caller has ended it, or if the
// error says nothing about the load of the server.
//
// The deadline of a request that has spent most of its time in our queue says nothing either.
func (c *call) outcomeOf(err error) weir.Outcome {
	ended := c.request.Context().Err()
	var timeout net.Error
	switch {
	case ended != nil && !errors.Is(ended, context.DeadlineExceeded):
		return weir.Ignore
	case ended != nil:
		if now := time.Now(); now.Sub(c.sent) < now.Sub(c.arrived)/2 {
			return weir.Ignore
		}
		return weir.Dropped
	case transient(err), errors.As(err, &timeout) && timeout.Timeout():
		return weir.Dropped
	}
	return weir.Ignore
}
