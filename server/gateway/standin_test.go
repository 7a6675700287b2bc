package gateway_test

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
)

const stale = `
trusted_proxies: [127.0.0.1]
limits:
  few: { key: client.ip, token_bucket: { rate: 1/h, burst: 1 } }
  keys: { key: header.x-api-key, on_missing: skip, token_bucket: { rate: 1000/h, burst: 1000 } }
upstreams:
  up: { url: "URL" }
  spare: { url: "SPARE" }
routes:
  - { match: /both, upstream: up, limits: [few], refused: { stale: 10m, upstream: spare, status: 503, body: busy } }
  - { match: /spare, upstream: up, limits: [few], refused: { upstream: spare, status: 503, body: busy } }
  - { match: /failed/other, upstream: up, limits: [few], failed: { upstream: spare, body: sorry } }
  - { match: /failed/status, upstream: up, failed: { status: 500 } }
  - { match: /failed/, upstream: up, failed: { stale: 10m, body: sorry } }
  - { match: /, upstream: up, limits: [few, keys], refused: { stale: 10m } }
`

// shop is an upstream whose pages depend on the query. It counts requests.
type shop struct {
	n    atomic.Int64
	down atomic.Bool
}

func (s *shop) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if s.down.Load() {
		panic(http.ErrAbortHandler)
	}
	for _, f := range r.URL.Query()["set"] {
		name, value, _ := strings.Cut(f, ":")
		w.Header().Add(name, value)
	}
	switch r.URL.Query().Get("status") {
	case "404":
		w.WriteHeader(404)
	case "large":
		w.Write(make([]byte, 2<<20))
	case "cut":
		w.Header().Set("Content-Length", "100")
	}
	fmt.Fprintf(w, "page %d", s.n.Add(1))
}

func startShop(t *testing.T) (up, spare *shop, front *httptest.Server) {
	up, spare = &shop{}, &shop{}
	second := httptest.NewServer(spare)
	t.Cleanup(second.Close)
	_, front, _ = start(t, strings.ReplaceAll(stale, "SPARE", second.URL), up)
	return up, spare, front
}

// TestStale: refused requests get the last good response to the same request, marked as stale.
func TestStale(t *testing.T) {
	_, _, front := startShop(t)
	if resp, body := get(t, front.URL+"/a?b=1&set=Age:7", "X-Forwarded-For", "192.0.2.1"); resp.StatusCode != 200 || body != "page 1" || resp.Header.Get("Cache-Status") != "" {
		t.Fatal(resp, body)
	}
	for _, user := range []string{"192.0.2.1", "192.0.2.1"} {
		resp, body := get(t, front.URL+"/a?b=1&set=Age:7", "X-Forwarded-For", user)
		if resp.StatusCode != 200 || body != "page 1" || resp.Header.Get("Cache-Status") != "weir; hit; detail=refused" || resp.Header.Get("Age") < "7" ||
			resp.Header.Get("Retry-After") != "" || resp.Header.Get("RateLimit") == "" || resp.ContentLength != 6 {
			t.Error(resp, body)
		}
	}
	head, err := http.NewRequestWithContext(t.Context(), "HEAD", front.URL+"/a?b=1&set=Age:7", nil)
	if err != nil {
		t.Fatal(err)
	}
	head.Header.Set("X-Forwarded-For", "192.0.2.1")
	if resp, body := do(t, head); resp.StatusCode != 200 || body != "" || resp.ContentLength != 6 {
		t.Error(resp)
	}
	for _, other := range []string{"/a?b=2", "/A?b=1", "/a", "/a?b=1&set=Age:8"} {
		if resp, _ := get(t, front.URL+other, "X-Forwarded-For", "192.0.2.1"); resp.StatusCode != 429 || resp.Header.Get("Retry-After") == "" {
			t.Errorf("%s: %d", other, resp.StatusCode)
		}
	}
	post, err := http.NewRequestWithContext(t.Context(), "POST", front.URL+"/a?b=1&set=Age:7", strings.NewReader("x"))
	if err != nil {
		t.Fatal(err)
	}
	post.Header.Set("X-Forwarded-For", "192.0.2.1")
	if resp, _ := do(t, post); resp.StatusCode != 429 {
		t.Error(resp)
	}
}

