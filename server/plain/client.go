package plain

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/weirflow/weir/internal/httpsyntax"
)

// A Client forwards plain requests to HTTP/1.1 servers and passes their responses back, in the
// caller's goroutine. Do not change its settings after first use. A Client is safe for concurrent
// use.
type Client struct {
	// default: the DialContext of a net.Dialer, limited by Connect
	Dial    func(ctx context.Context, network, addr string) (net.Conn, error)
	Connect time.Duration // timeout of opening a connection; default: 5 s
	Answer  time.Duration // timeout of a response's head; default: 1 min
	Stall   time.Duration // timeout of each further part of a body; default: 5 min
	Keep    time.Duration // how long an idle connection is kept; default: 50 s
	MaxIdle int           // most idle connections per address; default: 1024

	mu   sync.Mutex
	idle map[string][]*upConn // by address; the most recently used connection is last
	// fires when the next connection has been idle for Keep; nil if no connection is idle
	timer  *time.Timer
	closed bool
}

const (
	defaultConnect = 5 * time.Second
	defaultAnswer  = time.Minute
	defaultGap     = 5 * time.Minute
	defaultKeep    = 50 * time.Second
	defaultMaxIdle = 1024

	// unwatched is how long the Client waits for a response before it has the client's connection
	// read, to notice that the client disconnects, on systems that do not report it. Reading costs as
	// much as the rest of the exchange, and many responses come sooner.
	unwatched = 4 * time.Millisecond
)

// An upConn is a connection to a server.
type upConn struct {
	net.Conn
	since  time.Time // when it became idle
	writes time.Time // the write deadline that is set on the connection
	// reports whether the connection has received nothing; nil if that cannot be checked
	look func() bool
	used bool           // has carried a response before
	buf  *[outSize]byte // lent while a request is in flight
	n    int            // buf[at:n] holds received bytes of the response
	at   int
	x    exchange // the request in flight: here, it needs no allocation of its own
}

// get returns a connection: an idle one if there is one and fresh is false, otherwise a new one.
func (c *Client) get(ctx context.Context, addr string, fresh bool) (*upConn, error) {
	for !fresh {
		u := c.take(addr)
		if u == nil {
			break
		}
		if u.look == nil || u.look() {
			return u, nil
		}
		// The server closed it, or sent bytes without a request. Those would be read as the next
		// response.
		u.Close()
	}
	ctx, cancel := context.WithTimeout(ctx, or(c.Connect, defaultConnect))
	defer cancel()
	dial := c.Dial
	if dial == nil {
		dial = new(net.Dialer).DialContext
	}
	conn, err := dial(ctx, "tcp", addr)
	if err != nil {
		return nil, err
	}
	return &upConn{Conn: conn, look: newLook(conn)}, nil
}

// take removes and returns the connection that became idle last, or nil.
func (c *Client) take(addr string) *upConn {
	c.mu.Lock()
	defer c.mu.Unlock()
	all := c.idle[addr]
	if len(all) == 0 {
		return nil
	}
	u := all[len(all)-1]
	all[len(all)-1] = nil
	c.idle[addr] = all[:len(all)-1]
	return u
}

// put keeps a connection for the next request. It closes the connection if enough are idle.
func (c *Client) put(addr string, u *upConn) {
	most := c.MaxIdle
	if most == 0 {
		most = defaultMaxIdle
	}
	u.used = true
	u.since = time.Now()
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed || len(c.idle[addr]) >= most {
		u.Close()
		return
	}
	if c.idle == nil {
		c.idle = map[string][]*upConn{}
	}
	c.idle[addr] = append(c.idle[addr], u)
	if c.timer == nil {
		c.timer = time.AfterFunc(or(c.Keep, defaultKeep), c.sweep)
	}
}

// sweep closes connections that have been idle for Keep.
func (c *Client) sweep() {
	keep := or(c.Keep, defaultKeep)
	c.mu.Lock()
	defer c.mu.Unlock()
	now, soonest := time.Now(), time.Duration(-1)
	for addr, all := range c.idle {
		n := 0
		for n < len(all) && now.Sub(all[n].since) >= keep {
			all[n].Close()
			n++
		}
		rest := copy(all, all[n:])
		clear(all[rest:])
		c.idle[addr] = all[:rest]
		if rest == 0 {
			delete(c.idle, addr)
			continue
		}
		if left := keep - now.Sub(all[0].since); soonest < 0 || left < soonest {
			soonest = left
		}
	}
	c.timer = nil
	if soonest >= 0 && !c.closed {
		c.timer = time.AfterFunc(soonest, c.sweep)
	}
}

// CloseIdle closes the idle connections to an address. Call it when the address is no longer used.
func (c *Client) CloseIdle(addr string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, u := range c.idle[addr] {
		u.Close()
	}
	delete(c.idle, addr)
}

