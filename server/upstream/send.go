package upstream

import (
	"cmp"
	"context"
	"errors"
	"io"
	"maps"
	"net"
	"net/http"
	"net/http/httptrace"
	"sync"
	"sync/atomic"
	"time"
)

// ErrStalled is the error of a request that was ended because no byte moved for too long.
var ErrStalled error = stalled{}

type stalled struct{}

func (stalled) Error() string   { return "no byte moved for too long" }
func (stalled) Timeout() bool   { return true }
func (stalled) Temporary() bool { return false }

// errNoResponse is the error of a request for which several connections ended without a response.
var errNoResponse = errors.New("connections end without a response")

// maxReplay limits the request bodies that are kept for a retry.
const maxReplay = 64 << 10

// RoundTrip sends a request to a target, whatever the host of its URL. Where a retry is safe, it
// tries another target. The caller must close the response's body. RoundTrip makes Upstream an
// http.RoundTripper. An error that no target caused is a *RequestError or a *LocalError, or the
// client's: see ClientFailed.
//
// A retry is safe in two cases. In the first, no target got the request: no connection was opened,
// and nothing of the body was read. In the second, the connection ended without a byte of a
// response, the method is GET, HEAD, OPTIONS, TRACE, PUT or DELETE, and the body is empty or kept: it is
// buffered, or has a known length of at most 64 KiB.
//
// A request is never retried after any part of a response, after an error response, or after a
// timeout.
//
// A kept connection that ends without a byte of a response was probably closed while it was idle.
// The same target then gets the request again on another connection, under the same conditions and
// also if the upstream has a single target.
func (u *Upstream) RoundTrip(r *http.Request) (*http.Response, error) {
	s := u.settings.Load()
	b, err := newBody(r, s, u.opts.space)
	if err != nil {
		return nil, &unsentError{err}
	}
	place, err := placeNow(r.Context())
	if err != nil {
		b.close()
		return nil, &unsentError{err}
	}
	var resp *http.Response
	err = u.try(s, place, func(e Exchange) (again bool, err error) {
		a := &attempt{Exchange: e, s: s, outer: r.Context(), body: b}
		if resp, err = a.send(r); err == nil {
			return false, nil
		}
		return a.repeatable(r, err), err
	})
	if err != nil {
		b.close()
		if !b.sent.Load() {
			err = &unsentError{err}
		}
		return nil, err
	}
	return resp, nil
}

// try sends a request to one target after another. It goes on while send reports that a retry is
// safe, another target is up, and a retry is left for the request and in the budget. The error is
// that of the last attempt.
func (u *Upstream) try(s *settings, p *Place, send func(Exchange) (again bool, err error)) error {
	var tried []*Target
	var failed error
	for {
		e, ok := p.take()
		if !ok {
			var err error
			if e, err = u.pick(p.request(), false, tried...); err != nil {
				return cmp.Or(failed, err)
			}
			p.follow(&e)
		}
		again, err := send(e)
		if err == nil || !again || len(tried) >= s.retries || !u.MayRetry() {
			return err
		}
		failed = err
		tried = append(tried, e.Target)
	}
}

// requestBody is the body of a request, across attempts.
type requestBody struct {
	real   io.ReadCloser // nil for none
	buffer *buffer       // the body or its beginning; nil if it is not buffered
	isKept bool          // the buffer has the whole body
	freed  sync.Once
	read   atomic.Bool // a part of it was read, or may have been
	broken atomic.Bool // reading it from the client failed
	sent   atomic.Bool // there was a connection for the request: a target may have got a part of it
}