// TestPrivateResponsesAreNotKept: responses for one client alone, or with no-store, are never given to another.
func TestPrivateResponsesAreNotKept(t *testing.T) {
	_, _, front := startShop(t)
	for i, c := range []struct {
		query string
		field []string
		kept  bool
	}{
		{"set=X:1", nil, true},
		{"set=Cache-Control:max-age=60", nil, true},
		{"set=Set-Cookie:a=b", nil, false},
		{"set=Cache-Control:private", nil, false},
		{"set=Cache-Control:max-age=5,+No-Store", nil, false},
		{"set=Cache-Control:no-cache=\"x\"", nil, false},
		{"set=Cache-Control:must-revalidate", nil, false},
		{"set=Vary:Cookie", nil, false},
		{"set=Vary:*", nil, false},
		{"set=Vary:accept-encoding", nil, true},
		{"set=Vary:Accept-Encoding,+User-Agent", nil, false},
		{"set=Content-Type:text/event-stream", nil, false},
		{"status=404", nil, false},
		{"status=large", nil, false},
		{"status=cut", nil, false},
		{"", []string{"Authorization", "Basic x"}, false},
		{"set=Cache-Control:public", []string{"Authorization", "Basic x"}, false},
		{"", []string{"Cookie", "a=b"}, false},
		{"set=Cache-Control:public", []string{"Cookie", "a=b"}, true},
		{"", []string{"Range", "bytes=0-1"}, false},
		{"", []string{"X-Api-Key", "a"}, false}, // a limit has it in its key
		{"set=Cache-Control:public", []string{"X-Api-Key", "a"}, true},
	} {
		user := fmt.Sprintf("192.0.2.%d", i)
		target := front.URL + "/p" + user + "?" + c.query
		r, err := http.NewRequestWithContext(t.Context(), "GET", target, nil)
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("X-Forwarded-For", user)
		if c.field != nil {
			r.Header.Set(c.field[0], c.field[1])
		}
		if resp, err := http.DefaultClient.Do(r); err == nil { // one is cut off
			io.Copy(io.Discard, resp.Body)
			resp.Body.Close()
		}
		want := 429
		if c.kept {
			want = 200
		}
		if resp, _ := get(t, target, "X-Forwarded-For", user); resp.StatusCode != want {
			t.Errorf("%s %v: %d", c.query, c.field, resp.StatusCode)
		}
	}
}

// TestStaleCodings: a compressed body goes only to clients that accept its coding.
func TestStaleCodings(t *testing.T) {
	_, _, front := startShop(t)
	target := front.URL + "/z?set=Content-Encoding:br&set=Vary:Accept-Encoding"
	get(t, target, "X-Forwarded-For", "192.0.2.1", "Accept-Encoding", "br")
	for accept, want := range map[string]int{"gzip, BR": 200, "br;q=0.5": 200, "br;q=0": 429, "gzip": 429, "": 429} {
		if resp, _ := get(t, target, "X-Forwarded-For", "192.0.2.1", "Accept-Encoding", accept); resp.StatusCode != want {
			t.Errorf("%q: %d", accept, resp.StatusCode)
		}
	}
}

// TestAnotherUpstream: it responds to refused requests, without a limit. If it fails, they get the
// usual response.
func TestAnotherUpstream(t *testing.T) {
	up, spare, front := startShop(t)
	spare.n.Store(100)
	for i, want := range []string{"page 1", "page 101", "page 102"} {
		if resp, body := get(t, front.URL+"/spare", "X-Forwarded-For", "192.0.2.1"); resp.StatusCode != 200 || body != want || resp.Header.Get("Retry-After") != "" || resp.Header.Get("RateLimit") == "" {
			t.Errorf("%d: %v %s", i, resp, body)
		}
	}
	post, err := http.NewRequestWithContext(t.Context(), "POST", front.URL+"/spare", strings.NewReader("with a body"))
	if err != nil {
		t.Fatal(err)
	}
	post.Header.Set("X-Forwarded-For", "192.0.2.1")
	if resp, body := do(t, post); resp.StatusCode != 200 || body != "page 103" {
		t.Error(resp, body)
	}
	spare.down.Store(true)
	if resp, body := get(t, front.URL+"/spare", "X-Forwarded-For", "192.0.2.1"); resp.StatusCode != 503 || body != "busy" || resp.Header.Get("Retry-After") == "" {
		t.Error(resp, body)
	}
	// The last good response comes first.
	spare.down.Store(false)
	get(t, front.URL+"/both", "X-Forwarded-For", "192.0.2.2")
	if _, body := get(t, front.URL+"/both", "X-Forwarded-For", "192.0.2.2"); body != "page 2" {
		t.Error(body)
	}
	if _, body := get(t, front.URL+"/both?other", "X-Forwarded-For", "192.0.2.2"); body != "page 104" {
		t.Error(body)
	}
	if up.n.Load() != 2 {
		t.Errorf("the upstream answered %d", up.n.Load())
	}
}

