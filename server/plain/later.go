package plain

import "context"

// Later has the rest of a handler run in a goroutine of its own, once the handler has returned. A handler that is
// about to wait for long calls it last: the stack of a new goroutine is small, while the handler's has grown to what
// it has called, and would be kept while the request waits. The rest uses the same request and ResponseWriter, which
// the handler must not use after Later; the request ends when the rest returns.
//
// It reports false where the handler's goroutine is the connection's own, or is the rest already. Then the handler
// waits by itself. ctx is the request's context, or derived from it.
func Later(ctx context.Context, rest func()) bool {
	c, ok := ctx.Value(requestKey{}).(*requestContext)
	if !ok || c.conn.loop == nil || c.isRest {
		return false
	}
	c.rest, c.isRest = rest, true
	return true
}

// requestKey is the key of a request's own context.
type requestKey struct{}

// goOnLater runs the rest of a handler, and then serves the connection as before.
func (c *conn) goOnLater() {
	x := c.next
	c.next = nil
	rest := x.ctx.rest
	x.ctx.rest = nil
	c.handle(x, rest)
	c.goOnAfter(x)
}

// goOnAfter is apart from goOnLater, whose room on the stack is kept while a request waits.
//
//go:noinline
func (c *conn) goOnAfter(x *exchanged) {
	if how := c.afterAnswer(x); how != serves {
		c.loop.Leave()
		c.finish(how)
		return
	}
	c.Serve()
}

// NoticesHangup reports whether the context of a plain request ends as soon as its client disconnects, also if the
// client has sent further requests before.
func NoticesHangup(ctx context.Context) bool {
	c, ok := ctx.Value(connKey{}).(*conn)
	if !ok {
		return false
	}
	c.hangup.mu.Lock()
	defer c.hangup.mu.Unlock()
	return c.hangup.register(c)
}
