package nginx

import (
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"
)

// nginx's own test files for limit_req and limit_conn make 65 assertions. Each is a row here, under the file's name and the assertion's, and
// has to hold for a real nginx and for the gateway with the imported policy. The configurations have the zones, rates, bursts and locations of
// these files; an upstream stands in for files on disk, and one that holds requests for locations that only have to be slow.
//
// Two rows are of a kind of their own: the files mark what they say of overlong keys as not yet so, and in nginx it is not. Both rows say what
// nginx does, and that the gateway does not skip the limit.

// A sourceFile is one of nginx's test files.
type sourceFile struct {
	name       string
	zones      string
	locations  string
	listen     string // parameters of listen
	assertions []string
	play       func(*play)
}

// assertionCount is the number of assertions in the files.
const assertionCount = 65

// sourceFiles returns the files with their assertions, in their order.
func sourceFiles() []sourceFile {
	return []sourceFile{limitReq, limitReq2, limitReqDelay, limitReqDryRun, limitConn, limitConnComplex, limitConnDryRun, h2LimitReq, h2LimitConn}
}

// TestAssertions: each assertion is true of nginx and of the gateway.
func TestAssertions(t *testing.T) {
	total := 0
	for _, f := range sourceFiles() {
		total += len(f.assertions)
		t.Run(f.name, func(t *testing.T) {
			t.Parallel()
			up := newSlow(t)
			p := startAssertions(t, f, up)
			var results [2]map[string]string
			var both sync.WaitGroup
			for i, addr := range []string{p.nginx.Addr, p.weir.Gateway} {
				both.Go(func() { results[i] = runPlay(t, &f, &p, up, names[i], addr) })
			}
			both.Wait()
			for _, name := range f.assertions {
				t.Run(name, func(t *testing.T) {
					for i, r := range results {
						switch wrong, said := r[name]; {
						case !said:
							t.Errorf("%s: it was not looked at", names[i])
						case wrong != "":
							t.Errorf("%s: %s", names[i], wrong)
						}
						delete(r, name)
					}
				})
			}
			for i, r := range results {
				for name := range r {
					t.Errorf("%s: %q is not in the table", names[i], name)
				}
			}
		})
	}
	if total != assertionCount {
		t.Errorf("%d assertions, want %d", total, assertionCount)
	}
}

// startAssertions starts both servers with the configuration of a file.
func startAssertions(t *testing.T, f sourceFile, up *slowServer) pair {
	t.Helper()
	pass := "proxy_pass http://" + up.Listener.Addr().String() + ";"
	conf := "error_log error.log info; proxy_set_header Host $host;\n" + f.zones + "\nserver { listen {{.Addr}}" + f.listen + "; server_name localhost;\n" +
		strings.ReplaceAll(f.locations, "PASS", pass) + "\n}"
	return startFor(t, conf, true, func(policy string) string { return policy + "access_log: { file: access.log, format: json }\n" })
}

// runPlay plays a file to a server, again from another address while a machine is too slow for its times. It returns what is wrong with each
// assertion; "" for nothing.
func runPlay(t *testing.T, f *sourceFile, p *pair, up *slowServer, server, addr string) map[string]string {
	for try := range tries {
		s := &play{t: t, pair: p, up: up, server: server, addr: addr, results: map[string]string{}}
		s.connect(fmt.Sprintf("127.0.%d.%d", 1+try, 1))
		s.since = len(s.lines())
		f.play(s)
		s.close()
		if !s.late {
			return s.results
		}
	}
	t.Errorf("%s: this machine is too slow for its times", server)
	return nil
}

var limitReq = sourceFile{
	name: "limit_req.t",
	zones: `limit_req_zone $binary_remote_addr zone=one:1m rate=2r/s; limit_req_zone $binary_remote_addr zone=long:1m rate=2r/s;
		limit_req_zone $binary_remote_addr zone=fast:1m rate=1000r/s; limit_req_zone $http_x_key zone=key:1m rate=1000r/s;
		limit_req_zone $http_x_key zone=slowkey:1m rate=1r/m; large_client_header_buffers 4 128k;`,
	locations: `location / { limit_req zone=one burst=1 nodelay; PASS }
		location /keyreq.html { limit_req zone=key burst=100; PASS }
		location /slowkey.html { limit_req zone=slowkey; PASS }
		location /status { limit_req zone=one burst=1 nodelay; limit_req_status 501; PASS }
		location /long { limit_req zone=long burst=5; PASS }
		location /fast { limit_req zone=fast burst=1; PASS }`,
	assertions: []string{
		"request", "request rejected", "request rejected status", "delayed big request not truncated", "rejects not counted", "negative excess",
		"key passed", "overlong key rejected",
	},
	play: func(s *play) {
		began := time.Now()
		s.status("request", 200, s.get("/test1.html"))
		s.get("/test1.html")
		s.status("request rejected", 503, s.get("/test1.html"))
		s.status("request rejected status", 501, s.get("/status.html"))
		s.get("/test1.html")
		s.get("/test1.html")
		s.within(began, 400*time.Millisecond) // by then a request would have been let in again
		began = time.Now()
		first := s.body("/long.html", 0)
		s.within(began, 400*time.Millisecond)
		second := s.body("/long.html", 600*time.Millisecond)
		s.check("delayed big request not truncated", first == 11<<16 && second == first && time.Since(began) > 400*time.Millisecond, "%d and %d bytes", first, second)
		s.status("rejects not counted", 200, s.get("/test1.html"))
		s.get("/fast.html")
		s.wait(100 * time.Millisecond)
		s.status("negative excess", 200, s.get("/fast.html"))
		s.status("key passed", 200, s.get("/keyreq.html", "X-Key", "short"))
		overlong := []string{"X-Key", strings.Repeat("x", 65600)}
		s.get("/slowkey.html", overlong...)
		want := 503
		if s.server == "nginx" {
			want = 200 // the limit is skipped
		}
		s.status("overlong key rejected", want, s.get("/slowkey.html", overlong...))
	},
}

