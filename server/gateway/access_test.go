package gateway_test

import (
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/weirflow/weir/server/accesslog"
	"github.com/weirflow/weir/sim"
)

// logged has a gateway write an access log. The function that it returns ends the log and returns
// its lines.
func logged(t *testing.T, set func(*accesslog.Log) *accesslog.Log, format string) func() []string {
	t.Helper()
	var out bytes.Buffer
	l, err := accesslog.Open(accesslog.Options{File: "stdout", Format: format, Stdout: &out})
	if err != nil {
		t.Fatal(err)
	}
	set(l)
	return func() []string {
		set(nil)
		l.Close() // a line is written before the response has ended, so all lines are there
		return strings.Split(strings.TrimSuffix(out.String(), "\n"), "\n")
	}
}

const accessPolicy = `
limits:
  door: { token_bucket: { rate: 1/h, burst: 2 } }
upstreams: { up: { url: "URL" } }
routes:
  - { match: /door, upstream: up, limits: [door] }
  - { match: POST /small, upstream: up, max_body: 10 }
  - { match: /up, upstream: up }
`

func TestAccessLog(t *testing.T) {
	g, srv, _ := start(t, accessPolicy, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Query().Has("early") {
			w.WriteHeader(http.StatusEarlyHints)
		}
		io.Copy(io.Discard, r.Body)
		io.WriteString(w, "hello")
	}))
	lines := logged(t, g.SetAccessLog, "json")
	client := srv.Client()
	for _, path := range []string{"/door", "/door?a", "/door?b", "/none", "/up?early"} {
		resp, err := client.Get(srv.URL + path)
		if err != nil {
			t.Fatal(err)
		}
		io.Copy(io.Discard, resp.Body)
		resp.Body.Close()
	}
	resp, err := client.Post(srv.URL+"/small", "text/plain", strings.NewReader("12345678901"))
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	srv.Close() // all has ended
	all := lines()
	want := []struct {
		status          float64
		decision, limit string
		upstream        any
		bytes           float64
	}{
		{200, "allow", "", "up", 5}, {200, "allow", "", "up", 5}, {429, "deny", "door", nil, 18}, {404, "no route", "", nil, 30}, {200, "allow", "", "up", 5}, {413, "too_large", "", nil, 38},
	}
	if len(all) != len(want) {
		t.Fatalf("%d lines: %q", len(all), all)
	}
	for i, w := range want {
		var o map[string]any
		if err := json.Unmarshal([]byte(all[i]), &o); err != nil {
			t.Fatal(err)
		}
		limit, _ := o["limit"].(string)
		if o["status"] != w.status || o["decision"] != w.decision || limit != w.limit || o["upstream"] != w.upstream || o["bytes"] != w.bytes || o["client"] != "127.0.0.1" {
			t.Errorf("%s, want %+v", all[i], w)
		}
		if _, timed := o["upstream_time"]; timed != (w.upstream != nil) {
			t.Errorf("%s", all[i])
		}
	}
}

// TestReplayReadsWhatIsServed: in each format, the replay reads the gateway's lines as the requests
// that came.
func TestReplayReadsWhatIsServed(t *testing.T) {
	for _, format := range []string{"common", "combined", "json"} {
		g, srv, _ := start(t, accessPolicy, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {}))
		lines := logged(t, g.SetAccessLog, format)
		before := time.Now().Truncate(time.Second)
		targets := []string{"/up", "/up?a=b%20c", "/up?q=%22x%22%0A", "/up//./x", "/door"}
		for _, target := range targets {
			req, _ := http.NewRequest(http.MethodGet, srv.URL+target, nil)
			req.Header.Set("User-Agent", "a \"b\" \\ c\t")
			resp, err := srv.Client().Do(req)
			if err != nil {
				t.Fatal(err)
			}
			resp.Body.Close()
		}
		srv.Close()
		all := lines()
		if len(all) != len(targets) {
			t.Fatalf("%s: %q", format, all)
		}
		for i, line := range all {
			e, err := sim.ParseLine(line)
			if err != nil || e.Client != "127.0.0.1" || e.Method != http.MethodGet || e.Target != targets[i] || e.Time < before.UnixNano() || e.Time > time.Now().UnixNano() {
				t.Errorf("%s: %s: %+v, %v", format, line, e, err)
			}
		}
	}
}

// TestBodiesThatAreTooLarge: a request that announces a body that is too large is charged nothing,
// and never reaches the upstream. One of unknown length is cut off.
func TestBodiesThatAreTooLarge(t *testing.T) {
	whole := make(chan bool, 10)
	g, srv, _ := start(t, `
listen: { bounds: { max_body: 4 } }
limits: { door: { token_bucket: { rate: 1/h, burst: 2 } } }
upstreams: { up: { url: "URL" } }
routes:
  - { match: /any, upstream: up, max_body: none }
  - { match: /ten, upstream: up, limits: [door], max_body: 10 }
  - { match: /, upstream: up }
`, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, err := io.Copy(io.Discard, r.Body)
		whole <- err == nil
	}))
	post := func(path string, n int, hasLength bool) int {
		var body io.Reader = strings.NewReader(strings.Repeat("x", n))
		if !hasLength {
			body = io.MultiReader(body)
		}
		resp, err := srv.Client().Post(srv.URL+path, "text/plain", body)
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		return resp.StatusCode
	}
	for range 5 {
		if got := post("/ten", 11, true); got != 413 {
			t.Errorf("%d", got)
		}
	}
	if len(whole) > 0 {
		t.Error("it reached the upstream")
	}
	for _, c := range []struct {
		path      string
		n         int
		hasLength bool
		want      int
	}{
		{"/ten", 10, true, 200}, {"/ten", 10, false, 200}, {"/ten", 1, true, 429}, // the two that fit are charged, and no other
		{"/any", 1000, true, 200}, {"/any", 1000, false, 200}, {"/", 4, false, 200}, {"/", 5, true, 413},
	} {
		if got := post(c.path, c.n, c.hasLength); got != c.want {
			t.Errorf("%+v: %d", c, got)
		}
	}
	for len(whole) > 0 {
		if !<-whole {
			t.Error("one that fits was cut off")
		}
	}
	if got := post("/", 5, false); got != 413 {
		t.Errorf("%d", got)
	}
	if n := g.Counts(); n.TooLarge != 7 || n.UpstreamFailed != 0 {
		t.Errorf("%+v", n)
	}
}

// TestAccessLogChangesWhileARequestWaits: the line of a request that waits goes to the log that is in force when it has
// ended: the one before is closed then, and drops it.
func TestAccessLogChangesWhileARequestWaits(t *testing.T) {
	g, srv, _ := start(t, `
limits: { paced: { leaky_bucket: { rate: 4/s, queue: 3 } } }
upstreams: { up: { url: "URL" } }
routes: [{ match: /, upstream: up, limits: [paced] }]
`, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {}))
	before := logged(t, g.SetAccessLog, "json")
	ended := make(chan int, 2)
	for range 2 {
		go func() {
			resp, err := srv.Client().Get(srv.URL + "/")
			if err != nil {
				ended <- 0
				return
			}
			resp.Body.Close()
			ended <- resp.StatusCode
		}()
	}
	eventually(t, "one waits", func() bool { return g.Queued() == 1 })
	if got := <-ended; got != 200 {
		t.Fatal(got)
	}
	after := logged(t, g.SetAccessLog, "json")
	if got := <-ended; got != 200 {
		t.Fatal(got)
	}
	srv.Close() // all has ended
	if first, second := before(), after(); len(first)+len(second) != 2 {
		t.Errorf("%q before, %q after", first, second)
	}
}
