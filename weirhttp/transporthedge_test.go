package weirhttp_test

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirflow/weir"
	"github.com/weirflow/weir/internal/seeds"
	"github.com/weirflow/weir/keyed"
	"github.com/weirflow/weir/weirhttp"
	"github.com/weirflow/weir/weirtest"
)

// bodies counts the bodies of responses that are open.
type bodies struct {
	io.ReadCloser
	open *atomic.Int64
	once *sync.Once
}

func (b bodies) Close() error {
	b.once.Do(func() { b.open.Add(-1) })
	return b.ReadCloser.Close()
}

// takes responds after a time, unless the request ends before.
func takes(d time.Duration, status int, text string, open *atomic.Int64) roundTrip {
	return func(r *http.Request) (*http.Response, error) {
		select {
		case <-time.After(d):
		case <-r.Context().Done():
			return nil, r.Context().Err()
		}
		resp := response(status, text)
		open.Add(1)
		resp.Body = bodies{resp.Body, open, new(sync.Once)}
		return resp, nil
	}
}

// TestHedgeCutsTheTail: of a server of which 2 % of the responses take a hundred times as long, hardly
// a caller notices, for at most 5 % more requests: without a second attempt one in 50 is late.
func TestHedgeCutsTheTail(t *testing.T) {
	const requests = 10_000
	for _, hedged := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			rng := seeds.Of(t.Name())
			var open atomic.Int64
			options := []weirhttp.TransportOption{weirhttp.Retries(0)}
			if hedged {
				options = append(options, weirhttp.Hedge(weirhttp.Hedging{}))
			}
			rt := weirhttp.NewTransport(roundTrip(func(r *http.Request) (*http.Response, error) {
				d := 10*time.Millisecond + time.Duration(rng.Int64N(int64(5*time.Millisecond)))
				if rng.IntN(50) == 0 {
					d = time.Second
				}
				return takes(d, 200, "ok", &open)(r)
			}), options...)
			late := 0
			for i := range requests {
				began := time.Now()
				resp, err := get(t, rt, "http://a.test/")
				if read(t, resp, err); time.Since(began) > 100*time.Millisecond && i >= 1000 {
					late++
				}
			}
			synctest.Wait()
			n := rt.Counts()
			t.Logf("hedged %v: %d of 9000 are late, %+v", hedged, late, n)
			if open.Load() != 0 {
				t.Errorf("%d bodies are open", open.Load())
			}
			switch {
			case !hedged && (late < 120 || n.Hedged != 0):
				t.Errorf("%d late, %+v", late, n)
			case hedged && (late > 20 || n.Sent > requests*105/100 || n.Sent != n.Requests+n.Hedged || n.HedgesWon < 120):
				t.Errorf("%d late, %+v", late, n)
			}
		})
	}
}

// TestHedgeBudget: a server that becomes slow for all requests does not get twice as many.
func TestHedgeBudget(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var open atomic.Int64
		rt := weirhttp.NewTransport(takes(time.Second, 200, "ok", &open), weirhttp.Hedge(weirhttp.Hedging{Delay: 10 * time.Millisecond, Percent: 2, Burst: 3}))
		for range 1000 {
			resp, err := get(t, rt, "http://a.test/")
			read(t, resp, err)
		}
		synctest.Wait()
		if n := rt.Counts(); n.Hedged < 20 || n.Hedged > 23 || open.Load() != 0 {
			t.Errorf("%+v, %d bodies are open", n, open.Load())
		}
	})
}

