package policy

import (
	"strings"
	"testing"
)

// TestFixPaths: which line gets settings that routes lack. It keeps what it has, and routes that share a
// line get the same one.
func TestFixPaths(t *testing.T) {
	both := map[int]Paths{0: {IgnoreExtension: Yes}, 1: {IgnoreSemicolons: Yes}}
	for name, c := range map[string]struct {
		top    Paths
		routes []Route
		needs  map[int]Paths
		want   [2]string // by route
	}{
		"no line": {Paths{}, []Route{{Match: "/a"}, {Match: "/b"}}, both, [2]string{
			"routes.0.paths: { ignore_extension: true }", "routes.1.paths: { ignore_semicolons: true }"}},
		"the line of the policy": {Paths{IgnoreCase: Yes, Ambiguous: "allow"}, []Route{{Match: "/a"}, {Match: "/b"}}, both, [2]string{
			"paths: { ignore_case: true, ignore_extension: true, ignore_semicolons: true, ambiguous: allow }",
			"paths: { ignore_case: true, ignore_extension: true, ignore_semicolons: true, ambiguous: allow }"}},
		"the line of a route": {Paths{IgnoreCase: Yes}, []Route{{Match: "/a", Paths: Paths{IgnoreTrailingSlash: No}}, {Match: "/b"}}, both, [2]string{
			"routes.0.paths: { ignore_trailing_slash: false, ignore_extension: true }", "paths: { ignore_case: true, ignore_semicolons: true }"}},
		"what was said is wrong": {Paths{IgnoreCase: No, Ambiguous: "allow"}, []Route{{Match: "/a"}}, map[int]Paths{0: {IgnoreCase: Yes, Ambiguous: "refuse"}}, [2]string{
			"paths: { ignore_case: true, ambiguous: refuse }"}},
		"two upstreams": {Paths{IgnoreCase: Yes}, []Route{{Match: "/a", Upstream: "x"}, {Match: "/b", Upstream: "y"}}, both, [2]string{
			"routes.0.paths: { ignore_extension: true }", "routes.1.paths: { ignore_semicolons: true }"}},
		"a route would take the requests of another": {Paths{IgnoreSemicolons: Yes}, []Route{{Match: "/b"}, {Match: "/a"}, {Match: "/A"}}, map[int]Paths{0: {IgnoreCase: Yes}}, [2]string{
			"routes.0.paths: { ignore_case: true }"}},
	} {
		p := Policy{Paths: c.top, Routes: c.routes}
		fixes := p.FixPaths(c.needs)
		for i, want := range c.want {
			if want == "" {
				continue
			}
			got := strings.TrimSuffix(strings.Join(fixes[i].At, "."), "paths") + fixes[i].Line
			if got != want {
				t.Errorf("%s: route %d: %s, want %s", name, i, got, want)
			}
		}
	}
}