var limitReq2 = sourceFile{
	name:  "limit_req2.t",
	zones: `limit_req_zone $arg_a zone=slow:1m rate=1r/m; limit_req_zone $arg_b zone=fast:1m rate=1000r/s;`,
	locations: `location / { limit_req zone=fast; limit_req zone=slow; PASS }
		location /t2.html { limit_req zone=fast nodelay; limit_req zone=slow nodelay; PASS }`,
	assertions: []string{
		"fast", "fast - passed", "slow", "slow - rejected", "both", "both - rejected", "no key", "no key - passed",
		"nodelay fast", "nodelay fast - passed", "nodelay slow", "nodelay slow - rejected", "nodelay both", "nodelay both - rejected",
	},
	play: func(s *play) {
		s.pair2("fast", "fast - passed", 200, "/t1.html?b=1")
		s.pair2("slow", "slow - rejected", 503, "/t1.html?a=1")
		s.pair2("both", "both - rejected", 503, "/t1.html?a=2&b=2")
		s.pair2("no key", "no key - passed", 200, "/t1.html")
		s.pair2("nodelay fast", "nodelay fast - passed", 200, "/t2.html?b=3")
		s.pair2("nodelay slow", "nodelay slow - rejected", 503, "/t2.html?a=3")
		s.pair2("nodelay both", "nodelay both - rejected", 503, "/t2.html?a=4&b=4")
	},
}

var limitReqDelay = sourceFile{
	name:       "limit_req_delay.t",
	zones:      "limit_req_zone $binary_remote_addr zone=one:1m rate=30r/m;",
	locations:  "location / { limit_req zone=one delay=1 burst=2; PASS }",
	assertions: []string{"request", "not yet delayed", "rejected", "delayed"},
	play: func(s *play) {
		began := time.Now()
		s.status("request", 200, s.get("/delay.html"))
		second := s.get("/delay.html")
		took := time.Since(began)
		s.within(began, time.Second)
		s.check("not yet delayed", second == 200 && took < time.Second, "%d after %v", second, took)
		sent := time.Now()
		third := s.start("/delay.html")
		s.wait(200 * time.Millisecond)
		s.status("rejected", 503, s.get("/delay.html"))
		s.within(began, time.Second)
		got := <-third
		s.check("delayed", got == 200 && time.Since(sent) > 500*time.Millisecond, "%d after %v", got, time.Since(sent))
	},
}

var limitReqDryRun = sourceFile{
	name: "limit_req_dry_run.t",
	zones: `limit_req_zone $binary_remote_addr zone=one:1m rate=1r/m; log_format test $uri:$limit_req_status; access_log test.log test;
		limit_req_dry_run on; add_header X-Status $limit_req_status always;`,
	locations: `location /delay { limit_req zone=one burst=2; PASS }
		location /reject { limit_req zone=one; PASS }
		location /reject/off { limit_req zone=one; limit_req_dry_run off; PASS }
		location / { PASS }`,
	assertions: []string{
		"dry run - passed", "dry run - delayed", "dry run - rejected", "dry run off - rejected", "no limit", "log - delay", "log - reject", "log - not found",
	},
	play: func(s *play) {
		s.decided("dry run - passed", 200, "PASSED", "", s.get("/delay"))
		s.decided("dry run - delayed", 200, "DELAYED_DRY_RUN", "delaying request, dry run, ", s.get("/delay"))
		s.decided("dry run - rejected", 200, "REJECTED_DRY_RUN", "limiting requests, dry run, ", s.get("/reject"))
		s.decided("dry run off - rejected", 503, "REJECTED", "limiting requests, excess", s.get("/reject/off"))
		s.decided("no limit", 200, "", "", s.get("/"))
		s.logged("log - delay", "delaying request, dry run")
		s.logged("log - reject", "limiting requests, dry run")
		s.unlogged("log - not found", "/:-")
	},
}
