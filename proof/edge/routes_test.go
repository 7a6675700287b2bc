package edge

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/weirflow/weir/internal/seeds"
	"github.com/weirflow/weir/proof/servers"
)

// framework is an upstream with routes, and what a policy has to say about its paths.
type framework struct {
	addr  string
	paths string
	sale  string // paths of /sale, if they are others
	// matches of its routes, by name; sale is limited by client and path, as a shop with many would be
	matches map[string]string
	general bool // another limit applies to the rest, which plain clients may send doubled slashes to
	strict  bool // it serves no two paths alike, so nothing can be found without paths
}

// frameworks starts upstreams that route as the usual frameworks and servers do.
func frameworks(t *testing.T) map[string]framework {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), servers.Patience)
	defer cancel()
	started := func(s *servers.Server, err error) string {
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(s.Kill)
		return s.Addr
	}
	node := started(servers.Web(ctx, "node", "nodejs", "testdata", func(addr string) []string { return []string{"routes.js", addr} }))
	usual := map[string]string{"checkout": "/checkout", "sale": "/sale", "item": "/item/{id}", "api": "/api/"}
	return map[string]framework{
		"express": {addr: node, paths: "{ ignore_case: true, ignore_trailing_slash: true }", matches: usual},
		"proxied": {addr: node, paths: "{ ignore_case: true, ignore_trailing_slash: true }", matches: usual},
		"whatwg":  {addr: node, paths: "{ ignore_case: true, ignore_trailing_slash: true }", matches: usual, general: true},
		"envoy":   {addr: node, paths: "{ ignore_case: true, ignore_trailing_slash: true }", matches: usual, general: true},
		"spring":  {addr: node, paths: "{ ignore_trailing_slash: true, ignore_extension: true, ignore_semicolons: true }", matches: usual},
		"rails":   {addr: node, paths: "{ ignore_trailing_slash: true, ignore_extension: true }", matches: usual},
		"iis":     {addr: node, paths: "{ ignore_case: true, ignore_trailing_slash: true }", matches: usual},
		"go":      {addr: httpUpstream(t, goRoutes().ServeHTTP), paths: "{ ignore_case: false, ignore_trailing_slash: false }", matches: usual, strict: true},
		"wsgi": {addr: started(servers.Web(ctx, "gunicorn", "gunicorn", "testdata", func(addr string) []string {
			return []string{"--bind", addr, "--worker-class", "gthread", "--threads", "8", "--log-level", "error", "routes:app"}
		})), paths: "{ ignore_trailing_slash: true }", matches: usual},
		"php": {addr: started(servers.Web(ctx, "php", "php-cli", "testdata/php", func(addr string) []string { return []string{"-q", "-S", addr} })),
			paths:   "{ ignore_trailing_slash: true }",
			matches: map[string]string{"checkout": "/checkout.php/", "api": "/api/"}}, // what follows a script is PATH_INFO: a key with the path would count each
		"unmerged": {addr: started(servers.Nginx(ctx, t.TempDir(), servers.HTTP(`
			server {
				listen {{.Addr}};
				merge_slashes off;
				location / { return 200 '{"served":"page"}'; }
				location ~* ^/checkout/?$ { return 200 '{"served":"checkout"}'; }
				location ~* ^/sale/?$ { return 200 '{"served":"sale"}'; }
				location ~* ^/item/[^/]+/?$ { return 200 '{"served":"item"}'; }
				location ~* ^/api(/|$) { return 200 '{"served":"api"}'; }
				location ~* ^/static(/|$) { return 200 '{"served":"static"}'; }
			}`))), paths: "{ ignore_case: true, ignore_trailing_slash: true }", matches: usual, general: true},
		"nginx": {addr: started(servers.Nginx(ctx, t.TempDir(), servers.HTTP(`
			server {
				listen {{.Addr}};
				location / { return 200 '{"served":"page"}'; }
				location = /checkout { return 200 '{"served":"checkout"}'; }
				location ~* ^/sale/?$ { return 200 '{"served":"sale"}'; }
				location ~ ^/item/[^/]+$ { return 200 '{"served":"item"}'; }
				location /api/ { return 200 '{"served":"api"}'; }
				location /static/ { return 200 '{"served":"static"}'; }
			}`))), sale: "{ ignore_case: true, ignore_trailing_slash: true }", matches: usual},
	}
}

