package policy_test

import (
	"context"
	"testing"

	"github.com/weirflow/weir"
	"github.com/weirflow/weir/adaptive"
	"github.com/weirflow/weir/policy"
	"github.com/weirflow/weir/weirtest"
)

// shop is what a caller knows of its upstreams. Each request asks once.
type shop struct {
	full  bool
	asked []adaptive.Request
}

func (s *shop) Full(upstream string, as adaptive.Request) bool {
	if upstream != "app" {
		panic("there is no upstream " + upstream)
	}
	s.asked = append(s.asked, as)
	return s.full
}

// TestFullUpstreamChargesNoStore: a request whose upstream has no place is refused before any limit is charged.
// It is asked with the priority of the request.
func TestFullUpstreamChargesNoStore(t *testing.T) {
	c := new(weirtest.Clock)
	f := newFaulty(c)
	e := sharing(t, policy.Policy{
		Limits:    []policy.Limit{{Name: "a", Limit: bucket("1/h", 2), Store: "s"}},
		Upstreams: []policy.Upstream{{Name: "app", URL: "http://a", Adaptive: policy.Adaptive{On: true}}},
		Routes:    []policy.Route{{Match: "/", Limits: []string{"a"}, Upstream: "app", Priority: "sheddable"}},
	}, c, map[string]weir.Store{"s": f})
	of := &shop{full: true}
	decide := func() policy.Verdict {
		m := e.Match(get("/", "x"))
		m.AskUpstreams(of)
		return e.DecideMatch(context.Background(), &m)
	}
	if v := decide(); v.Outcome != policy.Deny || v.Limit != "adaptive:app" || !v.Overloaded() || f.called() != 0 {
		t.Errorf("%v by %q, %d calls of the store", v.Outcome, v.Limit, f.called())
	}
	of.full = false
	if v := decide(); v.Outcome != policy.Allow || v.Decision.Remaining != 1 || f.called() != 1 {
		t.Errorf("%v, %+v, %d calls of the store", v.Outcome, v.Decision, f.called())
	}
	for _, as := range of.asked {
		if as.Priority != adaptive.Sheddable {
			t.Errorf("asked as %v", as.Priority)
		}
	}
}

// place is a place at an upstream.
type place struct{ ends []weir.Outcome }

func (p *place) Done(o weir.Outcome) { p.ends = append(p.ends, o) }

// TestOneRelease: Done gives back the place at the upstream, as all others.
func TestOneRelease(t *testing.T) {
	e, err := policy.New(policy.Policy{
		Upstreams: []policy.Upstream{{Name: "app", URL: "http://a", Adaptive: policy.Adaptive{On: true}}},
		Routes:    []policy.Route{{Match: "/", Upstream: "app", Adaptive: policy.Adaptive{On: true}}},
	}, policy.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer e.Close()
	v, at := e.Decide(get("/", "x")), new(place)
	if err := v.EnterUpstream(t.Context(), nil, func(context.Context, adaptive.Request, func() (context.Context, error)) (policy.UpstreamPlace, error) {
		return at, nil
	}); err != nil {
		t.Fatal(err)
	}
	if a := e.AdaptiveCounts()[0]; a.InFlight != 1 || len(at.ends) != 0 {
		t.Errorf("%+v, %v", a, at.ends)
	}
	v.Done(weir.Dropped)
	if a := e.AdaptiveCounts()[0]; a.InFlight != 0 || len(at.ends) != 1 || at.ends[0] != weir.Dropped {
		t.Errorf("%+v, %v", a, at.ends)
	}
}
