package plain

import (
	"bytes"
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"net/http"
	"os"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"time"
)

// A conn is a client's connection. One goroutine serves its requests one after another.
type conn struct {
	net.Conn
	server  *Server
	rest    *queue
	ctx     context.Context // the parent of all requests' contexts
	remote  string
	tls     *tls.ConnectionState // nil without TLS
	request http.Request         // the parsed request; a handler gets a copy
	// a request, or a part of one, was received and has no response yet
	busy     atomic.Bool
	answered bool // the last request was answered in full

	raw     *rawReader // nil if the connection is no socket of the operating system
	lent    *[maxHead]byte
	n       int       // lent[:n] holds received bytes that no request has consumed
	skip    int       // how many line ends may still come before the next request: see skipEnds
	served  bool      // a request was answered
	asleep  bool      // idle for longer than awake
	waits   time.Time // the read deadline that is set on the connection; zero if none is set
	watched watched
	hangups *hangups // nil if the system cannot report them
	hangup  hangup
}

// buffers are lent to connections that have received something, so that idle connections hold no
// buffer.
var buffers = sync.Pool{New: func() any { return new([maxHead]byte) }}

func (c *conn) serve() {
	c.remote = c.Conn.RemoteAddr().String()
	c.ctx = context.WithValue(c.ctx, http.LocalAddrContextKey, c.Conn.LocalAddr())
	c.raw = newRawReader(c.Conn)
	c.server.state(c.Conn, http.StateNew)
	if c.tls != nil && c.tls.NegotiatedProtocol == "h2" {
		c.handOver(nil)
		c.server.remove(c)
		return
	}
	c.goOn()
}

// goOn serves requests until the connection ends. When the connection becomes idle, goOn continues
// in a new goroutine. The new one has a small stack, while this one's has grown to what requests
// need.
func (c *conn) goOn() {
	s := c.server
	switch c.serveAll() {
	case idle:
		go c.goOn()
		return
	case ended:
		c.hangup.forget(c)
		if !c.answered || !c.rest.linger(c.Conn) {
			c.Conn.Close()
		}
		s.state(c.Conn, http.StateClosed)
	}
	c.giveBack()
	s.remove(c)
}

// next says how serveAll ended.
type next int

const (
	ended next = iota // to be closed
	idle              // nothing was received for the time awake
	over              // net/http has it now
)

// serveAll serves requests for as long as the next one comes soon.
func (c *conn) serveAll() next {
	for {
		head, err := c.readHead()
		if err == errIdle { //nolint:errorlint // it is never wrapped
			return idle
		}
		if err != nil {
			return ended
		}
		r := &c.request
		*r = http.Request{}
		if head == "" || c.isLong(head) || !parse(head, r, c.server.Bodies) || !c.readBody(len(head), r.ContentLength) {
			c.handOver(c.lent[:c.n])
			return over
		}
		body := string(c.lent[len(head) : len(head)+int(r.ContentLength)])
		c.n = copy(c.lent[:], c.lent[len(head)+len(body):c.n])
		if !c.answer(r, body) {
			return ended
		}
		if r.Method == http.MethodPost {
			c.skip = mostEnds
		}
		if c.n == 0 {
			c.busy.Store(false)
		}
	}
}

// isLong reports whether a head exceeds net/http's limit.
func (c *conn) isLong(head string) bool {
	most := c.server.HTTP.MaxHeaderBytes
	return most > 0 && len(head) > most
}

// giveBack returns the buffer to the pool, and drops its contents.
func (c *conn) giveBack() {
	if c.lent != nil {
		buffers.Put(c.lent)
		c.lent = nil
	}
}

// readHead returns the head of the next request, or "" if the request is not plain. On an error,
// the connection must be closed.
func (c *conn) readHead() (string, error) {
	for c.skipEnds(); c.n == 0; c.skipEnds() {
		if err := c.readFirst(); err != nil {
			return "", err
		}
	}
	for scanned, reported := 0, false; ; {
		read := c.lent[:c.n]
		if i := bytes.Index(read[scanned:], emptyLine); i >= 0 {
			return string(read[:scanned+i+len(emptyLine)]), nil
		}
		if c.n == len(c.lent) || !begins(read, c.server.Bodies) || isBare(read) {
			return "", nil
		}
		if !reported {
			reported = true
			c.waits = time.Now().Add(or(c.server.HTTP.ReadHeaderTimeout, defaultHead))
			if err := c.Conn.SetReadDeadline(c.waits); err != nil {
				return "", err
			}
		}
		scanned = max(c.n-len(emptyLine)+1, 0)
		n, err := c.Conn.Read(c.lent[c.n:])
		c.n += n
		if n == 0 && err != nil {
			return "", err
		}
	}
}

// mostEnds is how many bytes of line ends are dropped behind the body of a POST, as by net/http.
const mostEnds = 4

// skipEnds drops line ends that came behind the body of a POST: some old clients send them. net/http does so,
// too, but not on a connection that it gets between the two.
func (c *conn) skipEnds() {
	for ; c.skip > 0 && c.n > 0 && (c.lent[0] == '\r' || c.lent[0] == '\n'); c.skip-- {
		c.n = copy(c.lent[:], c.lent[1:c.n])
	}
	if c.n > 0 {
		c.skip = 0
	}
}

