package nginx

import (
	"slices"
	"strings"
	"testing"
)

// TestCarriedOver: what a policy has a setting for becomes that setting.
func TestCarriedOver(t *testing.T) {
	const begin = "http { limit_req_zone $binary_remote_addr zone=one:1m rate=1r/s; limit_req zone=one; "
	pass := "proxy_set_header Host $host; proxy_pass http://127.0.0.1:9000;"
	for name, c := range map[string]struct {
		text    string
		want    []string // lines of the policy
		without string
	}{
		"streamed requests": {
			"proxy_request_buffering off; server { listen 127.0.0.1:80; location / { " + pass + " } location /a { proxy_request_buffering on; " + pass + " } }",
			[]string{"buffer_request: off"}, "",
		},
		"buffered requests": {"server { listen 127.0.0.1:80; location / { " + pass + " } }", nil, "buffer_request"},
		"a named location's return": {
			"server { listen 127.0.0.1:80; location / { try_files $uri @x; } location @x { return 410 gone; } }",
			[]string{"respond: { status: 410, body: gone }", "limits: [one]"}, "404",
		},
		"a named location's redirect": {
			"server { listen 127.0.0.1:80; location / { try_files $uri @x; } location @x { rewrite ^ /y permanent; } }",
			[]string{"respond: { status: 301, redirect: \"/y{?query}\" }", "limits: [one]"}, "404",
		},
		"a named location that nobody may see": {
			"server { listen 127.0.0.1:80; location / { try_files $uri @x; } location @x { deny all; " + pass + " } }",
			[]string{"respond: { status: 403 }", "limits: [one]"}, "upstreams",
		},
		"backup servers": {
			"upstream u { server 127.0.0.1:7; server 127.0.0.1:8 backup; server 127.0.0.1:9 backup; } server { listen 127.0.0.1:80; location / { proxy_pass http://u; } }",
			[]string{`u: { url: "http://127.0.0.1:7" }`, `u-backup: { targets: ["http://127.0.0.1:8", "http://127.0.0.1:9"] }`, "upstream: u", "failed: { upstream: u-backup }"}, "",
		},
		"only backup servers": {
			"upstream u { server 127.0.0.1:7 down; server 127.0.0.1:8 backup; } server { listen 127.0.0.1:80; location / { proxy_pass http://u; } }",
			[]string{`u: { url: "http://127.0.0.1:8" }`}, "failed:",
		},
	} {
		result, notes := notesOf(t, memory{"f": begin + c.text + " }"}, Options{})
		var lines []string
		for line := range strings.Lines(string(result.Policy)) {
			line, _, _ = strings.Cut(line, "   #")
			lines = append(lines, strings.TrimSpace(line))
		}
		for _, want := range c.want {
			if !slices.Contains(lines, want) {
				t.Errorf("%s: no line %q in\n%s\n%s", name, want, result.Policy, strings.Join(notes, "\n"))
			}
		}
		if c.without != "" && strings.Contains(string(result.Policy), c.without) {
			t.Errorf("%s: %q is in\n%s", name, c.without, result.Policy)
		}
	}
}
