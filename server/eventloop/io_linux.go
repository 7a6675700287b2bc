package eventloop

import (
	"io"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// mostAtOnce bounds what one system call copies: the garbage collector waits for it.
const mostAtOnce = 64 << 10

// TryRead reads what was received. If nothing was, it fails with ErrNotReady, or after the deadline of
// reads with os.ErrDeadlineExceeded. Mostly, it knows that without asking the system. Only Serve calls it.
func (c *Conn) TryRead(p []byte) (int, error) {
	if c.state.Load()&(readable|closed) != 0 {
		if n, err := c.readNow(p); err != unix.EAGAIN {
			return n, c.readError(n, err)
		}
	}
	if err := c.inTime(&toRead); err != nil {
		return 0, c.failed("read", err)
	}
	return 0, ErrNotReady
}

// readNow reads what was received. When it begins, it takes note of all events so far: one that comes
// later is about something that it may not have read.
func (c *Conn) readNow(p []byte) (int, error) {
	if !c.acquire() {
		return 0, net.ErrClosed
	}
	c.state.And(^readable)
	n, errno := read(c.fd, p)
	c.release()
	switch {
	case errno == unix.EAGAIN:
		return 0, unix.EAGAIN
	case errno != 0:
		c.state.Or(readable)
		return 0, errno
	case n == 0 || n == min(len(p), mostAtOnce) || c.state.Load()&(hungUp|urgent) != 0:
		c.state.Or(readable) // the end can be read again, and there may be more
	}
	return n, nil
}

func (c *Conn) readError(n int, err error) error {
	switch {
	case err == net.ErrClosed:
		return c.failed("read", err)
	case err != nil:
		return c.failed("read", os.NewSyscallError("read", err))
	case n == 0:
		return io.EOF
	}
	return nil
}

// Read waits until something was received, and reads it.
func (c *Conn) Read(p []byte) (int, error) {
	if len(p) == 0 {
		return 0, nil
	}
	for {
		if err := c.await(&toRead, 0); err != nil {
			return 0, c.failed("read", err)
		}
		n, err := c.readNow(p)
		if err == unix.EAGAIN {
			continue
		}
		return n, c.readError(n, err)
	}
}

// Write sends all of p, and waits for room if need be.
func (c *Conn) Write(p []byte) (sent int, err error) {
	c.writing.Lock()
	defer c.writing.Unlock()
	if err := c.inTime(&toWrite); err != nil {
		return 0, c.failed("write", err)
	}
	limit := int64(0)
	for sent < len(p) {
		n, err := c.writeNow(&limit, func() (int, unix.Errno) { return write(c.fd, p[sent:]) })
		if err != nil {
			return sent, c.failed("write", err)
		}
		sent += n
	}
	return sent, nil
}

// WriteBuffers sends several buffers, mostly with one system call. It consumes them.
func (c *Conn) WriteBuffers(buffers *net.Buffers) (sent int64, err error) {
	c.writing.Lock()
	defer c.writing.Unlock()
	if err := c.inTime(&toWrite); err != nil {
		return 0, c.failed("write", err)
	}
	limit := int64(0)
	var room [4]unix.Iovec
	for {
		parts, left := room[:0], mostAtOnce
		for _, b := range *buffers {
			if b = b[:min(len(b), left)]; len(b) > 0 {
				parts = append(parts, unix.Iovec{Base: unsafe.SliceData(b)})
				parts[len(parts)-1].SetLen(len(b))
			}
			if left -= len(b); left == 0 || len(parts) == cap(parts) {
				break
			}
		}
		if len(parts) == 0 {
			return sent, nil
		}
		n, err := c.writeNow(&limit, func() (int, unix.Errno) { return writev(c.fd, parts) })
		if err != nil {
			return sent, c.failed("write", err)
		}
		sent += int64(n)
		consume(buffers, n)
	}
}

// consume removes the first n bytes.
func consume(buffers *net.Buffers, n int) {
	for len(*buffers) > 0 && len((*buffers)[0]) <= n {
		n -= len((*buffers)[0])
		(*buffers)[0] = nil
		*buffers = (*buffers)[1:]
	}
	if n > 0 {
		(*buffers)[0] = (*buffers)[0][n:]
	}
}

// writeNow makes a system call that writes, again after each wait for room. limit is when the write ends
// by its timeout; 0 before its first wait.
func (c *Conn) writeNow(limit *int64, call func() (int, unix.Errno)) (int, error) {
	for {
		if !c.acquire() {
			return 0, net.ErrClosed
		}
		c.state.And(^writable)
		n, errno := call()
		if errno == unix.EAGAIN && !c.asksForRoom() {
			errno = unix.ENOMEM
		}
		c.release()
		switch errno {
		case 0:
			return n, nil
		case unix.EAGAIN:
			if d := c.writeTimeout.Load(); d != 0 && *limit == 0 {
				*limit = c.loop.group.now() + d
			}
			if err := c.await(&toWrite, *limit); err != nil {
				return 0, err
			}
		default:
			return 0, os.NewSyscallError("write", errno)
		}
	}
}

// asksForRoom registers the connection for events of room to send, at the first write that lacks it:
// most connections never do.
func (c *Conn) asksForRoom() bool {
	if c.state.Or(asksOut)&asksOut != 0 {
		return true
	}
	return c.loop.control(unix.EPOLL_CTL_MOD, c, received|unix.EPOLLOUT) == nil
}

// A direction is what a goroutine waits for.
type direction struct {
	bit      uint32
	index    int
	deadline func(*Conn) *atomic.Int64
}

var (
	toRead  = direction{readable, 0, func(c *Conn) *atomic.Int64 { return &c.reads }}
	toWrite = direction{writable, 1, func(c *Conn) *atomic.Int64 { return &c.writes }}
)

// blocked is what the goroutines that wait for a connection share.
type blocked struct {
	changed sync.Cond
	waiting [2]int         // goroutines, by direction
	timers  [2]*time.Timer // which end their waits; nil before the first
}

// inTime is an error if the deadline has passed.
func (c *Conn) inTime(d *direction) error {
	if until := d.deadline(c).Load(); until != 0 && c.loop.group.now() >= until {
		return os.ErrDeadlineExceeded
	}
	return nil
}

// await waits until the connection is ready, within its deadline, and until limit if that is not 0.
func (c *Conn) await(d *direction, limit int64) error {
	if c.isClosed() {
		return net.ErrClosed
	}
	if err := c.inTime(d); err != nil || c.state.Load()&d.bit != 0 {
		return err
	}
	c.Detach()
	c.mu.Lock()
	defer c.mu.Unlock()
	b := c.blocked
	if b == nil {
		b = &blocked{}
		b.changed.L = &c.mu
		c.blocked = b
	}
	b.waiting[d.index]++
	c.state.Or(awaited) // before the state is looked at
	defer func() {
		if b.waiting[d.index]--; b.waiting[d.index] == 0 && b.timers[d.index] != nil {
			b.timers[d.index].Stop()
		}
		if b.waiting == [2]int{} {
			c.state.And(^awaited)
		}
	}()
	for {
		s := c.state.Load()
		if s&closed != 0 {
			return net.ErrClosed
		}
		until := d.deadline(c).Load()
		if until == 0 || limit != 0 && limit < until {
			until = limit
		}
		if until != 0 {
			left := time.Duration(until - c.loop.group.now())
			if left <= 0 {
				return os.ErrDeadlineExceeded
			}
			if s&d.bit == 0 {
				c.arm(d, left)
			}
		}
		if s&d.bit != 0 {
			return nil
		}
		b.changed.Wait()
	}
}

// arm has the goroutines look at the deadline then. c.mu is locked.
func (c *Conn) arm(d *direction, left time.Duration) {
	if t := c.blocked.timers[d.index]; t != nil {
		t.Reset(left)
		return
	}
	c.blocked.timers[d.index] = time.AfterFunc(left, c.tell)
}

// tell wakes the goroutines that wait for the connection, so that they look at it again.
func (c *Conn) tell() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.blocked != nil {
		c.blocked.changed.Broadcast()
	}
}

