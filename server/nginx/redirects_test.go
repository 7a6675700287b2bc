package nginx

import (
	"strings"
	"testing"
)

// TestRedirectingDirectives: a directive that sends requests to another location, or changes their
// address, has a critical note if that changes which limits apply or whether the request reaches an
// upstream.
func TestRedirectingDirectives(t *testing.T) {
	const (
		zones = "limit_req_zone $binary_remote_addr zone=one:1m rate=1r/m; limit_req_zone $uri zone=path:1m rate=1r/m;"
		up    = "proxy_set_header Host $host; proxy_pass http://127.0.0.1:9000;"
		all   = " location / { " + up + " } "
		mine  = "limit_req zone=one;"
		xff   = "real_ip_header X-Forwarded-For;"
	)
	for text, want := range map[string]string{
		// rewrite
		all + "location /a/ { rewrite ^/a/(.*)$ /b/$1 last; " + up + " } location /b/ { " + mine + up + " }": "rewrite ^/a/(.*)$ /b/$1 last is left out: its requests meet",
		"rewrite ^/old/ /new/;" + mine + all:                                                           "rewrite ^/old/ /new/ is left out: its requests meet",
		"rewrite ^/old/ /new/ break;" + mine + all:                                                     "rewrite ^/old/ /new/ break is left out: its requests meet",
		mine + "location / { rewrite ^/old/ /new/ break; " + up + " }":                                 "",
		"location / { limit_req zone=path; rewrite ^/a /b break; " + up + " }":                         "a limit counts by the path",
		mine + "location / { rewrite ^/a(.*) /b$1 permanent; " + up + " }":                             "without charging a limit",
		mine + "location / { rewrite ^ https://a.example/ permanent; }" + "location /b { " + up + " }": "",
		"rewrite ^/old/ /x/;" + "location / { root /srv; } location /x/ { " + up + " }":                "do not reach the upstream",
		"rewrite ^/old/ /x/;" + all:                                                                    "",
		// error_page
		mine + all + "location /u/ { error_page 418 = @o; return 418; } location @o { " + up + " }":                       "error_page 418 = @o is left out",
		all + "location /y/ { error_page 404 = @fb; } location @fb { " + up + " }":                                        "error_page 404 = @fb is left out",
		mine + all + "error_page 503 @slow; location @slow { " + up + " }":                                                "error_page 503 @slow is left out",
		mine + all + "error_page 503 =200 /b/;":                                                                           "error_page 503 =200 /b/ is left out",
		all + "error_page 502 504 /50x.html; location = /50x.html { root /srv; }":                                         "",
		all + "error_page 404 /404.html;":                                                                                 "",
		all + "error_page 404 /404.html; proxy_intercept_errors on;":                                                      "error_page 404 /404.html is left out",
		mine + all + "error_page 503 /busy.html; location = /busy.html { root /srv; }":                                    "",
		all + "error_page 403 https://a.example/;":                                                                        "",
		all + "error_page 502 /x.php; location = /x.html { root /srv; } location ~ \\.php$ { fastcgi_pass 127.0.0.1:9; }": "error_page 502 /x.php is left out",
		// try_files
		"location / { try_files $uri /x/index.php; } location /x/ { " + up + " }":                "try_files $uri /x/index.php is left out",
		"location / { try_files $uri =404; } location /x/ { " + up + " }":                        "",
		"location / { try_files $uri /index.html; } location /x/ { " + up + " }":                 "",
		"location / { try_files $uri @x; } location @x { " + up + " }":                           "",
		"try_files $uri @x; location /y { " + up + " } location @x { " + up + " }":               "try_files $uri @x is left out",
		"location / { root /srv; } location ~ \\.php$ { " + up + " } location /y { " + up + " }": "its requests do not reach its upstream",
		// the addresses of clients
		xff + "set_real_ip_from 0.0.0.0/0;" + mine + all:                        "can choose theirs",
		xff + "set_real_ip_from 10.0.0.0/8;" + all:                              "",
		xff + "set_real_ip_from 10.0.0.0/8; real_ip_recursive on;" + mine + all: "",
		"set_real_ip_from 10.0.0.0/8;" + mine + all:                             "",
		xff + "real_ip_recursive on; set_real_ip_from 10.0.0.0/8;" + mine + all + "location /in { set_real_ip_from 127.0.0.0/8; " + up + " }": "differ from line 1",
		xff + "real_ip_recursive on;" + mine + all + "location /in { set_real_ip_from 127.0.0.0/8; " + up + " }":                              "differ from line 1",
		xff + "real_ip_recursive on;" + all + "location /in { set_real_ip_from 127.0.0.0/8; " + mine + up + " }":                              "",
		mine + all + "access_by_lua_block { x; }": "access_by_lua_block is left out",
	} {
		result, notes := notesOf(t, memory{"f": "http { " + zones + " server { listen 127.0.0.1:80; " + text + " } }"}, Options{})
		of := strings.Join(notes, "\n")
		if result.Critical() != (want != "") || !strings.Contains(of, want) || strings.Contains(of, "depends on them: error_page") {
			t.Errorf("%s\nwant %q, got\n%s\n%s", text, want, of, result.Policy)
		}
	}
}

// TestTrustedEverywhere: if locations trust different proxies, the policy trusts only those that
// all limited locations trust.
func TestTrustedEverywhere(t *testing.T) {
	const conf = `http { limit_req_zone $binary_remote_addr zone=one:1m rate=1r/m; real_ip_header X-Forwarded-For; real_ip_recursive on;
 set_real_ip_from 10.0.0.0/8; set_real_ip_from 192.168.0.1;
 server { listen 127.0.0.1:80; limit_req zone=one; location / { proxy_pass http://127.0.0.1:9000; }
 location /in { set_real_ip_from 127.0.0.0/8; set_real_ip_from 10.0.0.0/8; proxy_pass http://127.0.0.1:9000; } } }`
	result, notes := notesOf(t, memory{"f": conf}, Options{})
	if !result.Critical() || !strings.Contains(string(result.Policy), "\ntrusted_proxies: [\"10.0.0.0/8\"]") {
		t.Errorf("%s\n%q", result.Policy, notes)
	}
}

// TestMaxConns: max_conns is carried over if all servers have the same, and is critical otherwise.
func TestMaxConns(t *testing.T) {
	for servers, want := range map[string]string{
		"server 127.0.0.1:9 max_conns=2;":                                 "max_requests: 2",
		"server 127.0.0.1:9 max_conns=2; server 127.0.0.1:8 max_conns=2;": "max_requests: 2",
		"server 127.0.0.1:9 max_conns=2; server 127.0.0.1:8 down;":        "max_requests: 2",
		"server 127.0.0.1:9 max_conns=0; server 127.0.0.1:8;":             "",
		"server 127.0.0.1:9 max_conns=2; server 127.0.0.1:8;":             "CRITICAL: upstream u: max_conns is left out",
		"server 127.0.0.1:9 max_conns=2; server 127.0.0.1:8 max_conns=3;": "CRITICAL: upstream u: max_conns is left out",
	} {
		result, notes := notesOf(t, memory{"f": "http { upstream u { " + servers + " } server { listen 127.0.0.1:80; location / { proxy_pass http://u; } } }"}, Options{})
		policy := string(result.Policy)
		if !strings.Contains(policy, want) || want == "" && strings.Contains(policy, "max_requests") || result.Critical() != strings.Contains(want, "CRITICAL") {
			t.Errorf("%s: want %q\n%s\n%q", servers, want, policy, notes)
		}
	}
}
