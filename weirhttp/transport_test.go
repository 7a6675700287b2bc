package weirhttp_test

import (
	"context"
	"errors"
	"io"
	"maps"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirflow/weir"
	"github.com/weirflow/weir/keyed"
	"github.com/weirflow/weir/policy"
	"github.com/weirflow/weir/weirhttp"
	"github.com/weirflow/weir/weirtest"
)

// roundTrip is an upstream as a function.
type roundTrip func(r *http.Request) (*http.Response, error)

func (f roundTrip) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.Body != nil {
		defer r.Body.Close()
	}
	return f(r)
}

// response is a response with fields, given as name and value in turn.
func response(status int, body string, fields ...string) *http.Response {
	h := http.Header{}
	for i := 0; i < len(fields); i += 2 {
		h.Set(fields[i], fields[i+1])
	}
	return &http.Response{StatusCode: status, Header: h, Body: io.NopCloser(strings.NewReader(body)), ContentLength: int64(len(body))}
}

// after lets virtual time pass.
func after(d time.Duration) { <-time.After(d) }

func get(t *testing.T, rt http.RoundTripper, url string) (*http.Response, error) {
	t.Helper()
	return send(t.Context(), rt, url)
}

func send(ctx context.Context, rt http.RoundTripper, url string) (*http.Response, error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return nil, err
	}
	return rt.RoundTrip(r)
}

// read reads a response to its end.
func read(t *testing.T, resp *http.Response, err error) string {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

func fine(*http.Request) (*http.Response, error) { return response(200, "ok"), nil }

func limiter(t *testing.T, l weir.Limit) *weir.Limiter {
	t.Helper()
	made, err := weir.New(l, weir.Named("test"))
	if err != nil {
		t.Fatal(err)
	}
	return made
}

// TestTransportPaces: requests keep to the limit, from many goroutines, and none is lost.
func TestTransportPaces(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var sent atomic.Int64
		rt := weirhttp.NewTransport(roundTrip(func(r *http.Request) (*http.Response, error) {
			sent.Add(1)
			return fine(r)
		}), weirhttp.Pace(weirhttp.One(limiter(t, weir.TokenBucket{Rate: weir.PerSecond(10), Burst: 5})), weirhttp.Global()))
		began := time.Now()
		var all sync.WaitGroup
		for range 50 {
			all.Go(func() {
				resp, err := get(t, rt, "http://a.test/")
				read(t, resp, err)
			})
		}
		all.Wait()
		if d := time.Since(began); d != 4500*time.Millisecond || sent.Load() != 50 {
			t.Errorf("%d requests in %v, want 50 in 4.5s", sent.Load(), d)
		}
	})
}

// TestTransportAllOrNothing: a request that one limit holds back is not charged to the others, so that
// these are not used up by requests that wait.
func TestTransportAllOrNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		requests := limiter(t, weir.TokenBucket{Rate: weir.PerSecond(1000), Burst: 10})
		tokens := limiter(t, weir.FixedWindow{Limit: 10, Window: time.Minute, Align: weir.AlignFirst})
		rt := weirhttp.NewTransport(roundTrip(fine),
			weirhttp.Pace(weirhttp.One(requests), weirhttp.Global()),
			weirhttp.Pace(weirhttp.One(tokens), weirhttp.Global(), weirhttp.Cost(func(*http.Request) int64 { return 5 })))
		var all sync.WaitGroup
		began := time.Now()
		for range 6 {
			all.Go(func() {
				resp, err := get(t, rt, "http://a.test/")
				read(t, resp, err)
			})
		}
		after(time.Second)
		if d := requests.Peek(10); !d.Allowed {
			t.Error("requests that wait for tokens are charged")
		}
		all.Wait()
		if d := time.Since(began); d != 2*time.Minute {
			t.Errorf("6 requests of 5 tokens took %v, want 2m", d)
		}
	})
}

