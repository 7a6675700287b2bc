package gateway_test

import (
	"bytes"
	"compress/gzip"
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

const tokens = `
limits:
  tokens:
    key: body.model
    token_bucket: { rate: 1/h, burst: 1000 }
    cost: { before: body.max_tokens, default: 200, after: openai }
  seen:
    key: body.model
    token_bucket: { rate: 1/h, burst: 1000 }
    cost: { before: body.max_tokens, default: 200, after: anthropic, if_unknown: seen }
  zero:
    key: body.model
    token_bucket: { rate: 1/h, burst: 1000 }
    cost: { before: body.max_tokens, default: 200, after: gemini, if_unknown: zero, count_failed: true }
  head:
    key: body.model
    token_bucket: { rate: 1/h, burst: 1000 }
    cost: { before: 100, after: [{ header: x-cost, weight: 2 }, { trailer: x-more }] }
  checked:
    key: body.model
    token_bucket: { rate: 1/h, burst: 100 }
    cost: { before: 0, after: openai, block_in_debt: true }
  dry:
    key: body.model
    shadow: true
    token_bucket: { rate: 1/h, burst: 1000 }
    cost: { before: prompt/4, after: openai }
  plain:
    token_bucket: { rate: 1/h, burst: 100000 }
    cost: { before: 100, after: openai }
  queued:
    leaky_bucket: { rate: 100000/s, queue: 100000 }
    cost: { before: 1000, after: openai }
upstreams:
  model: { url: "URL", retries: 0, timeouts: { response: 20s } }
  gone: { url: "http://127.0.0.1:1", retries: 0 }
routes:
  - { match: POST /chat, upstream: model, limits: [tokens, dry] }
  - { match: POST /held, upstream: model, limits: [tokens], hold: until_upstream_ends }
  - { match: POST /messages, upstream: model, limits: [seen] }
  - { match: POST /gemini, upstream: model, limits: [zero] }
  - { match: POST /head, upstream: model, limits: [head] }
  - { match: POST /checked, upstream: model, limits: [checked] }
  - { match: POST /gone, upstream: gone, limits: [tokens] }
  - { match: GET /plain, upstream: model, limits: [plain] }
  - { match: POST /queued, upstream: model, limits: [queued] }
  - { match: POST /excused, upstream: gone, limits: [tokens], failed: { status: 200, body: later } }
`

// model is an upstream that responds as a request's header X-Do says.
type model struct {
	waiting chan struct{} // gets a value when a response stands still
	goOn    chan struct{} // ends the standstill
	seen    atomic.Pointer[http.Header]
	body    atomic.Pointer[string]
}

const usage29 = `{"usage":{"prompt_tokens":19,"completion_tokens":10}}`

func (m *model) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	text := string(body)
	m.body.Store(&text)
	header := r.Header.Clone()
	m.seen.Store(&header)
	event := func(data string) {
		fmt.Fprintf(w, "data: %s\n\n", data)
		w.(http.Flusher).Flush()
	}
	what := r.Header.Get("X-Do")
	if strings.HasPrefix(what, "stream") {
		w.Header().Set("Content-Type", "text/event-stream")
	}
	switch what {
	case "object":
		io.WriteString(w, usage29)
	case "gzip":
		w.Header().Set("Content-Encoding", "gzip")
		z := gzip.NewWriter(w)
		io.WriteString(z, usage29)
		z.Close()
	case "stream":
		event(`{"choices":[{"delta":{"content":"Hi"}}]}`)
		event(usage29)
		event("[DONE]")
	case "stream and stand":
		event(`{"type":"message_start","message":{"usage":{"input_tokens":30,"output_tokens":1}}}`)
		m.waiting <- struct{}{}
		<-m.goOn
		event(usage29)
	case "stream and break":
		event(`{"type":"message_start","message":{"usage":{"input_tokens":30,"output_tokens":1}}}`)
		panic(http.ErrAbortHandler)
	case "400":
		http.Error(w, usage29, 400)
	case "headers":
		w.Header().Set("X-Cost", "7")
		w.Header().Set("Trailer", "X-More")
		io.WriteString(w, "done")
		w.Header().Set("X-More", "3")
	case "nothing":
		w.WriteHeader(204)
	case "break":
		panic(http.ErrAbortHandler)
	}
}

// startModel serves the policy tokens in front of a model.
func startModel(t *testing.T) (*model, served, *httptest.Server) {
	m := &model{waiting: make(chan struct{}), goOn: make(chan struct{})}
	g, front, _ := start(t, tokens, m)
	return m, g, front
}

