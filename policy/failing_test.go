package policy_test

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/weirflow/weir"
	"github.com/weirflow/weir/policy"
	"github.com/weirflow/weir/weirtest"
)

// TestStoreFails: if the store fails, on_failure decides.
func TestStoreFails(t *testing.T) {
	broken := errors.New("broken")
	for _, w := range []struct {
		store, limit string
		err          error
		outcome      policy.Outcome
		source       weir.Source
	}{
		{"allow", "", broken, policy.Allow, weir.SourceAllow},
		{"deny", "", broken, policy.Deny, weir.SourceDeny},
		{"local", "", broken, policy.Deny, weir.SourceDeny}, // failover decides by a share; without it, the request is refused
		{"", "", broken, policy.Deny, weir.SourceDeny},
		{"deny", "allow", broken, policy.Allow, weir.SourceAllow},
		{"allow", "deny", broken, policy.Deny, weir.SourceDeny},
		{"allow", "", fmt.Errorf("%w: too much", weir.ErrCharge), policy.Deny, weir.SourceStore}, // an error about the charge is no way past the limit
	} {
		c := new(weirtest.Clock)
		f := newFaulty(c)
		e, err := policy.New(policy.Policy{
			Stores: []policy.Store{{Name: "s", OnFailure: w.store}},
			Limits: []policy.Limit{
				{Name: "memory", Limit: bucket("1/h", 2)},
				{Name: "l", Limit: bucket("1/h", 5), Store: "s", OnFailure: w.limit},
			},
			Routes: []policy.Route{{Match: "/", Limits: []string{"memory", "l"}}, {Match: "/alone", Limits: []string{"l"}}},
		}, policy.Options{Clock: c.Now, Stores: map[string]weir.Store{"s": f}})
		if err != nil {
			t.Fatal(err)
		}
		f.fail(w.err)
		v := e.Decide(get("/", "x"))
		if v.Outcome != w.outcome || !errors.Is(v.Err, w.err) {
			t.Errorf("%+v: %+v", w, v)
		}
		if v.Outcome == policy.Deny && (v.Limit != "l" || v.Decision.Source != w.source || v.Decision.RetryAfter != weir.Never) {
			t.Errorf("%+v: %+v", w, v)
		}
		want := int64(2)
		if v.Outcome == policy.Allow {
			want = 1
		}
		if got := v.Evaluated()[0].Decision.Remaining; got != want || len(v.Evaluated()) != 1 {
			t.Errorf("%+v: %d left in memory, want %d", w, got, want)
		}
		if n := e.Counts()[1]; n.Sources[w.source] != 1 || n.Failed != map[bool]uint64{true: 1}[w.err == broken] {
			t.Errorf("%+v: %+v", w, n)
		}
		f.fail(nil)
		if v := e.Decide(get("/", "x")); v.Outcome != policy.Allow || v.Err != nil {
			t.Errorf("%+v: when it is back: %+v", w, v)
		}
	}
}

// TestCallersThatLeaveAreNotCharged: a request whose context ends during the call of a store is charged nothing in memory.
func TestCallersThatLeaveAreNotCharged(t *testing.T) {
	c := new(weirtest.Clock)
	f := newFaulty(c)
	f.hold = make(chan struct{})
	e := sharing(t, policy.Policy{
		Limits: []policy.Limit{{Name: "memory", Limit: bucket("1/h", 2)}, {Name: "l", Limit: bucket("1/h", 2), Store: "s"}},
		Routes: []policy.Route{{Match: "/", Limits: []string{"memory", "l"}}},
	}, c, map[string]weir.Store{"s": f})
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	v := e.DecideContext(ctx, get("/", "x"))
	if v.Outcome != policy.Left || !errors.Is(v.Err, context.Canceled) || v.Outcome.String() != "left" {
		t.Errorf("%+v", v)
	}
	if a := v.Evaluated(); len(a) != 1 || a[0].Decision.Remaining != 2 || counts(e, "memory") != [3]uint64{} || counts(e, "l") != [3]uint64{} {
		t.Errorf("%+v", a)
	}
}
