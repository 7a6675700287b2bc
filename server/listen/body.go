package listen

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"os"
	"sync"
	"time"
)

// A pacedBody is a request body with a minimum rate: waiting for it may take BodyTimeout, plus the
// time that the received bytes take at MinBodyRate. Only time spent in Read counts: otherwise the
// upstream is slow, not the client. While the port drains, it is drainTimeout in place of BodyTimeout.
type pacedBody struct {
	io.ReadCloser
	port    *Port
	conn    *Conn // nil for HTTP/2
	control *http.ResponseController
	lines   bool // it is HTTP/1

	mu       sync.Mutex
	timeout  time.Duration // BodyTimeout, or less while the port drains
	waited   time.Duration // time spent in Read, since the body began or the port drains
	n        int64         // bytes received in that time
	began    time.Time     // of the Read in progress; zero for none
	until    time.Time     // the deadline of the last Read
	timer    *time.Timer   // ends a Read of HTTP/2 at its deadline; nil before the first
	silence  bool          // the time that is left never exceeds BodyTimeout
	draining bool          // the time that is left never exceeds the timeout
	complete bool          // Read has returned an error, or Close was called: net/http may wait for the client to leave
	err      error         // the error of a Read, if the client caused it
	// the handler has returned: net/http uses the connection, though a transport may still hold the
	// body
	ended bool
}

// newPacedBody bounds a body from now on, including what net/http reads of it after the handler.
func (p *Port) newPacedBody(w http.ResponseWriter, r *http.Request) *pacedBody {
	conn, _ := r.Context().Value(connKey{}).(*Conn)
	if r.ProtoMajor != 1 {
		conn = nil // of HTTP/2, other streams go on
	}
	b := &pacedBody{
		ReadCloser: r.Body, port: p, conn: conn, control: http.NewResponseController(w), lines: r.ProtoMajor == 1,
		timeout: p.bounds.BodyTimeout,
	}
	b.boundRest()
	if p.incoming.add(b) {
		b.drain()
	}
	return b
}

// Read reads the body.
func (p *pacedBody) Read(b []byte) (int, error) {
	p.begin()
	n, err := p.ReadCloser.Read(b)
	if err = p.received(n, err); err != nil {
		p.port.incoming.remove(p)
	}
	return n, err
}

// begin sets the deadline of a Read.
func (p *pacedBody) begin() {
	p.mu.Lock()
	defer p.mu.Unlock()
	left := p.timeout + p.earned() - p.waited
	if excess := left - p.timeout; (p.silence || p.draining) && excess > 0 {
		p.waited, left = p.waited+excess, p.timeout
	}
	p.began = time.Now()
	p.bound(p.began.Add(left))
}

// bound sets the deadline of the Read in progress. The mutex is held. A deadline of HTTP/2 would also
// end the body between two reads, while the upstream is slow: a timer, which sees whether there is a
// Read, stands in for it.
func (p *pacedBody) bound(until time.Time) {
	p.until = until
	switch left := time.Until(until); {
	case p.lines:
		p.setDeadline(until)
	case p.timer == nil:
		p.timer = time.AfterFunc(left, p.expire)
	default:
		p.timer.Reset(left)
	}
}

// expire ends a Read of HTTP/2 whose deadline is over.
func (p *pacedBody) expire() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if now := time.Now(); !p.began.IsZero() && !now.Before(p.until) {
		p.setDeadline(now.Add(-time.Second))
	}
}

// received notes what a Read has returned, and returns its error.
func (p *pacedBody) received(n int, err error) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	now := time.Now()
	p.n += int64(n)
	p.waited += now.Sub(p.began)
	p.began = time.Time{}
	if p.timer != nil {
		p.timer.Stop()
	}
	p.complete = err != nil
	switch {
	case err == nil:
	case errors.Is(err, os.ErrDeadlineExceeded), !hasLeft(err) && !now.Before(p.until): // net/http hides what ended a trailer
		err = ErrBodySlow
		p.err = err
		if p.conn != nil {
			p.conn.slow.Store(true)
		}
	case p.lines && !hasLeft(err):
		p.err = ErrUnclear // found by the guard or by net/http
	case p.lines:
		p.setDeadline(time.Time{}) // net/http continues to read, to notice that the client disconnects
	}
	return err
}

// hasLeft reports whether an error means the end of a body, or that the client disconnected.
func hasLeft(err error) bool {
	var lost net.Error
	return err == io.EOF || err == io.ErrUnexpectedEOF || errors.As(err, &lost)
}