// TestHedgeResults: the caller gets the first good response, and otherwise the result of the first
// attempt. The other attempt is cancelled, its body is closed, and both are observed.
func TestHedgeResults(t *testing.T) {
	broken := &net.OpError{Op: "read", Err: errors.New("connection reset")}
	type attempt struct {
		d      time.Duration
		status int // 0: an error
	}
	for name, c := range map[string]struct {
		first, second attempt // the second is made after 100 ms
		want          string
		took          time.Duration
		won           bool
	}{
		"the first in time":        {attempt{50, 200}, attempt{1, 200}, "first", 50, false},
		"the first is late":        {attempt{1000, 200}, attempt{20, 200}, "second", 120, true},
		"the first is earlier":     {attempt{110, 200}, attempt{20, 200}, "first", 110, false},
		"the second fails":         {attempt{1000, 200}, attempt{20, 0}, "first", 1000, false},
		"the second is refused":    {attempt{1000, 200}, attempt{20, 500}, "first", 1000, false},
		"the first fails":          {attempt{110, 0}, attempt{500, 200}, "second", 600, true},
		"the first has an error":   {attempt{110, 500}, attempt{500, 404}, "second", 600, true},
		"both have errors":         {attempt{110, 500}, attempt{500, 501}, "first", 600, false},
		"both fail":                {attempt{110, 0}, attempt{500, 0}, "", 600, false},
		"not found is a response":  {attempt{1000, 200}, attempt{20, 404}, "second", 120, true},
		"an error before the time": {attempt{50, 500}, attempt{1, 200}, "first", 50, false},
	} {
		synctest.Test(t, func(t *testing.T) {
			var open, n, seen, lost, hedges atomic.Int64
			places, _ := keyed.NewConcurrency[string](weir.Concurrency{Limit: 10}, keyed.Options{})
			rt := weirhttp.NewTransport(roundTrip(func(r *http.Request) (*http.Response, error) {
				if b, _ := io.ReadAll(r.Body); string(b) != "x" {
					t.Errorf("%s: the body is %q", name, b)
				}
				of, text := c.first, "first"
				if n.Add(1) == 2 {
					of, text = c.second, "second"
				}
				if of.status == 0 {
					after(of.d * time.Millisecond)
					return nil, broken
				}
				return takes(of.d*time.Millisecond, of.status, text, &open)(r)
			}), weirhttp.Retries(0), weirhttp.Hedge(weirhttp.Hedging{Delay: 100 * time.Millisecond}),
				weirhttp.Pace(weirhttp.InFlight(places), weirhttp.Global()),
				weirhttp.OnAttempt(func(a weirhttp.Attempt) {
					seen.Add(1)
					if a.Lost {
						lost.Add(1)
					}
					if a.Hedge {
						hedges.Add(1)
						if a.Lost == c.won {
							t.Errorf("%s: %+v", name, a)
						}
					}
				}))
			began := time.Now()
			r, _ := http.NewRequestWithContext(t.Context(), http.MethodPut, "http://a.test/", strings.NewReader("x"))
			resp, err := rt.RoundTrip(r)
			took := time.Since(began)
			if (err == nil) != (c.want != "") || took != c.took*time.Millisecond {
				t.Errorf("%s: %v after %v", name, err, took)
			} else if err == nil {
				if text := read(t, resp, nil); text != c.want || resp.Request != r {
					t.Errorf("%s: %q", name, text)
				}
			}
			synctest.Wait()
			attempts := int64(2)
			if c.took <= 100 {
				attempts = 1
			}
			if n.Load() != attempts || seen.Load() != attempts || lost.Load() != attempts-1 || hedges.Load() != attempts-1 || open.Load() != 0 || places.Holding("") != 0 {
				t.Errorf("%s: %d attempts, %d seen, %d of them lost, %d hedges, %d bodies are open, %d places held", name, n.Load(), seen.Load(), lost.Load(), hedges.Load(), open.Load(), places.Holding(""))
			}
			if won := rt.Counts().HedgesWon == 1; won != c.won {
				t.Errorf("%s: won %v", name, won)
			}
		})
	}
}

