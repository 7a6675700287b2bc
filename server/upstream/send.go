package upstream

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptrace"
	"sync/atomic"
	"time"
)

// ErrStalled is why a request was ended in which no byte moved for too long.
var ErrStalled error = stalled{}

type stalled struct{}

func (stalled) Error() string   { return "no byte moved for too long" }
func (stalled) Timeout() bool   { return true }
func (stalled) Temporary() bool { return false }

// errUnanswered is why a request was ended that one connection after another died of.
var errUnanswered = errors.New("connections end without an answer")

// maxReplay bounds the body of a request that is kept so that it can be sent again.
const maxReplay = 64 << 10

// RoundTrip sends a request to a target, whatever the host of its URL, and to another one where that is harmless. The answer's body has to be
// closed. It is an http.RoundTripper.
//
// Sent again is what has reached no target: there was no connection, and nothing of the body was read; and what can be repeated, if the
// connection ended without a byte of an answer: GET, HEAD, OPTIONS, TRACE, PUT and DELETE, without a body or with one of at most 64 KiB of
// known length. Never what has been answered, in part or with an error, nor what was not answered in time.
func (u *Upstream) RoundTrip(r *http.Request) (*http.Response, error) {
	s := u.settings.Load()
	b, err := newBody(r, s)
	if err != nil {
		return nil, err
	}
	var resp *http.Response
	err = u.try(s, func(e Exchange) (again bool, err error) {
		a := &attempt{Exchange: e, s: s, outer: r.Context(), body: b}
		if resp, err = a.send(r); err == nil {
			return false, nil
		}
		return a.repeatable(r, err), err
	})
	if err != nil {
		b.close()
		return nil, err
	}
	return resp, nil
}

// try has a request sent to one target after another, for as long as send says that it may be sent again, and there is a target, and a retry left for
// it. The error is that of the last one.
func (u *Upstream) try(s *settings, send func(Exchange) (again bool, err error)) error {
	var tried []*Target
	var failed error
	for {
		e, err := u.Pick(tried...)
		if err != nil {
			return cmp.Or(failed, err)
		}
		again, err := send(e)
		if err == nil || !again || len(tried) >= s.retries || !u.MayRetry() {
			return err
		}
		failed = err
		tried = append(tried, e.Target)
	}
}

// requestBody is the body of a request over several attempts.
type requestBody struct {
	real   io.ReadCloser // nil for none
	kept   []byte        // all of it, where it is kept
	isKept bool
	read   atomic.Bool // some of it was, or may have been
	broken atomic.Bool // it did not come
}

// newBody readies the body of a request; what is small, and may have to be sent again, is read now. A client that waits to be asked for its body is
// left to the target.
func newBody(r *http.Request, s *settings) (*requestBody, error) {
	b := &requestBody{real: r.Body}
	if r.Body == nil || r.Body == http.NoBody {
		b.real = nil
		return b, nil
	}
	if s.retries == 0 || !idempotent(r.Method) || r.ContentLength <= 0 || r.ContentLength > maxReplay || r.Header.Get("Expect") != "" {
		return b, nil
	}
	if err := b.keep(r, s.spec.Timeouts.Idle); err != nil {
		b.close()
		return nil, err
	}
	return b, nil
}

// keep reads the body.
func (b *requestBody) keep(r *http.Request, after time.Duration) error {
	i := newIdle(after, func(error) {}, stalledHook(r.Context()))
	defer i.stop()
	b.kept, b.isKept = make([]byte, r.ContentLength), true
	_, err := io.ReadFull(&sentBody{requestBody: b, idle: i}, b.kept)
	switch {
	case i.hasStalled():
		return &clientError{ErrStalled}
	case err == nil || ClientFailed(err):
		return err
	}
	return &clientError{err}
}

// clientError is what was wrong on the client's side.
type clientError struct{ err error }

func (e *clientError) Error() string { return "the request's body did not come: " + e.err.Error() }
func (e *clientError) Unwrap() error { return e.err }

