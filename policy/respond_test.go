package policy_test

import (
	"strings"
	"testing"

	"github.com/weirflow/weir/policy"
)

// TestAddress: a route with addresses matches requests to one of them, and requests whose address
// is unknown.
func TestAddress(t *testing.T) {
	e, _ := engine(t, policy.Policy{
		Routes: []policy.Route{{Match: "/", Address: []string{":81", ":82"}}, {Match: "/", Address: []string{":83"}}, {Match: "/a"}},
	})
	for _, c := range []struct {
		listener, path string
		want           int
	}{{":81", "/", 0}, {":82", "/a", 0}, {":83", "/a", 1}, {":84", "/a", 2}, {":84", "/", -1}, {"", "/", 0}} {
		r := get(c.path, "10.0.0.1")
		r.Listener = c.listener
		if got := e.Match(r).Route; got != c.want {
			t.Errorf("%s at %q: route %d, want %d", c.path, c.listener, got, c.want)
		}
	}
}

// TestLocation: a redirect can contain parts of the request, but they cannot make it lead to
// another host.
func TestLocation(t *testing.T) {
	for _, c := range []struct{ redirect, host, path, query, want string }{
		{"https://{host}{uri}", "Shop.example:8080", "/a%20b", "x=1", "https://shop.example/a%20b?x=1"},
		{"{uri}", "a", "//evil.example/", "", "/evil.example/"},
		{"{path}?from={query}", "a", `/\evil.example`, "b", "/evil.example?from=b"},
		{"/fixed", "a", "/x", "y", "/fixed"},
	} {
		if got := (policy.Response{Redirect: c.redirect}).Location(c.host, c.path, c.query); got != c.want {
			t.Errorf("%s for %s: %s, want %s", c.redirect, c.path, got, c.want)
		}
	}
}

// TestWrongResponses: settings that exclude each other are errors.
func TestWrongResponses(t *testing.T) {
	for want, r := range map[string]policy.Route{
		"upstream and respond exclude each other":    {Match: "/", Upstream: "up", Respond: policy.Response{Status: 200}},
		"body, file and redirect exclude each other": {Match: "/", Respond: policy.Response{Body: "a", Redirect: "/"}},
		"is not where a browser can go":              {Match: "/", Respond: policy.Response{Redirect: "https://{hots}/"}},
		"200 is not a status to respond with":        {Match: "/", Respond: policy.Response{Redirect: "/", Status: 200}},
		"match has a {variable}":                     {Match: "/a/{x}", Upstream: "up", UpstreamPath: "/b/"},
		"no upstream gets the path":                  {Match: "/a/", Respond: policy.Response{Status: 200}, UpstreamPath: "/b/"},
		`"v2" is not a path`:                         {Match: "/a/", Upstream: "up", UpstreamPath: "v2"},
		`the gateway does not listen on ":82"`:       {Match: "/", Upstream: "up", Address: []string{":82"}},
		`"X A" is not a header field with a value`:   {Match: "/", Upstream: "up", AddHeaders: []policy.AddHeader{{Name: "X A", Value: "1"}}},
	} {
		p := policy.Policy{
			Listen:    policy.Listen{Gateway: []policy.Listener{{Address: ":81"}}},
			Upstreams: []policy.Upstream{{Name: "up", URL: "http://127.0.0.1:9000"}},
			Routes:    []policy.Route{r},
		}
		var all []string
		for _, problem := range p.Check() {
			all = append(all, problem.String())
		}
		if got := strings.Join(all, "\n"); !strings.Contains(got, want) {
			t.Errorf("got %s, want %s", got, want)
		}
	}
}
