package nginx

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/weirflow/weir/proof/servers"
)

// The cases here are those of nginx's own test files for limit_req and limit_conn: limit_req.t, limit_req2.t, limit_req_delay.t,
// limit_req_dry_run.t, limit_conn.t, limit_conn_dry_run.t and limit_conn_complex.t. Each is asked of a real nginx and of the gateway with the
// imported policy. Rates are so low that nothing drains while a case runs, except where a case is about draining: no clock decides.

// step is a request with its expected result.
type step struct {
	path   string
	want   int
	fields []string // header fields in pairs
}

// asks are cases, each of several requests in order.
var asks = []struct {
	name, zones, locations string
	steps                  []step
}{
	{
		"limit_req: rejected, by another location with another status too",
		"limit_req_zone $binary_remote_addr zone=one:1m rate=1r/m; limit_req_zone $http_x_key zone=key:1m rate=1r/m;",
		`location / { limit_req zone=one burst=1 nodelay; PASS }
		location /status { limit_req zone=one burst=1 nodelay; limit_req_status 501; PASS }
		location /keyreq.html { limit_req zone=key burst=1 nodelay; PASS }`,
		[]step{
			{"/test1.html", 200, nil}, {"/test1.html", 200, nil}, {"/test1.html", 503, nil}, {"/status.html", 501, nil}, {"/test1.html", 503, nil},
			{"/keyreq.html", 200, []string{"X-Key", "short"}}, {"/keyreq.html", 200, nil}, {"/keyreq.html", 200, nil}, {"/keyreq.html", 200, nil},
		},
	},
	{
		"one zone with several bursts",
		"limit_req_zone $binary_remote_addr zone=one:1m rate=1r/m;",
		"location /a { limit_req zone=one burst=2 nodelay; PASS } location /b { limit_req zone=one; PASS }",
		[]step{{"/a", 200, nil}, {"/a", 200, nil}, {"/a", 200, nil}, {"/b", 503, nil}, {"/a", 503, nil}},
	},
	{
		"limit_req2: several limits, and keys that are empty",
		"limit_req_zone $arg_a zone=slow:1m rate=1r/m; limit_req_zone $arg_b zone=fast:1m rate=1r/m;",
		`location / { limit_req zone=fast burst=5 nodelay; limit_req zone=slow; PASS }
		location /t2.html { limit_req zone=fast burst=5 nodelay; limit_req zone=slow nodelay; PASS }`,
		[]step{
			{"/t1.html?b=1", 200, nil}, {"/t1.html?b=1", 200, nil}, {"/t1.html?a=1", 200, nil}, {"/t1.html?a=1", 503, nil},
			{"/t1.html?a=2&b=2", 200, nil}, {"/t1.html?a=2&b=2", 503, nil}, {"/t1.html", 200, nil}, {"/t1.html", 200, nil},
			{"/t2.html?b=3", 200, nil}, {"/t2.html?b=3", 200, nil}, {"/t2.html?a=3", 200, nil}, {"/t2.html?a=3", 503, nil},
			{"/t2.html?a=4&b=4", 200, nil}, {"/t2.html?a=4&b=4", 503, nil},
		},
	},
	{
		"limit_req_dry_run: dry runs charge the zone, and refuse nothing",
		"limit_req_zone $binary_remote_addr zone=one:1m rate=1r/m;",
		`limit_req_dry_run on;
		location /delay { limit_req zone=one burst=2; PASS }
		location /reject { limit_req zone=one; PASS }
		location /reject/off { limit_req zone=one; limit_req_dry_run off; PASS }`,
		[]step{{"/delay", 200, nil}, {"/delay", 200, nil}, {"/reject", 200, nil}, {"/reject/off", 503, nil}},
	},
	{
		"limit_req_dry_run: several limits are charged together or not at all",
		"limit_req_zone $binary_remote_addr zone=one:1m rate=1r/m; limit_req_zone $binary_remote_addr zone=two:1m rate=1r/m;",
		`location /both { limit_req zone=one; limit_req zone=two; limit_req_dry_run on; PASS }
		location /one { limit_req zone=one; PASS }
		location /two { limit_req zone=two; PASS }`,
		[]step{{"/one", 200, nil}, {"/both", 200, nil}, {"/two", 200, nil}, {"/two", 503, nil}},
	},
	{
		"an allow-list by geo and map, behind a proxy",
		`set_real_ip_from 127.0.0.1; real_ip_header X-Forwarded-For; real_ip_recursive on;
		geo $limit { default 1; 10.0.0.0/8 0; 10.9.0.0/16 1; }
		map $limit $limit_key { 0 ""; 1 $binary_remote_addr; }
		limit_req_zone $limit_key zone=one:1m rate=1r/m;`,
		"limit_req zone=one; limit_req_status 429; location / { PASS }",
		[]step{
			{"/", 200, from("192.0.2.1")}, {"/", 429, from("192.0.2.1")}, {"/", 200, from("192.0.2.2")}, {"/", 429, from("192.0.2.9, 192.0.2.2")},
			{"/", 200, from("10.1.2.3")}, {"/", 200, from("10.1.2.3")}, {"/", 200, from("10.9.0.1")}, {"/", 429, from("10.9.0.1")},
		},
	},
	{
		"a map by method, as in front of a login",
		`map $request_method $login { default ""; POST $binary_remote_addr; }
		limit_req_zone $login zone=one:1m rate=1r/m;`,
		"location = /wp-login.php { limit_req zone=one; PASS } location / { PASS }",
		[]step{{"/wp-login.php", 200, nil}, {"/wp-login.php", 200, nil}, {"POST /wp-login.php", 200, nil}, {"POST /wp-login.php", 503, nil}, {"/wp-login.php", 200, nil}, {"POST /", 200, nil}},
	},
	{
		"return goes before limits, the longest prefix wins, and a directory without its slash is redirected",
		"limit_req_zone $binary_remote_addr zone=one:1m rate=1r/m;",
		`limit_req zone=one;
		location / { PASS }
		location = / { return 204; }
		location /status { return 200 "ok"; }
		location /dir/ { PASS }
		location /moved { return 301 https://$host$request_uri; }
		location /gone { return 410; }
		location /hidden/ { internal; }
		location /denied/ { deny all; }`,
		[]step{
			{"/x", 200, nil}, {"/x", 503, nil}, {"/", 204, nil}, {"/", 204, nil}, {"/status.html", 200, nil}, {"/status", 200, nil}, {"/dir", 301, nil}, {"/dir/", 503, nil},
			{"/moved/a?b=c", 301, nil}, {"/gone", 410, nil}, {"/gone", 410, nil},
		},
	},
}