// TestTransportPlaces: a place is held until the body has been closed or read to its end, and then the
// next request goes at once. An error gives the place back too.
func TestTransportPlaces(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		places, err := keyed.NewConcurrency[string](weir.Concurrency{Limit: 1}, keyed.Options{Name: "places"})
		if err != nil {
			t.Fatal(err)
		}
		fail := false
		rt := weirhttp.NewTransport(roundTrip(func(r *http.Request) (*http.Response, error) {
			if fail {
				return nil, errors.New("no route")
			}
			return fine(r)
		}), weirhttp.Pace(weirhttp.InFlight(places), weirhttp.ByHost()))
		for _, end := range []func(*http.Response){
			func(r *http.Response) { r.Body.Close() },
			func(r *http.Response) { _, _ = io.ReadAll(r.Body) },
			func(r *http.Response) { _, _ = io.ReadAll(r.Body); r.Body.Close(); r.Body.Close() },
		} {
			first, err := get(t, rt, "http://a.test/")
			if err != nil {
				t.Fatal(err)
			}
			if resp, err := get(t, rt, "http://b.test/"); err != nil {
				t.Fatal(err)
			} else {
				resp.Body.Close()
			}
			began := time.Now()
			time.AfterFunc(12345*time.Millisecond, func() { end(first) })
			resp, err := get(t, rt, "http://a.test/")
			read(t, resp, err)
			if d := time.Since(began); d != 12345*time.Millisecond {
				t.Errorf("the next request went after %v", d)
			}
		}
		fail = true
		for range 3 {
			if _, err := get(t, rt, "http://a.test/"); err == nil {
				t.Error("no error")
			}
		}
		if n := places.Holding("a.test"); n != 0 {
			t.Errorf("%d places are held", n)
		}
	})
}

// TestTransportDeadline: a request whose turn comes after its deadline gets an error at once, behind
// others too, and its body is closed.
func TestTransportDeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		refusing := true
		base := roundTrip(func(r *http.Request) (*http.Response, error) {
			if refusing && r.URL.Host == "paused.test" {
				return response(429, "slow down", "Retry-After", "30"), nil
			}
			return fine(r)
		})
		rt := weirhttp.NewTransport(base, weirhttp.Pace(weirhttp.One(limiter(t, weir.TokenBucket{Rate: weir.PerSecond(1), Burst: 1})), weirhttp.Global()))
		tooLate := func(host string, within time.Duration) {
			t.Helper()
			ctx, cancel := context.WithTimeout(t.Context(), within)
			defer cancel()
			began := time.Now()
			body := &closing{Reader: strings.NewReader("x")}
			r, _ := http.NewRequestWithContext(ctx, http.MethodPost, "http://"+host+"/", body)
			_, err := rt.RoundTrip(r)
			if !errors.Is(err, weir.ErrLimited) || !errors.Is(err, context.DeadlineExceeded) || time.Since(began) != 0 {
				t.Errorf("%v after %v", err, time.Since(began))
			}
			if !body.closed {
				t.Error("the body of the request is not closed")
			}
		}
		resp, err := get(t, rt, "http://a.test/")
		read(t, resp, err)
		tooLate("a.test", 900*time.Millisecond)
		var all sync.WaitGroup
		for range 5 {
			all.Go(func() {
				resp, err := get(t, rt, "http://a.test/")
				read(t, resp, err)
			})
			synctest.Wait()
		}
		tooLate("a.test", 5900*time.Millisecond) // its turn is after five others
		ctx, cancel := context.WithTimeout(t.Context(), 6100*time.Millisecond)
		defer cancel()
		resp, err = send(ctx, rt, "http://a.test/")
		read(t, resp, err)
		all.Wait()

		// The response that cannot be repeated in time is returned, and not an error.
		after(10 * time.Second)
		ctx, cancel = context.WithTimeout(t.Context(), 5*time.Second)
		defer cancel()
		began := time.Now()
		resp, err = send(ctx, rt, "http://paused.test/")
		if text := read(t, resp, err); resp.StatusCode != 429 || text != "slow down" || time.Since(began) != 0 {
			t.Errorf("%d %q after %v", resp.StatusCode, text, time.Since(began))
		}
		tooLate("paused.test", 5*time.Second)
		refusing = false
		resp, err = get(t, rt, "http://paused.test/")
		if read(t, resp, err); time.Since(began) < 30*time.Second {
			t.Errorf("the pause was not kept: %v", time.Since(began))
		}
	})
}

// closing is a body that knows whether it was closed.
type closing struct {
	io.Reader
	closed bool
}

func (c *closing) Close() error { c.closed = true; return nil }

