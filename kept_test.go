package weir_test

import (
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/weirflow/weir"
	"github.com/weirflow/weir/internal/raced"
)

// TestMoreOutstandingThanKept: how much stays charged if more reservations were outstanding than a
// limiter keeps, and all are cancelled. docs/guarantees.md has these figures.
func TestMoreOutstandingThanKept(t *testing.T) {
	raced.Skip(t)
	second := weir.Rate{N: 1, Per: time.Second}
	wide := weir.TokenBucket{Rate: second, Burst: 20_000}
	delayed := weir.TokenBucket{Rate: second, Burst: 10}
	warm := weir.WarmUp{Rate: second, Period: 10 * time.Second}
	nginx := weir.NginxBucket{Rate: second, Queue: 6000, DelayAfter: 6000}
	for _, c := range []struct {
		limit  weir.Limit
		count  int
		stays  time.Duration // the longest time until the limit is idle
		exact  bool
		beyond bool // whether some reservations were not kept
	}{
		{wide, 1000, 0, true, false}, {wide, 2000, 5 * time.Second, false, true},
		{wide, 4000, 15 * time.Second, false, true}, {wide, 10_000, 39 * time.Second, false, true},
		{weir.IntervalBucket{Burst: 20_000, Refill: 1, Every: time.Second}, 10_000, 39 * time.Second, false, true},
		{delayed, 100, 0, true, false}, {delayed, 300, 34 * time.Second, true, true},
		{delayed, 1000, 734 * time.Second, true, true}, {delayed, 5000, 4734 * time.Second, true, true},
		{nginx, 64, 0, true, false}, {nginx, 100, 36 * time.Second, true, true}, {nginx, 1000, 936 * time.Second, true, true},
		{warm, 64, 0, true, false}, {warm, 100, (36 + 15) * time.Second, true, true}, // 15 more until it is cold again
	} {
		for _, order := range []string{"newest", "oldest", "random"} {
			l, _ := onClock(t, c.limit)
			var all []weir.Reservation
			for range c.count {
				r, ok := l.Reserve(1, -1)
				if !ok {
					t.Fatalf("%+v: %+v", c.limit, r.Decision())
				}
				all = append(all, r)
			}
			switch order {
			case "newest":
				slices.Reverse(all)
			case "random":
				rand.New(rand.NewPCG(1, 7)).Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
			}
			for _, r := range all {
				r.Cancel()
			}
			got := l.Peek(0).ResetAfter
			if got > c.stays || c.exact && got != c.stays || l.Inexact() > 0 != c.beyond {
				t.Errorf("%+v: %d reserved, %s cancelled first: full after %v, want %v; %d inexact", c.limit, c.count, order, got, c.stays, l.Inexact())
			}
		}
	}
}
