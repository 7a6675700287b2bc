package weir_test

import (
	"fmt"
	"time"

	"github.com/weirflow/weir"
	"github.com/weirflow/weir/weirtest"
)

// show takes costs at given times, and prints the decisions.
func show(l weir.Limit, asks ...ask) {
	var clock weirtest.Clock
	lim, err := weir.New(l, weir.WithClock(clock.Now))
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, a := range asks {
		clock.Set(int64(a.at))
		if d := lim.Take(a.cost); d.Allowed {
			fmt.Printf("%v: %d admitted, %d left\n", a.at, a.cost, d.Remaining)
		} else {
			fmt.Printf("%v: %d refused, retry in %v\n", a.at, a.cost, d.RetryAfter)
		}
	}
}

type ask struct {
	at   time.Duration
	cost int64
}

// A rate of 10 per second, with bursts of 5.
func ExampleTokenBucket() {
	show(weir.TokenBucket{Rate: weir.PerSecond(10), Burst: 5},
		ask{0, 5}, ask{0, 1}, ask{100 * time.Millisecond, 1}, ask{time.Hour, 5})
	// Output:
	// 0s: 5 admitted, 0 left
	// 0s: 1 refused, retry in 100ms
	// 100ms: 1 admitted, 0 left
	// 1h0m0s: 5 admitted, 0 left
}

// "100 tokens, and 20 more each minute": the 20 come all at once, a minute after the bucket was
// last full.
func ExampleIntervalBucket() {
	show(weir.IntervalBucket{Burst: 100, Refill: 20, Every: time.Minute},
		ask{0, 100}, ask{59 * time.Second, 1}, ask{time.Minute, 20}, ask{time.Minute, 100})
	// Output:
	// 0s: 100 admitted, 0 left
	// 59s: 1 refused, retry in 1s
	// 1m0s: 20 admitted, 0 left
	// 1m0s: 100 refused, retry in 5m0s
}

// A thousand per hour, counted from hour to hour. Around a boundary two thousand may come within a
// second, as with every fixed window.
func ExampleFixedWindow() {
	show(weir.FixedWindow{Limit: 1000, Window: time.Hour},
		ask{time.Hour - time.Second, 1000}, ask{time.Hour - time.Second, 1}, ask{time.Hour, 1000})
	// Output:
	// 59m59s: 1000 admitted, 0 left
	// 59m59s: 1 refused, retry in 1s
	// 1h0m0s: 1000 admitted, 0 left
}

// A monthly quota, as on an invoice. In Berlin, March 2026 is an hour shorter than its days, and
// ends at midnight there.
func ExampleFixedWindow_calendar() {
	at := func(text string) time.Duration {
		t, _ := time.Parse(time.RFC3339, text)
		return time.Duration(t.UnixNano())
	}
	var clock weirtest.Clock
	l, err := weir.New(weir.FixedWindow{Limit: 10_000, Align: "month:Europe/Berlin"}, weir.WithClock(clock.Now))
	if err != nil {
		fmt.Println(err) // without time zones on the machine: import _ "time/tzdata"
		return
	}
	clock.Set(int64(at("2026-03-31T23:59:59+02:00")))
	fmt.Println(l.Take(10_000).ResetAfter)
	clock.Set(int64(at("2026-04-01T00:00:00+02:00")))
	fmt.Println(l.Take(10_000).ResetAfter)
	// Output:
	// 1s
	// 720h0m0s
}

// 100 per second, and at most 20 in any tenth of it.
func ExampleSlidingWindow() {
	show(weir.SlidingWindow{Limit: 100, Window: time.Second, Slots: 10, SlotLimit: 20},
		ask{0, 20}, ask{0, 1}, ask{100 * time.Millisecond, 20}, ask{200 * time.Millisecond, 20}, ask{300 * time.Millisecond, 20},
		ask{400 * time.Millisecond, 20}, ask{500 * time.Millisecond, 1})
	// Output:
	// 0s: 20 admitted, 0 left
	// 0s: 1 refused, retry in 100ms
	// 100ms: 20 admitted, 0 left
	// 200ms: 20 admitted, 0 left
	// 300ms: 20 admitted, 0 left
	// 400ms: 20 admitted, 0 left
	// 500ms: 1 refused, retry in 500ms
}

// The ten of the previous window count less and less as this window goes on.
func ExampleSlidingCounter() {
	show(weir.SlidingCounter{Limit: 10, Window: time.Minute},
		ask{30 * time.Second, 10}, ask{time.Minute, 1}, ask{66 * time.Second, 1}, ask{90 * time.Second, 4}, ask{90 * time.Second, 1})
	// Output:
	// 30s: 10 admitted, 0 left
	// 1m0s: 1 refused, retry in 6s
	// 1m6s: 1 admitted, 0 left
	// 1m30s: 4 admitted, 0 left
	// 1m30s: 1 refused, retry in 6s
}

// Never more than 3 in any 10 seconds: each charge counts for exactly 10 seconds.
func ExampleSlidingLog() {
	show(weir.SlidingLog{Limit: 3, Window: 10 * time.Second},
		ask{0, 1}, ask{4 * time.Second, 2}, ask{9 * time.Second, 1}, ask{10 * time.Second, 1}, ask{10 * time.Second, 2})
	// Output:
	// 0s: 1 admitted, 2 left
	// 4s: 2 admitted, 0 left
	// 9s: 1 refused, retry in 1s
	// 10s: 1 admitted, 0 left
	// 10s: 2 refused, retry in 4s
}

// Guava's RateLimiter: a large request goes at once, and the next one waits for it.
func ExampleSmoothBursty() {
	show(weir.SmoothBursty{Rate: weir.PerSecond(10)},
		ask{0, 50}, ask{0, 1}, ask{5 * time.Second, 1}, ask{time.Minute, 10})
	// Output:
	// 0s: 50 admitted, 0 left
	// 0s: 1 refused, retry in 5s
	// 5s: 1 admitted, 0 left
	// 1m0s: 10 admitted, 0 left
}

// A cold cache: the first requests go at a third of the rate. After ten seconds of work it is the
// full rate.
func ExampleWarmUp() {
	var clock weirtest.Clock
	l, _ := weir.New(weir.WarmUp{Rate: weir.PerSecond(10), Period: 10 * time.Second}, weir.WithClock(clock.Now))
	for second := range 13 {
		n := 0
		for ms := range 1000 {
			clock.Set(int64(time.Duration(second)*time.Second + time.Duration(ms)*time.Millisecond))
			if l.Allow() {
				n++
			}
		}
		fmt.Print(n, " ")
	}
	// Output: 4 3 4 4 5 4 5 6 7 8 10 10 10
}