// Close closes idle connections. Connections with a request in flight are closed after that
// request.
func (c *Client) Close() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.closed = true
	if c.timer != nil {
		c.timer.Stop()
		c.timer = nil
	}
	for _, all := range c.idle {
		for _, u := range all {
			u.Close()
		}
	}
	c.idle = nil
}

// Takes reports whether a Client can forward a request: one without a body, a trailer, an upgrade
// or an expectation, and with a method that is safe to repeat.
func Takes(r *http.Request) bool {
	switch r.Method {
	case http.MethodGet, http.MethodHead, http.MethodDelete, http.MethodOptions:
	default:
		return false
	}
	if r.ContentLength != 0 || r.Body != nil && r.Body != http.NoBody || len(r.TransferEncoding) > 0 || len(r.Trailer) > 0 {
		return false
	}
	if len(r.RequestURI) == 0 || r.RequestURI[0] != '/' || !isCanonical(r.RequestURI) || !httpsyntax.IsHost(r.Host) {
		return false
	}
	for _, name := range [...]string{"Upgrade", "Te", "Expect", "Http2-Settings"} {
		if _, ok := r.Header[name]; ok {
			return false
		}
	}
	for _, value := range r.Header["Connection"] {
		if !strings.EqualFold(value, "close") && !strings.EqualFold(value, "keep-alive") {
			return false // it lists hop-by-hop fields
		}
	}
	return true
}

// A ClientError is an error of writing the response to the client.
type ClientError struct{ Err error }

// Error returns the message of the underlying error, after "the client: ".
func (e *ClientError) Error() string { return "the client: " + e.Err.Error() }

// Unwrap returns the underlying error.
func (e *ClientError) Unwrap() error { return e.Err }

// A Field is a header field. Its name is in canonical form.
type Field struct{ Name, Value string }

// Progress says how far an exchange has come.
type Progress int

// The steps of an exchange. After Sent, the server may have carried out the request, so only an
// idempotent request may be sent again.
const (
	Unsent Progress = iota // no connection could be opened
	// at least a part of the request was sent, and no byte of a response received
	Sent
	Heard // a byte of the response was received
	// A byte of the response may have been written to w. After an error that response is
	// incomplete, and the caller must close the client's connection.
	Answered
)

// Pass forwards a request that Takes accepted to the server at addr, HOST:PORT, and writes the
// response to w. The fields replace the request's fields of the same names; an empty value removes
// the field. heard is called when the head of the response has been received; it may be nil.
//
// An idle connection may turn out to be closed. Pass then sends the request once more, on a new
// connection: all methods that Takes accepts are idempotent. An error of writing to w is a
// *ClientError. When the request's context ends, the error is that of the context.
func (c *Client) Pass(w http.ResponseWriter, r *http.Request, addr string, fields []Field, heard func()) (Progress, error) {
	Detach(r.Context())
	for fresh := false; ; fresh = true {
		u, err := c.get(r.Context(), addr, fresh)
		if err != nil {
			return Unsent, err
		}
		used := u.used
		u.buf, u.n, u.at = outs.Get().(*[outSize]byte), 0, 0
		u.x = exchange{client: c, conn: u, w: w, r: r, heard: heard, progress: Sent}
		keep, err := u.x.run(fields)
		keep = u.x.stop() && keep
		progress := u.x.progress
		outs.Put(u.buf)
		u.buf, u.x = nil, exchange{} // an idle connection keeps nothing of the request
		if keep {
			c.put(addr, u)
		} else {
			u.Close()
		}
		if err == nil || progress == Answered {
			return progress, err
		}
		if ended := r.Context().Err(); ended != nil {
			return progress, ended
		}
		if !used || progress == Heard || errors.Is(err, os.ErrDeadlineExceeded) {
			return progress, err
		}
	}
}

// An exchange is a request and its response on a connection.
type exchange struct {
	client   *Client
	conn     *upConn
	w        http.ResponseWriter
	r        *http.Request
	front    *conn       // has conn broken when the client disconnects; nil if it does not
	watching func() bool // stops watching the request's context; nil if nothing watches
	until    time.Time   // the deadline of the response's head
	stalls   time.Time   // the read deadline that is set on the connection
	heard    func()
	progress Progress
	bounded  bool // a write deadline is set on w
}

// run sends the request and forwards the response. It reports whether the connection can be reused.
func (x *exchange) run(fields []Field) (keep bool, err error) {
	if err := x.send(fields); err != nil {
		return false, err
	}
	if err := x.first(); err != nil {
		return false, err
	}
	var room [usualFields]Field
	a, plain, err := x.head(room[:0])
	if err != nil {
		return false, err
	}
	if !plain {
		return x.slow()
	}
	return x.pass(&a)
}

// dropped reports whether a field is not forwarded: hop-by-hop fields, and fields that the Client
// sets itself.
func dropped(name string) bool {
	switch name {
	case "Connection", "Keep-Alive", "Proxy-Connection", "Proxy-Authenticate", "Proxy-Authorization", "Te", "Trailer", "Transfer-Encoding", "Upgrade", "Content-Length":
		return true
	}
	return false
}

