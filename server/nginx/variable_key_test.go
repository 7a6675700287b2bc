package nginx

import (
	"strings"
	"testing"
)

// TestMapOfTheKeyItself: a map from a key to itself, or to nothing, becomes an exemption by the
// key's values. If nginx exempts more, because it ignores case, that is critical.
func TestMapOfTheKeyItself(t *testing.T) {
	for _, c := range []struct{ zone, exempt, critical string }{
		{`map $http_x_key $k { default $http_x_key; 1234 ""; 5-6 ""; "" ""; } limit_req_zone $k zone=z:1m rate=1r/s;`, `exempt: [key.1234, key.5-6]`, ""},
		{`map $arg_user $k { default $arg_user; 7 ""; } limit_req_zone $k zone=z:1m rate=1r/s;`, `exempt: [key.7]`, ""},
		{`map $host $k { default $host; internal.example ""; } limit_req_zone $k zone=z:1m rate=1r/s;`, `exempt: [key.internal.example]`, ""},
		{`map $cookie_id $k { default ${cookie_id}; bot ""; } limit_req_zone $k zone=z:1m rate=1r/s;`, `exempt: [key.bot]`, "ignores case"},
		{`map $arg_user $k { default $arg_user; ~^a ""; } limit_req_zone $k zone=z:1m rate=1r/s;`, "", "names a value"},
		{`map $arg_user $k { default $arg_user; a,b ""; } limit_req_zone $k zone=z:1m rate=1r/s;`, "", "a comma"},
		{`map $arg_user $k { default $arg_user; 7 $host; } limit_req_zone $k zone=z:1m rate=1r/s;`, "", "for some requests"},
		{`map $host $k { hostnames; default $host; *.x.example ""; } limit_req_zone $k zone=z:1m rate=1r/s;`, "", "hostnames"},
		{`geo $l { default 1; 10.0.0.0/8 0; } map $l $k { default $binary_remote_addr; 0 ""; } limit_req_zone $k zone=z:1m rate=1r/s;`, `exempt: ["10.0.0.0/8"]`, ""},
		{`map $remote_addr $k { default $binary_remote_addr; 10.0.0.1 ""; } limit_req_zone $k zone=z:1m rate=1r/s;`, `exempt: ["10.0.0.1"]`, ""},
	} {
		text := "http { " + c.zone + " server { listen 127.0.0.1:80; location / { limit_req zone=z; proxy_set_header Host $host; proxy_pass http://127.0.0.1:9; } } }"
		result, notes := notesOf(t, memory{"f": text}, Options{})
		all := strings.Join(notes, "\n")
		if !strings.Contains(string(result.Policy), c.exempt) || result.Critical() != (c.critical != "") || !strings.Contains(all, c.critical) {
			t.Errorf("%s\n%s\n%s", c.zone, all, result.Policy)
		}
	}
}

// TestUpstreamSettings: settings that a policy has are carried over, and the others named.
func TestUpstreamSettings(t *testing.T) {
	for _, c := range []struct{ upstream, policy, note string }{
		{"server 127.0.0.1:1 max_fails=3 fail_timeout=30s; server 127.0.0.1:2 max_fails=3 fail_timeout=30s;", "health: { failures: 3, down_for: 30s }", "health.failures counts"},
		{"server 127.0.0.1:1 max_fails=0; server 127.0.0.1:2 max_fails=0;", "health: { failures: 0 }", ""},
		{"server 127.0.0.1:1 max_fails=3; server 127.0.0.1:2;", "targets: ", "they differ"},
		{"server 127.0.0.1:1 max_fails=3;", "url: ", "for a single server"},
		{"server 127.0.0.1:1 max_fails=3; server 127.0.0.1:2 backup;", "url: ", "left out: a single target is tried for each request"},
		{"server 127.0.0.1:1 fail_timeout=30s; server 127.0.0.1:2 max_fails=1 fail_timeout=30s;", "health: { failures: 1, down_for: 30s }", "health.failures counts"},
		{"least_conn; keepalive 16; server 127.0.0.1:1; server 127.0.0.1:2;", "max_idle: 16 }", ""},
		{"server 127.0.0.1:1 slow_start=30s; server 127.0.0.1:2;", "targets: ", "slow_start=30s of server 127.0.0.1:1 is left out"},
		{"zone u 64k; keepalive_timeout 5s; server 127.0.0.1:1;", "url: ", "zone (f:1), keepalive_timeout (f:1)"},
	} {
		text := "http { upstream u { " + c.upstream + " } server { listen 127.0.0.1:80; location / { proxy_set_header Host $host; proxy_pass http://u; } } }"
		result, notes := notesOf(t, memory{"f": text}, Options{})
		all := strings.Join(notes, "\n")
		if !strings.Contains(string(result.Policy), c.policy) || !strings.Contains(all, c.note) || c.note == "" && all != "" || result.Critical() {
			t.Errorf("%s\n%s\n%s", c.upstream, all, result.Policy)
		}
	}
}
