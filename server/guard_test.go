package server

import (
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// TestEveryPageIsGuarded: no path but /healthz responds to a web page in a browser on this machine,
// whether the path exists or not. The case that was found is /metrics through DNS rebinding.
func TestEveryPageIsGuarded(t *testing.T) {
	path, _ := newPolicy(t)
	r := serve(t, Options{Path: path, Watch: time.Hour})
	browsers := []http.Header{
		{"Host": {"evil.example:9090"}},
		{"Host": {"evil.example"}, "Origin": {"http://evil.example"}, "Sec-Fetch-Site": {"same-origin"}},
		{"Host": {"127.0.0.1.evil.example"}},
		{"Origin": {"https://evil.example"}},
		{"Origin": {"null"}},
		{"Sec-Fetch-Site": {"cross-site"}},
		{"Sec-Fetch-Site": {"same-site"}},
	}
	for _, page := range []string{"/metrics", "/readyz", "/", "/nothing", "/healthz/", "//healthz", "/v1/status", "/v1/policy", "/v1/overrides", "/v1/reload", "/v1/nothing", "/debug/pprof/", "/ui/app.js", "/ui/", "/v1/live", "/v1/keys", "/v1/explain", "/v1/reset"} {
		for _, method := range []string{"GET", "HEAD", "POST", "OPTIONS"} {
			for _, h := range browsers {
				if got := status(t, method, "http://"+r.Admin+page, h); got != http.StatusForbidden {
					t.Errorf("%s %s with %v: %d", method, page, h, got)
				}
			}
		}
	}
	for _, page := range []string{"/healthz", "/readyz", "/metrics", "/v1/status"} {
		if got := status(t, "GET", "http://"+r.Admin+page, nil); got != http.StatusOK {
			t.Errorf("%s: %d", page, got)
		}
	}
	if got := status(t, "GET", "http://"+r.Admin+"/healthz", browsers[0]); got != http.StatusOK {
		t.Errorf("/healthz: %d", got)
	}
	r.end(t)
}

// everyAddress is a policy with every service over HTTP, whose limit and secret text no web page may
// charge or read.
const everyAddress = `
listen:
  admin: "127.0.0.1:0"
  http: "127.0.0.1:0"
  rls: { address: "127.0.0.1:0", http: "127.0.0.1:0" }
trusted_proxies: [127.0.0.1]
limits:
  secretly: { key: client.ip, token_bucket: { rate: 1/h, burst: 5 } }
routes: [{ match: /login, limits: [secretly] }]
`

// TestNoWebPageReachesAService: whichever address, path, method and header fields a web page in a
// browser on this machine uses, it charges no limit and reads nothing of the policy. The cases that
// were found are /rlconfig and /auth/envoy through DNS rebinding, and /json from a form.
func TestNoWebPageReachesAService(t *testing.T) {
	path := filepath.Join(t.TempDir(), "policy.yaml")
	if err := os.WriteFile(path, []byte(everyAddress), 0o600); err != nil {
		t.Fatal(err)
	}
	r := serve(t, Options{Path: path, Watch: time.Hour})
	const asJSON = "application/json"
	take := `{"limit":"secretly","key":["127.0.0.1"]}`
	rls := `{"domain":"d","descriptors":[{"entries":[{"key":"limit","value":"secretly"},{"key":"ip","value":"127.0.0.1"}]}]}`
	for _, service := range []struct {
		address string
		paths   []string
		body    string
	}{
		{r.Admin, []string{"/metrics", "/v1/status", "/v1/policy", "/v1/usage?key=127.0.0.1", "/v1/usage/export", "/v1/live", "/v1/keys", "/v1/explain?limit=secretly&key=127.0.0.1"}, take},
		{r.ByFace["http"][0], []string{"/v1/take", "/v1/peek", "/v1/reserve", "/v1/batch", "/v1/usage?key=127.0.0.1", "/v1/explain?limit=secretly&key=127.0.0.1", "/auth", "/auth/nginx", "/auth/envoy/login"}, take},
		{r.ByFace["rls"][1], []string{"/json", "/rlconfig"}, rls},
	} {
		// what a page that made its own name resolve to this machine can send, and what others can
		_, port, _ := strings.Cut(service.address, ":")
		rebound := "evil.example:" + port
		everything := http.Header{"Content-Type": {asJSON}, "X-Forwarded-Method": {"GET"}, "X-Forwarded-Uri": {"/login"}, "X-Forwarded-For": {"127.0.0.1"}}
		for _, one := range []struct {
			what, host string
			fields     http.Header
		}{
			{"DNS rebinding", rebound, everything},
			{"DNS rebinding, a form", rebound, merged(everything, "Origin", "http://"+rebound, "Sec-Fetch-Site", "same-origin")},
			{"a form", "", merged(nil, "Content-Type", "text/plain", "Origin", "https://evil.example", "Sec-Fetch-Site", "cross-site")},
			{"a form of an old browser", "", merged(nil, "Content-Type", "application/x-www-form-urlencoded", "Origin", "https://evil.example")},
			{"a sandbox", "", merged(nil, "Content-Type", "text/plain", "Origin", "null")},
			{"a picture", "", merged(nil, "Sec-Fetch-Site", "cross-site")},
			{"a page of another port", "", merged(nil, "Sec-Fetch-Site", "same-site", "Origin", "http://127.0.0.1:3000")},
			{"text that says no origin", "", merged(nil, "Content-Type", "text/plain")},
		} {
			for _, page := range service.paths {
				for _, method := range []string{"GET", "HEAD", "POST", "OPTIONS"} {
					if one.what == "text that says no origin" && method != "POST" {
						continue // curl's GET is no web page
					}
					req, err := http.NewRequest(method, "http://"+service.address+page, strings.NewReader(service.body))
					if err != nil {
						t.Fatal(err)
					}
					req.Host, req.Header = one.host, one.fields
					resp, err := http.DefaultTransport.RoundTrip(req)
					if err != nil {
						t.Fatal(err)
					}
					text, _ := io.ReadAll(resp.Body)
					resp.Body.Close()
					if resp.StatusCode < 400 || strings.Contains(string(text), "secretly") || resp.Header.Get("Access-Control-Allow-Origin") != "" {
						t.Errorf("%s, %s %s: %d %s", one.what, method, page, resp.StatusCode, text)
					}
				}
			}
		}
	}
	if _, text := fetch(t, "http://"+r.ByFace["http"][0]+"/v1/usage?limit=secretly&key=127.0.0.1"); !strings.Contains(text, `"used":0,`) {
		t.Errorf("a web page charged the limit: %s", text)
	}
	r.end(t)
}

// merged returns header fields with more of them.
func merged(h http.Header, more ...string) http.Header {
	h = h.Clone()
	if h == nil {
		h = http.Header{}
	}
	for i := 0; i < len(more); i += 2 {
		h.Set(more[i], more[i+1])
	}
	return h
}

func status(t *testing.T, method, url string, h http.Header) int {
	t.Helper()
	req, err := http.NewRequest(method, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	if h != nil {
		req.Header = h
		req.Host = h.Get("Host")
	}
	resp, err := http.DefaultTransport.RoundTrip(req)
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	return resp.StatusCode
}
