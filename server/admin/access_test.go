package admin

import (
	"crypto/tls"
	"net/http/httptest"
	"testing"
)

// TestGuardKeepsBrowsersOut: a web page in a browser on the same machine neither reads nor changes
// anything, also after DNS rebinding.
func TestGuardKeepsBrowsersOut(t *testing.T) {
	for name, c := range map[string]struct {
		method string
		host   string
		header map[string]string
		want   int // 0: passes
	}{
		"curl":                          {"GET", "127.0.0.1:9090", nil, 0},
		"curl, a change":                {"POST", "127.0.0.1:9090", nil, 0},
		"curl by name":                  {"POST", "localhost:9090", nil, 0},
		"curl over IPv6":                {"POST", "[::1]:9090", nil, 0},
		"without a port":                {"POST", "localhost", nil, 0},
		"a name made to lead here":      {"GET", "evil.example:9090", nil, 403},
		"such a name, with its origin":  {"POST", "evil.example:9090", map[string]string{"Origin": "http://evil.example:9090", "Sec-Fetch-Site": "same-origin"}, 403},
		"localhost as a part":           {"GET", "localhost.evil.example", nil, 403},
		"another address":               {"GET", "10.0.0.1:9090", nil, 403},
		"no host":                       {"GET", "", nil, 403},
		"a form elsewhere":              {"POST", "127.0.0.1:9090", map[string]string{"Origin": "https://evil.example"}, 403},
		"a form in a sandbox":           {"POST", "127.0.0.1:9090", map[string]string{"Origin": "null"}, 403},
		"a picture elsewhere":           {"GET", "127.0.0.1:9090", map[string]string{"Sec-Fetch-Site": "cross-site"}, 403},
		"another port of this machine":  {"POST", "127.0.0.1:9090", map[string]string{"Origin": "http://127.0.0.1:8080", "Sec-Fetch-Site": "same-site"}, 403},
		"a picture from another port":   {"GET", "127.0.0.1:9090", map[string]string{"Sec-Fetch-Site": "same-site"}, 403},
		"the address bar":               {"GET", "127.0.0.1:9090", map[string]string{"Sec-Fetch-Site": "none"}, 0},
		"a page of our own":             {"POST", "127.0.0.1:9090", map[string]string{"Origin": "http://127.0.0.1:9090", "Sec-Fetch-Site": "same-origin"}, 0},
		"our page over another scheme":  {"POST", "127.0.0.1:9090", map[string]string{"Origin": "https://127.0.0.1:9090"}, 403},
		"Origin of an old browser, GET": {"GET", "127.0.0.1:9090", map[string]string{"Origin": "http://evil.example"}, 403},
	} {
		r := httptest.NewRequest(c.method, "/v1/policy", nil)
		r.Host = c.host
		for k, v := range c.header {
			r.Header.Set(k, v)
		}
		got := 0
		if p := newAccess("127.0.0.1:9090").refuse(r); p != nil {
			got = p.Status
		}
		if got != c.want {
			t.Errorf("%s: %d, want %d", name, got, c.want)
		}
	}
}

// TestGuardAsksForTheToken: for every path, also for other machines, where the Host is not checked.
func TestGuardAsksForTheToken(t *testing.T) {
	const token = "0123456789abcdef"
	for name, c := range map[string]struct {
		auth []string
		want int
	}{
		"right":             {[]string{"Bearer " + token}, 0},
		"small letters":     {[]string{"bearer  " + token}, 0},
		"none":              {nil, 401},
		"wrong":             {[]string{"Bearer 0123456789abcdeF"}, 401},
		"its beginning":     {[]string{"Bearer 0123456789abcde"}, 401},
		"empty":             {[]string{"Bearer "}, 401},
		"another scheme":    {[]string{"Basic " + token}, 401},
		"two":               {[]string{"Bearer " + token, "Bearer " + token}, 401},
		"without a scheme":  {[]string{token}, 401},
		"something besides": {[]string{"Bearer " + token + " x"}, 401},
	} {
		for _, remote := range []bool{false, true} {
			g := newAccess("127.0.0.1:9090")
			if remote {
				g = newAccess("[::]:9090")
			}
			g.setToken(token)
			r := httptest.NewRequest("GET", "/v1/policy", nil)
			if r.Host = "127.0.0.1:9090"; remote {
				r.Host, r.TLS = "gateway.example:9090", new(tls.ConnectionState)
			}
			r.Header["Authorization"] = c.auth
			got := 0
			if p := g.refuse(r); p != nil {
				got = p.Status
			}
			if got != c.want {
				t.Errorf("%s, remote %v: %d, want %d", name, remote, got, c.want)
			}
		}
	}
}
