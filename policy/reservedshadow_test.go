package policy_test

import (
	"context"
	"testing"
	"time"

	"github.com/weirflow/weir"
	"github.com/weirflow/weir/policy"
	"github.com/weirflow/weir/weirtest"
)

// countedLimits are limits that refuse nothing and count all the same, by how: as a quota of a plan that is
// unlimited, and as shadows. With a store, those that can be are kept in it.
func countedLimits(stored bool) policy.Policy {
	p := policy.Policy{Plans: policy.Plans{From: []string{"header.x-plan"}, Unknown: policy.UnknownDefault, Default: "free"}}
	window := weir.FixedWindow{Limit: 100, Window: 2 * time.Hour}
	p.Limits = []policy.Limit{
		{Name: "unlimited", Limit: window, Plans: []policy.PlanLimit{{Plan: "big", Unlimited: true}}},
		{Name: "shadow", Limit: window, Shadow: true},
		{Name: "rolled", Limit: window, RollOut: "0%"},
		{Name: "zone", Limit: bucket("1/d", 100), Zone: "z", Shadow: true},
		{Name: "last", Limit: bucket("1/d", 4)},
	}
	for i := range p.Limits {
		if p.Limits[i].Key = []string{"header.user"}; stored && i < 3 {
			p.Limits[i].Store = "s"
		}
	}
	return p
}

// counted returns what a key has used of a limit of countedLimits, once calls in the background are over. The
// engine is closed.
func counted(t *testing.T, e *policy.Engine, limit, key string) int64 {
	t.Helper()
	if err := e.Close(); err != nil {
		t.Fatal(err)
	}
	if limit == "rolled" {
		for _, c := range e.Counts() {
			if c.Limit == limit && c.Shadow {
				return int64(c.Allowed)
			}
		}
	}
	if limit == "unlimited" {
		if u := e.Usage(t.Context(), limit, []string{key}, "big"); len(u) == 1 && u[0].Unlimited {
			return u[0].Used
		}
		t.Fatalf("no usage of %s", limit)
	}
	a, err := e.Peek(t.Context(), []policy.Ask{{Limit: limit, Key: []string{key}}})
	if err != nil {
		t.Fatal(err)
	}
	return 100 - a.Each[0].Decision.Remaining
}

// TestReservedShadowsAreSettled: what is counted for an unlimited plan, and what a shadow has charged, is the
// true cost of a reservation, however it ends, alone and beside other limits.
func TestReservedShadowsAreSettled(t *testing.T) {
	ends := map[string]struct {
		end  func(*policy.Answer, []int64) error
		cost int64
		used int64
	}{
		"less":     {func(a *policy.Answer, c []int64) error { return a.Settle(t.Context(), c, time.Minute) }, 2, 2},
		"more":     {func(a *policy.Answer, c []int64) error { return a.Settle(t.Context(), c, time.Minute) }, 9, 9},
		"canceled": {func(a *policy.Answer, _ []int64) error { return a.Cancel(t.Context()) }, 0, 0},
		"kept":     {func(a *policy.Answer, _ []int64) error { return a.Keep(t.Context()) }, 0, 5},
		"expired":  {func(a *policy.Answer, _ []int64) error { policy.SettleExpired(t.Context(), a.Expire()); return nil }, 0, 5},
	}
	for where, stored := range map[string]bool{"memory": false, "store": true} {
		for _, limit := range []string{"unlimited", "shadow", "zone"} {
			for name, of := range ends {
				for _, beside := range []bool{false, true} {
					clock := new(weirtest.Clock)
					e := sharing(t, countedLimits(stored), clock, map[string]weir.Store{"s": weirtest.NewStore(clock.Now)})
					ask := policy.Ask{Limit: limit, Key: []string{"k"}, Cost: 5}
					if limit == "unlimited" {
						ask.Plan = "big"
					}
					asks, costs := []policy.Ask{ask}, []int64{of.cost}
					if beside { // in a first layer and in a second
						other := ask
						other.Key = []string{"other"}
						asks = []policy.Ask{other, ask, {Limit: "last", Key: []string{"k"}, Cost: 1}}
						costs = []int64{1, of.cost, 1}
					}
					a, err := e.Reserve(t.Context(), asks, 0)
					if err != nil || !a.Allowed {
						t.Fatalf("%+v, %v", a, err)
					}
					if err := of.end(a, costs); err != nil {
						t.Fatal(err)
					}
					if used := counted(t, e, limit, "k"); used != of.used {
						t.Errorf("%s of %s, beside others: %t: a reservation of 5 counts %d %s, want %d", limit, where, beside, used, name, of.used)
					}
				}
			}
		}
	}
}

// TestRefusedCallsCountNothing: a call that a limit refuses counts neither for an unlimited plan nor for the
// shadow of a roll_out, also if the limit is charged after them; one that is admitted counts.
func TestRefusedCallsCountNothing(t *testing.T) {
	for where, stored := range map[string]bool{"memory": false, "store": true} {
		for _, limit := range []string{"unlimited", "rolled"} {
			for _, reserve := range []bool{false, true} {
				for cost, want := range map[int64]int64{100: 0, 2: 1} {
					clock := new(weirtest.Clock)
					e := sharing(t, countedLimits(stored), clock, map[string]weir.Store{"s": weirtest.NewStore(clock.Now)})
					first := policy.Ask{Limit: limit, Key: []string{"k"}, Cost: 1}
					if limit == "unlimited" {
						first.Plan = "big"
					}
					asks := []policy.Ask{first, {Limit: "last", Key: []string{"x"}, Cost: 1}, {Limit: "last", Key: []string{"y"}, Cost: cost}}
					call := e.Take
					if reserve {
						call = func(ctx context.Context, asks []policy.Ask) (*policy.Answer, error) { return e.Reserve(ctx, asks, 0) }
					}
					a, err := call(t.Context(), asks)
					if err != nil || a.Allowed != (want > 0) {
						t.Fatalf("%+v, %v", a, err)
					}
					if used := counted(t, e, limit, "k"); used != want {
						t.Errorf("%s of %s, reserved: %t, cost %d: counted %d, want %d", limit, where, reserve, cost, used, want)
					}
				}
			}
		}
	}
}
