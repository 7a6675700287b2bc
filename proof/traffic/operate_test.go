package traffic

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/weirflow/weir/proof/servers"
)

// logged returns the lines of weir's log with a message.
func (g *gateway) logged(t *testing.T, msg string) (all []map[string]any) {
	t.Helper()
	for line := range strings.Lines(g.Output()) {
		var fields map[string]any
		if err := json.Unmarshal([]byte(line), &fields); err != nil {
			t.Fatalf("the log has a line that is not JSON: %q", line)
		}
		if fields["msg"] == msg {
			all = append(all, fields)
		}
	}
	return all
}

// reloads waits until the policy has been reloaded so often, with a given result.
func (g *gateway) reloads(t *testing.T, ok, failed float64) {
	t.Helper()
	servers.Poll(t, "the file is read again", func() bool {
		m := g.Samples(t)
		return m[`weir_reloads_total{result="ok"}`]+m[`weir_reloads_total{result="failed"}`] >= ok+failed
	})
	m := g.Samples(t)
	if m[`weir_reloads_total{result="ok"}`] != ok || m[`weir_reloads_total{result="failed"}`] != failed {
		t.Fatalf("%v reloads succeeded and %v failed, not %v and %v\n%s", m[`weir_reloads_total{result="ok"}`],
			m[`weir_reloads_total{result="failed"}`], ok, failed, g.Output())
	}
}

// asks sends requests one after another and compares the statuses.
func (g *gateway) asks(t *testing.T, target, statuses string) {
	t.Helper()
	var got []string
	for range strings.Fields(statuses) {
		answer := strings.Fields(curl(t, "-o", "/dev/null", "http://"+g.Gateway+target))
		got = append(got, answer[len(answer)-1])
	}
	if g := strings.Join(got, " "); g != statuses {
		t.Errorf("%s: %s, not %s", target, g, statuses)
	}
}

// TestReload breaks the policy file of a running weir, and repairs it.
func TestReload(t *testing.T) {
	up := startNginx(t, t.TempDir(), servers.HTTP(upstream))
	dir := t.TempDir()
	busy := filepath.Join(dir, "busy.txt")
	servers.Replace(t, busy, "busy\n")
	good := `limits:
  user:
    key: query.user
    token_bucket: { rate: 1/h, burst: 2 }
    on_missing: deny
upstreams: { up: { url: "http://` + up.Addr + `" } }
routes: [{ match: /, upstream: up, limits: [user], refused: { file: busy.txt } }]
`
	g := startWeir(t, dir, good)
	g.asks(t, "/?user=ann", "200 200 429")
	g.asks(t, "/?user=bob", "200")

	// An invalid file: the old limits stay, and their counts too.
	g.write(t, strings.Replace(good, "1/h", "1/fortnight", 1))
	g.reloads(t, 0, 1)
	g.asks(t, "/?user=ann", "429")
	g.asks(t, "/?user=bob", "200 429")
	if l := g.logged(t, "policy not reloaded: the running policy stays active"); len(l) != 1 || l[0]["level"] != "ERROR" || l[0]["why"] != "the file has changed" {
		t.Errorf("%v", l)
	}
	l := g.logged(t, "policy")
	if len(l) != 1 {
		t.Fatalf("%d problems are in the log, not one: %s", len(l), g.Output())
	}
	message, _ := l[0]["message"].(string)
	if l[0]["file"] != g.File || l[0]["line"] != 5.0 || l[0]["column"] != 27.0 || !strings.Contains(message, `"fortnight" is not a duration: write s, m, h, d`) {
		t.Errorf("%v", l[0])
	}

	// Addresses change only with a restart, and the log says so. A missing file is a failure like
	// others.
	servers.Replace(t, g.File, strings.Replace(servers.FreePorts, "0", "1", 1)+good)
	g.reloads(t, 0, 2)
	if err := os.Remove(g.File); err != nil {
		t.Fatal(err)
	}
	g.reloads(t, 0, 3)
	g.asks(t, "/?user=ann", "429")

	// A valid file is applied. Ann has used two of what are now three.
	g.write(t, strings.Replace(good, "burst: 2", "burst: 3", 1))
	g.reloads(t, 1, 3)
	g.asks(t, "/?user=ann", "200 429")
	g.asks(t, "/?user=eve", "200 200 200 429")

	// SIGHUP reloads at once, also files that are not watched.
	servers.Replace(t, busy, "still busy\n")
	began := time.Now()
	if err := g.Signal(syscall.SIGHUP); err != nil {
		t.Fatal(err)
	}
	g.reloads(t, 2, 3)
	t.Logf("read again %v after SIGHUP", time.Since(began))
	if l := g.logged(t, "policy reloaded"); len(l) != 2 || l[0]["why"] != "the file has changed" || l[1]["why"] != "signal" {
		t.Errorf("%v", l)
	}
	if answer := curl(t, "http://"+g.Gateway+"/?user=ann"); answer != "still busy\n 429" {
		t.Errorf("%q", answer)
	}
	// It reports a broken one, too.
	servers.Replace(t, g.File, "limits: [")
	if err := g.Signal(syscall.SIGHUP); err != nil {
		t.Fatal(err)
	}
	g.reloads(t, 2, 4)
	g.asks(t, "/?user=ann", "429")
}

