package face

import (
	"net"
	"sync"
	"sync/atomic"
)

// stoppable is a listener that can stop accepting before it is closed: the server of its connections goes on until
// then.
type stoppable struct {
	net.Listener
	stopped atomic.Bool
	once    sync.Once
	closed  chan struct{}
}

// stop closes the socket. Accept then waits for Close.
func (l *stoppable) stop() {
	if l.stopped.CompareAndSwap(false, true) {
		l.Listener.Close()
	}
}

// Accept returns the next connection.
func (l *stoppable) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err != nil && l.stopped.Load() {
		<-l.closed
		return nil, net.ErrClosed
	}
	return c, err
}

// Close closes the socket, if stop has not.
func (l *stoppable) Close() error {
	l.once.Do(func() { close(l.closed) })
	return ignoreClosed(l.Listener.Close())
}
