package gateway

import (
	"context"
	"net"
	"sync"
	"time"

	"github.com/weirflow/weir/server/plain"
)

// net/http notices that a client of HTTP/1 has disconnected by reading from its connection, and
// does not read while a request body or the next request is unread. A client that pipelines and
// disconnects would keep its place in a queue. So the connections of waiting clients are polled
// without reading.

// lookEvery is the interval.
const lookEvery = 500 * time.Millisecond

type connKey struct{}

// WithConn returns a context for the requests of a connection, for http.Server.ConnContext. With
// it, a waiting client that disconnects is noticed even if it has pipelined.
func WithConn(ctx context.Context, conn net.Conn) context.Context {
	return context.WithValue(ctx, connKey{}, conn)
}

// whileThere returns a context that ends when the client disconnects.
func whileThere(ctx context.Context) (context.Context, context.CancelFunc) {
	conn, ok := ctx.Value(connKey{}).(net.Conn)
	if !ok || plain.NoticesHangup(ctx) {
		return ctx, func() {}
	}
	ctx, cancel := context.WithCancel(ctx)
	l := &look{conn: conn, cancel: cancel}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.timer = time.AfterFunc(lookEvery, l.again)
	return ctx, l.stop
}

// look polls the connection of one waiting client.
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
	case clientGone(l.conn):
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
