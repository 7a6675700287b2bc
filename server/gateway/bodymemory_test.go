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
trusted_proxies: [127.0.0.1]
limits:
  models: { key: body.model, token_bucket: { rate: 1/h, burst: 1000 } }
upstreams: { up: { url: "URL" } }
routes: [{ match: /, upstream: up, limits: [models] }]
`

// TestBodiesBeforeTheDecisionShareOneBound: the bodies that limits read take their memory from the
// bound of all request buffers, and requests that find none get 503. Each took up to 2 MiB, which no
// bound and no metric counted. One client gets half of it: another one is served meanwhile.
func TestBodiesBeforeTheDecisionShareOneBound(t *testing.T) {
	g, front, _ := start(t, readsBodies, http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { io.Copy(io.Discard, r.Body) }))
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
	for range 80 - bound/2/size {
		select {
		case resp := <-refused:
			if resp.StatusCode != 503 || resp.Header.Get("Retry-After") != "1" {
				t.Errorf("%d, Retry-After %q", resp.StatusCode, resp.Header.Get("Retry-After"))
			}
		case <-time.After(time.Minute):
			t.Fatalf("no response; %+v", g.Buffers())
		}
	}
	if b := g.Buffers(); b.Memory > bound || b.Memory > bound/2 || b.Memory < bound/3 || b.Undecided == 0 {
		t.Errorf("%+v", b)
	}
	r, err := http.NewRequestWithContext(t.Context(), "POST", front.URL, strings.NewReader(text+`"}`))
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("X-Forwarded-For", "192.0.2.7")
	resp, err := http.DefaultClient.Do(r)
	if err != nil || resp.StatusCode != 200 {
		t.Fatalf("of another client: %v, %v", resp, err)
	}
	resp.Body.Close()
	for _, conn := range conns {
		conn.Close()
	}
	eventually(t, "the memory is not released", func() bool { return g.Buffers().Memory == 0 })
}

// TestRefusedBeforeTheBody: a request that a limit refuses which does not depend on the body gets its
// 429 at once, although another limit of the route reads the body. It had to upload up to 1 MiB.
func TestRefusedBeforeTheBody(t *testing.T) {
	g, front, _ := start(t, `
limits:
  requests: { key: header.x-user, token_bucket: { rate: 1/h, burst: 1 } }
  models: { key: [header.x-user, body.model], token_bucket: { rate: 1000/h, burst: 1000 } }
upstreams: { up: { url: "URL" } }
routes: [{ match: /, upstream: up, limits: [requests, models] }]
`, http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { io.Copy(io.Discard, r.Body) }))
	for _, want := range []int{200, 429, 429} {
		conn, err := net.Dial("tcp", front.Listener.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		conn.SetDeadline(time.Now().Add(time.Minute))
		in := bufio.NewReader(conn)
		const text = `{"model":"m"}`
		fmt.Fprintf(conn, "POST / HTTP/1.1\r\nHost: a\r\nX-User: u\r\nExpect: 100-continue\r\nContent-Length: %d\r\n\r\n", len(text))
		resp, err := http.ReadResponse(in, nil)
		if err != nil {
			t.Fatal(err)
		}
		if resp.StatusCode == 100 {
			io.WriteString(conn, text)
			if resp, err = http.ReadResponse(in, nil); err != nil {
				t.Fatal(err)
			}
			if want != 200 {
				t.Error("the gateway has asked for the body of a request that it refuses")
			}
		}
		if resp.StatusCode != want || (want == 429) != (resp.Header.Get("Retry-After") != "") || resp.Header.Get("RateLimit") == "" {
			t.Errorf("%d, want %d: %v", resp.StatusCode, want, resp.Header)
		}
	}
	if c := g.Counts(); c.Allowed != 1 || c.Limited != 2 || g.Buffers().Memory != 0 {
		t.Errorf("%+v, %+v", c, g.Buffers())
	}
}
