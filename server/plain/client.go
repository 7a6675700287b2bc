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

// A Client passes plain requests on to HTTP/1.1 servers, and their answers back, in the caller's goroutine. Its settings are not to be changed
// once it is used. It is safe for concurrent use.
type Client struct {
	Dial    func(ctx context.Context, network, addr string) (net.Conn, error) // nil means net.Dialer's, with Connect
	Connect time.Duration                                                     // for a connection; 0 means 5 s
	Answer  time.Duration                                                     // for the head of an answer; 0 means a minute
	Stall   time.Duration                                                     // for the next bytes of a body; 0 means 5 minutes
	Keep    time.Duration                                                     // how long an idle connection is kept; 0 means 50 s
	MaxIdle int                                                               // idle connections to an address; 0 means 1024

	mu     sync.Mutex
	idle   map[string][]*upConn // by address; the last has come last
	timer  *time.Timer          // for the next that has been idle for long; nil for none
	closed bool
}

const (
	defaultConnect = 5 * time.Second
	defaultAnswer  = time.Minute
	defaultGap     = 5 * time.Minute
	defaultKeep    = 50 * time.Second
	defaultMaxIdle = 1024

	// unwatched is how long an answer is waited for without looking whether the client is still there. Looking costs as much as all the rest.
	unwatched = 250 * time.Millisecond
)

// An upConn is a connection to a server.
type upConn struct {
	net.Conn
	since  time.Time      // when it became idle
	writes time.Time      // until when a write may take, as the connection was told
	look   func() bool    // reports whether nothing has come; nil where that cannot be seen
	used   bool           // whether it has brought an answer
	buf    *[outSize]byte // lent while a request is under way
	n      int            // bytes of an answer that are in buf[at:n]
	at     int
}

