package gateway_test

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"
)

// queuePlace is an upstream that responds when the test says so. It announces each request by its
// query.
type queuePlace struct {
	arrived chan string
	release chan struct{}
}

func newHolding() *queuePlace {
	return &queuePlace{arrived: make(chan string, 100), release: make(chan struct{})}
}

func (h *queuePlace) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.URL.Query().Has("at-once") {
		return
	}
	w.WriteHeader(http.StatusOK)
	http.NewResponseController(w).Flush() // the response begins, and does not end
	h.arrived <- r.URL.RawQuery
	select {
	case <-h.release:
	case <-r.Context().Done():
	}
	io.WriteString(w, "done")
}

const nginxLike = `
limits:
  conns: { key: query.who, concurrency: { limit: 2 }, log: error, status: 509 }
  one: { key: client.ip, nginx_bucket: { rate: 1/m, queue: 0 }, log: warn }
  dry: { key: client.ip, nginx_bucket: { rate: 1/m }, shadow: true, log: notice }
upstreams: { up: { url: "URL" } }
routes:
  - { match: /conns, upstream: up, limits: [conns] }
  - { match: /one, upstream: up, limits: [one, conns], refused: { status: 503 } }
  - { match: /dry, upstream: up, limits: [dry] }
`

// TestPlacesInAGateway: a request keeps its place until the response has ended or the client has
// left. Refused requests get the limit's own status.
func TestPlacesInAGateway(t *testing.T) {
	up := newHolding()
	g, front, log := start(t, nginxLike, up)
	var wg sync.WaitGroup
	hold := func() {
		wg.Go(func() { get(t, front.URL+"/conns?who=a") })
		<-up.arrived
	}
	hold()
	hold()
	if resp, _ := get(t, front.URL+"/conns?who=a&at-once"); resp.StatusCode != 509 {
		t.Errorf("a third: %s", resp.Status)
	}
	if resp, _ := get(t, front.URL+"/conns?who=b&at-once"); resp.StatusCode != 200 {
		t.Errorf("another key: %s", resp.Status)
	}
	if n := g.Engine().Counts()[0]; n.Held != 2 || n.Keys.Keys != 1 {
		t.Errorf("%+v", n)
	}
	close(up.release)
	wg.Wait()
	if resp, _ := get(t, front.URL+"/conns?who=a&at-once"); resp.StatusCode != 200 {
		t.Errorf("after they have ended: %s", resp.Status)
	}
	if !strings.Contains(log.String(), `level=ERROR msg="limiting connections by zone \"conns\"" limit=conns`) {
		t.Errorf("%s", log)
	}
}

// TestClientLeavesItsPlace: if a client disconnects, its place is free again.
func TestClientLeavesItsPlace(t *testing.T) {
	up := newHolding()
	g, front, _ := start(t, nginxLike, up)
	client := front.Client()
	resp, err := client.Get(front.URL + "/conns?who=a")
	if err != nil {
		t.Fatal(err)
	}
	<-up.arrived
	if n := g.Engine().Counts()[0]; n.Held != 1 {
		t.Errorf("%+v", n)
	}
	resp.Body.Close()
	client.CloseIdleConnections()
	ticker := time.NewTicker(time.Millisecond)
	defer ticker.Stop()
	for g.Engine().Counts()[0].Held != 0 {
		select {
		case <-ticker.C:
		case <-t.Context().Done():
			t.Fatal("the place is still held")
		}
	}
}

// TestStreamsAreCountedEach: each request on one HTTP/2 connection takes a place.
func TestStreamsAreCountedEach(t *testing.T) {
	up := newHolding()
	g, _, _ := start(t, nginxLike, up)
	front := httptest.NewUnstartedServer(g)
	front.EnableHTTP2 = true
	front.StartTLS()
	defer front.Close()
	defer close(up.release)
	ask := func() *http.Response {
		resp, err := front.Client().Get(front.URL + "/conns?who=a")
		if err != nil {
			t.Fatal(err)
		}
		if resp.ProtoMajor != 2 {
			t.Fatal(resp.Proto)
		}
		return resp
	}
	for i, want := range []int{200, 200, 509, 509} {
		if resp := ask(); resp.StatusCode != want {
			t.Errorf("stream %d: %s", i, resp.Status)
		}
	}
}

// TestLinesOfTheLog: excess and zone in nginx's words, at the level that the limit sets. A shadow
// logs a dry run.
func TestLinesOfTheLog(t *testing.T) {
	_, front, log := start(t, nginxLike, newHolding())
	for i, want := range []int{200, 503, 503} {
		if resp, _ := get(t, front.URL+"/one?at-once"); resp.StatusCode != want {
			t.Errorf("request %d: %s", i, resp.Status)
		}
	}
	for range 2 {
		if resp, _ := get(t, front.URL+"/dry?at-once"); resp.StatusCode != 200 {
			t.Errorf("%s", resp.Status)
		}
	}
	for _, line := range []string{
		`level=WARN msg="limiting requests, excess: `, ` by zone \"one\"" limit=one`,
		`level=INFO+2 msg="limiting requests, dry run, excess: `, ` by zone \"dry\"" limit=dry`,
	} {
		if !strings.Contains(log.String(), line) {
			t.Errorf("%s is not in\n%s", line, log)
		}
	}
	if strings.Contains(log.String(), "127.0.0.1") {
		t.Errorf("an address is in the log:\n%s", log)
	}
}

// TestMissingKeyIsRefused: on_missing: deny refuses with the status of a request over the limit. Waiting
// does not help, so there is no Retry-After.
func TestMissingKeyIsRefused(t *testing.T) {
	for status, refused := range map[int]string{http.StatusTooManyRequests: "", http.StatusUnauthorized: "    refused: { status: 401 }\n"} {
		_, front, _ := start(t, `
limits:
  keys: { key: header.x-api-key, on_missing: deny, token_bucket: { rate: 1/h, burst: 1 } }
upstreams:
  app: { url: "URL" }
routes:
  - match: /
    upstream: app
    limits: [keys]
`+refused, echo)
		if resp, _ := get(t, front.URL); resp.StatusCode != status || resp.Header.Get("Retry-After") != "" {
			t.Errorf("without a key: %d, Retry-After %q; want %d and none", resp.StatusCode, resp.Header.Get("Retry-After"), status)
		}
		get(t, front.URL, "X-Api-Key", "a")
		if resp, _ := get(t, front.URL, "X-Api-Key", "a"); resp.StatusCode != status || resp.Header.Get("Retry-After") == "" {
			t.Errorf("over the limit: %d, Retry-After %q; want %d and some", resp.StatusCode, resp.Header.Get("Retry-After"), status)
		}
	}
}
