package weir_test

import (
	"testing"
	"time"

	"github.com/weirflow/weir"
	"github.com/weirflow/weir/weirtest"
)

func TestSetLimitPartByPart(t *testing.T) {
	tb := func(n int64) weir.Limit { return weir.TokenBucket{Rate: weir.PerHour(1), Burst: n} }
	log := func(n int64) weir.Limit { return weir.SlidingLog{Limit: n, Window: time.Hour} }
	lb := weir.LeakyBucket{Rate: weir.PerHour(1), Queue: 49, DelayAfter: 49}
	for name, c := range map[string]struct {
		from, to weir.Limit
		left     int64
		by       string
	}{
		"the numbers":                   {weir.All(tb(10), log(20)), weir.All(tb(30), log(21)), 17, "sliding_log.2"},
		"in another order":              {weir.All(tb(10), log(20)), weir.All(log(20), tb(10)), 6, "token_bucket.2"},
		"two of a kind, in order":       {weir.All(tb(10), tb(20)), weir.All(tb(30), tb(27)), 23, "token_bucket.2"},
		"one more is untouched":         {weir.All(tb(10)), weir.All(log(5), tb(10)), 5, "sliding_log.1"},
		"what is new begins as it says": {weir.All(log(20)), weir.All(log(20), weir.TokenBucket{Rate: weir.PerHour(1), Burst: 10, Initial: weir.InitialEmpty}), 0, "token_bucket.2"},
		"one less":                      {weir.All(tb(10), log(20)), weir.All(log(30)), 26, "sliding_log.1"},
		"a kind becomes another":        {weir.All(tb(10), log(20)), weir.All(tb(100), lb), 46, "leaky_bucket.2"},
		"from one":                      {tb(10), weir.All(log(50), tb(10)), 6, "token_bucket.2"},
		"to one":                        {weir.All(log(20), tb(10)), tb(50), 46, ""},
		"to one of another kind":        {weir.All(log(20), tb(10)), lb, 46, ""},
	} {
		l, clock := onClock(t, c.from)
		clock.Set(1)
		l.Take(4)
		if err := l.SetLimit(c.to); err != nil {
			t.Fatal(err)
		}
		if d := l.Peek(0); d.Remaining != c.left || d.By != c.by {
			t.Errorf("%s: %+v, want %d left by %q", name, d, c.left, c.by)
		}
	}
}

// TestUnchangedPartKeepsItsState: if another limit of an All changes, a limit that does not change
// keeps its exact state, also if the clock is set back after the change. The model and Redis
// (proof/redis) agree.
func TestUnchangedPartKeepsItsState(t *testing.T) {
	bucket := weir.TokenBucket{Rate: weir.PerSecond(1), Burst: 1}
	larger := weir.TokenBucket{Rate: weir.PerSecond(1), Burst: 2}
	endless := weir.SmoothBursty{Rate: weir.Unlimited, MaxBurst: -1}
	const begin, change, back = 305 * time.Hour, 4347226 * time.Microsecond, 1644478599 * time.Microsecond
	for name, c := range map[string]struct {
		from, to weir.Limit
		cost     int64
		retry    time.Duration
	}{
		"bursty stays":   {endless, endless, 1, back - change},
		"bucket stays":   {bucket, bucket, 1, back - change + time.Second},
		"bucket changes": {bucket, larger, 2, back},
	} {
		now := int64(begin)
		from, to := weir.All(weir.SlidingLog{Limit: 58, Window: 24 * time.Hour}, c.from), weir.All(c.to, weir.SlidingLog{Limit: 78, Window: 24 * time.Hour})
		lim, err := weir.New(from, weir.WithClock(func() int64 { return now }))
		if err != nil {
			t.Fatal(err)
		}
		model := weirtest.NewModel(from, 1)
		lim.Take(1)
		model.Take(now, 1)
		now += int64(change)
		if err := lim.SetLimit(to); err != nil {
			t.Fatal(err)
		}
		model.SetLimit(now, to)
		now -= int64(back)
		if d := lim.Take(c.cost); d.Allowed || d.RetryAfter != c.retry {
			t.Errorf("%s: %+v, want %v", name, d, c.retry)
		}
		if d := model.Take(now, c.cost); d.Allowed || d.RetryAfter != c.retry {
			t.Errorf("%s, by the model: %+v, want %v", name, d, c.retry)
		}
	}
}

// TestAllOnAnotherClock: if a change of an All makes it read wall time, or stop reading it, the
// used tokens stay used. The times of a state mean nothing to the other clock.
func TestAllOnAnotherClock(t *testing.T) {
	bucket := weir.TokenBucket{Rate: weir.PerHour(1), Burst: 10}
	process := weir.All(bucket, weir.SlidingLog{Limit: 20, Window: time.Hour})
	wall := weir.All(bucket, weir.FixedWindow{Limit: 20, Window: 1000 * time.Hour})
	for _, to := range [][2]weir.Limit{{process, wall}, {wall, process}, {bucket, wall}, {wall, bucket}} {
		now := int64(0)
		lim, err := weir.New(to[0], weir.WithClock(func() int64 { return now }), weir.WithWallClock(func() int64 { return now + 1e18 }))
		if err != nil {
			t.Fatal(err)
		}
		r, _ := lim.Reserve(8, 0)
		if err := lim.SetLimit(to[1]); err != nil {
			t.Fatal(err)
		}
		if d := lim.Peek(3); d.Allowed || d.Remaining != 2 || d.RetryAfter != time.Hour {
			t.Errorf("%v: %+v", to, d)
		}
		if r.Cancel(); lim.Peek(0).Remaining != 2 { // charged by a clock that the limit no longer reads
			t.Errorf("%v: %+v", to, lim.Peek(0))
		}
		if now += int64(time.Hour); lim.Peek(0).Remaining != 3 {
			t.Errorf("%v, an hour later: %+v", to, lim.Peek(0))
		}
	}
}
