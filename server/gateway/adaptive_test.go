package gateway_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/weirflow/weir/server/upstream"
)

// told returns the status of a request, and what its response says of limits.
func told(t testing.TB, url string) string {
	t.Helper()
	r, err := http.NewRequest(http.MethodGet, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Accept", "application/problem+json")
	resp, body := do(t, r)
	left, _, _ := strings.Cut(resp.Header.Get("RateLimit"), ";t=")
	return strings.TrimSpace(fmt.Sprintf("%d %s %s %s", resp.StatusCode, left, resp.Header.Get("Retry-After"), body))
}

// targetsOf returns the counters of the targets of the only upstream.
func targetsOf(g served) []upstream.TargetStats { return g.Upstreams()[0].Targets }

// settled waits until no request has a place at an adaptive limit, and returns the outcomes.
func settled(t testing.TB, g served) string {
	t.Helper()
	until(t, func() bool { return targetsOf(g)[0].Adaptive.InFlight == 0 })
	return fmt.Sprint(targetsOf(g)[0].Adaptive.Outcomes)
}

// overloaded is what told returns of a request that an adaptive limit refused. No header field tells how
// much the client has left.
const overloaded = `503  1 {"type":"https://iana.org/assignments/http-problem-types#temporary-reduced-capacity","title":"Service Unavailable","status":503,"violated-policies":["%s"]}`

// TestAdaptiveRefuses: a request without a place at the adaptive limit of the route or of its upstream gets
// 503 and is charged to no other limit. One that another limit refuses takes no place.
func TestAdaptiveRefuses(t *testing.T) {
	const policy = `
limits: { per-client: { token_bucket: { rate: 1/h, burst: 3 } } }
upstreams: { app: { url: "URL"%s } }
routes: [{ match: /, upstream: app, limits: [per-client]%s }]
`
	const limit = ", adaptive: { knee: { initial: 1, max: 1 } }"
	for name, c := range map[string]struct{ upstream, route, limit string }{
		"upstream": {limit, "", "adaptive:app"},
		"route":    {"", limit, "adaptive:/"},
		"both":     {limit, limit, "adaptive:/"},
	} {
		t.Run(name, func(t *testing.T) {
			entered, leave := make(chan bool), make(chan bool)
			g, front, _ := start(t, fmt.Sprintf(policy, c.upstream, c.route), http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if r.URL.Path == "/slow" {
					entered <- true
					<-leave
				}
			}))
			slow := make(chan string, 1)
			go func() { slow <- told(t, front.URL+"/slow") }()
			<-entered
			for range 4 {
				if got, want := told(t, front.URL), fmt.Sprintf(overloaded, c.limit); got != want {
					t.Errorf("%s, want %s", got, want)
				}
			}
			leave <- true
			if got := <-slow; got != `200 "per-client";r=2` {
				t.Errorf("the request with a place: %s", got)
			}
			until(t, func() bool {
				a := g.Engine().AdaptiveCounts()
				return targetsOf(g)[0].Adaptive.InFlight == 0 && (len(a) == 0 || a[0].InFlight == 0)
			})
			for i, want := range []string{`200 "per-client";r=1`, `200 "per-client";r=0`, "429"} {
				if got := told(t, front.URL); !strings.HasPrefix(got, want) {
					t.Errorf("request %d: %s, want %s", i, got, want)
				}
				until(t, func() bool { return targetsOf(g)[0].Adaptive.InFlight == 0 })
			}
			if n := g.Counts(); n.Overloaded != 4 || n.Limited != 1 || n.Allowed != 3 {
				t.Errorf("overloaded %d, limited %d, allowed %d", n.Overloaded, n.Limited, n.Allowed)
			}
			if c.upstream != "" && c.route == "" {
				if got := settled(t, g); got != "{3 0 0 4}" {
					t.Errorf("ok, ignored, dropped, refused: %s", got)
				}
			}
		})
	}
}