// newBody prepares the body of a request. It reads the body now if the upstream buffers requests, or
// if it is small and the request may be repeated: on another target, or on another connection because
// a kept one has died. Without buffering, a client that waits for 100 (Continue) is left to the target.
func newBody(r *http.Request, s *settings, all *space) (*requestBody, error) {
	b := &requestBody{real: r.Body}
	if r.Body == nil || r.Body == http.NoBody {
		b.real = nil
		return b, nil
	}
	memory, most := buffering(r, &s.spec)
	if most == 0 {
		memory, most = maxReplay, maxReplay
		if !idempotent(r.Method) || r.ContentLength <= 0 || r.ContentLength > maxReplay || r.Header.Get("Expect") != "" {
			return b, nil
		}
	}
	// one byte more, to find the end
	b.buffer = &buffer{space: all, files: all.filesOf(r.Context()), length: r.ContentLength, memory: memory + 1, most: most + 1}
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
	whole, err := b.buffer.fill(&sentBody{requestBody: b, idle: i})
	switch {
	case i.hasStalled():
		return &clientError{ErrStalled}
	case err != nil:
		return err
	}
	if b.isKept = whole; !whole {
		// read once, so the buffer ends with its last byte: the rest of the body may take long
		beginning := b.buffer.open()
		b.buffer.parts = nil
		b.real = &followed{io.MultiReader(beginning, atEnd(b.free), b.real), b.real}
		b.read.Store(false)
	}
	return nil
}

// clientError is an error on the client's side.
type clientError struct{ err error }

func (e *clientError) Error() string { return "the request's body did not come: " + e.err.Error() }
func (e *clientError) Unwrap() error { return e.err }

// ClientFailed reports whether an error of RoundTrip is on the client's side: its request body did
// not arrive.
func ClientFailed(err error) bool {
	var c *clientError
	return errors.As(err, &c)
}

// unsentError is the error of a request of which no target has got a byte.
type unsentError struct{ err error }

func (e *unsentError) Error() string { return e.err.Error() }
func (e *unsentError) Unwrap() error { return e.err }

// Unsent reports whether no target has got a byte of the request for which RoundTrip returned an
// error.
func Unsent(err error) bool {
	var e *unsentError
	return errors.As(err, &e)
}

func (b *requestBody) close() {
	if b.real != nil {
		b.real.Close()
	}
	b.free()
}

// free gives back the buffer. Nothing of it may be sent after that.
func (b *requestBody) free() {
	if b.buffer != nil {
		b.freed.Do(b.buffer.free)
	}
}

// idempotent reports whether a request with this method may be carried out twice.
func idempotent(method string) bool {
	switch method {
	case http.MethodGet, http.MethodHead, http.MethodOptions, http.MethodTrace, http.MethodPut, http.MethodDelete, "":
		return true
	}
	return false
}

// replayable is the header field by which net/http repeats a PUT or a DELETE on another connection
// when a kept one has died. Without a value, the field is not sent.
const replayable = "X-Idempotency-Key"

// attempt is a request to one target.
type attempt struct {
	Exchange
	s     *settings
	outer context.Context
	body  *requestBody
	idle  *idle

	wanted    atomic.Bool  // net/http has looked for a connection
	connected atomic.Int32 // how many connections net/http has used for it
	conn      atomic.Pointer[net.Conn]
	heard     atomic.Bool // a byte of the response was received
}

// maxConnections limits the connections that one attempt may use. net/http takes another connection
// when a kept one has died. Without the limit, one request could use up all kept connections.
const maxConnections = 3

// send sends the request once.
func (a *attempt) send(r *http.Request) (*http.Response, error) {
	ctx, cancel := context.WithCancelCause(a.outer)
	a.idle = newIdle(a.s.spec.Timeouts.Idle, cancel, stalledHook(a.outer))
	resp, err := a.s.roundTrip(a.request(r, a.trace(ctx, cancel)))
	if err != nil {
		a.idle.stop()
		switch cause := context.Cause(ctx); {
		case a.idle.clientStalled():
			err = &clientError{ErrStalled}
		case a.idle.hasStalled():
			err = ErrStalled
		case cause != nil && a.outer.Err() == nil:
			err = cause
		case a.outer.Err() != nil || ClientFailed(err):
		case a.body.broken.Load(): // whatever net/http makes of it
			err = &clientError{err}
		default:
			err = a.blame(err)
		}
		cancel(nil)
		a.fail(err)
		return nil, err
	}
	a.Heard()
	a.Target.http2.Store(resp.ProtoMajor == 2)
	if resp.StatusCode == http.StatusSwitchingProtocols {
		a.idle.stop()
		resp.Body = newUpgraded(resp.Body, a, cancel)
		return resp, nil
	}
	a.idle.answers()
	resp.Body = &answerBody{ReadCloser: resp.Body, a: a, cancel: cancel}
	return resp, nil
}

