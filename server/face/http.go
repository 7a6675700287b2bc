package face

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"regexp"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weirflow/weir/server/plain"
)

// Bounds of connections and requests. None of them limits how long a handler takes.
const (
	maxHeader = 64 << 10 // bytes of a request's line and header fields
	idleTime  = 2 * time.Minute

	// for a client to send the header, to send the body, and to read what one Write has written
	clientTime = 10 * time.Second
	// a client's time to read begins anew with each Write, but for those that follow one this soon: setting
	// it is expensive
	often = clientTime / 100
	// the same during a shutdown: clients that stop in the middle of a request must not use up the
	// time of the others
	timeAtEnd = time.Second

	// Bodies that have begun to come in share a bound in memory. Small ones need no room of it. One without
	// a length, or with a larger one, takes the most: handlers refuse larger bodies.
	smallBody = 4 << 10
	mostBody  = 1 << 20
	allBodies = 64 << 20

	// how long Leave waits for requests in flight where the process was replaced
	leaveTime = 5 * time.Second
)

// ErrNoRoom is the error of reading a body while the bodies of other requests take all memory for them.
var ErrNoRoom = errors.New("too many large bodies are being received: send the request again later")

// HTTP is a Face for an http.Handler on one address. Whenever the server waits for a client (for
// its header, for its body, or for it to read the response), the client's time is bounded.
type HTTP struct {
	server   *http.Server
	plain    *plain.Server // in front of server; nil for none
	listener *stoppable
	address  string
	handler  http.Handler
	leaving  atomic.Bool  // the shorter times of a shutdown apply
	retired  atomic.Bool  // each response closes its connection
	serving  atomic.Int32 // calls of Serve
	bodies   atomic.Int64 // bytes that the bodies of requests in flight may take

	mu       sync.Mutex
	conns    map[net.Conn]*conn
	inFlight map[*exchange]struct{} // requests
}

// conn is an open connection.
type conn struct {
	inFlight int // requests whose handler has not ended. Guarded by the mutex of the face
}

type connKey struct{}

// NewHTTP returns a face that serves a handler on a listener. A shutdown closes the connections that clients keep open
// without a request, and gives those a second that have just connected. Retire asks clients to close them before.
func NewHTTP(l net.Listener, h http.Handler, log *slog.Logger) *HTTP {
	f := &HTTP{listener: &stoppable{Listener: l, closed: make(chan struct{})}, address: l.Addr().String(), handler: h, conns: map[net.Conn]*conn{}, inFlight: map[*exchange]struct{}{}}
	f.server = &http.Server{
		Handler:           f,
		ReadHeaderTimeout: clientTime,
		IdleTimeout:       idleTime,
		MaxHeaderBytes:    maxHeader,
		ConnContext:       f.opened,
		ConnState:         f.changed,
		ErrorLog:          slog.NewLogLogger(AnonymousLog(log.Handler()), slog.LevelDebug),
	}
	return f
}

// NewPlainHTTP returns a face like that of NewHTTP, where package plain serves most requests, at less
// expense. The listener is without TLS.
func NewPlainHTTP(l net.Listener, h http.Handler, log *slog.Logger) *HTTP {
	f := NewHTTP(l, h, log)
	f.plain = &plain.Server{HTTP: f.server, Bodies: true, FirstTimeout: clientTime}
	return f
}

// opened notes a new connection.
func (f *HTTP) opened(ctx context.Context, c net.Conn) context.Context {
	one := &conn{}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.conns[c] = one
	return context.WithValue(ctx, connKey{}, one)
}

// changed removes a connection that has ended.
func (f *HTTP) changed(c net.Conn, to http.ConnState) {
	if to == http.StateClosed || to == http.StateHijacked {
		f.mu.Lock()
		defer f.mu.Unlock()
		delete(f.conns, c)
	}
}

