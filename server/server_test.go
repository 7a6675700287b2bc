package server

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"log/slog"
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
)

// logBuffer is a log that a test can read while it is written.
type logBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *logBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *logBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

// running is a Serve in the background.
type running struct {
	Addresses
	log    *logBuffer
	reload chan struct{}
	stop   context.CancelFunc
	ended  chan error
}

func serve(t *testing.T, o Options) *running {
	t.Helper()
	ctx, stop := context.WithCancel(context.Background())
	r := &running{log: new(logBuffer), reload: make(chan struct{}), stop: stop, ended: make(chan error, 1)}
	ready := make(chan Addresses, 1)
	o.Log = slog.New(slog.NewJSONHandler(r.log, nil))
	o.Reload = r.reload
	o.Ready = func(a Addresses) { ready <- a }
	go func() { r.ended <- Serve(ctx, o) }()
	t.Cleanup(stop)
	select {
	case r.Addresses = <-ready:
	case err := <-r.ended:
		t.Fatal(err)
	}
	return r
}

// logger returns a logger that writes to the log.
func (r *running) logger() *slog.Logger { return slog.New(slog.NewJSONHandler(r.log, nil)) }

func fetch(t *testing.T, url string) (int, string) {
	t.Helper()
	resp, err := http.Get(url)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, string(body)
}

func until(t *testing.T, what string, done func() bool) {
	t.Helper()
	deadline := time.After(30 * time.Second)
	for !done() {
		select {
		case <-deadline:
			t.Fatalf("%s: it did not happen", what)
		case <-time.After(time.Millisecond):
		}
	}
}

const page = `
listen: { gateway: "127.0.0.1:0", admin: "127.0.0.1:0" }
limits:
  per-ip: { key: client.ip, token_bucket: { rate: 1/h, burst: BURST } }
  shadow: { token_bucket: { rate: 1/h, burst: 1 }, shadow: true }
upstreams: { up: { url: "URL" } }
routes: [{ match: /, upstream: up, limits: [per-ip, shadow] }]
`

// write replaces a file atomically: the server would read half a file, and report one more failure.
func write(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(path+".new", []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(path+".new", path); err != nil {
		t.Fatal(err)
	}
}

func newPolicy(t *testing.T) (path string, with func(burst int) string) {
	up := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { io.WriteString(w, "up") }))
	t.Cleanup(up.Close)
	with = func(burst int) string {
		return strings.ReplaceAll(strings.ReplaceAll(page, "URL", up.URL), "BURST", fmt.Sprint(burst))
	}
	path = filepath.Join(t.TempDir(), "policy.yaml")
	write(t, path, with(2))
	return path, with
}

func TestServe(t *testing.T) {
	path, _ := newPolicy(t)
	r := serve(t, Options{Path: path})
	for i, want := range []int{200, 200, 429} {
		if status, _ := fetch(t, "http://"+r.Gateway); status != want {
			t.Errorf("request %d: %d", i, status)
		}
	}
	for page, want := range map[string]string{"/healthz": "ok", "/readyz": "ready"} {
		if status, body := fetch(t, "http://"+r.Admin+page); status != 200 || strings.TrimSpace(body) != want {
			t.Errorf("%s: %d %q", page, status, body)
		}
		if status, _ := fetch(t, "http://"+r.Gateway+page); status == 200 {
			t.Errorf("%s is at the gateway too", page)
		}
	}
	if status, body := fetch(t, "http://"+r.Admin+"/"); status != 200 || !strings.Contains(body, "<title>") { // the dashboard
		t.Errorf("/: %d %.100q", status, body)
	}
	_, metrics := fetch(t, "http://"+r.Admin+"/metrics")
	for _, want := range []string{
		`weir_limit_requests_total{limit="per-ip",outcome="allowed"} 2`,
		`weir_limit_requests_total{limit="per-ip",outcome="delayed"} 0`,
		`weir_shadow_requests_total{limit="shadow",outcome="limited"} 1`,
		`weir_limit_keys{limit="per-ip"} 1`,
		`weir_gateway_requests_total{outcome="allowed"} 2`,
		`weir_reloads_total{result="failed"} 0`,
		`weir_upstream_retries_total{outcome="sent",upstream="up"} 0`,
		`weir_gateway_queued 0`,
	} {
		if !strings.Contains(metrics, want+"\n") {
			t.Errorf("no %s in the metrics", want)
		}
	}
	targets := regexp.MustCompile(`target="[^"]*"`) // as the policy has them
	if strings.Contains(targets.ReplaceAllString(metrics, ""), "127.0.0.1") || strings.Contains(r.log.String(), "127.0.0.1:"+clientPort(t, r)) {
		t.Error("a client is named in metrics or logs")
	}
	r.stop()
	if err := <-r.ended; err != nil {
		t.Error(err)
	}
	if _, err := net.Dial("tcp", r.Gateway); err == nil {
		t.Error("somebody still listens")
	}
}