// ask sends a request for a model, which is the key.
func ask(t *testing.T, ctx context.Context, front *httptest.Server, path, what, body string) *http.Response {
	t.Helper()
	r, err := http.NewRequestWithContext(ctx, "POST", front.URL+path, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("X-Do", what)
	r.Header.Set("Content-Type", "application/json")
	resp, err := (&http.Client{Transport: &http.Transport{DisableCompression: true, DisableKeepAlives: true}}).Do(r)
	if err != nil && ctx.Err() == nil {
		t.Fatal(err)
	}
	return resp
}

// used returns how much of a limit a key has used, from the header of a response whose request costs
// nothing in the end.
func used(t *testing.T, front *httptest.Server, limit, key string) int64 {
	t.Helper()
	probe := map[string]struct {
		path            string
		limit, estimate int64
	}{"tokens": {"/chat", 1000, 1}, "seen": {"/messages", 1000, 1}, "zero": {"/gemini", 1000, 1}, "head": {"/head", 1000, 100}, "checked": {"/checked", 100, 1}}[limit]
	resp := ask(t, t.Context(), front, probe.path, "400", `{"model":"`+key+`","max_tokens":1}`)
	resp.Body.Close()
	var left int64
	if _, err := fmt.Sscanf(resp.Header.Get("RateLimit"), `"`+limit+`";r=%d`, &left); err != nil {
		t.Fatalf("%d, RateLimit: %s", resp.StatusCode, resp.Header.Get("RateLimit"))
	}
	if resp.StatusCode == 429 {
		return probe.limit - left
	}
	return probe.limit - left - probe.estimate
}

// eventually waits for a condition.
func eventually(t *testing.T, what string, is func() bool) {
	t.Helper()
	for deadline := time.After(time.Minute); !is(); {
		select {
		case <-deadline:
			t.Fatal(what)
		case <-time.After(time.Millisecond):
		}
	}
}

// TestCostsAfterwards: the estimate is charged before, and replaced by what the response says,
// however it comes.
func TestCostsAfterwards(t *testing.T) {
	_, g, front := startModel(t)
	for i, c := range []struct {
		path, what, body string
		limit            string
		cost             int64
	}{
		{"/chat", "object", `{"model":"KEY","max_tokens":500}`, "tokens", 29},
		{"/chat", "object", `{"model":"KEY","max_tokens":5}`, "tokens", 29},
		{"/chat", "object", `{"model":"KEY"}`, "tokens", 29},
		{"/chat", "stream", `{"model":"KEY","max_tokens":500}`, "tokens", 29},
		{"/chat", "gzip", `{"model":"KEY","max_tokens":500}`, "tokens", 29},
		{"/chat", "nothing", `{"model":"KEY","max_tokens":500}`, "tokens", 500},
		{"/chat", "nothing", `{"model":"KEY"}`, "tokens", 200},
		{"/chat", "nothing", `{"model":"KEY","max_tokens":-5}`, "tokens", 200},
		{"/chat", "nothing", `{"model":"KEY","max_tokens":3e2}`, "tokens", 300},
		{"/chat", "400", `{"model":"KEY","max_tokens":500}`, "tokens", 0},
		{"/chat", "break", `{"model":"KEY","max_tokens":500}`, "tokens", 0}, // 502
		{"/gone", "", `{"model":"KEY","max_tokens":500}`, "tokens", 0},
		{"/excused", "", `{"model":"KEY","max_tokens":500}`, "tokens", 0},
		{"/gemini", "400", `{"model":"KEY","max_tokens":500}`, "zero", 0},
		{"/gemini", "nothing", `{"model":"KEY","max_tokens":500}`, "zero", 0},
		{"/head", "headers", `{"model":"KEY"}`, "head", 17},
		{"/head", "object", `{"model":"KEY"}`, "head", 100},
		{"/checked", "object", `{"model":"KEY"}`, "checked", 29},
	} {
		key := fmt.Sprintf("key%d", i)
		resp := ask(t, t.Context(), front, c.path, c.what, strings.ReplaceAll(c.body, "KEY", key))
		io.Copy(io.Discard, resp.Body)
		resp.Body.Close()
		eventually(t, fmt.Sprintf("%s %s %s costs %d, want %d", c.path, c.what, c.body, used(t, front, c.limit, key), c.cost), func() bool {
			return used(t, front, c.limit, key) == c.cost
		})
	}
	for _, c := range g.Engine().Counts() {
		if c.Limit == "dry" && c.Actual != 5*29+9+4+8+9 { // of unknown ones, a quarter of the bytes of the body
			t.Errorf("the shadow limit has charged %d", c.Actual)
		}
		if c.Limit == "tokens" && (!c.Settles || c.Unknown != 4 || c.Actual != 5*29+500+200+200+300) {
			t.Errorf("counted %+v", c)
		}
	}
}

// TestReservationsInFlightAreCounted: what is in flight is charged by its estimate, so that requests
// at the same time cannot exceed the limit together.
func TestReservationsInFlightAreCounted(t *testing.T) {
	m, _, front := startModel(t)
	body := `{"model":"a","max_tokens":400}`
	first := ask(t, t.Context(), front, "/chat", "stream and stand", body)
	defer first.Body.Close()
	<-m.waiting
	if n := used(t, front, "tokens", "a"); n != 400 {
		t.Errorf("%d are charged while the response is in flight", n)
	}
	second := ask(t, t.Context(), front, "/chat", "object", `{"model":"a","max_tokens":601}`)
	second.Body.Close()
	if second.StatusCode != 429 {
		t.Errorf("a request beyond the limit gets %d", second.StatusCode)
	}
	if h := first.Header.Get("RateLimit"); !strings.Contains(h, `"tokens";r=600`) {
		t.Errorf("RateLimit: %s", h)
	}
	m.goOn <- struct{}{}
	io.Copy(io.Discard, first.Body)
	eventually(t, "the charge is not settled", func() bool { return used(t, front, "tokens", "a") == 29 })
}

// TestClientLeaves: the cost of a response that its client does not wait for is unknown. With hold,
// it is read to its end.
func TestClientLeaves(t *testing.T) {
	m, g, front := startModel(t)
	for _, c := range []struct {
		path, limit string
		cost        int64
		held        bool
	}{
		{"/chat", "tokens", 400, false},
		{"/messages", "seen", 31, false},
		{"/gemini", "zero", 0, false},
		{"/held", "tokens", 29, true},
	} {
		ctx, leave := context.WithCancel(t.Context())
		key := "leaves" + c.path
		resp := ask(t, ctx, front, c.path, "stream and stand", `{"model":"`+key+`","max_tokens":400}`)
		<-m.waiting
		if n := used(t, front, c.limit, key); n != 400 {
			t.Errorf("%s: %d are charged while the response is in flight", c.path, n)
		}
		line := make([]byte, 20)
		io.ReadFull(resp.Body, line)
		leave()
		resp.Body.Close()
		if c.held {
			m.goOn <- struct{}{}
		} else {
			eventually(t, c.path+": the charge is not settled", func() bool { return unknown(g, c.limit) > 0 })
			m.goOn <- struct{}{}
		}
		eventually(t, fmt.Sprintf("%s: charged %d, want %d", c.path, used(t, front, c.limit, key), c.cost), func() bool { return used(t, front, c.limit, key) == c.cost })
	}
}

func unknown(g served, limit string) uint64 {
	for _, c := range g.Engine().Counts() {
		if c.Limit == limit {
			return c.Unknown
		}
	}
	return 0
}

// TestUpstreamBreaksOff: a response that breaks off has an unknown cost.
func TestUpstreamBreaksOff(t *testing.T) {
	_, g, front := startModel(t)
	for path, c := range map[string]struct {
		limit string
		cost  int64
	}{"/chat": {"tokens", 400}, "/messages": {"seen", 31}, "/gemini": {"zero", 0}} {
		resp := ask(t, t.Context(), front, path, "stream and break", `{"model":"b","max_tokens":400}`)
		if _, err := io.Copy(io.Discard, resp.Body); err == nil {
			t.Errorf("%s: the client does not notice that the response broke off", path)
		}
		resp.Body.Close()
		eventually(t, path+" is not settled", func() bool { return unknown(g, c.limit) == 1 })
		if n := used(t, front, c.limit, "b"); n != c.cost {
			t.Errorf("%s: charged %d, want %d", path, n, c.cost)
		}
	}
}

// TestDebtIsCarried: a cost above the estimate is charged in full, and later requests wait for it,
// one with an estimate of 0 too where the policy says so.
func TestDebtIsCarried(t *testing.T) {
	_, g, front := startModel(t)
	for i, want := range []int{200, 200, 200, 200, 429} { // 29 each, of 100
		resp := ask(t, t.Context(), front, "/checked", "object", `{"model":"c"}`)
		resp.Body.Close()
		if resp.StatusCode != want {
			t.Errorf("request %d gets %d", i, resp.StatusCode)
		}
		eventually(t, "the charge is not settled", func() bool { return g.Engine().Counts()[4].Actual == 29*uint64(min(i+1, 4)) })
	}
}

// TestBodyIsPassedOn: the body that was read for keys and estimates arrives unchanged, also if it is
// longer than what is read, comes in chunks or is no JSON.
func TestBodyIsPassedOn(t *testing.T) {
	m, _, front := startModel(t)
	for name, body := range map[string]string{
		"small":  `{"model":"d","max_tokens":1}`,
		"long":   `{"model":"d","max_tokens":1,"pad":"` + strings.Repeat("x", 3<<20) + `"}`,
		"bytes":  "\x00\xff not JSON",
		"limits": strings.Repeat(" ", 1<<20) + `{"model":"d"}`,
	} {
		for _, chunked := range []bool{false, true} {
			var from io.Reader = strings.NewReader(body)
			if chunked {
				from = struct{ io.Reader }{from}
			}
			r, _ := http.NewRequestWithContext(t.Context(), "POST", front.URL+"/head", from)
			r.Header.Set("X-Do", "headers")
			resp, err := http.DefaultClient.Do(r)
			if err != nil {
				t.Fatal(err)
			}
			resp.Body.Close()
			if resp.StatusCode != 200 || *m.body.Load() != body {
				t.Errorf("%s, chunked %v: %d, %d bytes, want %d", name, chunked, resp.StatusCode, len(*m.body.Load()), len(body))
			}
		}
	}
	// what is unclear shares the key that is empty
	eventually(t, fmt.Sprintf("charged %d and %d", used(t, front, "head", ""), used(t, front, "head", "d")), func() bool {
		return used(t, front, "head", "") == 6*17 && used(t, front, "head", "d") == 2*17
	})
}

// TestPlainRequestsAreSettled: also requests that do not go through net/http are, with responses in
// each form.
func TestPlainRequestsAreSettled(t *testing.T) {
	_, g, front := startModel(t)
	for i, what := range []string{"object", "stream", "gzip"} {
		resp, _ := get(t, front.URL+"/plain", "X-Do", what, "Accept-Encoding", "gzip")
		if resp.StatusCode != 200 {
			t.Fatal(resp.Status)
		}
		eventually(t, what+" is not settled", func() bool { return counted(g, "plain") == 29*uint64(i+1) })
	}
}

// TestQueuedRequestsAreSettled: requests that have waited in the queue of a limit settle, too: what
// they give back lets later ones through.
func TestQueuedRequestsAreSettled(t *testing.T) {
	_, g, front := startModel(t)
	var all sync.WaitGroup
	for range 50 {
		all.Go(func() {
			resp := ask(t, t.Context(), front, "/queued", "object", "{}")
			io.Copy(io.Discard, resp.Body)
			resp.Body.Close()
			if resp.StatusCode != 200 {
				t.Error(resp.Status)
			}
		})
	}
	all.Wait()
	eventually(t, "not all are settled", func() bool { return counted(g, "queued") == 50*29 })
}

// counted returns what a limit has charged in the end.
func counted(g served, limit string) uint64 {
	for _, c := range g.Engine().Counts() {
		if c.Limit == limit {
			return c.Actual
		}
	}
	return 0
}

// TestEncodings: an upstream is asked only for encodings that can be read.
func TestEncodings(t *testing.T) {
	m, _, front := startModel(t)
	for accepted, want := range map[string]string{"br, gzip": "gzip", "br": "identity", "gzip;q=0, br": "identity", "*": "gzip", "": ""} {
		r, _ := http.NewRequestWithContext(t.Context(), "POST", front.URL+"/chat", bytes.NewReader([]byte(`{"model":"e"}`)))
		r.Header.Set("X-Do", "object")
		if accepted != "" {
			r.Header.Set("Accept-Encoding", accepted)
		}
		resp, err := (&http.Transport{DisableCompression: true, DisableKeepAlives: true}).RoundTrip(r)
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		if got := m.seen.Load().Get("Accept-Encoding"); got != want {
			t.Errorf("%q becomes %q, want %q", accepted, got, want)
		}
	}
}
