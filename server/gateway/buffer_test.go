package gateway_test

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

// TestNoRoomForBodies: a body that fits neither into memory nor into files is refused with 503, and
// reaches no upstream. The next one, which fits into memory, is served.
func TestNoRoomForBodies(t *testing.T) {
	up := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { io.Copy(w, r.Body) }))
	defer up.Close()
	_, s := front(t, `
upstreams: { up: { url: "URL", buffer_requests: { memory: 10, file: 1MiB } } }
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
