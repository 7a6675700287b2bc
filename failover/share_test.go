package failover

import (
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/weirflow/weir"
	"github.com/weirflow/weir/internal/raced"
	"github.com/weirflow/weir/internal/rules"
	"github.com/weirflow/weir/weirtest"
)

func TestShare(t *testing.T) {
	second := time.Second
	for _, c := range []struct {
		limit weir.Limit
		nodes int
		want  weir.Limit
	}{
		{weir.TokenBucket{Rate: weir.PerSecond(10), Burst: 20}, 1, weir.TokenBucket{Rate: weir.PerSecond(10), Burst: 20}},
		{weir.TokenBucket{Rate: weir.PerSecond(10), Burst: 20}, 0, weir.TokenBucket{Rate: weir.PerSecond(10), Burst: 20}},
		{weir.TokenBucket{Rate: weir.PerSecond(10), Burst: 20}, 3, weir.TokenBucket{Rate: weir.Rate{N: 10, Per: 3 * second}, Burst: 6}},
		{weir.TokenBucket{Rate: weir.PerSecond(10), Burst: 20, Initial: 2}, 4, weir.TokenBucket{Rate: weir.Rate{N: 5, Per: 2 * second}, Burst: 5, Initial: -1}},
		{weir.TokenBucket{Rate: weir.PerSecond(1), Burst: 1}, 5, weir.TokenBucket{Rate: weir.Rate{N: 1, Per: 5 * second}, Burst: 1}},
		{weir.TokenBucket{Rate: weir.Rate{N: 1, Per: rules.MaxSpan}, Burst: 1}, 9, weir.TokenBucket{Rate: weir.Rate{N: 1, Per: rules.MaxSpan}, Burst: 1}},
		{weir.TokenBucket{Rate: weir.Rate{N: 100, Per: rules.MaxSpan}, Burst: 90}, 3, weir.TokenBucket{Rate: weir.Rate{N: 33, Per: rules.MaxSpan}, Burst: 30}},
		{weir.LeakyBucket{Rate: weir.PerSecond(9), Queue: 9, DelayAfter: 9}, 3, weir.LeakyBucket{Rate: weir.PerSecond(3), Queue: 2, DelayAfter: 2}},
		{weir.LeakyBucket{Rate: weir.PerSecond(9), Queue: 1}, 3, weir.LeakyBucket{Rate: weir.PerSecond(3)}},
		{weir.IntervalBucket{Burst: 10, Refill: 7, Every: second}, 3, weir.IntervalBucket{Burst: 3, Refill: 2, Every: second}},
		{weir.IntervalBucket{Burst: 10, Refill: 2, Every: second}, 3, weir.IntervalBucket{Burst: 3, Refill: 1, Every: 1500 * time.Millisecond}},
		{weir.FixedWindow{Limit: 10, Align: "day"}, 4, weir.FixedWindow{Limit: 2, Align: "day"}},
		{weir.SlidingWindow{Limit: 10, Window: second, Slots: 10, SlotLimit: 3}, 4, weir.SlidingWindow{Limit: 2, Window: second, Slots: 10, SlotLimit: 1}},
		{weir.SlidingCounter{Limit: 10, Window: second}, 20, weir.SlidingCounter{Limit: 1, Window: second}},
		{weir.SlidingLog{Limit: 10, Window: second}, 5, weir.SlidingLog{Limit: 2, Window: second}},
		{weir.SmoothBursty{Rate: weir.PerSecond(10)}, 2, weir.SmoothBursty{Rate: weir.PerSecond(5)}},
		{weir.SmoothBursty{Rate: weir.Unlimited}, 2, weir.SmoothBursty{Rate: weir.Unlimited}},
		{weir.WarmUp{Rate: weir.PerSecond(10), Period: second}, 2, weir.WarmUp{Rate: weir.PerSecond(5), Period: second}},
		{weir.NginxBucket{Rate: weir.PerSecond(9), Queue: 8, DelayAfter: 4}, 3, weir.NginxBucket{Rate: weir.PerSecond(3), Queue: 2, DelayAfter: 1}},
		{weir.NginxBucket{Rate: weir.PerSecond(10), Queue: 8}, 3, weir.NginxBucket{Rate: weir.PerMinute(200), Queue: 2}},
		{weir.NginxBucket{Rate: weir.PerMinute(1)}, 5, weir.NginxBucket{Rate: weir.PerMinute(1)}},
		{weir.Concurrency{Limit: 10}, 2, weir.Concurrency{Limit: 10}},
		{
			weir.All(weir.FixedWindow{Limit: 10, Window: second}, weir.TokenBucket{Rate: weir.PerSecond(4), Burst: 4}), 2,
			weir.All(weir.FixedWindow{Limit: 5, Window: second}, weir.TokenBucket{Rate: weir.PerSecond(2), Burst: 2}),
		},
	} {
		if got := Share(c.limit, c.nodes); !weir.Equal(got, c.want) {
			t.Errorf("Share(%T%+v, %d) = %+v, want %+v", c.limit, c.limit, c.nodes, got, c.want)
		}
	}
}

