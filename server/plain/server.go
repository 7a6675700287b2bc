// Package plain serves plain HTTP/1.1 with as little effort as it takes: requests without a body, in few bytes, from clients that speak as
// the standard says. Everything else goes to net/http: the connection, and all of the bytes that were read from it and not answered yet. So
// what is rare or hard is done by the library, and what comes a hundred thousand times a second by a few hundred lines.
//
// Handlers need not know. They get an *http.Request and an http.ResponseWriter with the same meaning, but for two things: the type of a body
// is never guessed, and what is written is not sent before it is 16 KiB, flushed, or all.
package plain

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"time"
)

// A Server stands in front of an http.Server, whose Handler, IdleTimeout, ReadHeaderTimeout, BaseContext, ConnContext, ConnState and ErrorLog it
// goes by, and to which it hands what is not plain. All but BaseContext is read when Serve is called, and is not to be changed after that. That a client takes its answer in time is the
// matter of the listener's connections, as it is with net/http unless WriteTimeout is set. It is safe for concurrent use.
type Server struct {
	HTTP *http.Server

	date atomic.Pointer[date]

	mu      sync.Mutex
	serving map[*queue]struct{}
	conns   map[*conn]struct{}
	closing atomic.Bool
	open    sync.WaitGroup // connections
}

const (
	defaultHead = 10 * time.Second
	defaultIdle = 2 * time.Minute
)

// A Guarded listener wants to look at what net/http reads. Serve has Guard put something before each connection that it hands over, from which all
// that was read so far is read again.
type Guarded interface {
	net.Listener
	Guard(net.Conn) net.Conn
}

// Serve accepts connections until the listener fails or the server ends. It always returns an error, http.ErrServerClosed after the end, and
// closes the listener. Connections under TLS must have shaken hands; those of HTTP/2 are handed over.
func (s *Server) Serve(l net.Listener) error {
	defer l.Close()
	q := newQueue(l)
	ctx := context.Background()
	if s.HTTP.BaseContext != nil {
		ctx = s.HTTP.BaseContext(l)
	}
	ctx = context.WithValue(ctx, http.ServerContextKey, s.HTTP)
	if !s.begin(q) {
		return http.ErrServerClosed
	}
	ended := make(chan error, 1)
	go func() { ended <- s.HTTP.Serve(q) }()
	err := s.accept(ctx, l, q)
	q.Close()
	s.mu.Lock()
	delete(s.serving, q)
	s.mu.Unlock()
	<-ended //nolint:errcheck // it says that the queue was closed
	if s.closing.Load() {
		return http.ErrServerClosed
	}
	return err
}

func (s *Server) begin(q *queue) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closing.Load() {
		return false
	}
	if s.serving == nil {
		s.serving, s.conns = map[*queue]struct{}{}, map[*conn]struct{}{}
	}
	s.serving[q] = struct{}{}
	return true
}

// accept takes connections. One that fails, as where there are no more file descriptors, is tried again a little later.
func (s *Server) accept(ctx context.Context, l net.Listener, q *queue) error {
	var pause time.Duration
	for {
		nc, err := l.Accept()
		if err != nil {
			var temporary interface{ Temporary() bool }
			if s.closing.Load() || q.isClosed() || !errors.As(err, &temporary) || !temporary.Temporary() {
				return err
			}
			pause = min(max(2*pause, 5*time.Millisecond), time.Second)
			s.logf("plain: accept: %v; again in %v", err, pause)
			select {
			case <-time.After(pause):
			case <-q.closed:
			}
			continue
		}
		pause = 0
		c := &conn{Conn: nc, server: s, rest: q, ctx: ctx}
		if s.HTTP.ConnContext != nil {
			c.ctx = s.HTTP.ConnContext(ctx, nc)
		}
		if t, ok := nc.(tlsConn); ok {
			state := t.ConnectionState()
			c.tls = &state
		}
		if !s.add(c) {
			nc.Close()
			continue
		}
		go c.serve()
	}
}

func (s *Server) add(c *conn) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closing.Load() {
		return false
	}
	s.conns[c] = struct{}{}
	s.open.Add(1)
	return true
}

func (s *Server) remove(c *conn) {
	s.mu.Lock()
	delete(s.conns, c)
	s.mu.Unlock()
	s.open.Done()
}

// end stops accepting, and closes connections on which no request is under way.
func (s *Server) end() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closing.Store(true)
	for q := range s.serving {
		q.listener.Close()
	}
	for c := range s.conns {
		c.closeIfIdle()
	}
}

// Shutdown ends the server and the http.Server behind it, in order: requests that are under way are answered first. It returns when all
// connections are closed, or, with its error, when the context ends.
func (s *Server) Shutdown(ctx context.Context) error {
	s.end()
	done := make(chan struct{})
	go func() { s.open.Wait(); close(done) }()
	err := s.HTTP.Shutdown(ctx)
	select {
	case <-done:
	case <-ctx.Done():
		if s.isBusy() {
			err = ctx.Err()
		}
	}
	return err
}

// isBusy reports whether a request is under way. Connections without one close by themselves.
func (s *Server) isBusy() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	for c := range s.conns {
		if c.busy.Load() {
			return true
		}
	}
	return false
}

// Close ends the server and the http.Server behind it at once.
func (s *Server) Close() error {
	s.end()
	s.mu.Lock()
	for c := range s.conns {
		c.Conn.Close()
	}
	s.mu.Unlock()
	return s.HTTP.Close()
}

// logf writes to the log of the http.Server, if it has one.
func (s *Server) logf(format string, args ...any) {
	if l := s.HTTP.ErrorLog; l != nil {
		l.Output(2, fmt.Sprintf(format, args...)) //nolint:errcheck,forbidigo // it is the one that was handed in, and there is nowhere else
	}
}

func (s *Server) state(c net.Conn, to http.ConnState) {
	if s.HTTP.ConnState != nil {
		s.HTTP.ConnState(c, to)
	}
}

// A date is the value of the Date field within a second.
type date struct {
	second int64
	text   string
}

// now is the value of the Date field.
func (s *Server) now() string {
	t := time.Now()
	d := s.date.Load()
	if d == nil || d.second != t.Unix() {
		d = &date{t.Unix(), t.UTC().Format(http.TimeFormat)}
		s.date.Store(d)
	}
	return d.text
}
