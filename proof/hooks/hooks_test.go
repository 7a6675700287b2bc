// Package hooks runs the configurations of docs/proxies.md: real proxies that ask listen.http before
// they forward a request.
package hooks

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/weirflow/weir/proof/servers"
)

// block returns the first block of the page in a language.
func block(t *testing.T, language string) string {
	t.Helper()
	page, err := os.ReadFile("../../docs/proxies.md")
	if err != nil {
		t.Fatal(err)
	}
	found := regexp.MustCompile("(?s)```" + language + "\n(.*?)```").FindSubmatch(page)
	if found == nil {
		t.Fatalf("docs/proxies.md has no block in %s", language)
	}
	return string(found[1])
}

// built returns the weir command, which is built once.
var built = sync.OnceValues(func() (string, error) {
	dir, err := os.MkdirTemp("", "weir-hooks")
	if err != nil {
		return "", err
	}
	return servers.BuildWeir(context.Background(), dir)
})

func TestMain(m *testing.M) {
	code := m.Run()
	if binary, err := built(); err == nil {
		os.RemoveAll(filepath.Dir(binary))
	}
	os.Exit(code)
}

// serve runs weir serve with the policy of the page, a burst of its own, and texts that replace others, and
// returns its address.
func serve(t *testing.T, burst int, replace ...string) string {
	t.Helper()
	text := strings.NewReplacer(append([]string{"  http: 127.0.0.1:8082", `  http: "127.0.0.1:0"
  admin: "127.0.0.1:0"`, "rate: 10/s, burst: 20", fmt.Sprintf("rate: 1/h, burst: %d", burst)}, replace...)...).Replace(block(t, "yaml"))
	path := filepath.Join(t.TempDir(), "policy.yaml")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	binary, err := built()
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	w, err := servers.StartWeir(ctx, binary, path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := w.Stop(); err != nil {
			t.Error(err)
		}
	})
	return w.ByFace["http"][0]
}

// TestProxies: with each configuration of the page, as many requests as the limit admits reach the
// application, also under load; the others get 429 with Retry-After.
func TestProxies(t *testing.T) {
	const burst = 500
	for name := range proxies() {
		t.Run(name, func(t *testing.T) {
			var reached atomic.Int64
			app := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				reached.Add(1)
				fmt.Fprintln(w, "the application", r.URL.RequestURI())
			}))
			defer app.Close()
			proxy := begin(t, name, serve(t, burst), app.Listener.Addr().String())
			var admitted, refused atomic.Int64
			var wg sync.WaitGroup
			client := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 16}}
			defer client.CloseIdleConnections()
			for range 8 {
				wg.Go(func() {
					for range burst / 4 {
						resp, err := client.Get("http://" + proxy.Addr + "/a%20b?c=d")
						if err != nil {
							t.Error(err)
							return
						}
						body, _ := io.ReadAll(resp.Body)
						resp.Body.Close()
						switch {
						case name == "nginx" && resp.Header.Get("RateLimit") == "", resp.StatusCode == 429 && resp.Header.Get("RateLimit") == "":
							t.Errorf("%d without RateLimit", resp.StatusCode)
						case resp.StatusCode == 200 && string(body) == "the application /a%20b?c=d\n":
							admitted.Add(1)
						case resp.StatusCode == 429 && resp.Header.Get("Retry-After") != "":
							refused.Add(1)
						default:
							t.Errorf("%d %v %s", resp.StatusCode, resp.Header, body)
							return
						}
					}
				})
			}
			wg.Wait()
			if admitted.Load() != burst || reached.Load() != burst || refused.Load() != burst {
				t.Errorf("%d were admitted, %d reached the application, %d were refused, and not %d each", admitted.Load(), reached.Load(), refused.Load(), burst)
			}
		})
	}
}

// proxies start a proxy with its configuration of the page.
func proxies() map[string]func(ctx context.Context, dir, conf string) (*servers.Server, error) {
	return map[string]func(ctx context.Context, dir, conf string) (*servers.Server, error){
		"nginx": func(ctx context.Context, dir, conf string) (*servers.Server, error) {
			return servers.Nginx(ctx, dir, servers.HTTP("server { listen {{.Addr}};\n"+conf+"}"))
		},
		"caddy": servers.CaddyWith, "haproxy": servers.HAProxy,
	}
}

