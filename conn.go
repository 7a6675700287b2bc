package weir

import (
	"net"
	"os"
	"sync"
	"time"
)

// NewConn returns a connection over c that limits rates of bytes, as NewReader and NewWriter do:
// bytes read are charged to read, and bytes written to write. A nil limiter means no limit. Both
// may be the same limiter, and many connections may share it.
//
// Deadlines count during waits. When a deadline passes, Read or Write returns
// os.ErrDeadlineExceeded: Write with the number of bytes already written, and Read without losing
// what was read. A deadline may be moved during a wait. Close ends all waits with net.ErrClosed.
func NewConn(c net.Conn, read, write *Limiter) net.Conn {
	limited := &conn{Conn: c, closed: make(chan struct{})}
	limited.in = direction{c: limited, l: read, busy: make(chan struct{}, 1), past: newDeadline()}
	limited.out = direction{c: limited, l: write, busy: make(chan struct{}, 1), past: newDeadline()}
	limited.src = reader{src: c, l: read, pay: limited.in.pay, ended: limited.in.ended}
	limited.dst = writer{dst: c, l: write, pay: limited.out.pay}
	return limited
}

type conn struct {
	net.Conn
	in, out direction
	src     reader // used only by the goroutine that holds in.busy
	dst     writer // used only by the goroutine that holds out.busy
	once    sync.Once
	closed  chan struct{}
}

// direction is one direction of a conn.
type direction struct {
	c    *conn
	l    *Limiter
	busy chan struct{} // holds one token while a goroutine reads or writes
	past *deadline
}

func (c *conn) Read(p []byte) (int, error) {
	if c.in.l == nil {
		return c.Conn.Read(p)
	}
	if err := c.in.begin(); err != nil {
		return 0, err
	}
	defer c.in.end()
	return c.src.Read(p)
}

func (c *conn) Write(p []byte) (int, error) {
	if c.out.l == nil {
		return c.Conn.Write(p)
	}
	if err := c.out.begin(); err != nil {
		return 0, err
	}
	defer c.out.end()
	return c.dst.Write(p)
}

func (c *conn) Close() error {
	c.once.Do(func() { close(c.closed) })
	return c.Conn.Close()
}

func (c *conn) SetDeadline(t time.Time) error {
	if err := c.Conn.SetDeadline(t); err != nil {
		return err
	}
	c.in.past.set(t)
	c.out.past.set(t)
	return nil
}

func (c *conn) SetReadDeadline(t time.Time) error {
	if err := c.Conn.SetReadDeadline(t); err != nil {
		return err
	}
	c.in.past.set(t)
	return nil
}

func (c *conn) SetWriteDeadline(t time.Time) error {
	if err := c.Conn.SetWriteDeadline(t); err != nil {
		return err
	}
	c.out.past.set(t)
	return nil
}

// begin waits until no other goroutine reads, or writes.
func (s *direction) begin() error {
	select {
	case s.busy <- struct{}{}:
		if err := s.ended(); err != nil {
			s.end()
			return err
		}
		return nil
	case <-s.past.passed():
		return os.ErrDeadlineExceeded
	case <-s.c.closed:
		return net.ErrClosed
	}
}

func (s *direction) end() { <-s.busy }

// ended returns the reason to stop, if there is one.
func (s *direction) ended() error {
	select {
	case <-s.c.closed:
		return net.ErrClosed
	case <-s.past.passed():
		return os.ErrDeadlineExceeded
	default:
		return nil
	}
}

// pay waits until n bytes may go. It follows a deadline that is moved during the wait.
func (s *direction) pay(n int64) error {
	if err := s.ended(); err != nil {
		return err
	}
	if s.l.Take(n).Allowed {
		return nil
	}
	place, d := s.l.Join(n, -1)
	if !d.Allowed {
		return &LimitedError{Decision: d}
	}
	if place == nil {
		return nil
	}
	for {
		select {
		case <-place.Ready():
			return place.Err()
		case <-s.past.passed():
		case <-s.c.closed:
		}
		if err := s.ended(); err != nil {
			if place.Leave() {
				return err
			}
			<-place.Ready()
			return place.Err()
		}
	}
}

// deadline is a deadline that can be moved, with a channel that is closed when it has passed.
type deadline struct {
	mu    sync.Mutex
	timer *time.Timer
	past  chan struct{} // closed once the deadline has passed; replaced when it is moved afterwards
}

func newDeadline() *deadline { return &deadline{past: make(chan struct{})} }

func (d *deadline) passed() <-chan struct{} {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.past
}

func (d *deadline) set(t time.Time) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.timer != nil && !d.timer.Stop() {
		<-d.past // the timer fired: it closes the channel that it was set for
	}
	d.timer = nil
	select {
	case <-d.past:
		d.past = make(chan struct{})
	default:
	}
	if t.IsZero() {
		return
	}
	past := d.past
	if left := time.Until(t); left > 0 {
		d.timer = time.AfterFunc(left, func() { close(past) })
		return
	}
	close(past)
}