// TestReloadUnderLoad changes the parameters of a limit all the time under wrk. No request fails,
// and what arrives stays within the bound for changes: the larger burst and the larger rate.
func TestReloadUnderLoad(t *testing.T) {
	const duration = 4 * time.Second
	up := startNginx(t, t.TempDir(), servers.HTTP(upstream))
	small := `
limits: { all: { token_bucket: { rate: 50/s, burst: 25 } } }
upstreams: { up: { url: "http://` + up.Addr + `" } }
routes: [{ match: /, upstream: up, limits: [all] }]
`
	large := strings.Replace(small, "rate: 50/s, burst: 25", "rate: 100/s, burst: 50", 1)
	g := startWeir(t, t.TempDir(), large)
	began := time.Now()
	loaded := make(chan load, 1)
	go func() {
		defer close(loaded)
		loaded <- wrk(t, 16, duration, "http://"+g.Gateway+"/")
	}()
	var l load
	reloads := 0
	for under := true; under; {
		g.write(t, []string{small, large}[reloads%2])
		if err := g.Signal(syscall.SIGHUP); err != nil {
			t.Fatal(err)
		}
		reloads++
		servers.Poll(t, "the file is read again", func() bool { return g.Samples(t)[`weir_reloads_total{result="ok"}`] >= float64(reloads) })
		select {
		case l = <-loaded:
			under = false
		default:
		}
	}
	if n := g.Samples(t)[`weir_reloads_total{result="failed"}`]; n != 0 {
		t.Errorf("%v reloads failed", n)
	}
	stop(t, g.Process)
	elapsed := time.Since(began)
	at, _ := arrivals(t, up.AccessLog)
	if most := 50 + int(100*elapsed/time.Second); len(at) > most {
		t.Errorf("%d requests arrived within %v and %d reloads: at most %d may", len(at), elapsed, reloads, most)
	}
	whole := time.Duration(at[len(at)-1]-at[0]) * time.Millisecond
	still := l.stoodStill(at, time.Second/2)
	if least := 25 + int(50*(whole-still-l.slowest)/time.Second); len(at) < least {
		t.Errorf("%d requests arrived within %v and %d reloads, %v of it without the machine: at least %d are due", len(at), whole, reloads, still, least)
	}
	if l.errors != 0 || l.requests == 0 || l.statuses["200"]+l.statuses["429"] != l.requests {
		t.Errorf("wrk: %+v", l)
	}
	t.Logf("%d requests and %d reloads within %v, %d arrived", l.requests, reloads, elapsed, len(at))
}

// TestStop shuts weir down in the middle of a response and while a request is queued. Both get
// their responses, and new clients are not served.
func TestStop(t *testing.T) {
	first, rest, release := strings.Repeat("first ", 1000), strings.Repeat("rest ", 1000), make(chan struct{})
	up := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/slow" {
			io.WriteString(w, "upstream\n")
			return
		}
		io.WriteString(w, first)
		w.(http.Flusher).Flush()
		select {
		case <-release:
		case <-r.Context().Done():
		}
		io.WriteString(w, rest)
	}))
	defer up.Close()
	g := startWeir(t, t.TempDir(), `
limits: { line: { leaky_bucket: { rate: 15/m, queue: 5 } } }
upstreams: { up: { url: "`+up.URL+`" } }
routes:
  - { match: /slow, upstream: up }
  - { match: /, upstream: up, limits: [line] }
`)
	g.asks(t, "/", "200")
	slow := background(t, "http://"+g.Gateway+"/slow")
	servers.Poll(t, "one is in the middle of an answer", func() bool {
		return g.Samples(t)[`weir_gateway_requests_total{outcome="allowed"}`] == 2
	})
	waiting := background(t, "http://"+g.Gateway+"/")
	servers.Poll(t, "another waits", func() bool { return g.Samples(t)[`weir_limit_waiting{limit="line"}`] == 1 })
	began := time.Now()
	if err := g.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	servers.Poll(t, "nobody else is let in", func() bool {
		conn, err := net.Dial("tcp", g.Gateway)
		if err == nil {
			conn.Close()
		}
		return errors.Is(err, syscall.ECONNREFUSED)
	})
	resp, err := http.Get("http://" + g.Admin + "/readyz")
	if err != nil {
		t.Fatalf("while it ends it does not tell that it is not ready: %v", err)
	}
	resp.Body.Close()
	if resp.StatusCode != http.StatusServiceUnavailable {
		t.Errorf("while it ends /readyz says %s", resp.Status)
	}
	select {
	case <-g.Ended():
		t.Error("it ended before the requests in flight did")
	default:
	}
	if answer := <-waiting; answer != "upstream\n 200" {
		t.Errorf("who waited got %q", answer)
	}
	close(release)
	if answer := <-slow; answer != first+rest+" 200" {
		t.Errorf("who was in the middle of an answer got %d bytes: %q", len(answer), answer)
	}
	stop(t, g.Process) // an error unless it exits with 0
	t.Logf("it ended %v after SIGTERM", time.Since(began))
	if len(g.logged(t, "shutting down")) != 1 {
		t.Errorf("%s", g.Output())
	}
}

