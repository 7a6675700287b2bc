package gateway_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/weirflow/weir/policy"
	"github.com/weirflow/weir/server/active"
	"github.com/weirflow/weir/server/gateway"
	"github.com/weirflow/weir/server/policyfile"
)

// parse reads a policy in which URL stands for the upstream's.
func parse(t testing.TB, text, upstream string) *policyfile.File {
	t.Helper()
	f, err := policyfile.Parse(filepath.Join(t.TempDir(), "policy.yaml"), []byte(strings.ReplaceAll(text, "URL", upstream)))
	if err != nil {
		t.Fatal(err)
	}
	return f
}

// served is a gateway with its active policy.
type served struct {
	*gateway.Gateway
	policy *active.Policy
}

// openGateway makes a policy active and a gateway for it. The test ends both.
func openGateway(t testing.TB, f *policyfile.File, log *slog.Logger) served {
	t.Helper()
	s := served{}
	var err error
	if s.policy, err = active.New(t.Context(), f, active.Options{Log: log}); err != nil {
		t.Fatal(err)
	}
	if s.Gateway, err = gateway.New(t.Context(), s.policy, log); err != nil {
		t.Fatal(err)
	}
	return s
}

// Update makes another policy active.
func (s served) Update(f *policyfile.File) error { return s.policy.Update(context.Background(), f) }

// File is that of the active policy.
func (s served) File() *policyfile.File { return s.policy.File() }

// Engine is that of the active policy.
func (s served) Engine() *policy.Engine { return s.policy.Engine() }

// Close ends the gateway and its policy.
func (s served) Close() error { return errors.Join(s.Gateway.Close(), s.policy.Close()) }

// start serves a policy in front of an upstream.
func start(t testing.TB, text string, upstream http.Handler) (served, *httptest.Server, *bytes.Buffer) {
	t.Helper()
	up := httptest.NewServer(upstream)
	t.Cleanup(up.Close)
	log := new(bytes.Buffer)
	g := openGateway(t, parse(t, text, up.URL), slog.New(slog.NewTextHandler(&lockedWriter{w: log}, nil)))
	front := httptest.NewServer(g)
	t.Cleanup(func() { front.Close(); g.Close() })
	return g, front, log
}

type lockedWriter struct {
	mu sync.Mutex
	w  io.Writer
}

func (l *lockedWriter) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.w.Write(p)
}

var echo = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	w.Header().Set("X-Seen", fmt.Sprintf("%s %s %s %q", r.Method, r.Host, r.RequestURI, body))
	for name, values := range r.Header {
		if strings.HasPrefix(name, "X-Forwarded") || name == "Forwarded" || name == "User-Agent" || name == "Accept-Encoding" {
			w.Header()["X-In-"+name] = values
		}
	}
	io.WriteString(w, "upstream")
})

// do sends a request and returns the response with its body.
func do(t testing.TB, r *http.Request) (*http.Response, string) {
	t.Helper()
	client := &http.Client{CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	resp, err := client.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp, string(body)
}

func get(t testing.TB, url string, fields ...string) (*http.Response, string) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), "GET", url, nil)
	if err != nil {
		t.Fatal(err)
	}
	for i := 0; i+1 < len(fields); i += 2 {
		r.Header.Add(fields[i], fields[i+1])
	}
	return do(t, r)
}

const flashSale = `
headers: [ratelimit, x-ratelimit]
limits:
  per-sku: { key: [query.sku_id], token_bucket: { rate: 6/m, burst: 1 } }
  per-user: { key: header.user-id, token_bucket: { rate: 1/h, burst: 1 } }
  per-host: { key: host, token_bucket: { rate: 1/h, burst: 1 } }
upstreams: { shop: { url: "URL" } }
routes:
  - { match: GET /ratelimit/sku, upstream: shop, limits: [per-sku], refused: { status: 503, body: Degraded content } }
  - { match: /user, upstream: shop, limits: [per-user] }
  - { match: /host, upstream: shop, limits: [per-host], refused: { redirect: /sorry } }
  - { match: /free/, upstream: shop }
`

