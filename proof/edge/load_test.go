package edge

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/weirflow/weir/internal/raced"
	"github.com/weirflow/weir/proof/servers"
)

// TestIdleConnections opens ten thousand connections, sends a request over each, and leaves them
// open. Other clients are served as usual, and the memory for each is printed.
func TestIdleConnections(t *testing.T) {
	n := 10_000
	if raced.Enabled {
		n = 2_000 // with the race detector the test looks for races only
	}
	var limit syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit); err != nil || limit.Max < uint64(n+500) {
		t.Fatalf("%d files may be open, and %d are needed: ulimit -n (%v)", limit.Max, n+500, err)
	}
	limit.Cur = limit.Max
	if err := syscall.Setrlimit(syscall.RLIMIT_NOFILE, &limit); err != nil {
		t.Fatal(err)
	}
	up := newRawUpstream(t)
	g := startWeir(t, t.TempDir(), fmt.Sprintf("  gateway: 127.0.0.1:0\n  bounds: { max_connections: %d }\n", n+1), up.addr, routes)
	before := g.Resident(t)
	conns := make([]net.Conn, n)
	for i := range conns {
		var err error
		if conns[i], err = net.Dial("tcp", g.Gateway); err != nil {
			t.Fatal(err)
		}
		defer conns[i].Close()
		io.WriteString(conns[i], "GET / HTTP/1.1\r\nHost: h\r\n\r\n")
	}
	for _, c := range conns {
		c.SetDeadline(time.Now().Add(servers.Patience))
		if resp, err := http.ReadResponse(bufio.NewReaderSize(c, 16), nil); err != nil || resp.StatusCode != 200 {
			t.Fatal(resp, err)
		}
	}
	if open := g.Samples(t)["weir_connections_open"]; open != float64(n) {
		t.Errorf("%v are open", open)
	}
	t.Logf("%d idle connections take %d bytes each%s", n, (g.Resident(t)-before)/n, map[bool]string{true: ", under the race detector"}[raced.Enabled])
	if got := statuses(send(t, g.Gateway, last)); len(got) != 1 || got[0] != "200" {
		t.Errorf("another one: %v", got)
	}
	// The client sees the end of its connection before the gateway has freed the place.
	servers.Poll(t, "the other one has left", func() bool { return g.Samples(t)["weir_connections_open"] == float64(n) })
	one, err := net.Dial("tcp", g.Gateway)
	if err != nil {
		t.Fatal(err)
	}
	defer one.Close()
	servers.Poll(t, "the last place is taken", func() bool { return g.Samples(t)["weir_connections_open"] == float64(n+1) })
	if got := send(t, g.Gateway, last); got != "" {
		t.Errorf("one too many got %q", got)
	}
	if full := g.Samples(t)[`weir_connections_refused_total{reason="full"}`]; full != 1 {
		t.Errorf("%v were refused", full)
	}
}

// TestSlowClients: fifty clients that trickle a header, fifty that trickle a body, and fifty that
// read nothing do not slow other clients down, and are disconnected.
func TestSlowClients(t *testing.T) {
	t.Parallel()
	big := strings.Repeat("x", 16<<20)
	up := httpUpstream(t, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/big" {
			io.WriteString(w, big)
			return
		}
		io.Copy(io.Discard, r.Body)
		io.WriteString(w, "ok")
	})
	g := startWeir(t, t.TempDir(), "  gateway: 127.0.0.1:0\n  bounds: { header_timeout: 3s, body_timeout: 3s, write_timeout: 3s }\n", up, routes)
	const each = 50
	for i := range 3 * each {
		c, err := net.Dial("tcp", g.Gateway)
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		io.WriteString(c, []string{"GET / HTTP/1.1\r\nHost: h\r\nX", "POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 100\r\n\r\nx", "GET /big HTTP/1.1\r\nHost: h\r\n\r\n"}[i%3])
	}
	if open := g.Samples(t)["weir_connections_open"]; open == 0 {
		t.Error("none of them is there")
	}
	served := 0
	for range 50 {
		if strings.HasPrefix(send(t, g.Gateway, last), "HTTP/1.1 200 ") {
			served++
		}
	}
	if served == 0 { // on a slow machine some of these may be too slow as well
		t.Error("nobody is served meanwhile")
	}
	t.Logf("%d of 50 are served meanwhile", served)
	servers.Poll(t, "all are ended", func() bool { return g.Samples(t)["weir_connections_open"] == 0 })
	if n := g.Samples(t)[`weir_gateway_requests_total{outcome="bad_body"}`]; n != each {
		t.Errorf("%v bodies were too slow", n)
	}
}