// TestSecondSignal: a second signal ends weir without waiting for the graceful shutdown.
func TestSecondSignal(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "slow"), make([]byte, 1<<20), 0o644); err != nil {
		t.Fatal(err)
	}
	up := startNginx(t, dir, servers.HTTP("server { listen {{.Addr}}; root .; limit_rate 1k; }")) // a quarter of an hour
	g := &gateway{servers.PolicyIn(t, t.TempDir(), servers.FreePorts+`
upstreams: { up: { url: "http://`+up.Addr+`" } }
routes: [{ match: /, upstream: up }]
`)}
	ctx, cancel := context.WithTimeout(t.Context(), servers.Patience)
	defer cancel()
	var err error
	if g.Weir, err = servers.StartWeir(ctx, binary, g.File); err != nil {
		t.Fatal(err)
	}
	defer g.Stop() // it exits with an error, as it should
	client := exec.CommandContext(ctx, program(t, "curl"), "-s", "-o", "/dev/null", "http://"+g.Gateway+"/slow")
	if err := client.Start(); err != nil {
		t.Fatal(err)
	}
	servers.Poll(t, "the answer has begun", func() bool { return g.Samples(t)[`weir_gateway_requests_total{outcome="allowed"}`] == 1 })
	if err := g.Signal(syscall.SIGINT); err != nil {
		t.Fatal(err)
	}
	servers.Poll(t, "it has begun to stop", func() bool { return len(g.logged(t, "shutting down")) == 1 })
	servers.Poll(t, "it ends on another signal", func() bool {
		g.Signal(syscall.SIGINT) // fails when it has ended
		select {
		case <-g.Ended():
			return true
		default:
			return false
		}
	})
	if client.Wait() == nil {
		t.Error("curl got its answer")
	}
}

// TestExpectContinue: a client that waits for a 100 before it sends its body gets one, and the
// RateLimit fields in the response.
func TestExpectContinue(t *testing.T) {
	dir := t.TempDir()
	shop := startNginx(t, t.TempDir(), servers.HTTP(upstream))
	up := startNginx(t, dir, servers.HTTP("server { listen {{.Addr}}; location / { proxy_pass http://"+shop.Addr+"; } }")) // it reads bodies
	g := startWeir(t, t.TempDir(), `
limits: { all: { token_bucket: { rate: 6/m, burst: 3 } } }
upstreams: { up: { url: "http://`+up.Addr+`" } }
routes: [{ match: /, upstream: up, limits: [all] }]
`)
	body := filepath.Join(dir, "body")
	if err := os.WriteFile(body, make([]byte, 100_000), 0o644); err != nil {
		t.Fatal(err)
	}
	answer := curl(t, "-i", "-H", "Expect: 100-continue", "--data-binary", "@"+body, "http://"+g.Gateway+"/")
	before, last, found := strings.Cut(answer, "HTTP/1.1 200 ") // there may be several 100
	if !found || !strings.HasPrefix(before, "HTTP/1.1 100 ") || !strings.Contains(last, `Ratelimit: "all";r=2;t=10`) {
		t.Errorf("%q", answer)
	}
}

// background runs curl beside the test.
func background(t *testing.T, args ...string) <-chan string {
	answer := make(chan string, 1)
	go func() { answer <- curl(t, args...) }()
	return answer
}
