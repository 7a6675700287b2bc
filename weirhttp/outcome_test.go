package weirhttp_test

import (
	"bufio"
	"context"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"testing"

	"github.com/weirflow/weir"
	"github.com/weirflow/weir/policy"
	"github.com/weirflow/weir/weirhttp"
)

// A holding is a middleware with ten places in flight.
type holding struct {
	wrap  func(http.Handler) http.Handler
	count func() (held int64, ended weir.Outcomes)
}

// holdings returns both middlewares. They call observed and logged while a request holds its place
// and the handler has not been called.
func holdings(t *testing.T, observed, logged func()) map[string]holding {
	c := places(t, weir.Concurrency{Limit: 10})
	engine, err := policy.New(policy.Policy{
		Limits: []policy.Limit{
			{Name: "at-once", Limit: weir.Concurrency{Limit: 10}},
			{Name: "logged", Limit: weir.Concurrency{Limit: 1}, Shadow: true, Log: "error"},
		},
		Routes: []policy.Route{{Match: "/logged", Limits: []string{"at-once", "logged"}}, {Match: "/", Limits: []string{"at-once"}}},
	}, policy.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { engine.Close() })
	observe := weirhttp.Observe(func(weirhttp.Response) { observed() })
	policed, err := weirhttp.Policy(engine, observe, weirhttp.Log(slog.New(calling{logged})))
	if err != nil {
		t.Fatal(err)
	}
	return map[string]holding{
		"Limit": {
			weirhttp.Limit(weirhttp.InFlight(c), weirhttp.Global(), observe),
			func() (int64, weir.Outcomes) { return c.Stats().Holding, c.Stats().Outcomes },
		},
		"Policy": {policed, func() (int64, weir.Outcomes) {
			n := engine.Counts()[0]
			return n.Held, n.Outcomes
		}},
	}
}

// calling is a log that calls a function for each line.
type calling struct{ f func() }

func (calling) Enabled(context.Context, slog.Level) bool    { return true }
func (c calling) Handle(context.Context, slog.Record) error { c.f(); return nil }
func (c calling) WithAttrs([]slog.Attr) slog.Handler        { return c }
func (c calling) WithGroup(string) slog.Handler             { return c }

// TestUserPanics: a function of the user that panics keeps no place, and says nothing about the
// handler.
func TestUserPanics(t *testing.T) {
	var observes, logs bool
	fail := func(on *bool) func() {
		return func() {
			if *on {
				panic("metrics")
			}
		}
	}
	for name, m := range holdings(t, fail(&observes), fail(&logs)) {
		var h http.Handler
		try := func(path string) (code int) {
			defer func() { _ = recover() }()
			return status(h, to(path))
		}
		h = m.wrap(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
			if r.URL.Path == "/logged" && !logs { // the next one is over the limit that is logged
				logs = true
				try("/logged")
			}
		}))
		observes = true
		for range 20 {
			try("/")
		}
		if held, ended := m.count(); held != 0 || ended != (weir.Outcomes{Ignored: 20}) {
			t.Errorf("%s: %d held, ended: %+v", name, held, ended)
		}
		observes, logs = false, false
		want := weir.Outcomes{Ignored: 20, OK: 2} // Limit has no log
		if name == "Policy" {
			want = weir.Outcomes{Ignored: 21, OK: 1}
		}
		if code := try("/logged"); code != 200 {
			t.Errorf("%s: then %d", name, code)
		}
		if held, ended := m.count(); held != 0 || ended != want {
			t.Errorf("%s, a log: %d held, ended: %+v", name, held, ended)
		}
	}
}

// TestClientLeavesProxy: a client that leaves says nothing about the handler, also if that panics
// then, as a reverse proxy does. A panic while the client waits counts as dropped.
func TestClientLeavesProxy(t *testing.T) {
	upstream := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/breaks" {
			w.Header().Set("Content-Length", "1000")
			return
		}
		for r.Context().Err() == nil {
			_, _ = w.Write(make([]byte, 1<<16))
		}
	}))
	defer upstream.Close()
	at, err := url.Parse(upstream.URL)
	if err != nil {
		t.Fatal(err)
	}
	proxy := httputil.NewSingleHostReverseProxy(at)
	proxy.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, slog.LevelError)
	for name, m := range holdings(t, func() {}, func() {}) {
		server := httptest.NewServer(m.wrap(proxy))
		defer server.Close()
		for i := range 5 {
			c, err := net.Dial("tcp", server.Listener.Addr().String())
			if err != nil {
				t.Fatal(err)
			}
			fmt.Fprint(c, "GET / HTTP/1.1\r\nHost: a\r\n\r\n")
			if _, err := bufio.NewReader(c).ReadString('\n'); err != nil {
				t.Error(err)
			}
			c.Close()
			until(t, func() bool { _, ended := m.count(); return ended.Ignored+ended.Dropped == uint64(i)+1 })
		}
		if resp, err := server.Client().Get(server.URL + "/breaks"); err == nil {
			resp.Body.Close()
		}
		until(t, func() bool { held, _ := m.count(); return held == 0 })
		if _, ended := m.count(); ended != (weir.Outcomes{Ignored: 5, Dropped: 1}) {
			t.Errorf("%s: %+v", name, ended)
		}
	}
}
