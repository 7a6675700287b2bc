package weirhttp_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
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
	"github.com/weirflow/weir/policy"
	"github.com/weirflow/weir/weirhttp"
	"github.com/weirflow/weir/weirtest"
)

// waiters returns each kind of limiter that requests can wait for, at one request per second.
func waiters(t *testing.T, queue int64) map[string]weirhttp.Limiter {
	t.Helper()
	leaky := weir.LeakyBucket{Rate: weir.PerSecond(1), Queue: queue}
	single, err := weir.New(leaky)
	if err != nil {
		t.Fatal(err)
	}
	perKey, err := keyed.New[string](leaky, keyed.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { perKey.Close() })
	shared, err := weir.NewShared(leaky, weirtest.NewStore(nil), weir.Named("all"))
	if err != nil {
		t.Fatal(err)
	}
	return map[string]weirhttp.Limiter{"one": weirhttp.One(single), "keyed": weirhttp.Keyed(perKey), "shared": shared}
}

// TestQueue: a limit with a queue releases requests at its rate, in order, and refuses those that
// find the queue full.
func TestQueue(t *testing.T) {
	for _, name := range []string{"one", "keyed", "shared"} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var mu sync.Mutex
				var passed []string
				began := time.Now()
				h := weirhttp.Limit(waiters(t, 3)[name], weirhttp.Global())(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
					mu.Lock()
					defer mu.Unlock()
					passed = append(passed, fmt.Sprintf("%s at %v", r.Header.Get("N"), time.Since(began)))
				}))
				refused := 0
				for i := range 6 {
					go func() {
						if status(h, from("192.0.2.1:1", "N", fmt.Sprint(i))) == 429 {
							mu.Lock()
							refused++
							mu.Unlock()
						}
					}()
					synctest.Wait()
				}
				<-time.After(time.Minute)
				synctest.Wait()
				if got := strings.Join(passed, ", "); got != "0 at 0s, 1 at 1s, 2 at 2s, 3 at 3s" || refused != 2 {
					t.Errorf("%s; %d refused", got, refused)
				}
			})
		})
	}
}

// TestWaitBound: no request waits for longer than the bound, and one whose turn would come later is
// refused at once, with the time after which it can come.
func TestWaitBound(t *testing.T) {
	// in this process, a request that retries after 1 s would wait for at most the bound; a store says
	// when the request could go on without a wait
	for name, retry := range map[string]string{"one": "1", "keyed": "1", "shared": "3"} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				h := weirhttp.Limit(waiters(t, 100)[name], weirhttp.Global(), weirhttp.Wait(2500*time.Millisecond), weirhttp.InContext())(ok)
				var mu sync.Mutex
				count := map[string]int{}
				for range 10 {
					go func() {
						rec, began := httptest.NewRecorder(), time.Now()
						h.ServeHTTP(rec, from("192.0.2.1:1"))
						mu.Lock()
						defer mu.Unlock()
						count[fmt.Sprintf("%d after %v, retry %q", rec.Code, time.Since(began), rec.Header().Get("Retry-After"))]++
					}()
					synctest.Wait()
				}
				<-time.After(time.Minute)
				synctest.Wait()
				if got := fmt.Sprint(count); got != `map[200 after 0s, retry "":1 200 after 1s, retry "":1 200 after 2s, retry "":1 429 after 0s, retry "`+retry+`":7]` {
					t.Error(got)
				}
			})
		})
	}
}

// TestLeave: a request that leaves the queue gives up its place, and those behind it move up.
func TestLeave(t *testing.T) {
	for _, name := range []string{"one", "keyed"} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				began := time.Now()
				var last time.Duration
				h := weirhttp.Limit(waiters(t, 100)[name], weirhttp.Global())(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { last = time.Since(began) }))
				status(h, from("192.0.2.1:1"))
				ctx, leave := context.WithCancel(t.Context())
				for range 5 {
					go status(h, from("192.0.2.1:1").WithContext(ctx))
					synctest.Wait()
				}
				go status(h, from("192.0.2.1:1"))
				synctest.Wait()
				leave()
				<-time.After(time.Minute)
				synctest.Wait()
				if last != time.Second {
					t.Errorf("the last request passed after %v", last)
				}
			})
		})
	}
}

// TestWaiting: no more requests wait than the bounds allow.
func TestWaiting(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		perKey := waiters(t, 100)["keyed"]
		h := weirhttp.Limit(perKey, weirhttp.ByIP(), weirhttp.Waiting(policy.Waiting{Max: 3, PerClient: 2}))(ok)
		var refused atomic.Int64
		for _, address := range []string{"1.1.1.1:1", "1.1.1.1:1", "1.1.1.1:1", "1.1.1.1:1", "2.2.2.2:1", "2.2.2.2:1", "2.2.2.2:1"} {
			go func() {
				if status(h, from(address)) == 429 {
					refused.Add(1)
				}
			}()
			synctest.Wait()
		}
		if refused.Load() != 2 { // the fourth of the first client, and the third of the second
			t.Errorf("%d refused", refused.Load())
		}
		<-time.After(time.Minute)
		synctest.Wait()
	})
}

