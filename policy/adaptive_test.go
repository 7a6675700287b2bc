package policy

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/weirflow/weir"
	"github.com/weirflow/weir/adaptive"
)

// TestAdaptiveDiff: changes are shown as a policy file writes them.
func TestAdaptiveDiff(t *testing.T) {
	with := func(a Adaptive) *Policy {
		return &Policy{Upstreams: []Upstream{{Name: "app", URL: "http://a", Adaptive: a}}, Routes: []Route{{Match: "/", Upstream: "app", Adaptive: a}}}
	}
	none, usual := Adaptive{}, Adaptive{On: true}
	vegas := Adaptive{On: true, Algorithm: adaptive.Vegas{Max: 50, Alpha: 2.5}}
	aimd := Adaptive{On: true, Algorithm: adaptive.AIMD{Timeout: 2 * time.Second}}
	for _, c := range []struct {
		from, to Adaptive
		want     string
	}{
		{usual, usual, ""},
		{none, usual, "adaptive is set to { }"},
		{usual, vegas, "adaptive from { } to { vegas: { max: 50, alpha: 2.5 } }"},
		{vegas, aimd, "adaptive from { vegas: { max: 50, alpha: 2.5 } } to { aimd: { timeout: 2s } }"},
		{aimd, none, "adaptive { aimd: { timeout: 2s } } is taken out"},
	} {
		var got []string
		for _, change := range Diff(with(c.from), with(c.to)) {
			got = append(got, change.String())
		}
		want := []string{"upstream app: " + c.want, `route "/": ` + c.want}
		if c.want == "" {
			want = nil
		}
		if strings.Join(got, "\n") != strings.Join(want, "\n") {
			t.Errorf("%q, want %q", got, want)
		}
	}
}

// TestAdaptiveInvalid: what a program writes is checked, too.
func TestAdaptiveInvalid(t *testing.T) {
	p := Policy{Routes: []Route{{Match: "/", Respond: Response{Status: 200}, Adaptive: Adaptive{On: true, Algorithm: adaptive.Knee{Min: -1}}}}}
	_, err := New(p, Options{})
	if want := "weir: the policy is not valid; routes.0.adaptive.knee.min: -1 lets nothing pass: it must be at least 1 (change it, or take it out for its default)"; err == nil || err.Error() != want {
		t.Errorf("%v, want %s", err, want)
	}
}

// adaptiveRoutes is a policy with one adaptive limit, of two routes, and a limit of both.
func adaptiveRoutes(most int64) Policy {
	return Policy{
		Limits: []Limit{{Name: "all", Limit: weir.TokenBucket{Rate: weir.PerSecond(1), Burst: 10}}},
		Routes: []Route{
			{Match: "/a", Limits: []string{"all"}, Adaptive: Adaptive{On: true, Algorithm: adaptive.Knee{Initial: most, Max: most}}},
			{Match: "/", Limits: []string{"all"}},
		},
	}
}

// TestAdaptiveAdmission: a request that finds no place charges nothing, whether that is known before the
// other limits are charged or only after; and an update keeps the places.
func TestAdaptiveAdmission(t *testing.T) {
	e, err := New(adaptiveRoutes(1), Options{Clock: func() int64 { return 1 }})
	if err != nil {
		t.Fatal(err)
	}
	defer e.Close()
	request := Request{Method: "GET", Path: "/a"}
	left := func() int64 { v := e.Decide(Request{Method: "GET", Path: "/"}); return v.Decision.Remaining }
	first, second := e.Decide(request), e.Decide(request) // both before the place is taken
	if err := first.Enter(context.Background()); err != nil {
		t.Fatal(err)
	}
	if err := second.Enter(context.Background()); !errors.Is(err, weir.ErrLimited) || second.Outcome != Deny || second.Limit != "adaptive:/a" || second.Decision.RetryAfter != time.Second {
		t.Errorf("the second: %v, %v by %q, %+v", err, second.Outcome, second.Limit, second.Decision)
	}
	if got := left(); got != 8 {
		t.Errorf("%d are left after one request and this look, want 8", got)
	}
	third := e.Decide(request)
	if third.Outcome != Deny || !third.Overloaded() || len(third.Evaluated()) != 0 {
		t.Errorf("the third: %v, %v", third.Outcome, third.Evaluated())
	}
	third.Cancel()
	third.Done(weir.OK)
	if got := left(); got != 7 {
		t.Errorf("%d are left after another look, want 7", got)
	}
	next, err := e.Next(adaptiveRoutes(1))
	if err != nil {
		t.Fatal(err)
	}
	if a := next.AdaptiveCounts()[0]; a.InFlight != 1 || a.Outcomes.Refused != 2 {
		t.Errorf("after an update: %+v", a)
	}
	other, err := next.Next(adaptiveRoutes(2))
	if err != nil {
		t.Fatal(err)
	}
	if a := other.AdaptiveCounts()[0]; a.InFlight != 0 || a.Limit != 2 {
		t.Errorf("with other parameters: %+v", a)
	}
	first.Done(weir.Dropped)
	first.Done(weir.OK)
	if a := next.AdaptiveCounts()[0]; a.InFlight != 0 || a.Outcomes.Dropped != 1 {
		t.Errorf("at the end: %+v", a)
	}
}

// TestWithoutPlaces: a request of a replay takes no places, and nothing of its charges is remembered to be
// given back: a log of millions would fill the memory.
func TestWithoutPlaces(t *testing.T) {
	p := adaptiveRoutes(1)
	p.Limits = append(p.Limits, Limit{Name: "places", Limit: weir.Concurrency{Limit: 1}})
	p.Routes[1].Limits = append(p.Routes[1].Limits, "places")
	e, err := New(p, Options{Clock: func() int64 { return 1 }})
	if err != nil {
		t.Fatal(err)
	}
	defer e.Close()
	for i, path := range []string{"/a", "/"} {
		v := e.Decide(Request{Method: "GET", Path: path})
		v.WithoutPlaces()
		v.giveBack(context.Background())
		v = e.Decide(Request{Method: "GET", Path: path})
		if want := int64(8 - i); v.Decision.Remaining != want {
			t.Errorf("%s: %d are left, want %d", path, v.Decision.Remaining, want)
		}
		v.giveBack(context.Background())
	}
}
