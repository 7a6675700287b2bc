package weir_test

import (
	"testing"
	"time"

	"github.com/weirflow/weir"
)

// TestReadingBeforeAnotherCharge: a goroutine reads the clock, and stands still for longer than a bucket takes
// to fill, while others charge. By its reading the bucket is in debt. It was once refused, although the bucket
// was almost full.
func TestReadingBeforeAnotherCharge(t *testing.T) {
	for name, limit := range map[string]weir.Limit{
		"TokenBucket": weir.TokenBucket{Rate: weir.PerSecond(1000), Burst: 10},
		"LeakyBucket": weir.LeakyBucket{Rate: weir.PerSecond(1000), Queue: 10},
	} {
		readings := []time.Duration{0}
		l, err := weir.New(limit, weir.WithClock(func() int64 {
			now := readings[0]
			if len(readings) > 1 {
				readings = readings[1:]
			}
			return int64(now)
		}))
		if err != nil {
			t.Fatal(err)
		}
		l.Take(1)
		readings = []time.Duration{time.Second}
		l.Take(1)
		readings = []time.Duration{time.Second - 50*time.Millisecond, time.Second + time.Millisecond}
		if d := l.Take(1); !d.Allowed {
			t.Errorf("%s: refused with an almost full bucket: %+v", name, d)
		}
		readings = []time.Duration{time.Second - 50*time.Millisecond} // the clock has stepped back
		if d := l.Take(1); d.Allowed || d.RetryAfter < 40*time.Millisecond {
			t.Errorf("%s: a step back of the clock is a gift: %+v", name, d)
		}
	}
}
