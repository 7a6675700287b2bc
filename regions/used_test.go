package regions

import (
	"fmt"
	"math"
	"testing"
	"time"

	"github.com/weirflow/weir"
	"github.com/weirflow/weir/internal/raced"
)

// TestUsed: how much of a limit the regions use, beside one bucket for all of them that admits of the
// same calls what it can. With -v it prints the table of docs/regions.md.
func TestUsed(t *testing.T) {
	raced.Skip(t)
	const term, rate = time.Minute, 60.0
	equal := func(all float64) func(time.Duration, int) float64 {
		return func(time.Duration, int) float64 { return all * rate / 3 }
	}
	one := func(all float64, every time.Duration) func(time.Duration, int) float64 {
		return func(at time.Duration, region int) float64 {
			if int(at/every)%3 == region {
				return 0.9 * all * rate
			}
			return 0.05 * all * rate
		}
	}
	day := func(all float64, length time.Duration) func(time.Duration, int) float64 {
		return func(at time.Duration, region int) float64 {
			phase := 2 * math.Pi * (float64(at)/float64(length) + float64(region)/3)
			return all * rate / 3 * (1 + 0.8*math.Sin(phase))
		}
	}
	for _, c := range []struct {
		name   string
		demand func(at time.Duration, region int) float64
		down   bool
		least  float64
	}{
		{"the same in all regions, together twice the rate", equal(2), false, 0.99},
		{"the same in all regions, together 80 % of the rate", equal(0.8), false, 0.99},
		{"90 % in one region, together twice the rate", one(2, time.Hour), false, 0.99},
		{"90 % in one region, together 80 % of the rate", one(0.8, time.Hour), false, 0.98},
		{"a day of 24 hours passes over the regions, together 90 % of the rate", day(0.9, 24*time.Hour), false, 0.98},
		{"a day of 1 hour passes over the regions, together 90 % of the rate", day(0.9, time.Hour), false, 0.97},
		{"90 % in one region, another one every 10 minutes, together 80 % of the rate", one(0.8, 10*time.Minute), false, 0.85},
		{"90 % in one region, another one every 3 minutes, together 80 % of the rate", one(0.8, 3*time.Minute), false, 0.5},
		{"the same in all regions, together twice the rate; the home is unavailable", equal(2), true, 0.28},
		{"the same in all regions, together 20 % of the rate; the home is unavailable", equal(0.2), true, 0.97},
	} {
		l := weir.TokenBucket{Rate: weir.PerSecond(rate), Burst: 180}
		w := newWorld(t, 3, l, []int{10, 10, 10}, []int{5, 20, 50}, Options{Term: term})
		if c.down { // the store of the region works, and no region reaches the home
			for i := range w.regions {
				w.cut[i][0] = true
			}
		}
		one, err := weir.New(l, weir.WithClock(w.clock.Now))
		if err != nil {
			t.Fatal(err)
		}
		couldHave := int64(0)
		w.called = func(cost int64) {
			if one.Take(cost).Allowed {
				couldHave += cost
			}
		}
		start := w.clock.Now()
		for _, r := range w.regions {
			r.offer(1, 1)
			r.rate = c.demand(0, r.index)
		}
		length := 31 * term
		for at := time.Duration(0); at < length; at += 5 * sec {
			for _, r := range w.regions {
				r.rate = c.demand(time.Duration(w.clock.Now()-start), r.index)
			}
			w.run(5 * sec)
			if at == 4*term { // the shares have been found
				couldHave = 0
				for _, r := range w.regions {
					r.calls, r.got = 0, 0
				}
			}
		}
		w.checkBucket()
		calls, got, shares := int64(0), int64(0), ""
		for _, r := range w.regions {
			calls, got = calls+r.calls, got+r.got
			shares += fmt.Sprintf(" %.2f", float64(r.got)/float64(r.calls))
		}
		used := float64(got) / float64(couldHave)
		t.Logf("| %s | %.1f %% |%s", c.name, 100*used, shares)
		if used < c.least {
			t.Errorf("%s: %.3f of what one bucket admits, and at least %.3f was expected; %d calls", c.name, used, c.least, calls)
		}
	}
}