// get returns a connection, an idle one where there is one and fresh is not asked for.
func (c *Client) get(ctx context.Context, addr string, fresh bool) (*upConn, error) {
	for !fresh {
		u := c.take(addr)
		if u == nil {
			break
		}
		if u.look == nil || u.look() {
			return u, nil
		}
		u.Close() // it has ended, or somebody speaks who was not asked: that would be taken for the next answer
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

// take returns the connection that became idle last.
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

// put keeps a connection for the next request, or closes it.
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

// sweep closes what has been idle for too long.
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

// CloseIdle closes the idle connections to an address, which is not used any more.
func (c *Client) CloseIdle(addr string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, u := range c.idle[addr] {
		u.Close()
	}
	delete(c.idle, addr)
}

// Close closes idle connections, and has those of requests under way closed after them.
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

// Takes reports whether a Client can pass a request on: it has no body, and asks for nothing but an answer.
func Takes(r *http.Request) bool {
	switch r.Method {
	case http.MethodGet, http.MethodHead, http.MethodDelete, http.MethodOptions:
	default:
		return false
	}
	if r.ContentLength != 0 || r.Body != nil && r.Body != http.NoBody || len(r.TransferEncoding) > 0 || len(r.Trailer) > 0 {
		return false
	}
	if len(r.RequestURI) == 0 || r.RequestURI[0] != '/' || !isTarget(r.RequestURI) || r.Host == "" || !httpsyntax.IsHost(r.Host) {
		return false
	}
	for _, name := range [...]string{"Upgrade", "Te", "Expect", "Http2-Settings"} {
		if _, ok := r.Header[name]; ok {
			return false
		}
	}
	for _, value := range r.Header["Connection"] {
		if !strings.EqualFold(value, "close") && !strings.EqualFold(value, "keep-alive") {
			return false // it names fields that are not to be passed on
		}
	}
	return true
}

// A ClientError is an error of the client to whom an answer was being passed on.
type ClientError struct{ Err error }

// Error says what went wrong.
func (e *ClientError) Error() string { return "the client: " + e.Err.Error() }

// Unwrap returns what went wrong.
func (e *ClientError) Unwrap() error { return e.Err }

// A Field is a header field, its name in canonical form.
type Field struct{ Name, Value string }

// A Passage is where Pass sends a request, and how.
type Passage struct {
	Addr   string  // HOST:PORT
	Fields []Field // in place of the request's of the same names; an empty value takes those out
	Heard  func()  // called when the head of the answer is there; may be nil
}

// Progress is how far a request has come.
type Progress int

// The steps of a request. What is only Sent may be sent again where that is harmless; the server may have carried it out.
const (
	Unsent   Progress = iota // there was no connection
	Sent                     // or a part of it was, and no byte of an answer has come
	Heard                    // a byte of an answer has come
	Answered                 // a byte of the answer may have been passed on: an error leaves it incomplete, and the client's connection is to be ended
)

// Pass sends a request that Takes took to a server, and writes its answer to w. A connection that turns out to be closed, as idle ones may be, is
// replaced once: none of the methods does harm when it is repeated. An error of w is a *ClientError, and one of the request's context is that
// context's.
func (c *Client) Pass(w http.ResponseWriter, r *http.Request, p Passage) (Progress, error) {
	for fresh := false; ; fresh = true {
		u, err := c.get(r.Context(), p.Addr, fresh)
		if err != nil {
			return Unsent, err
		}
		used := u.used
		u.buf, u.n, u.at = outs.Get().(*[outSize]byte), 0, 0
		x := exchange{client: c, conn: u, w: w, r: r, heard: p.Heard, progress: Sent}
		keep, err := x.run(p.Fields)
		keep = x.stop() && keep
		outs.Put(u.buf)
		u.buf = nil
		if keep {
			c.put(p.Addr, u)
		} else {
			u.Close()
		}
		if err == nil || x.progress == Answered {
			return x.progress, err
		}
		if ended := r.Context().Err(); ended != nil {
			return x.progress, ended
		}
		if !used || x.progress == Heard || errors.Is(err, os.ErrDeadlineExceeded) {
			return x.progress, err
		}
	}
}

// An exchange is a request and its answer on a connection.
type exchange struct {
	client   *Client
	conn     *upConn
	w        http.ResponseWriter
	r        *http.Request
	watching func() bool // ends the watch of the client; nil for none
	until    time.Time   // when the head of the answer is to be there
	stalls   time.Time   // until when a read may take, as the connection was told
	heard    func()
	progress Progress
	bounded  bool // w was told how long a write may take
}

// run sends the request and passes the answer on. It reports whether the connection is of further use.
func (x *exchange) run(fields []Field) (keep bool, err error) {
	if err := x.send(fields); err != nil {
		return false, err
	}
	if err := x.first(); err != nil {
		return false, err
	}
	var a answer
	whole, err := x.head(&a)
	if err != nil {
		return false, err
	}
	if !whole {
		return x.slow()
	}
	return x.pass(&a)
}

// dropped are the fields that are not passed on: those for a connection, and those that are said anew.
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

// appendField appends a field. What would end its line is a space there; net/http and parse let none of that in.
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

// first waits for the first bytes of the answer, first without a look at the client, and then with one.
func (x *exchange) first() error {
	u := x.conn
	now := time.Now()
	x.until = now.Add(or(x.client.Answer, defaultAnswer))
	if err := u.SetReadDeadline(now.Add(min(unwatched, x.until.Sub(now)))); err != nil {
		return err
	}
	err := u.fill()
	if errors.Is(err, os.ErrDeadlineExceeded) {
		x.watch()
		x.stalls = x.until
		if err = u.SetReadDeadline(x.stalls); err == nil && x.r.Context().Err() == nil {
			err = u.fill()
		}
		if ended := x.r.Context().Err(); ended != nil {
			return ended
		}
	}
	if u.n > 0 {
		x.progress = Heard
		return nil
	}
	return err
}

// watch ends the wait for the server when the client leaves.
func (x *exchange) watch() {
	if x.watching == nil {
		u := x.conn
		x.watching = context.AfterFunc(x.r.Context(), func() { u.SetDeadline(time.Unix(1, 0)) }) //nolint:errcheck // then the connection is broken
	}
}

// stop ends the watch. It reports false if that has broken the connection.
func (x *exchange) stop() bool {
	if x.bounded {
		http.NewResponseController(x.w).SetWriteDeadline(time.Time{}) //nolint:errcheck // the next write meets it
	}
	return x.watching == nil || x.watching()
}

// begin begins the answer to the client.
func (x *exchange) begin(status int) {
	if x.heard != nil {
		x.heard()
	}
	x.progress = Answered
	x.w.WriteHeader(status)
}

// next is until when the next read may take: the head of an answer has one time for all of it, and each part of a body another, in which the client has
// to take the one before, too.
func (x *exchange) next() time.Time {
	if x.progress < Answered {
		x.stalls = x.until
		return x.until
	}
	gap, now := or(x.client.Stall, defaultGap), time.Now()
	if left := x.stalls.Sub(now); left < gap/2 || left > gap {
		x.stalls, x.bounded = now.Add(gap), true
		http.NewResponseController(x.w).SetWriteDeadline(x.stalls) //nolint:errcheck // who has no deadlines does without
	}
	return x.stalls
}

// more reads more of the answer, for no longer than that may take.
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

// fill reads once, into the room behind what is there.
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
