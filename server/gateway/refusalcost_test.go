package gateway_test

import (
	"context"
	"io"
	"log/slog"
	"net"
	"net/http/httptest"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/weirflow/weir/internal/raced"
	"github.com/weirflow/weir/policy"
	"github.com/weirflow/weir/server/gateway"
	"github.com/weirflow/weir/server/listen"
)

// repeats is a connection whose client sends a request n times, each after the last response.
type repeats struct {
	net.Conn
	request []byte
	left    int
	done    chan struct{}
}

func (r *repeats) Read(p []byte) (int, error) {
	if r.left == 0 {
		close(r.done)
		r.left--
	}
	if r.left < 0 {
		return 0, io.EOF
	}
	r.left--
	return copy(p, r.request), nil
}

func (r *repeats) Write(p []byte) (int, error)      { return len(p), nil }
func (r *repeats) Close() error                     { return nil }
func (r *repeats) SetReadDeadline(time.Time) error  { return nil }
func (r *repeats) SetWriteDeadline(time.Time) error { return nil }
func (r *repeats) SetDeadline(time.Time) error      { return nil }
func (r *repeats) LocalAddr() net.Addr              { return &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 80} }
func (r *repeats) RemoteAddr() net.Addr             { return &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 1234} }

// one is a listener that has one connection.
type one struct {
	conn   net.Conn
	once   sync.Once
	closed chan struct{}
}

func (o *one) Accept() (c net.Conn, err error) {
	if c, o.conn = o.conn, nil; c != nil {
		return c, nil
	}
	<-o.closed
	return nil, net.ErrClosed
}

func (o *one) Close() error   { o.once.Do(func() { close(o.closed) }); return nil }
func (o *one) Addr() net.Addr { return &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 80} }

// refuses has a gateway refuse n requests of one connection. begin is called before the first.
func refuses(tb testing.TB, n int, begin func()) {
	tb.Helper()
	g := openGateway(tb, parse(tb, `
limits: { l: { key: client.ip, leaky_bucket: { rate: 1/d, queue: 0 } } }
upstreams: { up: { url: "http://127.0.0.1:9" } }
routes: [{ match: /, upstream: up, limits: [l] }]
`, ""), slog.New(slog.DiscardHandler))
	first := httptest.NewRequestWithContext(tb.Context(), "GET", "/", nil)
	first.RemoteAddr = "127.0.0.1:1234"
	g.ServeHTTP(httptest.NewRecorder(), first) // takes all that the limit admits
	port := listen.NewPort(policy.Bounds{}, nil)
	conn := &repeats{request: []byte("GET / HTTP/1.1\r\nHost: 127.0.0.1:18080\r\n\r\n"), left: n, done: make(chan struct{})}
	l := &one{conn: conn, closed: make(chan struct{})}
	s := port.Front(g, slog.DiscardHandler, gateway.WithConn)
	ended := make(chan error, 1)
	begin()
	go func() { ended <- s.Serve(port.Listen(l, listen.Options{Address: "127.0.0.1:80"})) }()
	<-conn.done
	if err := s.Shutdown(context.Background()); err != nil {
		tb.Error(err)
	}
	<-ended
	if got := g.Counts().Limited; got != uint64(n) {
		tb.Errorf("%d of %d are refused", got, n)
	}
}

// BenchmarkRefusal is what a refused request costs the process besides the system's calls.
func BenchmarkRefusal(b *testing.B) {
	b.ReportAllocs()
	refuses(b, b.N, b.ResetTimer)
}

// TestRefusalAllocations: a plain refusal allocates the text of its request, and hardly anything else.
func TestRefusalAllocations(t *testing.T) {
	const n = 20_000
	var before, after runtime.MemStats
	refuses(t, n, func() { runtime.ReadMemStats(&before) })
	runtime.ReadMemStats(&after)
	got := float64(after.Mallocs-before.Mallocs) / n
	if t.Logf("%.2f allocations for a refusal", got); got > 2 && !raced.Enabled { // the race detector empties pools
		t.Errorf("%.2f allocations for a refusal, want 2 at most", got)
	}
}