// request returns the request as the target gets it.
func (a *attempt) request(r *http.Request, ctx context.Context) *http.Request {
	out := r.WithContext(ctx)
	at := *r.URL
	at.Scheme, at.Host = a.Target.url.Scheme, a.Target.url.Host
	out.URL = &at
	if r.Host == "" {
		out.Host = at.Host
	}
	// A connection that carried HEAD must not be reused over HTTP/1: see plain.Stray. net/http would
	// reuse it before the response is returned.
	out.Close = r.Method == http.MethodHead && !a.overHTTP2()
	switch {
	case a.body.isKept:
		out.GetBody = func() (io.ReadCloser, error) { return io.NopCloser(a.body.buffer.open()), nil }
		out.Body, _ = out.GetBody() // never an error
		if out.TransferEncoding = nil; len(r.Trailer) == 0 {
			out.ContentLength = a.body.buffer.size
		}
		if out.ContentLength == 0 {
			out.Body = http.NoBody
		}
		out.Header = maps.Clone(r.Header)
		if out.Header == nil {
			out.Header = http.Header{}
		}
		delete(out.Header, "Expect") // the client has sent its body
		if _, sent := out.Header[replayable]; !sent && idempotent(r.Method) {
			out.Header[replayable] = nil
		}
	case a.body.real != nil:
		if a.body.buffer != nil {
			out.Header = maps.Clone(r.Header)
			delete(out.Header, "Expect")
		}
		out.Body = &sentBody{requestBody: a.body, idle: a.idle}
	}
	return out
}

// overHTTP2 reports whether the target will get the request over HTTP/2, as far as is known.
func (a *attempt) overHTTP2() bool {
	if !a.s.http1() {
		return true
	}
	return a.s.spec.Protocol != "http1" && a.Target.http2.Load()
}

// trace adds hooks that record how far the request has come.
func (a *attempt) trace(ctx context.Context, cancel context.CancelCauseFunc) context.Context {
	return httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{
		GetConn: func(string) { a.wanted.Store(true) },
		GotConn: func(info httptrace.GotConnInfo) {
			a.conn.Store(&info.Conn)
			a.body.sent.Store(true)
			if a.connected.Add(1) > maxConnections {
				cancel(errNoResponse)
			}
		},
		GotFirstResponseByte: func() { a.heard.Store(true) },
	})
}

// fail ends the exchange: as Failed, or as Left if the target did not cause the error.
func (a *attempt) fail(err error) {
	switch {
	case a.outer.Err() != nil || a.body.broken.Load() || a.idle.clientStalled() || isOurs(err):
		a.Done(Left, "")
	default:
		a.Done(Failed, Reason(err))
	}
}

// repeatable reports whether the request may be sent to another target.
func (a *attempt) repeatable(r *http.Request, err error) bool {
	var timeout net.Error
	var request *RequestError
	switch {
	case a.outer.Err() != nil || a.heard.Load() || errors.As(err, &request):
		return false
	case a.connected.Load() == 0:
		return a.body.real == nil || a.body.isKept || !a.body.read.Load()
	case errors.As(err, &timeout) && timeout.Timeout():
		return false
	}
	return idempotent(r.Method) && (a.body.real == nil || a.body.isKept) && r.Header.Get("Upgrade") == ""
}
