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

	"github.com/weirflow/weir/server/eventloop"
)

// A conn is a client's connection. One goroutine at a time serves its requests one after another: that of
// the connection, or of a loop that it is in.
type conn struct {
	net.Conn
	server *Server
	rest   *queue
	ctx    context.Context // the parent of all requests' contexts
	remote string
	tls    *tls.ConnectionState // nil without TLS
	loop   *eventloop.Conn      // nil for a connection with a goroutine of its own
	raw    *rawReader           // nil for one in a loop, and for one that is no socket of the operating system
	// a request, or a part of one, was received and has no response yet
	busy     atomic.Bool
	heading  atomic.Bool // it waits for the rest of a head; of a connection that is in no loop
	answered bool        // the last request was answered in full
	served   atomic.Bool // a request was answered
	asleep   bool        // idle for longer than awake

	phase   phase
	lent    *[maxHead]byte
	n       int        // lent[:n] holds received bytes that no request has consumed
	skip    int        // how many line ends may still come before the next request: see skipEnds
	scanned int        // bytes of a head that contain no end of it
	head    int        // bytes of the head, in the phase body
	next    *exchanged // the request whose body is awaited, in the phase body; or whose handler goes on Later
	bounded bool       // the end of the phase is set: in until, or as the connection's deadline
	until   int64      // when the phase ends, on the clock of the loop
	waits   time.Time  // the read deadline that is set on the connection; zero if none is set
	watched watched
	hangups *hangups // nil if the system cannot report them, and for a connection in a loop
	hangup  hangup
}

// A phase is what a connection waits for.
type phase uint8

const (
	between phase = iota // the first byte of a request
	inHead               // the rest of its head
	inBody               // the rest of its body
)

// buffers are lent to connections that have received something, so that idle connections hold no
// buffer.
var buffers = sync.Pool{New: func() any { return new([maxHead]byte) }}

// serve serves a connection that was accepted: in the background if it is in a loop, and otherwise until
// it ends.
func (c *conn) serve() {
	c.remote = c.Conn.RemoteAddr().String()
	c.ctx = context.WithValue(c.ctx, http.LocalAddrContextKey, c.Conn.LocalAddr())
	c.server.state(c.Conn, http.StateNew)
	if c.loop != nil {
		c.start()
		return
	}
	c.raw = newRawReader(c.Conn)
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
	switch how := c.serveAll(); how {
	case idle:
		go c.goOn()
	default:
		c.finish(how)
	}
}

// finish ends the work on a connection, which is closed or net/http's then.
func (c *conn) finish(how next) {
	if how == over {
		c.handOver(c.lent[:c.n])
	} else {
		c.hangup.forget(c)
		if !c.answered || !c.rest.linger(c.Conn) {
			c.Conn.Close()
		}
		c.server.state(c.Conn, http.StateClosed)
	}
	c.giveBack()
	c.server.remove(c)
}

// next says how to go on with a connection.
type next int

const (
	ended  next = iota // it is to be closed
	idle               // nothing was received for the time awake
	over               // it is to be handed over to net/http
	reads              // more has to be received
	serves             // more was received already
	later              // the handler goes on Later
)

// serveAll serves requests for as long as the next one comes soon.
func (c *conn) serveAll() next {
	for {
		how := c.advance()
		if how == reads {
			how = c.read()
		}
		if how != serves {
			return how
		}
	}
}

// read waits for more, with the deadline of the phase.
func (c *conn) read() next {
	switch c.phase {
	case between:
		err := c.readFirst()
		if err == errIdle { //nolint:errorlint // it is never wrapped
			return idle
		}
		if err != nil {
			return ended
		}
		return serves
	case inHead:
		if !c.bounded {
			c.bounded = true
			c.waits = time.Now().Add(or(c.server.HTTP.ReadHeaderTimeout, defaultHead))
			if c.Conn.SetReadDeadline(c.waits) != nil {
				return ended
			}
		}
		return c.readHead()
	case inBody:
		if !c.bounded {
			c.bounded = true
			c.allow(awake) // for all of it: a client that sends a byte at a time must not begin it anew with each
		}
	}
	return c.readMore()
}

func (c *conn) readMore() next {
	n, err := c.Conn.Read(c.lent[c.n:])
	c.n += n
	if n == 0 && err != nil {
		return c.lost()
	}
	return serves
}

// readHead waits for more of a head. The deadline that Shutdown sets meanwhile is set for no other phase.
func (c *conn) readHead() next {
	c.heading.Store(true)
	if c.server.closing.Load() { // must come after heading is set: see closeIfIdle
		c.hurry()
	}
	how := c.readMore()
	c.heading.Store(false)
	if c.server.closing.Load() { // closeIfIdle may be about to set the deadline
		c.server.mu.Lock()
		c.waits = c.headUntil()
		c.server.mu.Unlock()
	}
	return how
}

// headUntil returns when the head must be complete after Shutdown.
func (c *conn) headUntil() time.Time {
	if until := c.server.headUntil(); until.Before(c.waits) {
		return until
	}
	return c.waits
}

// hurry bounds the rest of a head after Shutdown.
func (c *conn) hurry() { c.Conn.SetReadDeadline(c.headUntil()) } //nolint:errcheck // it is closed then

// lost says what to do when nothing more comes in this phase. net/http waits for the rest of a body that
// comes slowly, but not after Shutdown: it would begin its time anew.
func (c *conn) lost() next {
	if c.phase == inBody && !c.server.closing.Load() {
		return over
	}
	return ended
}