func TestFlashSale(t *testing.T) {
	g, front, _ := start(t, flashSale, echo)
	if resp, body := get(t, front.URL+"/ratelimit/sku?sku_id=1"); resp.StatusCode != 200 || body != "upstream" ||
		resp.Header.Get("RateLimit") != `"per-sku";r=0;t=10` || resp.Header.Get("RateLimit-Policy") != `"per-sku";q=1;w=10` || resp.Header.Get("X-RateLimit-Limit") != "1" {
		t.Errorf("%d %q %v", resp.StatusCode, body, resp.Header)
	}
	if resp, body := get(t, front.URL+"/ratelimit/sku?sku_id=1"); resp.StatusCode != 503 || body != "Degraded content" ||
		resp.Header.Get("Retry-After") != "10" || resp.Header.Get("RateLimit") != `"per-sku";r=0;t=10` || resp.Header.Get("Cache-Control") != "no-store" {
		t.Errorf("%d %q %v", resp.StatusCode, body, resp.Header)
	}
	if resp, _ := get(t, front.URL+"/ratelimit/sku?sku_id=2"); resp.StatusCode != 200 {
		t.Errorf("another sku: %d", resp.StatusCode)
	}
	for i, want := range []int{200, 429} {
		if resp, _ := get(t, front.URL+"/user", "User-Id", "7"); resp.StatusCode != want {
			t.Errorf("by header, request %d: %d", i, resp.StatusCode)
		}
	}
	for i, want := range []int{200, 302} {
		resp, _ := get(t, front.URL+"/host")
		if resp.StatusCode != want || i == 1 && resp.Header.Get("Location") != "/sorry" {
			t.Errorf("by host, request %d: %d %v", i, resp.StatusCode, resp.Header)
		}
	}
	if resp, body := get(t, front.URL+"/nowhere"); resp.StatusCode != 404 || !strings.Contains(body, "no route") {
		t.Errorf("%d %q", resp.StatusCode, body)
	}
	want := gateway.Counts{Allowed: 4, Limited: 3, NoRoute: 1}
	if got := g.Counts(); got != want {
		t.Errorf("%+v", got)
	}
}

func TestBodiesForTheRefused(t *testing.T) {
	_, front, _ := start(t, `
limits: { no: { token_bucket: { rate: 1/h, burst: 1 } } }
upstreams: { up: { url: "URL" } }
routes: [{ match: /, upstream: up, limits: [no] }]
`, echo)
	get(t, front.URL)
	for accept, want := range map[string]string{
		"":                                    "text/plain; charset=utf-8",
		"*/*":                                 "text/plain; charset=utf-8",
		"text/html, application/json;q=0":     "text/plain; charset=utf-8",
		"application/json":                    "application/problem+json",
		"text/html, application/problem+json": "application/problem+json",
		"APPLICATION/JSON; q=0.5":             "application/problem+json",
	} {
		resp, body := get(t, front.URL, "Accept", accept)
		if resp.StatusCode != 429 || resp.Header.Get("Content-Type") != want {
			t.Errorf("%q: %d %s", accept, resp.StatusCode, resp.Header.Get("Content-Type"))
		}
		if problem := `{"type":"https://iana.org/assignments/http-problem-types#quota-exceeded","title":"Too Many Requests","status":429,"violated-policies":["no"]}` + "\n"; strings.Contains(want, "problem") && body != problem {
			t.Errorf("%s", body)
		}
	}
	head, err := http.NewRequestWithContext(t.Context(), "HEAD", front.URL, nil)
	if err != nil {
		t.Fatal(err)
	}
	if resp, body := do(t, head); resp.StatusCode != 429 || body != "" || resp.ContentLength != 18 {
		t.Errorf("HEAD: %d %q %d", resp.StatusCode, body, resp.ContentLength)
	}
}

