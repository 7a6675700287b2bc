package listen

import (
	"crypto/tls"
	"errors"
	"net"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/weirflow/weir/server/plain"

	"github.com/weirflow/weir/server/eventloop"
)

// A Conn is an accepted connection. Its remote address is the client's, by the PROXY protocol where
// that is used, and its writes have a deadline.
type Conn struct {
	net.Conn
	listener *Listener
	remote   net.Addr
	rest     []byte // bytes after a PROXY header that were not read yet
	requests atomic.Int64

	writeTimeout time.Duration // 0 if the connection below has it
	deadline     atomic.Int64  // the write deadline that bound set; Unix nanoseconds
	foreign      atomic.Bool   // a caller has set another one
	stuck        atomic.Bool   // a write has failed
	slow         atomic.Bool   // a body came too slowly
	restUnread   atomic.Bool   // a handler has returned before the body of its request was read

	mu          sync.Mutex
	closed      bool
	leaveClient func() // nil until the client is known
}

// RemoteAddr is the address of the client.
func (c *Conn) RemoteAddr() net.Addr { return c.remote }

// Read reads what the client sent.
func (c *Conn) Read(p []byte) (int, error) {
	if len(c.rest) > 0 {
		n := copy(p, c.rest)
		if c.rest = c.rest[n:]; len(c.rest) == 0 {
			c.rest = nil
		}
		return n, nil
	}
	return c.Conn.Read(p)
}

// Write writes to the client with a deadline: at least the write timeout, and at most a quarter
// more. So the deadline has to be set anew only after a quarter of the timeout, which saves system
// calls.
func (c *Conn) Write(p []byte) (int, error) {
	if err := c.bound(); err != nil {
		return 0, err
	}
	n, err := c.Conn.Write(p)
	if err != nil {
		c.stuck.Store(true)
	}
	return n, err
}

// WriteBuffers writes several buffers, in one system call if the connection is a socket.
func (c *Conn) WriteBuffers(b *net.Buffers) (int64, error) {
	if err := c.bound(); err != nil {
		return 0, err
	}
	var n int64
	var err error
	if w, ok := c.Conn.(plain.BuffersWriter); ok {
		n, err = w.WriteBuffers(b)
	} else {
		n, err = b.WriteTo(c.Conn)
	}
	if err != nil {
		c.stuck.Store(true)
	}
	return n, err
}

// Unread takes the bytes that Read would return before those of the socket.
func (c *Conn) Unread() []byte {
	rest := c.rest
	c.rest = nil
	return rest
}

// bound sets the deadline of a write.
func (c *Conn) bound() error {
	if c.writeTimeout == 0 || c.foreign.Load() {
		return nil
	}
	now := time.Now()
	if now.Add(c.writeTimeout).UnixNano() <= c.deadline.Load() {
		return nil
	}
	until := now.Add(c.writeTimeout + c.writeTimeout/4)
	c.deadline.Store(until.UnixNano())
	return c.Conn.SetWriteDeadline(until)
}

// SetWriteDeadline sets an earlier deadline in place of the write timeout. A later one, or the zero
// time, restores the write timeout: no caller can give a client more time.
func (c *Conn) SetWriteDeadline(t time.Time) error {
	if c.writeTimeout != 0 && t.After(time.Now().Add(c.writeTimeout)) {
		t = time.Time{}
	}
	c.foreign.Store(!t.IsZero())
	c.deadline.Store(0)
	return c.Conn.SetWriteDeadline(t)
}

// SetDeadline is SetReadDeadline and SetWriteDeadline.
func (c *Conn) SetDeadline(t time.Time) error {
	if err := c.Conn.SetReadDeadline(t); err != nil {
		return err
	}
	return c.SetWriteDeadline(t)
}

// CloseWrite closes the sending side.
func (c *Conn) CloseWrite() error { return endWrites(c.Conn) }

// Close releases the connection's place and closes it, in this order: a client that sees the end of
// its connection can take the place with a new one. What could not be written in time is dropped: the
// system would keep it for a client that reads nothing, without a place.
func (c *Conn) Close() error {
	c.leave()
	if tcp, ok := c.Conn.(interface{ SetLinger(int) error }); ok && c.stuck.Load() {
		_ = tcp.SetLinger(0) // it fails only where the socket is closed already
	}
	return c.Conn.Close()
}

// leave releases the connection's place, and its client's.
func (c *Conn) leave() {
	c.endRest()
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return
	}
	c.closed = true
	c.listener.port.places.leave()
	if c.leaveClient != nil {
		c.leaveClient()
	}
}

// of makes Close release the client's place, or releases it now if the connection is closed
// already.
func (c *Conn) of(leaveClient func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		leaveClient()
		return
	}
	c.leaveClient = leaveClient
}

// NetConn returns the underlying connection.
func (c *Conn) NetConn() net.Conn { return c.Conn }

// SyscallConn is the socket's. It fails while Read has bytes that were already read from the
// socket.
func (c *Conn) SyscallConn() (syscall.RawConn, error) {
	socket, ok := c.Conn.(syscall.Conn)
	if !ok || len(c.rest) > 0 {
		return nil, errors.ErrUnsupported
	}
	return socket.SyscallConn()
}

// ConnOf returns the Conn below a connection, nil for none.
func ConnOf(conn net.Conn) *Conn { return eventloop.Below[*Conn](conn) }

// secure is a TLS connection that speaks HTTP/1.1. net/http recognises TLS by ConnectionState.
type secure struct{ *guard }

// tlsConn is a connection under TLS.
type tlsConn interface{ ConnectionState() tls.ConnectionState }

// ConnectionState is that of the TLS.
func (s secure) ConnectionState() tls.ConnectionState { return s.Conn.(tlsConn).ConnectionState() }
