package gateway

import (
	"context"
	"net"
	"sync"
	"time"
)

// net/http notices that a client of HTTP/1 has gone away by reading from its connection, and it does not read while a request's body, or the
// next request, is there to be read. Who sent ahead and left would keep his place in a queue. So the connections of those who wait are
// looked at from time to time, without reading.

// lookEvery is how often.
const lookEvery = 500 * time.Millisecond

type connKey struct{}

// WithConn returns a context for the requests of a connection: for http.Server.ConnContext. With it, clients that wait in queues are noticed
// to be gone also where they have sent ahead.
func WithConn(ctx context.Context, conn net.Conn) context.Context {
	return context.WithValue(ctx, connKey{}, conn)
}

// whileThere returns a context that ends when the client goes away.
func whileThere(ctx context.Context) (context.Context, context.CancelFunc) {
	conn, ok := ctx.Value(connKey{}).(net.Conn)
	if !ok {
		return ctx, func() {}
	}
	ctx, cancel := context.WithCancel(ctx)
	l := &look{conn: conn, cancel: cancel}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.timer = time.AfterFunc(lookEvery, l.again)
	return ctx, l.stop
}

// look is the watch over one client that waits.
type look struct {
	conn   net.Conn
	cancel context.CancelFunc
	mu     sync.Mutex
	timer  *time.Timer
	ended  bool
}

func (l *look) again() {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case l.ended:
	case gone(l.conn):
		l.cancel()
	default:
		l.timer.Reset(lookEvery)
	}
}

func (l *look) stop() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.ended = true
	l.timer.Stop()
	l.cancel()
}
