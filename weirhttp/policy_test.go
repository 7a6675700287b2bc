package weirhttp_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"reflect"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirflow/weir"
	"github.com/weirflow/weir/policy"
	"github.com/weirflow/weir/weirhttp"
	"github.com/weirflow/weir/weirtest"
)

// withPolicy puts a policy in front of a handler.
func withPolicy(t testing.TB, p policy.Policy, next http.Handler, options ...weirhttp.Option) (http.Handler, *policy.Engine) {
	t.Helper()
	engine, err := policy.New(p, policy.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { engine.Close() })
	limit, err := weirhttp.Policy(engine, options...)
	if err != nil {
		t.Fatal(err)
	}
	return limit(next), engine
}

// hourly is a limit of n per hour, which refills nothing that a test would notice.
func hourly(name string, n int64, key ...string) policy.Limit {
	return policy.Limit{Name: name, Key: key, Limit: weir.FixedWindow{Limit: n, Window: time.Hour}}
}

// to is a request for a path, from one client.
func to(path string, header ...string) *http.Request {
	r := httptest.NewRequest("GET", path, nil)
	for i := 0; i < len(header); i += 2 {
		r.Header.Add(header[i], header[i+1])
	}
	return r
}

// TestPolicy: routes, limits that are charged all or none, and what the refused get.
func TestPolicy(t *testing.T) {
	busy := hourly("busy", 1, "client.ip")
	busy.Status = 503
	h, engine := withPolicy(t, policy.Policy{
		Headers: []string{policy.HeaderRateLimit, policy.HeaderXRateLimit},
		Limits:  []policy.Limit{hourly("many", 5, "client.ip"), hourly("few", 2, "query.sku"), busy, hourly("away", 1)},
		Routes: []policy.Route{
			{Match: "/both", Limits: []string{"many", "few"}},
			{Match: "/busy", Limits: []string{"busy"}},
			{Match: "/sold", Limits: []string{"away"}, Refused: policy.Refused{Redirect: "/wait"}},
			{Match: "/free/"},
		},
	}, ok)
	for i, c := range []struct {
		path, accept string
		status       int
		fields       map[string]string
	}{
		{"/both?sku=1", "", 200, map[string]string{"Ratelimit": `"many";r=4;t=3600, "few";r=1;t=3600`, "X-Ratelimit-Limit": "2"}},
		{"/both?sku=1", "", 200, nil},
		{"/both?sku=1", "application/json", 429, map[string]string{"Content-Type": "application/problem+json", "Retry-After": "3600"}},
		{"/both?sku=1", "", 429, nil},
		{"/both?sku=2", "", 200, map[string]string{"X-Ratelimit-Remaining": "1"}},
		{"/both?sku=3", "", 200, map[string]string{"Ratelimit-Policy": `"many";q=5;w=3600, "few";q=2;w=3600`}},
		{"/both?sku=4", "", 200, nil}, // the refused have taken none of the 5
		{"/both?sku=5", "", 429, map[string]string{"X-Ratelimit-Limit": "5"}},
		{"/busy", "", 200, nil},
		{"/busy", "", 503, map[string]string{"Content-Type": "text/plain; charset=utf-8", "Cache-Control": "no-store"}},
		{"/sold", "", 200, nil},
		{"/sold", "", 302, map[string]string{"Location": "/wait"}},
		{"/free/x", "", 200, map[string]string{"Ratelimit": ""}},
		{"/unknown", "", 404, nil},
	} {
		rec := httptest.NewRecorder()
		h.ServeHTTP(rec, to(c.path, "Accept", c.accept))
		if rec.Code != c.status {
			t.Errorf("%d: %s: %d, want %d", i, c.path, rec.Code, c.status)
		}
		for name, want := range c.fields {
			got := rec.Header().Get(name)
			if name == "Ratelimit" && i == 0 { // the rest of an hour, by the wall clock
				got = got[:len(`"many";r=4;t=`)] + "3600" + got[strings.Index(got, ","):strings.LastIndex(got, "=")] + "=3600"
			}
			if name == "Retry-After" {
				got = map[bool]string{true: "3600"}[got != ""]
			}
			if got != want {
				t.Errorf("%d: %s: %s: %s, want %s", i, c.path, name, got, want)
			}
		}
	}
	if n := engine.Counts()[0]; n.Allowed != 5 || n.Limited != 1 {
		t.Errorf("%+v", n)
	}
	h, _ = withPolicy(t, policy.Policy{Limits: []policy.Limit{hourly("a", 1)}, Routes: []policy.Route{{Match: "/a", Limits: []string{"a"}}}}, ok, weirhttp.PassUnmatched())
	if got := []int{status(h, to("/a")), status(h, to("/a")), status(h, to("/b"))}; fmt.Sprint(got) != "[200 429 200]" {
		t.Errorf("%v", got)
	}
}

