package weir_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/weirflow/weir"
	"github.com/weirflow/weir/weirtest"
)

// Five at once, and two per second after that. (The clock of these examples stands still until it
// is set. Leave WithClock out to use the real one.)
func ExampleNew() {
	var clock weirtest.Clock
	l, err := weir.New(weir.TokenBucket{Rate: weir.PerSecond(2), Burst: 5}, weir.Named("api"), weir.WithClock(clock.Now))
	if err != nil {
		fmt.Println(err)
		return
	}
	for range 5 {
		l.Allow()
	}
	d := l.Take(1)
	fmt.Println(d.Allowed, d.By, d.RetryAfter)

	clock.Set(int64(500 * time.Millisecond))
	fmt.Println(l.Allow())
	// Output:
	// false api 500ms
	// true
}

// The constructor returns an error for invalid parameters; no later call panics.
func ExampleNew_invalid() {
	_, err := weir.New(weir.TokenBucket{Rate: weir.PerSecond(0), Burst: 5})
	fmt.Println(err)
	// Output:
	// weir: TokenBucket.Rate: a rate of 0 lets nothing pass: it must be at least 1
}

func ExampleParseRate() {
	for _, text := range []string{"6/m", "20/100ms", "1/d", "10/1h30m", "0.5/s"} {
		r, err := weir.ParseRate(text)
		if err != nil {
			fmt.Println(err)
			continue
		}
		fmt.Println(r.N, "in", r.Per)
	}
	// Output:
	// 6 in 1m0s
	// 20 in 100ms
	// 1 in 24h0m0s
	// 10 in 1h30m0s
	// weir: rate "0.5/s": "0.5" is not a whole number (a fraction is written with a longer duration: 1/2s, not 0.5/s)
}

// A cost above one: a request that counts as much as ten.
func ExampleLimiter_Take() {
	l, _ := weir.New(weir.TokenBucket{Rate: weir.PerMinute(60), Burst: 10}, weir.WithClock(func() int64 { return 0 }))
	for _, cost := range []int64{8, 8, 2, 11} {
		d := l.Take(cost)
		fmt.Println(cost, d.Allowed, d.Remaining, d.RetryAfter)
	}
	// Output:
	// 8 true 2 0s
	// 8 false 2 6s
	// 2 true 0 0s
	// 11 false 0 -1ns
}

// Take as much as there is: of 100 bytes, those that may be sent now.
func ExampleLimiter_TakeAtMost() {
	l, _ := weir.New(weir.TokenBucket{Rate: weir.PerSecond(10), Burst: 64}, weir.WithClock(func() int64 { return 0 }))
	n, _ := l.TakeAtMost(100)
	fmt.Println("send", n)
	n, d := l.TakeAtMost(36)
	fmt.Println("send", n, "and come back in", d.RetryAfter)
	// Output:
	// send 64
	// send 0 and come back in 100ms
}

// A wait that cannot end before its deadline is refused at once, and charges nothing.
func ExampleLimiter_Wait() {
	l, _ := weir.New(weir.TokenBucket{Rate: weir.PerMinute(1), Burst: 1})
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()

	fmt.Println(l.Wait(ctx, 1))
	err := l.Wait(ctx, 1)
	fmt.Println(errors.Is(err, weir.ErrLimited), errors.Is(err, context.DeadlineExceeded))
	// Output:
	// <nil>
	// true true
}

// A request whose cost is only known afterwards: reserve an estimate, and settle the actual cost.
func ExampleLimiter_Reserve() {
	l, _ := weir.New(weir.TokenBucket{Rate: weir.PerSecond(1), Burst: 100}, weir.WithClock(func() int64 { return 0 }))
	r, ok := l.Reserve(40, 0)
	if !ok {
		fmt.Println("come back in", r.Delay())
		return
	}
	fmt.Println(l.Peek(0).Remaining)
	r.Settle(15) // less than the estimate
	fmt.Println(l.Peek(0).Remaining)
	// Output:
	// 60
	// 85
}

// A change of the limit keeps what was used: four of ten, and then four of twenty.
func ExampleLimiter_SetLimit() {
	l, _ := weir.New(weir.TokenBucket{Rate: weir.PerSecond(1), Burst: 10}, weir.WithClock(func() int64 { return 0 }))
	l.Take(4)
	if err := l.SetLimit(weir.TokenBucket{Rate: weir.PerSecond(5), Burst: 20}); err != nil {
		fmt.Println(err)
	}
	fmt.Println(l.Peek(0).Remaining)
	// Output: 16
}

// nginx's limit_req with rate=10r/s and burst=2: one request goes at once, two are delayed, and the
// next is refused.
func ExampleLeakyBucket() {
	l, _ := weir.New(weir.LeakyBucket{Rate: weir.PerSecond(10), Queue: 2}, weir.WithClock(func() int64 { return 0 }))
	for range 4 {
		r, ok := l.Reserve(1, -1)
		fmt.Println(ok, r.Delay())
	}
	// Output:
	// true 0s
	// true 100ms
	// true 200ms
	// false 100ms
}

// Three per second and five per minute: By names the limit that refused.
func ExampleAll() {
	limit := weir.All(
		weir.TokenBucket{Rate: weir.PerSecond(3), Burst: 3},
		weir.SlidingLog{Limit: 5, Window: time.Minute},
	)
	var clock weirtest.Clock
	l, err := weir.New(limit, weir.Named("api"), weir.WithClock(clock.Now))
	if err != nil {
		fmt.Println(err)
		return
	}
	l.Take(3)
	d := l.Take(1)
	fmt.Println(d.Allowed, d.By, d.RetryAfter.Round(time.Millisecond))

	clock.Set(int64(time.Second))
	l.Take(2)
	d = l.Take(1)
	fmt.Println(d.Allowed, d.By, d.RetryAfter)
	// Output:
	// false api/token_bucket.1 333ms
	// false api/sliding_log.2 59s
}

// A request and the bytes of its body: both are charged, or neither.
func ExampleNewGroup() {
	still := weir.WithClock(func() int64 { return 0 })
	requests, _ := weir.New(weir.TokenBucket{Rate: weir.PerSecond(10), Burst: 10}, weir.Named("requests"), still)
	bytes, _ := weir.New(weir.TokenBucket{Rate: weir.PerSecond(1 << 20), Burst: 1 << 20}, weir.Named("bytes"), still)
	g := weir.NewGroup(requests, bytes)

	fmt.Println(g.Take(1, 1<<20).Allowed)
	d := g.Take(1, 512<<10)
	fmt.Println(d.Allowed, d.By, d.RetryAfter)
	fmt.Println("requests left:", requests.Peek(0).Remaining)
	// Output:
	// true
	// false bytes 500ms
	// requests left: 9
}

// The pure function of every limiter: a program that stores states itself calls it with its own
// clock.
func ExampleStep() {
	limit := weir.TokenBucket{Rate: weir.PerSecond(10), Burst: 1}
	var state []int64
	for _, millis := range []int64{0, 50, 100} {
		var d weir.Decision
		state, d = weir.Step(limit, state, millis, 1, time.Millisecond)
		fmt.Println(d.Allowed, d.RetryAfter)
	}
	// Output:
	// true 0s
	// false 50ms
	// true 0s
}
