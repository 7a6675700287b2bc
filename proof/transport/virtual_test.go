package transport

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/go-retryablehttp"

	"github.com/weirflow/weir"
	"github.com/weirflow/weir/internal/seeds"
	"github.com/weirflow/weir/weirhttp"
)

// network is an upstream without a network: a request and its response each take a random time.
type network struct {
	*upstream
	delay func() time.Duration
}

func (n network) RoundTrip(r *http.Request) (*http.Response, error) {
	for range 2 {
		select {
		case <-time.After(n.delay()):
		case <-r.Context().Done():
			return nil, r.Context().Err()
		}
		if r.Header == nil {
			return nil, errors.New("no header")
		}
	}
	h := http.Header{}
	return &http.Response{StatusCode: n.respond(h), Header: h, Body: io.NopCloser(strings.NewReader("")), Request: r}, nil
}

// compare adds what is printed and not asserted.
var compare = flag.Bool("compare", false, "measure other clients and fewer fields too, and print a table")

// virtual is how long each case runs, in virtual time.
var virtual = flag.Duration("virtual", 10*time.Second, "how long each case of TestHiddenLimits runs, in virtual time")

// measure runs goroutines that send one request after the other.
func measure(t *testing.T, u *upstream, goroutines int, client func(http.RoundTripper) http.RoundTripper) (r result) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		rng, duration := seeds.Of(t.Name()), *virtual
		u.start = time.Now()
		rt := client(network{u, func() time.Duration { return time.Duration(rng.ExpFloat64() * float64(time.Millisecond)) }})
		var all sync.WaitGroup
		for range goroutines {
			all.Go(func() {
				for time.Since(u.start) < duration {
					req, _ := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://upstream.test/", nil)
					resp, err := rt.RoundTrip(req)
					if err == nil {
						resp.Body.Close()
					}
				}
			})
		}
		time.AfterFunc(duration, func() { r = u.result(duration) })
		all.Wait()
	})
	return r
}

// retryable is hashicorp/go-retryablehttp with its defaults.
func retryable(base http.RoundTripper) http.RoundTripper {
	c := retryablehttp.NewClient()
	c.HTTPClient = &http.Client{Transport: base}
	c.Logger = nil
	return &retryablehttp.RoundTripper{Client: c}
}

// plain is a Transport that is given no limit.
func plain(base http.RoundTripper) http.RoundTripper { return weirhttp.NewTransport(base) }

// paced is a Transport with a limit.
func paced(l weir.Limit) func(http.RoundTripper) http.RoundTripper {
	return func(base http.RoundTripper) http.RoundTripper {
		limiter, err := weir.New(l)
		if err != nil {
			panic(err)
		}
		return weirhttp.NewTransport(base, weirhttp.Pace(weirhttp.One(limiter), weirhttp.Global()))
	}
}

// TestHiddenLimits: a Transport uses at least 95 % of a limit that it knows by the fields of the
// server or by Pace, and fewer than 1 request of 1000 is refused: of token buckets and fixed windows,
// for 1 and 50 goroutines. With -compare, what is reached with neither, and by go-retryablehttp, is
// printed too.
func TestHiddenLimits(t *testing.T) {
	limits := []struct {
		name  string
		limit func() hidden
	}{
		{"token bucket 100/s, burst 100", func() hidden { return &bucket{perSecond: 100, burst: 100} }},
		{"fixed window 100 per 1s", func() hidden { return &window{limit: 100, length: time.Second, shift: 371 * time.Millisecond} }},
		{"fixed window 600 per 10s", func() hidden { return &window{limit: 600, length: 10 * time.Second} }},
	}
	ours := []weir.Limit{
		weir.TokenBucket{Rate: weir.PerSecond(98), Burst: 1},
		weir.TokenBucket{Rate: weir.PerSecond(98), Burst: 1},
		weir.TokenBucket{Rate: weir.Rate{N: 588, Per: 10 * time.Second}, Burst: 1},
	}
	var table strings.Builder
	for i, l := range limits {
		for _, goroutines := range []int{1, 50} {
			for _, c := range []struct {
				name   string
				client func(http.RoundTripper) http.RoundTripper
				tells  fields
				holds  bool
			}{
				{"Transport", plain, allFields, true},
				{"Transport with Pace", paced(ours[i]), noFields, true},
				{"Transport with Pace", paced(ours[i]), allFields, true},
				{"Transport", plain, retryAfter, false},
				{"Transport", plain, noFields, false},
				{"go-retryablehttp", retryable, allFields, false},
				{"go-retryablehttp", retryable, noFields, false},
			} {
				if !c.holds && !*compare {
					continue
				}
				u := &upstream{limit: l.limit(), tells: c.tells}
				r := measure(t, u, goroutines, c.client)
				name := fmt.Sprintf("%-29s  %2d goroutines  %-19s  %-11s", l.name, goroutines, c.name, c.tells)
				fmt.Fprintf(&table, "%s  %v\n", name, r)
				if c.holds && (r.goodput < 0.95 || r.refused > 0.001) {
					t.Errorf("%s  %v", name, r)
				}
			}
		}
	}
	t.Logf("\n%s", table.String())
}