// TestTransportNever: what can never be sent is an error at once, and not a wait.
func TestTransportNever(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cost := func(n int64) weirhttp.Option { return weirhttp.Cost(func(*http.Request) int64 { return n }) }
		places, _ := keyed.NewConcurrency[string](weir.Concurrency{Limit: 2}, keyed.Options{})
		shared, _ := weir.NewShared(weir.TokenBucket{Rate: weir.PerSecond(1), Burst: 5}, weirtest.NewStore(func() int64 { return time.Now().UnixNano() }), weir.Named("n"))
		bucket := limiter(t, weir.TokenBucket{Rate: weir.PerSecond(1), Burst: 5})
		for name, pace := range map[string]weirhttp.TransportOption{
			"more than the bucket":   weirhttp.Pace(weirhttp.One(bucket), weirhttp.Global(), cost(6)),
			"more than all places":   weirhttp.Pace(weirhttp.InFlight(places), weirhttp.Global(), cost(3)),
			"more than the store's":  weirhttp.Pace(shared, weirhttp.Global(), cost(6)),
			"a negative cost":        weirhttp.Pace(weirhttp.One(bucket), weirhttp.Global(), cost(-1)),
			"without a required key": weirhttp.Pace(weirhttp.One(bucket), weirhttp.ByHeader("X-Api-Key"), weirhttp.OnMissing(weirhttp.MissingRefuse)),
		} {
			_, err := get(t, weirhttp.NewTransport(roundTrip(fine), pace), "http://a.test/")
			if !errors.Is(err, weir.ErrLimited) && !errors.Is(err, weir.ErrCost) || errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("%s: %v", name, err)
			}
		}
		full := weirhttp.NewTransport(roundTrip(fine), weirhttp.MostQueued(1), weirhttp.Pace(weirhttp.One(limiter(t, weir.TokenBucket{Rate: weir.PerMinute(1), Burst: 1})), weirhttp.Global()))
		var refused atomic.Int64
		var all sync.WaitGroup
		for range 5 {
			all.Go(func() {
				if resp, err := get(t, full, "http://a.test/"); errors.Is(err, weir.ErrLimited) {
					refused.Add(1)
				} else {
					read(t, resp, err)
				}
			})
		}
		if all.Wait(); refused.Load() != 3 {
			t.Errorf("%d of 5 were refused: one goes, one waits", refused.Load())
		}
	})
}

// TestTransportLeavesRequests: the request that is sent is the caller's, and stays as it was, also
// when it is repeated.
func TestTransportLeavesRequests(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var bodies []string
		n := 0
		rt := weirhttp.NewTransport(roundTrip(func(r *http.Request) (*http.Response, error) {
			b, _ := io.ReadAll(r.Body)
			bodies = append(bodies, string(b))
			if n++; n < 3 {
				return response(503, "busy"), nil
			}
			return fine(r)
		}))
		r, _ := http.NewRequestWithContext(t.Context(), http.MethodPut, "http://a.test/x?y=z", strings.NewReader("all of it"))
		r.Header.Set("X-Test", "1")
		before, header, body := *r, r.Header.Clone(), r.Body
		resp, err := rt.RoundTrip(r)
		if text := read(t, resp, err); text != "ok" || strings.Join(bodies, "|") != "all of it|all of it|all of it" {
			t.Errorf("%q after %q", text, bodies)
		}
		if r.Body != body || r.Method != before.Method || *r.URL != *before.URL || r.ContentLength != before.ContentLength || !maps.EqualFunc(r.Header, header, func(a, b []string) bool { return a[0] == b[0] && len(a) == len(b) }) {
			t.Error("the request was modified")
		}
		if resp.Request != r {
			t.Error("the response names another request")
		}
	})
}

// TestTransportPriority: of those that wait, the higher level goes first.
func TestTransportPriority(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var order []string
		rt := weirhttp.NewTransport(roundTrip(func(r *http.Request) (*http.Response, error) {
			order = append(order, r.URL.Path)
			return fine(r)
		}), weirhttp.Pace(weirhttp.One(limiter(t, weir.TokenBucket{Rate: weir.PerSecond(1), Burst: 1})), weirhttp.Global()))
		var all sync.WaitGroup
		for i, level := range []int{0, -3, 0, 5, 1, 100} {
			all.Go(func() {
				resp, err := send(weirhttp.WithPriority(t.Context(), level), rt, "http://a.test/"+strconv.Itoa(i))
				read(t, resp, err)
			})
			synctest.Wait()
		}
		all.Wait()
		if got := strings.Join(order, ""); got != "/0/5/3/4/2/1" {
			t.Errorf("%s", got)
		}
	})
}

