package policy_test

import (
	"testing"

	"github.com/weirflow/weir"
	"github.com/weirflow/weir/policy"
	"github.com/weirflow/weir/weirtest"
)

// TestStoresGetBackWhatAPlaceRefuses: if a request finds no place, a limit in a store gets its charge
// back, as one in memory does.
func TestStoresGetBackWhatAPlaceRefuses(t *testing.T) {
	c := new(weirtest.Clock)
	e := sharing(t, policy.Policy{
		Limits: []policy.Limit{
			{Name: "stored", Limit: bucket("1/d", 5), Store: "s"},
			{Name: "memory", Limit: bucket("1/d", 5)},
			{Name: "places", Limit: weir.Concurrency{Limit: 1}},
		},
		Routes: []policy.Route{{Match: "/", Limits: []string{"stored", "memory", "places"}}},
	}, c, map[string]weir.Store{"s": newFaulty(c)})
	first := e.Decide(get("/", "x"))
	if err := first.Enter(t.Context()); err != nil {
		t.Fatal(err)
	}
	for range 20 {
		v := e.Decide(get("/", "x"))
		if v.Outcome != policy.Allow {
			t.Fatalf("%s refuses what it was given back: %+v", v.Limit, v)
		}
		if err := v.Enter(t.Context()); err == nil || v.Limit != "places" {
			t.Fatalf("it found a place: %v, %+v", err, v)
		}
	}
	first.Done(weir.Ignore)
	v := e.Decide(get("/", "x"))
	for _, a := range v.Evaluated() {
		if a.Name != "places" && a.Decision.Remaining != 3 {
			t.Errorf("%s: %+v", a.Name, a.Decision)
		}
	}
}
