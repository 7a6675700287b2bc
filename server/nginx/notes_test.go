package nginx

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/weirflow/weir/server/policyfile"
)

// notesOf imports a configuration and returns its notes.
func notesOf(t *testing.T, files memory, o Options) (*Result, []string) {
	t.Helper()
	result, err := Import(files, "f", o)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := policyfile.Parse("p", result.Policy); err != nil {
		t.Fatalf("%v\n%s", err, result.Policy)
	}
	var all []string
	for _, n := range result.Notes {
		all = append(all, n.String())
	}
	return result, all
}

// TestNotesAreInOrder: critical notes come first, and each kind is in the order of the files, in
// every run.
func TestNotesAreInOrder(t *testing.T) {
	files := memory{
		"f": `http { include b; include a;
 limit_req_zone $nothing zone=one:1m rate=1r/s;
 gzip on;
 server { listen 127.0.0.1:80; location / { limit_req zone=one; proxy_pass http://127.0.0.1:9000; } } }`,
		"a": "gzip on;",
		"b": "gzip on; server { listen 127.0.0.1:81; location ~ x { limit_req zone=one; } location / { proxy_set_header Host $host; proxy_pass http://127.0.0.1:9000; } }",
	}
	_, want := notesOf(t, files, Options{})
	for range 20 {
		if _, got := notesOf(t, files, Options{}); !slices.Equal(got, want) {
			t.Fatalf("%q, and %q", got, want)
		}
	}
	var places []string
	for _, n := range want {
		file, _, _ := strings.Cut(n, ":")
		if strings.Contains(n, "CRITICAL") {
			file = "!" + file
		}
		places = append(places, file)
	}
	if !slices.Equal(places, []string{"!b", "!f", "!f", "a", "b", "f", "f"}) {
		t.Errorf("%q", want)
	}
}

