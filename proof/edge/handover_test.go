package edge

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/weirflow/weir/proof/servers"
)

const monthly = 10_000_000

// startQuotas serves quotas that are kept in memory.
func startQuotas(t *testing.T, top string) *daemon {
	t.Helper()
	d := newDaemon(t)
	d.start(t, fmt.Sprintf(`listen: { gateway: %q, admin: %q }
%supstreams: { up: { url: "http://%s" } }
limits:
  monthly: { key: header.x-team, on_missing: deny, cost: header.x-cost, fixed_window: { limit: %d, align: month } }
  bytes: { key: header.x-team, on_missing: deny, cost: bytes, fixed_window: { limit: 1000, align: month } }
  pace: { key: header.x-team, on_missing: deny, token_bucket: { rate: 100000/s, burst: 100000 } }
routes:
  - { match: /bytes, upstream: up, limits: [bytes] }
  - { match: /one, upstream: up, limits: [monthly] }
  - { match: /, upstream: up, limits: [pace, monthly] }
`, d.gateway, d.admin, top, httpUpstream(t, func(w http.ResponseWriter, r *http.Request) {
		if _, err := io.Copy(io.Discard, r.Body); err == nil {
			io.WriteString(w, "ok")
		}
	}), monthly))
	return d
}

// used returns what the team red has used of a limit in the newest process.
func (d *daemon) used(t *testing.T, limit string) int64 {
	t.Helper()
	resp, err := http.Get("http://" + d.admin + "/v1/usage?key=red&limit=" + limit)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	var all struct{ Limits, Usage []struct{ Used int64 } }
	text, err := io.ReadAll(resp.Body)
	if err != nil || json.Unmarshal(text, &all) != nil || len(all.Limits)+len(all.Usage) != 1 {
		t.Fatalf("%s, %v", text, err)
	}
	return append(all.Limits, all.Usage...)[0].Used
}

// metric returns the value of the first metric that begins so.
func (d *daemon) metric(t *testing.T, begin string) string {
	t.Helper()
	resp, err := http.Get("http://" + d.admin + "/metrics")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		if strings.HasPrefix(line, begin) {
			return strings.Fields(line)[len(strings.Fields(line))-1]
		}
	}
	return ""
}

// spend sends a request of the team red with a cost, and returns its status; 0 if the connection was closed before.
func spend(client *http.Client, url string, cost int64) int {
	req, err := http.NewRequest("GET", url, nil)
	if err != nil {
		return 0
	}
	req.Header.Set("X-Team", "red")
	req.Header.Set("X-Cost", strconv.FormatInt(cost, 10))
	resp, err := client.Do(req)
	if err != nil {
		return 0
	}
	defer resp.Body.Close()
	if _, err := io.Copy(io.Discard, resp.Body); err != nil {
		return 0
	}
	return resp.StatusCode
}

// TestRestartKeepsQuotas: what is admitted of a quota in memory by processes that replace each other, under
// load, is what one process would admit: neither more nor less, with a snapshot file and without.
func TestRestartKeepsQuotas(t *testing.T) {
	t.Parallel()
	for _, top := range []string{"", "snapshot_file: quotas.snapshot\n"} {
		t.Run(strings.TrimSpace(top), func(t *testing.T) {
			t.Parallel()
			d := startQuotas(t, top)
			var admitted, refused, requests atomic.Int64
			count := func(status int, cost int64) {
				switch requests.Add(1); status {
				case 200:
					admitted.Add(cost)
				case 429:
					refused.Add(1)
				default:
					t.Errorf("status %d", status)
				}
			}
			done := make(chan struct{})
			var wg sync.WaitGroup
			stop := sync.OnceFunc(func() { close(done); wg.Wait() })
			defer stop() // also where the test ends early: what clients would report then hides why
			for i := range 6 {
				transport := &http.Transport{DisableKeepAlives: i%2 == 1}
				client := &http.Client{Transport: transport, Timeout: servers.Patience}
				wg.Go(func() {
					defer transport.CloseIdleConnections()
					for n := int64(0); ; n++ {
						select {
						case <-done:
							return
						default:
							count(spend(client, "http://"+d.gateway+[]string{"/one", "/both"}[n%2], 1+n%3), 1+n%3)
						}
					}
				})
			}
			for i := range 3 {
				before := requests.Load()
				servers.Poll(t, "the clients are at it", func() bool { return requests.Load() >= before+300 })
				if i == 2 {
					break
				}
				d.restart(t)
				servers.Poll(t, "the process before ends", func() bool { return ended(d.pids[i]) })
			}
			// connections that are idle when the process is replaced
			idle := make([]*http.Client, 20)
			for i := range idle {
				transport := &http.Transport{}
				defer transport.CloseIdleConnections()
				idle[i] = &http.Client{Transport: transport, Timeout: servers.Patience}
				count(spend(idle[i], "http://"+d.gateway+"/one", 1), 1)
			}
			d.restart(t)
			// The rest is less than the clients send now, of both processes.
			most := monthly - d.used(t, "monthly") - 100_000
			count(spend(http.DefaultClient, "http://"+d.gateway+"/one", most), most)
			var old atomic.Int64
			for _, client := range idle {
				wg.Go(func() {
					for range 10 {
						if status := spend(client, "http://"+d.gateway+"/one", 9000); status != 0 {
							count(status, 9000)
						} else {
							old.Add(1) // the connection was closed before the request: nothing is charged
						}
					}
				})
			}
			servers.Poll(t, "the quota is used up", func() bool { return refused.Load() > 300 })
			stop()
			for admitted.Load() < monthly && !t.Failed() { // refused requests were larger than what is left
				count(spend(http.DefaultClient, "http://"+d.gateway+"/one", 1), 1)
			}
			count(spend(http.DefaultClient, "http://"+d.gateway+"/one", 1), 1)
			if got, used := admitted.Load(), d.used(t, "monthly"); got != monthly || used != monthly {
				t.Errorf("%d were admitted, and %d are used of %d", got, used, monthly)
			}
			t.Logf("%d requests, %d refused, %d connections closed before", requests.Load(), refused.Load(), old.Load())
			if strings.Contains(d.log(t), "not handed over") || strings.Contains(d.log(t), "not taken over") {
				t.Error(d.log(t))
			}
		})
	}
}

