package upstream

import (
	"context"
	"crypto/tls"
	"net"
	"net/http"
	"net/http/httptrace"
	"sync"
	"sync/atomic"

	"github.com/weirflow/weir/server/plain"
)

// A strayGuard sends requests by net/http such that no request uses a connection on which bytes may
// follow that belong to no response: see plain.Stray. net/http keeps a connection after 204 and 304 before
// it returns the response, and another request may get it in between. That request waits here until
// the response before it has been looked at. The zero value is ready to use.
type strayGuard struct {
	mu        sync.Mutex
	exchanges map[net.Conn]chan struct{} // of HTTP/1, until their response has been looked at
	waiting   atomic.Int32
}

// roundTrip sends a request. http1 is false if the target is known to speak HTTP/2 only, which has no
// stray bytes.
func (g *strayGuard) roundTrip(base http.RoundTripper, r *http.Request, http1 bool) (*http.Response, error) {
	if !http1 {
		return base.RoundTrip(r)
	}
	var mu sync.Mutex
	var taken []net.Conn
	ctx := httptrace.WithClientTrace(r.Context(), &httptrace.ClientTrace{GotConn: func(info httptrace.GotConnInfo) {
		if !speaksHTTP2(info.Conn) && g.take(r.Context(), info.Conn) {
			mu.Lock()
			defer mu.Unlock()
			taken = append(taken, info.Conn)
		}
	}})
	resp, err := base.RoundTrip(r.WithContext(ctx))
	mu.Lock()
	defer mu.Unlock()
	for _, conn := range taken {
		if err != nil || plain.Stray(r.Method, resp) {
			_ = conn.Close()
		}
		g.release(conn)
	}
	return resp, err
}

// speaksHTTP2 reports whether HTTP/2 was agreed on: its connections carry many requests at once.
func speaksHTTP2(conn net.Conn) bool {
	c, ok := conn.(*tls.Conn)
	return ok && c.ConnectionState().NegotiatedProtocol == "h2"
}

// take begins an exchange, after the one before it. It reports false if the context ended.
func (g *strayGuard) take(ctx context.Context, conn net.Conn) bool {
	for {
		g.mu.Lock()
		before := g.exchanges[conn]
		if before == nil {
			if g.exchanges == nil {
				g.exchanges = map[net.Conn]chan struct{}{}
			}
			g.exchanges[conn] = make(chan struct{})
		}
		g.mu.Unlock()
		if before == nil {
			return true
		}
		g.waiting.Add(1)
		select {
		case <-before:
		case <-ctx.Done():
		}
		g.waiting.Add(-1)
		if ctx.Err() != nil {
			return false
		}
	}
}

// release ends an exchange.
func (g *strayGuard) release(conn net.Conn) {
	g.mu.Lock()
	defer g.mu.Unlock()
	close(g.exchanges[conn])
	delete(g.exchanges, conn)
}

// http1 reports whether targets may speak HTTP/1.
func (s *settings) http1() bool { return s.spec.Protocol != "h2" && s.spec.Protocol != "h2c" }

// roundTrip sends a request by net/http.
func (s *settings) roundTrip(r *http.Request) (*http.Response, error) {
	return s.strays.roundTrip(s.transport, r, s.http1())
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }
