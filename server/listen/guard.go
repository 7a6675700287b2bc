package listen

import (
	"bytes"
	"io"
	"net"
	"sync"
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
	port          *Port

	// Used by one reader at a time.
	state   guardState
	left    int64 // of a body
	chunks  chunks
	ready   []byte // checked, to be passed on
	partial []byte // received, not checked completely
	looked  int    // bytes of partial that contain no end of a header
	err     error  // the end

	upgrade atomic.Bool // a request asked for an upgrade
	opaque  atomic.Bool // and got it: nothing is checked any more

	mu     sync.Mutex // for the deadlines of reads
	wanted time.Time  // by net/http
	own    time.Time  // for the rest of a header
}

type guardState uint8

const (
	inHeader guardState = iota
	inBody
	inChunks
	past // nothing is checked any more
)

// nonsense replaces a refused request: net/http responds to it with 400, after the responses to
// earlier requests, and closes. It is sent alone: net/http reads one byte ahead during a request,
// and would cancel the request at an end of file. In the middle of a body, an error is returned
// instead.
const nonsense = "?\r\n\r\n"

// Guard puts a guard in front of a connection, unless it speaks HTTP/2 over TLS. No bytes may have
// been read from it, unless it returns them again.
func (l *Listener) Guard(conn net.Conn) net.Conn {
	b := &l.port.bounds
	g := &guard{Conn: conn, maxHeader: int(b.MaxHeader), headerTimeout: b.HeaderTimeout, h2c: l.H2C, port: l.port}
	if t, ok := conn.(tlsConn); ok {
		if t.ConnectionState().NegotiatedProtocol == "h2" {
			return conn
		}
		return secure{g}
	}
	return g
}

// NetConn is the connection below.
func (g *guard) NetConn() net.Conn { return g.Conn }

// CloseWrite tells the client that nothing more comes.
func (g *guard) CloseWrite() error {
	if w, ok := g.Conn.(interface{ CloseWrite() error }); ok {
		return w.CloseWrite()
	}
	return nil
}

// Write writes to the client. A response that switches protocols ends the guard's work.
func (g *guard) Write(p []byte) (int, error) {
	if g.upgrade.Load() && bytes.HasPrefix(p, []byte("HTTP/1.1 101 ")) {
		g.opaque.Store(true)
	}
	return g.Conn.Write(p)
}

// Read reads bytes that were checked.
func (g *guard) Read(p []byte) (int, error) {
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
		if g.err != nil {
			return 0, g.err
		}
		if g.opaque.Load() || g.state == past {
			g.state = past
			if len(g.partial) > 0 {
				g.ready, g.partial = g.partial, nil
				continue
			}
			return g.Conn.Read(p)
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
		g.partial = append(g.partial, p...)
		n := g.look(g.partial)
		g.ready, g.partial = g.partial[:n:n], g.partial[n:]
		if len(g.partial) == 0 {
			g.partial = nil
		}
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
				g.state = inHeader
			}
		case inChunks:
			step, ended, err := g.chunks.follow(b[n:])
			if err != nil {
				g.unclear()
				return n + step - 1 // up to the wrong byte
			}
			n += step
			if ended {
				g.state = inHeader
			}
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
	case err != nil || f.http2 && !g.h2c:
		g.unclear()
		return 0, false
	case f.http2:
		g.state = past
		return len(b), true
	}
	g.upgrade.Store(f.upgrade)
	switch {
	case f.chunked:
		g.state, g.chunks = inChunks, chunks{}
	case f.length > 0:
		g.state, g.left = inBody, f.length
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
func (g *guard) hurry(on bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if on == !g.own.IsZero() {
		return
	}
	g.own = time.Time{}
	if on {
		g.own = time.Now().Add(g.headerTimeout)
	}
	_ = g.deadline() // reading reports a closed connection
}

// SetReadDeadline sets the deadline for reads.
func (g *guard) SetReadDeadline(t time.Time) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.wanted = t
	return g.deadline()
}

// SetDeadline sets the deadline for reads and writes.
func (g *guard) SetDeadline(t time.Time) error {
	if err := g.SetReadDeadline(t); err != nil {
		return err
	}
	return g.SetWriteDeadline(t)
}

// deadline sets the earlier of the two. The lock must be held.
func (g *guard) deadline() error {
	t := g.wanted
	if t.IsZero() || !g.own.IsZero() && g.own.Before(t) {
		t = g.own
	}
	return g.Conn.SetReadDeadline(t)
}
