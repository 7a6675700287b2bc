package policy

import (
	"net/http"
	"testing"

	"github.com/weirflow/weir/adaptive"
)

// TestRank: the header of a trusted proxy comes first, then the route, then the plan. A header of anybody
// else counts nothing.
func TestRank(t *testing.T) {
	e, err := New(Policy{
		TrustedProxies: nil,
		Plans:          Plans{From: []string{"header.X-Plan"}, Default: "free"},
		Priorities:     Priorities{Header: "x-priority", Plans: []PlanPriority{{"free", "sheddable"}, {"pro", "critical_plus"}}, PerCustomer: true},
		Routes: []Route{
			{Match: "/batch", Adaptive: Adaptive{On: true}, Priority: "sheddable_plus"},
			{Match: "/", Adaptive: Adaptive{On: true}},
		},
	}, Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer e.Close()
	users := map[uint64]bool{}
	for _, c := range []struct {
		path, plan, header, client string
		trusted                    bool
		want                       adaptive.Priority
	}{
		{"/", "", "", "a", true, adaptive.Sheddable},
		{"/", "pro", "", "a", true, adaptive.CriticalPlus},
		{"/", "pro", "", "a", false, adaptive.Sheddable},
		{"/", "other", "", "a", true, adaptive.Critical},
		{"/batch", "pro", "", "a", true, adaptive.SheddablePlus},
		{"/batch", "pro", "Critical", "b", true, adaptive.Critical},
		{"/", "", "critical_plus", "b", false, adaptive.Sheddable},
		{"/", "", "urgent", "b", true, adaptive.Sheddable},
	} {
		h := http.Header{}
		if c.plan != "" {
			h.Set("X-Plan", c.plan)
		}
		if c.header != "" {
			h.Set("X-Priority", c.header)
		}
		v := e.Decide(Request{Method: "GET", Path: c.path, Client: c.client, Header: h, Trusted: c.trusted})
		if v.Outcome != Allow || v.rare == nil || v.rare.admits.as.Priority != c.want || v.rare.admits.as.User == 0 {
			t.Errorf("%+v: %v %+v", c, v.Outcome, v.rare)
			continue
		}
		users[v.rare.admits.as.User] = true
	}
	if len(users) != 2 {
		t.Errorf("%d users, want 2", len(users))
	}
	if !e.policy.AsksHop() {
		t.Error("whether the hop is trusted matters")
	}
}