// TestRestartSettlesRequestsInFlight: the cost of a request that ends in the process that was replaced is
// charged in the new one. If the old process is killed, what it has charged stays.
func TestRestartSettlesRequestsInFlight(t *testing.T) {
	t.Parallel()
	d := startQuotas(t, "")
	begin := func() net.Conn {
		t.Helper()
		conn, err := net.Dial("tcp", d.gateway)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { conn.Close() })
		conn.SetDeadline(time.Now().Add(2 * servers.Patience))
		io.WriteString(conn, "POST /bytes HTTP/1.1\r\nHost: h\r\nX-Team: red\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n")
		return conn
	}
	ends, stays := begin(), begin()
	servers.Poll(t, "both are in flight", func() bool { return d.metric(t, `weir_limit_requests_total{limit="bytes",outcome="allowed"`) == "2" })
	d.restart(t)
	io.WriteString(ends, "4\r\ndefg\r\n0\r\n\r\n")
	if resp, err := http.ReadResponse(bufio.NewReader(ends), nil); err != nil || resp.StatusCode != http.StatusOK {
		t.Fatal(resp, err)
	}
	servers.Poll(t, "its bytes are charged in the new process", func() bool { return d.used(t, "bytes") == 7 })
	if err := syscall.Kill(d.pids[0], syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	servers.Poll(t, "the old process ends", func() bool { return ended(d.pids[0]) })
	if got := d.used(t, "bytes"); got != 7 {
		t.Errorf("%d are used after the old process was killed", got)
	}
	io.WriteString(stays, "0\r\n\r\n")
	if got := spend(http.DefaultClient, "http://"+d.gateway+"/one", 1); got != 200 {
		t.Errorf("the new process: %d", got)
	}
}

// TestRestartTwiceWithARequestInFlight: a process that was replaced soon after it had replaced another one stays
// until that one has ended, whose requests it decides about. It ended as soon as it had no connections of its own:
// then costs of the first process were lost, and what it admitted was counted nowhere else.
func TestRestartTwiceWithARequestInFlight(t *testing.T) {
	t.Parallel()
	d := startQuotas(t, "")
	begin := func(head string) net.Conn {
		t.Helper()
		conn, err := net.Dial("tcp", d.gateway)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { conn.Close() })
		conn.SetDeadline(time.Now().Add(2 * servers.Patience))
		io.WriteString(conn, head)
		return conn
	}
	end := func(conn net.Conn, tail string) int {
		t.Helper()
		io.WriteString(conn, tail)
		resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
		if err != nil {
			return 0
		}
		return resp.StatusCode
	}
	sends := begin("POST /bytes HTTP/1.1\r\nHost: h\r\nX-Team: red\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n")
	asks := begin("GET /one HTTP/1.1\r\nHost: h\r\nX-Team: red\r\n") // the first process has not got all of the header
	servers.Poll(t, "one is in flight", func() bool { return d.metric(t, `weir_limit_requests_total{limit="bytes",outcome="allowed"`) == "1" })
	d.restart(t)
	d.restart(t)
	if got := spend(http.DefaultClient, "http://"+d.gateway+"/one", monthly); got != 200 {
		t.Fatal(got)
	}
	servers.Poll(t, "the second process waits, or has ended", func() bool {
		return ended(d.pids[1]) || strings.Contains(d.log(t), "waiting for the process before")
	})
	if got := end(asks, "X-Cost: 1\r\n\r\n"); got != 429 && got != 0 { // a slow machine may have closed the connection
		t.Errorf("the first process admits more than the quota: %d", got)
	}
	if got := end(sends, "4\r\ndefg\r\n0\r\n\r\n"); got != 200 {
		t.Fatal(got)
	}
	servers.Poll(t, "its bytes are charged in the third process", func() bool { return d.used(t, "bytes") == 7 })
	for _, pid := range d.pids[:2] {
		servers.Poll(t, "the first two end", func() bool { return ended(pid) })
	}
}

// TestRestartToAKilledProcess: when the new process is killed while the old one still serves, requests on
// the connections of the old one are decided by the counts that it has.
func TestRestartToAKilledProcess(t *testing.T) {
	t.Parallel()
	d := startQuotas(t, "")
	conn, err := net.Dial("tcp", d.gateway)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	conn.SetDeadline(time.Now().Add(2 * servers.Patience))
	in := bufio.NewReader(conn)
	ask := func(cost int64) int {
		fmt.Fprintf(conn, "GET /one HTTP/1.1\r\nHost: h\r\nX-Team: red\r\nX-Cost: %d\r\n\r\n", cost)
		resp, err := http.ReadResponse(in, nil)
		if err != nil {
			return 0
		}
		io.Copy(io.Discard, resp.Body)
		return resp.StatusCode
	}
	if got := ask(monthly - 10); got != 200 {
		t.Fatal(got)
	}
	d.restart(t)
	if err := syscall.Kill(d.pids[1], syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	servers.Poll(t, "the new process ends", func() bool { return ended(d.pids[1]) })
	// A slow machine may have closed the idle connection.
	if got := ask(11); got != 429 && got != 0 {
		t.Errorf("more than is left: %d", got)
	}
}
