package upstream

import (
	"bytes"
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirflow/weir/policy"
	"github.com/weirflow/weir/server/descriptors"
)

// dialError returns an error as net returns it for a failed dial.
func dialError(call string, err error) error {
	return &net.OpError{Op: "dial", Net: "tcp", Addr: &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 9}, Err: os.NewSyscallError(call, err)}
}

// TestWhichErrorsCountAgainstATarget: a lack of this process's resources never counts against a target, and a failure
// of the target does, with both clients and in health checks.
func TestWhichErrorsCountAgainstATarget(t *testing.T) {
	unreachable := &net.OpError{Op: "dial", Net: "tcp", Addr: &net.TCPAddr{IP: net.ParseIP("fe80::1"), Port: 9},
		Err: os.NewSyscallError("connect", syscall.EADDRNOTAVAIL)}
	for name, c := range map[string]struct {
		err  error
		ours bool
	}{
		"no descriptors in the process":        {dialError("socket", syscall.EMFILE), true},
		"no descriptors in the system":         {dialError("socket", syscall.ENFILE), true},
		"no memory":                            {dialError("socket", syscall.ENOMEM), true},
		"no buffers":                           {dialError("connect", syscall.ENOBUFS), true},
		"no local ports":                       {dialError("connect", syscall.EADDRNOTAVAIL), true},
		"the reserve":                          {dialError("control", descriptors.ErrExhausted), true},
		"no descriptors for the name's lookup": {&net.DNSError{Err: "dial udp 127.0.0.1:53: socket: too many open files", Name: "a", IsTemporary: true}, true},
		"refused":                              {dialError("connect", syscall.ECONNREFUSED), false},
		"reset":                                {dialError("connect", syscall.ECONNRESET), false},
		"no route":                             {dialError("connect", syscall.EHOSTUNREACH), false},
		"timeout":                              {dialError("connect", syscall.ETIMEDOUT), false},
		"too slow":                             {context.DeadlineExceeded, false},
		"no such name":                         {&net.DNSError{Err: "no such host", Name: "a", IsNotFound: true}, false},
		"an address that is not reached":       {unreachable, false},
	} {
		for _, way := range []string{"direct", "net/http", "health check"} {
			synctest.Test(t, func(t *testing.T) {
				u := policy.Upstream{Name: "up", URL: "http://127.0.0.1:9", Health: policy.Health{Failures: 1}}
				if way == "health check" {
					u.Health = policy.Health{Path: "/healthz", DownAfter: 1, Every: time.Second}
				}
				set := NewSet(Options{Log: slog.New(slog.DiscardHandler), Dial: func(context.Context, string, string) (net.Conn, error) { return nil, c.err }})
				defer set.Close()
				change, err := set.Prepare([]Spec{{Upstream: u}})
				if err != nil {
					t.Fatal(err)
				}
				change.Commit()
				up := set.Get("up")
				switch way {
				case "direct":
					r := httptest.NewRequest(http.MethodGet, "/x", nil)
					d, ok := up.Direct(r)
					if !ok {
						t.Fatal("there is no direct way")
					}
					_, err = d.Pass(httptest.NewRecorder(), r, nil)
				case "net/http":
					_, err = up.RoundTrip(httptest.NewRequest(http.MethodPost, "http://a/x", strings.NewReader("body")))
				default:
					<-time.After(3 * time.Second) // some checks
					synctest.Wait()
				}
				var lacking *LocalError
				if way != "health check" && errors.As(err, &lacking) != c.ours {
					t.Errorf("%s, %s: %v", name, way, err)
				}
				if st := set.Stats()[0].Targets[0]; (st.Failures == 0 && st.Up) != c.ours || st.InFlight != 0 {
					t.Errorf("%s, %s: %+v", name, way, st)
				}
			})
		}
	}
}