// clientPort makes a request that net/http logs an error about, and returns its client's port.
func clientPort(t *testing.T, r *running) string {
	t.Helper()
	conn, err := net.Dial("tcp", r.Gateway)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	io.WriteString(conn, "nonsense\r\n\r\n")
	io.ReadAll(conn)
	_, port, _ := net.SplitHostPort(conn.LocalAddr().String())
	return port
}

// TestABrokenPolicyChangesNothing: an operator makes a typo while the server runs.
func TestABrokenPolicyChangesNothing(t *testing.T) {
	path, with := newPolicy(t)
	r := serve(t, Options{Path: path, Watch: time.Millisecond})
	fetch(t, "http://"+r.Gateway)
	fetch(t, "http://"+r.Gateway)
	failed := func(n int) func() bool {
		return func() bool {
			_, metrics := fetch(t, "http://"+r.Admin+"/metrics")
			return strings.Contains(metrics, fmt.Sprintf("weir_reloads_total{result=\"failed\"} %d\n", n))
		}
	}
	write(t, path, strings.Replace(with(5), "burst: 5", "brust: 5", 1))
	until(t, "noticing the typo", failed(1))
	// the reason is logged after the failure is counted
	until(t, "the reason in the log", func() bool {
		log := r.log.String()
		return strings.Contains(log, "the running policy stays active") && strings.Contains(log, `there is no key \"brust\" here`) && strings.Contains(log, `"line":4`)
	})
	if status, _ := fetch(t, "http://"+r.Gateway); status != 429 {
		t.Errorf("the old limit does not go on: %d", status)
	}
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	until(t, "noticing that the file is gone", failed(2))
	write(t, path, strings.Replace(with(5), "gateway: \"127.0.0.1:0\"", "gateway: \"127.0.0.1:1\"", 1))
	until(t, "noticing another address", failed(3))
	until(t, "the reason in the log", func() bool { return strings.Contains(r.log.String(), "only with a restart") })
	write(t, path, strings.Replace(with(5), "listen: {", "listen: { resp: \"127.0.0.1:0\",", 1))
	until(t, "noticing an address that is not served", failed(4))

	write(t, path, with(5))
	until(t, "the good policy", func() bool { return strings.Contains(r.log.String(), "policy reloaded") })
	for i, want := range []int{200, 200, 200, 429} { // two of the five were used before
		if status, _ := fetch(t, "http://"+r.Gateway); status != want {
			t.Errorf("request %d: %d", i, status)
		}
	}
	r.stop()
	if err := <-r.ended; err != nil {
		t.Error(err)
	}
}

func TestReloadWhenAsked(t *testing.T) {
	path, with := newPolicy(t)
	r := serve(t, Options{Path: path, Watch: time.Hour})
	write(t, path, with(7))
	r.reload <- struct{}{}
	until(t, "reloading", func() bool { return strings.Contains(r.log.String(), `"why":"signal"`) })
	if resp, err := http.Get("http://" + r.Gateway); err != nil || !strings.Contains(resp.Header.Get("RateLimit-Policy"), "q=7") {
		t.Errorf("%v, %v", resp, err)
	}
}

