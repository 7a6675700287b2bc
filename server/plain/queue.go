package plain

import (
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

// put hands a connection over. It is closed where nobody takes it any more.
func (q *queue) put(c net.Conn) {
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
