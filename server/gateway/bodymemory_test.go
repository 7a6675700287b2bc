package gateway_test

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"
)

const readsBodies = `
limits:
  models: { key: body.model, token_bucket: { rate: 1/h, burst: 1000 } }
upstreams: { up: { url: "URL" } }
routes: [{ match: /, upstream: up, limits: [models] }]
`

// TestBodiesBeforeTheDecisionShareOneBound: the bodies that limits read take their memory from the
// bound of all request buffers, and requests that find none get 503. Each took up to 2 MiB, which no
// bound and no metric counted.
func TestBodiesBeforeTheDecisionShareOneBound(t *testing.T) {
	g, front, _ := start(t, readsBodies, echo)
	const bound, size = 64 << 20, 1_000_000
	text := `{"x":"` + strings.Repeat("a", size-6)
	var conns []net.Conn
	refused := make(chan *http.Response, 100)
	for range 80 {
		conn, err := net.Dial("tcp", front.Listener.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		conns = append(conns, conn)
		go func() {
			if resp, err := http.ReadResponse(bufio.NewReader(conn), nil); err == nil {
				refused <- resp
			}
		}()
		fmt.Fprintf(conn, "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: %d\r\n\r\n", 1<<20)
		_, _ = io.WriteString(conn, text) // a refused one is closed
	}
	for range 80 - bound/size {
		select {
		case resp := <-refused:
			if resp.StatusCode != 503 || resp.Header.Get("Retry-After") != "1" {
				t.Errorf("%d, Retry-After %q", resp.StatusCode, resp.Header.Get("Retry-After"))
			}
		case <-time.After(time.Minute):
			t.Fatalf("no response; %+v", g.Buffers())
		}
	}
	if b := g.Buffers(); b.Memory > bound || b.Memory < bound/2 || b.Undecided == 0 {
		t.Errorf("%+v", b)
	}
	for _, conn := range conns {
		conn.Close()
	}
	eventually(t, "the memory is not released", func() bool { return g.Buffers().Memory == 0 })
}