func TestFileForTheRefused(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "sorry.html"), []byte("<h1>Sorry</h1>"), 0o644); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, "p.yaml")
	up := httptest.NewServer(echo)
	defer up.Close()
	text := `
limits: { no: { token_bucket: { rate: 1/h, burst: 1 } } }
upstreams: { up: { url: "` + up.URL + `" } }
routes: [{ match: /, upstream: up, limits: [no], refused: { file: sorry.html, status: 200 } }]
`
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	f, err := policyfile.Load(path)
	if err != nil {
		t.Fatal(err)
	}
	g := openGateway(t, f, slog.New(slog.DiscardHandler))
	defer g.Close()
	front := httptest.NewServer(g)
	defer front.Close()
	get(t, front.URL)
	if resp, body := get(t, front.URL); resp.StatusCode != 200 || body != "<h1>Sorry</h1>" || resp.Header.Get("Content-Type") != "text/html; charset=utf-8" {
		t.Errorf("%d %q %v", resp.StatusCode, body, resp.Header)
	}
}

const queue = `
limits:
  door: { leaky_bucket: { rate: 5/s, queue: 2 } }
upstreams: { up: { url: "URL" } }
routes: [{ match: /, upstream: up, limits: [door] }]
`

// TestQueueHoldsRequests: the upstream gets them at the limit's rate, and a request beyond the
// queue is refused at once.
func TestQueueHoldsRequests(t *testing.T) {
	var mu sync.Mutex
	var arrived []time.Time
	g, front, _ := start(t, strings.Replace(queue, "5/s", "1/s", 1), http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		arrived = append(arrived, time.Now())
	}))
	var wg sync.WaitGroup
	var refused atomic.Int32
	began := time.Now()
	for range 5 {
		wg.Go(func() {
			resp, _ := get(t, front.URL)
			if resp.StatusCode == 429 {
				refused.Add(1)
			}
		})
	}
	wg.Wait()
	if refused.Load() != 2 || len(arrived) != 3 {
		t.Fatalf("%d refused, %d arrived", refused.Load(), len(arrived))
	}
	for i := 1; i < 3; i++ {
		if d := arrived[i].Sub(began); d < time.Duration(i)*time.Second-10*time.Millisecond { // docs/guarantees.md: a queue may be noticed late
			t.Errorf("number %d arrived after %v", i, d)
		}
	}
	if got := g.Counts(); got.Delayed != 2 || got.Limited != 2 || got.Allowed != 1 {
		t.Errorf("%+v", got)
	}
}

// TestLeavingAQueueFreesThePlace: clients that disconnect while they wait are not charged, and the
// ones behind them move up.
func TestLeavingAQueueFreesThePlace(t *testing.T) {
	g, front, _ := start(t, strings.ReplaceAll(queue, "rate: 5/s", "rate: 1/m"), echo)
	get(t, front.URL)
	for range 20 { // many more than the queue holds, one after another
		ctx, hangUp := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() {
			r, err := http.NewRequestWithContext(ctx, "GET", front.URL, nil)
			if err == nil {
				_, err = http.DefaultClient.Do(r)
			}
			done <- err
		}()
		until(t, func() bool { return g.Engine().Counts()[0].Waiting == 1 })
		hangUp()
		if err := <-done; !errors.Is(err, context.Canceled) {
			t.Fatal(err)
		}
		until(t, func() bool { return g.Engine().Counts()[0].Waiting == 0 })
	}
	until(t, func() bool { return g.Counts().Canceled == 20 })
	if got := g.Counts(); got.Limited != 0 {
		t.Errorf("%+v", got)
	}
}

// until polls a condition that another goroutine makes true.
func until(t testing.TB, done func() bool) {
	t.Helper()
	deadline := time.After(30 * time.Second)
	for !done() {
		select {
		case <-deadline:
			t.Fatal("it did not happen")
		case <-time.After(time.Millisecond):
		}
	}
}

