package eventloop

import (
	"net"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/weirflow/weir/internal/heap"
)

// A Conn is a connection in a loop. A Handler serves it there, or any goroutine uses it as a net.Conn.
// The methods of net.Conn are safe for concurrent use; the others say who may call them.
type Conn struct {
	loop    *loop
	fd      int
	at, age uint32 // its slot
	handler Handler
	remote  net.Addr
	local   net.Addr

	state atomic.Uint32 // bits
	users atomic.Int32  // of fd: system calls that run, 1 for the connection itself, and fdClosed
	turn  atomic.Uint64 // the last that served it

	until atomic.Int64 // when its wait in the loop ends; 0 for never
	due   atomic.Int64 // its key among the loop's dues; 0 for none. Changed under the loop's lock
	node  heap.Node[Conn]

	reads, writes atomic.Int64 // deadlines on the Group's clock; 0 for none
	writeTimeout  atomic.Int64 // of each Write that has to wait; 0 for none
	writing       sync.Mutex   // held by a Write, so that two do not mix

	mu      sync.Mutex
	blocked *blocked // the goroutines that wait for the connection; nil before the first
}

// The bits of a Conn's state.
const (
	// something was received since the last read began, or the last read left something
	readable uint32 = 1 << iota
	writable        // there is room to send since the last write failed for lack of it
	hungUp          // the client has closed its sending side, or the connection is broken
	parked          // no goroutine serves the connection: the next event, Wake or the end of its wait does
	woken           // Wake was called while it was not parked
	started         // the Handler is there
	closed
	awaited // goroutines may wait for the connection, and are woken by changes
	asksOut // it is registered for writable
	urgent  // urgent data has come: a read ends before it, although there may be more
)

// fdClosed says that the file descriptor is to be closed by its last user.
const fdClosed = 1 << 30

// Take moves a TCP connection to a loop: its socket gets a new file descriptor, and nc is closed. For
// any other connection, and where the system lacks descriptors, it reports false, and nc stays as it
// is.
func (g *Group) Take(nc net.Conn) (*Conn, bool) {
	tcp, ok := nc.(*net.TCPConn)
	if g == nil || !ok {
		return nil, false
	}
	raw, err := tcp.SyscallConn()
	if err != nil {
		return nil, false
	}
	l := g.enter()
	if l == nil {
		return nil, false
	}
	c := &Conn{loop: l, fd: -1, remote: nc.RemoteAddr(), local: g.shared(nc.LocalAddr())}
	c.users.Store(1)
	if raw.Control(func(fd uintptr) { c.fd, err = unix.FcntlInt(fd, unix.F_DUPFD_CLOEXEC, 0) }) != nil || err != nil {
		g.leave()
		return nil, false
	}
	if !l.add(c) {
		unix.Close(c.fd) //nolint:errcheck // nc has the socket, too
		g.leave()
		return nil, false
	}
	tcp.Close()
	return c, true
}

// shared returns an address that equals the local address of a connection: most have the same, and
// share one.
func (g *Group) shared(addr net.Addr) net.Addr {
	tcp, ok := addr.(*net.TCPAddr)
	if !ok {
		return addr
	}
	if last := g.local.Load(); last != nil && last.Port == tcp.Port && last.Zone == tcp.Zone && last.IP.Equal(tcp.IP) {
		return last
	}
	g.local.Store(tcp)
	return addr
}

// Start gives the connection to its Handler. The loop calls Serve at once if something was received,
// and otherwise when it is or at the time until (see Wait). It is called once.
func (c *Conn) Start(h Handler, until int64) {
	c.handler = h
	c.state.Or(started)
	if !c.Wait(until) {
		c.loop.post(c)
	}
}

// Now is the time on the clock of Wait, in nanoseconds. While Serve runs in the driver, it is that of the
// last look for events, so that it costs nothing.
func (c *Conn) Now() int64 {
	if c.isInline() {
		return c.loop.now.Load()
	}
	return c.loop.group.now()
}

// isInline reports whether Serve runs in the driver. Only Serve calls it, and who makes the connection, before its
// first turn.
func (c *Conn) isInline() bool {
	owner := c.loop.owner.Load()
	return isRunning(owner) && owner == c.turn.Load()
}

// Wait hands the connection back to the loop, which serves it when something is received, when Wake is
// called, or at the time until (0 for never), or at the deadline of reads if that comes first. It reports
// false if there is a reason to serve it now: then the caller still has it. Only Serve calls it.
func (c *Conn) Wait(until int64) bool {
	if d := c.reads.Load(); d != 0 && (until == 0 || d < until) {
		until = d
	}
	c.until.Store(until)
	for {
		s := c.state.Load()
		if s&(readable|woken|closed) != 0 {
			c.state.And(^woken)
			return false
		}
		if c.state.CompareAndSwap(s, s|parked) {
			break
		}
	}
	// From here on, another goroutine may serve it. A wait that has replaced this one is no harm: what
	// is due too early waits on.
	if until != 0 {
		if due := c.due.Load(); due == 0 || until < due {
			c.loop.remind(c, until)
		}
	}
	return true
}

// Again has the connection served again, after others. It reports false if Serve runs detached: then
// no other connection waits for it. Only Serve calls it.
func (c *Conn) Again() bool {
	if !c.isInline() {
		return false
	}
	c.loop.post(c)
	return true
}

// Detach has another goroutine drive the loop, if Serve runs in the driver. What Serve does next may
// wait. Any goroutine may call it while Serve runs.
func (c *Conn) Detach() { c.loop.takeOver(c.turn.Load()) }

