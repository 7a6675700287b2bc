package policy_test

import (
	"testing"
	"time"

	"github.com/weirflow/weir"
	"github.com/weirflow/weir/policy"
	"github.com/weirflow/weir/weirtest"
)

// TestAskedShadows: a shadow that is asked for by name says what it has decided and what is left, as the same
// limit does that is enforced; only its work is always admitted. It does so for each sort of limit.
func TestAskedShadows(t *testing.T) {
	clock := new(weirtest.Clock)
	p := policy.Policy{Plans: policy.Plans{From: []string{"header.x-plan"}, Unknown: policy.UnknownDefault, Default: "free"}}
	sorts := map[string]policy.Limit{
		"memory": {Limit: bucket("6/m", 3)},
		"window": {Limit: weir.FixedWindow{Limit: 3, Window: time.Minute}},
		"store":  {Limit: bucket("6/m", 3), Store: "shared"},
		"plan":   {Limit: bucket("6/m", 1), Plans: []policy.PlanLimit{{Plan: "pro", Limit: bucket("6/m", 3)}}},
		"zone":   {Limit: bucket("6/m", 3), Zone: "z"},
	}
	for name, l := range sorts {
		l.Name, l.Key = name, []string{"header.user"}
		p.Limits = append(p.Limits, l)
		if l.Name, l.Shadow = name+"-shadow", true; l.Zone != "" {
			l.Zone = "z2"
		}
		p.Limits = append(p.Limits, l)
	}
	p.Limits = append(p.Limits, policy.Limit{Name: "beside", Limit: bucket("6/m", 100)})
	e := sharing(t, p, clock, map[string]weir.Store{"shared": weirtest.NewStore(clock.Now)})
	for name := range sorts {
		plan := ""
		if name == "plan" {
			plan = "pro"
		}
		for i := range 6 {
			ask := policy.Ask{Limit: name, Key: []string{"a"}, Cost: 1, Plan: plan}
			want, err := e.Take(t.Context(), []policy.Ask{ask})
			if err != nil {
				t.Fatal(err)
			}
			ask.Limit = name + "-shadow"
			asks := []policy.Ask{ask}
			if i%2 == 1 && name != "store" {
				asks = append(asks, policy.Ask{Limit: "beside", Cost: 1})
			}
			got, err := e.Take(t.Context(), asks)
			if err != nil {
				t.Fatal(err)
			}
			x, d := got.Each[0], want.Each[0].Decision
			if d.By = ask.Limit; !got.Allowed || !x.Shadow || !x.Evaluated || x.Decision != d {
				t.Errorf("%s, call %d: the shadow says %+v, and the limit %+v", name, i, x, d)
			}
			if len(asks) == 1 && (got.Decision.Limit != d.Limit || got.Decision.Remaining != d.Remaining || got.Decision.RetryAfter != 0) {
				t.Errorf("%s, call %d: %+v", name, i, got.Decision)
			}
		}
	}
}

// TestAskedExemptions: a key that a limit does not apply to has all of it left, whether it is asked for by
// Take or by Peek.
func TestAskedExemptions(t *testing.T) {
	clock := new(weirtest.Clock)
	p := policy.Policy{Plans: policy.Plans{From: []string{"header.x-plan"}, Unknown: policy.UnknownDefault, Default: "free"}, Limits: []policy.Limit{
		{Name: "net", Key: []string{"client.ip"}, Limit: bucket("6/m", 3), Exempt: []string{"10.0.0.0/8"}},
		{Name: "granted", Key: []string{"client.ip"}, Limit: bucket("6/m", 3)},
		{Name: "rolled", Key: []string{"client.ip"}, Limit: bucket("6/m", 3), RollOut: "0.001%"},
		{Name: "planned", Key: []string{"client.ip"}, Limit: bucket("6/m", 3), Plans: []policy.PlanLimit{{Plan: "all", Unlimited: true}}},
	}}
	e := sharing(t, p, clock, nil)
	except(t, e, policy.Override{Limit: "granted", Key: []string{"10.0.0.1"}, For: time.Hour})
	for _, l := range p.Limits {
		ask := policy.Ask{Limit: l.Name, Key: []string{"10.0.0.1"}, Cost: 1}
		left := int64(3)
		if l.Name == "planned" {
			ask.Plan, left = "all", 0
		}
		for range 5 {
			for verb, call := range map[string]func() (*policy.Answer, error){
				"take": func() (*policy.Answer, error) { return e.Take(t.Context(), []policy.Ask{ask}) },
				"peek": func() (*policy.Answer, error) { return e.Peek(t.Context(), []policy.Ask{ask}) },
			} {
				a, err := call()
				if err != nil {
					t.Fatal(err)
				}
				x, d := a.Each[0], a.Each[0].Decision
				if !a.Allowed || !x.Exempt || x.Evaluated || !d.Allowed || d.Limit != left || d.Remaining != left || a.Decision.Remaining != left || len(a.Evaluated()) > 0 {
					t.Errorf("%s of %s: %+v", verb, l.Name, a)
				}
			}
		}
	}
}
