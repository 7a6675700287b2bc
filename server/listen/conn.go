package listen

import (
	"crypto/tls"
	"errors"
	"net"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

// A Conn is a connection that was let in: its address is that of the client, also where the PROXY protocol told it, and each of its
// writes ends in time.
type Conn struct {
	net.Conn
	listener *Listener
	remote   net.Addr
	rest     []byte // what came after a PROXY header, and was not read yet
	requests atomic.Int64

	writeTimeout time.Duration
	deadline     atomic.Int64 // for writes, as it was last set here; Unix nanoseconds
	foreign      atomic.Bool  // somebody else has set one

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

// Write writes to the client, who has to take it within the write timeout. The deadline is set anew when a quarter of it has gone by: a write
// has between one and one and a quarter of the timeout.
func (c *Conn) Write(p []byte) (int, error) {
	if err := c.bound(); err != nil {
		return 0, err
	}
	return c.Conn.Write(p)
}

// WriteBuffers writes several buffers, in one call of the system where the connection is a socket.
func (c *Conn) WriteBuffers(b *net.Buffers) (int64, error) {
	if err := c.bound(); err != nil {
		return 0, err
	}
	return b.WriteTo(c.Conn)
}

// bound sees to it that a write ends in time.
func (c *Conn) bound() error {
	if c.foreign.Load() {
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

// SetWriteDeadline sets a deadline for writes, in place of the write timeout. One that is later than that, and the zero time, bring it back: nobody gives
// a client more time.
func (c *Conn) SetWriteDeadline(t time.Time) error {
	if t.After(time.Now().Add(c.writeTimeout)) {
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

// CloseWrite tells the client that nothing more comes.
func (c *Conn) CloseWrite() error {
	if w, ok := c.Conn.(interface{ CloseWrite() error }); ok {
		return w.CloseWrite()
	}
	return nil
}

// Close ends the connection, and gives its place back.
func (c *Conn) Close() error {
	err := c.Conn.Close()
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return err
	}
	c.closed = true
	c.listener.port.places.leave()
	if c.leaveClient != nil {
		c.leaveClient()
	}
	return err
}

// of has the connection give a client's place back when it is closed, which may be now.
func (c *Conn) of(leaveClient func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		leaveClient()
		return
	}
	c.leaveClient = leaveClient
}

// NetConn is the connection below.
func (c *Conn) NetConn() net.Conn { return c.Conn }

// SyscallConn is that of the socket, unless bytes have been read from it that Read gives first.
func (c *Conn) SyscallConn() (syscall.RawConn, error) {
	socket, ok := c.Conn.(syscall.Conn)
	if !ok || len(c.rest) > 0 {
		return nil, errors.ErrUnsupported
	}
	return socket.SyscallConn()
}

// ConnOf finds the Conn that a connection was made of, nil where it was made of none.
func ConnOf(conn net.Conn) *Conn {
	for {
		switch c := conn.(type) {
		case *Conn:
			return c
		case interface{ NetConn() net.Conn }:
			conn = c.NetConn()
		default:
			return nil
		}
	}
}

// secure is a connection under TLS that speaks HTTP/1.1. net/http learns of the TLS by ConnectionState.
type secure struct{ *guard }

// tlsConn is a connection under TLS.
type tlsConn interface{ ConnectionState() tls.ConnectionState }

// ConnectionState is that of the TLS.
func (s secure) ConnectionState() tls.ConnectionState { return s.Conn.(tlsConn).ConnectionState() }
