//go:build !linux

package eventloop

import (
	"net"
	"syscall"
	"time"
)

// A Group takes no connection on this system.
type Group struct{}

// New returns nil.
func New() *Group { return nil }

// Take reports false.
func (g *Group) Take(net.Conn) (*Conn, bool) { return nil, false }

// Close does nothing.
func (g *Group) Close() {}

// A Conn is a connection in a loop: there is none on this system.
type Conn struct{ net.Conn }

// Start does nothing, as all methods here.
func (c *Conn) Start(Handler, int64) {}

// Now is the time on the clock of Wait.
func (c *Conn) Now() int64 { return 0 }

// Wait reports false.
func (c *Conn) Wait(int64) bool { return false }

// Again reports false.
func (c *Conn) Again() bool { return false }

// Detach does nothing.
func (c *Conn) Detach() {}

// Leave does nothing.
func (c *Conn) Leave() {}

// Wake does nothing.
func (c *Conn) Wake() {}

// HasHungUp reports false.
func (c *Conn) HasHungUp() bool { return false }

// TryRead fails with ErrNotReady.
func (c *Conn) TryRead([]byte) (int, error) { return 0, ErrNotReady }

// WriteBuffers writes several buffers.
func (c *Conn) WriteBuffers(b *net.Buffers) (int64, error) { return b.WriteTo(c.Conn) }

// SetWriteTimeout does nothing.
func (c *Conn) SetWriteTimeout(time.Duration) {}

// CloseWrite, SetLinger and SyscallConn are not available.
func (c *Conn) CloseWrite() error { return syscall.EINVAL }

// SetLinger is not available.
func (c *Conn) SetLinger(int) error { return syscall.EINVAL }

// SyscallConn is not available.
func (c *Conn) SyscallConn() (syscall.RawConn, error) { return nil, syscall.EINVAL }
