package weirtest_test

import (
	"testing"
	"time"

	"github.com/weirflow/weir"
	"github.com/weirflow/weir/internal/raced"
	"github.com/weirflow/weir/internal/seeds"
	"github.com/weirflow/weir/weirtest"
)

// settledWarmUp is how much of a WarmUp of 100/s is used if as many tokens come as it could serve, in
// requests that are estimated at eight times their cost and settled after a while.
func settledWarmUp(m *weirtest.Model, seed string, cost int64, takes time.Duration) float64 {
	type open struct {
		id   int
		ends int64
	}
	const length = int64(time.Minute / time.Microsecond)
	r, done := seeds.Of(seed), int64(0)
	var running []open
	for now, at := int64(0), 0.0; now < length; now = int64(at) {
		for len(running) > 0 && running[0].ends <= now {
			m.Settle(running[0].ends, running[0].id, cost)
			running = running[1:]
		}
		if id, _, d := m.Reserve(now, 8*cost, 0); d.Allowed {
			running = append(running, open{id, now + takes.Microseconds()})
			done += cost
		}
		at += float64(cost) * 10_000 * r.ExpFloat64()
	}
	return float64(done) / (100 * 60)
}

// TestSettledWarmUp: where requests go at once, the exact rule admits no more than the rule for states
// alone. docs/guarantees.md has the figures of a run with -v.
func TestSettledWarmUp(t *testing.T) {
	raced.Skip(t)
	for _, period := range []time.Duration{time.Second, 10 * time.Second} {
		l := weir.WarmUp{Rate: weir.PerSecond(100), Period: period}
		for _, cost := range []int64{1, 50} {
			for _, takes := range []time.Duration{10 * time.Millisecond, time.Second, 10 * time.Second} {
				exact := settledWarmUp(weirtest.NewModel(l, time.Microsecond), t.Name(), cost, takes)
				alone := settledWarmUp(weirtest.NewBlindModel(l, time.Microsecond), t.Name(), cost, takes)
				t.Logf("period %v, cost %d, settled after %v: %.1f %% by the exact rule, %.1f %% by the state alone", period, cost, takes, 100*exact, 100*alone)
				if exact > alone+0.01 {
					t.Errorf("period %v, cost %d, settled after %v: the state alone wastes something", period, cost, takes)
				}
			}
		}
	}
}

// TestCancelledWarmUp: where work is delayed, the rule for states alone wastes something: of 30
// reservations that are cancelled oldest first, it gives back the last one alone.
func TestCancelledWarmUp(t *testing.T) {
	l := weir.WarmUp{Rate: weir.PerSecond(1), Period: time.Second}
	after := func(m *weirtest.Model, newestFirst bool) time.Duration {
		var ids []int
		for range 30 {
			id, _, _ := m.Reserve(0, 1, -1)
			ids = append(ids, id)
		}
		for i := range ids {
			if newestFirst {
				i = len(ids) - 1 - i
			}
			m.Cancel(0, ids[i])
		}
		return m.Peek(0, 1).RetryAfter
	}
	exact, newest, oldest := after(weirtest.NewModel(l, time.Microsecond), false), after(weirtest.NewBlindModel(l, time.Microsecond), true), after(weirtest.NewBlindModel(l, time.Microsecond), false)
	t.Logf("the next request waits for %v by the exact rule, and by the state alone for %v if the newest was cancelled first, %v if the oldest was", exact, newest, oldest)
	if exact != 0 || newest != 0 || oldest < 29*time.Second || oldest > 31*time.Second {
		t.Error("docs/guarantees.md says 0, 0 and about 30 s")
	}
}
