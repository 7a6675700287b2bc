package gateway_test

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

// TestBufferRequestOfRoutes: the buffer_request of a route applies in place of that of the upstream, also
// to its requests that go to another upstream because they were refused. A streamed body of unknown
// length reaches the upstream in chunks, and a buffered one with its length.
func TestBufferRequestOfRoutes(t *testing.T) {
	up := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		fmt.Fprintf(w, "%d %s", len(body), strings.Join(r.TransferEncoding, ""))
	}))
	defer up.Close()
	_, s := front(t, `
limits: { none: { key: client.ip, fixed_window: { limit: 1, window: 1d } } }
upstreams:
  streams: { url: "URL", buffer_request: off }
  buffers: { url: "URL" }
  others: { url: "URL" }
routes:
  - { match: /streams, upstream: streams }
  - { match: /streams/but, upstream: streams, buffer_request: { memory: 100 } }
  - { match: /streams/long, upstream: streams, buffer_request: { memory: 2 } }
  - { match: /buffers, upstream: buffers }
  - { match: /buffers/but, upstream: buffers, buffer_request: off }
  - { match: /refused, upstream: buffers, limits: [none], refused: { upstream: others }, buffer_request: off }
`, up.URL)
	for _, c := range []struct{ path, want string }{
		{"/streams", "5 chunked"}, {"/streams/but", "5 "}, {"/streams/long", "5 chunked"}, {"/buffers", "5 "}, {"/buffers/but", "5 chunked"},
		{"/refused", "5 chunked"}, {"/refused", "5 chunked"},
	} {
		resp, err := http.Post(s.URL+c.path, "text/plain", io.MultiReader(strings.NewReader("hello")))
		if err != nil {
			t.Fatal(err)
		}
		got, _ := io.ReadAll(resp.Body)
		resp.Body.Close()
		if string(got) != c.want {
			t.Errorf("%s: the upstream got %q, want %q", c.path, got, c.want)
		}
	}
}

// TestNoRoomForBodies: a body that fits neither into memory nor into files is refused with 503, and
// reaches no upstream. The next one, which fits into memory, is served.
func TestNoRoomForBodies(t *testing.T) {
	up := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { io.Copy(w, r.Body) }))
	defer up.Close()
	_, s := front(t, `
upstreams: { up: { url: "URL", buffer_request: { memory: 10, file: 1MiB } } }
routes: [{ match: /, upstream: up }]
`, up.URL)
	t.Setenv("TMPDIR", t.TempDir()+"/none")
	for body, want := range map[string]int{strings.Repeat("x", 1000): 503, "short": 200} {
		resp, err := http.Post(s.URL+"/x", "text/plain", strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		io.Copy(io.Discard, resp.Body)
		resp.Body.Close()
		if resp.StatusCode != want {
			t.Errorf("%d bytes: %d, want %d", len(body), resp.StatusCode, want)
		}
	}
}