// from is the header field in which a proxy sends a client's address.
func from(addr string) []string { return []string{"X-Forwarded-For", addr} }

// TestReference plays each case to nginx and to the gateway.
func TestReference(t *testing.T) {
	for _, arithmetic := range []bool{false, true} {
		for _, c := range asks {
			t.Run(fmt.Sprintf("%s/%v", c.name, arithmetic), func(t *testing.T) {
				up := newHolding(t)
				p := startPair(t, c.zones, c.locations, up, arithmetic)
				for name, addr := range p.addresses() {
					for i, s := range c.steps {
						if got := get(t, addr, s); got != s.want {
							t.Errorf("%s: request %d, %s: %d, want %d", name, i, s.path, got, s.want)
						}
					}
				}
			})
		}
	}
}

// TestReferenceConnections is limit_conn: a zone counts places over all its locations, and a place is free
// when its request has ended.
func TestReferenceConnections(t *testing.T) {
	up := newHolding(t)
	p := startPair(t, `limit_conn_zone $binary_remote_addr zone=zone:1m; limit_conn_zone $binary_remote_addr zone=zone2:1m;
		limit_conn_zone $binary_remote_addr zone=custom:1m; limit_conn_zone $binary_remote_addr$arg_c zone=complex:1m;`,
		`location / { limit_conn zone 1; PASS }
		location /1 { limit_conn zone 1; PASS }
		location /zone { limit_conn zone2 1; PASS }
		location /unlim { limit_conn zone 5; PASS }
		location /dry { limit_conn zone 1; limit_conn_dry_run on; PASS }
		location /custom { limit_conn custom 1; limit_conn_status 501; limit_conn_log_level info; PASS }
		location /complex { limit_conn complex 1; PASS }`, up, false)
	for name, addr := range p.addresses() {
		check := func(path string, want int) {
			t.Helper()
			if got := get(t, addr, step{path: path}); got != want {
				t.Errorf("%s: %s: %d, want %d", name, path, got, want)
			}
		}
		leave := up.hold(t, addr, "/w")
		check("/", 503)
		check("/1", 503)
		check("/zone", 200)
		check("/dry", 200) // it counts, and is not refused
		check("/unlim", 200)
		check("/", 503)
		leave()
		eventually(t, addr, "/1")
		leave = up.hold(t, addr, "/unlim/a")
		second := up.hold(t, addr, "/unlim/b")
		check("/", 503)
		check("/unlim", 200)
		leave()
		second()
		eventually(t, addr, "/")
		leave = up.hold(t, addr, "/dry/a")
		check("/1", 503)
		leave()
		leave = up.hold(t, addr, "/custom/w")
		check("/custom", 501)
		leave()
		leave = up.hold(t, addr, "/complex?c=1")
		check("/complex?c=1", 503)
		check("/complex?c=2", 200)
		leave()
	}
	lines := p.nginxLines(t)
	for _, want := range []string{`error: limiting connections by zone "zone"`, `info: limiting connections by zone "custom"`, `error: limiting connections, dry run, by zone "zone"`} {
		if !slices.Contains(lines, want) || !slices.Contains(p.weirLines(), want) {
			t.Errorf("%s: nginx %q, weir %q", want, lines, p.weirLines())
		}
	}
}