// TestStoppingLetsRequestsEnd: requests in flight and in queues get their responses.
func TestStoppingLetsRequestsEnd(t *testing.T) {
	entered, finish := make(chan struct{}, 1), make(chan struct{})
	up := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/slow" {
			entered <- struct{}{}
			<-finish
		}
		io.WriteString(w, "done")
	}))
	defer up.Close()
	path := filepath.Join(t.TempDir(), "policy.yaml")
	write(t, path, strings.ReplaceAll(`
listen: { gateway: "127.0.0.1:0", admin: "127.0.0.1:0" }
limits: { door: { leaky_bucket: { rate: 2/s, queue: 5 } } }
upstreams: { up: { url: "URL" } }
routes: [{ match: /slow, upstream: up }, { match: /, upstream: up, limits: [door] }]
`, "URL", up.URL))
	r := serve(t, Options{Path: path})
	answers := make(chan string, 3)
	ask := func(path string) {
		resp, err := http.Get("http://" + r.Gateway + path)
		if err != nil {
			answers <- err.Error()
			return
		}
		defer resp.Body.Close()
		body, _ := io.ReadAll(resp.Body)
		answers <- fmt.Sprint(resp.StatusCode, " ", string(body))
	}
	go ask("/slow")
	<-entered
	fetch(t, "http://"+r.Gateway+"/")
	go ask("/")
	until(t, "waiting", func() bool {
		_, metrics := fetch(t, "http://"+r.Admin+"/metrics")
		return strings.Contains(metrics, `weir_limit_waiting{limit="door"} 1`)
	})
	r.stop()
	until(t, "not being ready", func() bool { status, _ := fetch(t, "http://"+r.Admin+"/readyz"); return status == 503 })
	close(finish)
	for range 2 {
		if got := <-answers; got != "200 done" {
			t.Errorf("%s", got)
		}
	}
	if err := <-r.ended; err != nil {
		t.Error(err)
	}
}

// TestStoppingTellsClientsFirst: a client that sends one request after another over a connection
// learns from a response that it has to reconnect. The connection is never closed on a request that
// the client could not repeat.
func TestStoppingTellsClientsFirst(t *testing.T) {
	up := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { io.WriteString(w, "done") }))
	defer up.Close()
	path := filepath.Join(t.TempDir(), "policy.yaml")
	write(t, path, `{listen: {gateway: "127.0.0.1:0", admin: "127.0.0.1:0"}, upstreams: {up: {url: "`+up.URL+`"}}, routes: [{match: /, upstream: up}]}`)
	r := serve(t, Options{Path: path})
	var clients sync.WaitGroup
	var answered atomic.Int64
	for range 16 {
		clients.Go(func() {
			client := &http.Client{Transport: &http.Transport{}}
			defer client.CloseIdleConnections()
			for {
				resp, err := client.Post("http://"+r.Gateway, "text/plain", strings.NewReader("x"))
				if err != nil {
					t.Errorf("a request failed: %v", err)
					return
				}
				io.Copy(io.Discard, resp.Body)
				resp.Body.Close()
				if resp.Close {
					return
				}
				answered.Add(1)
			}
		})
	}
	until(t, "every client is at work", func() bool { return answered.Load() > 1000 })
	r.stop()
	clients.Wait()
	if err := <-r.ended; err != nil {
		t.Error(err)
	}
}

func TestStoppingEndsAfterTheGrace(t *testing.T) {
	entered := make(chan struct{}, 1)
	up := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		entered <- struct{}{}
		<-r.Context().Done()
	}))
	defer up.Close()
	path := filepath.Join(t.TempDir(), "policy.yaml")
	write(t, path, `{listen: {gateway: "127.0.0.1:0"}, upstreams: {up: {url: "`+up.URL+`"}}, routes: [{match: /, upstream: up}]}`)
	r := serve(t, Options{Path: path, Grace: time.Millisecond})
	go http.Get("http://" + r.Gateway)
	<-entered
	r.stop()
	if err := <-r.ended; err == nil || !strings.Contains(err.Error(), "still in flight") {
		t.Errorf("%v", err)
	}
}

// TestDemoPortTaken: the error of a taken port says how to have another one, where no file has addresses.
func TestDemoPortTaken(t *testing.T) {
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	demo := strings.NewReplacer(":8080", ":0", ":9090", ":0", ":6380", ":0", ":8081", ":0", "127.0.0.1:8082", taken.Addr().String()).Replace(demoPolicy)
	err = Serve(t.Context(), Options{Out: io.Discard, demo: demo, Log: slog.New(slog.DiscardHandler)})
	if err == nil || !strings.Contains(err.Error(), "listen.http: cannot listen on "+taken.Addr().String()) || !strings.Contains(err.Error(), "weir serve --config FILE") {
		t.Error(err)
	}
}