// ServeHTTP passes a request to the handler, and bounds the time of its client.
func (f *HTTP) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	x := &exchange{ResponseWriter: w, face: f, control: *http.NewResponseController(w)}
	if x.conn, _ = r.Context().Value(connKey{}).(*conn); x.conn == nil {
		x.conn = &conn{} // without a server, as in tests
	}
	if r.ContentLength != 0 {
		x.body, x.length, x.sending = r.Body, r.ContentLength, true
		next := *r // net/http still uses the body of its own request
		next.Body = (*body)(x)
		r = &next
	}
	if f.retired.Load() {
		w.Header().Set("Connection", "close") // with HTTP/2, it makes net/http send GOAWAY
	}
	f.begin(x)
	defer f.end(x)
	f.handler.ServeHTTP(x, r)
}

func (f *HTTP) begin(x *exchange) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.inFlight[x] = struct{}{}
	x.conn.inFlight++
	switch {
	case x.sending:
		x.limitBody()
	case f.leaving.Load(): // hurry may have set the header's deadline just when the header was complete
		_ = x.control.SetReadDeadline(time.Time{})
	}
}

// end bounds what net/http writes after the handler. If the handler has left a part of the body,
// net/http reads it then, within the body's time.
func (f *HTTP) end(x *exchange) {
	x.limitWrite()
	f.bodies.Add(-x.room)
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.inFlight, x)
	x.conn.inFlight--
}

