package nginx

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/weirflow/weir/proof/servers"
)

// TestCriticalOrSame: a configuration that sends requests to other locations, takes clients' addresses
// from elsewhere or gets a part of a key twice is imported with a CRITICAL note, or nginx and the
// gateway respond alike.
func TestCriticalOrSame(t *testing.T) {
	up := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/accel" {
			w.Header().Set("X-Accel-Redirect", "/inside/x")
		}
	}))
	t.Cleanup(up.Close)
	const zone = "limit_req_zone $binary_remote_addr zone=z:1m rate=1r/m; real_ip_header X-Forwarded-For; "
	const xff = "X-Forwarded-For"
	for name, c := range map[string]struct {
		http, server string // directives; UP is a proxy_pass
		path         string
		send         func(i int, h http.Header)
		critical     bool
		nginx        []int
	}{
		"rewrite to a location": {
			zone, "location / { UP } location /a/ { rewrite ^/a/(.*)$ /b/$1 last; UP } location /b/ { limit_req zone=z; UP }",
			"/a/1", nil, true, []int{200, 503, 503},
		},
		"rewrite of a server": {
			zone, "limit_req zone=z; rewrite ^/old/(.*)$ /new/$1; location / { UP } location /old/ { limit_req zone=z burst=100 nodelay; UP }",
			"/old/1", nil, true, []int{200, 503, 503},
		},
		"rewrite for the upstream": {
			zone, "limit_req zone=z; location / { rewrite ^/a /b break; UP }",
			"/a", nil, false, []int{200, 503, 503},
		},
		"error_page to a location": {
			zone, "limit_req zone=z; location / { UP } location /u/ { error_page 418 = @o; return 418; } location @o { UP }",
			"/u/", nil, true, []int{200, 503, 503},
		},
		"error_page of missing files": {
			"", "root /nowhere; location /y/ { error_page 404 = @o; } location @o { UP }",
			"/y/1", nil, true, []int{200, 200, 200},
		},
		"error_page that nobody gets": {
			zone, "limit_req zone=z; error_page 502 504 /50x.html; location / { UP } location = /50x.html { root /nowhere; }",
			"/", nil, false, []int{200, 503, 503},
		},
		"try_files to a location": {
			"", "root /nowhere; location / { try_files $uri /x/index.php; } location /x/ { UP }",
			"/z", nil, true, []int{200, 200, 200},
		},
		"try_files to a named return": {
			zone, "root /nowhere; limit_req zone=z; location / { try_files $uri @gone; } location @gone { return 410; } location /up { UP }",
			"/x", nil, false, []int{410, 503, 503},
		},
		"try_files to a named return with limits": {
			zone, "root /nowhere; location / { try_files $uri @gone; } location @gone { limit_req zone=z; return 410; } location /up { UP }",
			"/x", nil, false, []int{410, 410, 410},
		},
		"try_files to a named location for nobody": {
			zone, "root /nowhere; limit_req zone=z; location / { try_files $uri @no; } location @no { deny all; UP } location /up { UP }",
			"/x", nil, false, []int{403, 503, 503},
		},
		"backup servers": {
			"upstream u { server 127.0.0.1:1; server ADDR backup; } " + zone, "limit_req zone=z burst=1 nodelay; location / { proxy_pass http://u; }",
			"/x", nil, false, []int{200, 200, 503},
		},
		"only backup servers": {
			"upstream u { server 127.0.0.1:1 down; server ADDR backup; } " + zone, "limit_req zone=z; location / { proxy_pass http://u; }",
			"/x", nil, false, []int{200, 503, 503},
		},
		"an internal location by X-Accel-Redirect": {
			zone, "location / { UP } location /accel { proxy_pass http://ADDR; } location /inside/ { internal; limit_req zone=z; UP }",
			"/accel", nil, true, []int{200, 503, 503},
		},
		"real_ip_recursive off": {
			zone + "set_real_ip_from 0.0.0.0/0;", "limit_req zone=z; location / { UP }",
			"/", func(i int, h http.Header) { h.Set(xff, "1.2.3."+string(rune('1'+i))+", 9.9.9.9") }, true, []int{200, 503, 503},
		},
		"real_ip_recursive on": {
			zone + "real_ip_recursive on; set_real_ip_from 127.0.0.0/8;", "limit_req zone=z; location / { UP }",
			"/", func(i int, h http.Header) { h.Set(xff, "1.2.3."+string(rune('1'+i))+", 9.9.9.9") }, false, []int{200, 503, 503},
		},
		"proxies of one location": {
			zone + "real_ip_recursive on; set_real_ip_from 10.0.0.0/8;", "limit_req zone=z; location / { UP } location /in { set_real_ip_from 127.0.0.0/8; UP }",
			"/", func(i int, h http.Header) { h.Set(xff, "1.2.3."+string(rune('1'+i))) }, true, []int{200, 503, 503},
		},
		"a header that is sent twice": {
			"limit_req_zone $http_x_key zone=z:1m rate=1r/m;", "limit_req zone=z; location / { UP }",
			"/", func(_ int, h http.Header) { h["X-Key"] = []string{"a", "a"} }, false, []int{200, 503, 503},
		},
		"a parameter that is sent twice": {
			"limit_req_zone $arg_u zone=z:1m rate=1r/m;", "limit_req zone=z; location / { UP }",
			"/?u=a&u=a", nil, false, []int{200, 503, 503},
		},
		"a cookie that is sent twice": {
			"limit_req_zone $cookie_c zone=z:1m rate=1r/m;", "limit_req zone=z; location / { UP }",
			"/", func(_ int, h http.Header) { h.Set("Cookie", "c=1; c=2") }, false, []int{200, 503, 503},
		},
	} {
		t.Run(name, func(t *testing.T) {
			pass := "proxy_pass http://" + up.Listener.Addr().String() + ";"
			c.http, c.server = strings.ReplaceAll(c.http, "ADDR", up.Listener.Addr().String()), strings.ReplaceAll(c.server, "ADDR", up.Listener.Addr().String())
			p, critical := startWithNotes(t, c.http+" server { listen {{.Addr}}; "+strings.ReplaceAll(c.server, "UP", pass)+" }")
			if critical != c.critical {
				t.Errorf("a critical note: %v, want %v", critical, c.critical)
			}
			var got [2][]int
			for i, at := range []string{p.nginx.Addr, p.weir.Gateway} {
				for n := range len(c.nginx) {
					r, err := http.NewRequestWithContext(t.Context(), "GET", "http://"+at+c.path, nil)
					if err != nil {
						t.Fatal(err)
					}
					if c.send != nil {
						c.send(n, r.Header)
					}
					resp, err := http.DefaultClient.Do(r)
					if err != nil {
						t.Fatal(err)
					}
					resp.Body.Close()
					got[i] = append(got[i], resp.StatusCode)
				}
			}
			if !slices.Equal(got[0], c.nginx) {
				t.Errorf("nginx: %v, want %v", got[0], c.nginx)
			}
			if !critical && !slices.Equal(got[0], got[1]) {
				t.Errorf("nginx %v, weir %v, and no note is critical", got[0], got[1])
			}
		})
	}
}

// startWithNotes is like startFor, for a configuration whose import may have critical notes.
func startWithNotes(t *testing.T, http string) (p pair, critical bool) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*patience)
	defer cancel()
	p.dir = t.TempDir()
	var err error
	if p.nginx, err = servers.Nginx(ctx, p.dir, servers.HTTP(http)); err != nil {
		t.Fatal(err)
	}
	stopAtEnd(t, p.nginx.Process)
	cmd := exec.CommandContext(ctx, binary, "import", "nginx", "--gateway", "127.0.0.1:0", "--admin", "127.0.0.1:0", filepath.Join(p.dir, "nginx.conf"))
	policy, err := cmd.Output()
	if exit := (*exec.ExitError)(nil); errors.As(err, &exit) && strings.Contains(string(exit.Stderr), "CRITICAL") {
		critical = true
	} else if err != nil {
		t.Fatal(err)
	}
	p.start(ctx, t, policy, nil)
	return p, critical
}