func goRoutes() *http.ServeMux {
	mux := http.NewServeMux()
	for pattern, name := range map[string]string{
		"/": "page", "/checkout": "checkout", "/sale": "sale", "/item/{id}": "item", "/api/": "api", "/static/": "static",
	} {
		mux.HandleFunc(pattern, func(w http.ResponseWriter, _ *http.Request) {
			json.NewEncoder(w).Encode(map[string]string{"served": name})
		})
	}
	return mux
}

// policyFor returns the routes of a policy for a framework. Its hosts are NAME.test, where all but the rest is limited, and NAME-rest.test,
// where all but /static/ is; the same with NAME-open, where the policy says nothing of paths, which has to be found.
func policyFor(name string, f framework) (limits, routes string) {
	for _, open := range []string{"", "-open"} {
		host, paths, sale := name+open, "", ""
		if open != "" {
			paths = ", paths: { ambiguous: allow }"
			sale = paths
		} else if f.paths != "" {
			paths = ", paths: " + f.paths
			sale = paths
		}
		if open == "" && f.sale != "" {
			sale = ", paths: " + f.sale
		}
		for route, match := range f.matches {
			key, own := "const.one", paths
			if route == "sale" {
				key, own = "path", sale
			}
			limits += fmt.Sprintf("  %s-%s: { key: %s, token_bucket: { rate: 1/d, burst: 1 } }\n", host, route, key)
			routes += fmt.Sprintf("  - { match: \"%s.test%s\", upstream: %s, limits: [%s-%s]%s }\n", host, match, name, host, route, own)
		}
		limits += fmt.Sprintf("  %s-rest: { token_bucket: { rate: 1/d, burst: 1 } }\n", host)
		rest := ""
		if f.general {
			limits += fmt.Sprintf("  %s-general: { token_bucket: { rate: 1000000/s, burst: 1000000 } }\n", host)
			rest = fmt.Sprintf(", limits: [%s-general]", host)
		}
		routes += fmt.Sprintf("  - { match: %s.test/, upstream: %s%s }\n", host, name, rest)
		routes += fmt.Sprintf("  - { match: %s-rest.test/static/, upstream: %s%s }\n", host, name, paths)
		routes += fmt.Sprintf("  - { match: %s-rest.test/, upstream: %s, limits: [%s-rest]%s }\n", host, name, host, paths)
	}
	return limits, routes
}

// TestNoVariantReachesUncounted: with the paths of a policy set as the upstream reads them, no path
// that it serves like a limited one reaches it uncounted, however the path is written.
func TestNoVariantReachesUncounted(t *testing.T) {
	all := frameworks(t)
	limits, upstreams, routes := "", "", ""
	for name, f := range all {
		l, r := policyFor(name, f)
		limits, routes = limits+l, routes+r
		upstreams += fmt.Sprintf("  %s: { url: \"http://%s\" }\n", name, f.addr)
	}
	g := servePolicy(t, binary, "listen: { admin: \"127.0.0.1:0\", gateway: \"127.0.0.1:0\" }\nlimits:\n"+limits+"upstreams:\n"+upstreams+"routes:\n"+routes)
	for name, f := range all {
		for _, open := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s/open=%v", name, open), func(t *testing.T) {
				rng := seeds.Of(t.Name())
				host := name
				if open {
					host += "-open"
				}
				s := &variants{t: t, gateway: g.Gateway, host: host, statuses: map[int]int{}}
				bases := s.useUp(f)
				for i, began := 0, time.Now(); searching(i/2, began, 2*len(all)); i++ {
					path := pick(rng, bases...)
					for range 1 + rng.IntN(3) {
						path = mutated(rng, path)
					}
					s.try(path, f)
				}
				t.Logf("%d attempts, %d refused by a limit, %d as bad requests, %d served: %v", s.all, s.statuses[429], s.statuses[400], s.statuses[200], s.found)
				if open && !f.strict && len(s.found) == 0 {
					t.Error("nothing was found where nothing is said of paths: the search has become blind")
				}
				if !open && len(s.found) > 0 {
					t.Errorf("%d attempts reached the upstream uncounted", len(s.found))
				}
				if s.statuses[429] == 0 || s.statuses[200] == 0 || s.statuses[400] == 0 && !open {
					t.Error("the search has become blind")
				}
			})
		}
	}
}

// variants tries paths at one upstream.
type variants struct {
	t             *testing.T
	gateway, host string
	all           int
	statuses      map[int]int
	found         []string
}

