package weirhttp_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirflow/weir"
	"github.com/weirflow/weir/adaptive"
	"github.com/weirflow/weir/weirhttp"
)

// workers is a server with some workers and a queue without a bound, which goes on with requests whose
// clients have given up.
func workers(n int, work time.Duration) roundTrip {
	places := make(chan struct{}, n)
	return func(r *http.Request) (*http.Response, error) {
		done := make(chan struct{})
		go func() {
			places <- struct{}{}
			after(work)
			<-places
			close(done)
		}()
		select {
		case <-done:
			return response(200, "ok"), nil
		case <-r.Context().Done():
			return nil, r.Context().Err()
		}
	}
}

// TestAdaptUnderOverload: a server with 20 workers gets three times the requests that it can serve.
// Without a limit, all clients give up. With it, nearly as many are served as is possible, and those that
// are important are served first.
func TestAdaptUnderOverload(t *testing.T) {
	for _, adapted := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			var rt http.RoundTripper = workers(20, 100*time.Millisecond)
			if adapted {
				rt = weirhttp.NewTransport(rt, weirhttp.Retries(0), weirhttp.Adapt(adaptive.Options{}))
			}
			var all sync.WaitGroup
			var served, important, wrong atomic.Int64
			for i := range 20 * 600 {
				all.Go(func() {
					ctx, end := context.WithTimeout(t.Context(), time.Second)
					defer end()
					if i%6 != 0 {
						ctx = weirhttp.WithPriority(ctx, -2)
					}
					resp, err := send(ctx, rt, "http://a.test/")
					switch {
					case err == nil:
						resp.Body.Close()
						if i >= 6000 {
							served.Add(1)
							if i%6 == 0 {
								important.Add(1)
							}
						}
					case !errors.Is(err, weir.ErrLimited) && !errors.Is(err, context.DeadlineExceeded):
						wrong.Add(1)
					}
				})
				after(time.Second / 600)
			}
			all.Wait()
			after(10 * time.Minute) // the server goes on
			t.Logf("adapted %v: %d of 2000 are served, %d of 1000 important ones", adapted, served.Load(), important.Load())
			if wrong.Load() > 0 || !adapted && served.Load() > 100 || adapted && (served.Load() < 1700 || important.Load() < 970) {
				t.Errorf("adapted %v: %d of 2000 are served, %d of 1000 important ones, %d other errors", adapted, served.Load(), important.Load(), wrong.Load())
			}
		})
	}
}

// entered is how many requests are in flight at once before one is refused. They end with a result.
func entered(t *testing.T, rt http.RoundTripper, result func(r *http.Request) (*http.Response, error)) (n int) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	var all sync.WaitGroup
	defer all.Wait()
	defer cancel()
	for refused := false; !refused; {
		all.Go(func() {
			resp, err := send(context.WithValue(ctx, resultKey{}, result), rt, "http://a.test/")
			if err == nil {
				_, _ = io.Copy(io.Discard, resp.Body)
				resp.Body.Close()
			}
			if errors.Is(err, weir.ErrLimited) {
				refused = true
			}
		})
		if synctest.Wait(); !refused {
			n++
		}
	}
	return n
}

type resultKey struct{}

