package weirhttp_test

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirflow/weir"
	"github.com/weirflow/weir/adaptive"
	"github.com/weirflow/weir/policy"
	"github.com/weirflow/weir/weirhttp"
)

// TestPolicyAdaptive: a handler behind an adaptive limit gets as many requests as the limit has places. The
// others get 503, charge no limit, and can soon try again. The outcome of each is what its status says.
func TestPolicyAdaptive(t *testing.T) {
	engine, err := policy.New(policy.Policy{
		Limits: []policy.Limit{{Name: "all", Limit: weir.FixedWindow{Limit: 6, Window: 1e12}}},
		Routes: []policy.Route{{Match: "/", Limits: []string{"all"}, Adaptive: policy.Adaptive{On: true, Algorithm: adaptive.Knee{Max: 1}}}},
	}, policy.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer engine.Close()
	middleware, err := weirhttp.Policy(engine)
	if err != nil {
		t.Fatal(err)
	}
	var h http.Handler
	ask := func(path string) *httptest.ResponseRecorder {
		w := httptest.NewRecorder()
		h.ServeHTTP(w, httptest.NewRequest(http.MethodGet, path, nil))
		return w
	}
	h = middleware(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/inner":
			if inner := ask("/"); inner.Code != http.StatusServiceUnavailable || inner.Header().Get("Retry-After") != "1" {
				t.Errorf("a request without a place: %d %v", inner.Code, inner.Header())
			}
		case "/busy":
			w.WriteHeader(http.StatusServiceUnavailable)
		case "/panic":
			panic("a test")
		}
	}))
	if w := ask("/inner"); w.Code != 200 || !strings.HasPrefix(w.Header().Get("RateLimit"), `"all";r=5;`) {
		t.Errorf("the first request: %d %v", w.Code, w.Header())
	}
	if w := ask("/busy"); !strings.HasPrefix(w.Header().Get("RateLimit"), `"all";r=4;`) {
		t.Errorf("the refused request was charged: %v", w.Header())
	}
	func() {
		defer func() { _ = recover() }()
		ask("/panic")
	}()
	for range 3 {
		ask("/")
	}
	if w := ask("/"); w.Code != http.StatusTooManyRequests {
		t.Errorf("beyond the other limit: %d", w.Code)
	}
	got := engine.AdaptiveCounts()[0]
	want := adaptive.Outcomes{OK: 4, Dropped: 2, Refused: 1}
	if got.Name != "adaptive:/" || got.InFlight != 0 || got.Outcomes != want {
		t.Errorf("%+v, want %+v", got, want)
	}
}

// slowBody is a body that its client takes long to send.
type slowBody struct{ parts int }

// Read waits for a part.
func (b *slowBody) Read(p []byte) (int, error) {
	if b.parts--; b.parts < 0 {
		return 0, io.EOF
	}
	time.Sleep(time.Second)
	p[0] = 'x'
	return 1, nil
}

// slowClient takes long to take a response.
type slowClient struct{ *httptest.ResponseRecorder }

// Write waits for the client.
func (c slowClient) Write(p []byte) (int, error) {
	time.Sleep(time.Second)
	return c.ResponseRecorder.Write(p)
}

// TestAdaptiveSlowClient: the time that a client takes to send its body, or to take the response, is no latency of
// the handler. A slow handler is one, also where it reads a body and writes.
func TestAdaptiveSlowClient(t *testing.T) {
	for name, c := range map[string]struct {
		body   io.Reader
		slow   bool
		work   time.Duration
		status int
		want   adaptive.Outcomes
	}{
		"upload":           {&slowBody{3}, false, time.Second, 200, adaptive.Outcomes{Ignored: 1}},
		"download":         {strings.NewReader("x"), true, time.Second, 200, adaptive.Outcomes{Ignored: 1}},
		"handler":          {&slowBody{1}, false, time.Minute, 200, adaptive.Outcomes{OK: 1}},
		"fast client":      {strings.NewReader("x"), false, 0, 200, adaptive.Outcomes{OK: 1}},
		"upload, overload": {&slowBody{3}, false, 0, 503, adaptive.Outcomes{Dropped: 1}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				engine, err := policy.New(policy.Policy{Routes: []policy.Route{{Match: "/", Adaptive: policy.Adaptive{On: true}}}}, policy.Options{})
				if err != nil {
					t.Fatal(err)
				}
				defer engine.Close()
				middleware, err := weirhttp.Policy(engine)
				if err != nil {
					t.Fatal(err)
				}
				h := middleware(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					_, _ = io.Copy(io.Discard, r.Body)
					time.Sleep(c.work)
					w.WriteHeader(c.status)
					_, _ = io.WriteString(w, "done")
				}))
				var w http.ResponseWriter = httptest.NewRecorder()
				if c.slow {
					w = slowClient{httptest.NewRecorder()}
				}
				r := httptest.NewRequest(http.MethodPost, "/", c.body)
				r.ContentLength = -1
				h.ServeHTTP(w, r)
				if got := engine.AdaptiveCounts()[0]; got.Outcomes != c.want || got.InFlight != 0 {
					t.Errorf("%+v, want %+v", got.Outcomes, c.want)
				}
			})
		})
	}
}

// stuckClient does not take its response for a minute.
type stuckClient struct{ *httptest.ResponseRecorder }

// Write waits for the client.
func (c stuckClient) Write(p []byte) (int, error) {
	time.Sleep(time.Minute)
	return c.ResponseRecorder.Write(p)
}

// TestAdaptiveStuckClient: a client that did not take its response kept a place of the handler's limit.
func TestAdaptiveStuckClient(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		engine, err := policy.New(policy.Policy{Routes: []policy.Route{{Match: "/", Adaptive: policy.Adaptive{On: true}}}}, policy.Options{})
		if err != nil {
			t.Fatal(err)
		}
		defer engine.Close()
		middleware, err := weirhttp.Policy(engine)
		if err != nil {
			t.Fatal(err)
		}
		h := middleware(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { _, _ = w.Write(make([]byte, 1<<20)) }))
		go h.ServeHTTP(stuckClient{httptest.NewRecorder()}, httptest.NewRequest(http.MethodGet, "/", nil))
		time.Sleep(2 * time.Second)
		if got := engine.AdaptiveCounts()[0]; got.InFlight != 0 || got.Outcomes.Ignored != 1 {
			t.Errorf("%d in flight, %+v", got.InFlight, got.Outcomes)
		}
		time.Sleep(time.Minute)
		if got := engine.AdaptiveCounts()[0]; got.InFlight != 0 || got.Outcomes != (adaptive.Outcomes{Ignored: 1}) {
			t.Errorf("in the end: %d in flight, %+v", got.InFlight, got.Outcomes)
		}
	})
}