// TestReferenceDelay is limit_req_delay.t: of burst=2 delay=1 the second request is not delayed, the third is, and the fourth refused; and a
// delayed one is answered.
func TestReferenceDelay(t *testing.T) {
	for _, arithmetic := range []bool{false, true} {
		up := newHolding(t)
		p := startPair(t, "limit_req_zone $arg_k zone=one:1m rate=30r/m;", "location / { limit_req zone=one delay=1 burst=2; PASS }", up, arithmetic)
		for name, addr := range p.addresses() {
			for try := range tries { // on a slow machine some of it may have drained
				path := fmt.Sprintf("/delay.html?k=%d", try)
				began := time.Now()
				first, second := get(t, addr, step{path: path}), get(t, addr, step{path: path})
				passed := time.Since(began)
				third, took := make(chan int, 1), make(chan time.Duration, 1)
				arrived := time.Now()
				go func() {
					third <- get(t, addr, step{path: path})
					took <- time.Since(arrived)
				}()
				timer := time.NewTimer(100 * time.Millisecond)
				<-timer.C
				fourth := get(t, addr, step{path: path})
				if time.Since(began) > time.Second {
					<-third
					continue
				}
				if first != 200 || second != 200 || fourth != 503 {
					t.Errorf("%s: %d %d, and the fourth %d", name, first, second, fourth)
				}
				if status, delay := <-third, <-took; status != 200 || delay < 2*time.Second-passed-100*time.Millisecond {
					t.Errorf("%s: the third: %d after %v", name, status, delay)
				}
				break
			}
		}
	}
}

// holdingServer is an upstream that responds 200, to some requests only when the test releases them.
type holdingServer struct {
	*httptest.Server
	came  chan struct{}
	holds sync.Map // of a path to the channel that releases its request
}

func newHolding(t *testing.T) *holdingServer {
	h := &holdingServer{came: make(chan struct{})}
	h.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("X-Hold") == "" {
			io.WriteString(w, "here")
			return
		}
		release, _ := h.holds.Load(r.Header.Get("X-Hold"))
		h.came <- struct{}{}
		select {
		case <-r.Context().Done():
		case <-release.(chan struct{}):
		}
	}))
	t.Cleanup(h.Close)
	return h
}

