package plain

import (
	"context"
	"sync"
	"sync/atomic"
	"time"
)

// A requestContext is the context of one request. It ends with the request, and before it when the client leaves: that is looked for from
// when somebody first asks for Done, as most requests are answered before anybody does.
type requestContext struct {
	context.Context
	conn *conn

	mu     sync.Mutex
	inner  context.Context // nil until Done is called
	cancel context.CancelFunc
	ended  bool
}

// Done begins to watch the connection when it is called first.
func (c *requestContext) Done() <-chan struct{} {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.inner == nil {
		c.inner, c.cancel = context.WithCancel(c.Context)
		if c.ended {
			c.cancel()
		} else {
			c.conn.watch(c.cancel)
		}
	}
	return c.inner.Done()
}

// Err is nil until Done is closed.
func (c *requestContext) Err() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case c.inner != nil:
		return c.inner.Err()
	case c.ended:
		return context.Canceled
	}
	return c.Context.Err()
}

// Value looks in the inner context once there is one: that is how contexts made of this one find it, and end with it without a goroutine.
func (c *requestContext) Value(key any) any {
	c.mu.Lock()
	inner := c.inner
	c.mu.Unlock()
	if inner != nil {
		return inner.Value(key)
	}
	return c.Context.Value(key)
}

// end is for when the request is over.
func (c *requestContext) end() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.ended = true
	if c.inner != nil {
		c.conn.unwatch()
		c.cancel()
	}
}

// watched is a connection on which a byte is being read while a request is served.
type watched struct {
	done  chan struct{} // nil for not watched
	ended atomic.Bool   // the watch is called off
	read  [1]byte
	n     int
}

// watch calls gone when the client has closed the connection. A byte that comes belongs to the next request; after that, nothing is noticed.
func (c *conn) watch(gone func()) {
	w := &c.watched
	if c.n == len(c.lent) {
		return // there is a request behind this one, with no room for more
	}
	w.done, w.n = make(chan struct{}), 0
	w.ended.Store(false)
	c.waits = time.Time{}
	c.Conn.SetReadDeadline(time.Time{}) //nolint:errcheck // the read says what is wrong
	go func() {
		defer close(w.done)
		n, _ := c.Conn.Read(w.read[:])
		if w.n = n; n == 0 && !w.ended.Load() {
			gone()
		}
	}()
}

// unwatch ends the watch, and keeps the byte that came.
func (c *conn) unwatch() {
	w := &c.watched
	if w.done == nil {
		return
	}
	w.ended.Store(true)
	c.Conn.SetReadDeadline(time.Unix(1, 0)) //nolint:errcheck // a connection that is broken ends the read as well
	<-w.done
	w.done = nil
	c.waits = time.Time{}
	if w.n > 0 {
		c.lent[c.n] = w.read[0]
		c.n++
	}
}