// SyscallConn gives access to the socket.
func (c *Conn) SyscallConn() (syscall.RawConn, error) { return (*rawConn)(c), nil }

// rawConn is the socket of a connection.
type rawConn Conn

// Control calls f with the file descriptor.
func (r *rawConn) Control(f func(fd uintptr)) error {
	c := (*Conn)(r)
	return c.option("raw-control", func() error {
		f(uintptr(c.fd))
		return nil
	})
}

// Read calls f until it reports true, each time when something was received.
func (r *rawConn) Read(f func(fd uintptr) bool) error {
	return (*Conn)(r).repeat("raw-read", &toRead, f)
}

// Write calls f until it reports true, each time when there is room to send.
func (r *rawConn) Write(f func(fd uintptr) bool) error {
	return (*Conn)(r).repeat("raw-write", &toWrite, f)
}

func (c *Conn) repeat(op string, d *direction, f func(fd uintptr) bool) error {
	if err := c.inTime(d); err != nil {
		return c.failed(op, err)
	}
	for {
		done := false
		if err := c.option(op, func() error {
			c.state.And(^d.bit)
			if done = f(uintptr(c.fd)); done {
				c.state.Or(d.bit) // it may have left something
			} else if d == &toWrite && !c.asksForRoom() {
				return unix.ENOMEM
			}
			return nil
		}); err != nil {
			return err
		}
		if done {
			return nil
		}
		if err := c.await(d, 0); err != nil {
			return c.failed(op, err)
		}
	}
}