// begin starts a proxy with its configuration of the page, before an application.
func begin(t *testing.T, name, weir, app string) *servers.Server {
	t.Helper()
	dir := t.TempDir()
	place := strings.NewReplacer("127.0.0.1:8082", weir, "127.0.0.1:9000", app, "127.0.0.1:8000", "{{.Addr}}")
	if name == "haproxy" {
		if err := os.WriteFile(filepath.Join(dir, "weir.lua"), []byte(place.Replace(block(t, "lua"))), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	proxy, err := proxies()[name](ctx, dir, place.Replace(block(t, name)))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { proxy.Stop() })
	return proxy
}

// TestHostileRequests: whatever a client sends through a proxy to a path whose limit is used up, nothing
// reaches the application; and a proxy that is not trusted admits nobody, and says 429 to nobody.
func TestHostileRequests(t *testing.T) {
	var reached atomic.Int64
	var last atomic.Value
	app := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		reached.Add(1)
		last.Store(r.Method + " " + r.RequestURI)
	}))
	defer app.Close()
	forged := "X-Forwarded-Method: GET\r\nX-Forwarded-Uri: /free\r\nX-Forwarded-Host: free\r\nX-Original-Uri: /free\r\nX-Original-Method: GET\r\nX-Original-Url: /free\r\n"
	requests := []string{
		"GET /login HTTP/1.1\r\n", "HEAD /login HTTP/1.1\r\n", "POST /login HTTP/1.1\r\nContent-Length: 0\r\n",
		"GET /login#1 HTTP/1.1\r\n", "GET /login?x#y HTTP/1.1\r\n", "GET //login HTTP/1.1\r\n", "GET /./login HTTP/1.1\r\n", "GET /x/../login HTTP/1.1\r\n",
		"GET /%6cogin HTTP/1.1\r\n", "GET /x/..%2flogin HTTP/1.1\r\n", "GET /login%00 HTTP/1.1\r\n", "GET http://free/login HTTP/1.1\r\n",
		"GET /login HTTP/1.1\r\n" + forged, "GET /login HTTP/1.1\r\nX-Forwarded-For: 127.0.0.1\r\nX-Forwarded-For: 192.0.2.9\r\n",
		"GET /login HTTP/1.1\r\nX-Weir-Token: x\r\nX-Forwarded-Uri: /free\r\nX-Forwarded-Uri: /free\r\n",
		"GET /login HTTP/1.1\r\nX-Long: " + strings.Repeat("x", 7000) + "\r\n",
		"OPTIONS /login HTTP/1.1\r\nOrigin: https://evil.example\r\nAccess-Control-Request-Method: GET\r\n",
	}
	for name := range proxies() {
		t.Run(name, func(t *testing.T) {
			weir := serve(t, 100000, "limits:\n", "limits:\n  one: { key: const.all, fixed_window: { limit: 1, window: 720h } }\n",
				"routes:\n", "routes:\n  - { match: /login, limits: [one], refused: { status: 503 } }\n")
			proxy := begin(t, name, weir, app.Listener.Addr().String())
			for _, want := range []int{200, 503} {
				resp, err := http.Get("http://" + proxy.Addr + "/login")
				if err != nil {
					t.Fatal(err)
				}
				if resp.Body.Close(); resp.StatusCode != want {
					t.Fatalf("%d, and not %d", resp.StatusCode, want)
				}
			}
			for _, request := range requests {
				before := reached.Load()
				c, err := net.Dial("tcp", proxy.Addr)
				if err != nil {
					t.Fatal(err)
				}
				fmt.Fprintf(c, "%sHost: %s\r\nConnection: close\r\n\r\n", request, proxy.Addr)
				resp, err := http.ReadResponse(bufio.NewReader(c), nil)
				c.Close() // which also ends the body
				if reached.Load() != before {
					t.Errorf("%.60q: %v %v, the application got %v", request, resp, err, last.Load())
				}
			}
			// Weir runs, and does not trust the proxy
			proxy = begin(t, name, serve(t, 1, "trusted_proxies: [127.0.0.1]", "trusted_proxies: [192.0.2.1]"), app.Listener.Addr().String())
			before := reached.Load()
			resp, err := http.Get("http://" + proxy.Addr + "/")
			if err != nil {
				t.Fatal(err)
			}
			resp.Body.Close()
			if resp.StatusCode != 403 && resp.StatusCode != 500 || reached.Load() != before {
				t.Errorf("a proxy that is not trusted answers %d", resp.StatusCode)
			}
		})
	}
}

// TestHAProxyWithoutAnswer: HAProxy admits requests if Weir does not run, and if it hangs, as the page says.
func TestHAProxyWithoutAnswer(t *testing.T) {
	app := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	defer app.Close()
	free, err := servers.FreeAddress()
	if err != nil {
		t.Fatal(err)
	}
	defer free.Release()
	var asked atomic.Int64
	hang := make(chan struct{})
	hanging := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
		asked.Add(1)
		<-hang
	}))
	defer hanging.Close()
	defer close(hang)
	for name, weir := range map[string]string{"does not run": free.Host, "hangs": hanging.Listener.Addr().String()} {
		t.Run(name, func(t *testing.T) {
			proxy := begin(t, "haproxy", weir, app.Listener.Addr().String())
			resp, err := http.Get("http://" + proxy.Addr + "/")
			if err != nil {
				t.Fatal(err)
			}
			if resp.Body.Close(); resp.StatusCode != 200 {
				t.Errorf("%d, and not 200", resp.StatusCode)
			}
		})
	}
	if n := asked.Load(); n != 4 {
		t.Errorf("Weir was asked %d times, and the page says four", n)
	}
}

// TestTraefik: the requests that Traefik's manual describes for ForwardAuth. A client that is no proxy
// is not believed.
func TestTraefik(t *testing.T) {
	address := serve(t, 2)
	ask := func(client string) (int, http.Header) {
		req, err := http.NewRequest("GET", "http://"+address+"/auth", http.NoBody)
		if err != nil {
			t.Fatal(err)
		}
		for name, value := range map[string]string{"X-Forwarded-Method": "POST", "X-Forwarded-Proto": "https", "X-Forwarded-Host": "shop.example", "X-Forwarded-Uri": "/cart?x=1", "X-Forwarded-For": client, "Accept": "*/*"} {
			req.Header.Set(name, value)
		}
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		return resp.StatusCode, resp.Header
	}
	for i, want := range []int{204, 204, 429} {
		if status, h := ask("192.0.2.1"); status != want || h.Get("RateLimit") == "" || want == 429 && h.Get("Retry-After") != "3600" {
			t.Errorf("%d: %d %v", i, status, h)
		}
	}
	if status, _ := ask("192.0.2.2"); status != 204 {
		t.Errorf("another client: %d", status)
	}
}
