package policy_test

import (
	"testing"
	"time"

	"github.com/weirflow/weir"
	"github.com/weirflow/weir/policy"
	"github.com/weirflow/weir/weirtest"
)

// TestTheCostOfDoneWorkIsCharged: whatever the algorithm and wherever its state is, a limit that is used
// up is charged the cost of work that is done, and admits again only after that.
func TestTheCostOfDoneWorkIsCharged(t *testing.T) {
	perMinute, perHour := bucket("6/m", 3), bucket("60/h", 100)
	all := weir.All(perMinute, perHour)
	for name, x := range map[string]struct {
		limit weir.Limit
		fill  int64
		again time.Duration // after 20 units more
	}{
		"token bucket":    {perMinute, 3, 210 * time.Second},
		"sliding counter": {weir.SlidingCounter{Limit: 10, Window: time.Minute}, 10, 102 * time.Second}, // 30 * (1 - 42/60) = 9
		"all":             {all, 3, 210 * time.Second},
		"leaky bucket":    {weir.LeakyBucket{Rate: weir.PerMinute(6), Queue: 2, DelayAfter: 2}, 3, 210 * time.Second},
		"nginx bucket":    {weir.NginxBucket{Rate: weir.PerMinute(6), Queue: 2, DelayAfter: 2}, 3, 210 * time.Second},
		"fixed window":    {weir.FixedWindow{Limit: 10, Window: time.Minute}, 10, 2 * time.Minute},
		"sliding log":     {weir.SlidingLog{Limit: 10, Window: time.Minute}, 10, 2 * time.Minute},
	} {
		for _, place := range []string{"memory", "store", "zone", "shadow"} {
			l := policy.Limit{Name: "l", Key: []string{"header.user"}, Limit: x.limit}
			limits := []policy.Limit{l}
			switch place {
			case "store":
				limits[0].Store = "shared"
				if name == "nginx bucket" {
					continue
				}
			case "zone":
				if name != "token bucket" && name != "leaky bucket" && name != "nginx bucket" {
					continue
				}
				limits[0].Zone = "z"
			case "shadow":
				limits[0].Shadow = true
			}
			t.Run(name+", "+place, func(t *testing.T) {
				clock := new(weirtest.Clock)
				e := sharing(t, policy.Policy{Limits: limits, Routes: []policy.Route{{Match: "/", Limits: []string{"l"}}}}, clock, map[string]weir.Store{"shared": weirtest.NewStore(clock.Now)})
				clock.Set(int64(time.Hour))
				ask := policy.Ask{Limit: "l", Key: []string{"ann"}, Cost: x.fill}
				if a, err := e.Take(t.Context(), []policy.Ask{ask}); err != nil || !a.Allowed {
					t.Fatalf("%+v, %v", a, err)
				}
				ask.Cost = 20
				a, err := e.ChargeDone(t.Context(), ask)
				if err != nil || !a.Allowed || a.Decision.Remaining != 0 && place != "shadow" {
					t.Fatalf("%+v, %v", a, err)
				}
				ask.Cost = 1
				wait := func() time.Duration {
					a, err := e.Peek(t.Context(), []policy.Ask{ask})
					if err != nil {
						t.Fatal(err)
					}
					return a.Each[0].Decision.RetryAfter
				}
				if got := wait(); got != x.again {
					t.Errorf("admits again in %v, not in %v", got, x.again)
				}
				if n := e.Counts()[0].Lost; n != 0 {
					t.Errorf("%d costs are counted as lost", n)
				}
			})
		}
	}
}