// TestPolicyInvalid: a 400 says what is wrong with the request.
func TestPolicyInvalid(t *testing.T) {
	sized := hourly("sized", 5, "client.ip")
	sized.Cost = "header.X-Cost"
	h, _ := withPolicy(t, policy.Policy{
		Limits: []policy.Limit{sized},
		Routes: []policy.Route{{Match: "POST /checkout", Limits: []string{"sized"}}, {Match: "/"}},
	}, ok)
	for _, c := range []struct{ path, cost, want string }{
		{"/checkout", "many", "cost"},
		{"/checkout", "0", "cost"},
		{"/checkout%23a", "1", "path"},
	} {
		r := to(c.path, "X-Cost", c.cost)
		r.Method = "POST"
		rec := httptest.NewRecorder()
		h.ServeHTTP(rec, r)
		if got := rec.Body.String(); rec.Code != 400 || !strings.Contains(got, c.want) || strings.Contains(got, "path") == strings.Contains(got, "cost") {
			t.Errorf("%s with cost %s: %d %q, want a text about the %s", c.path, c.cost, rec.Code, got, c.want)
		}
	}
}

// TestPolicyClients: what a client writes of its address and its rights counts only if a trusted
// proxy has sent it.
func TestPolicyClients(t *testing.T) {
	exempt := hourly("exempt", 1, "client.ip")
	exempt.Exempt = []string{"header.x-internal=yes"}
	h, _ := withPolicy(t, policy.Policy{
		TrustedProxies: []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")},
		Limits:         []policy.Limit{hourly("ip", 1, "client.ip"), hourly("real", 1, "header.x-real-ip"), exempt},
		Routes:         []policy.Route{{Match: "/ip", Limits: []string{"ip"}}, {Match: "/real", Limits: []string{"real"}}, {Match: "/exempt", Limits: []string{"exempt"}}},
	}, ok)
	for i, c := range []struct {
		path, peer, field, value string
		want                     int
	}{
		{"/ip", "1.1.1.1:1", "X-Forwarded-For", "7.7.7.7", 200},
		{"/ip", "1.1.1.1:1", "X-Forwarded-For", "8.8.8.8", 429},
		{"/ip", "10.0.0.1:1", "X-Forwarded-For", "8.8.8.8", 200},
		{"/ip", "10.0.0.1:1", "X-Forwarded-For", "9.9.9.9, 8.8.8.8", 429},
		{"/ip", "[2001:db8::1]:1", "", "", 200},
		{"/ip", "[2001:db8::2]:1", "", "", 429},
		{"/real", "1.1.1.1:1", "X-Real-Ip", "7.7.7.7", 200},
		{"/real", "1.1.1.1:1", "X-Real-Ip", "8.8.8.8", 429},
		{"/real", "10.0.0.1:1", "X-Real-Ip", "8.8.8.8", 200},
		{"/exempt", "1.1.1.1:1", "X-Internal", "yes", 200},
		{"/exempt", "1.1.1.1:1", "X-Internal", "yes", 429},
		{"/exempt", "10.0.0.1:1", "X-Internal", "yes", 200},
		{"/exempt", "10.0.0.1:1", "X-Internal", "yes", 200},
	} {
		r := to(c.path, c.field, c.value)
		r.RemoteAddr = c.peer
		if got := status(h, r); got != c.want {
			t.Errorf("%d: %+v: %d", i, c, got)
		}
	}
}

// TestPolicyPlaces: places are given back when handlers return and when they panic, and requests
// wait for them.
func TestPolicyPlaces(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, engine := withPolicy(t, policy.Policy{
			Limits: []policy.Limit{{Name: "at-once", Limit: weir.Concurrency{Limit: 1, Queue: 5}}},
			Routes: []policy.Route{{Match: "/", Limits: []string{"at-once"}, Waiting: policy.Waiting{Max: 2}}},
		}, http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
			<-time.After(time.Second)
			if r.URL.Path == "/panic" {
				panic("a mistake")
			}
		}))
		for range 3 {
			func() {
				defer func() { _ = recover() }()
				status(h, to("/panic"))
			}()
		}
		began := time.Now()
		got := make(chan string, 5)
		ctx, leave := context.WithCancel(t.Context())
		for i := range 4 {
			r := to("/")
			if i == 1 {
				r = r.WithContext(ctx)
			}
			go func() { got <- fmt.Sprintf("%d: %d after %v", i, status(h, r), time.Since(began)) }()
			synctest.Wait()
		}
		leave()
		// 2 waited, one of them left, and the fourth found the queue full
		for _, want := range []string{"3: 429 after 0s", "1: 503 after 0s", "0: 200 after 1s", "2: 200 after 2s"} {
			if line := <-got; line != want {
				t.Errorf("%s, want %s", line, want)
			}
		}
		if n := engine.Counts()[0]; n.Held != 0 || n.Outcomes.Dropped != 3 {
			t.Errorf("%+v", n)
		}
	})
}

