package policyfile

import (
	"strings"
	"testing"

	"github.com/weirflow/weir/policy"
)

// TestIgnoreCaseOfRoutes: ignore_case of a route is short for that of its paths. If both are there and
// differ, that is an error at the short one.
func TestIgnoreCaseOfRoutes(t *testing.T) {
	for route, want := range map[string]policy.Paths{
		"ignore_case: true":  {IgnoreCase: policy.Yes},
		"ignore_case: false": {IgnoreCase: policy.No},
		"ignore_case: true, paths: { ignore_trailing_slash: false }": {IgnoreCase: policy.Yes, IgnoreTrailingSlash: policy.No},
		"ignore_case: true, paths: { ignore_case: true }":            {IgnoreCase: policy.Yes},
		"paths: { ignore_case: true }":                               {IgnoreCase: policy.Yes},
	} {
		f, err := Parse("p", []byte("routes: [{ match: /a, respond: { body: a }, "+route+" }]"))
		if err != nil || f.Policy.Routes[0].Paths != want {
			t.Errorf("%s: %+v %v, want %+v", route, f.Policy.Routes[0].Paths, err, want)
		}
	}
	_, err := Parse("p", []byte("routes:\n  - match: /a\n    respond: { body: a }\n    paths: { ignore_case: false }\n    ignore_case: true\n"))
	if want := "p:5:18: error: ignore_case is true here, and false in paths\n\tfix: remove one of them"; err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("%v, want %s", err, want)
	}
}

// TestBufferRequestOfRoutes: a route has the same values of buffer_request as an upstream.
func TestBufferRequestOfRoutes(t *testing.T) {
	for value, want := range map[string]policy.Buffer{
		"off":                           {Off: true},
		"{ memory: 64KiB, file: 1MiB }": {Memory: 64 << 10, File: 1 << 20},
	} {
		f, err := Parse("p", []byte("upstreams: { up: { url: \"http://a\", buffer_request: "+value+" } }\nroutes: [{ match: /a, upstream: up, buffer_request: "+value+" }]"))
		if err != nil || f.Policy.Routes[0].BufferRequest != want || f.Policy.Upstreams[0].BufferRequest != want {
			t.Errorf("%s: %v, want %+v", value, err, want)
		}
	}
	for line, want := range map[string]string{
		"upstream: up, buffer_request: on":                   `"on" is not how requests are buffered`,
		"upstream: up, buffer_requests: off":                 `there is no key "buffer_requests" here`,
		"upstream: up, buffer_request: { memory: much }":     `"much" is not`,
		"respond: { status: 200 }, buffer_request: off":      "buffer_request is about requests to an upstream, and this route has none",
		"upstream: up, buffer_request: { memory: 1, of: 2 }": `there is no key "of" here`,

		"upstream: up, buffer_request: {}":                           `buffer_request has no settings`,
		"upstream: up, buffer_request: { memory: 2MiB, file: 1MiB }": `file (1048576 bytes) is the most of a body in all, and below memory (2097152 bytes)`,
		"upstream: up, buffer_request: { file: 64KiB }":              `below memory (1048576 bytes)`,
	} {
		if _, err := Parse("p", []byte("upstreams: { up: { url: \"http://a\" } }\nroutes: [{ match: /a, "+line+" }]")); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", line, err, want)
		}
	}
}
