package server

import (
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

const roomed = `
listen: { gateway: "127.0.0.1:0", admin: "127.0.0.1:0" }
admin: { token_file: token }
waiting_rooms:
  sale: { admit: 1/d, burst: 1, inside: 5, opens: 2199-01-01T00:00:00Z, announce: "<script>alert(1)</script>" }
routes:
  - { match: /, waiting_room: sale, respond: { body: ok } }
`

// TestAdminRooms: the API lists the waiting rooms with their settings and numbers. A preview of the page needs the token to be made, and
// none to be shown in a frame: its address is one that nobody can guess, and the page can do nothing.
func TestAdminRooms(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "policy.yaml")
	write(t, path, roomed)
	if err := os.WriteFile(filepath.Join(dir, "token"), []byte(token+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	r := serve(t, Options{Path: path})
	t.Cleanup(func() { r.end(t) })
	a := api{t: t, url: "http://" + r.Admin, token: token}
	nobody := api{t: t, url: a.url}
	if got := a.ask("GET", "/v1/rooms", ""); got.Status != 200 || !strings.Contains(got.text, `"name": "sale"`) || !strings.Contains(got.text, `"before": true`) ||
		!strings.Contains(got.text, `"opens": "2199-01-01T00:00:00Z"`) || !strings.Contains(got.text, `"admit": "1/d"`) || !strings.Contains(got.text, `"joined": 0`) {
		t.Errorf("%d %s", got.Status, got.text)
	}
	for body, want := range map[string]int{`{"room":"sale","state":"gone"}`: 422, `{"room":"none"}`: 404, `{"rom":"sale"}`: 400, `{"room":"sale"}`: 200} {
		if got := a.ask("POST", "/v1/rooms/preview", body); got.Status != want {
			t.Errorf("%s: %d %s", body, got.Status, got.text)
		}
	}
	for state, want := range map[string]string{"waiting": "1,206", "before": "You are early", "kept": "Your place is kept"} {
		made := a.ask("POST", "/v1/rooms/preview", `{"room":"sale","state":"`+state+`","language":"en"}`)
		_, path, _ := strings.Cut(made.text, `"path": "`)
		path, _, _ = strings.Cut(path, `"`)
		resp, err := http.Get(a.url + path)
		if err != nil {
			t.Fatal(err)
		}
		page, err := io.ReadAll(resp.Body)
		resp.Body.Close()
		if err != nil || resp.StatusCode != 200 || !strings.Contains(string(page), want) || strings.Contains(string(page), "<script") || !strings.Contains(string(page), "&lt;script&gt;") ||
			!strings.HasSuffix(resp.Header.Get("Content-Security-Policy"), "; sandbox") {
			t.Errorf("%s: %v, %d %v %s", state, err, resp.StatusCode, resp.Header, page)
		}
		if got := nobody.ask("GET", path+"x", ""); got.Status != 401 {
			t.Errorf("another address: %d", got.Status)
		}
		if got := nobody.ask("POST", path, ""); got.Status != 401 {
			t.Errorf("a POST: %d", got.Status)
		}
	}
	for _, path := range []string{"/v1/rooms", "/ui/preview/", "/ui/preview/x"} {
		if got := nobody.ask("GET", path, ""); got.Status != 401 {
			t.Errorf("%s without a token: %d", path, got.Status)
		}
	}
}
