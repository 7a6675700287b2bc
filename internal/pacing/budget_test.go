package pacing_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirflow/weir"
	"github.com/weirflow/weir/internal/overload"
	"github.com/weirflow/weir/internal/pacing"
	"github.com/weirflow/weir/internal/seeds"
)

// TestBudgetFloor: a client that sends hardly any requests may retry so often in each second.
func TestBudgetFloor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := pacing.NewBudget(0, 0, 2)
		n := 0
		for range 10 {
			for range 5 {
				if b.Retry() {
					n++
				}
			}
			<-time.After(time.Second)
		}
		if n != 20 {
			t.Errorf("%d retries in 10 s, with a floor of 2 a second", n)
		}
	})
}

// TestMetastableRetries: a service has 80 % of the load that it can bear, and stands still for 3 s.
// Its clients give up after a second, and try again up to three times. Without a budget it serves
// nothing ever after, as it only works for clients that have given up; with it, it recovers.
func TestMetastableRetries(t *testing.T) {
	rng := seeds.Of(t.Name())
	for range 3 {
		seed, served := rng.Uint64(), map[string]float64{}
		for name, budget := range map[string]overload.Budget{"none": nil, "10 %": pacing.NewBudget(10, 10, 0)} {
			bins := overload.New(overload.Scenario{
				For: 3 * time.Minute, Seed: seed, Work: overload.Exponential(100 * time.Millisecond),
				Abandon: time.Second, Retries: 3, Pause: 100 * time.Millisecond, Budget: budget,
				At: func(d time.Duration) overload.Service {
					return overload.Service{Workers: 20, Rate: 160, Paused: d >= 20*time.Second && d < 23*time.Second}
				},
			}).Run(overload.Limiter{Limit: func() int64 { return 0 }, Enter: func() (func(weir.Outcome), bool) { return func(weir.Outcome) {}, true }})
			before, end := overload.Between(bins, 5*time.Second, 20*time.Second), overload.Between(bins, time.Minute, 3*time.Minute)
			if good := float64(before.Good) / float64(before.Offered); good < 0.98 {
				t.Errorf("seed %d, budget %s: %.2f are served before the fault", seed, name, good)
			}
			served[name] = float64(end.Good) / float64(end.Offered)
		}
		t.Logf("seed %d: after the fault %.2f are served without a budget, %.2f with one", seed, served["none"], served["10 %"])
		if served["none"] > 0.02 || served["10 %"] < 0.98 {
			t.Errorf("seed %d: after the fault %.2f are served without a budget, %.2f with one", seed, served["none"], served["10 %"])
		}
	}
}
