package rls

import (
	"context"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
)

// Times for clients while the server shuts down. One that has stopped in the middle of a handshake or a
// request would otherwise use up the grace of the others, and so would one that watches the health.
const (
	handshakeAtEnd = time.Second
	requestAtEnd   = 2 * time.Second // for the rest of a request, and to leave after GOAWAY
	drainTick      = 10 * time.Millisecond
)

// calls counts the requests that are being decided.
type calls struct{ inFlight atomic.Int64 }

// unary counts a call from the moment in which its request has come in full.
func (c *calls) unary(ctx context.Context, req any, _ *grpc.UnaryServerInfo, handle grpc.UnaryHandler) (any, error) {
	c.inFlight.Add(1)
	defer c.inFlight.Add(-1)
	return handle(ctx, req)
}

// await waits until all clients have left, or all calls have ended and clients have had time to leave. Its
// error is that of a context that ended first.
func (c *calls) await(ctx context.Context, left <-chan struct{}) error {
	end := time.Now().Add(requestAtEnd)
	ticker := time.NewTicker(drainTick)
	defer ticker.Stop()
	for {
		select {
		case <-left:
			return nil
		case <-ctx.Done():
			return ctx.Err()
		case <-ticker.C:
			if c.inFlight.Load() == 0 && time.Now().After(end) {
				return nil
			}
		}
	}
}

// handshakes is a listener that knows which of its connections have not ended their handshake: that of
// TLS and of HTTP/2. gRPC waits for it before it sends any GOAWAY. It sets a deadline to a connection for
// that time, and takes it away afterwards.
type handshakes struct {
	net.Listener

	mu      sync.Mutex
	open    map[*handshaking]struct{}
	leaving bool
}

func newHandshakes(l net.Listener) *handshakes {
	return &handshakes{Listener: l, open: map[*handshaking]struct{}{}}
}

// Accept returns the next connection.
func (h *handshakes) Accept() (net.Conn, error) {
	c, err := h.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return &handshaking{Conn: c, of: h}, nil
}

// leave leaves little time to handshakes from now on.
func (h *handshakes) leave() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.leaving = true
	for c := range h.open {
		_ = c.Conn.SetDeadline(time.Now().Add(handshakeAtEnd)) // a closed connection needs none
	}
}

// handshaking is a connection with its handshake.
type handshaking struct {
	net.Conn
	of *handshakes
}

// SetDeadline sets the end of the handshake; no time ends it.
func (c *handshaking) SetDeadline(t time.Time) error {
	c.of.mu.Lock()
	defer c.of.mu.Unlock()
	switch {
	case t.IsZero():
		delete(c.of.open, c)
	case c.of.leaving:
		t = time.Now().Add(handshakeAtEnd)
	default:
		c.of.open[c] = struct{}{}
	}
	return c.Conn.SetDeadline(t)
}

// Close closes the connection.
func (c *handshaking) Close() error {
	c.of.mu.Lock()
	delete(c.of.open, c)
	c.of.mu.Unlock()
	return c.Conn.Close()
}
