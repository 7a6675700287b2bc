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

// A conn is a connection of a client, whose requests are served one after another in one goroutine.
type conn struct {
	net.Conn
	server  *Server
	rest    *queue
	ctx     context.Context // of all requests
	remote  string
	tls     *tls.ConnectionState // nil for none
	request http.Request         // as it is parsed: a handler gets a copy
	busy    atomic.Bool          // whether a request, or a part of one, has come and is not answered

	raw     *rawReader // nil where the connection is none of the operating system's
	lent    *[maxHead]byte
	n       int       // what was read and not served is in lent[:n]
	asleep  bool      // it has been idle for a while
	waits   time.Time // until when a read may take, as the connection was told; zero for not told
	watched watched
}

// buffers are lent to connections on which something has come, so that idle ones keep none.
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

// goOn serves request after request, to the end. A connection that is idle for a while goes on in another goroutine: its stack is a small
// one, where that of this one has become as large as requests need it.
func (c *conn) goOn() {
	s := c.server
	switch c.serveAll() {
	case idle:
		go c.goOn()
		return
	case ended:
		c.Conn.Close()
		s.state(c.Conn, http.StateClosed)
	}
	c.giveBack()
	s.remove(c)
}

// next is what becomes of a connection.
type next int

const (
	ended next = iota // it is to be closed
	idle              // nothing has come for a while
	over              // it was handed over
)

// serveAll serves request after request, as long as they come soon.
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
		if head == "" || c.isLong(head) || !parse(head, r) {
			c.handOver(c.lent[:c.n])
			return over
		}
		c.n = copy(c.lent[:], c.lent[len(head):c.n])
		if !c.answer(r) {
			return ended
		}
		if c.n == 0 {
			c.busy.Store(false)
		}
	}
}

// isLong reports whether a head is longer than net/http would have it.
func (c *conn) isLong(head string) bool {
	most := c.server.HTTP.MaxHeaderBytes
	return most > 0 && len(head) > most
}

// giveBack gives the buffer back. What is in it is of no use any more.
func (c *conn) giveBack() {
	if c.lent != nil {
		buffers.Put(c.lent)
		c.lent = nil
	}
}

// readHead returns the head of the next request, or nothing where it is no plain one. On an error the connection is to be closed.
func (c *conn) readHead() (string, error) {
	if c.n == 0 {
		if err := c.readFirst(); err != nil {
			return "", err
		}
	}
	for scanned, told := 0, false; ; {
		read := c.lent[:c.n]
		if i := bytes.Index(read[scanned:], emptyLine); i >= 0 {
			return string(read[:scanned+i+len(emptyLine)]), nil
		}
		if c.n == len(c.lent) || !begins(read) || isBare(read) {
			return "", nil
		}
		if !told {
			told = true
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

var emptyLine = []byte("\r\n\r\n")

// awake is how long a connection without a request stays in its goroutine.
const awake = time.Second

// errIdle is for a connection on which nothing has come for so long.
var errIdle = errors.New("idle")

// readFirst waits for the first bytes of a request.
func (c *conn) readFirst() (err error) {
	c.busy.Store(false)
	asleep := c.asleep
	if c.asleep = false; asleep {
		c.allow(or(c.server.HTTP.IdleTimeout, defaultIdle) - awake)
	} else {
		c.allow(min(awake, or(c.server.HTTP.IdleTimeout, defaultIdle)))
	}
	if c.server.closing.Load() { // after busy and the time were set: see closeIfIdle
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
	case !asleep && errors.Is(err, os.ErrDeadlineExceeded) && or(c.server.HTTP.IdleTimeout, defaultIdle) > awake && !c.server.closing.Load():
		c.asleep = true
		return errIdle
	}
	return cmp.Or(err, io.ErrNoProgress)
}

// begins reports whether bytes may become a plain request: so that what speaks another protocol, and may wait for an answer after a few
// bytes, does not wait here.
func begins(b []byte) bool {
	for _, method := range [...]string{"GET ", "HEAD ", "DELETE ", "OPTIONS "} {
		if n := min(len(b), len(method)); string(b[:n]) == method[:n] {
			return true
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

// allow sets how long the next read may take, within a tenth: telling the connection costs more than a request should.
func (c *conn) allow(d time.Duration) {
	now := time.Now()
	if left := c.waits.Sub(now); left > d-d/10 && left <= d {
		return
	}
	c.waits = now.Add(d)
	c.Conn.SetReadDeadline(c.waits) //nolint:errcheck // the read says what is wrong
}

// closeIfIdle ends a connection on which nothing has come. What comes at this moment is served.
func (c *conn) closeIfIdle() {
	if !c.busy.Load() {
		c.Conn.SetReadDeadline(time.Unix(1, 0)) //nolint:errcheck // it is closed then
	}
}

// handOver gives the connection to net/http, with what was read.
func (c *conn) handOver(read []byte) {
	c.Conn.SetDeadline(time.Time{}) //nolint:errcheck // net/http sees it
	c.server.state(c.Conn, http.StateHijacked)
	c.rest.put(c.Conn, bytes.Clone(read))
}

// answer serves one request. It reports whether there may be another one on the connection.
func (c *conn) answer(r *http.Request) (more bool) {
	ctx := &requestContext{Context: c.ctx, conn: c}
	r.Proto, r.ProtoMajor, r.ProtoMinor = "HTTP/1.1", 1, 1
	r.Body, r.RemoteAddr, r.TLS = http.NoBody, c.remote, c.tls
	r = r.WithContext(ctx)
	w := newResponse(c, r)
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
	c.server.HTTP.Handler.ServeHTTP(w, r)
	return w.end() == nil && !w.closes
}