// advance serves a request that was received in full, and says how to go on.
func (c *conn) advance() next {
	if c.skipEnds(); c.n == 0 {
		c.enter(between)
		return reads
	}
	if c.phase != inBody {
		read := c.lent[:c.n]
		i := bytes.Index(read[c.scanned:], emptyLine)
		if i < 0 {
			if c.n == len(c.lent) || !begins(read, c.server.Bodies) || isBare(read) {
				return over
			}
			c.enter(inHead)
			c.scanned = max(c.n-len(emptyLine)+1, 0)
			return reads
		}
		head := string(read[:c.scanned+i+len(emptyLine)])
		x := exchanges.Get().(*exchanged)
		if c.isLong(head) || !x.parse(head, c.server.Bodies) || x.request.ContentLength > int64(len(c.lent)-len(head)) {
			return over
		}
		c.head, c.next = len(head), x
	}
	x := c.next
	whole := c.head + int(x.request.ContentLength)
	if c.n < whole {
		c.enter(inBody)
		return reads
	}
	body := string(c.lent[c.head:whole])
	c.n = copy(c.lent[:], c.lent[whole:c.n])
	c.next = nil
	c.phase, c.bounded, c.scanned = between, false, 0
	if c.n == 0 && c.loop != nil { // elsewhere, the client may be watched by reading into the buffer
		c.giveBack() // the request may wait for long in a queue
	}
	return c.answer(x, body)
}

// enter begins a phase, unless it has begun.
func (c *conn) enter(p phase) {
	if c.phase != p {
		c.phase, c.bounded, c.scanned = p, false, 0
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

var emptyLine = []byte("\r\n\r\n")

// awake is how long a connection without a request keeps its goroutine.
const awake = time.Second

// errIdle means that nothing was received for the time awake.
var errIdle = errors.New("idle")

// readFirst waits for the first bytes of a request.
func (c *conn) readFirst() (err error) {
	c.busy.Store(false)
	asleep, most := c.asleep, c.mostIdle()
	if c.asleep = false; asleep {
		c.allow(most - awake)
	} else {
		c.allow(min(awake, most))
	}
	if c.server.closing.Load() { // must come after busy and the deadline are set: see closeIfIdle
		if c.served.Load() {
			return http.ErrServerClosed
		}
		c.hurry()
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

// mostIdle is how long a connection may wait for the first byte of a request.
func (c *conn) mostIdle() time.Duration {
	most := or(c.server.HTTP.IdleTimeout, defaultIdle)
	if !c.served.Load() {
		most = or(c.server.FirstTimeout, most)
	}
	return most
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

// closeIfIdle closes a connection that has received nothing since its last request, and bounds the time for the
// first request and the rest of a head. A request that arrives at the same moment is still served. The lock of the
// server is held.
func (c *conn) closeIfIdle() {
	switch {
	case c.loop != nil:
		c.loop.Wake()
	case c.heading.Load():
		c.hurry()
	case c.busy.Load():
	case c.served.Load():
		c.Conn.SetReadDeadline(time.Unix(1, 0)) //nolint:errcheck // it is closed then
	default:
		c.Conn.SetReadDeadline(c.server.headUntil()) //nolint:errcheck // it is closed then
	}
}

// handOver passes the connection to net/http, with the bytes that were read from it.
func (c *conn) handOver(read []byte) {
	c.hangup.forget(c)
	c.Conn.SetDeadline(time.Time{}) //nolint:errcheck // net/http sees it
	c.server.state(c.Conn, http.StateHijacked)
	c.detach() // net/http may be slow to take it
	c.rest.put(c.Conn, bytes.Clone(read), c.served.Load())
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

// answer serves one request, which was parsed, and says how to go on.
func (c *conn) answer(x *exchanged, text string) next {
	r := &x.request
	r.Proto, r.ProtoMajor, r.ProtoMinor = "HTTP/1.1", 1, 1
	r.Body, r.RemoteAddr, r.TLS = http.NoBody, c.remote, c.tls
	x.ctx = requestContext{Context: c.ctx, conn: c}
	x.request = *r.WithContext(&x.ctx)
	if text != "" {
		x.body.unread = text
		x.request.Body = &x.body
	}
	x.response.begin(c, &x.request)
	if c.answered = false; !c.served.Load() {
		c.served.Store(true)
	}
	if c.handle(x, nil); x.ctx.rest != nil {
		c.next = x
		return later
	}
	return c.afterAnswer(x)
}

// handle calls the handler, or the rest of it, and sends what is left of its response.
func (c *conn) handle(x *exchanged, rest func()) {
	defer func() {
		if thrown := recover(); thrown != nil {
			x.ctx.rest = nil
			if thrown != http.ErrAbortHandler { //nolint:errorlint // it is thrown as it is
				c.server.logf("plain: panic serving a request: %v\n%s", thrown, debug.Stack())
			}
		}
	}()
	if rest != nil {
		rest()
	} else if c.server.HTTP.Handler.ServeHTTP(&x.response, &x.request); x.ctx.rest != nil {
		return
	}
	c.answered = x.response.end() == nil
}

// afterAnswer ends a request, and says how to go on.
func (c *conn) afterAnswer(x *exchanged) next {
	x.ctx.end()
	x.response.free()
	goesOn := c.answered && !x.response.closes
	if x.request.Method == http.MethodPost {
		c.skip = mostEnds
	}
	if x.ctx.reuse {
		x.putBack()
	}
	if !goesOn {
		return ended
	}
	if c.n == 0 {
		c.busy.Store(false)
	}
	return serves
}