// TestTransportUpgrades: the body of a response that switches protocols can be written to.
func TestTransportUpgrades(t *testing.T) {
	var written strings.Builder
	rt := weirhttp.NewTransport(roundTrip(func(*http.Request) (*http.Response, error) {
		resp := response(101, "")
		resp.Body = struct {
			io.ReadCloser
			io.Writer
		}{resp.Body, &written}
		return resp, nil
	}))
	resp, err := get(t, rt, "http://a.test/")
	if err != nil {
		t.Fatal(err)
	}
	w, ok := resp.Body.(io.Writer)
	if !ok {
		t.Fatal("the body cannot be written to")
	}
	if _, err := io.WriteString(w, "hello"); err != nil || written.String() != "hello" {
		t.Errorf("%v, %q", err, written.String())
	}
	resp.Body.Close()
}

// TestTransportOptions: an invalid option panics, and says what to write.
func TestTransportOptions(t *testing.T) {
	one := weirhttp.One(limiter(t, weir.TokenBucket{Rate: weir.PerSecond(1), Burst: 1}))
	for name, f := range map[string]func(){
		"no limiter":        func() { weirhttp.Pace(nil, weirhttp.Global()) },
		"a nil Shared":      func() { weirhttp.Pace((*weir.Shared)(nil), weirhttp.Global()) },
		"no key":            func() { weirhttp.Pace(one, nil) },
		"a foreign option":  func() { weirhttp.Pace(one, weirhttp.Global(), weirhttp.Status(503)) },
		"a foreign limiter": func() { weirhttp.Pace(struct{ weirhttp.Limiter }{one}, weirhttp.Global()) },
		"an unknown usage":  func() { weirhttp.ActualFrom("openay") },
		"no usage":          func() { weirhttp.ActualFrom() },
		"Actual in Limit":   func() { weirhttp.Limit(one, weirhttp.Global(), weirhttp.ActualFrom("openai")) },
		"a pause of 0":      func() { weirhttp.MaxPause(0) },
		"no pause key":      func() { weirhttp.PauseBy(nil) },
		"no store":          func() { weirhttp.SharePauses(nil, "x") },
		"no processes":      func() { weirhttp.Processes(0) },
		"no queue":          func() { weirhttp.MostQueued(0) },
		"no keys":           func() { weirhttp.MaxPauseKeys(0) },
		"nothing repeats":   func() { weirhttp.Repeatable(nil) },
		"retries below 0":   func() { weirhttp.Retries(-1) },
		"1000 percent":      func() { weirhttp.RetryBudget(1000, 1) },
		"-1 percent":        func() { weirhttp.RetryBudget(-1, 1) },
		"a burst below 0":   func() { weirhttp.RetryBudget(10, -1) },
		"a wait below 0":    func() { weirhttp.Wait(-1) },
		"waiting below 0":   func() { weirhttp.Waiting(policy.Waiting{PerClient: -1}) },
		"a line end":        func() { weirhttp.Name("a\r\nb") },
		"no cost":           func() { weirhttp.Cost(nil) },
	} {
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("%s: no panic", name)
				}
			}()
			f()
		}()
	}
}

// TestTransportSomeLimits: requests to which different limits apply wait side by side, whatever their
// keys are, also with deadlines.
func TestTransportSomeLimits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		pace := func(perSecond int64, name string) weirhttp.TransportOption {
			return weirhttp.Pace(weirhttp.One(limiter(t, weir.TokenBucket{Rate: weir.PerSecond(perSecond), Burst: 1})),
				weirhttp.ByHeader(name), weirhttp.OnMissing(weirhttp.MissingSkip))
		}
		rt := weirhttp.NewTransport(roundTrip(fine), pace(1, "X-Slow"), pace(10, "X-Fast"))
		took := map[string]time.Duration{}
		var mu sync.Mutex
		var all sync.WaitGroup
		began := time.Now()
		for i := range 60 {
			all.Go(func() {
				ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
				defer cancel()
				r, _ := http.NewRequestWithContext(ctx, http.MethodGet, "http://a.test/", nil)
				var name string
				switch i % 3 {
				case 0:
					name = "X-Slow"
				case 1:
					name = "X-Fast"
				}
				if name != "" {
					r.Header.Set(name, "same")
				}
				resp, err := rt.RoundTrip(r)
				read(t, resp, err)
				mu.Lock()
				took[name] = max(took[name], time.Since(began))
				mu.Unlock()
			})
			synctest.Wait()
		}
		all.Wait()
		if took["X-Slow"] != 19*time.Second || took["X-Fast"] != 1900*time.Millisecond || took[""] != 0 {
			t.Errorf("%v", took)
		}
	})
}
