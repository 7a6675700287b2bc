package edge

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path"
	"path/filepath"
	"strings"
	"testing"

	"github.com/weirflow/weir/proof/servers"
)

// observers are upstreams of different languages and servers, by name. Each says what it reads in a
// request: the field X-Seen is what a message is about (method, target, host, length and
// digest of the body, user agent), the body is a reading: what limits may be about.
func observers(t *testing.T) map[string]string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), servers.Patience)
	defer cancel()
	dir, err := filepath.Abs("testdata")
	if err != nil {
		t.Fatal(err)
	}
	web := func(program, debianPackage string, arguments func(addr string) []string) string {
		t.Helper()
		s, err := servers.Web(ctx, program, debianPackage, dir, arguments)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			select {
			case <-s.Ended():
				t.Errorf("%s has ended: %s", program, s.Output())
			default:
			}
			s.Kill()
		})
		return s.Addr
	}
	fastCGI := phpFastCGI(t, web)
	return map[string]string{
		"go":   httpUpstream(t, observe),
		"node": web("node", "nodejs", func(addr string) []string { return []string{"app.js", addr} }),
		"gunicorn": web("gunicorn", "gunicorn", func(addr string) []string {
			return []string{"--bind", addr, "--worker-class", "gthread", "--threads", "8", "--keep-alive", "100", "--log-level", "error", "--worker-tmp-dir", t.TempDir(), "app:app"}
		}),
		"uwsgi": web("uwsgi_python3", "uwsgi-plugin-python3", func(addr string) []string {
			return []string{"--http-socket", addr, "--wsgi-file", "app.py", "--disable-logging", "--need-app", "--add-header", "Connection: close", "--listen", "64"}
		}),
		"php":      web("php", "php-cli", func(addr string) []string { return []string{"-q", "-S", addr, "app.php"} }),
		"nginx":    nginxServer(t, ctx, nginxObserver),
		"nginxphp": nginxServer(t, ctx, nginxBefore(fastCGI, dir)),
		"lighttpd": web("lighttpd", "lighttpd", func(addr string) []string { return []string{"-D", "-f", lighttpdBefore(t, addr, fastCGI, dir)} }),
		"apache":   web("apache2", "apache2-bin", func(addr string) []string { return []string{"-X", "-f", apacheBefore(t, addr, fastCGI, dir)} }),
	}
}

// phpFastCGI starts PHP for the servers that speak FastCGI.
func phpFastCGI(t *testing.T, web func(program, debianPackage string, arguments func(addr string) []string) string) string {
	t.Helper()
	if _, err := servers.Program("php-cgi", "php-cgi"); err != nil {
		t.Fatal(err)
	}
	return web("env", "coreutils", func(addr string) []string {
		return []string{"PHP_FCGI_CHILDREN=4", "PHP_FCGI_MAX_REQUESTS=0", "php-cgi", "-q", "-b", addr}
	})
}

func nginxServer(t *testing.T, ctx context.Context, block string) string {
	t.Helper()
	s, err := servers.Nginx(ctx, t.TempDir(), servers.HTTP(block))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Kill)
	return s.Addr
}

// nginxObserver answers from nginx's own variables. It does not read bodies.
const nginxObserver = `
	keepalive_timeout 100; keepalive_requests 1000000;
	server {
		listen {{.Addr}};
		underscores_in_headers on;
		add_header X-Seen "$request_method $request_uri $http_host - - $http_user_agent";
		location / { return 200 '{"method":"$request_method","header":"$http_x_api_key","query":"$arg_sku_id","cookie":"$cookie_session","admin":false,"length":""}'; }
		location = /admin { return 200 '{"admin":true}'; }
		location /admin/ { return 200 '{"admin":true}'; }
	}`

func nginxBefore(fastCGI, dir string) string {
	return `
	keepalive_timeout 100; keepalive_requests 1000000;
	server {
		listen {{.Addr}};
		underscores_in_headers on;
		client_body_buffer_size 64k;
		location / {
			fastcgi_pass ` + fastCGI + `;
			fastcgi_param SCRIPT_FILENAME ` + dir + `/app.php;
			fastcgi_param REQUEST_METHOD $request_method;
			fastcgi_param REQUEST_URI $request_uri;
			fastcgi_param QUERY_STRING $query_string;
			fastcgi_param CONTENT_TYPE $content_type;
			fastcgi_param CONTENT_LENGTH $content_length;
		}
	}`
}

