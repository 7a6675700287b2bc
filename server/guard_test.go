package server

import (
	"net/http"
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
	for _, page := range []string{"/metrics", "/readyz", "/", "/nothing", "/healthz/", "//healthz", "/v1/status", "/v1/policy", "/v1/overrides", "/v1/reload", "/v1/nothing", "/debug/pprof/"} {
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