// TestAdaptOutcomes: the limit falls after what tells of too much load, and stays after what says
// nothing about it. A 503 without a time holds back no other request.
func TestAdaptOutcomes(t *testing.T) {
	gone := func(r *http.Request) (*http.Response, error) {
		<-r.Context().Done()
		return nil, r.Context().Err()
	}
	with := func(status int) func(*http.Request) (*http.Response, error) {
		return func(*http.Request) (*http.Response, error) { return response(status, ""), nil }
	}
	for name, c := range map[string]struct {
		result func(*http.Request) (*http.Response, error)
		falls  bool
		cancel bool
	}{
		"200": {result: with(200)}, "404": {result: with(404)}, "500": {result: with(500)},
		"cancelled": {result: gone, cancel: true}, "deadline": {result: gone, falls: true},
		"scheme": {result: func(*http.Request) (*http.Response, error) { return nil, errors.New("unsupported protocol scheme") }},
		"closed": {result: func(*http.Request) (*http.Response, error) { return nil, io.ErrUnexpectedEOF }, falls: true},
		"429":    {result: func(*http.Request) (*http.Response, error) { return response(429, "", "Retry-After", "0.001"), nil }, falls: true},
		"503":    {result: with(503), falls: true}, "504": {result: with(504), falls: true}, "529": {result: with(529), falls: true},
	} {
		synctest.Test(t, func(t *testing.T) {
			rt := weirhttp.NewTransport(roundTrip(func(r *http.Request) (*http.Response, error) {
				return r.Context().Value(resultKey{}).(func(*http.Request) (*http.Response, error))(r)
			}), weirhttp.Retries(0), weirhttp.NoLearnedRate(), weirhttp.Adapt(adaptive.Options{Algorithm: adaptive.AIMD{Initial: 10, Min: 1, Max: 10}}))
			if n := entered(t, rt, gone); n != 10 {
				t.Errorf("%s: %d are in flight at first", name, n)
			}
			for range 40 {
				ctx, cancel := context.WithTimeout(context.WithValue(t.Context(), resultKey{}, c.result), time.Second)
				if c.cancel {
					time.AfterFunc(time.Millisecond, cancel)
				}
				resp, err := send(ctx, rt, "http://a.test/")
				if err == nil {
					_, _ = io.Copy(io.Discard, resp.Body)
					resp.Body.Close()
				}
				cancel()
			}
			after(time.Minute)
			began := time.Now()
			if n := entered(t, rt, gone); (n < 10) != c.falls || time.Since(began) > time.Second {
				t.Errorf("%s: %d are in flight afterwards", name, n)
			}
		})
	}
}

// TestAdaptHolds: a place is held until the body ends, and a request that is refused is charged to no
// limit. Its body is closed.
func TestAdaptHolds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		bucket := limiter(t, weir.TokenBucket{Rate: weir.PerHour(1), Burst: 100})
		rt := weirhttp.NewTransport(roundTrip(fine), weirhttp.Pace(weirhttp.One(bucket), weirhttp.Global()),
			weirhttp.Adapt(adaptive.Options{Algorithm: adaptive.AIMD{Initial: 1, Max: 1}, Name: "found"}))
		resp, err := get(t, rt, "http://a.test/")
		if err != nil {
			t.Fatal(err)
		}
		open := 1
		r, _ := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://a.test/", countedClose{io.NopCloser(strings.NewReader("x")), &open})
		_, err = rt.RoundTrip(r)
		var limited *weir.LimitedError
		if !errors.As(err, &limited) || limited.Decision.By != "found" || !strings.HasSuffix(err.Error(), "was not sent: as many are in flight as its server can bear; retry later") || open != 0 {
			t.Errorf("%v, %d bodies are open", err, open)
		}
		if resp, err := get(t, rt, "http://b.test/"); err != nil {
			t.Errorf("another host: %v", err)
		} else {
			resp.Body.Close()
		}
		if left := bucket.Peek(0).Remaining; left != 98 {
			t.Errorf("%d remain", left)
		}
		resp.Body.Close()
		resp, err = get(t, rt, "http://a.test/")
		read(t, resp, err)
		if n := rt.Counts(); n.NoPlace != 1 || n.Sent != 3 {
			t.Errorf("%+v", n)
		}
		if s, ok := rt.AdaptStats(r); !ok || s.Limit != 1 || s.InFlight != 0 || s.Reasons.Full != 1 || s.Outcomes.OK != 2 {
			t.Errorf("%+v", s)
		}
		if other, _ := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://c.test/", nil); other != nil {
			if s, ok := rt.AdaptStats(other); ok {
				t.Errorf("of another host: %+v", s)
			}
		}
	})
}

// TestAdaptQueue: with a queue, a request waits for a place, and not if a pause begins meanwhile.
func TestAdaptQueue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var n atomic.Int64
		rt := weirhttp.NewTransport(roundTrip(func(*http.Request) (*http.Response, error) {
			after(50 * time.Millisecond)
			if n.Add(1) == 1 {
				return response(429, "", "Retry-After", "20"), nil
			}
			return response(200, "ok"), nil
		}), weirhttp.Retries(0), weirhttp.Adapt(adaptive.Options{Algorithm: adaptive.AIMD{Initial: 1, Max: 1}, Queue: adaptive.Queue{Length: 1}}))
		began := time.Now()
		var all sync.WaitGroup
		for range 2 {
			all.Go(func() {
				if resp, err := get(t, rt, "http://a.test/"); err != nil {
					t.Error(err)
				} else {
					resp.Body.Close()
				}
			})
		}
		all.Wait()
		if d := time.Since(began); d < 20*time.Second || n.Load() != 2 {
			t.Errorf("%d requests in %v", n.Load(), d)
		}
	})
}