func lighttpdBefore(t *testing.T, addr, fastCGI, dir string) string {
	t.Helper()
	host, port, _ := strings.Cut(addr, ":")
	phpHost, phpPort, _ := strings.Cut(fastCGI, ":")
	return configuration(t, fmt.Sprintf(`server.document-root = "%s"
server.bind = "%s"
server.port = %s
server.modules = ("mod_fastcgi", "mod_rewrite")
server.max-keep-alive-requests = 1000000
server.max-keep-alive-idle = 100
server.http-parseopts = ("url-normalize" => "disable")
url.rewrite-once = ("" => "/app.php${qsa}")
fastcgi.server = (".php" => (("host" => "%s", "port" => %s)))
`, dir, host, port, phpHost, phpPort))
}

func apacheBefore(t *testing.T, addr, fastCGI, dir string) string {
	t.Helper()
	var modules strings.Builder
	for _, m := range []string{"mpm_event", "authz_core", "alias", "proxy", "proxy_fcgi"} {
		fmt.Fprintf(&modules, "LoadModule %s_module /usr/lib/apache2/modules/mod_%s.so\n", m, m)
	}
	return configuration(t, fmt.Sprintf(`ServerRoot %[1]s
ServerName apache.test
PidFile apache.pid
DefaultRuntimeDir %[1]s
ErrorLog /dev/stderr
LogLevel crit
%[2]sListen %[3]s
ThreadsPerChild 16
MaxRequestWorkers 16
MaxSpareThreads 16
KeepAliveTimeout 100
MaxKeepAliveRequests 0
TraceEnable off
AllowEncodedSlashes NoDecode
AliasMatch "^" "%[4]s/app.php"
ProxyFCGIBackendType GENERIC
ProxyFCGISetEnvIf "true" SCRIPT_FILENAME "%[4]s/app.php"
<Directory "%[4]s">
Require all granted
SetHandler "proxy:fcgi://%[5]s"
</Directory>
`, t.TempDir(), &modules, addr, dir, fastCGI))
}

// configuration writes a file, and returns its path.
func configuration(t *testing.T, text string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "server.conf")
	if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	return file
}

// reading is what an upstream reads in a request.
type reading struct {
	Method, Header, Query, Cookie, Length string
	Admin                                 bool
}

// observe is the observer of Go.
func observe(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		panic(http.ErrAbortHandler)
	}
	w.Header().Set("X-Seen", fmt.Sprintf("%s %s %s %d %s %s", r.Method, r.RequestURI, orDash(r.Host), len(body), digest(body), orDash(r.UserAgent())))
	clean := path.Clean(r.URL.Path)
	said := reading{
		Method: r.Method, Header: r.Header.Get("X-Api-Key"), Query: r.URL.Query().Get("sku_id"), Length: r.Header.Get("Content_Length"),
		Admin: clean == "/admin" || strings.HasPrefix(clean, "/admin/"),
	}
	if c, err := r.Cookie("session"); err == nil {
		said.Cookie = c.Value
	}
	json.NewEncoder(w).Encode(said)
}

// digest is what the observers say of a body.
func digest(body []byte) string {
	sum := sha256.Sum256(body)
	return fmt.Sprintf("%x", sum[:4])
}

func orDash(s string) string {
	if s == "" {
		return "-"
	}
	return s
}

// observeH2C serves the observer of Go over HTTP/2 without TLS.
func observeH2C(t *testing.T, h http.HandlerFunc) string {
	t.Helper()
	var protocols http.Protocols
	protocols.SetUnencryptedHTTP2(true)
	s := httptest.NewUnstartedServer(h)
	s.Config.Protocols = &protocols
	s.Start()
	t.Cleanup(s.Close)
	return s.Listener.Addr().String()
}