// ClientFailed reports whether an error of RoundTrip is about the client's side: its body did not come.
func ClientFailed(err error) bool {
	var c *clientError
	return errors.As(err, &c)
}

func (b *requestBody) close() {
	if b.real != nil {
		b.real.Close()
	}
}

// idempotent reports whether a request may be carried out twice.
func idempotent(method string) bool {
	switch method {
	case http.MethodGet, http.MethodHead, http.MethodOptions, http.MethodTrace, http.MethodPut, http.MethodDelete, "":
		return true
	}
	return false
}

// attempt is a request at one target.
type attempt struct {
	Exchange
	s     *settings
	outer context.Context
	body  *requestBody
	idle  *idle

	connected atomic.Int32 // connections that it was given
	conn      atomic.Pointer[net.Conn]
	heard     atomic.Bool // a byte of an answer has come
}

// maxConnections is how many connections an attempt may be given: net/http takes another one where one that was kept has died. So one
// request does not end all connections that are kept.
const maxConnections = 3

// send sends the request once.
func (a *attempt) send(r *http.Request) (*http.Response, error) {
	ctx, cancel := context.WithCancelCause(a.outer)
	a.idle = newIdle(a.s.spec.Timeouts.Idle, cancel, stalledHook(a.outer))
	resp, err := a.s.transport.RoundTrip(a.request(r, a.trace(ctx, cancel)))
	if err != nil {
		a.idle.stop()
		switch cause := context.Cause(ctx); {
		case a.idle.clientStalled():
			err = &clientError{ErrStalled}
		case a.idle.hasStalled():
			err = ErrStalled
		case cause != nil && a.outer.Err() == nil:
			err = cause
		}
		cancel(nil)
		a.fail(err)
		return nil, err
	}
	a.Heard()
	if resp.StatusCode == http.StatusSwitchingProtocols {
		a.idle.stop()
		resp.Body = &upgraded{body: resp.Body, a: a, cancel: cancel}
		return resp, nil
	}
	a.idle.answers()
	resp.Body = &answerBody{ReadCloser: resp.Body, a: a, cancel: cancel}
	return resp, nil
}

// request is the request as the target gets it.
func (a *attempt) request(r *http.Request, ctx context.Context) *http.Request {
	out := r.WithContext(ctx)
	at := *r.URL
	at.Scheme, at.Host = a.Target.url.Scheme, a.Target.url.Host
	out.URL = &at
	if r.Host == "" {
		out.Host = at.Host
	}
	switch {
	case a.body.isKept:
		out.Body = io.NopCloser(bytes.NewReader(a.body.kept))
	case a.body.real != nil:
		out.Body = &sentBody{requestBody: a.body, idle: a.idle}
	}
	return out
}

// trace watches what becomes of the request.
func (a *attempt) trace(ctx context.Context, cancel context.CancelCauseFunc) context.Context {
	return httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{
		GotConn: func(info httptrace.GotConnInfo) {
			a.conn.Store(&info.Conn)
			if a.connected.Add(1) > maxConnections {
				cancel(errUnanswered)
			}
		},
		GotFirstResponseByte: func() { a.heard.Store(true) },
	})
}

// fail tells the target's part in an error.
func (a *attempt) fail(err error) {
	switch {
	case a.outer.Err() != nil || a.body.broken.Load() || a.idle.clientStalled():
		a.Done(Left, "")
	default:
		a.Done(Failed, Reason(err))
	}
}

// repeatable reports whether the request may be sent to another target.
func (a *attempt) repeatable(r *http.Request, err error) bool {
	var timeout net.Error
	switch {
	case a.outer.Err() != nil || a.heard.Load():
		return false
	case a.connected.Load() == 0:
		return a.body.real == nil || a.body.isKept || !a.body.read.Load()
	case errors.As(err, &timeout) && timeout.Timeout():
		return false
	}
	return idempotent(r.Method) && (a.body.real == nil || a.body.isKept) && r.Header.Get("Upgrade") == ""
}
