package policy_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/weirflow/weir"
	"github.com/weirflow/weir/policy"
	"github.com/weirflow/weir/weirtest"
)

// TestRefusedAsksSayWhatIsLeft: after a refusal, the answer about each ask says what is left without the
// charges that were given back, and the header fields name the key that refused.
func TestRefusedAsksSayWhatIsLeft(t *testing.T) {
	for _, limit := range []string{"slow", "stored"} {
		clock := new(weirtest.Clock)
		p := policy.Policy{Limits: []policy.Limit{
			{Name: "slow", Key: []string{"header.user"}, Limit: bucket("1/h", 5)},
			{Name: "stored", Key: []string{"header.user"}, Limit: bucket("1/h", 5), Store: "shared"},
			{Name: "other", Limit: bucket("1/h", 9), Store: "shared"},
		}}
		e := sharing(t, p, clock, map[string]weir.Store{"shared": weirtest.NewStore(clock.Now)})
		ask := func(user string, cost int64) policy.Ask {
			return policy.Ask{Limit: limit, Key: []string{user}, Cost: cost}
		}
		take := func(asks ...policy.Ask) *policy.Answer {
			t.Helper()
			a, err := e.Take(t.Context(), asks)
			if err != nil {
				t.Fatal(err)
			}
			return a
		}
		take(ask("ann", 5))
		a := take(ask("bob", 1), ask("ann", 1), ask("eve", 1))
		if a.Allowed || a.Limit != limit || a.Decision.Remaining != 0 || a.Decision.RetryAfter != time.Hour {
			t.Errorf("%+v", a)
		}
		bob, ann, eve := a.Each[0], a.Each[1], a.Each[2]
		if !bob.Decision.Allowed || !bob.Evaluated || bob.Decision.Remaining != 5 || bob.Decision.ResetAfter != 0 {
			t.Errorf("%s: bob was charged nothing: %+v", limit, bob)
		}
		if ann.Decision.Allowed || ann.Decision.Remaining != 0 || !ann.Evaluated {
			t.Errorf("%s: ann: %+v", limit, ann)
		}
		if eve.Evaluated {
			t.Errorf("%s: eve: %+v", limit, eve)
		}
		if all := a.Evaluated(); len(all) != 1 || all[0].Decision != ann.Decision {
			t.Errorf("%s: the header fields are about %+v", limit, all)
		}
		// the same key twice: it refuses with what is really left
		a = take(ask("kim", 3), ask("kim", 3))
		if a.Allowed || a.Each[0].Decision.Remaining != 5 || a.Each[1].Decision.Remaining != 5 || a.Decision.Remaining != 5 || a.Decision.RetryAfter != weir.Never {
			t.Errorf("%s: one key twice: %+v", limit, a)
		}
		// admitted: the fields are about the key with the least left
		a = take(ask("kim", 1), ask("lea", 3), policy.Ask{Limit: "other", Cost: 1})
		if all := a.Evaluated(); !a.Allowed || len(all) != 2 || all[0].Decision.Remaining != 2 || all[1].Name != "other" {
			t.Errorf("%s: %+v", limit, all)
		}
	}
}

// TestSettledAsksSayWhatIsLeft: after Settle and Cancel, the answer says what is left of each limit.
func TestSettledAsksSayWhatIsLeft(t *testing.T) {
	for _, limits := range [][]string{{"bucket"}, {"stored"}, {"bucket", "stored"}, {"bucket", "bucket"}, {"stored", "stored-too"}, {"nginx"}, {"small", "large"}, {"planned"}} {
		for _, within := range []time.Duration{0, -1} {
			clock := new(weirtest.Clock)
			e := sharing(t, named(), clock, map[string]weir.Store{"shared": weirtest.NewStore(clock.Now)})
			var asks []policy.Ask
			for _, name := range limits {
				asks = append(asks, policy.Ask{Limit: name, Key: keyOf(named(), name, "10.0.0.1", "a"), Cost: 1})
			}
			for _, cost := range []int64{0, 2, 7} {
				a, err := e.Reserve(t.Context(), asks, within)
				if err != nil || !a.Allowed {
					t.Fatalf("%v: %+v, %v", limits, a, err)
				}
				if err := a.Settle(t.Context(), slices.Repeat([]int64{cost}, len(asks)), 0); err != nil {
					t.Fatal(err)
				}
				now, err := e.Peek(t.Context(), asks)
				if err != nil {
					t.Fatal(err)
				}
				for i := range asks {
					got, want := a.Each[i].Decision, now.Each[i].Decision
					if got.Remaining != want.Remaining || got.ResetAfter != want.ResetAfter || !got.Allowed {
						t.Errorf("%v within %v, settled by %d: %+v, and Peek says %+v", limits, within, cost, got, want)
					}
				}
				clock.Set(clock.Now() + int64(24*time.Hour))
			}
		}
	}
}