func TestDemo(t *testing.T) {
	taken, err := net.Listen("tcp", "127.0.0.1:9000") // so that the demo upstream takes another port
	if err == nil {
		defer taken.Close()
	}
	for _, addr := range []string{"gateway: 127.0.0.1:8080\n", "admin: 127.0.0.1:9090\n"} {
		if !strings.Contains(demoPolicy, addr) {
			t.Errorf("the demo is not at %s", addr)
		}
	}
	var out bytes.Buffer
	r := serve(t, Options{Out: &out, demo: strings.NewReplacer(":8080", ":0", ":9090", ":0", ":6380", ":0", ":8081", ":0", ":8082", ":0").Replace(demoPolicy)})
	if !strings.Contains(out.String(), "http://"+r.Gateway+"/; done") || !strings.Contains(out.String(), "http://"+r.Admin+" ") {
		t.Errorf("%+v\n%s", r.Addresses, out.String())
	}
	statuses := map[int]int{}
	for range 30 {
		status, _ := fetch(t, "http://"+r.Gateway)
		statuses[status]++
	}
	if statuses[200] < 10 || statuses[200]+statuses[429] != 30 {
		t.Errorf("%v", statuses)
	}
	r.reload <- struct{}{} // there is no file, so nothing happens
	r.stop()
	if err := <-r.ended; err != nil {
		t.Error(err)
	}
}

func TestServeRefuses(t *testing.T) {
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	for text, want := range map[string]string{
		`{routes: []}`: "names no address to serve on",
		`{listen: {gateway: "127.0.0.1:0", rls: "127.0.0.1:0"}}`:                     "listen.rls has no rules",
		`{listen: {rls: {address: "0.0.0.0:0", envoy: rules.yaml}}}`:                 "listen.rls: 0.0.0.0:0 is not a loopback address",
		`{listen: {gateway: "127.0.0.1:0", resp: "0.0.0.0:0"}}`:                      "listen.resp: 0.0.0.0:0 is not a loopback address",
		`{listen: {gateway: "127.0.0.1:0", admin: "0.0.0.0:9090"}}`:                  "not a loopback address",
		`{listen: {gateway: "127.0.0.1:0", admin: ":9090"}}`:                         "not a loopback address",
		`{listen: {gateway: "` + taken.Addr().String() + `"}}`:                       "listen.gateway: cannot listen on " + taken.Addr().String() + ": bind: address already in use: stop what listens there",
		`{listen: {gateway: "127.0.0.1:0", admin: "` + taken.Addr().String() + `"}}`: "listen.admin: cannot listen",
		`{listen: {gateway: "192.0.2.1:9"}}`:                                         "this machine does not have that address",
		`{listen: {gateway: "127.0.0.1:0"}, routes: [{match: /}]}`:                   "has no upstream",
		`{listen: {gateway: "127.0.0.1:0"}, lmits: {}}`:                              "did you mean limits?",
	} {
		path := filepath.Join(t.TempDir(), "p.yaml")
		write(t, path, text)
		err := Serve(t.Context(), Options{Path: path, Log: slog.New(slog.DiscardHandler)})
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want one with %q", text, err, want)
		}
	}
	if err := Serve(t.Context(), Options{Path: "/nowhere.yaml", Log: slog.New(slog.DiscardHandler)}); !os.IsNotExist(err) {
		t.Errorf("%v", err)
	}
}

// TestUpdatesEndAfterTheGrace: an update that has ended is not said to be in progress because requests
// have used up the grace. The policy was left open then.
func TestUpdatesEndAfterTheGrace(t *testing.T) {
	s := &server{deadline: time.Now().Add(-time.Minute), maintained: make(chan struct{}), endMaintenance: func() {}}
	close(s.maintained)
	for range 100 {
		if !s.awaitMaintenance() {
			t.Fatal("an update is said to be in progress")
		}
	}
}
