package listen

import (
	"net"
	"time"
)

// A client that is refused before it has sent its whole body may still be sending. So may a client
// that sends requests ahead, when a response ends the connection. If the connection were closed then,
// the system would answer what arrives with a reset, and the client could lose the response. So the
// connection lingers: what arrives is read and thrown away, until the client closes it (RFC 9112,
// section 9.6). The bounds are nginx's lingering_timeout and lingering_time.
const (
	lingerIdle = 5 * time.Second  // without a byte from the client
	lingerMost = 30 * time.Second // in total
)

// Close closes the connection, or lets it linger.
func (g *guard) Close() error {
	if c := ConnOf(g.Conn); g.unread.Swap(false) && c != nil && !c.stuck.Load() && !c.slow.Load() && g.listener.linger(g.Conn) {
		return nil
	}
	if !g.hijacked.Load() && g.http2 == nil && g.listener.Linger(g.Conn) {
		return nil
	}
	return g.Conn.Close()
}

// Linger lets a connection linger if the client has sent something that was not read, such as its next
// request, and takes what it is sent. It reports false for all others, which must be closed.
func (l *Listener) Linger(conn net.Conn) bool {
	c := ConnOf(conn)
	return c != nil && !c.stuck.Load() && hasUnread(c.Conn) && l.linger(conn)
}

// linger closes a connection after the client has, and reports false if the listener is closing.
// Until then, the connection keeps its place.
func (l *Listener) linger(conn net.Conn) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.ending {
		return false
	}
	l.apart[conn] = struct{}{}
	l.wg.Go(func() {
		if endWrites(conn) == nil {
			discard(conn)
		}
		conn.Close()
		l.mu.Lock()
		delete(l.apart, conn)
		l.mu.Unlock()
	})
	return true
}

// endWrites tells the client that nothing more comes. net/http does not do so before every Close.
func endWrites(conn net.Conn) error {
	if w, ok := conn.(interface{ CloseWrite() error }); ok {
		return w.CloseWrite()
	}
	return nil
}

// discard reads what a client sends, until it closes the connection or the time is over.
func discard(conn net.Conn) {
	buf := make([]byte, 4<<10)
	for end := time.Now().Add(lingerMost); ; {
		idle := time.Now().Add(lingerIdle)
		if end.Before(idle) {
			idle = end
		}
		if conn.SetReadDeadline(idle) != nil {
			return
		}
		if _, err := conn.Read(buf); err != nil {
			return
		}
	}
}
