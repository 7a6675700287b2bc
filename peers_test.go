package weir_test

import (
	"context"
	"errors"
	"math"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirflow/weir"
)

// Each test here is named after a defect of another rate limiter, in Go or Java, that was seen by
// running or reading it. keyed and policy have such tests too.

// everyLimit returns a limit of each algorithm, of about ten per second.
func everyLimit() []weir.Limit {
	return []weir.Limit{
		weir.TokenBucket{Rate: weir.PerSecond(10), Burst: 10},
		weir.LeakyBucket{Rate: weir.PerSecond(10), Queue: 20, DelayAfter: 9},
		weir.IntervalBucket{Burst: 10, Refill: 10, Every: time.Second},
		weir.FixedWindow{Limit: 10, Window: time.Second},
		weir.FixedWindow{Limit: 10, Window: time.Second, Align: weir.AlignFirst},
		weir.SlidingWindow{Limit: 10, Window: time.Second, Slots: 10},
		weir.SlidingCounter{Limit: 10, Window: time.Second},
		weir.SlidingLog{Limit: 10, Window: time.Second},
		weir.SmoothBursty{Rate: weir.PerSecond(10)},
		weir.WarmUp{Rate: weir.PerSecond(10), Period: time.Second},
	}
}

// drain takes ones until it is refused, at most n times, and returns the number that was admitted.
func drain(l *weir.Limiter, n int) (got int) {
	for got < n && l.Allow() {
		got++
	}
	return got
}

// golang.org/x/time/rate (golang/go#56287, #65508, #71360), Spring Cloud Gateway: a reading that is
// earlier than the last one is stored, and the time until the last one then counts again: 200 of 5
// were admitted while no time passed.
func TestPeerClockThatStepsBackMints(t *testing.T) {
	for _, limit := range everyLimit() {
		l, c := onClock(t, limit)
		c.Set(int64(10 * time.Second))
		first := drain(l, 1000)
		for range 100 {
			c.Set(int64(9 * time.Second))
			if n := drain(l, 1000); n > 0 {
				t.Errorf("%T: %d at an earlier reading", limit, n)
			}
			c.Set(int64(10 * time.Second))
			if n := drain(l, 1000); n > 0 {
				t.Errorf("%T: %d minted, after %d", limit, n, first)
			}
		}
	}
}

// failsafe-go, bursty: after a debt and an idle time the refill has no cap: 299 at once, of a limit
// of 10.
func TestPeerRefillAfterADebtHasNoCap(t *testing.T) {
	for _, limit := range everyLimit() {
		l, c := onClock(t, limit)
		l.Reserve(10, -1)
		l.Reserve(1, -1)
		c.Set(int64(time.Hour))
		if n := drain(l, 1000); n > 11 {
			t.Errorf("%T: %d at once", limit, n)
		}
	}
}

// failsafe-go's AcquirePermits, Bucket4j's blocking bucket, Resilience4j: a caller that stops
// waiting keeps its permit, and the next caller pays for it.
func TestPeerCancelledWaiterKeepsItsToken(t *testing.T) {
	for _, limit := range everyLimit() {
		synctest.Test(t, func(t *testing.T) {
			l := newLimiter(t, limit)
			drain(l, 1000)
			before := l.Peek(1).RetryAfter
			for range 50 {
				ctx, cancel := context.WithCancel(t.Context())
				failed := make(chan error)
				go func() { failed <- l.Wait(ctx, 1) }()
				synctest.Wait()
				cancel()
				if err := <-failed; !errors.Is(err, context.Canceled) {
					t.Errorf("%T: %v", limit, err)
				}
			}
			if after := l.Peek(1).RetryAfter; after != before {
				t.Errorf("%T: %v after the waits, %v before", limit, after, before)
			}
		})
	}
}

// throttled: quantity * interval overflows, so that 150,000 of 1 per day are allowed, and 63,503
// are left. The same in Resilience4j's divCeil.
func TestPeerHugeCostOverflows(t *testing.T) {
	for _, limit := range append(everyLimit(), weir.TokenBucket{Rate: weir.PerDay(1), Burst: 1}, weir.IntervalBucket{Burst: 1, Refill: 1, Every: 24 * time.Hour}) {
		l, _ := onClock(t, limit)
		drain(l, 1000)
		for _, cost := range []int64{150_000, 1 << 40, math.MaxInt64 - 1, math.MaxInt64} {
			if d := l.Take(cost); d.Allowed || d.Remaining != 0 {
				t.Errorf("%T: %d: %+v", limit, cost, d)
			}
		}
	}
}

