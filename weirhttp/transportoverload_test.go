package weirhttp_test

import (
	"context"
	"errors"
	"math"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirflow/weir/adaptive"
	"github.com/weirflow/weir/weirhttp"
)

// A busy server has a worker, and refuses a request if its queue is full. To refuse one takes a half of
// the time to serve one.
type busy struct {
	refusal int // its status
	queue   chan chan int
	served  atomic.Int64
}

// newBusy starts a server. stop ends it.
func newBusy(refusal int, serve time.Duration) (b *busy, stop func()) {
	b = &busy{refusal: refusal, queue: make(chan chan int, 1000)}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for ctx.Err() == nil {
			select {
			case reply := <-b.queue:
				if len(b.queue) > 10 {
					after(serve / 2)
					reply <- b.refusal
					continue
				}
				after(serve)
				reply <- 200
				b.served.Add(1)
			case <-ctx.Done():
			}
		}
	}()
	return b, func() {
		cancel()
		<-ended
	}
}

func (b *busy) RoundTrip(r *http.Request) (*http.Response, error) {
	reply := make(chan int, 1)
	select {
	case b.queue <- reply:
	default:
		return nil, &net.OpError{Op: "dial", Err: errors.New("connection refused")}
	}
	select {
	case status := <-reply:
		return response(status, ""), nil
	case <-r.Context().Done():
		return nil, r.Context().Err()
	}
}

// stubborn sends a request up to three times more, whatever others do.
type stubborn struct{ http.RoundTripper }

func (s stubborn) RoundTrip(r *http.Request) (resp *http.Response, err error) {
	for n := range 4 {
		if n > 0 {
			after(100 * time.Millisecond)
		}
		if resp, err = s.RoundTripper.RoundTrip(r); err == nil && resp.StatusCode == 200 {
			break
		}
	}
	return resp, err
}

// TestRetriesAtFullLoad: a server gets as many requests as it can serve, and once a hundred more at a
// time. Clients that retry three times each keep it busy with refusals ever after; within the budget,
// it serves nearly all again.
func TestRetriesAtFullLoad(t *testing.T) {
	served := map[bool]int64{}
	for _, within := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			server, stop := newBusy(502, 10*time.Millisecond)
			defer stop()
			rt := http.RoundTripper(stubborn{server})
			if within {
				rt = weirhttp.NewTransport(server, weirhttp.Retries(3))
			}
			var all sync.WaitGroup
			one := func() {
				if resp, err := get(t, rt, "http://a.test/"); err == nil {
					resp.Body.Close()
				}
			}
			for i := range 3000 {
				if i == 500 {
					for range 100 {
						all.Go(one)
					}
				}
				if i == 2000 {
					served[within] = -server.served.Load()
				}
				all.Go(one)
				after(10 * time.Millisecond)
			}
			served[within] += server.served.Load()
			all.Wait()
		})
	}
	t.Logf("of the last 1000 requests: %v", served)
	if served[false] > 300 || served[true] < 850 {
		t.Errorf("served of the last 1000 requests, within the budget or not: %v", served)
	}
}

// TestRetryBudgetByHost: requests to other hosts earn no retries for one that fails, and one that
// fails spends none of theirs.
func TestRetryBudgetByHost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var sent, others atomic.Int64
		rt := weirhttp.NewTransport(roundTrip(func(r *http.Request) (*http.Response, error) {
			if r.URL.Host == "down.test" {
				sent.Add(1)
				return response(502, ""), nil
			}
			if others.Add(1)%200 == 0 {
				return nil, &net.OpError{Op: "read", Err: errors.New("connection reset")}
			}
			return fine(r)
		}))
		for i := range 1000 {
			for range 9 {
				if resp, err := get(t, rt, "http://a.test/"); err != nil {
					t.Fatal(err)
				} else {
					read(t, resp, err)
				}
			}
			if i%2 == 0 {
				resp, err := get(t, rt, "http://down.test/")
				read(t, resp, err)
			}
		}
		if n := sent.Load(); n < 550 || n > 560 {
			t.Errorf("500 requests to a server that is down are sent %d times", n)
		}
		if n := rt.Counts(); n.NoBudget < 400 || n.Requests != 9500 {
			t.Errorf("%+v", n)
		}
	})
}

// TestRetryFloor: a client that hardly calls may retry, and so many times in each second.
func TestRetryFloor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for floor, want := range map[int]int64{0: 115, 1: 200, 5: 400} {
			var sent atomic.Int64
			rt := weirhttp.NewTransport(roundTrip(func(*http.Request) (*http.Response, error) {
				sent.Add(1)
				return response(502, ""), nil
			}), weirhttp.RetryFloor(floor))
			for range 100 {
				resp, err := get(t, rt, "http://a.test/")
				read(t, resp, err)
				after(time.Second)
			}
			if n := sent.Load(); n < want {
				t.Errorf("floor %d: 100 requests are sent %d times, want %d at least", floor, n, want)
			}
		}
	})
}

// TestOverloadOptions: an option that makes no sense is a mistake of the program.
func TestOverloadOptions(t *testing.T) {
	for name, f := range map[string]func(){
		"K below 1":          func() { weirhttp.Throttle(0.5) },
		"K is no number":     func() { weirhttp.Throttle(math.NaN()) },
		"K without an end":   func() { weirhttp.Throttle(math.Inf(1)) },
		"floor below 0":      func() { weirhttp.RetryFloor(-1) },
		"Delay below 0":      func() { weirhttp.Hedge(weirhttp.Hedging{Delay: -1}) },
		"Share 1":            func() { weirhttp.Hedge(weirhttp.Hedging{Share: 1}) },
		"Share is no number": func() { weirhttp.Hedge(weirhttp.Hedging{Share: math.NaN()}) },
		"Delay and Share":    func() { weirhttp.Hedge(weirhttp.Hedging{Delay: time.Second, Share: 0.9}) },
		"101 percent":        func() { weirhttp.Hedge(weirhttp.Hedging{Percent: 101}) },
		"Burst below 0":      func() { weirhttp.Hedge(weirhttp.Hedging{Burst: -1}) },
		"a bad limit":        func() { weirhttp.Adapt(adaptive.Options{Algorithm: adaptive.AIMD{Min: -1}}) },
	} {
		func() {
			defer func() {
				if text, ok := recover().(string); !ok || !strings.HasPrefix(text, "weirhttp: ") {
					t.Errorf("%s: %q", name, text)
				}
			}()
			f()
		}()
	}
}
