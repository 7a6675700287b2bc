package weirhttp_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirflow/weir"
	"github.com/weirflow/weir/keyed"
	"github.com/weirflow/weir/weirhttp"
)

// TestHedgePanics: a panic of the base in the second attempt ends that alone, and one in the first ends
// both; nothing is held afterwards.
func TestHedgePanics(t *testing.T) {
	for _, in := range []int64{1, 2} {
		synctest.Test(t, func(t *testing.T) {
			var open, n, seen atomic.Int64
			places, _ := keyed.NewConcurrency[string](weir.Concurrency{Limit: 10}, keyed.Options{})
			rt := weirhttp.NewTransport(roundTrip(func(r *http.Request) (*http.Response, error) {
				if n.Add(1) == in {
					after(200 * time.Millisecond)
					panic("base")
				}
				return takes(time.Second, 200, "ok", &open)(r)
			}), weirhttp.Hedge(weirhttp.Hedging{Delay: 100 * time.Millisecond}), weirhttp.Pace(weirhttp.InFlight(places), weirhttp.Global()),
				weirhttp.OnAttempt(func(a weirhttp.Attempt) {
					if a.Err != nil && a.Hedge {
						seen.Add(1)
					}
				}))
			func() {
				defer func() {
					if p := recover(); (p != nil) != (in == 1) {
						t.Errorf("panic in attempt %d: %v", in, p)
					}
				}()
				resp, err := get(t, rt, "http://a.test/")
				read(t, resp, err)
			}()
			synctest.Wait()
			if open.Load() != 0 || places.Holding("") != 0 || seen.Load() != 1 {
				t.Errorf("panic in attempt %d: %d bodies are open, %d places are held, %d seen", in, open.Load(), places.Holding(""), seen.Load())
			}
		})
	}
}

// TestHedgeOverTheNetwork: the body of the attempt that won is read to its end, and the server sees that
// the other one is cancelled. Many go on at once.
func TestHedgeOverTheNetwork(t *testing.T) {
	var begun sync.Map // the paths that were requested
	var cancelled atomic.Int64
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		if _, again := begun.LoadOrStore(r.URL.Path, true); !again {
			<-r.Context().Done()
			cancelled.Add(1)
			return
		}
		_, _ = w.Write(append(body, strings.Repeat("y", 100_000)...))
	}))
	defer server.Close()
	base := &http.Transport{}
	defer base.CloseIdleConnections()
	client := &http.Client{Transport: weirhttp.NewTransport(base, weirhttp.Hedge(weirhttp.Hedging{Delay: time.Millisecond, Percent: 100, Burst: 100}))}
	var all sync.WaitGroup
	for i := range 8 {
		all.Go(func() {
			for j := range 5 {
				ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
				r, _ := http.NewRequestWithContext(ctx, http.MethodPut, fmt.Sprintf("%s/%d/%d", server.URL, i, j), strings.NewReader("hello"))
				resp, err := client.Do(r)
				if err != nil {
					t.Error(err)
					cancel()
					return
				}
				r.Header.Set("X-Again", "1") // the caller's own again
				body, err := io.ReadAll(resp.Body)
				resp.Body.Close()
				cancel()
				if err != nil || len(body) != 100_005 {
					t.Errorf("%d bytes, %v", len(body), err)
				}
			}
		})
	}
	all.Wait()
	server.Close() // waits for all attempts
	if cancelled.Load() != 40 {
		t.Errorf("the server has seen %d of 40 attempts cancelled", cancelled.Load())
	}
}

// TestHedgeAndOnAttemptThatPanics: a panic about the attempt whose result the caller does not get ended the
// program, as that attempt was on no goroutine of the caller, or it lost the caller's response and its places.
func TestHedgeAndOnAttemptThatPanics(t *testing.T) {
	for name, of := range map[string][2]struct {
		d      time.Duration
		status int
	}{
		"the second loses": {{200, 200}, {300, 200}},
		"the first loses":  {{1000, 200}, {10, 200}},
		"both are bad":     {{300, 500}, {10, 501}},
	} {
		synctest.Test(t, func(t *testing.T) {
			var open, n, lost atomic.Int64
			places, _ := keyed.NewConcurrency[string](weir.Concurrency{Limit: 10}, keyed.Options{})
			rt := weirhttp.NewTransport(roundTrip(func(r *http.Request) (*http.Response, error) {
				a := of[n.Add(1)-1]
				return takes(a.d*time.Millisecond, a.status, "ok", &open)(r)
			}), weirhttp.Retries(0), weirhttp.Hedge(weirhttp.Hedging{Delay: 100 * time.Millisecond}), weirhttp.Pace(weirhttp.InFlight(places), weirhttp.Global()),
				weirhttp.OnAttempt(func(a weirhttp.Attempt) {
					if a.Lost {
						lost.Add(1)
						panic("about the lost attempt")
					}
				}))
			resp, err := get(t, rt, "http://a.test/")
			read(t, resp, err)
			if synctest.Wait(); lost.Load() != 1 || open.Load() != 0 || places.Holding("") != 0 {
				t.Errorf("%s: %d attempts lost, %d bodies are open, %d places held", name, lost.Load(), open.Load(), places.Holding(""))
			}
		})
	}
}

// TestRequestOfALostHedge: OnAttempt got the caller's own request for a lost second attempt, when the caller had its
// response already and could change it.
func TestRequestOfALostHedge(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var open, n atomic.Int64
		var mu sync.Mutex
		var seen []weirhttp.Attempt
		rt := weirhttp.NewTransport(roundTrip(func(r *http.Request) (*http.Response, error) {
			if n.Add(1) == 1 {
				return takes(200*time.Millisecond, 200, "", &open)(r)
			}
			return takes(time.Second, 200, "", &open)(r)
		}), weirhttp.Hedge(weirhttp.Hedging{Delay: 100 * time.Millisecond}), weirhttp.OnAttempt(func(a weirhttp.Attempt) {
			mu.Lock()
			defer mu.Unlock()
			seen = append(seen, a)
		}))
		r, _ := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://a.test/", nil)
		resp, err := rt.RoundTrip(r)
		read(t, resp, err)
		synctest.Wait()
		if mu.Lock(); len(seen) != 2 || !seen[1].Hedge || !seen[1].Lost || seen[1].Request == r || seen[1].Request.URL.Host != "a.test" {
			t.Errorf("%+v", seen)
		}
		mu.Unlock()
	})
}