type bodyKey struct{}

// BoundSilence bounds the body of a request that is read before the decision, and takes memory until
// then: fast bytes earn no time for slow ones later, so that it may stall for BodyTimeout at most.
// The bound ends with end.
func BoundSilence(ctx context.Context) (end func()) {
	p, ok := ctx.Value(bodyKey{}).(*pacedBody)
	if !ok {
		return func() {}
	}
	p.boundSilence(true)
	return func() { p.boundSilence(false) }
}

func (p *pacedBody) boundSilence(on bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.silence = on
}

// BodyError returns what was wrong with the body of a request so far: nil, ErrBodySlow or
// ErrUnclear. A transport that forwards the body may see the end of the request's context first.
func BodyError(ctx context.Context) error {
	p, ok := ctx.Value(bodyKey{}).(*pacedBody)
	if !ok {
		return nil
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.err
}

// earned is how long the received bytes may have taken.
func (p *pacedBody) earned() time.Duration {
	rate := p.port.bounds.MinBodyRate
	seconds := p.n / rate
	if seconds > 1<<20 { // avoids an overflow
		return 1 << 20 * time.Second
	}
	return time.Duration(seconds)*time.Second + time.Duration(p.n%rate)*time.Second/time.Duration(rate)
}

// Close ends the body. net/http may read the rest, with a deadline of its own.
func (p *pacedBody) Close() error {
	p.boundRest()
	err := p.ReadCloser.Close()
	p.closed(err)
	p.port.incoming.remove(p)
	return err
}

// boundRest bounds what net/http reads of the body while no Read is in progress.
func (p *pacedBody) boundRest() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.lines {
		p.setDeadline(time.Now().Add(p.timeout))
	}
}

func (p *pacedBody) closed(err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.complete = true
	if p.lines && err == nil {
		p.setDeadline(time.Time{})
	}
}

// end returns the connection to net/http. The deadline stays for the rest of the body that net/http
// reads.
func (p *pacedBody) end() {
	p.mu.Lock()
	p.ended = true
	unread := p.lines && !p.complete
	p.mu.Unlock()
	p.port.incoming.remove(p)
	if unread && p.conn != nil {
		p.conn.restUnread.Store(true)
		if p.port.incoming.add(p.conn) {
			p.conn.drain()
		}
	}
}

// release leaves the connection to another protocol.
func (p *pacedBody) release() {
	p.mu.Lock()
	p.ended, p.complete = true, true
	p.mu.Unlock()
	p.port.incoming.remove(p)
}

// setDeadline fails on a connection that is not net/http's, as in tests; it has no bound then. The
// mutex is held.
func (p *pacedBody) setDeadline(t time.Time) {
	if !p.ended {
		_ = p.control.SetReadDeadline(t)
	}
}

// A stream writes a response of HTTP/2. A client that does not open its flow control window blocks
// a write, while other streams of the connection go on. After the write timeout, the stream is
// reset.
type stream struct {
	http.ResponseWriter
	timeout time.Duration
	timer   *time.Timer

	mu    sync.Mutex
	ended bool // the handler has returned, and the writer must not be used
}

func newStream(w http.ResponseWriter, timeout time.Duration) *stream {
	return &stream{ResponseWriter: w, timeout: timeout}
}

// Write writes a part of the response.
func (s *stream) Write(p []byte) (int, error) {
	s.begin()
	defer s.timer.Stop()
	return s.ResponseWriter.Write(p)
}

// FlushError flushes.
func (s *stream) FlushError() error {
	s.begin()
	defer s.timer.Stop()
	return http.NewResponseController(s.ResponseWriter).Flush()
}

// begin starts the timeout of a write.
func (s *stream) begin() {
	if s.timer == nil {
		s.timer = time.AfterFunc(s.timeout, s.reset)
		return
	}
	s.timer.Reset(s.timeout)
}

// reset ends the stream.
func (s *stream) reset() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.ended {
		_ = http.NewResponseController(s.ResponseWriter).SetWriteDeadline(time.Now().Add(-time.Second))
	}
}

func (s *stream) stop() {
	if s.timer != nil {
		s.timer.Stop()
	}
	s.mu.Lock()
	s.ended = true
	s.mu.Unlock()
}

// Unwrap is for http.ResponseController.
func (s *stream) Unwrap() http.ResponseWriter { return s.ResponseWriter }