// redis_rate, x/time/rate, gubernator, Redisson: a negative cost is allowed, and fills the bucket.
func TestPeerNegativeCostIsACredit(t *testing.T) {
	for _, limit := range everyLimit() {
		l, _ := onClock(t, limit)
		drain(l, 1000)
		for _, cost := range []int64{-1, -50, math.MinInt64} {
			if d := l.Take(cost); d.Allowed || d.RetryAfter != weir.Never {
				t.Errorf("%T: %d: %+v", limit, cost, d)
			}
			if r, ok := l.Reserve(cost, -1); ok {
				t.Errorf("%T: %d reserved: %+v", limit, cost, r.Decision())
			}
			if err := l.Wait(t.Context(), cost); err != weir.ErrCost {
				t.Errorf("%T: %d: %v", limit, cost, err)
			}
		}
		if l.Allow() {
			t.Errorf("%T: filled by a negative cost", limit)
		}
	}
}

// failsafe-go's NewSmooth(0), go.uber.org/ratelimit's New(0), throttled's PerSec(0): a division by
// zero at the first use. caddy-ratelimit: the documented max_events of 0 panics.
func TestPeerRateZeroPanics(t *testing.T) {
	zero := weir.PerSecond(0)
	for _, limit := range []weir.Limit{
		nil, weir.TokenBucket{Rate: zero, Burst: 1}, weir.TokenBucket{Rate: weir.Rate{N: 1}, Burst: 1}, weir.TokenBucket{Rate: weir.PerSecond(1)},
		weir.LeakyBucket{Rate: zero}, weir.IntervalBucket{}, weir.IntervalBucket{Burst: 1, Refill: 1}, weir.FixedWindow{Window: time.Second},
		weir.FixedWindow{Limit: 1}, weir.SlidingWindow{}, weir.SlidingWindow{Limit: 1, Window: time.Second}, weir.SlidingCounter{Limit: 1},
		weir.SlidingLog{Window: time.Second}, weir.SmoothBursty{Rate: zero}, weir.WarmUp{Rate: zero, Period: time.Second}, weir.WarmUp{Rate: weir.PerSecond(1)},
	} {
		if l, err := weir.New(limit); err == nil || l != nil {
			t.Errorf("%#v: %v", limit, l)
		}
		if _, d := weir.Step(limit, nil, 0, 1, time.Nanosecond); d.Allowed || d.RetryAfter != weir.Never {
			t.Errorf("%#v: %+v", limit, d)
		}
	}
}

// go.uber.org/ratelimit's New(2e9), throttled's PerDuration(2e9, 1s): the interval is truncated to
// 0, so there is no limit; failsafe-go panics. Guava counts microseconds: 80,000/s become 83,333,
// and from a million on everything is admitted. Sentinel's throttling counts milliseconds: 1,500/s
// admit 156,400.
func TestPeerFastRatesAreTruncated(t *testing.T) {
	for _, perSecond := range []int64{3, 30, 1500, 80_000, 600_000, 1_500_000, 999_999_937, 2_000_000_000} {
		rate := weir.PerSecond(perSecond)
		for _, limit := range []weir.Limit{
			weir.TokenBucket{Rate: rate, Burst: 2}, weir.LeakyBucket{Rate: rate, Queue: 1, DelayAfter: 1}, weir.SmoothBursty{Rate: rate, MaxBurst: 10},
		} {
			const n = 1000
			prepared, err := weir.Prepare(limit, time.Nanosecond)
			if err != nil {
				t.Fatal(err)
			}
			var state []int64
			now := int64(0)
			for range n { // each as soon as possible
				var d weir.Decision
				if state, d = prepared.Step(state, now, 1); !d.Allowed {
					now += int64(d.RetryAfter)
					if state, d = prepared.Step(state, now, 1); !d.Allowed {
						t.Fatalf("%v: %+v", limit, d)
					}
				}
			}
			// The last one goes when n minus the burst tokens have come, rounded up once.
			comes := int64(n - 2)
			if _, ok := limit.(weir.SmoothBursty); ok {
				comes = n - 1
			}
			if want := (comes*int64(time.Second) + perSecond - 1) / perSecond; now != want {
				t.Errorf("%v: %d took %d ns, want %d", limit, n, now, want)
			}
		}
	}
}

// oxy: the fraction of a token that came since the last refill is dropped: of 100/s, a demand of
// 104/s gets 56.
func TestPeerRemaindersOfRefillsAreDropped(t *testing.T) {
	for _, limit := range []weir.Limit{weir.TokenBucket{Rate: weir.PerSecond(100), Burst: 2}, weir.SmoothBursty{Rate: weir.PerSecond(100)}} {
		l, c := onClock(t, limit)
		got := 0
		for i := range 104 * 60 {
			c.Set(int64(time.Duration(i) * time.Minute / (104 * 60)))
			got += drain(l, 1)
		}
		if got < 5999 || got > 6002 {
			t.Errorf("%T: %d of 6000", limit, got)
		}
	}
}

