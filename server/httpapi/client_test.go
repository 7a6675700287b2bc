package httpapi

import (
	"context"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/weirflow/weir"
	"github.com/weirflow/weir/failover"
	"github.com/weirflow/weir/lease"
	"github.com/weirflow/weir/weirclient"
	"github.com/weirflow/weir/weirtest"
)

// TestClientVerbs: each verb of the client does what its name says.
func TestClientVerbs(t *testing.T) {
	s := serve(t, limits, "", nil)
	c, ctx := s.client(weirclient.Options{}), t.Context()
	for i := range 3 {
		if ok, err := c.Allow(ctx, "per-ip", "192.0.2.1"); err != nil || ok != (i < 2) {
			t.Errorf("%d: %v %v", i, ok, err)
		}
	}
	a, err := c.Take(ctx, weirclient.Ask{Limit: "per-user", Key: []string{"a"}, Cost: 2}, weirclient.Ask{Limit: "per-ip", Key: []string{"192.0.2.1"}})
	if err != nil || a.Allowed || a.Limit != "per-ip" || a.RetryAfter <= 59*time.Minute || len(a.Limits) != 2 || a.Limits[1].Allowed || a.Limits[1].By != "per-ip" {
		t.Errorf("%+v %v", a, err)
	}
	if a, err = c.Take(ctx, weirclient.Ask{Limit: "per-user", Key: []string{"a"}, Cost: 6}); err != nil || a.Allowed || a.RetryAfter != weir.Never {
		t.Errorf("%+v %v", a, err)
	}
	if a, err = c.Peek(ctx, weirclient.Ask{Limit: "per-user", Key: []string{"a"}}); err != nil || !a.Allowed || a.Limits[0].Remaining != 5 || a.Limits[0].Limit != 5 || a.Limits[0].Window != 5*time.Hour {
		t.Errorf("%+v %v", a, err)
	}
	left := func() int64 {
		a, err := c.Peek(ctx, weirclient.Ask{Limit: "per-user", Key: []string{"a"}})
		if err != nil {
			t.Fatal(err)
		}
		return a.Limits[0].Remaining
	}
	r, err := c.Reserve(ctx, weirclient.ReserveOptions{Hold: time.Minute}, weirclient.Ask{Limit: "per-user", Key: []string{"a"}, Cost: 4})
	if err != nil || !r.Allowed || left() != 1 || time.Until(r.ExpiresAt) > time.Minute || time.Until(r.ExpiresAt) < 0 {
		t.Fatalf("%+v %v", r, err)
	}
	for range 2 { // the second one does nothing
		if err := r.Settle(ctx, 1); err != nil || left() != 4 {
			t.Errorf("%v, %d left", err, left())
		}
	}
	r, err = c.Reserve(ctx, weirclient.ReserveOptions{MaxDelay: time.Hour}, weirclient.Ask{Limit: "per-user", Key: []string{"a"}, Cost: 5})
	if err != nil || !r.Allowed || r.Delay < 50*time.Minute {
		t.Fatalf("%+v %v", r, err)
	}
	if err := errors.Join(r.Cancel(ctx), r.Settle(ctx, 5)); err != nil || left() != 4 {
		t.Errorf("%v, %d left", err, left())
	}
	if r, err = c.Reserve(ctx, weirclient.ReserveOptions{}, weirclient.Ask{Limit: "per-user", Key: []string{"a"}, Cost: 5}); err != nil || r.Allowed || r.Cancel(ctx) != nil {
		t.Errorf("%+v %v", r, err)
	}
	results, err := c.Batch(ctx, weirclient.Call{Asks: []weirclient.Ask{{Limit: "per-user", Key: []string{"b"}}}}, weirclient.Call{Peek: true, Asks: []weirclient.Ask{{Limit: "per-user", Key: []string{"b"}, Cost: 5}}}, weirclient.Call{Asks: []weirclient.Ask{{Limit: "none"}}})
	var wrong *weirclient.Error
	if err != nil || !results[0].Allowed || results[1].Allowed || !errors.As(results[2].Err, &wrong) || wrong.Status != 404 || wrong.Field != "limits[0].limit" {
		t.Errorf("%+v %v", results, err)
	}
	used, err := c.Usage(ctx, "per-user", "b")
	if err != nil || len(used) != 1 || used[0].Used != 1 || used[0].Remaining != 4 {
		t.Errorf("%+v %v", used, err)
	}
	x, err := c.Explain(ctx, "per-ip", "192.0.2.1")
	if err != nil || x.Allowed || x.DecidedBy != "limit" || x.Algorithm != "token_bucket" || x.Parameters["burst"] != "2" || x.Text == "" || !strings.HasPrefix(x.Arithmetic, "2 of 2 used, so 0 left") {
		t.Errorf("%+v %v", x, err)
	}
	if len(x.Refusals) == 0 || x.Refusals[0].Capacity != 2 || x.Refusals[0].Remaining != 0 || x.Refusals[0].RetryAfter <= 0 || time.Since(x.Refusals[0].At) > time.Hour {
		t.Errorf("%+v", x.Refusals)
	}
}

