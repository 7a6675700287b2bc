package guard

import (
	"net/http"
	"net/http/httptest"
	"testing"
)

// TestFormsCannotBeSent: no Content-Type that another site's page can send without a preflight is
// accepted.
func TestFormsCannotBeSent(t *testing.T) {
	for given, want := range map[string]bool{
		"application/json": true, "application/json; charset=utf-8": true, "APPLICATION/JSON": true,
		"": false, "text/plain": false, "application/x-www-form-urlencoded": false, "multipart/form-data; boundary=x": false,
		"text/plain; application/json": false, "application/json, text/plain": false, "application/jsonx": false,
	} {
		r := httptest.NewRequest("POST", "/v1/ban", nil)
		if r.Header = (http.Header{}); given != "" {
			r.Header.Set("Content-Type", given)
		}
		if IsTyped(r, "application/json") != want {
			t.Errorf("%q: want %v", given, want)
		}
	}
}

// browser is a request with header fields of a browser.
func browser(method, host string, fields map[string]string) *http.Request {
	r := httptest.NewRequest(method, "/v1/take", nil)
	r.Host = host
	for name, value := range fields {
		r.Header.Set(name, value)
	}
	return r
}

// TestPages: no web page of another origin passes, not even under a name that resolves to this machine;
// pages of the service's own pass only where it has some.
func TestPages(t *testing.T) {
	for name, c := range map[string]struct {
		host            string
		fields          map[string]string
		programs, pages bool // passes
	}{
		"curl":                              {"127.0.0.1:9090", nil, true, true},
		"by name":                           {"LOCALHOST:9090", nil, true, true},
		"over IPv6":                         {"[::1]:9090", nil, true, true},
		"an IPv4 address as IPv6":           {"[::ffff:127.0.0.1]:9090", nil, true, true},
		"without a port":                    {"localhost", nil, true, true},
		"the name of the policy":            {"weir.internal:9090", nil, true, true},
		"a name that resolves to it":        {"evil.example:9090", nil, false, false},
		"such a name, with its origin":      {"evil.example:9090", map[string]string{"Origin": "http://evil.example:9090", "Sec-Fetch-Site": "same-origin"}, false, false},
		"an address and a part behind it":   {"127.0.0.1.evil.example:9090", nil, false, false},
		"no host":                           {"", nil, false, false},
		"a page of another origin":          {"127.0.0.1:9090", map[string]string{"Origin": "https://evil.example"}, false, false},
		"an empty origin":                   {"127.0.0.1:9090", map[string]string{"Origin": ""}, false, false},
		"a page in a sandbox":               {"127.0.0.1:9090", map[string]string{"Origin": "null"}, false, false},
		"a picture on such a page":          {"127.0.0.1:9090", map[string]string{"Sec-Fetch-Site": "cross-site"}, false, false},
		"a page of another port":            {"127.0.0.1:9090", map[string]string{"Sec-Fetch-Site": "same-site"}, false, false},
		"the address bar":                   {"127.0.0.1:9090", map[string]string{"Sec-Fetch-Site": "none"}, true, true},
		"a page of this address":            {"127.0.0.1:9090", map[string]string{"Origin": "http://127.0.0.1:9090", "Sec-Fetch-Site": "same-origin"}, false, true},
		"a page of this address, under TLS": {"127.0.0.1:9090", map[string]string{"Origin": "https://127.0.0.1:9090"}, false, false},
	} {
		address := "127.0.0.1:9090"
		if name == "the name of the policy" {
			address = "weir.internal:9090" // which is no address of this machine: Host is not checked
		}
		if passes := New(address).Page(browser("POST", c.host, c.fields)) == nil; passes != c.programs {
			t.Errorf("%s, a service for programs: passes %v", name, passes)
		}
		if passes := ForPages(address).Page(browser("POST", c.host, c.fields)) == nil; passes != c.pages {
			t.Errorf("%s, a service with pages: passes %v", name, passes)
		}
	}
	r := browser("GET", "127.0.0.1:9090", nil)
	r.Header["Sec-Fetch-Site"] = []string{"none", "cross-site"}
	if New("127.0.0.1:9090").Page(r) == nil {
		t.Error("a second Sec-Fetch-Site is not read")
	}
}

// TestHooks: proxies pass, with the Host and the Origin of the client's request. Web pages do not: they
// cannot send the client's address, or their Host has the port of the service.
func TestHooks(t *testing.T) {
	from := map[string]string{"X-Forwarded-For": "192.0.2.1"}
	for name, c := range map[string]struct {
		host   string
		fields map[string]string
		passes bool
	}{
		"a proxy that sends our address":        {"127.0.0.1:8082", from, true},
		"one that sends the client's Host":      {"shop.example", from, true},
		"one with a port of its own":            {"shop.example:8443", from, true},
		"a client's request of a page":          {"shop.example", map[string]string{"X-Forwarded-For": "192.0.2.1", "Origin": "https://shop.example", "Sec-Fetch-Site": "cross-site"}, true},
		"without the client's address":          {"127.0.0.1:8082", nil, false},
		"a name that resolves to our host":      {"evil.example:8082", from, false},
		"an address that is not this machine's": {"192.0.2.7:8082", from, false},
	} {
		g := New("127.0.0.1:0")
		g.ListensOn("127.0.0.1:8082")
		if passes := g.Hook(browser("GET", c.host, c.fields), "X-Forwarded-For") == nil; passes != c.passes {
			t.Errorf("%s: passes %v", name, passes)
		}
	}
	g := New("127.0.0.1:80")
	if g.Hook(browser("GET", "evil.example", from), "X-Forwarded-For") == nil {
		t.Error("port 80 is not written in Host, and its pages pass")
	}
}