// TestHedgeOnlyWhen: there is no second attempt of what may not be repeated, and none at a bad time:
// while the server holds back requests, or has done so lately, while other requests wait for the same
// limits, while a limit does not admit it at once, or while the throttle refuses some.
func TestHedgeOnlyWhen(t *testing.T) {
	once := struct{ io.Reader }{strings.NewReader("x")}
	for name, c := range map[string]struct {
		method, field string
		body          io.Reader
		options       []weirhttp.TransportOption
		before        func(t *testing.T, rt http.RoundTripper)
		want          uint64
	}{
		"GET":              {method: "GET", want: 1},
		"PUT":              {method: "PUT", body: strings.NewReader("x"), want: 1},
		"PUT, read once":   {method: "PUT", body: once},
		"POST":             {method: "POST", body: strings.NewReader("x")},
		"POST with a key":  {method: "POST", field: "Idempotency-Key", body: strings.NewReader("x"), want: 1},
		"upgrade":          {method: "GET", field: "Upgrade"},
		"told not to":      {method: "GET", options: []weirhttp.TransportOption{weirhttp.Repeatable(func(*http.Request) bool { return false })}},
		"told to":          {method: "POST", options: []weirhttp.TransportOption{weirhttp.Repeatable(func(*http.Request) bool { return true })}, want: 1},
		"after a pause":    {method: "GET", before: func(t *testing.T, rt http.RoundTripper) { again(t, rt, "429", 1); after(15 * time.Second) }},
		"long after one":   {method: "GET", before: func(t *testing.T, rt http.RoundTripper) { again(t, rt, "429", 1); after(time.Minute) }, want: 1},
		"while throttling": {method: "GET", options: []weirhttp.TransportOption{weirhttp.Throttle(2)}, before: func(t *testing.T, rt http.RoundTripper) { again(t, rt, "200", 20); again(t, rt, "504", 21) }},
		"a limit":          {method: "GET", options: []weirhttp.TransportOption{weirhttp.Pace(weirhttp.One(limiter(t, weir.TokenBucket{Rate: weir.PerSecond(5), Burst: 1})), weirhttp.Global())}},
	} {
		synctest.Test(t, func(t *testing.T) {
			var open atomic.Int64
			rt := weirhttp.NewTransport(roundTrip(func(r *http.Request) (*http.Response, error) {
				switch r.URL.Path {
				case "/429":
					return response(429, "", "Retry-After", "5"), nil
				case "/504":
					return response(504, ""), nil
				case "/200":
					return fine(r)
				}
				return takes(time.Second, 200, "ok", &open)(r)
			}), append(c.options, weirhttp.Hedge(weirhttp.Hedging{Delay: 100 * time.Millisecond}), weirhttp.Retries(0))...)
			if c.before != nil {
				c.before(t, rt)
			}
			for {
				r, _ := http.NewRequestWithContext(t.Context(), c.method, "http://a.test/", c.body)
				if c.field != "" {
					r.Header.Set(c.field, "websocket")
				}
				resp, err := rt.RoundTrip(r)
				if errors.Is(err, weir.ErrLimited) {
					continue
				}
				read(t, resp, err)
				break
			}
			synctest.Wait()
			if n := rt.Counts(); n.Hedged != c.want || open.Load() != 0 {
				t.Errorf("%s: %+v, %d bodies are open", name, n, open.Load())
			}
		})
	}
}

// again sends requests with a path, one by one.
func again(t *testing.T, rt http.RoundTripper, path string, n int) {
	t.Helper()
	for range n {
		if resp, err := get(t, rt, "http://a.test/"+path); err == nil {
			resp.Body.Close()
		}
	}
}

// TestHedgeAndSharedPauses: a pause that another process was told stops second attempts too.
func TestHedgeAndSharedPauses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var open atomic.Int64
		base := roundTrip(func(r *http.Request) (*http.Response, error) {
			if r.URL.Path == "/429" {
				return response(429, "", "Retry-After", "60"), nil
			}
			return takes(time.Second, 200, "ok", &open)(r)
		})
		store := weirtest.NewStore(func() int64 { return time.Now().UnixNano() })
		defer store.Close()
		for _, pauses := range []bool{true, false} {
			want := map[bool]uint64{false: 1, true: 0}[pauses]
			one, other := weirhttp.NewTransport(base, weirhttp.Retries(0), weirhttp.SharePauses(store, "pauses")),
				weirhttp.NewTransport(base, weirhttp.Hedge(weirhttp.Hedging{Delay: 100 * time.Millisecond}), weirhttp.SharePauses(store, "pauses"))
			if pauses {
				time.AfterFunc(50*time.Millisecond, func() { again(t, one, "429", 1) })
			}
			resp, err := get(t, other, "http://a.test/")
			read(t, resp, err)
			if synctest.Wait(); other.Counts().Hedged != want || open.Load() != 0 {
				t.Errorf("another process is told to wait %v: %+v", pauses, other.Counts())
			}
			after(10 * time.Minute)
		}
	})
}

