package policy_test

import (
	"strings"
	"testing"
	"time"

	"github.com/weirflow/weir"
	"github.com/weirflow/weir/policy"
	"github.com/weirflow/weir/weirtest"
)

// TestWarnings: a limit warns each key once in a window, with the request that reaches its share, in
// memory and in a store, by the size of the plan, and for any cost.
func TestWarnings(t *testing.T) {
	for name, stored := range map[string]bool{"memory": false, "store": true} {
		t.Run(name, func(t *testing.T) {
			p := withPlans()
			p.Limits[0] = policy.Limit{Name: "hourly", Key: []string{"customer"}, WarnAt: "80%", Cost: "header.x-cost", Limit: weir.FixedWindow{Limit: 10, Window: time.Hour},
				Plans: []policy.PlanLimit{{Plan: "pro", Limit: weir.FixedWindow{Limit: 100, Window: time.Hour}}}}
			p.Routes = []policy.Route{{Match: "/", Limits: []string{"hourly"}}}
			var warned []string
			o := policy.Options{Warn: func(w policy.Warning) { warned = append(warned, w.Limit+" "+strings.Join(w.Key, ",")+" "+w.Plan) }}
			if stored {
				p.Stores = []policy.Store{{Name: "s", URL: "memory://"}}
				p.Limits[0].Store = "s"
				o.Stores = map[string]weir.Store{"s": weirtest.NewStore(nil)}
			}
			e := planned(t, p, o)
			for i, c := range []struct {
				key, cost string
				used      int64 // in the header
				warnings  int
			}{
				{"k-free", "7", 0, 0}, {"k-free", "2", 90, 1}, {"k-free", "1", 100, 1}, {"k-free", "1", 100, 1},
				{"k-pro", "79", 0, 1}, {"k-pro", "1", 80, 2}, {"k-pro", "20", 100, 2},
			} {
				v := e.Decide(request("/", "X-Api-Key", c.key, "X-Cost", c.cost))
				if all := v.Evaluated(); len(all) != 1 || all[0].Warned != c.used || len(warned) != c.warnings {
					t.Errorf("%d: %+v, %q", i, all, warned)
				}
			}
			if got := strings.Join(warned, "; "); got != "hourly fred ; hourly acme pro" || e.Counts()[0].Warned != 2 {
				t.Errorf("%q, %d counted", got, e.Counts()[0].Warned)
			}
		})
	}
	for _, at := range []string{"80", "0%", "101%", "x%", "8.5%", "-1%"} {
		p := withPlans()
		if p.Limits[0].WarnAt = at; len(p.Check()) != 1 || p.Check()[0].Warning {
			t.Errorf("%q: %v", at, p.Check())
		}
	}
}