// TestUnsendableRequests: if net/http's transport refuses to send a request, that is the request's
// fault. It is neither counted nor retried.
func TestUnsendableRequests(t *testing.T) {
	for name, spoil := range map[string]func(*http.Request){
		"a trailer's name": func(r *http.Request) { r.Trailer = http.Header{"Foo Bar": nil} },
		"a field's name":   func(r *http.Request) { r.Header["A B"] = []string{"1"} },
		"a field's value":  func(r *http.Request) { r.Header["A"] = []string{"1\n2"} },
		"the method":       func(r *http.Request) { r.Method = "GET /" },
	} {
		first, second := serve(t, good), serve(t, good)
		u := over(t, policy.Upstream{Health: policy.Health{Failures: 1, AllDown: "refuse"}}, first, second)
		for range 5 {
			r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://a/x", io.MultiReader(strings.NewReader("body")))
			if err != nil {
				t.Fatal(err)
			}
			spoil(r)
			_, err = u.RoundTrip(r)
			var request *RequestError
			if !errors.As(err, &request) {
				t.Errorf("%s: %v", name, err)
			}
		}
		if got := u.ask(t, "GET", nil); got != "200 ok" {
			t.Errorf("%s: then %s", name, got)
		}
		for _, st := range u.stats().Targets {
			if st.Failures > 0 || !st.Up || st.InFlight > 0 {
				t.Errorf("%s: %+v", name, st)
			}
		}
		if u.retried.Load()+u.spared.Load() > 0 {
			t.Errorf("%s: it was sent again", name)
		}
	}
}

// TestNotForHTTP2: a request with no form in HTTP/2 is not sent to a target that speaks it, and
// does not count against the target.
func TestNotForHTTP2(t *testing.T) {
	var protocols http.Protocols
	protocols.SetUnencryptedHTTP2(true)
	s := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, "ok") }))
	s.Config.Protocols = &protocols
	s.Start()
	defer s.Close()
	u := over(t, policy.Upstream{Protocol: "h2c", Health: policy.Health{Failures: 1, AllDown: "refuse"}}, &raw{url: s.URL})
	if u.Upgrades() {
		t.Error("HTTP/2 has no upgrades")
	}
	for name, spoil := range map[string]func(*http.Request){
		"an upgrade":   func(r *http.Request) { r.Header.Set("Upgrade", "websocket") },
		"a connection": func(r *http.Request) { r.Header.Set("Connection", "x-a") },
		"a coding":     func(r *http.Request) { r.Header["Transfer-Encoding"] = []string{"gzip"} },
		"a trailer":    func(r *http.Request) { r.Trailer = http.Header{"Content-Length": nil} },
		"a path":       func(r *http.Request) { r.URL.Opaque = "x" },
	} {
		for range 2 {
			r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://a/x", io.MultiReader(strings.NewReader("body")))
			if err != nil {
				t.Fatal(err)
			}
			spoil(r)
			resp, err := u.RoundTrip(r)
			var request *RequestError
			if err == nil {
				resp.Body.Close()
			} else if !errors.As(err, &request) {
				t.Errorf("%s: %v", name, err)
			}
		}
		if got := u.ask(t, "GET", nil); got != "200 ok" {
			t.Errorf("%s: then %s", name, got)
		}
	}
	if st := u.stats().Targets[0]; st.Failures > 0 || st.InFlight > 0 {
		t.Errorf("%+v", st)
	}
}

// TestHeaderTooLargeForTarget: the header of a request may be larger than an HTTP/2 target accepts.
func TestHeaderTooLargeForTarget(t *testing.T) {
	var protocols http.Protocols
	protocols.SetUnencryptedHTTP2(true)
	var served atomic.Int64
	s := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { served.Add(1); io.WriteString(w, "ok") }))
	s.Config.Protocols, s.Config.MaxHeaderBytes = &protocols, 1<<10
	s.Start()
	defer s.Close()
	u := over(t, policy.Upstream{Protocol: "h2c", Health: policy.Health{Failures: 1, AllDown: "refuse"}}, &raw{url: s.URL})
	if got := u.ask(t, "GET", nil); got != "200 ok" { // from now on the target's settings are known
		t.Fatal(got)
	}
	for range 3 {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://a/x", bytes.NewReader(nil))
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("X-Long", strings.Repeat("x", 32<<10))
		_, err = u.RoundTrip(r)
		var request *RequestError
		if !errors.As(err, &request) || !request.TooLarge {
			t.Errorf("%v", err)
		}
	}
	if got := u.ask(t, "GET", nil); got != "200 ok" || served.Load() != 2 {
		t.Errorf("then %s, after %d requests", got, served.Load())
	}
}