// TestHedgeIsCharged: each attempt is charged to our limits, and what the caller's response has cost is
// settled once.
func TestHedgeIsCharged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var open, n, actual atomic.Int64
		requests := limiter(t, weir.TokenBucket{Rate: weir.PerHour(1), Burst: 100})
		tokens := limiter(t, weir.TokenBucket{Rate: weir.PerHour(1), Burst: 100})
		rt := weirhttp.NewTransport(roundTrip(func(r *http.Request) (*http.Response, error) {
			return takes(time.Second/time.Duration(n.Add(1)*n.Load()), 200, "ok", &open)(r)
		}), weirhttp.Hedge(weirhttp.Hedging{Delay: 100 * time.Millisecond}),
			weirhttp.Pace(weirhttp.One(requests), weirhttp.Global()),
			weirhttp.Pace(weirhttp.One(tokens), weirhttp.Global(), weirhttp.Cost(func(*http.Request) int64 { return 10 }),
				weirhttp.Actual(func(*http.Response) (int64, bool) { actual.Add(1); return 3, true })))
		resp, err := get(t, rt, "http://a.test/")
		read(t, resp, err)
		synctest.Wait()
		if a, b := requests.Peek(0).Remaining, tokens.Peek(0).Remaining; a != 98 || b != 100-10-3 || actual.Load() != 1 {
			t.Errorf("%d requests and %d tokens remain, settled %d times", a, b, actual.Load())
		}
	})
}

// endsWith is a body that can be read until a context ends.
type endsWith struct {
	io.ReadCloser
	ctx context.Context
}

func (b endsWith) Read(p []byte) (int, error) {
	if err := b.ctx.Err(); err != nil {
		return 0, err
	}
	return b.ReadCloser.Read(p)
}

// TestHedgeWonWhileTheFirstCame: the response of the first attempt was on its way when the second one had
// won and had cancelled it. The caller got the first one, whose body could not be read any more.
func TestHedgeWonWhileTheFirstCame(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var open, n atomic.Int64
		rt := weirhttp.NewTransport(roundTrip(func(r *http.Request) (*http.Response, error) {
			if n.Add(1) == 2 {
				return takes(time.Second, 200, "second", &open)(r)
			}
			<-r.Context().Done()
			resp := response(200, "first")
			open.Add(1)
			resp.Body = bodies{endsWith{resp.Body, r.Context()}, &open, new(sync.Once)}
			return resp, nil
		}), weirhttp.Hedge(weirhttp.Hedging{Delay: time.Second}))
		resp, err := get(t, rt, "http://a.test/")
		if text := read(t, resp, err); text != "second" {
			t.Errorf("%q", text)
		}
		synctest.Wait()
		if open.Load() != 0 || rt.Counts().HedgesWon != 1 {
			t.Errorf("%d bodies are open, %+v", open.Load(), rt.Counts())
		}
	})
}

// TestHedgeRefusedBecauseOfALimit: a second attempt that was refused with 403, as GitHub does it, won over
// the first one, which had a response later.
func TestHedgeRefusedBecauseOfALimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var open, n atomic.Int64
		rt := weirhttp.NewTransport(roundTrip(func(r *http.Request) (*http.Response, error) {
			if n.Add(1) == 2 {
				return response(403, "", "Retry-After", "5", "X-RateLimit-Remaining", "0"), nil
			}
			return takes(10*time.Second, 200, "first", &open)(r)
		}), weirhttp.Hedge(weirhttp.Hedging{Delay: time.Second}))
		resp, err := get(t, rt, "http://a.test/")
		if text := read(t, resp, err); text != "first" || n.Load() != 2 || rt.Counts().HedgesWon != 0 {
			t.Errorf("%q after %d attempts, %+v", text, n.Load(), rt.Counts())
		}
	})
}
