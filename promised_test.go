package weir_test

import (
	"testing"
	"time"

	"github.com/weirflow/weir"
	"github.com/weirflow/weir/weirtest"
)

// TestPromisedWorkAcrossChanges: promised times do not move when the limit changes. So work that
// was promised before a change for a time after it comes on top of the larger burst and the
// integral of the rate. docs/guarantees.md has these two examples.
func TestPromisedWorkAcrossChanges(t *testing.T) {
	slow := weir.TokenBucket{Rate: weir.Rate{N: 1, Per: 10 * time.Second}, Burst: 1}
	fast := weir.TokenBucket{Rate: weir.PerSecond(1), Burst: 1}
	for _, c := range []struct {
		name          string
		first, second weir.TokenBucket
		from, to      int // seconds after the change
		promised, new int // promised and new requests that go in that time
		bound         int // the larger burst and the integral of the rate, rounded down
	}{
		{"raised", slow, fast, 10, 90, 9, 81, 81},
		{"lowered", fast, slow, 0, 9, 10, 0, 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			clock := new(weirtest.Clock)
			l, err := weir.New(c.first, weir.WithClock(clock.Now), weir.WithTimers(clock.AfterFunc))
			if err != nil {
				t.Fatal(err)
			}
			promised, admitted := 0, 0
			for range 10 {
				r, ok := l.Reserve(1, -1)
				if !ok {
					t.Fatal("refused")
				}
				if at := int(r.Delay() / time.Second); c.from <= at && at <= c.to {
					promised++
				}
			}
			if err := l.SetLimit(c.second); err != nil {
				t.Fatal(err)
			}
			for s := range c.to + 1 {
				clock.Set(int64(s) * int64(time.Second))
				if l.Take(1).Allowed && s >= c.from {
					admitted++
				}
			}
			if promised != c.promised || admitted != c.new {
				t.Errorf("%d promised and %d new ones go, want %d and %d", promised, admitted, c.promised, c.new)
			}
			if admitted > c.bound {
				t.Errorf("%d new ones go, where %d may", admitted, c.bound)
			}
		})
	}
}
