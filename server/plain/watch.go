package plain

import (
	"context"
	"sync"
	"sync/atomic"
	"time"
)

// A requestContext is the context of one request. It ends with the request, or earlier when the
// client disconnects. The connection is watched only after the first call of Done, because most
// requests are served without one.
type requestContext struct {
	context.Context
	conn *conn

	rest   func() // of the handler, for Later; nil for none
	isRest bool   // Later was called
	reuse  bool   // Reuse was called

	mu     sync.Mutex
	inner  context.Context // nil until the first call of Done
	cancel context.CancelFunc
	ended  bool

	isWatched atomic.Bool // inner is set, and stays
}

// Done starts to watch the connection at its first call. Its caller is about to wait.
func (c *requestContext) Done() <-chan struct{} {
	c.conn.detach()
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.inner == nil {
		c.inner, c.cancel = context.WithCancel(c.Context)
		c.isWatched.Store(true)
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
	case c.ended, c.conn.hangup.hasGone():
		return context.Canceled
	}
	return c.Context.Err()
}

// Value asks the inner context, if there is one. That is how contexts derived from this one find
// it, and end with it without a goroutine of their own.
func (c *requestContext) Value(key any) any {
	switch key.(type) {
	case connKey:
		return c.conn
	case requestKey:
		return c
	}
	if c.isWatched.Load() {
		return c.inner.Value(key)
	}
	return c.Context.Value(key)
}

// connKey is the key of a request's connection.
type connKey struct{}

// Detach is called before a request waits for something other than the end of its context: other
// requests, which the same goroutine would serve, do not wait with it then.
func Detach(ctx context.Context) {
	if c, ok := ctx.Value(connKey{}).(*conn); ok {
		c.detach()
	}
}

// end ends the context after the request.
func (c *requestContext) end() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.ended = true
	if c.inner != nil {
		c.conn.unwatch()
		c.cancel()
	}
}

// watched is the state of a connection that is being read while a request is served, to notice that
// the client disconnects.
type watched struct {
	done  chan struct{} // nil if nothing watches
	ended atomic.Bool   // the watch was stopped
	read  [1]byte
	n     int
}

// watch calls gone when the client has closed the connection. Where the system does not report that,
// the connection is read. If a byte arrives then, it belongs to the next request, and the watch ends:
// a later disconnect goes unnoticed.
func (c *conn) watch(gone func()) {
	if c.hangup.cancels(c, gone) {
		return
	}
	w := &c.watched
	if c.n == len(c.lent) {
		return // the buffer is full of pipelined requests, and has no room for one more byte
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

// unwatch ends the watch, and keeps a byte that arrived.
func (c *conn) unwatch() {
	c.hangup.cancelsNothing()
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
