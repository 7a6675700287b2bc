package weir_test

import (
	"testing"
	"time"

	"github.com/weirflow/weir"
	"github.com/weirflow/weir/internal/raced"
)

// changedPairs are two limits each, between which what was used stays exactly the same.
func changedPairs() map[string][2]weir.Limit {
	bucket := func(n int64) weir.Limit { return weir.TokenBucket{Rate: weir.PerHour(1), Burst: n} }
	log := func(n int64) weir.Limit { return weir.SlidingLog{Limit: n, Window: time.Hour} }
	return map[string][2]weir.Limit{
		"TokenBucket":    {bucket(100), bucket(50)},
		"LeakyBucket":    {weir.LeakyBucket{Rate: weir.PerHour(1), Queue: 99, DelayAfter: 99}, weir.LeakyBucket{Rate: weir.PerHour(1), Queue: 49, DelayAfter: 49}},
		"IntervalBucket": {weir.IntervalBucket{Burst: 100, Refill: 1, Every: time.Hour}, weir.IntervalBucket{Burst: 50, Refill: 1, Every: time.Hour}},
		"FixedWindow":    {weir.FixedWindow{Limit: 100, Window: time.Hour}, weir.FixedWindow{Limit: 50, Window: time.Hour}},
		"SlidingWindow":  {weir.SlidingWindow{Limit: 100, Window: time.Hour, Slots: 6}, weir.SlidingWindow{Limit: 50, Window: time.Hour, Slots: 6}},
		"SlidingCounter": {weir.SlidingCounter{Limit: 100, Window: time.Hour}, weir.SlidingCounter{Limit: 50, Window: time.Hour}},
		"SlidingLog":     {log(100), log(50)},
		"All":            {weir.All(bucket(100), log(100)), weir.All(log(50), bucket(50))},
		"All, one":       {weir.All(bucket(100), log(100)), weir.All(bucket(100), log(50))},
	}
}

// TestChangesTakeNoMemory: while a reservation was outstanding, each change of the limit took some
// 500 bytes, and Cancel took time for each change.
func TestChangesTakeNoMemory(t *testing.T) {
	raced.Skip(t)
	for name, pair := range changedPairs() {
		l, c := onClock(t, pair[0])
		c.Set(int64(time.Hour))
		unused := l.Peek(0)
		r, ok := l.Reserve(4, 0)
		if !ok {
			t.Fatal(name, r.Decision())
		}
		before := heap()
		for i := range 6_000 {
			if err := l.SetLimit(pair[(i+1)%2]); err != nil {
				t.Fatal(err)
			}
		}
		if more := heap() - before; more > 256<<10 {
			t.Errorf("%s: %d bytes more", name, more)
		}
		if d := l.Peek(0); d.Remaining != unused.Remaining-4 {
			t.Errorf("%s, after the changes: %+v", name, d)
		}
		if r.Cancel(); l.Peek(0) != unused {
			t.Errorf("%s, cancelled: %+v, want %+v", name, l.Peek(0), unused)
		}
	}
}

// TestNothingBackAcrossAnotherLimit: what a change of the limit has ended cannot be given back, also
// if another change leads back to the first limit.
func TestNothingBackAcrossAnotherLimit(t *testing.T) {
	bucket := weir.TokenBucket{Rate: weir.PerHour(1), Burst: 10}
	log := weir.SlidingLog{Limit: 10, Window: time.Hour}
	for name, c := range map[string]struct {
		limit, between weir.Limit
		left           int64 // after the reservation was cancelled
	}{
		"algorithm":          {bucket, log, 6},
		"window":             {weir.FixedWindow{Limit: 10, Window: time.Hour}, weir.FixedWindow{Limit: 10, Window: 2 * time.Hour}, 6},
		"sliding window":     {weir.SlidingWindow{Limit: 10, Window: time.Hour, Slots: 6}, weir.SlidingWindow{Limit: 10, Window: time.Hour, Slots: 4}, 6},
		"counter":            {weir.SlidingCounter{Limit: 10, Window: time.Hour}, weir.SlidingCounter{Limit: 10, Window: 2 * time.Hour}, 6},
		"all, and none":      {weir.All(bucket, log), weir.FixedWindow{Limit: 10, Window: time.Hour}, 6},
		"a part that ended":  {weir.All(bucket, log), bucket, 7}, // 3 of the new part
		"the other that did": {weir.All(bucket, log), weir.All(log), 7},
	} {
		l, clock := onClock(t, c.limit)
		clock.Set(int64(time.Hour))
		r, _ := l.Reserve(4, 0)
		for _, next := range []weir.Limit{c.between, c.limit} {
			if err := l.SetLimit(next); err != nil {
				t.Fatal(err)
			}
		}
		if c.left == 7 {
			l.Take(3)
		}
		r.Cancel()
		if d := l.Peek(0); d.Remaining != c.left {
			t.Errorf("%s: %+v, want %d left", name, d, c.left)
		}
	}
}
