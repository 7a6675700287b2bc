package weirhttp_test

import (
	"context"
	"fmt"
	"log"
	"net/http"
	"net/netip"
	"time"

	"github.com/weirflow/weir"
	"github.com/weirflow/weir/keyed"
	"github.com/weirflow/weir/policy"
	"github.com/weirflow/weir/weirhttp"
)

// The ways from other libraries in docs/go.md: see TestGoPageShowsTheExamples.

// Of x/time/rate.
func Example_xTimeRate() {
	all, err := weir.New(weir.TokenBucket{Rate: weir.PerSecond(100), Burst: 20})
	if err != nil {
		log.Fatal(err)
	}
	limited := weirhttp.Limit(weirhttp.One(all), weirhttp.Global())(handler)
	//
	show(limited)
	// Output:
	// 404, RateLimit: "default";r=19;t=1, Retry-After:
}

// Of httprate.
func Example_httprate() {
	r := routes{}
	endpoint := func(r *http.Request) (string, bool) { return r.URL.Path, true }
	perMinute, err := keyed.New[string](weir.SlidingCounter{Limit: 100, Window: time.Minute}, keyed.Options{Name: "per-minute"})
	if err != nil {
		log.Fatal(err)
	}
	r.Use(weirhttp.Limit(weirhttp.Keyed(perMinute), weirhttp.Join(weirhttp.ByIP(), endpoint),
		weirhttp.Headers(policy.HeaderXRateLimit)))
	//
	show(r[0](handler))
	// Output:
	// 404, RateLimit: , Retry-After:
}

// Of tollbooth.
func Example_tollbooth() {
	perClient, err := keyed.New[string](weir.TokenBucket{Rate: weir.PerSecond(1), Burst: 1}, keyed.Options{MaxKeys: 100_000})
	if err != nil {
		log.Fatal(err)
	}
	limited := weirhttp.Limit(weirhttp.Keyed(perClient), weirhttp.ByIP(netip.MustParsePrefix("10.0.0.0/8")))(handler)
	//
	show(limited)
	// Output:
	// 404, RateLimit: "default";r=0;t=1, Retry-After:
}

func Example_xTimeRateWait() {
	fmt.Println(work(context.Background()))
	// Output:
	// <nil>
}

// Of x/time/rate, for work that waits.
func work(ctx context.Context) error {
	l, err := weir.New(weir.TokenBucket{Rate: weir.PerSecond(100), Burst: 20})
	if err != nil {
		return err
	}
	if err := l.Wait(ctx, 5); err != nil {
		return err
	}
	r, ok := l.Reserve(1, -1)
	if !ok {
		return &weir.LimitedError{Decision: r.Decision()}
	}
	<-time.After(r.Delay())
	return nil
}

func Example_uberRatelimit() {
	done := 0
	err := workOff(context.Background(), []int{1, 2, 3}, func(int) { done++ })
	fmt.Println(done, err)
	// Output:
	// 3 <nil>
}

// Of uber/ratelimit.
func workOff(ctx context.Context, jobs []int, do func(job int)) error {
	l, err := weir.New(weir.TokenBucket{Rate: weir.PerSecond(100), Burst: 11})
	if err != nil {
		return err
	}
	for _, job := range jobs {
		if err := l.Wait(ctx, 1); err != nil {
			return err
		}
		do(job)
	}
	return nil
}

// routes stands for a router of chi.
type routes []func(http.Handler) http.Handler

func (r *routes) Use(m func(http.Handler) http.Handler) { *r = append(*r, m) }
