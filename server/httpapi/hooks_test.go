package httpapi

import (
	"bufio"
	"fmt"
	"net"
	"net/http"
	"strings"
	"testing"
)

// ask sends a request to a hook as a proxy does.
func (s *service) ask(hook, target string, fields ...string) (int, http.Header, string) {
	s.t.Helper()
	if hook != "/auth/envoy" {
		fields = append([]string{"X-Forwarded-Method", "GET", "X-Forwarded-Uri", target}, fields...)
		target = ""
	}
	return s.call("GET", hook+target, "", append([]string{"X-Forwarded-For", "192.0.2.1"}, fields...)...)
}

const hookPolicy = "trusted_proxies: [127.0.0.1]\n" + limits + `
  per-plan: { key: client.ip, fixed_window: { limit: 1, window: 1h }, status: 402 }
routes:
  - { match: /login, limits: [per-ip] }
  - { match: /busy, limits: [per-ip], refused: { status: 503, body: "{\"wait\": true}" } }
  - { match: /away, limits: [per-ip], refused: { redirect: /wait } }
  - { match: /page, limits: [per-ip], refused: { file: full.html, status: 503 } }
  - { match: /paid, limits: [per-plan], refused: { body: pay } }
`

// TestHooksRefuseAsTheRouteSays: with the status, the body, the file or the redirect of refused, and with
// the status of a limit; nginx gets 403, and the status for its client in a field.
func TestHooksRefuseAsTheRouteSays(t *testing.T) {
	s := serve(t, hookPolicy, "", map[string]string{"full.html": "<p>full</p>"})
	for range 2 {
		if status, h, _ := s.ask("/auth", "/login"); status != 204 || h.Get("RateLimit") == "" {
			t.Fatalf("%d %v", status, h)
		}
	}
	if status, _, _ := s.ask("/auth", "/paid"); status != 204 {
		t.Fatal(status)
	}
	for target, want := range map[string]string{
		"/login": "429 text/plain; charset=utf-8  Too Many Requests", "/busy": `503 application/json  {"wait": true}`, "/away": "302  /wait ",
		"/page": "503 text/html; charset=utf-8  <p>full</p>", "/paid": "402 text/plain; charset=utf-8  pay", "/free": "204   ",
	} {
		for _, hook := range []string{"/auth", "/auth/envoy", "/auth/nginx"} {
			status, h, body := s.ask(hook, target)
			forClient := fmt.Sprint(status)
			if hook == "/auth/nginx" && status != 204 {
				if forClient = h.Get("X-Ratelimit-Status"); status != 403 {
					t.Errorf("%s: %d", target, status)
				}
			}
			got := fmt.Sprintf("%s %s %s %s", forClient, h.Get("Content-Type"), h.Get("Location"), body)
			if got != want || target != "/free" && h.Get("Retry-After") == "" {
				t.Errorf("%s %s: %q %v, not %q", hook, target, got, h, want)
			}
		}
	}
	if _, h, body := s.ask("/auth", "/login", "Accept", "application/problem+json"); h.Get("Content-Type") != "application/problem+json" || !strings.Contains(body, `"violated-policies":["per-ip"]`) {
		t.Errorf("%v %s", h, body)
	}
}

// TestMisconfiguredProxies: what a proxy lacks is no refusal by a limit, which nginx and HAProxy would
// take a 403 for; the log says what to write.
func TestMisconfiguredProxies(t *testing.T) {
	for name, c := range map[string]struct {
		text   string
		fields []string
		fix    string
	}{
		"no trusted_proxies": {strings.Replace(hookPolicy, "127.0.0.1", "192.0.2.0/24", 1), nil, "add the proxy's address to trusted_proxies"},
		"no client":          {hookPolicy, []string{"X-Forwarded-For", ""}, "let the proxy set X-Forwarded-For"},
		"no request":         {hookPolicy, []string{"X-Forwarded-Uri", ""}, "let the proxy set X-Forwarded-Method and X-Forwarded-Uri"},
		"a web page of ours": {hookPolicy, []string{"Host", "evil.example:PORT"}, "let the proxy send as Host"},
	} {
		s := serve(t, c.text, "", map[string]string{"full.html": "x"})
		_, port, _ := net.SplitHostPort(s.Addresses()[0])
		for i, f := range c.fields {
			c.fields[i] = strings.Replace(f, "PORT", port, 1)
		}
		for hook, want := range map[string]int{"/auth": 403, "/auth/nginx": 500} {
			req, err := http.NewRequest("GET", s.url(hook), http.NoBody)
			if err != nil {
				t.Fatal(err)
			}
			for i, all := 0, append([]string{"X-Forwarded-For", "192.0.2.1", "X-Forwarded-Method", "GET", "X-Forwarded-Uri", "/free"}, c.fields...); i < len(all); i += 2 {
				if req.Header.Set(all[i], all[i+1]); all[i] == "Host" {
					req.Host = all[i+1]
				}
				if all[i+1] == "" {
					req.Header.Del(all[i])
				}
			}
			resp, err := http.DefaultClient.Do(req)
			if err != nil {
				t.Fatal(err)
			}
			resp.Body.Close()
			if resp.StatusCode != want || resp.Header.Get("X-Ratelimit-Status") != "" {
				t.Errorf("%s, %s: %d %v", name, hook, resp.StatusCode, resp.Header)
			}
		}
		if log := s.log.String(); strings.Count(log, c.fix) != 1 {
			t.Errorf("%s: the log says %s", name, log)
		}
	}
}

// TestHookPaths: a path that a proxy and its application would read in another way is refused, and so
// are fields that contradict each other: a client may have sent one of them.
func TestHookPaths(t *testing.T) {
	s := serve(t, hookPolicy, "", map[string]string{"full.html": "x"})
	for range 2 {
		if status, _, _ := s.ask("/auth", "/login"); status != 204 {
			t.Fatal(status)
		}
	}
	if status, _, _ := s.ask("/auth", "/login", "X-Original-Uri", "/login"); status != 429 {
		t.Errorf("two fields that agree: %d", status)
	}
	for _, fields := range [][]string{
		{"/login#1"}, {"/login\\x"}, {"login"}, {"http://x/login"}, {"/login x"},
		{"/free", "X-Original-Uri", "/login"},
		{"/login", "X-Original-Url", "/free"},
		{"/login", "X-Original-Method", "POST"},
	} {
		if status, _, _ := s.ask("/auth", fields[0], fields[1:]...); status != 400 {
			t.Errorf("%q: %d", fields, status)
		}
		if status, h, _ := s.ask("/auth/nginx", fields[0], fields[1:]...); status != 403 || h.Get("X-Ratelimit-Status") != "400" {
			t.Errorf("%q, nginx: %d %v", fields, status, h)
		}
	}
	for path, want := range map[string]int{"/login": 429, "/login?x": 429, "/%6cogin": 429, "//login": 429, "/x/../login": 429, "/login#1": 400, "/login\\": 400, "/free": 204} {
		c, err := net.Dial("tcp", s.Addresses()[0])
		if err != nil {
			t.Fatal(err)
		}
		fmt.Fprintf(c, "GET /auth/envoy%s HTTP/1.1\r\nHost: shop.example\r\nX-Forwarded-For: 192.0.2.1\r\n\r\n", path)
		resp, err := http.ReadResponse(bufio.NewReader(c), nil)
		if err != nil {
			t.Fatal(err)
		}
		c.Close()
		if resp.StatusCode != want {
			t.Errorf("/auth/envoy%s: %d, not %d", path, resp.StatusCode, want)
		}
	}
}