// send writes the request.
func (x *exchange) send(fields []Field) error {
	out := outs.Get().(*[outSize]byte)
	defer outs.Put(out)
	b := append(out[:0], x.r.Method...)
	b = append(b, ' ')
	b = append(b, x.r.RequestURI...)
	b = append(b, " HTTP/1.1\r\nHost: "...)
	b = append(b, x.r.Host...)
	b = append(b, crlf...)
	for name, values := range x.r.Header {
		if dropped(name) || replaced(fields, name) {
			continue
		}
		for _, value := range values {
			b = appendField(b, name, value)
		}
	}
	for _, f := range fields {
		if f.Value != "" {
			b = appendField(b, f.Name, f.Value)
		}
	}
	b = append(b, crlf...)
	u, limit := x.conn, or(x.client.Answer, defaultAnswer)
	if now := time.Now(); u.writes.Sub(now) < limit/2 {
		u.writes = now.Add(limit)
		if err := u.SetWriteDeadline(u.writes); err != nil {
			return err
		}
	}
	_, err := u.Write(b)
	return err
}

func replaced(fields []Field, name string) bool {
	for i := range fields {
		if fields[i].Name == name {
			return true
		}
	}
	return false
}

// appendField appends a field. It replaces line breaks by spaces, against header injection from a
// field that a handler set: net/http and parse let none in from outside.
func appendField(b []byte, name, value string) []byte {
	b = append(append(b, name...), ": "...)
	start := len(b)
	b = append(b, value...)
	for i := start; i < len(b); i++ {
		if b[i] == '\r' || b[i] == '\n' {
			b[i] = ' '
		}
	}
	return append(b, crlf...)
}

// first waits for the first bytes of the response.
func (x *exchange) first() error {
	u := x.conn
	now := time.Now()
	x.until = now.Add(or(x.client.Answer, defaultAnswer))
	x.stalls = x.until
	later := false
	if c, ok := x.r.Context().(*requestContext); !ok {
		x.watch() // the context of another server costs little
	} else if c.conn.hangup.breaksConn(c.conn, u) {
		x.front = c.conn
	} else if later = true; now.Add(unwatched).Before(x.until) {
		x.stalls = now.Add(unwatched)
	}
	if err := u.SetReadDeadline(x.stalls); err != nil {
		return err
	}
	if err := x.r.Context().Err(); err != nil { // the deadline may have undone that of the hangup
		return err
	}
	err := u.fill()
	if later && errors.Is(err, os.ErrDeadlineExceeded) {
		x.watch()
		x.stalls = x.until
		if err = u.SetReadDeadline(x.stalls); err == nil && x.r.Context().Err() == nil {
			err = u.fill()
		}
	}
	if u.n > 0 {
		x.progress = Heard
		return nil
	}
	if ended := x.r.Context().Err(); ended != nil {
		return ended
	}
	return err
}

// watch breaks the connection to the server when the client disconnects.
func (x *exchange) watch() {
	if x.watching == nil && x.front == nil {
		u := x.conn
		x.watching = context.AfterFunc(x.r.Context(), func() { u.SetDeadline(time.Unix(1, 0)) }) //nolint:errcheck // then the connection is broken
	}
}

// stop stops watching the client. It reports false if the client has disconnected and the
// connection is broken.
func (x *exchange) stop() bool {
	if x.bounded {
		http.NewResponseController(x.w).SetWriteDeadline(time.Time{}) //nolint:errcheck // the next write meets it
	}
	if x.front != nil && !x.front.hangup.sparesConn() {
		return false
	}
	return x.watching == nil || x.watching()
}

func (x *exchange) begin(status int) {
	if x.heard != nil {
		x.heard()
	}
	x.progress = Answered
	x.w.WriteHeader(status)
}

// next returns the deadline of the next read. The head of a response has one deadline for all of
// its reads. Each part of a body gets its own, and the client must have taken the previous part by
// then.
func (x *exchange) next() time.Time {
	if x.progress < Answered {
		x.stalls = x.until
		return x.until
	}
	gap, now := or(x.client.Stall, defaultGap), time.Now()
	if left := x.stalls.Sub(now); left < gap/2 || left > gap {
		x.stalls, x.bounded = now.Add(gap), true
		http.NewResponseController(x.w).SetWriteDeadline(x.stalls) //nolint:errcheck // a ResponseWriter without deadlines is not bounded
	}
	return x.stalls
}

// more reads more of the response, until the deadline that next returns.
func (x *exchange) more() error {
	x.watch()
	if err := x.conn.SetReadDeadline(x.next()); err != nil {
		return err
	}
	if err := x.r.Context().Err(); err != nil {
		return err
	}
	return x.conn.fill()
}

// fill reads once, into the free end of the buffer.
func (u *upConn) fill() error {
	n, err := u.Conn.Read(u.buf[u.n:])
	u.n += n
	if n > 0 {
		return nil
	}
	if err == nil {
		err = io.ErrNoProgress
	}
	return err
}
