package keyed_test

import (
	"testing"
	"time"

	"github.com/weirflow/weir"
	"github.com/weirflow/weir/keyed"
)

// TestReadingBeforeAnotherCharge: a call reads the clock, and gets the state of its key only when others have
// charged it by later readings, and all of that has come back. It was once refused.
func TestReadingBeforeAnotherCharge(t *testing.T) {
	readings := []time.Duration{0}
	l, err := keyed.New[string](weir.TokenBucket{Rate: weir.PerSecond(1000), Burst: 10}, keyed.Options{Timers: neverFires, Clock: func() int64 {
		now := readings[0]
		if len(readings) > 1 {
			readings = readings[1:]
		}
		return int64(now)
	}})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	group, err := keyed.NewGroup(l)
	if err != nil {
		t.Fatal(err)
	}
	together := func(string, int64) weir.Decision {
		d, err := group.Take([]keyed.Charge[string]{{Key: "a", Cost: 1}})
		if err != nil {
			t.Fatal(err)
		}
		return d
	}
	for name, take := range map[string]func(string, int64) weir.Decision{
		"Take": l.Take, "TakeText": func(key string, n int64) weir.Decision { return keyed.TakeText(l, []byte(key), n) }, "Group": together,
	} {
		readings = []time.Duration{time.Second}
		l.Take("a", 1)
		readings = []time.Duration{time.Second - 50*time.Millisecond, time.Second + time.Millisecond}
		if d := take("a", 1); !d.Allowed {
			t.Errorf("%s: refused with an almost full bucket: %+v", name, d)
		}
		readings = []time.Duration{time.Second - 50*time.Millisecond} // the clock has stepped back
		if d := take("a", 1); d.Allowed || d.RetryAfter < 40*time.Millisecond {
			t.Errorf("%s: a step back of the clock is a gift: %+v", name, d)
		}
	}
}