// TestAdaptiveOutcomes: what became of a request decides what the adaptive limit hears, over both ways to an
// upstream: plain requests, and all others.
func TestAdaptiveOutcomes(t *testing.T) {
	const policy = `
upstreams: { app: { url: "URL", adaptive: {} } }
routes: [{ match: /, upstream: app }]
`
	for _, c := range []struct{ path, want string }{
		{"/200", "{1 0 0 0}"}, {"/404", "{1 0 0 0}"}, {"/500", "{1 0 0 0}"},
		{"/429", "{0 0 1 0}"}, {"/503", "{0 0 1 0}"}, {"/504", "{0 0 1 0}"},
		{"/none", "{0 0 1 0}"}, {"/half", "{0 0 1 0}"}, {"/leave", "{0 1 0 0}"},
	} {
		for _, method := range []string{http.MethodGet, http.MethodPost} {
			t.Run(method+c.path, func(t *testing.T) {
				began := make(chan bool, 1)
				g, front, _ := start(t, policy, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					status := 0
					switch _, err := fmt.Sscanf(r.URL.Path, "/%d", &status); {
					case err == nil:
						w.WriteHeader(status)
					case r.URL.Path == "/half":
						w.Header().Set("Content-Length", "10")
						io.WriteString(w, "half")
					case r.URL.Path == "/none":
						panic(http.ErrAbortHandler)
					default:
						io.Copy(io.Discard, r.Body)
						began <- true
						<-r.Context().Done()
					}
				}))
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				r, err := http.NewRequestWithContext(ctx, method, front.URL+c.path, nil)
				if method == http.MethodPost {
					r, err = http.NewRequestWithContext(ctx, method, front.URL+c.path, strings.NewReader("a body"))
				}
				if err != nil {
					t.Fatal(err)
				}
				go func() { <-began; cancel() }()
				if resp, err := http.DefaultClient.Do(r); err == nil {
					io.Copy(io.Discard, resp.Body)
					resp.Body.Close()
				}
				close(began)
				until(t, func() bool { return fmt.Sprint(targetsOf(g)[0].Adaptive.Outcomes) != "{0 0 0 0}" })
				if got := settled(t, g); got != c.want {
					t.Errorf("ok, ignored, dropped, refused: %s, want %s", got, c.want)
				}
			})
		}
	}
}

// TestAdaptiveUpgrade: a connection that switches to another protocol leaves the adaptive limits, as it may
// last for hours without being work.
func TestAdaptiveUpgrade(t *testing.T) {
	g, front, _ := start(t, `
upstreams: { app: { url: "URL", adaptive: {} } }
routes: [{ match: /, upstream: app, adaptive: {} }]
`, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		conn, rw, err := http.NewResponseController(w).Hijack()
		if err != nil {
			return
		}
		defer conn.Close()
		rw.WriteString("HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: chat\r\n\r\n")
		rw.Flush()
		_, _ = rw.ReadByte() // until the client leaves
	}))
	r, err := http.NewRequest(http.MethodGet, front.URL, nil)
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Connection", "Upgrade")
	r.Header.Set("Upgrade", "chat")
	resp, err := http.DefaultTransport.RoundTrip(r)
	if err != nil || resp.StatusCode != http.StatusSwitchingProtocols {
		t.Fatal(resp, err)
	}
	defer resp.Body.Close()
	if got := settled(t, g); got != "{1 0 0 0}" {
		t.Errorf("of the upstream: %s", got)
	}
	if a := g.Engine().AdaptiveCounts()[0]; a.InFlight != 0 || a.Outcomes.OK != 1 {
		t.Errorf("of the route: %+v", a)
	}
	if n := targetsOf(g)[0].InFlight; n != 1 {
		t.Errorf("%d connections are open, want 1", n)
	}
}

// TestSlowTargetShedsNothing: while one target has no place, all requests go to the other one.
func TestSlowTargetShedsNothing(t *testing.T) {
	leave := make(chan bool)
	var stuck, open atomic.Int64
	slow := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { stuck.Add(1); <-leave }))
	defer slow.Close()
	defer close(leave)
	g, front, _ := start(t, strings.ReplaceAll(`
upstreams: { app: { targets: ["URL", "SLOW"], adaptive: { knee: { initial: 2, max: 2 } } } }
routes: [{ match: /, upstream: app }]
`, "SLOW", slow.URL), http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	until(t, func() bool { // the fast one gets some of them
		if stuck.Load() < 2 {
			open.Add(1)
			go func() { _, _ = http.Get(front.URL); open.Add(-1) }()
		}
		return stuck.Load() == 2
	})
	until(t, func() bool { return open.Load() == 2 && targetsOf(g)[0].Adaptive.InFlight == 0 })
	before := g.Counts().Overloaded
	for i := range 50 {
		if got := told(t, front.URL); got != "200" {
			t.Fatalf("request %d beside a slow target: %s", i, got)
		}
	}
	if n := g.Counts().Overloaded - before; n != 0 {
		t.Errorf("%d requests were refused", n)
	}
}

