package policy_test

import (
	"bytes"
	"net/http"
	"strings"
	"testing"

	"github.com/weirflow/weir"
	"github.com/weirflow/weir/policy"
	"github.com/weirflow/weir/weirtest"
)

// TestUnlimitedPlansAreCounted: a quota that does not apply to a plan counts what its customers use, in
// memory and in a store, and changes nothing for them: no header field, no refusal, no count of an allowed
// request. A customer whose plan changes keeps what was used.
func TestUnlimitedPlansAreCounted(t *testing.T) {
	for name, stored := range map[string]bool{"memory": false, "store": true} {
		t.Run(name, func(t *testing.T) {
			p := withPlans()
			p.Limits = []policy.Limit{
				{Name: "monthly", Key: []string{"customer"}, Limit: weir.FixedWindow{Limit: 3, Align: "month"}, Cost: "2",
					Plans: []policy.PlanLimit{{Plan: "enterprise", Unlimited: true}}},
				{Name: "bucket", Key: []string{"customer"}, Limit: weir.TokenBucket{Rate: weir.PerHour(1), Burst: 3},
					Plans: []policy.PlanLimit{{Plan: "enterprise", Unlimited: true}}},
				{Name: "all", Key: []string{"host"}, Limit: weir.TokenBucket{Rate: weir.PerHour(1), Burst: 7}},
			}
			p.Routes = []policy.Route{{Match: "/", Limits: []string{"monthly", "bucket", "all"}}}
			o := policy.Options{}
			if stored {
				p.Stores = []policy.Store{{Name: "s", URL: "memory://"}}
				p.Limits[0].Store = "s"
				o.Stores = map[string]weir.Store{"s": weirtest.NewStore(nil)}
			}
			customers := known()
			o.Customers = customers
			e := planned(t, p, o)
			big := request("/", "X-Api-Key", "k-big")
			for range 7 {
				v := e.Decide(big)
				for _, l := range v.Evaluated() {
					if l.Name != "all" {
						t.Errorf("a header field of %s", l.Name)
					}
				}
				v.Done(weir.OK)
			}
			if v := e.Decide(big); v.Outcome != policy.Deny || v.Limit != "all" {
				t.Errorf("an unlimited plan is refused by %q: %v", v.Limit, v.Outcome)
			}
			if err := e.Close(); err != nil { // waits for calls of stores in the background
				t.Fatal(err)
			}
			usage := e.Usage(t.Context(), "", []string{"mega"}, "enterprise")
			if len(usage) != 2 || usage[0].Limit != "monthly" || !usage[0].Unlimited || usage[0].Used != 14 || usage[0].Of != 0 || usage[0].Left != 0 {
				t.Errorf("%+v", usage)
			}
			if n := e.Counts()[0]; n.Allowed != 0 || n.Exempt < 7 {
				t.Errorf("%+v", n)
			}
			if stored {
				var said []string
				err := e.StoredUsages(t.Context(), func(u policy.Usage) error {
					said = append(said, u.Limit+": "+u.Problem.Error())
					return nil
				})
				if err != nil || len(said) != 1 || !strings.Contains(said[0], "monthly: its store does not list keys") {
					t.Errorf("the export of a store that lists no keys: %v, %v", said, err)
				}
				return
			}
			var exported []policy.Usage
			for u := range e.Usages() {
				if u.Limit == "monthly" {
					exported = append(exported, u)
				}
			}
			if len(exported) != 1 || !exported[0].Unlimited || exported[0].Used != 14 {
				t.Errorf("the export: %+v", exported)
			}
			var snapshot bytes.Buffer
			if _, err := e.WriteSnapshot(&snapshot); err != nil || !strings.Contains(snapshot.String(), "14") {
				t.Errorf("%v: %s", err, snapshot.String())
			}
			next := planned(t, p, o)
			if _, err := next.ReadSnapshot(snapshot.Bytes()); err != nil {
				t.Fatal(err)
			}
			if u := next.Usage(t.Context(), "monthly", []string{"mega"}, "enterprise"); len(u) != 1 || u[0].Used != 14 {
				t.Errorf("after a restart: %+v", u)
			}
			customers.keys["k-big"] = policy.Customer{Name: "mega"}
			if v := next.Decide(big); v.Outcome != policy.Deny || v.Limit != "monthly" {
				t.Errorf("with a smaller plan: %v by %q", v.Outcome, v.Limit)
			}
			if u := next.Usage(t.Context(), "monthly", []string{"mega"}, ""); len(u) != 1 || u[0].Unlimited || u[0].Used != 14 || u[0].Of != 3 || u[0].Left != 0 {
				t.Errorf("with a smaller plan: %+v", u)
			}
		})
	}
}

// TestUnlimitedCostsKnownAfterwards: what is counted for an unlimited plan is the true cost.
func TestUnlimitedCostsKnownAfterwards(t *testing.T) {
	for name, stored := range map[string]bool{"memory": false, "store": true} {
		t.Run(name, func(t *testing.T) {
			p := withPlans()
			p.Limits = []policy.Limit{{Name: "tokens", Key: []string{"customer"}, Limit: weir.FixedWindow{Limit: 100, Align: "month"},
				Costs: policy.Costs{Before: terms("body.max_tokens"), Default: 10, After: terms("header.x-cost")},
				Plans: []policy.PlanLimit{{Plan: "enterprise", Unlimited: true}}}}
			p.Routes = []policy.Route{{Match: "/", Limits: []string{"tokens"}}}
			o := policy.Options{}
			if stored {
				p.Stores = []policy.Store{{Name: "s", URL: "memory://"}}
				p.Limits[0].Store = "s"
				o.Stores = map[string]weir.Store{"s": weirtest.NewStore(nil)}
			}
			e := planned(t, p, o)
			for range 3 {
				v := e.Decide(request("/", "X-Api-Key", "k-big"))
				m := v.Meter()
				if m == nil {
					t.Fatal("nothing reads the cost")
				}
				m.Header(200, http.Header{"X-Cost": {"777"}})
				m.End(policy.Ending{Complete: true})
				v.Done(weir.OK)
			}
			if err := e.Close(); err != nil {
				t.Fatal(err)
			}
			if u := e.Usage(t.Context(), "", []string{"mega"}, "enterprise"); len(u) != 1 || u[0].Used != 3*777 {
				t.Errorf("%+v", u)
			}
		})
	}
}