// TestClientErrors: an error says what is wrong and what to do.
func TestClientErrors(t *testing.T) {
	s := serve(t, limits, "", nil)
	_, err := s.client(weirclient.Options{}).Allow(t.Context(), "per-usr", "a")
	if got := fmt.Sprint(err); got != `weirclient: take: limits[0].limit: there is no limit "per-usr" (did you mean "per-user"?) [404]` {
		t.Error(got)
	}
	for address, o := range map[string]weirclient.Options{
		"127.0.0.1:8082": {}, "ftp://x": {}, "http://x/?a=b": {}, "": {}, "http://u:p@x": {},
		"http://limits.example": {Token: "t"},
	} {
		if _, err := weirclient.New(address, o); err == nil {
			t.Errorf("%s: no error", address)
		}
	}
	c, _ := weirclient.New("http://127.0.0.1:1", weirclient.Options{})
	defer c.Close()
	if _, err := c.Allow(t.Context(), "per-user", "a"); !errors.Is(err, weirclient.ErrUnavailable) || !strings.Contains(err.Error(), "is weir serve running") {
		t.Errorf("%v", err)
	}
	other := httptest.NewServer(http.NotFoundHandler())
	defer other.Close()
	c, _ = weirclient.New(other.URL, weirclient.Options{})
	defer c.Close()
	if _, err := c.Allow(t.Context(), "per-user", "a"); err == nil || !strings.Contains(err.Error(), "not that of a limit service") {
		t.Errorf("%v", err)
	}
	silent, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer silent.Close()
	c, _ = weirclient.New("http://"+silent.Addr().String(), weirclient.Options{Timeout: 50 * time.Millisecond})
	defer c.Close()
	if _, err := c.Allow(t.Context(), "per-user", "a"); !errors.Is(err, weirclient.ErrUnavailable) || !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("%v", err)
	}
}