// TestStoresKnowReservations: a store learns that the cost of a reservation is an estimate, and that of
// a Take is not: it remembers the first until it is settled.
func TestStoresKnowReservations(t *testing.T) {
	clock := new(weirtest.Clock)
	store := &noting{Store: weirtest.NewStore(clock.Now)}
	e := sharing(t, named(), clock, map[string]weir.Store{"shared": store})
	one := []policy.Ask{{Limit: "stored", Key: []string{"a"}, Cost: 1}}
	two := append(slices.Clone(one), policy.Ask{Limit: "stored", Key: []string{"b"}, Cost: 1})
	for _, asks := range [][]policy.Ask{one, two} {
		for _, within := range []time.Duration{0, -1} {
			store.seen = nil
			clock.Set(clock.Now() + int64(time.Hour))
			a, err := e.Reserve(t.Context(), asks, within)
			if err != nil || a.Keep(t.Context()) != nil {
				t.Fatal(a, err)
			}
			taken, settled := 0, 0
			for _, c := range store.seen {
				switch {
				case c.Op == weir.OpSettle && c.Cost == 1:
					settled++
				case c.Estimate:
					taken++
				}
			}
			if taken != len(asks) || settled != len(asks) {
				t.Errorf("%d asks within %v: %+v", len(asks), within, store.seen)
			}
		}
		store.seen = nil
		if _, err := e.Take(t.Context(), asks); err != nil || slices.ContainsFunc(store.seen, func(c weir.Charge) bool { return c.Estimate }) {
			t.Errorf("take: %+v, %v", store.seen, err)
		}
	}
}

// noting notes all charges.
type noting struct {
	weir.Store
	seen []weir.Charge
}

func (n *noting) Do(ctx context.Context, batch []weir.Charge, out []weir.Decision) error {
	n.seen = append(n.seen, batch...)
	return n.Store.Do(ctx, batch, out)
}

// TestWrongChargesAreNoWayPast: a charge that no store can carry out is refused by every verb, whatever
// on_failure says, and counts as no failure of the store.
func TestWrongChargesAreNoWayPast(t *testing.T) {
	clock := new(weirtest.Clock)
	store := newFaulty(clock)
	p := policy.Policy{Limits: []policy.Limit{{Name: "s", Limit: bucket("1/h", 5), Store: "shared", OnFailure: "allow"}}}
	e := sharing(t, p, clock, map[string]weir.Store{"shared": store})
	store.fail(fmt.Errorf("%w: too much", weir.ErrCharge))
	asks := []policy.Ask{{Limit: "s", Cost: 1}}
	for name, verb := range map[string]func() (*policy.Answer, error){
		"take":    func() (*policy.Answer, error) { return e.Take(t.Context(), asks) },
		"peek":    func() (*policy.Answer, error) { return e.Peek(t.Context(), asks) },
		"reserve": func() (*policy.Answer, error) { return e.Reserve(t.Context(), asks, 0) },
		"ahead":   func() (*policy.Answer, error) { return e.Reserve(t.Context(), asks, -1) },
	} {
		a, err := verb()
		if err != nil || a.Allowed || !errors.Is(a.Err, weir.ErrCharge) || a.Each[0].Decision.Source != weir.SourceStore || a.Decision.RetryAfter != weir.Never {
			t.Errorf("%s: %+v, %v", name, a, err)
		}
	}
	if n := e.Counts()[0].Failed; n != 0 {
		t.Errorf("%d failures of the store", n)
	}
}