// httprate: a caller that computed its window before a boundary, and counts after it, wipes the
// counts of the new window.
func TestPeerLateReadingWipesTheWindow(t *testing.T) {
	for _, limit := range []weir.Limit{
		weir.FixedWindow{Limit: 50, Window: time.Minute}, weir.SlidingCounter{Limit: 50, Window: time.Minute},
		weir.SlidingWindow{Limit: 50, Window: time.Minute, Slots: 6}, weir.SlidingLog{Limit: 50, Window: time.Minute},
	} {
		l, c := onClock(t, limit)
		c.Set(int64(time.Minute))
		l.Take(49)
		c.Set(int64(time.Minute) - 1)
		l.Take(1)
		c.Set(int64(time.Minute))
		if d := l.Take(1); d.Allowed || d.Remaining != 0 {
			t.Errorf("%T: %+v", limit, d)
		}
	}
}

// mennanov/limiters: previous * time left overflows for 200,000 per day, and the previous window
// counts below zero.
func TestPeerWeightedCountOverflows(t *testing.T) {
	for _, n := range []int64{200_000, math.MaxInt64 / 2, math.MaxInt64} {
		l, c := onClock(t, weir.SlidingCounter{Limit: n, Window: 24 * time.Hour})
		l.Take(n)
		c.Set(int64(24 * time.Hour))
		if d := l.Take(1); d.Allowed || d.Remaining != 0 {
			t.Errorf("%d: %+v", n, d)
		}
		c.Set(int64(36 * time.Hour))
		if d := l.Peek(1); d.Remaining != n/2 {
			t.Errorf("%d: %+v", n, d)
		}
	}
}

// go-limiter and ulule/limiter read the runtime's clock by linkname: in a synctest bubble a window
// of a minute has not ended after two.
func TestPeerClockIsNotTheBubbles(t *testing.T) {
	for _, limit := range everyLimit() {
		synctest.Test(t, func(t *testing.T) {
			l := newLimiter(t, limit)
			first := drain(l, 1000)
			<-time.After(2 * time.Minute)
			if n := drain(l, 1000); n < first {
				t.Errorf("%T: %d after two minutes, %d at first", limit, n, first)
			}
		})
	}
}

// gubernator: once over the limit, the decision stays the same until the window ends, also if the
// limit is raised.
func TestPeerRaisedLimitStillRefuses(t *testing.T) {
	l, _ := onClock(t, weir.FixedWindow{Limit: 10, Window: time.Hour})
	drain(l, 1000)
	if err := l.SetLimit(weir.FixedWindow{Limit: 15, Window: time.Hour}); err != nil {
		t.Fatal(err)
	}
	if d := l.Take(5); !d.Allowed {
		t.Errorf("%+v", d)
	}
}

// golang.org/x/time/rate: a limiter of rate Inf and burst 0 refuses forever after it gets a rate.
// Guava: after setRate(+Inf) the stored permits are NaN.
func TestPeerUnlimitedThenLimited(t *testing.T) {
	for _, limits := range [][2]weir.Limit{
		{weir.SmoothBursty{Rate: weir.Unlimited}, weir.SmoothBursty{Rate: weir.PerSecond(5)}},
		{weir.WarmUp{Rate: weir.Unlimited, Period: time.Second}, weir.WarmUp{Rate: weir.PerSecond(5), Period: time.Second}},
	} {
		l, c := onClock(t, limits[1])
		for range 3 {
			drain(l, 1000)
			if err := l.SetLimit(limits[0]); err != nil {
				t.Fatal(err)
			}
			c.Set(c.Now() + int64(time.Minute))
			if n := drain(l, 1000); n != 1000 {
				t.Errorf("%T: %d of 1000 without a limit", limits[0], n)
			}
			if err := l.SetLimit(limits[1]); err != nil {
				t.Fatal(err)
			}
			if n := drain(l, 1000); n < 1 || n > 6 {
				t.Errorf("%T: %d once there was a limit again", limits[1], n)
			}
		}
	}
}

// golang.org/x/time/rate (golang/go#54541): if the deadline is too near for a wait, no errors.Is
// finds the error. Resilience4j (#1283): a wait that cannot succeed sleeps to its end all the same.
func TestPeerHopelessWaits(t *testing.T) {
	for _, limit := range everyLimit() {
		synctest.Test(t, func(t *testing.T) {
			l := newLimiter(t, limit)
			drain(l, 1000)
			start := time.Now()
			ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
			defer cancel()
			err := l.Wait(ctx, 1)
			if !errors.Is(err, weir.ErrLimited) || !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), "deadline") || time.Since(start) > 0 {
				t.Errorf("%T: %v after %v", limit, err, time.Since(start))
			}
		})
	}
}

