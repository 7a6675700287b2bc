package listen

import (
	"net"
	"sync"
	"time"
)

// A readDeadline is the deadline for reads from a connection: the earlier one of net/http's, and of
// one for the rest of what has begun. The methods are safe for concurrent use.
type readDeadline struct {
	conn net.Conn

	mu     sync.Mutex
	wanted time.Time // by net/http; zero for none
	own    time.Time // zero while nothing has begun
}

// want sets net/http's deadline.
func (d *readDeadline) want(t time.Time) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.wanted = t
	return d.set()
}

// hurry says that something has begun, whose rest has that time, or that it is complete.
func (d *readDeadline) hurry(on bool, timeout time.Duration) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if on == !d.own.IsZero() {
		return
	}
	d.own = time.Time{}
	if on {
		d.own = time.Now().Add(timeout)
	}
	_ = d.set() // reading reports a closed connection
}

// set sets the earlier of the two. The lock must be held.
func (d *readDeadline) set() error {
	t := d.wanted
	if t.IsZero() || !d.own.IsZero() && d.own.Before(t) {
		t = d.own
	}
	return d.conn.SetReadDeadline(t)
}