// hold sends a request that stays at the upstream until the test calls the returned function.
func (h *holdingServer) hold(t *testing.T, addr, path string) (leave func()) {
	t.Helper()
	ended, release := make(chan int, 1), make(chan struct{})
	h.holds.Store(path, release)
	go func() { ended <- get(t, addr, step{path: path, fields: []string{"X-Hold", path}}) }()
	select {
	case <-h.came:
	case status := <-ended:
		t.Fatalf("%s was not held: %d", path, status)
	}
	return func() {
		close(release)
		<-ended
	}
}

// eventually requests a path until the status is as expected: a server may notice the end of another
// request a little later.
func eventually(t *testing.T, addr, path string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	ticker := time.NewTicker(5 * time.Millisecond)
	defer ticker.Stop()
	for get(t, addr, step{path: path}) != 200 {
		select {
		case <-ticker.C:
		case <-ctx.Done():
			t.Fatalf("%s stays refused", path)
		}
	}
}

// get sends a request: METHOD PATH, or a path. Redirects are not followed.
func get(t *testing.T, addr string, s step) int {
	method, path, found := strings.Cut(s.path, " ")
	if !found {
		method, path = http.MethodGet, s.path
	}
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, method, "http://"+addr+path, nil)
	if err != nil {
		t.Error(err)
		return 0
	}
	for i := 0; i+1 < len(s.fields); i += 2 {
		r.Header.Set(s.fields[i], s.fields[i+1])
	}
	resp, err := http.DefaultTransport.RoundTrip(r)
	if err != nil {
		t.Error(err)
		return 0
	}
	defer resp.Body.Close()
	_, _ = io.Copy(io.Discard, resp.Body)
	return resp.StatusCode
}

// addresses are those of both.
func (p *pair) addresses() map[string]string {
	return map[string]string{"nginx": p.nginx.Addr, "weir": p.weir.Gateway}
}

// startPair starts nginx and the gateway for one server with these zones and locations. PASS stands for a
// proxy_pass.
func startPair(t *testing.T, zones, locations string, up *holdingServer, arithmetic bool) pair {
	t.Helper()
	pass := "proxy_set_header Host $host; proxy_pass http://" + up.Listener.Addr().String() + ";"
	conf := "error_log error.log info; keepalive_requests 1000000;\n" + zones + "\nserver { listen {{.Addr}}; server_name localhost;\n" + strings.ReplaceAll(locations, "PASS", pass) + "\n}"
	return startFor(t, conf, arithmetic, nil)
}

// startFor is start, with nginx's arithmetic or the exact one.
func startFor(t *testing.T, http string, arithmetic bool, edit func(string) string) pair {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*patience)
	defer cancel()
	p := pair{dir: t.TempDir()}
	var err error
	if p.nginx, err = servers.Nginx(ctx, p.dir, servers.HTTP(http)); err != nil {
		t.Fatal(err)
	}
	stopAtEnd(t, p.nginx.Process)
	p.serve(ctx, t, arithmetic, edit)
	return p
}

// serve imports the configuration of the nginx and starts the gateway with it.
func (p *pair) serve(ctx context.Context, t *testing.T, arithmetic bool, edit func(string) string) {
	t.Helper()
	args := []string{"import", "nginx", "--gateway", "127.0.0.1:0", "--admin", "127.0.0.1:0", filepath.Join(p.dir, "nginx.conf")}
	if arithmetic {
		args = append(args, "--nginx-arithmetic")
	}
	var notes strings.Builder
	cmd := exec.CommandContext(ctx, binary, args...)
	cmd.Stderr = &notes
	policy, err := cmd.Output()
	if err != nil {
		t.Fatalf("weir import nginx: %v\n%s", err, notes.String())
	}
	p.start(ctx, t, policy, edit)
}
