package plain

import (
	"crypto/tls"
	"errors"
	"net"
	"sync"
)

// A queue is the listener on which an http.Server gets connections that are not plain. Closing it is for that server's end.
type queue struct {
	listener net.Listener
	conns    chan net.Conn
	once     sync.Once
	closed   chan struct{}
}

func newQueue(l net.Listener) *queue {
	return &queue{listener: l, conns: make(chan net.Conn), closed: make(chan struct{})}
}

// put hands a connection over, of which something may have been read. It is closed where nobody takes it any more.
func (q *queue) put(c net.Conn, read []byte) {
	if len(read) > 0 {
		again := &replayed{Conn: c, read: read}
		if t, ok := c.(tlsConn); ok {
			c = &replayedTLS{again, t}
		} else {
			c = again
		}
	}
	if g, ok := q.listener.(Guarded); ok {
		c = g.Guard(c)
	}
	select {
	case q.conns <- c:
	case <-q.closed:
		c.Close()
	}
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

// Close ends the queue, and the listener whose connections go through it.
func (q *queue) Close() error {
	q.once.Do(func() { close(q.closed) })
	q.listener.Close() //nolint:errcheck // it may be closed already: who accepts there is told
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

// Addr is the address of the listener.
func (q *queue) Addr() net.Addr { return q.listener.Addr() }

// A replayed connection gives the bytes again that were read from it.
type replayed struct {
	net.Conn
	read []byte
}

// Read reads.
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

// NetConn is the connection below.
func (r *replayed) NetConn() net.Conn { return r.Conn }

// CloseWrite tells the client that nothing more comes.
func (r *replayed) CloseWrite() error {
	if w, ok := r.Conn.(interface{ CloseWrite() error }); ok {
		return w.CloseWrite()
	}
	return errors.ErrUnsupported
}

// tlsConn is a connection under TLS.
type tlsConn interface{ ConnectionState() tls.ConnectionState }

// replayedTLS is a replayed connection under TLS, of which net/http learns by ConnectionState.
type replayedTLS struct {
	*replayed
	tlsConn
}