// TestPolicyQueue: requests wait in the queue of a limit.
func TestPolicyQueue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		var waited []time.Duration
		h, _ := withPolicy(t, policy.Policy{
			Limits: []policy.Limit{{Name: "queue", Limit: weir.LeakyBucket{Rate: weir.PerSecond(1), Queue: 2}}},
			Routes: []policy.Route{{Match: "/", Limits: []string{"queue"}}},
		}, ok, weirhttp.Observe(func(m weirhttp.Response) {
			mu.Lock()
			defer mu.Unlock()
			if m.Outcome == policy.Allow {
				waited = append(waited, m.Waited)
			}
		}))
		got := make(chan int, 4)
		for range 4 {
			go func() { got <- status(h, to("/")) }()
			synctest.Wait()
		}
		codes := []int{<-got, <-got, <-got, <-got}
		if fmt.Sprint(codes, waited) != "[200 429 200 200] [0s 1s 2s]" {
			t.Errorf("%v, %v", codes, waited)
		}
	})
}

// TestPolicyBodies: a body is bounded by its route, and one without a length is charged by what was
// read of it.
func TestPolicyBodies(t *testing.T) {
	bytes := policy.Limit{Name: "bytes", Limit: weir.TokenBucket{Rate: weir.PerHour(1), Burst: 100}, Cost: "bytes"}
	var last error
	h, _ := withPolicy(t, policy.Policy{
		Limits: []policy.Limit{bytes},
		Routes: []policy.Route{{Match: "/", Limits: []string{"bytes"}, MaxBody: 50}},
	}, http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { _, last = io.ReadAll(r.Body) }))
	for i, c := range []struct {
		size    int
		unknown bool
		want    int
		fails   bool
	}{{51, false, 413, false}, {51, true, 200, true}, {30, true, 200, false}, {20, false, 200, false}, {1, false, 429, false}} {
		last = nil
		var body io.Reader = strings.NewReader(strings.Repeat("x", c.size))
		if c.unknown {
			body = io.MultiReader(body)
		}
		r := httptest.NewRequest("POST", "/", body)
		if got := status(h, r); got != c.want || (last != nil) != c.fails {
			t.Errorf("%d: %+v: %d, %v", i, c, got, last)
		}
	}
}

// TestPolicyLog: limits with a log write lines, and the client is in none of them.
func TestPolicyLog(t *testing.T) {
	l := hourly("logged", 1, "client.ip")
	l.Log = "error"
	var out bytes.Buffer
	h, _ := withPolicy(t, policy.Policy{Limits: []policy.Limit{l}, Routes: []policy.Route{{Match: "/", Limits: []string{"logged"}}}}, ok,
		weirhttp.Log(slog.New(slog.NewTextHandler(&out, nil))))
	status(h, to("/"))
	status(h, to("/"))
	if got := out.String(); strings.Count(got, "\n") != 1 || !strings.Contains(got, "level=ERROR") || !strings.Contains(got, "limiting requests") || strings.Contains(got, "192.0.2.1") {
		t.Error(got)
	}
}

