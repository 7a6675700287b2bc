package proof

import (
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/weirflow/weir"
	"github.com/weirflow/weir/internal/raced"
	"github.com/weirflow/weir/weirtest"
)

// TestAGroupIsItsLimiters: a group decides as the models of its limiters do if all are evaluated
// first, and charged only if all admit. Its decision is the refusal with the longest wait (the
// first, on a tie), or the admission with the least left.
func TestAGroupIsItsLimiters(t *testing.T) {
	raced.Skip(t)
	rapid.Check(t, func(t *rapid.T) {
		var clock weirtest.Clock
		clock.Set(rapid.SampledFrom([]int64{0, int64(time.Hour), 1_700_000_000_000_000_000}).Draw(t, "origin"))
		var limiters []*weir.Limiter
		var models []*weirtest.Model
		var limits []weir.Limit
		for range rapid.IntRange(1, 4).Draw(t, "limiters") {
			l := either(t, 1, time.Hour)
			if b, ok := l.(weir.TokenBucket); ok {
				b.Initial = 0 // its first call is recorded also if another limiter refuses: see TestGroupFirstCall in the root
				l = b
			}
			lim, err := weir.New(l, weir.WithClock(clock.Now), weir.WithTimers(noTimers))
			if err != nil {
				t.Fatal(err)
			}
			m := weirtest.NewModel(l, 1)
			m.Contact(clock.Now())
			limits, limiters, models = append(limits, l), append(limiters, lim), append(models, m)
		}
		g := weir.NewGroup(limiters...)
		from := &walker{tick: 1, now: clock.Now(), back: true}
		for range rapid.IntRange(1, 40).Draw(t, "calls") {
			from.limit = limits[rapid.IntRange(0, len(limits)-1).Draw(t, "by whose rhythm")]
			now := from.move(t)
			clock.Set(now)
			if rapid.IntRange(0, 3).Draw(t, "alone") == 0 { // a direct caller of one limiter
				i, cost := rapid.IntRange(0, len(limits)-1).Draw(t, "which"), from.cost(t)
				if got, want := limiters[i].Take(cost), models[i].Take(now, cost); got != want {
					t.Fatalf("%+v: take %d: got %+v, want %+v", limits[i], cost, got, want)
				}
				continue
			}
			costs := make([]int64, len(limits))
			for i, l := range limits {
				costs[i] = (&walker{limit: l}).cost(t)
			}
			charge := rapid.Bool().Draw(t, "charge")
			ask := g.Peek
			if charge {
				ask = g.Take
			}
			got, want := ask(costs...), together(models, now, costs, charge)
			if got != want {
				t.Fatalf("%+v at %d, %v: got %+v, want %+v", limits, now, costs, got, want)
			}
			if from.retry = max(0, want.RetryAfter); want.RetryAfter > 0 && charge {
				after := make([]*weirtest.Model, len(models))
				for _, c := range []struct {
					wait int64
					ok   bool
				}{{int64(want.RetryAfter), true}, {int64(want.RetryAfter) - 1, false}} {
					for i, m := range models {
						after[i] = m.Clone()
					}
					if d := together(after, plus(now, c.wait), costs, false); d.Allowed != c.ok && now < endless {
						t.Fatalf("%+v: %v after a refusal with %v: %+v", limits, c.wait, want.RetryAfter, d)
					}
				}
			}
		}
	})
}

// together returns the decision of a group by its definition.
func together(models []*weirtest.Model, now int64, costs []int64, charge bool) (all weir.Decision) {
	var each []weir.Decision
	allowed := true
	for i, m := range models {
		var d weir.Decision
		if tried := m.Clone(); charge {
			d = tried.Take(now, costs[i])
		} else {
			d = tried.Peek(now, costs[i])
		}
		each, allowed = append(each, d), allowed && d.Allowed
	}
	if allowed && charge {
		for i, m := range models {
			each[i] = m.Take(now, costs[i])
		}
	} else if charge {
		for i, m := range models { // those that would have admitted are not charged
			if each[i].Allowed {
				each[i] = m.Peek(now, costs[i])
			}
		}
	}
	first := true
	for _, d := range each {
		switch {
		case d.Allowed != allowed && !allowed:
		case first, allowed && d.Remaining < all.Remaining, !allowed && longer(d.RetryAfter, all.RetryAfter):
			all, first = d, false
		}
	}
	return all
}

func longer(a, b time.Duration) bool { return b != weir.Never && (a == weir.Never || a > b) }