// useUp uses up the limits, and returns the paths of the routes.
func (s *variants) useUp(f framework) (bases []string) {
	for _, match := range f.matches {
		path := strings.Replace(match, "{id}", "7", 1)
		bases = append(bases, path)
		s.send(s.host, path)
		if status, _ := s.send(s.host, path); status != 429 {
			s.t.Fatalf("%s: %d", path, status)
		}
	}
	s.send(s.host+"-rest", "/x")
	slices.Sort(bases)
	return append(bases, "/static/x", "/static/")
}

// try sends a path to both hosts. No limited route may be served.
func (s *variants) try(path string, f framework) {
	for _, host := range []string{s.host, s.host + "-rest"} {
		s.all++
		status, served := s.send(host, path)
		s.statuses[status]++
		_, limited := f.matches[served]
		if host != s.host {
			limited = served != "static"
		}
		if status == 200 && limited {
			if s.found = append(s.found, path); len(s.found) < 5 {
				s.t.Logf("%s%s reached %s uncounted", host, path, served)
			}
		}
	}
}

// send sends a request, and returns the name of the route that the upstream served it by.
func (s *variants) send(host, path string) (status int, served string) {
	conn, err := net.Dial("tcp", s.gateway)
	if err != nil {
		s.t.Fatal(err)
	}
	defer conn.Close()
	conn.SetDeadline(time.Now().Add(servers.Patience))
	fmt.Fprintf(conn, "GET %s HTTP/1.1\r\nHost: %s.test\r\nX-Any-Method: 1\r\nConnection: close\r\n\r\n", path, host)
	resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		return 0, ""
	}
	defer resp.Body.Close()
	text, _ := io.ReadAll(resp.Body)
	var said struct{ Served string }
	_ = json.Unmarshal(text, &said) // an error page says nothing
	return resp.StatusCode, said.Served
}

// mutated returns a path in which one thing is written in another way, or that another path is added to.
func mutated(rng *rand.Rand, path string) string {
	i := rng.IntN(len(path))
	slash := strings.IndexByte(path[i:], '/') // a slash at or after a place
	switch rng.IntN(14) {
	case 0: // letters in the other case
		return strings.Map(func(c rune) rune {
			if c >= 'a' && c <= 'z' && rng.IntN(2) == 0 {
				return c - 'a' + 'A'
			}
			return c
		}, path)
	case 1:
		return path + "/"
	case 2:
		if len(path) > 1 {
			return strings.TrimSuffix(path, "/")
		}
	case 3: // an encoded character
		if path[i] != '/' && path[i] != '%' {
			return path[:i] + fmt.Sprintf(pick(rng, "%%%02x", "%%%02X", "%%25%02x"), path[i]) + path[i+1:]
		}
	case 4:
		return path + pick(rng, ".json", ".html", ".", ". .", "%20", "%09", "%00", "%00.png", "%0a", "..", "%2e", "%2f", "%5c", "%3bx", "%3fx", "%23", "::$DATA")
	case 5:
		return path + pick(rng, ";", ";x=1", ";/", ";x/..", "/x", "/.", "/..", "/x/..", "//..", "//../", "/x//../..", "/.//..", "//%2e%2e", "/%5c..", "%2fx", "%2f..", "/%2e", "/..;/", "?x", "?/")
	case 6, 7: // in front
		return pick(rng, "/", "//x", "//x/y/..", "/.", "/x/..", "/%2e", "/x/%2e%2e", "/x/..;x", "/x/..%2f.", "/..", "/;x", "/%5c..", "/x%5c..", "/static/..", "/static/..%2f..", "/static%2f..", "/static/..;", "/static%5c..", "/api/..", "/%252e") + path
	case 8: // another slash
		if slash >= 0 {
			return path[:i+slash] + pick(rng, "//", "%2f", "%2F", "%5c", "/./", "//../", "//x/../../", "/;x/", ";x/", "/x/../", "/%2e/", "%252f", "/.;/", "./", "%20/") + path[i+slash+1:]
		}
	case 9: // something within
		if path[i] != '%' && (i == 0 || path[i-1] != '%') {
			return path[:i] + pick(rng, ";", "%00", "%09", "%20", ".", "%2f", "%5c", "%25", "+", "~") + path[i:]
		}
	default:
		return path
	}
	return path
}