// TestPriorityHeader: a header with the priority goes on to the upstream if a trusted proxy sent it, and is
// removed from the requests of all others.
func TestPriorityHeader(t *testing.T) {
	for trusted, want := range map[string]string{"": "", "trusted_proxies: [127.0.0.1, \"::1\"]": "critical_plus"} {
		_, front, _ := start(t, trusted+`
priorities: { header: X-Priority }
upstreams: { app: { url: "URL", adaptive: {} } }
routes: [{ match: /, upstream: app }]
`, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { io.WriteString(w, r.Header.Get("X-Priority")) }))
		r, err := http.NewRequest(http.MethodGet, front.URL, nil)
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("X-Priority", "critical_plus")
		if _, body := do(t, r); body != want {
			t.Errorf("with %q the upstream got %q, want %q", trusted, body, want)
		}
	}
}

// TestAdaptiveFallback: a spare upstream that responded 503 to refused requests counted as one that had served
// them, and fast.
func TestAdaptiveFallback(t *testing.T) {
	spare := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		status, _ := strconv.Atoi(r.URL.Path[1:])
		w.WriteHeader(status)
	}))
	defer spare.Close()
	for _, method := range []string{http.MethodGet, http.MethodPost} {
		g, front, _ := start(t, strings.ReplaceAll(`
limits: { first: { token_bucket: { rate: 1/h, burst: 1 } } }
upstreams: { app: { url: "URL" }, spare: { url: "SPARE", adaptive: { knee: { initial: 2 } } } }
routes: [{ match: /, upstream: app, limits: [first], refused: { upstream: spare } }]
`, "SPARE", spare.URL), http.NotFoundHandler())
		told(t, front.URL) // the limit admits it
		for _, status := range []int{200, 503, 404, 429, 200} {
			r, err := http.NewRequest(method, front.URL+"/"+fmt.Sprint(status), strings.NewReader("a body"))
			if err != nil {
				t.Fatal(err)
			}
			if resp, _ := do(t, r); resp.StatusCode != status {
				t.Errorf("%s: %d, want %d", method, resp.StatusCode, status)
			}
		}
		var got string
		until(t, func() bool {
			for _, u := range g.Upstreams() {
				if a := u.Targets[0].Adaptive; a.On {
					got = fmt.Sprint(a.Outcomes, a.InFlight)
				}
			}
			return strings.HasSuffix(got, " 0")
		})
		if got != "{3 0 2 0} 0" {
			t.Errorf("%s: ok, ignored, dropped, refused, in flight: %s", method, got)
		}
	}
}

// TestAdaptiveGRPC: a gRPC server says that it is overloaded with 200 and a status of its own, which counted as a
// request that was served, and fast.
func TestAdaptiveGRPC(t *testing.T) {
	for status, want := range map[string]string{"0": "{1 0 0 0}", "5": "{1 0 0 0}", "8": "{0 0 1 0}", "14": "{0 0 1 0}", "4": "{0 0 1 0}", "1": "{0 1 0 0}"} {
		for _, where := range []string{"header", "announced trailer", "trailer"} {
			g, front, _ := start(t, `
upstreams: { app: { url: "URL", adaptive: {} } }
routes: [{ match: /, upstream: app }]
`, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				w.Header().Set("Content-Type", "application/grpc+proto")
				name := "Grpc-Status"
				switch where {
				case "header":
					w.Header().Set(name, status)
					return
				case "announced trailer":
					w.Header().Set("Trailer", name)
				default:
					name = http.TrailerPrefix + name
				}
				w.(http.Flusher).Flush()
				w.Header().Set(name, status)
			}))
			resp, err := http.Post(front.URL+"/a.B/C", "application/grpc", strings.NewReader("a message"))
			if err != nil {
				t.Fatal(err)
			}
			io.Copy(io.Discard, resp.Body)
			resp.Body.Close()
			if got := resp.Header.Get("Grpc-Status") + resp.Trailer.Get("Grpc-Status"); got != status {
				t.Errorf("the client got the status %q, want %q", got, status)
			}
			if got := settled(t, g); got != want {
				t.Errorf("status %s in the %s: ok, ignored, dropped, refused: %s, want %s", status, where, got, want)
			}
		}
	}
}
