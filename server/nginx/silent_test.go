package nginx

import (
	"os"
	"slices"
	"strings"
	"testing"
)

// TestNothingVanishes: each directive in nginx's documentation, in each block that it may be in,
// changes the policy, is refused, or is named in a note.
func TestNothingVanishes(t *testing.T) {
	text, err := os.ReadFile("testdata/directives.txt")
	if err != nil {
		t.Fatal(err)
	}
	directives := strings.Fields(string(text))
	if len(directives) < 400 {
		t.Fatalf("%d directives", len(directives))
	}
	// these set what the policy sets already
	same := map[string]string{
		"least_conn":        "the gateway always does so",
		"location":          "a block that has tests of its own",
		"server":            "a block that has tests of its own",
		"allow":             "without deny, it refuses nobody",
		"default_type":      "it is for the body of a return alone",
		"server_name":       "the only server of an address has all names",
		"real_ip_header":    "without set_real_ip_from, nginx believes nobody",
		"real_ip_recursive": "without set_real_ip_from, nginx believes nobody",
		"ssl_certificate":   "it is for listen ... ssl, as are the next ones", "ssl_certificate_key": "", "ssl_client_certificate": "", "ssl_protocols": "", "ssl_reject_handshake": "", "ssl_verify_client": "",
		"proxy_ssl_name": "it is for proxy_ssl_verify on, as is the next one", "proxy_ssl_trusted_certificate": "",
	}
	args := map[string]string{
		"proxy_connect_timeout": "7s", "proxy_read_timeout": "7s", "client_max_body_size": "7k", "keepalive": "7", "proxy_request_buffering": "off", "limit_req_status": "444", "limit_conn_status": "444",
		"limit_req_log_level": "info", "limit_conn_log_level": "info", "proxy_pass": "http://127.0.0.1:7", "grpc_pass": "127.0.0.1:7", "set_real_ip_from": "10.0.0.0/8",
		"set": "$a $b", "map": "$a $b { default 1; }", "geo": "$b { default 1; }", "split_clients": "$a $b { * 1; }", "upstream": "u7 { server 127.0.0.1:7; }", "types": "{ a b; }",
		"limit_req_zone": "$uri zone=z7:1m rate=1r/s", "limit_conn_zone": "$uri zone=z7:1m", "add_header": "A b", "proxy_set_header": "A b", "access_log": "a.log", "log_format": "a $uri",
		"error_page": "404 /x", "allow": "10.0.0.1", "deny": "10.0.0.1", "server_name": "b.example", "default_type": "text/x", "satisfy": "any",
		"ssl_certificate": "a.crt", "ssl_certificate_key": "a.key", "proxy_ssl_verify": "on",
	}
	blocks := map[string]string{
		"http":     "DIRECTIVE server { listen 127.0.0.1:80; server_name a.example; limit_req zone=z; limit_conn c 1; location / { proxy_pass https://u; } }",
		"server":   "server { DIRECTIVE listen 127.0.0.1:80; server_name a.example; limit_req zone=z; limit_conn c 1; location / { proxy_pass https://u; } }",
		"location": "server { listen 127.0.0.1:80; server_name a.example; location / { DIRECTIVE limit_req zone=z; limit_conn c 1; proxy_pass https://u; } location /r { return 200 x; } }",
		"upstream": "server { listen 127.0.0.1:80; location / { proxy_pass https://v; } } upstream v { DIRECTIVE server 127.0.0.1:8; }",
	}
	const rest = "limit_req_zone $uri zone=z:1m rate=1r/s; limit_conn_zone $uri zone=c:1m; upstream u { server 127.0.0.1:9; } "
	for block, around := range blocks {
		with := func(directive string) (policy string, notes string, refused error) {
			result, err := Import(memory{"f": "http { " + rest + strings.Replace(around, "DIRECTIVE", directive, 1) + " }"}, "f", Options{})
			if err != nil {
				return "", "", err
			}
			for _, n := range result.Notes {
				notes += n.Text + "\n"
			}
			return string(result.Policy), notes, nil
		}
		before, _, err := with("")
		if err != nil {
			t.Fatal(err)
		}
		var silent []string
		for _, name := range directives {
			value, ok := args[name]
			if !ok {
				value = "on"
			}
			directive := name + " " + value
			if !strings.HasSuffix(value, "}") {
				directive += ";"
			}
			policy, notes, err := with(directive)
			if _, says := same[name]; err == nil && policy == before && !says && !slices.Contains(strings.FieldsFunc(notes, notName), name) {
				silent = append(silent, name)
			}
		}
		if len(silent) > 0 {
			t.Errorf("%s: nothing is said of %s", block, strings.Join(silent, " "))
		}
	}
}

// notName reports whether a character cannot be in a directive's name.
func notName(r rune) bool { return (r < 'a' || r > 'z') && (r < '0' || r > '9') && r != '_' }
