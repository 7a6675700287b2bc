package transport

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/go-retryablehttp"

	"github.com/weirflow/weir"
	"github.com/weirflow/weir/adaptive"
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

// learning is how long clients run before they are measured that have to learn the limit.
const learning = 2 * time.Minute

// measure runs clients, each with goroutines that send one request after the other. It returns what
// they reached in the time before, and in the time of the measurement.
func measure(t *testing.T, u *upstream, clients, goroutines int, before, duration time.Duration, client func(http.RoundTripper) http.RoundTripper) (first, r result) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		rng := seeds.Of(t.Name())
		u.start = time.Now()
		var all sync.WaitGroup
		for range clients {
			rt := client(network{u, func() time.Duration { return time.Duration(rng.ExpFloat64() * float64(time.Millisecond)) }})
			for range goroutines {
				all.Go(func() {
					for time.Since(u.start) < before+duration {
						req, _ := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://upstream.test/", nil)
						resp, err := rt.RoundTrip(req)
						if err == nil {
							resp.Body.Close()
						}
					}
				})
			}
		}
		time.AfterFunc(before, func() { first = u.result(max(before, 1)); u.forget() })
		time.AfterFunc(before+duration, func() { r = u.result(duration) })
		all.Wait()
	})
	return first, r
}

// retryable is hashicorp/go-retryablehttp with its defaults.
func retryable(base http.RoundTripper) http.RoundTripper {
	c := retryablehttp.NewClient()
	c.HTTPClient = &http.Client{Transport: base}
	c.Logger = nil
	return &retryablehttp.RoundTripper{Client: c}
}

// plain is a Transport that is given no limit, in one of several processes.
func plain(processes int) func(http.RoundTripper) http.RoundTripper {
	return func(base http.RoundTripper) http.RoundTripper {
		return weirhttp.NewTransport(base, weirhttp.Processes(processes))
	}
}

// cubic is adaptive.Rate, by the formulas of the AWS SDKs.
type cubic struct {
	base http.RoundTripper
	rate *adaptive.Rate
}

func newCubic(base http.RoundTripper) http.RoundTripper {
	r, err := adaptive.NewRate(adaptive.RateOptions{})
	if err != nil {
		panic(err)
	}
	return cubic{base, r}
}

func (c cubic) RoundTrip(r *http.Request) (*http.Response, error) {
	turn, err := c.rate.Enter(r.Context())
	if err != nil {
		return nil, err
	}
	resp, err := c.base.RoundTrip(r)
	switch {
	case err != nil:
		turn.Done(weir.Ignore)
	case resp.StatusCode == http.StatusTooManyRequests:
		if s, err := strconv.Atoi(resp.Header.Get("Retry-After")); err == nil {
			c.rate.Pause(time.Duration(s) * time.Second)
		}
		turn.Done(weir.Dropped)
	default:
		turn.Done(weir.OK)
	}
	return resp, err
}

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

// hiddenLimits are the limits of the upstreams.
var hiddenLimits = []struct {
	name  string
	limit func() hidden
	ours  weir.Limit // a limit that keeps within it
}{
	{"token bucket 100/s, burst 100", func() hidden { return &bucket{perSecond: 100, burst: 100} },
		weir.TokenBucket{Rate: weir.PerSecond(98), Burst: 1}},
	{"fixed window 100 per 1s", func() hidden { return &window{limit: 100, length: time.Second, shift: 371 * time.Millisecond} },
		weir.TokenBucket{Rate: weir.PerSecond(98), Burst: 1}},
	{"fixed window 600 per 10s", func() hidden { return &window{limit: 600, length: 10 * time.Second} },
		weir.TokenBucket{Rate: weir.Rate{N: 588, Per: 10 * time.Second}, Burst: 1}},
}

// TestHiddenLimits: a Transport uses at least 95 % of a limit that it knows by the fields of the
// server or by Pace, and fewer than 1 request of 1000 is refused: of token buckets and fixed windows,
// for 1 and 50 goroutines. With -compare, what go-retryablehttp reaches is printed too.
func TestHiddenLimits(t *testing.T) {
	var table strings.Builder
	for _, l := range hiddenLimits {
		for _, goroutines := range []int{1, 50} {
			for _, c := range []struct {
				name   string
				client func(http.RoundTripper) http.RoundTripper
				tells  fields
				holds  bool
			}{
				{"Transport", plain(1), allFields, true},
				{"Transport with Pace", paced(l.ours), noFields, true},
				{"Transport with Pace", paced(l.ours), allFields, true},
				{"go-retryablehttp", retryable, allFields, false},
				{"go-retryablehttp", retryable, noFields, false},
			} {
				if !c.holds && !*compare {
					continue
				}
				u := &upstream{limit: l.limit(), tells: c.tells}
				_, r := measure(t, u, 1, goroutines, 0, *virtual, c.client)
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

// TestLearnedLimits: a Transport that knows a limit by refusals alone uses at least 75 % of it after
// two minutes, and fewer than 4 requests of 1000 are refused. Pauses are drawn at random, so these
// bounds are wide: with -compare, more is printed.
func TestLearnedLimits(t *testing.T) {
	var table strings.Builder
	for _, l := range hiddenLimits {
		for _, c := range []struct {
			clients, goroutines int
			tells               fields
			holds               bool
		}{
			{1, 1, noFields, true},
			{1, 50, noFields, true},
			{4, 12, noFields, false},
			{1, 1, retryAfter, false},
			{1, 50, retryAfter, false},
			{4, 12, retryAfter, false},
		} {
			if !c.holds && !*compare {
				continue
			}
			u := &upstream{limit: l.limit(), tells: c.tells}
			first, r := measure(t, u, c.clients, c.goroutines, learning, max(*virtual, learning), plain(1))
			name := fmt.Sprintf("%-29s  %d clients, %2d goroutines  %-11s", l.name, c.clients, c.goroutines, c.tells)
			if *compare {
				u := &upstream{limit: l.limit(), tells: c.tells}
				first, r := measure(t, u, c.clients, c.goroutines, learning, max(*virtual, learning), newCubic)
				fmt.Fprintf(&table, "%s  adaptive.Rate first %v\n%s  adaptive.Rate then  %v\n", name, first, name, r)
			}
			fmt.Fprintf(&table, "%s  first %v\n%s  then  %v\n", name, first, name, r)
			if c.holds && (r.goodput < 0.75 || r.refused > 0.004) {
				t.Errorf("%s  %v", name, r)
			}
		}
	}
	t.Logf("\n%s", table.String())
}

// TestSharedFields: four clients with Processes(4), which know a limit by the fields of the server
// alone, use at least 90 % of it, and fewer than 1 request of 1000 is refused.
func TestSharedFields(t *testing.T) {
	var table strings.Builder
	for _, l := range hiddenLimits {
		u := &upstream{limit: l.limit(), tells: allFields}
		_, r := measure(t, u, 4, 12, 0, *virtual, plain(4))
		fmt.Fprintf(&table, "%-29s  %v\n", l.name, r)
		if r.goodput < 0.9 || r.refused > 0.001 {
			t.Errorf("%s  %v", l.name, r)
		}
	}
	t.Logf("\n%s", table.String())
}
