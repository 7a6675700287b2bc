package gateway_test

import (
	"io"
	"net/http"
	"strings"
	"testing"
)

// TestRespond: a route responds by itself once its limits admit the request, redirects with parts
// of the request, rewrites the path for its upstream, and adds header fields.
func TestRespond(t *testing.T) {
	up := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if strings.Contains(r.RequestURI, "missing") {
			w.WriteHeader(http.StatusNotFound)
		}
		io.WriteString(w, r.RequestURI)
	})
	_, front, _ := start(t, `
limits:
  once: { key: client.ip, fixed_window: { limit: 1, window: 1h } }
upstreams:
  up: { url: "URL" }
routes:
  - { match: /hello, respond: { body: hi }, limits: [once] }
  - { match: /gone, respond: { status: 410 }, add_headers: { X-A: { value: "1", always: true }, X-B: "2" } }
  - { match: /empty, respond: { status: 204 } }
  - { match: /to*, respond: { redirect: "https://{host}{uri}", status: 301 } }
  - { match: /api/, upstream: up, upstream_path: /v2/, add_headers: { X-Frame-Options: DENY } }
  - { match: /one, upstream: up, upstream_path: /other }
  - { match: /pre*, upstream: up, upstream_path: /x/ }
`, up)
	base := front.URL
	client := &http.Client{CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	for _, c := range []struct {
		path   string
		status int
		body   string
		fields map[string]string
	}{
		{"/hello", 200, "hi", nil},
		{"/hello", 429, "Too Many Requests\n", nil},
		{"/gone", 410, "Gone\n", map[string]string{"X-A": "1", "X-B": ""}},
		{"/empty", 204, "", nil},
		{"/to?a=b", 301, "", map[string]string{"Location": "https://HOST/to?a=b"}},
		{"/to/%2e%2e/../to//x", 301, "", map[string]string{"Location": "https://HOST/to/%2e%2e/../to//x"}},
		{"/api/users?x=1", 200, "/v2/users?x=1", map[string]string{"X-Frame-Options": "DENY"}},
		{"/api/", 200, "/v2/", nil},
		{"/api/a%20b%2Fc", 200, "/v2/a%20b/c", nil},
		{"/api/x/../../api/y", 200, "/v2/y", nil},
		{"/api/missing", 404, "/v2/missing", map[string]string{"X-Frame-Options": ""}},
		{"/one?q", 200, "/other?q", nil},
		{"/prefix/y", 200, "/x/fix/y", nil},
	} {
		resp, err := client.Get(base + c.path)
		if err != nil {
			t.Fatal(err)
		}
		body, _ := io.ReadAll(resp.Body)
		resp.Body.Close()
		if resp.StatusCode != c.status || string(body) != c.body {
			t.Errorf("%s: %d %q, want %d %q", c.path, resp.StatusCode, body, c.status, c.body)
		}
		for name, want := range c.fields {
			host, _, _ := strings.Cut(strings.TrimPrefix(base, "http://"), ":")
			if got := resp.Header.Get(name); got != strings.ReplaceAll(want, "HOST", host) {
				t.Errorf("%s: %s: %q, want %q", c.path, name, got, want)
			}
		}
	}
}

// TestClientHeader: trusted proxies may send the client's address in another header field.
func TestClientHeader(t *testing.T) {
	_, front, _ := start(t, `
trusted_proxies: [127.0.0.0/8]
client_header: x-real-ip
limits:
  once: { key: client.ip, fixed_window: { limit: 1, window: 1h }, exempt: [192.0.2.0/24, header.x-internal=yes] }
routes:
  - { match: /, respond: { body: hi }, limits: [once] }
`, echo)
	for i, c := range []struct {
		fields map[string]string
		want   int
	}{
		{map[string]string{"X-Real-IP": "203.0.113.1", "X-Forwarded-For": "203.0.113.9"}, 200},
		{map[string]string{"X-Real-IP": "203.0.113.1", "X-Forwarded-For": "203.0.113.8"}, 429},
		{map[string]string{"X-Real-IP": "203.0.113.2"}, 200},
		{map[string]string{"X-Real-IP": "203.0.113.1", "X-Internal": "yes"}, 200},
		{map[string]string{"X-Real-IP": "192.0.2.1"}, 200},
		{map[string]string{"X-Real-IP": "192.0.2.1"}, 200},
	} {
		r, _ := http.NewRequest(http.MethodGet, front.URL+"/", nil)
		for name, value := range c.fields {
			r.Header.Set(name, value)
		}
		resp, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		if resp.StatusCode != c.want {
			t.Errorf("request %d: %d, want %d", i, resp.StatusCode, c.want)
		}
	}
}