// TestUnsupported: every setting that a handler cannot carry out is an error, and all are named.
func TestUnsupported(t *testing.T) {
	l := hourly("a", 1)
	base := func() policy.Policy {
		return policy.Policy{Limits: []policy.Limit{l}, Routes: []policy.Route{{Match: "/", Limits: []string{"a"}}}}
	}
	for name, set := range map[string]func(p *policy.Policy, r *policy.Route){
		"listen":     func(p *policy.Policy, _ *policy.Route) { p.Listen.Admin = "127.0.0.1:1" },
		"admin":      func(p *policy.Policy, _ *policy.Route) { p.Admin.TokenFile = "token" },
		"access_log": func(p *policy.Policy, _ *policy.Route) { p.AccessLog.File = "stdout" },

		"decision_log": func(p *policy.Policy, _ *policy.Route) { p.DecisionLog.On = true },
		"limits.a": func(p *policy.Policy, _ *policy.Route) {
			p.Stores = []policy.Store{{Name: "s", URL: "redis://a"}}
			p.Limits[0].Store = "s"
		},
		"limits.a.log":       func(p *policy.Policy, _ *policy.Route) { p.Limits[0].Log = "warn" },
		"upstream":           func(p *policy.Policy, r *policy.Route) { r.Upstream = "up" },
		"respond":            func(_ *policy.Policy, r *policy.Route) { r.Respond.Status = 204 },
		"add_headers":        func(_ *policy.Policy, r *policy.Route) { r.AddHeaders = []policy.AddHeader{{Name: "A", Value: "b"}} },
		"address":            func(_ *policy.Policy, r *policy.Route) { r.Address = []string{":80"} },
		"refused.stale":      func(_ *policy.Policy, r *policy.Route) { r.Refused.Stale = time.Second; r.Upstream = "up" },
		"refused.upstream":   func(_ *policy.Policy, r *policy.Route) { r.Refused.Upstream = "up" },
		"refused.file":       func(_ *policy.Policy, r *policy.Route) { r.Refused.File = "a.html" },
		"failed":             func(_ *policy.Policy, r *policy.Route) { r.Failed.Status = 503; r.Upstream = "up" },
		"upstream_path":      func(_ *policy.Policy, r *policy.Route) { r.UpstreamPath = "/a"; r.Upstream = "up" },
		"underscore_headers": func(_ *policy.Policy, r *policy.Route) { r.UnderscoreHeaders = policy.UnderscoreAllow },
		"buffer_request":     func(_ *policy.Policy, r *policy.Route) { r.BufferRequest.Off = true; r.Upstream = "up" },
		"hold":               func(_ *policy.Policy, r *policy.Route) { r.Hold = policy.HoldUntilUpstreamEnds; r.Upstream = "up" },
	} {
		p := base()
		p.Limits = append([]policy.Limit{}, p.Limits...)
		p.Upstreams = []policy.Upstream{{Name: "up", URL: "http://127.0.0.1:1"}}
		set(&p, &p.Routes[0])
		engine, err := policy.New(p, policy.Options{})
		if err != nil {
			t.Errorf("%s: the policy itself: %v", name, err)
			continue
		}
		_, err = weirhttp.Policy(engine)
		if err == nil || !strings.Contains(err.Error(), name+":") && !strings.Contains(err.Error(), "."+name+":") {
			t.Errorf("%s: %v", name, err)
		}
		engine.Close()
	}
	engine, err := policy.New(base(), policy.Options{Stores: map[string]weir.Store{"s": weirtest.NewStore(nil)}})
	if err != nil {
		t.Fatal(err)
	}
	defer engine.Close()
	if _, err := weirhttp.Policy(engine, weirhttp.Name("a"), weirhttp.Shadow()); err == nil || !strings.Contains(err.Error(), "Name") || !strings.Contains(err.Error(), "Shadow") {
		t.Error(err)
	}
	if _, err := weirhttp.Policy(nil); err == nil {
		t.Error("an engine that is nil")
	}
}

// TestRefusedByDefault: the handler responds for routes without a refused of their own, also to limits with
// a status.
func TestRefusedByDefault(t *testing.T) {
	busy := hourly("busy", 1)
	busy.Status = 503
	h, _ := withPolicy(t, policy.Policy{
		Limits: []policy.Limit{hourly("a", 1), busy, hourly("own", 1)},
		Routes: []policy.Route{{Match: "/a", Limits: []string{"a"}}, {Match: "/busy", Limits: []string{"busy"}}, {Match: "/own", Limits: []string{"own"}, Refused: policy.Refused{Status: 420}}},
	}, ok, weirhttp.RefusedByDefault(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		m, _ := weirhttp.ResponseFrom(r.Context())
		w.WriteHeader(430 + m.Route)
	})))
	for path, want := range map[string]int{"/a": 430, "/busy": 431, "/own": 420} {
		for _, want := range []int{200, want} {
			w := httptest.NewRecorder()
			h.ServeHTTP(w, httptest.NewRequest(http.MethodGet, path, nil))
			if w.Code != want || (w.Header().Get("Retry-After") == "") != (want == 200) {
				t.Errorf("%s: %d %v, want %d", path, w.Code, w.Header(), want)
			}
		}
	}
}

// TestSettingsAreSorted: for each setting of a policy, a developer has decided whether a handler can
// carry it out. See notForHandlers.
func TestSettingsAreSorted(t *testing.T) {
	for _, c := range []struct {
		of      any
		decided string
	}{
		{policy.Policy{}, "Listen Admin AccessLog DecisionLog TrustedProxies ClientHeader Paths Headers Stores Plans Warnings Priorities SnapshotFile Limits Upstreams Rooms Routes"},
		{policy.Route{}, "Match Address Upstream UpstreamPath AddHeaders Respond Room Limits Adaptive Priority Refused Failed Waiting MaxBody UnderscoreHeaders Hold BufferRequest Paths Parameters"},
		{policy.Refused{}, "Stale Upstream Status Body File Redirect Type"},
	} {
		decided := strings.Fields(c.decided)
		fields := reflect.VisibleFields(reflect.TypeOf(c.of))
		for i, f := range fields {
			if i >= len(decided) || f.Name != decided[i] {
				t.Errorf("%T.%s: decide in notForHandlers whether a handler can carry it out, and name it here", c.of, f.Name)
				break
			}
		}
	}
}