// TestClientRetries: a call whose response was lost is sent again, and is charged once.
func TestClientRetries(t *testing.T) {
	s := serve(t, limits, ", client_limits: {}", nil)
	target, _ := url.Parse(s.url(""))
	var calls atomic.Int64
	proxy := &httputil.ReverseProxy{Rewrite: func(r *httputil.ProxyRequest) { r.SetURL(target); r.Out.Host = "" }}
	proxy.ModifyResponse = func(*http.Response) error {
		switch calls.Add(1) % 3 {
		case 1:
			panic(http.ErrAbortHandler) // the response is lost
		case 2:
			return errors.New("a bad gateway")
		}
		return nil
	}
	proxy.ErrorHandler = func(w http.ResponseWriter, _ *http.Request, _ error) { w.WriteHeader(http.StatusBadGateway) }
	lossy := httptest.NewServer(proxy)
	defer lossy.Close()
	c, err := weirclient.New(lossy.URL, weirclient.Options{Retries: 2, Timeout: time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	shared, err := weir.NewShared(weir.TokenBucket{Rate: weir.PerHour(1), Burst: 100}, c.Store(), weir.Named("own"))
	if err != nil {
		t.Fatal(err)
	}
	for range 4 {
		if ok, err := c.Allow(t.Context(), "monthly", "a", "api"); err != nil || !ok {
			t.Errorf("%v %v", ok, err)
		}
		if d, err := shared.Take(t.Context(), "a", 10); err != nil || !d.Allowed {
			t.Errorf("%+v %v", d, err)
		}
	}
	direct := s.client(weirclient.Options{})
	used, err := direct.Usage(t.Context(), "monthly", "a", "api")
	if err != nil || used[0].Used != 4 {
		t.Errorf("%+v %v", used, err)
	}
	if d, err := shared.Peek(t.Context(), "a", 1); err != nil || d.Remaining != 60 || calls.Load() != 27 {
		t.Errorf("%+v %v after %d calls", d, err, calls.Load())
	}
	if c, err = weirclient.New(lossy.URL, weirclient.Options{Retries: -1}); err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if _, err := c.Allow(t.Context(), "monthly", "a", "api"); !errors.Is(err, weirclient.ErrUnavailable) {
		t.Errorf("without retries: %v", err)
	}
}

// TestClientOverTLS: the client's token and certificates; a token without the scope brings no limits.
func TestClientOverTLS(t *testing.T) {
	up := httptest.NewTLSServer(nil) // for its certificate
	up.Close()
	s := serve(t, limits, ", client_limits: {}, tokens: tokens.yaml", map[string]string{"tokens.yaml": fmt.Sprintf("- { name: one, sha256: %x, scopes: [take] }\n- { name: two, sha256: %x, scopes: [charge] }\n", sha256.Sum256([]byte("token-one")), sha256.Sum256([]byte("token-two")))})
	front := httptest.NewUnstartedServer(s)
	front.EnableHTTP2 = true
	front.StartTLS()
	defer front.Close()
	roots := x509.NewCertPool()
	roots.AddCert(front.Certificate())
	client := func(token string) *weirclient.Client {
		c, err := weirclient.New(front.URL, weirclient.Options{TLS: &tls.Config{RootCAs: roots}, TokenFunc: func(context.Context) (string, error) { return token, nil }})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { c.Close() })
		return c
	}
	if ok, err := client("token-one").Allow(t.Context(), "per-user", "a"); !ok || err != nil {
		t.Errorf("%v %v", ok, err)
	}
	var wrong *weirclient.Error
	for token, status := range map[string]int{"token-one": 403, "token-two": 200, "token-three": 401, "": 401} {
		err := client(token).Store().Do(t.Context(), []weir.Charge{{Name: "own", Key: "a", Limit: weir.TokenBucket{Rate: weir.PerHour(1), Burst: 5}, Cost: 1}}, make([]weir.Decision, 1))
		if status == 200 && err != nil || status != 200 && (!errors.As(err, &wrong) || wrong.Status != status || errors.Is(err, weir.ErrCharge)) {
			t.Errorf("%q: %v", token, err)
		}
		if err != nil && strings.Contains(err.Error(), "token-") {
			t.Errorf("the error has the token: %v", err)
		}
	}
	c, err := weirclient.New(front.URL, weirclient.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if _, err := c.Allow(t.Context(), "per-user", "a"); err == nil || !strings.Contains(err.Error(), "certificate") {
		t.Errorf("an unknown certificate: %v", err)
	}
}

// TestClientReusesConnections: calls one after another share a connection, and a canceled one leaves no
// connection open that nobody uses.
func TestClientReusesConnections(t *testing.T) {
	s := serve(t, limits, "", nil)
	var opened atomic.Int64
	front := httptest.NewUnstartedServer(s)
	front.Config.ConnState = func(_ net.Conn, state http.ConnState) {
		if state == http.StateNew {
			opened.Add(1)
		}
	}
	front.Start()
	defer front.Close()
	c, err := weirclient.New(front.URL, weirclient.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	var wg sync.WaitGroup
	for i := range 4 {
		wg.Go(func() {
			for range 50 {
				if _, err := c.Allow(t.Context(), "per-user", fmt.Sprint(i)); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	if n := opened.Load(); n > 8 {
		t.Errorf("%d connections for 4 callers", n)
	}
}

// TestFailoverOverTheService: without the service, package failover decides by its fallback, and the
// limits are exact again when it is back.
func TestFailoverOverTheService(t *testing.T) {
	_, c, r := behind(t)
	for name, want := range map[failover.OnFailure]weir.Source{failover.Deny: weir.SourceDeny, failover.Allow: weir.SourceAllow, failover.Local: weir.SourceShare} {
		r.set(weirtest.NewStore(nil))
		back := make(chan struct{}, 16)
		store, err := failover.New(c.Store(), failover.Options{OnFailure: name, Nodes: 1, Failures: 1, Deadline: time.Minute, StartFull: true, Probe: 10 * time.Millisecond, OnTransition: func(_ string, _, to failover.State, _ error) {
			if to == failover.Closed {
				back <- struct{}{}
			}
		}})
		if err != nil {
			t.Fatal(err)
		}
		shared, err := weir.NewShared(weir.TokenBucket{Rate: weir.PerHour(1), Burst: 5}, store, weir.Named("own"))
		if err != nil {
			t.Fatal(err)
		}
		if d, err := shared.Take(t.Context(), "a", 1); err != nil || d.Source != weir.SourceStore || d.Remaining != 4 {
			t.Errorf("%v: %+v %v", name, d, err)
		}
		r.set(failing{errors.New("the store is down")})
		if d, err := shared.Take(t.Context(), "a", 1); err != nil || d.Source != want {
			t.Errorf("%v: %+v %v", name, d, err)
		}
		r.set(weirtest.NewStore(nil))
		<-back
		if d, err := shared.Take(t.Context(), "a", 1); err != nil || d.Source != weir.SourceStore {
			t.Errorf("%v: %+v %v", name, d, err)
		}
		if err := store.Close(); err != nil {
			t.Error(err)
		}
	}
}

// TestUsageOverTheService: a peek of a limit that the client brings says what is used, also beyond the limit.
func TestUsageOverTheService(t *testing.T) {
	s := serve(t, limits, ", client_limits: {}", nil)
	weirtest.Usage(t, s.client(weirclient.Options{Timeout: time.Minute}).Store(), "usage")
}

// TestLeasesOverTheService: two programs that lease from the service admit together what the limit
// admits, with fewer calls than takes.
func TestLeasesOverTheService(t *testing.T) {
	s := serve(t, limits, ", client_limits: {}", nil)
	var admitted atomic.Int64
	var leases [2]*lease.Store
	var wg sync.WaitGroup
	for i := range leases {
		var err error
		if leases[i], err = lease.New(s.client(weirclient.Options{Timeout: time.Minute}).Store(), lease.Options{}); err != nil {
			t.Fatal(err)
		}
		shared, err := weir.NewShared(weir.TokenBucket{Rate: weir.PerDay(1), Burst: 3000}, leases[i], weir.Named("own"))
		if err != nil {
			t.Fatal(err)
		}
		for range 2 {
			wg.Go(func() {
				for range 1000 {
					d, err := shared.Take(t.Context(), "a", 1)
					if err != nil {
						t.Error(err)
						return
					}
					if d.Allowed {
						admitted.Add(1)
					}
				}
			})
		}
	}
	wg.Wait()
	for _, l := range leases {
		if err := l.Close(); err != nil {
			t.Error(err)
		}
	}
	if n := admitted.Load(); n > 3000 || n < 2000 {
		t.Errorf("%d of 3000 were admitted", n)
	}
	d := make([]weir.Decision, 1)
	if err := s.client(weirclient.Options{}).Store().Do(t.Context(), []weir.Charge{{Name: "own", Key: "a", Limit: weir.TokenBucket{Rate: weir.PerDay(1), Burst: 3000}, Op: weir.OpPeek}}, d); err != nil || d[0].Remaining != 3000-admitted.Load() {
		t.Errorf("%v: %d are left after %d, all leases given back", err, d[0].Remaining, admitted.Load())
	}
	if n := leases[0].Stats().RoundTrips + leases[1].Stats().RoundTrips; n > 1000 {
		t.Errorf("%d calls for 4000 takes", n)
	}
}

// TestClientSettlesAfterAFailure: a Settle that failed leaves the reservation open for the next one,
// whatever the failure was.
func TestClientSettlesAfterAFailure(t *testing.T) {
	s := serve(t, limits, "", nil)
	target, _ := url.Parse(s.url(""))
	var broken atomic.Bool
	proxy := httputil.NewSingleHostReverseProxy(target)
	balancer := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if broken.Load() {
			w.WriteHeader(http.StatusServiceUnavailable)
			return
		}
		r.Host = ""
		proxy.ServeHTTP(w, r)
	}))
	defer balancer.Close()
	c, err := weirclient.New(balancer.URL, weirclient.Options{Retries: -1})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	cancelled, cancel := context.WithCancel(t.Context())
	cancel()
	for key, fail := range map[string]func(*weirclient.Reservation) error{
		"costs":    func(r *weirclient.Reservation) error { return r.Settle(t.Context(), 1, 2) },
		"negative": func(r *weirclient.Reservation) error { return r.Settle(t.Context(), -1) },
		"cancelled": func(r *weirclient.Reservation) error {
			err := r.Settle(cancelled, 1)
			if errors.Is(err, weirclient.ErrUnavailable) || !errors.Is(err, context.Canceled) {
				t.Errorf("a cancelled context: %v", err)
			}
			return err
		},
		"balancer": func(r *weirclient.Reservation) error {
			broken.Store(true)
			defer broken.Store(false)
			err := r.Settle(t.Context(), 1)
			if !errors.Is(err, weirclient.ErrUnavailable) {
				t.Errorf("503 of a balancer: %v", err)
			}
			return err
		},
	} {
		ask := weirclient.Ask{Limit: "per-user", Key: []string{key}, Cost: 5}
		r, err := c.Reserve(t.Context(), weirclient.ReserveOptions{}, ask)
		if err != nil || !r.Allowed {
			t.Fatalf("%s: %+v %v", key, r, err)
		}
		if fail(r) == nil {
			t.Errorf("%s: no error", key)
		}
		if err := r.Settle(t.Context(), 2); err != nil {
			t.Errorf("%s: %v", key, err)
		}
		if a, err := c.Peek(t.Context(), ask); err != nil || a.Limits[0].Remaining != 3 {
			t.Errorf("%s: %+v %v", key, a, err)
		}
	}
}
