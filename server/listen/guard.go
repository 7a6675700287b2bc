package listen

import (
	"bytes"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"time"
)

// A guard reads along with net/http on a connection that speaks HTTP/1: it finds where each request begins and ends, and hands on a header
// only when the whole of it has come and can be read in one way alone. net/http forgets what it saw of some of these things before a
// handler could ask: that there was a Content-Length beside a Transfer-Encoding, say.
//
// A connection without a request under way holds no memory for it.
type guard struct {
	net.Conn
	maxHeader     int
	headerTimeout time.Duration
	h2c           bool
	port          *Port

	// What one goroutine at a time reads.
	state   guardState
	left    int64 // of a body
	chunks  chunks
	ready   []byte // may be handed on
	partial []byte // came, and was not looked at to the end
	looked  int    // bytes of partial in which there is no end of a header
	err     error  // the end

	upgrade atomic.Bool // a request asked for another protocol
	opaque  atomic.Bool // and got it: nothing is looked at any more

	mu     sync.Mutex // for the deadlines of reads
	wanted time.Time  // by net/http
	own    time.Time  // for the rest of a header
}

type guardState uint8

const (
	inHeader guardState = iota
	inBody
	inChunks
	past // nothing is looked at any more
)

// nonsense is what net/http is handed in place of a request that is refused: it answers 400, after the answers before it, and closes. It comes
// alone: while a request is answered net/http reads a byte ahead, and what it finds then must be this and not the end, for which it would
// give the request up. In the middle of a body it is the error that tells.
const nonsense = "?\r\n\r\n"

// Guard puts a guard before a connection, unless it speaks HTTP/2 over TLS. Nothing of it may have been read, or what was must be read again
// from it.
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

// Write writes to the client. The answer that changes the protocol ends the guard's work.
func (g *guard) Write(p []byte) (int, error) {
	if g.upgrade.Load() && bytes.HasPrefix(p, []byte("HTTP/1.1 101 ")) {
		g.opaque.Store(true)
	}
	return g.Conn.Write(p)
}

// Read reads what may be handed on.
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
				return n, nil // the error, if there is one, comes again
			}
		}
		if err != nil && len(g.ready) == 0 && g.err == nil {
			return 0, err
		}
	}
}

// take hands on what is ready.
func (g *guard) take(p []byte) int {
	n := copy(p, g.ready)
	if g.ready = g.ready[n:]; len(g.ready) == 0 {
		g.ready = nil
	}
	return n
}

// handOn looks at bytes that came into p, and returns how many of them may stay there. The rest waits, and what was looked at but came
// before them is ready.
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

// look looks at bytes, and returns how many of them may be handed on.
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
				return n + step - 1 // up to the byte that is wrong
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

// header looks at what begins with a header, and reports false where that is not whole.
func (g *guard) header(b []byte) (n int, whole bool) {
	n, whole, ok := headerEnd(b, g.looked)
	switch {
	case !ok:
		g.unclear()
		return 0, false
	case !whole && len(b) > g.maxHeader+8<<10: // net/http has less patience, and says 431
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

// headerEnd finds where the header ends that b begins with. Where it is not whole, n is how far there was nothing to be found. It is not ok
// where a line ends without a CR, or the first line cannot be a request's.
func headerEnd(b []byte, looked int) (n int, whole, ok bool) {
	begin := 0
	for bytes.HasPrefix(b[begin:], []byte("\r\n")) { // before a request line
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
		if at == begin && bytes.Count(b[begin:i], []byte(" ")) < 2 { // HTTP/0.9 has no version, and no header either
			return 0, false, false
		}
		at = i + 1
	}
}

// hurry bounds the time for the rest of a header, of which net/http does not know yet that it has begun.
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
	_ = g.deadline() // on a connection that has ended, reading says so
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