// readBody waits until the body behind a head has been received. It reports false if the body is too long
// for the buffer, or comes slowly: net/http then waits for the rest of it.
func (c *conn) readBody(head int, length int64) bool {
	if length > int64(len(c.lent)-head) {
		return false
	}
	if c.n < head+int(length) {
		c.allow(awake) // for all of it: a client that sends a byte at a time must not begin it anew with each
	}
	for whole := head + int(length); c.n < whole; {
		n, err := c.Conn.Read(c.lent[c.n:])
		c.n += n
		if n == 0 && err != nil {
			return false
		}
	}
	return true
}

var emptyLine = []byte("\r\n\r\n")

// awake is how long a connection without a request keeps its goroutine.
const awake = time.Second

// errIdle means that nothing was received for the time awake.
var errIdle = errors.New("idle")

// readFirst waits for the first bytes of a request.
func (c *conn) readFirst() (err error) {
	c.busy.Store(false)
	asleep, most := c.asleep, or(c.server.HTTP.IdleTimeout, defaultIdle)
	if !c.served {
		most = or(c.server.FirstTimeout, most)
	}
	if c.asleep = false; asleep {
		c.allow(most - awake)
	} else {
		c.allow(min(awake, most))
	}
	if c.server.closing.Load() { // must come after busy and the deadline are set: see closeIfIdle
		return http.ErrServerClosed
	}
	if c.raw != nil {
		c.giveBack()
		c.lent, c.n, err = c.raw.read()
	} else {
		if c.lent == nil {
			c.lent = buffers.Get().(*[maxHead]byte)
		}
		c.n, err = c.Conn.Read(c.lent[:])
	}
	switch {
	case c.n > 0:
		c.busy.Store(true)
		return nil
	case !asleep && errors.Is(err, os.ErrDeadlineExceeded) && most > awake && !c.server.closing.Load():
		c.asleep = true
		return errIdle
	}
	return cmp.Or(err, io.ErrNoProgress)
}

// begins reports whether bytes can be the start of a plain request. A client of another protocol
// may send a few bytes and then wait for a response, so its connection must go to net/http at once.
func begins(b []byte, bodies bool) bool {
	for _, method := range [...]string{"GET ", "HEAD ", "DELETE ", "OPTIONS ", "POST "} {
		if n := min(len(b), len(method)); string(b[:n]) == method[:n] {
			return bodies || method != "POST "
		}
	}
	return false
}

func or(d, otherwise time.Duration) time.Duration {
	if d > 0 {
		return d
	}
	return otherwise
}

// allow sets the deadline of the next read, with a tolerance of a tenth. Setting it exactly for
// every read would be too expensive.
func (c *conn) allow(d time.Duration) {
	now := time.Now()
	if left := c.waits.Sub(now); left > d-d/10 && left <= d {
		return
	}
	c.waits = now.Add(d)
	c.Conn.SetReadDeadline(c.waits) //nolint:errcheck // the read says what is wrong
}

// closeIfIdle closes a connection that has received nothing. A request that arrives at the same
// moment is still served.
func (c *conn) closeIfIdle() {
	if !c.busy.Load() {
		c.Conn.SetReadDeadline(time.Unix(1, 0)) //nolint:errcheck // it is closed then
	}
}

// handOver passes the connection to net/http, with the bytes that were read from it.
func (c *conn) handOver(read []byte) {
	c.hangup.forget(c)
	c.Conn.SetDeadline(time.Time{}) //nolint:errcheck // net/http sees it
	c.server.state(c.Conn, http.StateHijacked)
	c.rest.put(c.Conn, bytes.Clone(read), c.served)
}

// served is all that one request needs, in one allocation.
type served struct {
	ctx      requestContext
	request  http.Request
	response response
	body     body
}

// A body is that of a request. It was received before the request is served.
type body struct{ unread string }

// Read reads a part of the body. As with net/http, its end comes with its last bytes.
func (b *body) Read(p []byte) (n int, err error) {
	n = copy(p, b.unread)
	if b.unread = b.unread[n:]; b.unread == "" {
		err = io.EOF
	}
	return n, err
}

// Close drops the rest of the body.
func (b *body) Close() error {
	b.unread = ""
	return nil
}

// answer serves one request. It reports whether the connection can carry another request.
func (c *conn) answer(r *http.Request, text string) (more bool) {
	r.Proto, r.ProtoMajor, r.ProtoMinor = "HTTP/1.1", 1, 1
	r.Body, r.RemoteAddr, r.TLS = http.NoBody, c.remote, c.tls
	x := &served{ctx: requestContext{Context: c.ctx, conn: c}}
	x.request = *r.WithContext(&x.ctx)
	if text != "" {
		x.body.unread = text
		x.request.Body = &x.body
	}
	x.response = newResponse(c, &x.request)
	ctx, w := &x.ctx, &x.response
	defer func() {
		if thrown := recover(); thrown != nil {
			more = false
			if thrown != http.ErrAbortHandler { //nolint:errorlint // it is thrown as it is
				c.server.logf("plain: panic serving a request: %v\n%s", thrown, debug.Stack())
			}
		}
		ctx.end()
		w.free()
	}()
	c.served, c.answered = true, false
	c.server.HTTP.Handler.ServeHTTP(w, &x.request)
	c.answered = w.end() == nil
	return c.answered && !w.closes
}
