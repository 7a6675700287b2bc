package decisions

import (
	"fmt"
	"testing"
	"time"

	"github.com/weirflow/weir/policy"
)

// TestRefusals: the latest refusals of a key at a limit are found, the latest first, and nothing else.
func TestRefusals(t *testing.T) {
	o := New()
	for i := range 20 {
		o.latest.room.Store(keptAtOnce)
		decide(o, policy.Observed{Limit: "a", Key: "ann", Outcome: policy.Deny, Cost: int64(i), Match: "/"})
		decide(o, policy.Observed{Limit: "b", Key: "ann", Outcome: policy.Deny})
		decide(o, policy.Observed{Limit: "a", Key: "bob", Outcome: policy.Deny})
		decide(o, policy.Observed{Limit: "a", Key: "ann", Outcome: policy.Allow})
	}
	found := o.Refusals("a", "ann")
	if len(found) != mostRefused {
		t.Fatalf("%d refusals", len(found))
	}
	for i, e := range found {
		if e.Cost != int64(19-i) || e.Route != "/" {
			t.Errorf("%d: %+v", i, e)
		}
	}
	if found := o.Refusals("b", "bob"); len(found) != 0 {
		t.Errorf("%+v", found)
	}
}

// TestRefusalsOfAFlood: a flood of a million refusals takes room for 4096. In each tenth of a second, at most fifty are put
// together, and the others cost next to nothing.
func TestRefusalsOfAFlood(t *testing.T) {
	o := New()
	seen := 0
	now := time.Unix(1700000000, 0)
	for i := range 1_000_000 {
		if i%10_000 == 0 { // a tenth of a second
			now = now.Add(keptEvery)
			o.latest.refill(now)
			o.latest.refill(now.Add(keptEvery / 2)) // too early
		}
		if o.Sees(policy.Deny, "a", false) {
			seen++
			o.Observe(policy.Observed{Limit: "a", Key: fmt.Sprint(i), Outcome: policy.Deny})
		}
	}
	if seen != 100*keptAtOnce || len(o.latest.ring) != mostKept || cap(o.latest.ring) > 2*mostKept {
		t.Errorf("%d were put together, and %d (room: %d) are kept", seen, len(o.latest.ring), cap(o.latest.ring))
	}
	if len(o.Refusals("a", fmt.Sprint(990_000))) != 1 || len(o.Refusals("a", "0")) != 0 {
		t.Error("the latest are not those that are kept")
	}
}