// hurry gives clients little time from now on: a client that stops in the middle of a request would
// use up the time that the shutdown leaves to the others.
func (f *HTTP) hurry() {
	if f.leaving.Swap(true) {
		return
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	for c, one := range f.conns {
		_ = c.SetWriteDeadline(f.clientEnd())
		if one.inFlight == 0 { // it sends a header, or the rest of a body after its handler
			_ = c.SetReadDeadline(f.clientEnd())
		}
	}
	for x := range f.inFlight {
		x.limitWrite() // with HTTP/2, a stream's deadline is not that of its connection
		if x.sending {
			x.limitBody()
		}
	}
}

// clientEnd returns when the time ends that a client gets from now on.
func (f *HTTP) clientEnd() time.Time {
	if f.leaving.Load() {
		return time.Now().Add(timeAtEnd)
	}
	return time.Now().Add(clientTime)
}

// An exchange is a request and the writer of its response.
type exchange struct {
	http.ResponseWriter
	face    *HTTP
	conn    *conn
	control http.ResponseController
	body    io.ReadCloser
	length  int64     // of the body; -1 if it is unknown
	room    int64     // bytes of bodies that this one takes
	limited time.Time // when the end of the client's time to read was set; only the handler's goroutine uses it
	sending bool      // the body has not come in full. Guarded by the mutex of the face
}

// Unwrap is for http.ResponseController.
func (x *exchange) Unwrap() http.ResponseWriter { return x.ResponseWriter }

// Write writes a part of the response, which the client has to read within its time.
func (x *exchange) Write(p []byte) (int, error) {
	x.limitWrite()
	return x.ResponseWriter.Write(p)
}

// limitBody and limitWrite set the end of the client's time. A writer without deadlines, as in tests of
// handlers, has no client that could be slow.
func (x *exchange) limitBody() { _ = x.control.SetReadDeadline(x.face.clientEnd()) }

func (x *exchange) limitWrite() {
	if x.face.leaving.Load() { // hurry calls it, too
		_ = x.control.SetWriteDeadline(x.face.clientEnd())
		return
	}
	if now := time.Now(); now.Sub(x.limited) > often {
		x.limited = now
		_ = x.control.SetWriteDeadline(x.face.clientEnd())
	}
}

// body is the body of an exchange's request.
type body exchange

// Read reads a part of the body. Its end also ends its deadline, which would otherwise cancel a request
// that waits for something else.
func (b *body) Read(p []byte) (int, error) {
	if !(*exchange)(b).takeRoom() {
		return 0, ErrNoRoom
	}
	n, err := b.body.Read(p)
	if err == io.EOF {
		x := (*exchange)(b)
		x.face.mu.Lock()
		defer x.face.mu.Unlock()
		if x.sending {
			x.sending = false
			_ = x.control.SetReadDeadline(time.Time{})
		}
	}
	return n, err
}

// takeRoom takes the memory that the body may need, until the request has ended. It reports whether there
// was enough.
func (x *exchange) takeRoom() bool {
	n := x.length
	if n < 0 || n > mostBody {
		n = mostBody
	}
	if x.room > 0 || n <= smallBody {
		return true
	}
	if x.face.bodies.Add(n) > allBodies {
		x.face.bodies.Add(-n)
		return false
	}
	x.room = n
	return true
}

// Close closes the body.
func (b *body) Close() error { return b.body.Close() }

// Addresses returns the one address.
func (f *HTTP) Addresses() []string { return []string{f.address} }

// Serve serves the handler.
func (f *HTTP) Serve() error {
	f.serving.Add(1)
	defer f.serving.Add(-1)
	serve := f.server.Serve
	if f.plain != nil {
		serve = f.plain.Serve
	}
	err := serve(f.listener)
	if errors.Is(err, http.ErrServerClosed) || f.leaving.Load() && errors.Is(err, net.ErrClosed) {
		return nil
	}
	return err
}

// Leave ends the server where the process was replaced: a request that comes now belongs to the new
// one.
func (f *HTTP) Leave(replaced bool) {
	if replaced {
		ctx, cancel := context.WithTimeout(context.Background(), leaveTime)
		defer cancel()
		_ = f.Shutdown(ctx) // Shutdown or Close, which the server calls next, end what is still in flight
	}
}

// Retire is instead of Leave for a face whose requests the old process may decide: it accepts no more connections,
// and clients are asked, with their next response, to send further requests over new ones.
func (f *HTTP) Retire() {
	f.retired.Store(true)
	f.listener.stop()
}

// Draining returns how many connections are open after Retire, and otherwise 0: a shutdown waits for no idle
// connection.
func (f *HTTP) Draining() int {
	if !f.retired.Load() {
		return 0
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	return len(f.conns)
}

// Shutdown lets requests in flight end, and those come in whose clients have just connected.
func (f *HTTP) Shutdown(ctx context.Context) error {
	f.hurry()
	if f.plain != nil {
		return f.plain.Shutdown(ctx)
	}
	_ = f.listener.Close() // it may be closed already
	f.server.SetKeepAlivesEnabled(false)
	f.settle(ctx)
	return f.server.Shutdown(ctx)
}

// settle waits until no connection is open, for as long as a client has for its header at most. http.Server.Shutdown
// would drop requests whose header comes in after it was called.
func (f *HTTP) settle(ctx context.Context) {
	ticker := time.NewTicker(timeAtEnd / 200)
	defer ticker.Stop()
	timer := time.NewTimer(timeAtEnd)
	defer timer.Stop()
	for f.isOpen() {
		select {
		case <-ticker.C:
		case <-timer.C:
			return
		case <-ctx.Done():
			return
		}
	}
}

// isOpen reports whether connections are open, or may still be accepted.
func (f *HTTP) isOpen() bool {
	if f.serving.Load() > 0 {
		return true
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	return len(f.conns) > 0
}

// Close ends the server at once, and closes the listener where Serve was not called.
func (f *HTTP) Close() error {
	end := f.server.Close
	if f.plain != nil {
		end = f.plain.Close
	}
	return errors.Join(end(), ignoreClosed(f.listener.Close()))
}

func ignoreClosed(err error) error {
	if errors.Is(err, net.ErrClosed) {
		return nil
	}
	return err
}

// AnonymousLog takes addresses out of what net/http logs: one may be a client's.
func AnonymousLog(to slog.Handler) slog.Handler { return anonymous{to} }

type anonymous struct{ slog.Handler }

var address = regexp.MustCompile(`\d+\.\d+\.\d+\.\d+(:\d+)?|\[[0-9a-fA-F:.%a-z]+\]:\d+`)

func (a anonymous) Handle(ctx context.Context, r slog.Record) error {
	r.Message = address.ReplaceAllString(r.Message, "(address)")
	return a.Handler.Handle(ctx, r)
}