// TestCritical: a note is critical exactly if the policy limits or admits other clients than nginx,
// or if requests do not reach an upstream.
func TestCritical(t *testing.T) {
	const zone = "limit_req_zone $binary_remote_addr zone=one:1m rate=1r/s;"
	pass := "proxy_set_header Host $host; proxy_pass http://127.0.0.1:9000;"
	for name, c := range map[string]struct {
		text string
		want string // empty: no critical note
	}{
		"nothing of it":                   {"server { listen 127.0.0.1:80; location / { limit_req zone=one; " + pass + " } }", ""},
		"no route":                        {"server { listen 127.0.0.1:80; location / { root /srv; } }", "there is no route to an upstream"},
		"no server":                       {"", "there is no route to an upstream"},
		"a named location's return":       {"server { listen 127.0.0.1:80; location / { " + pass + " } location /x { try_files $uri @x; } location @x { return 410; } }", ""},
		"a named location's password":     {"server { listen 127.0.0.1:80; location / { " + pass + " } location /x { try_files $uri @x; } location @x { auth_basic x; " + pass + " } }", "cannot look at auth_basic"},
		"X-Accel-Redirect to files":       {"server { listen 127.0.0.1:80; location / { " + pass + " } location /x/ { internal; alias /srv/; } }", ""},
		"X-Accel-Redirect to an upstream": {"server { listen 127.0.0.1:80; location / { " + pass + " } location /x/ { internal; " + pass + " } }", "location /x/ is for responses of an upstream with X-Accel-Redirect"},
		"an internal page":                {"server { listen 127.0.0.1:80; error_page 502 /x/a.html; location / { " + pass + " } location /x/ { internal; root /srv; } }", ""},
		"backup servers":                  {"upstream u { server 127.0.0.1:8; server 127.0.0.1:9 backup; } server { listen 127.0.0.1:80; location / { proxy_set_header Host $host; proxy_pass http://u; } }", ""},
		"a regular expression":            {"server { listen 127.0.0.1:80; limit_req zone=one; location / { " + pass + " } location ~ .php { " + pass + " } }", "location ~ .php is left out"},
		"one without limits":              {"server { listen 127.0.0.1:80; location / { " + pass + " } location ~ .php { " + pass + " } }", ""},
		"one that is a prefix":            {"server { listen 127.0.0.1:80; limit_req zone=one; location / { " + pass + " } location ~ ^/api { " + pass + " } }", ""},
		"a password":                      {"server { listen 127.0.0.1:80; auth_basic x; location / { " + pass + " } location /b { auth_basic off; " + pass + " } }", "cannot look at auth_basic"},
		"only some may come":              {"server { listen 127.0.0.1:80; location / { allow 10.0.0.1; deny all; " + pass + " } location /b { " + pass + " } }", "cannot look at allow and deny"},
		"some may not come":               {"server { listen 127.0.0.1:80; location / { deny 10.0.0.1; " + pass + " } }", "deny 10.0.0.1 is left out"},
		"nobody may come":                 {"server { listen 127.0.0.1:80; location / { " + pass + " } location /x { deny all; } }", ""},
		"a proxy by name":                 {"set_real_ip_from lb.example; server { listen 127.0.0.1:80; location / { " + pass + " } }", "set_real_ip_from lb.example is left out"},
		"a condition":                     {"server { listen 127.0.0.1:80; if ($bad) { return 403; } location / { " + pass + " } }", "if ($bad) is left out"},
		"certbot's condition":             {"server { listen 127.0.0.1:80; if ($host = a.example) { return 301 https://$host$request_uri; } location / { " + pass + " } }", ""},
		"an upstream by variable":         {"server { listen 127.0.0.1:80; location / { " + pass + " } location /x { proxy_pass http://$host; } }", "an upstream is a fixed URL"},
		"a variable that is fixed":        {"server { listen 127.0.0.1:80; set $up http://127.0.0.1:9000; location / { proxy_set_header Host $host; proxy_pass $up; } }", ""},
		"a rewrite to a location":         {"server { listen 127.0.0.1:80; limit_req zone=one; location / { rewrite ^/a /b last; " + pass + " } }", "rewrite ^/a /b last is left out"},
		"a rewrite of a path":             {"server { listen 127.0.0.1:80; limit_req zone=one; location / { rewrite ^/a /b break; " + pass + " } }", ""},
		"a rewrite without limits":        {"server { listen 127.0.0.1:80; location / { rewrite ^/a /b last; " + pass + " } }", ""},
		"php":                             {"server { listen 127.0.0.1:80; location / { " + pass + " } location /x { fastcgi_pass unix:/x; } }", "fastcgi_pass is left out"},
		"a server without a name":         {"server { listen 127.0.0.1:80; location / { " + pass + " } } server { listen 127.0.0.1:80; location / { limit_req zone=one; " + pass + " } }", "the server is left out"},
		"a name by expression":            {"server { listen 127.0.0.1:80; server_name ~x; location / { " + pass + " } }", "server_name ~x is left out"},
		"a socket":                        {"server { listen unix:/x; location / { " + pass + " } }", "it listens on no address that a gateway can have"},
		"the balancer's own address":      {"server { listen 127.0.0.1:80 proxy_protocol; location / { " + pass + " } }", "real_ip_header is not proxy_protocol"},
	} {
		result, notes := notesOf(t, memory{"f": "http { " + zone + c.text + " }"}, Options{})
		all := strings.Join(notes, "\n")
		if result.Critical() != (c.want != "") || !strings.Contains(all, c.want) {
			t.Errorf("%s: %s\nwant %q\n%s", name, all, c.want, result.Policy)
		}
		for _, n := range result.Notes {
			if n.Critical && !strings.Contains(string(result.Policy), "# "+n.String()) {
				t.Errorf("%s: the policy does not say %s", name, n)
			}
		}
	}
}

// TestUnreadableIncludes: an included file that cannot be read is an error. With --partial it is skipped, with
// a critical note.
func TestUnreadableIncludes(t *testing.T) {
	files := memory{"f": "http { include gone.conf; server { listen 127.0.0.1:80; location / { proxy_pass http://127.0.0.1:9000; } } }"}
	var wrong *Error
	if _, err := Import(files, "f", Options{}); !errors.As(err, &wrong) || !strings.Contains(err.Error(), "gone.conf cannot be read") || !strings.Contains(wrong.Fix, "--partial") {
		t.Errorf("%v", err)
	}
	result, notes := notesOf(t, files, Options{Partial: true})
	if !result.Critical() || !strings.Contains(notes[0], "f:1:8: CRITICAL: gone.conf cannot be read") {
		t.Errorf("%q", notes)
	}
}

// TestEveryPlaceIsNamed: a note that is about several directives names all of them.
func TestEveryPlaceIsNamed(t *testing.T) {
	_, notes := notesOf(t, memory{"f": `http { server { listen 127.0.0.1:80 backlog=511 reuseport default_server;
 location / { proxy_pass http://127.0.0.1:9000; }
 location /a { proxy_pass http://127.0.0.1:9000; }
 location /b { proxy_set_header Host $host; proxy_pass http://127.0.0.1:9000; }
 location /c { proxy_pass http://127.0.0.1:9000; } } }`}, Options{})
	want := []string{
		"f:1:17: listen 127.0.0.1:80: backlog=511 reuseport is left out: an address of the gateway has no such setting",
		"f:2:15: the upstream gets the Host of the request; from nginx it gets 127.0.0.1:9000; the same in f:3, f:5",
	}
	if !slices.Equal(notes, want) {
		t.Errorf("%q, want %q", notes, want)
	}
}