// TestClientsThatLeave disconnect in the middle of a response: nothing of them stays.
func TestClientsThatLeave(t *testing.T) {
	t.Parallel()
	left := make(chan struct{}, 100)
	up := httpUpstream(t, func(w http.ResponseWriter, r *http.Request) {
		for r.Context().Err() == nil {
			if _, err := w.Write(make([]byte, 64<<10)); err != nil {
				break
			}
		}
		left <- struct{}{}
	})
	g := startWeir(t, t.TempDir(), "  gateway: 127.0.0.1:0\n", up, routes)
	const n = 50
	for range n {
		c, err := net.Dial("tcp", g.Gateway)
		if err != nil {
			t.Fatal(err)
		}
		io.WriteString(c, "GET / HTTP/1.1\r\nHost: h\r\n\r\n")
		if _, err := io.ReadFull(c, make([]byte, 100<<10)); err != nil {
			t.Fatal(err)
		}
		c.Close()
	}
	for range n {
		select {
		case <-left:
		case <-time.After(servers.Patience):
			t.Fatal("the upstream still writes")
		}
	}
	servers.Poll(t, "no connection is left", func() bool { return g.Samples(t)["weir_connections_open"] == 0 })
}

// TestH2Load runs h2load with TLS and without: every request gets a response. net/http ends a connection
// whose first SETTINGS it has not read within firstSettings, so a run in which the machine stood still for
// half of that is repeated.
func TestH2Load(t *testing.T) {
	program, err := servers.Program("h2load", "nghttp2-client")
	if err != nil {
		t.Fatal(err)
	}
	up := newRawUpstream(t)
	dir := t.TempDir()
	selfSigned(t, dir)
	listen := "  gateway:\n    - { address: \"127.0.0.1:0\", h2c: true }\n    - { address: \"127.0.0.1:0\", tls: { certificates: [{ cert: a.crt, key: a.key }] } }\n"
	g := startWeir(t, dir, listen, up.addr, routes)
	const n = 2000
	requests := func() float64 { return g.Samples(t)[`weir_http_requests_total{protocol="HTTP/2.0"}`] }
	for _, url := range []string{"http://" + g.Gateway + "/", "https://" + g.addresses(t)[1] + "/"} {
		for attempt := 1; ; attempt++ {
			before, longest := requests(), pulse()
			out, err := exec.CommandContext(t.Context(), program, "-n", fmt.Sprint(n), "-c", "8", "-m", "20", url).CombinedOutput()
			still, came := longest(), requests()-before
			if err == nil && came == n && strings.Contains(string(out), fmt.Sprintf("status codes: %d 2xx, 0 3xx, 0 4xx, 0 5xx", n)) && strings.Contains(string(out), "0 failed, 0 errored, 0 timeout") {
				break
			}
			if still < firstSettings/2 || attempt == 10 {
				t.Errorf("%s: %v, %v requests came, and the machine stood still for no longer than %v\n%s\n%s", url, err, came, still, out, g.Output())
				break
			}
			t.Logf("%s: once more, as the machine stood still for %v\n%s", url, still, out)
		}
	}
}

// pulse measures how long the machine stands still, by the longest time between two ticks until the
// returned function is called, which returns it.
func pulse() func() time.Duration {
	over, longest := make(chan struct{}), make(chan time.Duration)
	go func() {
		ticker := time.NewTicker(10 * time.Millisecond)
		defer ticker.Stop()
		most := time.Duration(0)
		for last := time.Now(); ; {
			select {
			case <-over:
				longest <- max(most, time.Since(last))
				return
			case <-ticker.C:
				most, last = max(most, time.Since(last)), time.Now()
			}
		}
	}()
	return func() time.Duration {
		close(over)
		return <-longest
	}
}
