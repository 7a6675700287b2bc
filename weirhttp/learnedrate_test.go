package weirhttp_test

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirflow/weir"
	"github.com/weirflow/weir/weirhttp"
)

// serverOf is a server with a limit that it says nothing about. It counts what it refuses.
func serverOf(l *weir.Limiter, refused *int) http.RoundTripper {
	var mu sync.Mutex
	return roundTrip(func(*http.Request) (*http.Response, error) {
		<-time.After(time.Millisecond)
		if l.Allow() {
			return response(200, ""), nil
		}
		mu.Lock()
		defer mu.Unlock()
		*refused++
		return response(429, ""), nil
	})
}

// TestLearnedRate: a server that answers 429 and says nothing about its limit is asked at a rate that
// it admits. A request whose turn at that rate comes after its deadline fails at once.
func TestLearnedRate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, err := weir.New(weir.TokenBucket{Rate: weir.PerSecond(10), Burst: 20})
		if err != nil {
			t.Fatal(err)
		}
		refused := 0
		rt := weirhttp.NewTransport(serverOf(l, &refused))
		for start := time.Now(); time.Since(start) < 2*time.Minute; {
			resp, err := get(t, rt, "http://a.test/")
			read(t, resp, err)
		}
		refused = 0
		var all sync.WaitGroup
		for range 100 {
			all.Go(func() {
				if resp, err := get(t, rt, "http://a.test/"); read(t, resp, err) != "" || resp.StatusCode != 200 {
					t.Errorf("%d", resp.StatusCode)
				}
			})
		}
		synctest.Wait()
		ctx, end := context.WithTimeout(t.Context(), 3*time.Second)
		defer end()
		req, _ := http.NewRequestWithContext(ctx, http.MethodGet, "http://a.test/", nil)
		start := time.Now()
		_, err = rt.RoundTrip(req) //nolint:bodyclose // there is none
		if !errors.Is(err, weir.ErrLimited) || !errors.Is(err, context.DeadlineExceeded) || time.Since(start) > 0 {
			t.Errorf("behind 100 requests at 10/s: %v after %v", err, time.Since(start))
		}
		all.Wait()
		if refused > 2 {
			t.Errorf("%d of 100 requests refused", refused)
		}
	})
}

// TestNoLearnedRate: with the option, a 429 holds back no requests after its pause.
func TestNoLearnedRate(t *testing.T) {
	for name, options := range map[string][]weirhttp.TransportOption{"learned": nil, "not learned": {weirhttp.NoLearnedRate()}} {
		synctest.Test(t, func(t *testing.T) {
			n := 0
			rt := weirhttp.NewTransport(roundTrip(func(*http.Request) (*http.Response, error) {
				if n++; n%100 == 0 && n <= 300 {
					return response(429, ""), nil
				}
				return response(200, ""), nil
			}), options...)
			for range 500 {
				resp, err := get(t, rt, "http://a.test/")
				read(t, resp, err)
			}
			start := time.Now()
			for range 500 {
				resp, err := get(t, rt, "http://a.test/")
				read(t, resp, err)
			}
			if took := time.Since(start); (took > 0) == strings.HasPrefix(name, "not") {
				t.Errorf("%s: 500 requests took %v", name, took)
			}
		})
	}
}