// Bucket4j rounds waits down: with 3 per 10 ns it says 3 ns, and then refuses with a wait of 0.
// mennanov/limiters ignores the time that has passed; Redisson reports the expiry of the first
// entry, and then of the next.
func TestPeerRetryTooSoon(t *testing.T) {
	limits := append(everyLimit(), weir.TokenBucket{Rate: weir.Rate{N: 3, Per: 10}, Burst: 10}, weir.IntervalBucket{Burst: 10, Refill: 3, Every: 10})
	for _, limit := range limits {
		l, c := onClock(t, limit)
		c.Set(3)
		l.Take(1)
		c.Set(4)
		drain(l, 1000)
		for _, cost := range []int64{1, 5, 10} {
			d := l.Peek(cost)
			if d.Allowed || d.RetryAfter < 1 {
				t.Errorf("%+v: %+v", limit, d)
				continue
			}
			for early, want := range map[time.Duration]bool{0: true, 1: false} {
				c.Set(4 + int64(d.RetryAfter-early))
				if got := l.Peek(cost); got.Allowed != want || !want && got.RetryAfter != early {
					t.Errorf("%+v: %d before %v: %+v", limit, early, d.RetryAfter, got)
				}
			}
			c.Set(4)
		}
	}
}

// mennanov/limiters, throttled's memory store: for a cost above the capacity they return a wait,
// after which it is refused again.
func TestPeerImpossibleCostGetsAWait(t *testing.T) {
	for _, limit := range everyLimit()[:8] { // the other algorithms refuse no cost for its size
		l, _ := onClock(t, limit)
		if d := l.Take(l.Peek(0).Limit + 1); d.Allowed || d.RetryAfter != weir.Never {
			t.Errorf("%T: %+v", limit, d)
		}
	}
}

// ulule/limiter, rueidislimiter, older Redisson: refused requests count too, so a client that keeps
// trying is never admitted again.
func TestPeerRefusalsAreCounted(t *testing.T) {
	for _, limit := range everyLimit() {
		l, c := onClock(t, limit)
		drain(l, 1000)
		before := l.Peek(1)
		for range 100 {
			l.Take(5)
			l.Take(1)
		}
		if after := l.Peek(1); after != before {
			t.Errorf("%T: %+v after refusals, %+v before", limit, after, before)
		}
		if c.Set(int64(before.RetryAfter)); !l.Allow() {
			t.Errorf("%T: refused after its RetryAfter", limit)
		}
	}
}

// juju/ratelimit: (ticks since) * quantum overflows after a long idle time at a high rate.
func TestPeerLongIdleTimeOverflows(t *testing.T) {
	for _, limit := range append(everyLimit(), weir.TokenBucket{Rate: weir.PerSecond(999_999_937), Burst: math.MaxInt32},
		weir.IntervalBucket{Burst: math.MaxInt64, Refill: math.MaxInt64, Every: 1}, weir.SmoothBursty{Rate: weir.Rate{N: math.MaxInt64, Per: 1}}) {
		l, c := onClock(t, limit)
		drain(l, 1000)
		c.Set(math.MaxInt64 - int64(time.Hour)) // 292 years
		if d := l.Take(1); !d.Allowed || d.Remaining < 0 {
			t.Errorf("%T: %+v", limit, d)
		}
	}
}

// Bucket4j's replaceConfiguration casts before it multiplies: the fraction of a token is lost, or
// multiplied wrongly.
func TestPeerFractionsAreLostInChanges(t *testing.T) {
	l, c := onClock(t, weir.TokenBucket{Rate: weir.PerSecond(1), Burst: 10})
	l.Take(10)
	c.Set(int64(500 * time.Millisecond)) // half a token
	for _, rate := range []weir.Rate{weir.PerSecond(2), weir.PerMinute(30), weir.PerSecond(1)} {
		if err := l.SetLimit(weir.TokenBucket{Rate: rate, Burst: 10}); err != nil {
			t.Fatal(err)
		}
		if want := rate.Per / time.Duration(rate.N) / 2; l.Peek(1).RetryAfter != want {
			t.Errorf("%v: %v, want %v", rate, l.Peek(1).RetryAfter, want)
		}
	}
}

// Redisson's setRate: a new rate resets the usage.
func TestPeerChangedLimitForgets(t *testing.T) {
	for _, limit := range everyLimit() {
		for _, next := range everyLimit() {
			l, _ := onClock(t, limit)
			first := drain(l, 1000)
			if err := l.SetLimit(next); err != nil {
				t.Fatal(err)
			}
			if n := drain(l, 1000); first+n > 11 {
				t.Errorf("from %T to %T: %d, and %d more", limit, next, first, n)
			}
		}
	}
}
