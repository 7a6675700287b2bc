package gateway_test

import (
	"bufio"
	"log/slog"
	"net"
	"net/http"
	"testing"

	"github.com/weirflow/weir/internal/raced"
	"github.com/weirflow/weir/server/plain"
)

// TestAllocations: a proxied request that uses no special feature costs at most 12 allocations, of
// all that happens in the process: reading it, the decision, and the exchange with the upstream.
func TestAllocations(t *testing.T) {
	const response = "HTTP/1.1 200 OK\r\nServer: x\r\nDate: Mon, 23 Nov 2026 01:02:03 GMT\r\nContent-Type: text/plain\r\nContent-Length: 2\r\n\r\nok"
	up := rawUpstream(t, func(c net.Conn, _ *bufio.Reader) {
		in, out := make([]byte, 4096), []byte(response)
		for { // each request is one segment, as the next one waits for its response
			if _, err := c.Read(in); err != nil {
				return
			}
			if _, err := c.Write(out); err != nil {
				return
			}
		}
	})
	g := openGateway(t, parse(t, `
limits: { l: { key: client.ip, token_bucket: { rate: 1000000/s, burst: 1000000 } } }
upstreams: { up: { url: "URL" } }
routes: [{ match: /, upstream: up, limits: [l] }]
`, up), slog.New(slog.DiscardHandler))
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := &plain.Server{HTTP: &http.Server{Handler: g}}
	ended := make(chan error, 1)
	go func() { ended <- s.Serve(l) }()
	t.Cleanup(func() {
		s.Close()
		<-ended
	})
	var d net.Dialer
	c, err := d.DialContext(t.Context(), "tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	request, in := []byte("GET /a?b=c HTTP/1.1\r\nHost: example.com\r\nAccept: */*\r\n\r\n"), make([]byte, 4096)
	n := testing.AllocsPerRun(300, func() {
		if _, err := c.Write(request); err != nil {
			t.Fatal(err)
		}
		for got := 0; ; {
			n, err := c.Read(in[got:])
			if got += n; err != nil {
				t.Fatal(err)
			}
			if got > 2 && string(in[got-2:got]) == "ok" {
				return
			}
		}
	})
	if n > 12 && !raced.Enabled { // the race detector empties pools
		t.Errorf("%v allocations, want at most 12", n)
	}
}
