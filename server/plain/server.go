// Package plain serves and forwards plain HTTP/1.1 requests with less overhead than net/http.
//
// A plain request has no body, a short head, and follows the standard closely. With Server.Bodies, a
// POST with a short body is plain, too. Every other request goes to net/http: the Server hands over the whole connection, with all bytes that were read and
// not yet served. So a few hundred lines serve the frequent, simple requests, and net/http serves
// the rare and difficult ones.
//
// Handlers need no change. They get an *http.Request and an http.ResponseWriter with the usual
// meaning, except for two things. The Content-Type of a body is never guessed. And a response is
// sent only when it reaches 16 KiB, is flushed, or is complete.
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

// A Server serves plain requests in front of an http.Server, and hands all other connections to
// that http.Server.
//
// The Server uses the http.Server's Handler, IdleTimeout, ReadHeaderTimeout, BaseContext,
// ConnContext, ConnState and ErrorLog. It reads them when Serve is called, except BaseContext; do
// not change them after that. The Server does not limit how long a client takes to read its
// response. The listener's connections must do that, as with net/http without a WriteTimeout. A
// Server is safe for concurrent use.
type Server struct {
	HTTP *http.Server
	// Bodies serves a POST here, too, if its head and its body have at most 8 KiB together and arrive
	// soon after each other. The handler gets it when the body is complete.
	Bodies bool
	// FirstTimeout is how long a connection may take to begin its first request; default: the
	// IdleTimeout.
	FirstTimeout time.Duration

	date atomic.Pointer[date]

	mu      sync.Mutex
	serving map[*queue]struct{}
	conns   map[*conn]struct{}
	closing atomic.Bool
	closed  time.Time                      // when closing was set; read it after closing
	cutOff  bool                           // Close was called
	open    sync.WaitGroup                 // connections, and loops that accept them
	late    map[net.Conn]struct{}          // connections that were handed over after closing was set, and are open
	told    func(net.Conn, http.ConnState) // the http.Server's ConnState, as it was given
	tells   sync.Once                      // sets told
	hangups *hangups                       // while something is served; nil if the system cannot report them
}

const (
	defaultHead = 10 * time.Second
	defaultIdle = 2 * time.Minute
)

// A Guarded listener wraps connections that go to net/http, for example to inspect what net/http
// reads. Serve calls Guard for each connection that it hands over. Reading from that connection
// starts with the bytes that were read so far. served reports whether requests were answered on the
// connection before.
type Guarded interface {
	net.Listener
	Guard(conn net.Conn, served bool) net.Conn
}

// A Lingering listener closes a connection later, if it reports true, because the client could lose
// the end of a response otherwise. Serve calls Linger after a response that ends its connection.
type Lingering interface {
	net.Listener
	Linger(net.Conn) bool
}

// Serve accepts connections until the listener fails or the server is closed. It closes the
// listener and always returns an error, http.ErrServerClosed after Shutdown or Close. TLS
// connections must have completed their handshake. HTTP/2 connections are handed over to net/http.
func (s *Server) Serve(l net.Listener) error {
	defer l.Close()
	q := newQueue(l, s)
	ctx := context.Background()
	if s.HTTP.BaseContext != nil {
		ctx = s.HTTP.BaseContext(l)
	}
	ctx = context.WithValue(ctx, http.ServerContextKey, s.HTTP)
	s.tells.Do(func() { s.told, s.HTTP.ConnState = s.HTTP.ConnState, s.changed })
	if !s.begin(q) {
		return http.ErrServerClosed
	}
	ended := make(chan error, 1)
	go func() { ended <- s.HTTP.Serve(q) }()
	err := s.accept(ctx, l, q)
	if !s.closing.Load() { // Shutdown closes it later: the last connections may have requests for net/http
		q.Close()
	}
	s.open.Done()
	s.mu.Lock()
	delete(s.serving, q)
	s.endHangups()
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
	if s.hangups == nil {
		s.hangups = newHangups()
	}
	s.serving[q] = struct{}{}
	s.open.Add(1)
	return true
}

// accept accepts connections. After a temporary error, such as too many open files, it retries with
// a backoff.
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
		c.loop = loopOf(c)
		if !s.add(c) {
			nc.Close()
			continue
		}
		if c.loop != nil {
			c.serve()
		} else {
			go c.serve()
		}
	}
}

// add reports false after Close. A connection that is accepted while Shutdown begins is served: its client cannot
// know that the server ends.
func (s *Server) add(c *conn) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.cutOff {
		return false
	}
	s.conns[c] = struct{}{}
	if c.loop == nil {
		c.hangups = s.hangups
	}
	s.open.Add(1)
	return true
}