// TestFailed: the responses to requests whose upstream failed.
func TestFailed(t *testing.T) {
	up, spare, front := startShop(t)
	spare.n.Store(100)
	get(t, front.URL+"/failed/a")
	up.down.Store(true)
	for _, c := range []struct {
		path, body string
		status     int
	}{
		{"/failed/a", "page 1", 200},
		{"/failed/b", "sorry", 502},
		{"/failed/status", "the upstream cannot be reached\n", 500},
		{"/failed/other", "page 101", 200},
	} {
		resp, body := get(t, front.URL+c.path)
		if resp.StatusCode != c.status || body != c.body {
			t.Errorf("%s: %d %q", c.path, resp.StatusCode, body)
		}
		if c.path == "/failed/a" && resp.Header.Get("Cache-Status") != "weir; hit; detail=failed" {
			t.Error(resp.Header)
		}
	}
	spare.down.Store(true)
	if resp, body := get(t, front.URL+"/failed/other", "X-Forwarded-For", "192.0.2.1"); resp.StatusCode != 502 || body != "sorry" {
		t.Error(resp, body)
	}
	// A limit still refuses.
	if resp, _ := get(t, front.URL+"/failed/other", "X-Forwarded-For", "192.0.2.1"); resp.StatusCode != 429 {
		t.Error(resp)
	}
}

// TestAllTargetsDown: with all_down: refuse, no request waits for an upstream whose targets are all
// down.
func TestAllTargetsDown(t *testing.T) {
	up := &shop{}
	up.down.Store(true)
	g, front, _ := start(t, `
upstreams: { up: { url: "URL", health: { failures: 2, down_for: 1h, all_down: refuse } } }
routes: [{ match: /, upstream: up, failed: { body: closed } }]
`, up)
	for i, want := range []int{502, 502, 503, 503} {
		if resp, body := get(t, front.URL); resp.StatusCode != want || body != "closed" {
			t.Errorf("%d: %d %s", i, resp.StatusCode, body)
		}
	}
	if got := g.Upstreams()[0].Targets[0]; got.Requests != 2 || got.Failures != 2 || got.Up {
		t.Errorf("%+v", got)
	}
	// A change of the policy keeps them down, and one to all_down: try sends a request again.
	file := parse(t, strings.Replace(stale, "SPARE", "URL", 1), g.File().Policy.Upstreams[0].URL)
	if err := g.Update(file); err != nil {
		t.Fatal(err)
	}
	up.down.Store(false)
	if resp, body := get(t, front.URL); resp.StatusCode != 200 {
		t.Error(resp, body)
	}
	for _, u := range g.Upstreams() {
		if !u.Targets[0].Up {
			t.Errorf("%+v", u)
		}
	}
}

// TestUpdateUpstreams: requests in flight end where they are, while targets come and go.
func TestUpdateUpstreams(t *testing.T) {
	began, end := make(chan struct{}), make(chan struct{})
	slow := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		close(began)
		<-end
		fmt.Fprint(w, "slow")
	}))
	defer slow.Close()
	g, front, _ := start(t, "upstreams: { up: { url: \""+slow.URL+"\" } }\nroutes: [{ match: /, upstream: up }]\n", &shop{})
	answer := make(chan string, 1)
	go func() {
		_, body := get(t, front.URL)
		answer <- body
	}()
	<-began
	other := httptest.NewServer(&shop{})
	defer other.Close()
	for _, text := range []string{
		"upstreams: { up: { targets: [\"" + other.URL + "\"], timeouts: { response: 1s } } }\nroutes: [{ match: /, upstream: up }]\n",
		"upstreams: { new: { url: \"" + other.URL + "\" } }\nroutes: [{ match: /, upstream: new }]\n",
	} {
		if err := g.Update(parse(t, text, "")); err != nil {
			t.Fatal(err)
		}
		if resp, body := get(t, front.URL); resp.StatusCode != 200 || !strings.HasPrefix(body, "page ") {
			t.Error(resp, body)
		}
	}
	close(end)
	if got := <-answer; got != "slow" {
		t.Error(got)
	}
}