// places is a limit of n requests in flight, and a handler that says how many there are.
func places(t *testing.T, l weir.Concurrency) *keyed.Concurrency[string] {
	t.Helper()
	c, err := keyed.NewConcurrency[string](l, keyed.Options{Name: "in-flight"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

// TestInFlight: no more requests are in flight than the limit says, whether they return, panic, or
// their clients leave; none of them keeps a place.
func TestInFlight(t *testing.T) {
	c := places(t, weir.Concurrency{Limit: 3})
	var now, most atomic.Int64
	gate := make(chan struct{})
	h := weirhttp.Limit(weirhttp.InFlight(c), weirhttp.Global(), weirhttp.Status(503))(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		defer now.Add(-1)
		if n := now.Add(1); n > most.Load() {
			most.Store(n)
		}
		switch r.URL.Path {
		case "/panic":
			panic(http.ErrAbortHandler)
		case "/wait":
			<-gate
		case "/leave":
			<-r.Context().Done()
		}
	}))
	server := httptest.NewServer(h)
	defer server.Close()
	get := func(ctx context.Context, path string) int {
		r, err := http.NewRequestWithContext(ctx, "GET", server.URL+path, nil)
		if err != nil {
			t.Error(err)
			return 0
		}
		resp, err := server.Client().Do(r)
		if err != nil {
			return 0
		}
		defer resp.Body.Close()
		if resp.StatusCode == 503 && resp.Header.Get("RateLimit") != "" {
			t.Error("places have no quota")
		}
		return resp.StatusCode
	}
	for range 20 {
		get(t.Context(), "/panic")
	}
	var all sync.WaitGroup
	for range 3 {
		all.Go(func() {
			if got := get(t.Context(), "/wait"); got != 200 {
				t.Errorf("after panics: %d", got)
			}
		})
	}
	until(t, func() bool { return c.Holding("") == 3 })
	if got := get(t.Context(), "/"); got != 503 {
		t.Errorf("the fourth: %d", got)
	}
	close(gate)
	all.Wait()
	for range 3 {
		ctx, leave := context.WithCancel(t.Context())
		all.Go(func() { get(ctx, "/leave") })
		until(t, func() bool { return c.Holding("") == 1 })
		leave()
		until(t, func() bool { return c.Holding("") == 0 })
	}
	all.Wait()
	if most.Load() != 3 {
		t.Errorf("%d in flight", most.Load())
	}
}

// until waits for a condition.
func until(t *testing.T, done func() bool) {
	t.Helper()
	for end := time.Now().Add(time.Minute); !done(); {
		if time.Now().After(end) {
			t.Fatal("a minute has passed")
		}
		<-time.After(time.Millisecond)
	}
}

// TestInFlightQueue: requests wait for a place, for at most the bound.
func TestInFlightQueue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := weirhttp.Limit(weirhttp.InFlight(places(t, weir.Concurrency{Limit: 1, Queue: 3})), weirhttp.Global(), weirhttp.Wait(5*time.Second))(
			http.HandlerFunc(func(http.ResponseWriter, *http.Request) { <-time.After(2 * time.Second) }))
		var mu sync.Mutex
		count := map[string]int{}
		for range 6 {
			go func() {
				began := time.Now()
				code := status(h, from("192.0.2.1:1"))
				mu.Lock()
				defer mu.Unlock()
				count[fmt.Sprintf("%d after %v", code, time.Since(began))]++
			}()
			synctest.Wait()
		}
		<-time.After(time.Minute)
		synctest.Wait()
		if got := fmt.Sprint(count); got != "map[200 after 2s:1 200 after 4s:1 200 after 6s:1 429 after 0s:2 429 after 5s:1]" {
			t.Error(got)
		}
	})
}

// TestServer: with a real server and connections that stay open, refused requests with bodies get
// their responses, admitted ones their bodies, and handlers can flush, hijack and push as without a
// limit.
func TestServer(t *testing.T) {
	h := weirhttp.Limit(weirhttp.Keyed(perHour(t, 2)), weirhttp.ByHeader("X-Api-Key"))(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/hijack" {
			conn, _, err := w.(http.Hijacker).Hijack()
			if err != nil {
				t.Error(err)
				return
			}
			defer conn.Close()
			io.WriteString(conn, "raw")
			return
		}
		body, err := io.ReadAll(r.Body)
		if err != nil {
			t.Error(err)
		}
		w.(http.Flusher).Flush()
		if _, ok := w.(io.ReaderFrom); !ok {
			t.Errorf("a %T", w)
		}
		w.Write(body)
	}))
	server := httptest.NewServer(h)
	defer server.Close()
	// net/http reads the rest of a body of that size, so the connection stays usable
	large := strings.Repeat("x", 100<<10)
	for i, want := range []int{200, 200, 429, 429} {
		r, err := http.NewRequestWithContext(t.Context(), "POST", server.URL, strings.NewReader(large))
		if err != nil {
			t.Fatal(err)
		}
		resp, err := server.Client().Do(r)
		if err != nil {
			t.Fatal(err)
		}
		body, err := io.ReadAll(resp.Body)
		resp.Body.Close()
		if err != nil || resp.StatusCode != want || (string(body) == large) != (want == 200) {
			t.Errorf("%d: %d, %.50q, %v", i, resp.StatusCode, body, err)
		}
	}
	conn, err := net.Dial("tcp", strings.TrimPrefix(server.URL, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	fmt.Fprint(conn, "GET /hijack HTTP/1.1\r\nHost: a\r\nX-Api-Key: b\r\n\r\n")
	if got, err := io.ReadAll(bufio.NewReader(conn)); err != nil || string(got) != "raw" {
		t.Errorf("%q, %v", got, err)
	}
}
