package listen

import (
	"bytes"
	"errors"
	"io"
	"net"
	"os"
	"sync/atomic"
	"time"
)

// A guard reads an HTTP/1 connection before net/http does. It finds where each request begins and
// ends, and passes a header on only once it is complete and unambiguous. A handler could not check
// this later: net/http drops a Content-Length beside a Transfer-Encoding, for example.
//
// A connection without a request in flight holds no memory for it.
type guard struct {
	net.Conn
	maxHeader     int
	headerTimeout time.Duration
	h2c           bool
	listener      *Listener
	port          *Port

	// Used by one reader at a time.
	state   guardState
	left    int64 // of a body
	chunks  chunks
	ready   []byte // checked, to be passed on
	partial []byte // received, not checked completely
	looked  int    // bytes of partial that contain no end of a header
	err     error  // the end

	after    guardState  // what follows the body
	early    []byte      // while held: the byte that was passed on unchecked
	passed   int         // bytes of partial that were passed on already
	served   bool        // a request was passed on, or answered before
	http2    *frames     // nil unless the connection speaks HTTP/2
	hijacked atomic.Bool // the connection speaks another protocol
	unread   atomic.Bool // a part of the last request's body was not received

	reads readDeadline
}

type guardState uint8

const (
	inHeader guardState = iota
	inBody
	inChunks
	held // after a request for an upgrade: another protocol may follow, or another request
	past // nothing is checked any more
)

// nonsense replaces a refused request: net/http responds to it with 400, after the responses to
// earlier requests, and closes. It is sent alone: net/http reads one byte ahead during a request,
// and would cancel the request at an end of file. In the middle of a body, an error is returned
// instead.
const nonsense = "?\r\n\r\n"

// Guard puts a guard in front of a connection. One that speaks HTTP/2 is watched for frames that
// never end. No bytes may have been read from it but those of requests that were answered, of which
// served tells, unless it returns them again.
func (l *Listener) Guard(conn net.Conn, served bool) net.Conn {
	b := &l.port.bounds
	g := &guard{
		Conn: conn, maxHeader: int(b.MaxHeader), headerTimeout: b.HeaderTimeout, h2c: l.H2C, served: served,
		listener: l, port: l.port,
	}
	g.reads.conn = conn
	if t, ok := conn.(tlsConn); ok {
		if state := t.ConnectionState(); state.NegotiatedProtocol == "h2" {
			if !mayCarryHTTP2(state) {
				conn.Close()
			}
			return newFrames(conn, b.HeaderTimeout)
		}
		return secure{g}
	}
	return g
}

// NetConn is the connection below.
func (g *guard) NetConn() net.Conn { return g.Conn }

// CloseWrite tells the client that nothing more comes.
func (g *guard) CloseWrite() error { return endWrites(g.Conn) }

// release ends the guard's work, because the connection was taken over for another protocol. It is
// called by what took it over: bytes of a response would not tell, as upstreams choose them.
func (g *guard) release() { g.hijacked.Store(true) }

// Read reads bytes that were checked.
func (g *guard) Read(p []byte) (int, error) {
	n, err := g.read(p)
	// net/http gives up reading the rest of a body after a while
	g.unread.Store((err == nil || errors.Is(err, os.ErrDeadlineExceeded)) && (g.state == inBody || g.state == inChunks))
	if g.http2 != nil && !g.http2.follow(p[:n]) {
		return 0, ErrUnclear
	}
	return n, err
}

func (g *guard) read(p []byte) (int, error) {
	if len(p) == 0 {
		return 0, nil
	}
	for {
		if len(g.ready) > 0 {
			return g.take(p), nil
		}
		if g.err == ErrUnclear && g.state == inHeader {
			g.ready, g.err = []byte(nonsense), io.EOF
			continue
		}
		if g.err == ErrUnclear && len(p) == 1 {
			return g.overlook()
		}
		if g.err != nil {
			return 0, g.err
		}
		if g.hijacked.Load() || g.state == past {
			g.state = past
			if len(g.partial) > 0 {
				g.ready, g.partial = g.partial, nil
				continue
			}
			return g.Conn.Read(p)
		}
		if g.state == held {
			if len(p) == 1 && len(g.early) == 0 {
				return g.peek(p)
			}
			g.resume()
			continue
		}
		n, err := g.Conn.Read(p)
		if n > 0 {
			if n := g.handOn(p[:n]); n > 0 {
				return n, nil // an error is returned by the next Read
			}
		}
		if err != nil && len(g.ready) == 0 && g.err == nil {
			return 0, err
		}
	}
}

// peek passes on one byte while a request for an upgrade is answered. The others are held: whether
// they are another protocol's is not known yet. net/http reads one byte during a request, to notice
// that the client disconnects, and more only for the next request.
func (g *guard) peek(p []byte) (n int, err error) {
	if len(g.partial) > 0 {
		n, g.partial = copy(p, g.partial[:1]), g.partial[1:]
	} else {
		n, err = g.Conn.Read(p)
	}
	g.early = bytes.Clone(p[:n])
	return n, err
}