func TestBytesAreCounted(t *testing.T) {
	g, front, _ := start(t, `
limits: { up: { token_bucket: { rate: 1/h, burst: 1000 }, cost: bytes } }
upstreams: { up: { url: "URL" } }
routes: [{ match: /, upstream: up, limits: [up] }]
`, echo)
	remaining := func() int64 {
		resp, _ := get(t, front.URL)
		var n int64
		fmt.Sscanf(resp.Header.Get("RateLimit"), `"up";r=%d`, &n)
		return n
	}
	post := func(body io.Reader) {
		t.Helper()
		r, err := http.NewRequestWithContext(t.Context(), "POST", front.URL, body)
		if err != nil {
			t.Fatal(err)
		}
		if resp, _ := do(t, r); resp.StatusCode != 200 {
			t.Errorf("%d", resp.StatusCode)
		}
	}
	post(strings.NewReader(strings.Repeat("x", 300)))
	if n := remaining(); n != 700 {
		t.Errorf("%d left", n)
	}
	post(io.MultiReader(strings.NewReader(strings.Repeat("x", 450)))) // of unknown length
	until(t, func() bool { return remaining() == 250 })
	if g.Counts().Limited != 0 {
		t.Errorf("%+v", g.Counts())
	}
}

func TestUpdate(t *testing.T) {
	g, front, _ := start(t, flashSale, echo)
	up := g.File().Policy.Upstreams[0].URL
	get(t, front.URL+"/user", "User-Id", "7")
	noUpstream := parse(t, strings.Replace(flashSale, "match: /user, upstream: shop", "match: /user", 1), up)
	if err := g.Update(noUpstream); err == nil || !strings.Contains(err.Error(), "the route /user has no upstream") {
		t.Errorf("%v", err)
	}
	if resp, _ := get(t, front.URL+"/user", "User-Id", "7"); resp.StatusCode != 429 {
		t.Errorf("the old policy does not go on: %d", resp.StatusCode)
	}
	if err := g.Update(parse(t, strings.Replace(flashSale, "header.user-id, token_bucket: { rate: 1/h, burst: 1 }", "header.user-id, token_bucket: { rate: 1/h, burst: 3 }", 1), up)); err != nil {
		t.Fatal(err)
	}
	for i, want := range []int{200, 200, 429} { // one of the three was used before
		if resp, _ := get(t, front.URL+"/user", "User-Id", "7"); resp.StatusCode != want {
			t.Errorf("request %d: %d", i, resp.StatusCode)
		}
	}
}

// TestUpdateUnderLoad: no request is lost, or gets an error of the gateway, while the policy
// changes all the time.
func TestUpdateUnderLoad(t *testing.T) {
	g, front, _ := start(t, flashSale, echo)
	up := g.File().Policy.Upstreams[0].URL
	a, b := parse(t, flashSale, up), parse(t, strings.Replace(flashSale, "rate: 6/m", "rate: 7/m", 1), up)
	stop := make(chan struct{})
	var wg sync.WaitGroup
	for i := range 4 {
		wg.Go(func() {
			for n := 0; ; n++ {
				select {
				case <-stop:
					return
				default:
				}
				resp, _ := get(t, fmt.Sprintf("%s/ratelimit/sku?sku_id=%d-%d", front.URL, i, n))
				if resp.StatusCode != 200 {
					t.Errorf("%d", resp.StatusCode)
				}
			}
		})
	}
	for i := range 200 {
		next := a
		if i%2 == 0 {
			next = b
		}
		if err := g.Update(next); err != nil {
			t.Error(err)
		}
	}
	close(stop)
	wg.Wait()
}

func TestNewRefusesWhatAGatewayCannotDo(t *testing.T) {
	p, err := active.New(t.Context(), parse(t, "routes: [{ match: / }]", ""), active.Options{Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	if _, err := gateway.New(t.Context(), p, slog.New(slog.DiscardHandler)); err == nil {
		t.Error("a route without an upstream was accepted")
	}
}

// TestLeave: each response ends its connection, whether it comes from an upstream or from the
// gateway, except for upgrades.
func TestLeave(t *testing.T) {
	g, front, _ := start(t, flashSale, echo)
	for i, close := range []bool{false, true} {
		for _, path := range []string{fmt.Sprintf("/ratelimit/sku?sku_id=%d", i), fmt.Sprintf("/ratelimit/sku?sku_id=%d", i), "/free/x", "/nowhere"} {
			if resp, _ := get(t, front.URL+path); resp.Close != close {
				t.Errorf("%s, %d: closes %v", path, resp.StatusCode, resp.Close)
			}
		}
		g.Leave()
	}
}
