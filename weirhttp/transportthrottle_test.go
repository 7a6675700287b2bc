package weirhttp_test

import (
	"context"
	"crypto/tls"
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
	"github.com/weirflow/weir/weirhttp"
)

// TestThrottleUnderOverload: a server gets three times the requests that it can serve. Without a
// throttle it does little but refuse; with it, it gets about k times as many as it serves.
func TestThrottleUnderOverload(t *testing.T) {
	for _, c := range []struct {
		name   string
		k      float64
		served [2]int64 // of 2000
	}{{"none", 0, [2]int64{0, 400}}, {"2", 2, [2]int64{1100, 2000}}, {"1.1", 1.1, [2]int64{1600, 2000}}} {
		synctest.Test(t, func(t *testing.T) {
			server, stop := newBusy(503, 10*time.Millisecond) // 100 a second
			defer stop()
			var rt http.RoundTripper = server
			if c.k > 0 {
				rt = weirhttp.NewTransport(server, weirhttp.Retries(0), weirhttp.Throttle(c.k))
			}
			var all sync.WaitGroup
			var refused atomic.Int64
			for range 20 * 300 {
				all.Go(func() {
					ctx, end := context.WithTimeout(t.Context(), time.Second)
					defer end()
					resp, err := send(ctx, rt, "http://a.test/")
					if err == nil {
						resp.Body.Close()
					} else if errors.Is(err, weir.ErrLimited) {
						refused.Add(1)
					}
				})
				after(time.Second / 300)
			}
			all.Wait()
			served := server.served.Load()
			if served < c.served[0] || served > c.served[1] {
				t.Errorf("K %s: %d of 2000 are served", c.name, served)
			}
			t.Logf("K %s: %d of 2000 are served", c.name, served)
			if rt, ok := rt.(*weirhttp.Transport); ok {
				if n := rt.Counts(); int64(n.Throttled) != refused.Load() || n.Requests != 6000 || n.Sent+n.Throttled != n.Requests {
					t.Errorf("%d were refused, and %+v", refused.Load(), n)
				}
			}
		})
	}
}

// TestThrottleIgnores: what is no sign of overload throttles nothing: other refusals, responses to
// mistakes, errors of the request, what the caller has cancelled, and what has waited here.
func TestThrottleIgnores(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		slow := func(r *http.Request) (*http.Response, error) {
			<-r.Context().Done()
			return nil, r.Context().Err()
		}
		results := map[string]func(*http.Request) (*http.Response, error){
			"cancelled": slow,
			"certificate": func(*http.Request) (*http.Response, error) {
				return nil, &tls.CertificateVerificationError{Err: io.EOF}
			},
			"scheme": func(*http.Request) (*http.Response, error) { return nil, errors.New("unsupported protocol scheme") },
		}
		for _, status := range []int{200, 304, 400, 401, 403, 404, 408, 409, 499, 500, 501} {
			results[http.StatusText(status)] = func(*http.Request) (*http.Response, error) { return response(status, ""), nil }
		}
		for name, result := range results {
			rt := weirhttp.NewTransport(roundTrip(result), weirhttp.Throttle(2))
			for range 100 {
				ctx, cancel := context.WithCancel(t.Context())
				time.AfterFunc(time.Millisecond, cancel)
				resp, err := send(ctx, rt, "http://a.test/")
				if err == nil {
					resp.Body.Close()
				}
				if errors.Is(err, weir.ErrLimited) {
					t.Errorf("%s: %v", name, err)
				}
				cancel()
			}
			if n := rt.Counts(); n.Throttled != 0 || n.Sent != 100 {
				t.Errorf("%s: %+v", name, n)
			}
		}
	})
}

// TestThrottleCounts: each sign of overload throttles the requests with the same key, and no others.
// The error says so, the body is closed, and the attempt is observed.
func TestThrottleCounts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		results := map[string]func(*http.Request) (*http.Response, error){
			"connection": func(*http.Request) (*http.Response, error) {
				return nil, &net.OpError{Op: "dial", Err: errors.New("refused")}
			},
			"deadline": func(r *http.Request) (*http.Response, error) {
				<-r.Context().Done()
				return nil, r.Context().Err()
			},
			"429": func(*http.Request) (*http.Response, error) { return response(429, "", "Retry-After", "0.001"), nil },
		}
		for _, status := range []int{502, 503, 504, 529} {
			results[http.StatusText(status)] = func(*http.Request) (*http.Response, error) { return response(status, ""), nil }
		}
		for name, result := range results {
			var observed atomic.Int64
			rt := weirhttp.NewTransport(roundTrip(func(r *http.Request) (*http.Response, error) {
				if r.URL.Host == "b.test" {
					return fine(r)
				}
				return result(r)
			}), weirhttp.Throttle(2), weirhttp.Retries(1), weirhttp.NoLearnedRate(), weirhttp.OnAttempt(func(a weirhttp.Attempt) {
				if throttled := (*weirhttp.ThrottledError)(nil); errors.As(a.Err, &throttled) && !a.Sent {
					observed.Add(1)
				}
			}))
			refused := int64(0)
			for range 200 {
				ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
				closed := 1
				r, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://a.test/", countedClose{io.NopCloser(strings.NewReader("x")), &closed})
				if err != nil {
					t.Fatal(err)
				}
				resp, err := rt.RoundTrip(r)
				var throttled *weirhttp.ThrottledError
				switch {
				case err == nil:
					resp.Body.Close()
				case errors.As(err, &throttled):
					refused++
					if !errors.Is(err, weir.ErrLimited) || errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), "the request was not sent") || throttled.Requests < 10 {
						t.Errorf("%s: %v", name, err)
					}
				}
				if closed != 0 {
					t.Errorf("%s: the body was closed %d times", name, 1-closed)
				}
				resp, err = get(t, rt, "http://b.test/")
				read(t, resp, err)
				cancel()
				after(10 * time.Millisecond)
			}
			if n := rt.Counts(); refused < 100 || int64(n.Throttled) != refused || observed.Load() != refused {
				t.Errorf("%s: %d of 200 requests are refused, %d observed, %+v", name, refused, observed.Load(), n)
			}
		}
	})
}

// TestThrottleInPlaceOfGuesses: with a throttle, a 503 that does not say until when holds back no
// other request, and one that does holds back all as before. A retry that the throttle refuses gives
// the caller the response.
func TestThrottleInPlaceOfGuesses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		field := "X-Nothing"
		rt := weirhttp.NewTransport(roundTrip(func(*http.Request) (*http.Response, error) {
			return response(503, "busy", field, "20"), nil
		}), weirhttp.Throttle(2))
		began, sent := time.Now(), 0
		for range 100 {
			resp, err := get(t, rt, "http://a.test/")
			if errors.Is(err, weir.ErrLimited) {
				continue
			}
			sent++
			if read(t, resp, err) != "busy" {
				t.Error("another response")
			}
		}
		if n := rt.Counts(); sent > 60 || n.Retried > 40 || time.Since(began) > 30*time.Second {
			t.Errorf("%d sent in %v, %+v", sent, time.Since(began), n)
		}
		field = "Retry-After"
		began = time.Now()
		for sent := 0; sent < 2; {
			if resp, err := get(t, rt, "http://a.test/"); !errors.Is(err, weir.ErrLimited) {
				sent++
				read(t, resp, err)
			}
		}
		if time.Since(began) < 20*time.Second {
			t.Errorf("Retry-After is not obeyed: %v", time.Since(began))
		}
	})
}
