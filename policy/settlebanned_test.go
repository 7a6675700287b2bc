package policy_test

import (
	"testing"
	"time"

	"github.com/weirflow/weir"
	"github.com/weirflow/weir/policy"
	"github.com/weirflow/weir/weirtest"
)

// TestSettleOfABannedKey: a key that was banned, or got a grant, after it had reserved is settled as others
// are: its work is charged what it has cost, and the rest is given back.
func TestSettleOfABannedKey(t *testing.T) {
	slow := weir.PerDay(10) // nothing comes back by itself in this test
	p := policy.Policy{Limits: []policy.Limit{
		{Name: "bucket", Limit: weir.TokenBucket{Rate: slow, Burst: 9}}, {Name: "window", Limit: weir.FixedWindow{Limit: 9, Window: 24 * time.Hour}},
		{Name: "zone", Limit: weir.TokenBucket{Rate: slow, Burst: 9}, Zone: "z"},
		{Name: "stored", Limit: weir.TokenBucket{Rate: slow, Burst: 9}, Store: "shared"}, {Name: "log", Limit: weir.SlidingLog{Limit: 9, Window: 24 * time.Hour}, Store: "shared"},
	}}
	for i := range p.Limits {
		p.Limits[i].Key = []string{"header.user"}
	}
	for _, limits := range [][]string{{"bucket"}, {"window"}, {"zone"}, {"stored"}, {"log"}, {"bucket", "stored"}, {"bucket", "bucket"}, {"stored", "log"}} {
		for _, within := range []time.Duration{0, time.Minute} {
			for _, ban := range []bool{true, false} {
				clock := new(weirtest.Clock)
				e := sharing(t, p, clock, map[string]weir.Store{"shared": weirtest.NewStore(clock.Now)})
				var asks []policy.Ask
				for _, name := range limits {
					asks = append(asks, policy.Ask{Limit: name, Key: []string{"a"}, Cost: 3})
				}
				before, err := e.Peek(t.Context(), asks)
				if err != nil {
					t.Fatal(err)
				}
				a, err := e.Reserve(t.Context(), asks, within)
				if err != nil || !a.Allowed {
					t.Fatalf("%v: %+v, %v", limits, a, err)
				}
				for _, name := range limits {
					except(t, e, policy.Override{Limit: name, Key: []string{"a"}, Ban: ban, For: time.Second})
				}
				if err := a.Settle(t.Context(), make([]int64, len(asks)), time.Minute); err != nil {
					t.Errorf("%v: %v", limits, err)
				}
				clock.Set(int64(time.Second))
				after, err := e.Peek(t.Context(), asks)
				if err != nil {
					t.Fatal(err)
				}
				for i := range asks {
					if now, was := after.Each[i].Decision, before.Each[i].Decision; now.Remaining != was.Remaining {
						t.Errorf("%v within %v, ban %v: %d are left of %s, not %d", limits, within, ban, now.Remaining, asks[i].Limit, was.Remaining)
					}
				}
			}
		}
	}
}
