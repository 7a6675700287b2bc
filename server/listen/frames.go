package listen

import (
	"crypto/tls"
	"encoding/binary"
	"io"
	"net"
	"strings"
	"time"
)

// frames reads an HTTP/2 connection before net/http does, and follows its frames. net/http waits for
// the rest of a frame, and of a header in several frames, for as long as the connection lives, and
// meanwhile handles no other frame of the connection. So whatever has begun must be complete within
// the header timeout. The payload of DATA is left to the bounds of bodies.
//
// It also holds the connection to the preface of HTTP/2: net/http would serve HTTP/1 without a guard.
type frames struct {
	net.Conn
	reads   *readDeadline
	timeout time.Duration

	// Used by one reader at a time.
	preface int     // bytes of the preface that were received
	header  [9]byte // of the frame that is received
	n       int     // bytes of header that were received
	left    uint32  // bytes of the payload that are due
	data    bool    // the frame is DATA
	open    bool    // a header has begun, and its last frame has not been received
	whole   bool    // something has become complete in the bytes that are followed
}

const preface = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"

// Types and flags of frames (RFC 9113).
const (
	frameData         = 0
	frameHeaders      = 1
	frameContinuation = 9
	flagEndHeaders    = 4
)

func newFrames(conn net.Conn, timeout time.Duration) *frames {
	return &frames{Conn: conn, reads: &readDeadline{conn: conn}, timeout: timeout}
}

// Read reads what the client sent.
func (f *frames) Read(p []byte) (int, error) {
	n, err := f.Conn.Read(p)
	if !f.follow(p[:n]) {
		f.Conn.Close() // net/http would send a response of HTTP/1, which this client has not agreed to
		return 0, io.ErrUnexpectedEOF
	}
	return n, err
}

// follow reports false for bytes that are no HTTP/2.
func (f *frames) follow(b []byte) bool {
	if f.preface < len(preface) && len(b) > 0 {
		n := min(len(preface)-f.preface, len(b))
		if string(b[:n]) != preface[f.preface:f.preface+n] {
			return false
		}
		f.preface, b = f.preface+n, b[n:]
		f.whole = f.preface == len(preface)
	}
	for len(b) > 0 {
		b = f.frame(b)
	}
	if f.whole {
		f.reads.hurry(false, 0) // what has begun since then has its own time
	}
	f.whole = false
	f.reads.hurry(f.preface > 0 && f.preface < len(preface) || f.open || f.n > 0 && !f.data, f.timeout)
	return true
}

// frame follows one frame, and returns what is behind it.
func (f *frames) frame(b []byte) []byte {
	if f.n < len(f.header) {
		n := copy(f.header[f.n:], b)
		if f.n, b = f.n+n, b[n:]; f.n < len(f.header) {
			return b
		}
		f.left = binary.BigEndian.Uint32(append([]byte{0}, f.header[:3]...))
		f.data = f.header[3] == frameData
		f.open = f.open || f.header[3] == frameHeaders
	}
	n := min(int(f.left), len(b))
	if f.left -= uint32(n); f.left == 0 {
		if t := f.header[3]; (t == frameHeaders || t == frameContinuation) && f.header[4]&flagEndHeaders != 0 {
			f.open = false
		}
		f.n, f.data, f.whole = 0, false, f.whole || !f.open
	}
	return b[n:]
}

// SetReadDeadline sets the deadline for reads.
func (f *frames) SetReadDeadline(t time.Time) error { return f.reads.want(t) }

// SetDeadline sets the deadline for reads and writes.
func (f *frames) SetDeadline(t time.Time) error {
	if err := f.SetReadDeadline(t); err != nil {
		return err
	}
	return f.SetWriteDeadline(t)
}

// NetConn is the connection below.
func (f *frames) NetConn() net.Conn { return f.Conn }

// CloseWrite tells the client that nothing more comes.
func (f *frames) CloseWrite() error { return endWrites(f.Conn) }

// tlsOf returns the state of the TLS that an HTTP/2 connection is under; nil without TLS. net/http
// does not know it: for its sake the connection would have to be a *tls.Conn, in front of which
// nothing can read.
func tlsOf(conn net.Conn) *tls.ConnectionState {
	f, ok := conn.(*frames)
	if !ok {
		return nil
	}
	t, ok := f.Conn.(tlsConn)
	if !ok {
		return nil
	}
	state := t.ConnectionState()
	return &state
}

// mayCarryHTTP2 reports whether HTTP/2 allows the cipher suite of a connection (RFC 9113, 9.2.2).
func mayCarryHTTP2(state tls.ConnectionState) bool {
	if state.Version >= tls.VersionTLS13 {
		return true
	}
	name := tls.CipherSuiteName(state.CipherSuite)
	return strings.HasPrefix(name, "TLS_ECDHE_") && (strings.Contains(name, "_GCM_") || strings.Contains(name, "_CHACHA20_"))
}
