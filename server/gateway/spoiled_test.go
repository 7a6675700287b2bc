package gateway_test

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httptrace"
	"strings"
	"sync"
	"testing"
)

const spoiled = `
listen: { bounds: { max_body: 4MiB } }
limits:
  tokens: { token_bucket: { rate: 1/h, burst: 100000 }, cost: { before: 100, after: openai } }
  bytes: { token_bucket: { rate: 1/h, burst: 100000 }, cost: { before: 300, after: bytes } }
upstreams:
  model: { url: "URL", retries: 0 }
routes:
  - { match: POST /buffered, upstream: model, limits: [tokens, bytes] }
  - { match: POST /streamed, upstream: model, limits: [tokens, bytes], buffer_request: off }
`

// TestSpoiledBodyIsCharged: a client that spoils the end of its own body, when the upstream may be
// working, is charged by if_unknown. It was charged nothing, as for an upstream that refused: the
// gateway's own 400, 408 and 413 counted as the upstream's.
func TestSpoiledBodyIsCharged(t *testing.T) {
	working := make(chan struct{}, 1)
	model := http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		var request struct{}
		_ = json.NewDecoder(r.Body).Decode(&request)
		select {
		case working <- struct{}{}:
		default:
		}
		_, _ = io.Copy(io.Discard, r.Body) // until the request breaks off
	})
	object, blanks := `{"max_tokens":100}`, strings.Repeat(" ", 2<<20)
	chunk := func(text string) string { return fmt.Sprintf("%x\r\n%s\r\n", len(text), text) }
	for name, c := range map[string]struct {
		path, begin, end string
		status           int
		unsent           bool
	}{
		"malformed chunk":             {"/buffered", chunk(object) + chunk(blanks), "zz\r\n", 400, false},
		"too long":                    {"/buffered", chunk(object) + chunk(blanks), chunk(blanks + blanks), 413, false},
		"malformed chunk, no buffer":  {"/streamed", chunk(object) + chunk(blanks), "zz\r\n", 400, false},
		"the client leaves":           {"/streamed", chunk(object) + chunk(blanks), "", 0, false},
		"malformed within the buffer": {"/buffered", chunk(object), "zz\r\n", 400, true},
	} {
		t.Run(name, func(t *testing.T) {
			up := httptest.NewServer(model)
			defer up.Close()
			g := openGateway(t, parse(t, spoiled, up.URL), slog.New(slog.DiscardHandler))
			front := httptest.NewServer(g)
			defer func() { front.Close(); g.Close() }()
			conn, err := net.Dial("tcp", front.Listener.Addr().String())
			if err != nil {
				t.Fatal(err)
			}
			defer conn.Close()
			io.WriteString(conn, "POST "+c.path+" HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n"+c.begin)
			if !c.unsent {
				<-working
			}
			if c.end == "" {
				conn.(*net.TCPConn).CloseWrite()
			}
			io.WriteString(conn, c.end)
			if c.status != 0 {
				resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
				if err != nil || resp.StatusCode != c.status {
					t.Fatal(resp, err)
				}
			}
			tokens, bytes := uint64(100), uint64(300)
			if c.unsent {
				tokens, bytes = 0, 0
			}
			settled := func(limit string, estimate, want uint64) {
				t.Helper()
				eventually(t, limit+" is not settled", func() bool {
					for _, n := range g.Engine().Counts() {
						if n.Limit == limit {
							return n.Estimated == estimate
						}
					}
					return false
				})
				if n := counted(g, limit); n != want {
					t.Errorf("%s: charged %d, want %d", limit, n, want)
				}
			}
			settled("tokens", 100, tokens)
			settled("bytes", 300, bytes)
		})
	}
}

// TestCanceledUpload: a client of HTTP/2 that cancels an upload, or whose upload is refused, sends its next
// request on the same connection.
func TestCanceledUpload(t *testing.T) {
	t.Parallel()
	up := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { io.Copy(io.Discard, r.Body) }))
	t.Cleanup(up.Close)
	g, s := front(t, `
upstreams: { up: { url: "URL", buffer_request: off } }
routes:
  - { match: /small, upstream: up, max_body: 10 }
  - { match: /, upstream: up }
`, up.URL)
	// The connections that carried a request: the client may open one more that it does not use.
	var mu sync.Mutex
	used := map[net.Conn]bool{}
	traced := func(ctx context.Context) context.Context {
		return httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{GotConn: func(c httptrace.GotConnInfo) {
			mu.Lock()
			defer mu.Unlock()
			used[c.Conn] = true
		}})
	}
	client := h2c(t)
	for i := range uint64(3) {
		ctx, cancel := context.WithCancel(traced(t.Context()))
		body, in := io.Pipe()
		r, err := http.NewRequestWithContext(ctx, "POST", s.URL, body)
		if err != nil {
			t.Fatal(err)
		}
		done := make(chan struct{})
		go func() {
			defer close(done)
			if resp, err := client.Do(r); err == nil {
				resp.Body.Close()
			}
		}()
		in.Write([]byte("a part")) // returns once the client has sent it
		cancel()
		<-done
		in.Close()
		until(t, func() bool { return g.Counts().Canceled == i+1 })
	}
	for _, c := range []struct {
		path, body string
		want       int
	}{{"/small", strings.Repeat("x", 100), http.StatusRequestEntityTooLarge}, {"/", "x", http.StatusOK}} {
		r, err := http.NewRequestWithContext(traced(t.Context()), "POST", s.URL+c.path, strings.NewReader(c.body))
		if err != nil {
			t.Fatal(err)
		}
		resp, err := client.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		if resp.StatusCode != c.want {
			t.Errorf("%s: status %d, want %d", c.path, resp.StatusCode, c.want)
		}
	}
	mu.Lock()
	defer mu.Unlock()
	if len(used) != 1 {
		t.Errorf("%d connections for five requests, one after another", len(used))
	}
}
