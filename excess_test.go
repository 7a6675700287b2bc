package weir_test

import (
	"testing"
	"time"

	"github.com/weirflow/weir"
)

// TestExcessCost: how long a cost far above the limit is remembered, as docs/costs.md says: a bucket pays all
// of it back at its rate, a window knows nothing of it once it is over, and a sliding counter a window later.
func TestExcessCost(t *testing.T) {
	const window = 3 * time.Second
	rate := weir.Rate{N: 10, Per: window}
	for _, c := range []struct {
		limit    weir.Limit
		one, all time.Duration // until 1 is admitted, and until as much as the limit
	}{
		{weir.TokenBucket{Rate: rate, Burst: 10}, 4800 * time.Millisecond, 7500 * time.Millisecond},
		{weir.LeakyBucket{Rate: rate, Queue: 9, DelayAfter: 9}, 4800 * time.Millisecond, 7500 * time.Millisecond},
		{weir.IntervalBucket{Burst: 10, Refill: 10, Every: window}, 2 * window, 3 * window},
		{weir.FixedWindow{Limit: 10, Window: window}, window, window},
		{weir.SlidingWindow{Limit: 10, Window: window, Slots: 3}, window, window},
		{weir.SlidingLog{Limit: 10, Window: window}, window, window},
		{weir.SlidingCounter{Limit: 10, Window: window}, 4920 * time.Millisecond, 2 * window},
	} {
		l, err := weir.New(c.limit, weir.WithClock(func() int64 { return int64(1000 * window) }))
		if err != nil {
			t.Fatal(err)
		}
		r, ok := l.Reserve(1, 0)
		if !ok {
			t.Fatalf("%T refuses", c.limit)
		}
		r.Settle(25)
		if one, all := l.Peek(1).RetryAfter, l.Peek(10).RetryAfter; one != c.one || all != c.all {
			t.Errorf("%T: 1 is admitted in %v, and 10 in %v; the page says %v and %v", c.limit, one, all, c.one, c.all)
		}
	}
}
