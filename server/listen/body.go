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

	"github.com/weirflow/weir/policy"
)

// A pacedBody is a request body with a minimum rate: waiting for it may take BodyTimeout, plus the
// time that the received bytes take at MinBodyRate. Only time spent in Read counts: otherwise the
// upstream is slow, not the client.
type pacedBody struct {
	io.ReadCloser
	conn    *Conn // nil for HTTP/2
	control *http.ResponseController
	bounds  *policy.Bounds
	lines   bool // it is HTTP/1
	waited  time.Duration
	n       int64
	silence bool // the time that is left never exceeds BodyTimeout

	mu  sync.Mutex
	err error // the error of a Read, if the client caused it
	// the handler has returned: net/http uses the connection, though a transport may still hold the
	// body
	ended bool
}

// newPacedBody bounds a body from now on, including what net/http reads of it after the handler.
func newPacedBody(w http.ResponseWriter, r *http.Request, b *policy.Bounds) *pacedBody {
	conn, _ := r.Context().Value(connKey{}).(*Conn)
	if r.ProtoMajor != 1 {
		conn = nil // of HTTP/2, other streams go on
	}
	p := &pacedBody{ReadCloser: r.Body, conn: conn, control: http.NewResponseController(w), bounds: b, lines: r.ProtoMajor == 1}
	p.deadline(time.Now().Add(b.BodyTimeout))
	return p
}

// Read reads the body.
func (p *pacedBody) Read(b []byte) (int, error) {
	began := time.Now()
	left := p.bounds.BodyTimeout + p.earned() - p.waited
	if excess := left - p.bounds.BodyTimeout; p.silence && excess > 0 {
		p.waited, left = p.waited+excess, p.bounds.BodyTimeout
	}
	until := began.Add(left)
	p.deadline(until)
	n, err := p.ReadCloser.Read(b)
	p.n += int64(n)
	p.waited += time.Since(began)
	switch {
	case err == nil:
	case errors.Is(err, os.ErrDeadlineExceeded), !hasLeft(err) && !time.Now().Before(until): // net/http hides what ended a trailer
		err = ErrBodySlow
		p.failed(err)
		if p.conn != nil {
			p.conn.slow.Store(true)
		}
	case p.lines && !hasLeft(err):
		p.failed(ErrUnclear) // found by the guard or by net/http
	default:
		p.deadline(time.Time{}) // net/http continues to read, to notice that the client disconnects
	}
	return n, err
}

// hasLeft reports whether an error means the end of a body, or that the client disconnected.
func hasLeft(err error) bool {
	var lost net.Error
	return err == io.EOF || err == io.ErrUnexpectedEOF || errors.As(err, &lost)
}

func (p *pacedBody) failed(err error) {
	p.mu.Lock()
	p.err = err
	p.mu.Unlock()
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
	p.silence = true
	return func() { p.silence = false }
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
	seconds := p.n / p.bounds.MinBodyRate
	if seconds > 1<<20 { // avoids an overflow
		return 1 << 20 * time.Second
	}
	return time.Duration(seconds)*time.Second + time.Duration(p.n%p.bounds.MinBodyRate)*time.Second/time.Duration(p.bounds.MinBodyRate)
}

// Close ends the body. net/http may read the rest, with a deadline of its own.
func (p *pacedBody) Close() error {
	p.deadline(time.Now().Add(p.bounds.BodyTimeout))
	err := p.ReadCloser.Close()
	if err == nil {
		p.deadline(time.Time{})
	}
	return err
}

// end returns the connection to net/http. The deadline stays for the rest of the body that net/http
// reads.
func (p *pacedBody) end() {
	p.mu.Lock()
	p.ended = true
	p.mu.Unlock()
}

// deadline fails on a connection that is not net/http's, as in tests; it has no bound then.
func (p *pacedBody) deadline(t time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
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