// Leave takes the connection from its Handler: the caller of Serve now uses it like any other net.Conn.
// Only Serve calls it.
func (c *Conn) Leave() { c.state.And(^started) }

// Wake has a connection served that waits in the loop. Any goroutine may call it.
func (c *Conn) Wake() {
	c.state.Or(woken)
	if c.unpark() {
		c.loop.post(c)
	}
}

// HasHungUp reports whether the client has closed its sending side, or the connection is broken. What
// it sent before may be unread.
func (c *Conn) HasHungUp() bool { return c.state.Load()&hungUp != 0 }

// unpark reports whether the caller has the connection served: it was parked.
func (c *Conn) unpark() bool {
	for {
		s := c.state.Load()
		if s&parked == 0 {
			return false
		}
		if c.state.CompareAndSwap(s, s&^(parked|woken)) {
			return true
		}
	}
}

// happened notes an event, and reports whether the connection is to be served.
func (c *Conn) happened(events uint32) bool {
	bits := uint32(0)
	if events&(unix.EPOLLIN|unix.EPOLLPRI|unix.EPOLLRDHUP|unix.EPOLLHUP|unix.EPOLLERR) != 0 {
		bits |= readable
	}
	if events&unix.EPOLLPRI != 0 {
		bits |= urgent
	}
	if events&(unix.EPOLLOUT|unix.EPOLLHUP|unix.EPOLLERR) != 0 {
		bits |= writable
	}
	if events&(unix.EPOLLRDHUP|unix.EPOLLHUP|unix.EPOLLERR) != 0 {
		bits |= hungUp
	}
	old := c.state.Or(bits)
	if old&awaited != 0 { // first: also while the Handler waits, other goroutines may wait for room to send
		c.tell()
	}
	if bits&readable != 0 && c.unpark() {
		return true
	}
	if bits&hungUp&^old != 0 && old&started != 0 {
		c.handler.HungUp()
	}
	return false
}

func (c *Conn) isClosed() bool { return c.state.Load()&closed != 0 }

// Close closes the connection. What waits for it ends with net.ErrClosed, and a connection that waits in
// the loop is served, so that its Handler learns of it.
func (c *Conn) Close() error {
	old := c.state.Or(closed)
	if old&closed != 0 {
		return c.failed("close", net.ErrClosed)
	}
	c.loop.remove(c)
	c.users.Or(fdClosed)
	c.release() // the connection's own
	if old&awaited != 0 {
		c.tell()
	}
	if c.unpark() {
		c.loop.post(c)
	}
	c.loop.group.leave()
	return nil
}

// acquire keeps the file descriptor open until release. It reports false if the connection is closed.
func (c *Conn) acquire() bool {
	for {
		n := c.users.Load()
		if n&fdClosed != 0 {
			return false
		}
		if c.users.CompareAndSwap(n, n+1) {
			return true
		}
	}
}

// release ends a use of the file descriptor, and closes it after the last one of a closed connection.
func (c *Conn) release() {
	if c.users.Add(-1) == fdClosed {
		unix.Close(c.fd) //nolint:errcheck // as by net: nothing could be done about it
	}
}

// CloseWrite tells the client that nothing more comes.
func (c *Conn) CloseWrite() error {
	return c.option("close", func() error { return unix.Shutdown(c.fd, unix.SHUT_WR) })
}

// SetLinger is that of a net.TCPConn. With 0, Close drops what was not sent.
func (c *Conn) SetLinger(seconds int) error {
	l := unix.Linger{}
	if seconds >= 0 {
		l = unix.Linger{Onoff: 1, Linger: int32(seconds)}
	}
	return c.option("set", func() error { return unix.SetsockoptLinger(c.fd, unix.SOL_SOCKET, unix.SO_LINGER, &l) })
}

func (c *Conn) option(op string, call func() error) error {
	if !c.acquire() {
		return c.failed(op, net.ErrClosed)
	}
	defer c.release()
	if err := call(); err != nil {
		return c.failed(op, err)
	}
	return nil
}

// failed returns an error as net's connections do.
func (c *Conn) failed(op string, err error) error {
	return &net.OpError{Op: op, Net: "tcp", Source: c.local, Addr: c.remote, Err: err}
}

// LocalAddr is the address of this side.
func (c *Conn) LocalAddr() net.Addr { return c.local }

// RemoteAddr is the address of the client.
func (c *Conn) RemoteAddr() net.Addr { return c.remote }

// SetReadDeadline sets when a Read, a TryRead or a Wait ends that still waits.
func (c *Conn) SetReadDeadline(t time.Time) error {
	err := c.setDeadline(t, &c.reads)
	if c.state.Load()&started != 0 && !t.IsZero() {
		c.Wake() // also a Wait that has not begun yet has an earlier deadline
	}
	return err
}

// SetWriteDeadline sets when a Write fails that still waits.
func (c *Conn) SetWriteDeadline(t time.Time) error { return c.setDeadline(t, &c.writes) }

// SetWriteTimeout sets how long each Write may wait, besides the deadline; 0 is no bound. A Write that need
// not wait costs no look at a clock then.
func (c *Conn) SetWriteTimeout(d time.Duration) { c.writeTimeout.Store(int64(d)) }

// SetDeadline sets both.
func (c *Conn) SetDeadline(t time.Time) error {
	if err := c.SetReadDeadline(t); err != nil {
		return err
	}
	return c.SetWriteDeadline(t)
}

func (c *Conn) setDeadline(t time.Time, of *atomic.Int64) error {
	if c.isClosed() {
		return c.failed("set", net.ErrClosed)
	}
	of.Store(c.loop.group.on(t))
	if c.state.Load()&awaited != 0 {
		c.tell()
	}
	return nil
}
