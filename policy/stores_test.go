package policy_test

import (
	"testing"
	"time"

	"github.com/weirflow/weir"
	"github.com/weirflow/weir/policy"
	"github.com/weirflow/weir/weirtest"
)

// TestStoresThatAreNotPassedAreMemory: limits in a store that is not passed are kept in memory, so
// replays and tests need none.
func TestStoresThatAreNotPassedAreMemory(t *testing.T) {
	p := policy.Policy{
		Stores: []policy.Store{{Name: "shared"}},
		Limits: []policy.Limit{{Name: "l", Limit: bucket("1/h", 1), Store: "shared"}},
		Routes: []policy.Route{{Match: "/", Limits: []string{"l"}}},
	}
	e, _ := engine(t, p)
	if v := e.Decide(get("/", "x")); v.Outcome != policy.Allow || v.Decision.Source != weir.SourceLocal || e.Counts()[0].Stored {
		t.Errorf("%+v", v)
	}
}

// TestNextWithStores: a limit that changes keeps its states in the store. One that moves to another
// store starts over there.
func TestNextWithStores(t *testing.T) {
	c := new(weirtest.Clock)
	stores := map[string]weir.Store{"s": weirtest.NewStore(c.Now)}
	p := policy.Policy{
		Stores: []policy.Store{{Name: "s"}},
		Limits: []policy.Limit{{Name: "l", Limit: bucket("1/h", 4), Store: "s"}},
		Routes: []policy.Route{{Match: "/", Limits: []string{"l"}}},
	}
	e, err := policy.New(p, policy.Options{Clock: c.Now, Stores: stores})
	if err != nil {
		t.Fatal(err)
	}
	for range 3 {
		e.Decide(get("/", "x"))
	}
	next := p
	next.Limits = []policy.Limit{{Name: "l", Limit: bucket("1/h", 10), Store: "s"}}
	n, err := e.Next(next)
	if err != nil {
		t.Fatal(err)
	}
	if v := n.Decide(get("/", "x")); v.Decision.Remaining != 6 || v.Decision.Limit != 10 || counts(n, "l") != [3]uint64{4, 0, 0} {
		t.Errorf("%+v", v.Decision)
	}
	if err := e.Retire(n); err != nil {
		t.Error(err)
	}
	memory, err := n.NextWith(next, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	if v := memory.Decide(get("/", "x")); v.Decision.Remaining != 9 || v.Decision.Source != weir.SourceLocal {
		t.Errorf("%+v", v.Decision)
	}
	other, err := memory.NextWith(next, stores, nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := memory.Retire(other); err != nil {
		t.Error(err)
	}
	if v := other.Decide(get("/", "x")); v.Decision.Remaining != 5 {
		t.Errorf("%+v", v.Decision)
	}
	fine := next
	fine.Limits = []policy.Limit{{Name: "l", Limit: weir.SlidingWindow{Limit: 1, Window: 3 * time.Microsecond, Slots: 2}, Store: "s"}}
	if _, err := other.Next(fine); err == nil {
		t.Error("a limit that a store cannot count in microseconds")
	}
}

// TestOneCallForOneStore: a request makes one round trip to a store, however many of its limits are
// there.
func TestOneCallForOneStore(t *testing.T) {
	c := new(weirtest.Clock)
	f := newFaulty(c)
	p := policy.Policy{Routes: []policy.Route{{Match: "/", Limits: []string{"a", "b", "c"}}}}
	for _, n := range p.Routes[0].Limits {
		p.Limits = append(p.Limits, policy.Limit{Name: n, Key: []string{"header." + n}, Limit: bucket("1/h", 2), Store: "s", OnMissing: "skip"})
	}
	e := sharing(t, p, c, map[string]weir.Store{"s": f})
	for i, fields := range [][]string{{"a", "x", "b", "x", "c", "x"}, {"a", "x"}, {"a", "x", "b", "x", "c", "x"}} {
		e.Decide(get("/", "x", fields...))
		if f.called() != i+1 {
			t.Errorf("%d calls after request %d", f.called(), i)
		}
	}
	if v := e.Decide(get("/", "x")); v.Outcome != policy.Allow || f.called() != 3 || len(v.Evaluated()) != 0 {
		t.Errorf("where all are skipped: %+v, %d calls", v, f.called())
	}
	if v := e.Decide(get("/", "x", "b", "x", "c", "x")); v.Outcome != policy.Allow || v.Decision.Remaining != 0 {
		t.Errorf("what a refused the others have not counted: %+v", v)
	}
}
