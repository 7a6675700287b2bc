package traffic

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os/exec"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/coder/websocket"

	"github.com/weirflow/weir/proof/servers"
)

// named is an nginx that responds with its name, and listens on another address too, if there is
// one.
func named(name, also string) string {
	if also != "" {
		also = "listen " + also + ";"
	}
	return servers.HTTP(`
	server {
		listen {{.Addr}};
		` + also + `
		default_type text/plain;
		location / { return 200 "` + name + `\n"; }
	}`)
}

// TestUpstreamKilledAndBack: one of two nginx is killed while clients send requests all the time,
// and started again. No client notices: all requests go to the other one meanwhile, and to both
// again afterwards. Then both are killed and restarted.
func TestUpstreamKilledAndBack(t *testing.T) {
	dirs := [2]string{t.TempDir(), t.TempDir()}
	var up [2]*servers.Server
	var addrs [2]string
	for i := range up {
		up[i] = startNginx(t, dirs[i], named(fmt.Sprint("nginx ", i), ""))
		addrs[i] = up[i].Addr
	}
	g := startWeir(t, t.TempDir(), `
limits: { all: { token_bucket: { rate: 1000000/s, burst: 1000000 } } }
upstreams:
  up:
    targets: ["http://`+addrs[0]+`", "http://`+addrs[1]+`"]
    health: { path: /, every: 200ms, down_after: 2, up_after: 2, failures: 3, down_for: 1s }
routes: [{ match: /, upstream: up, limits: [all], failed: { body: "both are gone" } }]
`)
	var asked, failed [2]atomic.Int64 // requests by the server that responded, and failures
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	defer wg.Wait()
	defer cancel()
	for range 8 {
		wg.Go(func() {
			for ctx.Err() == nil {
				resp, err := http.Get("http://" + g.Gateway + "/")
				if err != nil {
					failed[1].Add(1)
					continue
				}
				body, err := io.ReadAll(resp.Body)
				resp.Body.Close()
				switch {
				case err == nil && resp.StatusCode == 200 && string(body) == "nginx 0\n":
					asked[0].Add(1)
				case err == nil && resp.StatusCode == 200 && string(body) == "nginx 1\n":
					asked[1].Add(1)
				case err == nil && resp.StatusCode >= 500 && string(body) == "both are gone":
					failed[0].Add(1)
				default:
					failed[1].Add(1)
					t.Errorf("%d %q %v", resp.StatusCode, body, err)
				}
			}
		})
	}
	more := func(which int) {
		t.Helper()
		before := asked[which].Load()
		servers.Poll(t, fmt.Sprint("answers of ", which), func() bool { return asked[which].Load() > before+50 })
	}
	is := func(which int) float64 {
		return g.Samples(t)[`weir_upstream_up{target="`+addrs[which]+`",upstream="up"}`]
	}
	restart := func(which int) {
		t.Helper()
		up[which] = startNginx(t, t.TempDir(), named(fmt.Sprint("nginx ", which), addrs[which]))
		servers.Poll(t, "it is in again", func() bool { return is(which) == 1 })
		more(which)
	}
	more(0)
	more(1)

	up[0].Kill()
	servers.Poll(t, "the killed one is out", func() bool { return is(0) == 0 })
	more(1)
	restart(0)
	if failed[0].Load() != 0 || failed[1].Load() != 0 {
		t.Errorf("clients noticed that one was killed: %d failures as the policy has them, %d others", failed[0].Load(), failed[1].Load())
	}
	m := g.Samples(t)
	if m[`weir_upstream_retries_total{outcome="sent",upstream="up"}`] == 0 || m[`weir_upstream_failures_total{target="`+addrs[1]+`",upstream="up"}`] != 0 {
		t.Errorf("%v", m)
	}
	t.Logf("%d answers of one and %d of the other, %v requests were sent again", asked[0].Load(), asked[1].Load(), m[`weir_upstream_retries_total{outcome="sent",upstream="up"}`])

	up[0].Kill()
	up[1].Kill()
	servers.Poll(t, "a client learns that both upstreams are down", func() bool { return failed[0].Load() > 100 })
	restart(1)
	restart(0)
	cancel()
	wg.Wait()
	if failed[1].Load() != 0 {
		t.Errorf("%d requests failed otherwise than the policy says", failed[1].Load())
	}
	// Limits were charged once for each request, however often it was sent.
	m = g.Samples(t)
	if all := float64(asked[0].Load() + asked[1].Load() + failed[0].Load()); m[`weir_limit_requests_total{limit="all",outcome="allowed"}`] < all || m[`weir_limit_requests_total{limit="all",outcome="allowed"}`] > all+8 {
		t.Errorf("%v requests, and %v charged", all, m[`weir_limit_requests_total{limit="all",outcome="allowed"}`])
	}
	var outs []string
	for _, l := range g.logged(t, "upstream target is down") {
		outs = append(outs, fmt.Sprint(l["target"]))
	}
	if text := strings.Join(outs, " "); !strings.Contains(text, addrs[0]) || !strings.Contains(text, addrs[1]) {
		t.Errorf("the log does not say who was out: %s", text)
	}
}