func (s *Server) remove(c *conn) {
	s.mu.Lock()
	delete(s.conns, c)
	s.endHangups()
	s.mu.Unlock()
	s.open.Done()
}

// endHangups stops to watch connections when there are none and none can come. s.mu is locked.
func (s *Server) endHangups() {
	if s.hangups != nil && len(s.serving) == 0 && len(s.conns) == 0 {
		s.hangups.close()
		s.hangups = nil
	}
}

// restOfHead is how long a client that has sent half a head, or nothing since it connected, has for the rest of it
// after Shutdown. net/http treats such a connection as idle if it is older than 5 s.
const restOfHead = time.Second

// headUntil returns when a first request, or a head that has begun, must be complete after Shutdown, at the latest.
func (s *Server) headUntil() time.Time { return s.closed.Add(restOfHead) }

// end stops accepting, and closes connections that have had a request and have none in flight.
func (s *Server) end() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.closing.Load() {
		s.closed = time.Now()
		s.closing.Store(true)
	}
	for q := range s.serving {
		q.listener.Close()
	}
	for c := range s.conns {
		c.closeIfIdle()
	}
}

// Shutdown drains the server and then the http.Server behind it: requests in flight still get their
// responses. Clients that have sent a part of a head, or have just connected, have a second for the rest. It returns
// when all connections are closed. If the context ends before that, it returns the context's error.
func (s *Server) Shutdown(ctx context.Context) error {
	s.end()
	done := make(chan struct{})
	go func() { s.open.Wait(); close(done) }()
	s.HTTP.SetKeepAlivesEnabled(false) // its idle connections need not wait for those here
	s.awaitLate(ctx, done)
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

// awaitLate waits while connections may be handed over, and until those that were have ended, but hardly longer than
// clients have for a head: http.Server.Shutdown would drop the requests of which it has not got the whole head.
func (s *Server) awaitLate(ctx context.Context, done <-chan struct{}) {
	most := time.NewTimer(restOfHead + awake)
	defer most.Stop()
	select {
	case <-done:
	case <-most.C:
		return
	case <-ctx.Done():
		return
	}
	ticker := time.NewTicker(restOfHead / 200)
	defer ticker.Stop()
	for first := true; first || s.isLate(); first = false { // one may have been handed over just before
		select {
		case <-ticker.C:
		case <-most.C:
			return
		case <-ctx.Done():
			return
		}
	}
}

func (s *Server) isLate() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.late) > 0
}

// handsOver notes a connection for awaitLate.
func (s *Server) handsOver(c net.Conn) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closing.Load() {
		if s.late == nil {
			s.late = map[net.Conn]struct{}{}
		}
		s.late[c] = struct{}{}
	}
}

// changed is the http.Server's ConnState.
func (s *Server) changed(c net.Conn, to http.ConnState) {
	if s.closing.Load() && (to == http.StateClosed || to == http.StateHijacked) {
		s.hasEnded(c)
	}
	s.state(c, to)
}

// hasEnded takes back handsOver.
func (s *Server) hasEnded(c net.Conn) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.late, c)
}

// isBusy reports whether a request is in flight. Connections without one close by themselves.
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

// Close closes the server and the http.Server behind it at once.
func (s *Server) Close() error {
	s.end()
	s.mu.Lock()
	s.cutOff = true
	for c := range s.conns {
		c.Conn.Close()
		c.hangup.hungUp() // the system reports nothing of a socket that is closed here
	}
	s.mu.Unlock()
	return s.HTTP.Close()
}

// logf writes to the http.Server's ErrorLog, if it is set.
func (s *Server) logf(format string, args ...any) {
	if l := s.HTTP.ErrorLog; l != nil {
		l.Output(2, fmt.Sprintf(format, args...)) //nolint:errcheck,forbidigo // it is the one that was handed in, and there is nowhere else
	}
}

// state tells the caller's ConnState of a change.
func (s *Server) state(c net.Conn, to http.ConnState) {
	if s.told != nil {
		s.told(c, to)
	}
}

// A date is the value of the Date field during one second.
type date struct {
	second int64
	text   string
}

// now returns the value of the Date field.
func (s *Server) now() string {
	t := time.Now()
	d := s.date.Load()
	if d == nil || d.second != t.Unix() {
		d = &date{t.Unix(), t.UTC().Format(http.TimeFormat)}
		s.date.Store(d)
	}
	return d.text
}
