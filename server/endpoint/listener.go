package endpoint

import (
	"errors"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/weirflow/weir/server/descriptors"
)

// listener is a socket with a bound on its connections. A connection beyond it is closed at once, after
// the farewell. So is one that has a file descriptor of those kept for operators.
type listener struct {
	net.Listener
	farewell        string // in the face's protocol; empty for none
	spare           descriptors.Reserve
	max             atomic.Int64
	open, accepted  atomic.Int64
	full, exhausted atomic.Int64 // refused beyond max, and for lack of descriptors
}

// Bounded returns a listener that accepts at most the default of max_connections at once, and leaves
// operators their file descriptors. It is for pages of a face that have an address of their own.
func Bounded(l net.Listener) net.Listener { return newListener(l, 0) }

func newListener(l net.Listener, most int) *listener {
	bounded := &listener{Listener: l, spare: descriptors.Current()}
	bounded.setMax(most)
	return bounded
}

// setMax changes the bound for connections to come; 0 is the default.
func (l *listener) setMax(most int) {
	if most == 0 {
		most = defaultMaxConnections
	}
	l.max.Store(int64(most))
}

// Accept returns the next connection within the bound.
func (l *listener) Accept() (net.Conn, error) {
	for {
		c, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		if !l.spare.AdmitsClient(c) {
			l.exhausted.Add(1)
			l.refuse(c)
			continue
		}
		if l.open.Add(1) > l.max.Load() {
			l.open.Add(-1)
			l.full.Add(1)
			l.refuse(c)
			continue
		}
		l.accepted.Add(1)
		return &conn{Conn: c, left: sync.OnceFunc(func() { l.open.Add(-1) })}, nil
	}
}

// farewellTime bounds the write of a farewell, which a new connection always has room for.
const farewellTime = 10 * time.Millisecond

func (l *listener) refuse(c net.Conn) {
	if l.farewell != "" && c.SetWriteDeadline(time.Now().Add(farewellTime)) == nil {
		_, _ = io.WriteString(c, l.farewell) // the client may have gone
	}
	c.Close()
}

// conn is a connection that counts until it is closed.
type conn struct {
	net.Conn
	left func()
}

// SyscallConn is the socket's, for those who wait for it without a buffer.
func (c *conn) SyscallConn() (syscall.RawConn, error) {
	if socket, ok := c.Conn.(syscall.Conn); ok {
		return socket.SyscallConn()
	}
	return nil, errors.ErrUnsupported
}

// NetConn is the connection below.
func (c *conn) NetConn() net.Conn { return c.Conn }

// Close closes the connection, and makes room for another.
func (c *conn) Close() error {
	c.left()
	return c.Conn.Close()
}
