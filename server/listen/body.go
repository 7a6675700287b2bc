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

// A pacedBody is a body that has to come at some rate: waiting for it may take BodyTimeout, and besides as long as what came takes at
// MinBodyRate. Time in which nobody reads does not count: then it is the upstream that is slow.
type pacedBody struct {
	io.ReadCloser
	control *http.ResponseController
	bounds  *policy.Bounds
	lines   bool // it is HTTP/1
	waited  time.Duration
	n       int64

	mu    sync.Mutex
	err   error // what a read ended with, where it is the client's doing
	ended bool  // the handler has returned: the connection is net/http's again, though a transport may still hold the body
}

// newPacedBody bounds a body from now on: also what net/http reads of it by itself, when nobody did.
func newPacedBody(w http.ResponseWriter, r *http.Request, b *policy.Bounds) *pacedBody {
	p := &pacedBody{ReadCloser: r.Body, control: http.NewResponseController(w), bounds: b, lines: r.ProtoMajor == 1}
	p.deadline(time.Now().Add(b.BodyTimeout))
	return p
}

// Read reads the body.
func (p *pacedBody) Read(b []byte) (int, error) {
	began := time.Now()
	p.deadline(began.Add(p.bounds.BodyTimeout + p.earned() - p.waited))
	n, err := p.ReadCloser.Read(b)
	p.n += int64(n)
	p.waited += time.Since(began)
	switch {
	case err == nil:
	case errors.Is(err, os.ErrDeadlineExceeded):
		err = ErrBodySlow
		p.failed(err)
	case p.lines && !left(err):
		p.failed(ErrUnclear) // the guard found that, or net/http did
	default:
		p.deadline(time.Time{}) // net/http goes on to read, to learn when the client leaves
	}
	return n, err
}

// left reports whether an error is the end of a body, or that its client is gone.
func left(err error) bool {
	var lost net.Error
	return err == io.EOF || err == io.ErrUnexpectedEOF || errors.As(err, &lost)
}

func (p *pacedBody) failed(err error) {
	p.mu.Lock()
	p.err = err
	p.mu.Unlock()
}

type bodyKey struct{}

// BodyError is what was wrong with the body of a request so far: nil, ErrBodySlow or ErrUnclear. A transport that passes the body on may see
// the end of the request's context before it sees this.
func BodyError(ctx context.Context) error {
	p, ok := ctx.Value(bodyKey{}).(*pacedBody)
	if !ok {
		return nil
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.err
}

// earned is how long what came may have taken.
func (p *pacedBody) earned() time.Duration {
	seconds := p.n / p.bounds.MinBodyRate
	if seconds > 1<<20 { // enough for anybody
		return 1 << 20 * time.Second
	}
	return time.Duration(seconds)*time.Second + time.Duration(p.n%p.bounds.MinBodyRate)*time.Second/time.Duration(p.bounds.MinBodyRate)
}

// Close ends the body. net/http may read the rest of it, for which it has the time of a body of its own.
func (p *pacedBody) Close() error {
	p.deadline(time.Now().Add(p.bounds.BodyTimeout))
	err := p.ReadCloser.Close()
	if err == nil {
		p.deadline(time.Time{})
	}
	return err
}

// end gives the connection back. The deadline stays for what net/http reads of the body that nobody did.
func (p *pacedBody) end() {
	p.mu.Lock()
	p.ended = true
	p.mu.Unlock()
}

// deadline fails on a connection that is not net/http's, as in tests, which then has no bound.
func (p *pacedBody) deadline(t time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.ended {
		_ = p.control.SetReadDeadline(t)
	}
}

// A stream is the answer to a request of HTTP/2: a client that does not open its window holds a write up, though the connection takes
// what others write. Each write has the write timeout, and then the stream is reset.
type stream struct {
	http.ResponseWriter
	timeout time.Duration
	timer   *time.Timer

	mu    sync.Mutex
	ended bool // the handler has returned, and the writer may not be used any more
}

func newStream(w http.ResponseWriter, timeout time.Duration) *stream {
	return &stream{ResponseWriter: w, timeout: timeout}
}

// Write writes a part of the answer.
func (s *stream) Write(p []byte) (int, error) {
	s.begin()
	defer s.timer.Stop()
	return s.ResponseWriter.Write(p)
}

// FlushError hands on what was written.
func (s *stream) FlushError() error {
	s.begin()
	defer s.timer.Stop()
	return http.NewResponseController(s.ResponseWriter).Flush()
}

// begin gives the write that follows its time.
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