// TestSharesAreValid draws limits of each algorithm and numbers of nodes: every share is a valid
// limit.
func TestSharesAreValid(t *testing.T) {
	raced.Skip(t)
	for kind, draw := range weirtest.Limits() {
		random := rand.New(rand.NewPCG(1, uint64(kind)))
		for range 2000 {
			l, n := draw(random), 1+int(math.Exp(random.Float64()*20))
			if _, err := weir.Prepare(l, time.Nanosecond); err != nil {
				continue
			}
			if _, err := weir.Prepare(Share(l, n), time.Nanosecond); err != nil {
				t.Errorf("Share(%T%+v, %d) = %+v: %v", l, l, n, Share(l, n), err)
			}
		}
	}
}

// TestUsedUp: after it a limit has nothing saved up, and refills at its rate.
func TestUsedUp(t *testing.T) {
	noon := time.Date(2026, 5, 4, 12, 0, 0, 0, time.UTC).UnixNano()
	for _, c := range []struct {
		limit       weir.Limit
		now, middle int64         // left at once, and
		at          time.Duration // after that time
	}{
		{weir.TokenBucket{Rate: weir.PerSecond(10), Burst: 20}, 0, 10, time.Second},
		{weir.LeakyBucket{Rate: weir.PerSecond(10), Queue: 9, DelayAfter: 4}, 0, 6, 100 * time.Millisecond},
		{weir.IntervalBucket{Burst: 20, Refill: 5, Every: time.Second}, 0, 5, time.Second},
		{weir.FixedWindow{Limit: 1000, Window: 24 * time.Hour}, 500, 1000, 12 * time.Hour},
		{weir.FixedWindow{Limit: 1000, Align: "day:Europe/Berlin"}, 416, 1000, 10 * time.Hour},
		{weir.FixedWindow{Limit: 1000, Align: "week"}, 928, 928, time.Hour},
		{weir.FixedWindow{Limit: 3100, Align: "month"}, 2750, 2750, time.Hour},
		{weir.FixedWindow{Limit: 1000, Align: "year"}, 659, 659, time.Hour},
		{weir.FixedWindow{Limit: 1001, Window: time.Minute, Align: weir.AlignFirst}, 500, 1001, 30 * time.Second},
		{weir.SlidingWindow{Limit: 100, Window: time.Minute, Slots: 10}, 0, 50, 30 * time.Second},
		{weir.SlidingWindow{Limit: 100, Window: time.Minute, Slots: 10, SlotLimit: 10}, 0, 10, 30 * time.Second},
		{weir.SlidingCounter{Limit: 160, Window: time.Minute}, 0, 75, 30 * time.Second},
		{weir.SlidingLog{Limit: 160, Window: time.Minute}, 0, 80, 30 * time.Second},
		{weir.SlidingLog{Limit: 5, Window: time.Minute}, 0, 2, 30 * time.Second},
		{weir.SmoothBursty{Rate: weir.PerSecond(10)}, 0, 0, 500 * time.Millisecond}, // it begins with nothing stored by itself
		{weir.All(weir.TokenBucket{Rate: weir.PerSecond(10), Burst: 20}, weir.FixedWindow{Limit: 1000, Window: 24 * time.Hour}), 0, 10, time.Second},
	} {
		p, err := weir.Prepare(c.limit, time.Nanosecond)
		if err != nil {
			t.Fatal(err)
		}
		state := used(p, noon, limits(c.limit, noon))
		if got := p.Peek(state, noon, 0).Remaining; got != c.now {
			t.Errorf("%+v: %d left at once, want %d", c.limit, got, c.now)
		}
		if got := p.Peek(state, noon+int64(c.at), 0).Remaining; got != c.middle {
			t.Errorf("%+v: %d left after %v, want %d", c.limit, got, c.at, c.middle)
		}
	}
}