// TestWebSocketClient: messages of all kinds and sizes, pings, and closing with a reason, between a
// client and a server of another project.
func TestWebSocketClient(t *testing.T) {
	closed := make(chan websocket.StatusCode, 1)
	up := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		c, err := websocket.Accept(w, r, &websocket.AcceptOptions{Subprotocols: []string{"shop"}, CompressionMode: websocket.CompressionContextTakeover})
		if err != nil {
			t.Error(err)
			return
		}
		c.SetReadLimit(2 << 20)
		for {
			kind, message, err := c.Read(r.Context())
			if err != nil {
				closed <- websocket.CloseStatus(err)
				return
			}
			if err := c.Write(r.Context(), kind, message); err != nil {
				t.Error(err)
			}
		}
	}))
	defer up.Close()
	g := startWeir(t, t.TempDir(), `
limits: { open: { concurrency: { limit: 1 } } }
upstreams: { up: { url: "`+up.URL+`" } }
routes: [{ match: /, upstream: up, limits: [open] }]
`)
	ctx, cancel := context.WithTimeout(t.Context(), servers.Patience)
	defer cancel()
	c, resp, err := websocket.Dial(ctx, "ws://"+g.Gateway+"/ws", &websocket.DialOptions{Subprotocols: []string{"shop"}, CompressionMode: websocket.CompressionContextTakeover})
	if err != nil || c.Subprotocol() != "shop" {
		t.Fatal(resp, err)
	}
	defer c.CloseNow()
	c.SetReadLimit(2 << 20)
	for _, size := range []int{0, 1, 125, 126, 65535, 65536, 1 << 20} {
		sent := strings.Repeat("x", size)
		if err := c.Write(ctx, websocket.MessageText, []byte(sent)); err != nil {
			t.Fatal(err)
		}
		if kind, got, err := c.Read(ctx); kind != websocket.MessageText || string(got) != sent || err != nil {
			t.Fatalf("%d bytes: %v, %d bytes, %v", size, kind, len(got), err)
		}
	}
	pong := make(chan error, 1)
	reading := c.CloseRead(ctx)
	go func() { pong <- c.Ping(reading) }()
	if err := <-pong; err != nil {
		t.Error(err)
	}
	if _, second, err := websocket.Dial(ctx, "ws://"+g.Gateway+"/ws", nil); err == nil || second == nil || second.StatusCode != http.StatusTooManyRequests {
		t.Errorf("the place is not held while the connection is open: %v %v", second, err)
	}
	if err := c.Close(websocket.StatusGoingAway, "enough"); err != nil {
		t.Log(err) // the other side may be faster
	}
	if got := <-closed; got != websocket.StatusGoingAway {
		t.Errorf("the server got %v", got)
	}
	servers.Poll(t, "the place is free", func() bool {
		return g.Samples(t)[`weir_upstream_in_flight{target="`+strings.TrimPrefix(up.URL, "http://")+`",upstream="up"}`] == 0
	})
}

// TestEventsWithCurl: each event arrives before the next one is made.
func TestEventsWithCurl(t *testing.T) {
	seen := make(chan string)
	up := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		for i := range 3 {
			fmt.Fprintf(w, "data: %d\n\n", i)
			w.(http.Flusher).Flush()
			if got := <-seen; got != fmt.Sprintf("data: %d", i) {
				t.Errorf("%q", got)
			}
		}
	}))
	defer up.Close()
	g := startWeir(t, t.TempDir(), "upstreams: { up: { url: \""+up.URL+"\" } }\nroutes: [{ match: /, upstream: up }]\n")
	ctx, cancel := context.WithTimeout(t.Context(), servers.Patience)
	defer cancel()
	cmd := exec.CommandContext(ctx, program(t, "curl"), "-sN", "http://"+g.Gateway+"/")
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewScanner(out)
	for lines.Scan() {
		if lines.Text() != "" {
			seen <- lines.Text()
		}
	}
	if err := cmd.Wait(); err != nil {
		t.Error(err)
	}
}