// overlook waits for the end of the connection, and drops what comes until then. net/http reads one
// byte during a request, to notice that the client disconnects. An error would cancel that request,
// and the wrong body is of a later one.
func (g *guard) overlook() (int, error) {
	var dropped [512]byte
	for {
		if _, err := g.Conn.Read(dropped[:]); err != nil {
			return 0, err
		}
	}
}

// resume checks what follows a request whose upgrade was not granted.
func (g *guard) resume() {
	b := append(g.early, g.partial...)
	g.state, g.passed, g.early, g.partial = inHeader, len(g.early), nil, nil
	if len(b) > 0 {
		g.check(b)
	}
}

// check checks bytes, and keeps those that cannot be passed on yet.
func (g *guard) check(b []byte) {
	n := g.look(b)
	g.ready, g.partial = b[:n:n], b[n:]
	if n > 0 {
		g.ready, g.passed = g.ready[g.passed:], 0
	}
	if len(g.partial) == 0 {
		g.partial = nil
	}
}

// take returns checked bytes.
func (g *guard) take(p []byte) int {
	n := copy(p, g.ready)
	if g.ready = g.ready[n:]; len(g.ready) == 0 {
		g.ready = nil
	}
	return n
}

// handOn checks bytes that were read into p, and returns how many of them may stay there. The rest
// is kept until its header is complete.
func (g *guard) handOn(p []byte) int {
	if len(g.partial) > 0 {
		g.check(append(g.partial, p...))
		return 0
	}
	n := g.look(p)
	if n < len(p) && g.err == nil {
		g.partial = bytes.Clone(p[n:])
	}
	return n
}

// look checks bytes, and returns how many of them may be passed on.
func (g *guard) look(b []byte) (n int) {
	for n < len(b) && g.err == nil {
		switch g.state {
		case inHeader:
			step, ok := g.header(b[n:])
			if !ok {
				return n
			}
			n += step
		case inBody:
			step := min(g.left, int64(len(b)-n))
			n += int(step)
			if g.left -= step; g.left == 0 {
				g.state = g.after
			}
		case inChunks:
			step, ended, err := g.chunks.follow(b[n:])
			if err != nil {
				g.unclear()
				return n + step - 1 // up to the wrong byte
			}
			n += step
			if ended {
				g.state = g.after
			}
		case held:
			return n
		case past:
			return len(b)
		}
	}
	return n
}

// header checks a header at the start of b, and reports false if it is incomplete.
func (g *guard) header(b []byte) (n int, whole bool) {
	n, whole, ok := headerEnd(b, g.looked)
	switch {
	case !ok:
		g.unclear()
		return 0, false
	case !whole && len(b) > g.maxHeader+8<<10: // net/http refuses it earlier, with 431
		g.state = past
		return len(b), true
	case !whole:
		g.looked = n
		g.hurry(true)
		return 0, false
	}
	g.looked = 0
	g.hurry(false)
	f, err := checkHeader(b[:n])
	switch {
	case err != nil || f.http2 && (!g.h2c || g.served):
		g.unclear()
		return 0, false
	case f.http2:
		g.state, g.http2 = past, &frames{reads: &g.reads, timeout: g.headerTimeout}
		return len(b), true
	}
	g.served = true
	g.after = inHeader
	if f.upgrade {
		g.after = held
	}
	switch {
	case f.chunked:
		g.state, g.chunks = inChunks, chunks{}
	case f.length > 0:
		g.state, g.left = inBody, f.length
	default:
		g.state = g.after
	}
	return n, true
}

func (g *guard) unclear() {
	g.err = ErrUnclear
	g.port.counts.unclear.Add(1)
}

// headerEnd finds the end of the header at the start of b. If it is incomplete, n is how far b was
// searched. It is not ok if a line ends without CR, or the first line is no request line.
func headerEnd(b []byte, looked int) (n int, whole, ok bool) {
	begin := 0
	for bytes.HasPrefix(b[begin:], []byte("\r\n")) { // empty lines before a request line
		begin += 2
	}
	at := max(looked, begin)
	for {
		i := bytes.IndexByte(b[at:], '\n')
		if i < 0 {
			return at, false, true
		}
		i += at
		if i == 0 || b[i-1] != '\r' {
			return 0, false, false
		}
		if i >= 3 && b[i-2] == '\n' && i-2 >= begin {
			return i + 1, true, true
		}
		// HTTP/0.9 has no version, and no header either
		if at == begin && bytes.Count(b[begin:i], []byte(" ")) < 2 {
			return 0, false, false
		}
		at = i + 1
	}
}

// hurry bounds the time for the rest of a header: net/http does not know yet that one has begun.
func (g *guard) hurry(on bool) { g.reads.hurry(on, g.headerTimeout) }

// SetReadDeadline sets the deadline for reads.
func (g *guard) SetReadDeadline(t time.Time) error { return g.reads.want(t) }

// SetDeadline sets the deadline for reads and writes.
func (g *guard) SetDeadline(t time.Time) error {
	if err := g.SetReadDeadline(t); err != nil {
		return err
	}
	return g.SetWriteDeadline(t)
}
