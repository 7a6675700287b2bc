package plain

import (
	"net"
	"sync"
	"syscall"
	"time"
)

// A hangup notes that the client of a connection has disconnected: that it has closed the connection
// or its sending side, or has reset it. It is known at once and without reading, so also if the
// client has sent further requests before.
//
// A connection is registered at its first request that needs to know, with one system call. From
// then on, a request costs a lock and no system call.
type hangup struct {
	mu     sync.Mutex
	token  uint64 // 0 before the connection is registered; loopToken in a loop
	fails  bool   // the connection cannot be registered
	gone   bool
	cancel func()  // ends the context of the request in flight; nil for none
	breaks *upConn // the connection that carries the request to its server; nil for none
}

// loopToken is the token of connections that are registered in a loop.
const loopToken = 1

// register reports whether a hangup of the client is noticed. It registers the connection at its
// first call. h.mu is locked.
func (h *hangup) register(c *conn) bool {
	if h.fails {
		return false
	}
	if c.loop != nil {
		h.token = loopToken
		// asked for each request: HungUp is not called for a client that has left with its request
		h.gone = h.gone || c.loop.HasHungUp()
		return true
	}
	if h.token != 0 {
		return true
	}
	if c.hangups != nil {
		if raw := socketOf(c.Conn); raw != nil {
			h.token = c.hangups.add(c, raw)
		}
	}
	h.fails = h.token == 0
	return !h.fails
}

// forget ends the registration of a connection.
func (h *hangup) forget(c *conn) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.token != 0 && c.loop == nil {
		c.hangups.remove(h.token)
	}
	h.token, h.fails = 0, true
}

// socketOf returns the socket below a connection, or nil if there is none.
func socketOf(conn net.Conn) syscall.RawConn {
	for {
		inner, ok := conn.(interface{ NetConn() net.Conn }) // TLS and other wrappers
		if !ok {
			break
		}
		conn = inner.NetConn()
	}
	sys, ok := conn.(syscall.Conn)
	if !ok {
		return nil
	}
	raw, err := sys.SyscallConn()
	if err != nil {
		return nil
	}
	return raw
}

// hungUp ends the request in flight. It runs in the goroutine of the Server's hangups, or of a loop.
func (h *hangup) hungUp() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.end()
}

// inLoop is hungUp for a connection in a loop, which reports all hangups: also where no request needs to
// know. One that needs to know later finds out when it registers.
func (h *hangup) inLoop() {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.token != 0 {
		h.end()
	}
}

// end ends the request in flight. h.mu is locked.
func (h *hangup) end() {
	h.gone = true
	if h.cancel != nil {
		h.cancel() // first, so that the exchange finds the reason
	}
	if h.breaks != nil {
		h.breaks.SetDeadline(time.Unix(1, 0)) //nolint:errcheck // then the connection is broken
	}
}

// hasGone reports whether the client has disconnected.
func (h *hangup) hasGone() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.gone
}

// cancels has cancel called when the client disconnects. It reports false if that would not be
// noticed.
func (h *hangup) cancels(c *conn, cancel func()) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	if !h.register(c) {
		return false
	}
	if h.cancel = cancel; h.gone {
		cancel()
	}
	return true
}

// cancelsNothing undoes cancels.
func (h *hangup) cancelsNothing() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.cancel = nil
}

// breaksConn has a connection to a server broken when the client disconnects. It reports false if
// that would not be noticed. The caller sets its deadline, and then looks at the request's context.
func (h *hangup) breaksConn(c *conn, u *upConn) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	if !h.register(c) {
		return false
	}
	h.breaks = u
	return true
}

// sparesConn undoes breaksConn. It reports false if the connection may have been broken.
func (h *hangup) sparesConn() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.breaks = nil
	return !h.gone
}
