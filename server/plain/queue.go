package plain

import (
	"crypto/tls"
	"errors"
	"net"
	"sync"
)

// A queue is the net.Listener from which the http.Server accepts connections that are not plain.
// Only that http.Server closes it.
type queue struct {
	listener net.Listener
	server   *Server
	conns    chan net.Conn
	once     sync.Once
	closed   chan struct{}
}

func newQueue(l net.Listener, s *Server) *queue {
	return &queue{listener: l, server: s, conns: make(chan net.Conn), closed: make(chan struct{})}
}

// put passes a connection to the http.Server, with the bytes that were read from it. served reports
// whether requests were answered on it. It closes the connection if the queue is closed.
func (q *queue) put(c net.Conn, read []byte, served bool) {
	if len(read) > 0 {
		again := &replayed{Conn: c, read: read}
		if t, ok := c.(tlsConn); ok {
			c = &replayedTLS{again, t}
		} else {
			c = again
		}
	}
	if g, ok := q.listener.(Guarded); ok {
		c = g.Guard(c, served)
	}
	q.server.handsOver(c)
	select {
	case q.conns <- c:
	case <-q.closed:
		q.server.hasEnded(c)
		c.Close()
	}
}

// linger reports whether the listener closes a connection later.
func (q *queue) linger(c net.Conn) bool {
	l, ok := q.listener.(Lingering)
	return ok && l.Linger(c)
}

// Accept returns the next connection.
func (q *queue) Accept() (net.Conn, error) {
	select {
	case c := <-q.conns:
		return c, nil
	case <-q.closed:
		return nil, net.ErrClosed
	}
}

// Close closes the queue and the real listener.
func (q *queue) Close() error {
	q.once.Do(func() { close(q.closed) })
	q.listener.Close() //nolint:errcheck // it may be closed already, and Accept returns that error
	return nil
}

func (q *queue) isClosed() bool {
	select {
	case <-q.closed:
		return true
	default:
		return false
	}
}

// Addr returns the address of the real listener.
func (q *queue) Addr() net.Addr { return q.listener.Addr() }

// A replayed connection returns the bytes that were already read once more, before all others.
type replayed struct {
	net.Conn
	read []byte
}

// Read reads the replayed bytes first, then from the connection.
func (r *replayed) Read(p []byte) (int, error) {
	if len(r.read) == 0 {
		return r.Conn.Read(p)
	}
	n := copy(p, r.read)
	if r.read = r.read[n:]; len(r.read) == 0 {
		r.read = nil
	}
	return n, nil
}

// NetConn returns the underlying connection.
func (r *replayed) NetConn() net.Conn { return r.Conn }

// CloseWrite closes the sending direction of the connection.
func (r *replayed) CloseWrite() error {
	if w, ok := r.Conn.(interface{ CloseWrite() error }); ok {
		return w.CloseWrite()
	}
	return errors.ErrUnsupported
}

// tlsConn is a connection under TLS.
type tlsConn interface{ ConnectionState() tls.ConnectionState }

// replayedTLS is a replayed TLS connection. net/http recognises TLS by the method ConnectionState.
type replayedTLS struct {
	*replayed
	tlsConn
}
