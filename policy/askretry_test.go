package policy_test

import (
	"context"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/weirflow/weir"
	"github.com/weirflow/weir/internal/raced"
	"github.com/weirflow/weir/internal/seeds"
	"github.com/weirflow/weir/policy"
	"github.com/weirflow/weir/weirtest"
)

// asked has small limits of each algorithm, in memory and in two stores, in zones, and with plans.
func asked() policy.Policy {
	second := weir.Rate{N: 3, Per: time.Second}
	all := []policy.Limit{
		{Name: "bucket", Limit: weir.TokenBucket{Rate: second, Burst: 4}},
		{Name: "empty", Limit: weir.TokenBucket{Rate: second, Burst: 4, Initial: weir.InitialEmpty}},
		{Name: "interval", Limit: weir.IntervalBucket{Burst: 5, Refill: 2, Every: time.Second}},
		{Name: "window", Limit: weir.FixedWindow{Limit: 4, Window: time.Second}},
		{Name: "slots", Limit: weir.SlidingWindow{Limit: 6, Window: time.Second, Slots: 4, SlotLimit: 3}},
		{Name: "counter", Limit: weir.SlidingCounter{Limit: 5, Window: time.Second}},
		{Name: "log", Limit: weir.SlidingLog{Limit: 4, Window: time.Second, MaxEntries: 2}},
		{Name: "leaky", Limit: weir.LeakyBucket{Rate: second, Queue: 4, DelayAfter: 2}},
		{Name: "smooth", Limit: weir.SmoothBursty{Rate: second}},
		{Name: "warm", Limit: weir.WarmUp{Rate: second, Period: time.Second}},
		{Name: "nginx", Limit: weir.NginxBucket{Rate: second, Queue: 3, DelayAfter: 1}},
		{Name: "all", Limit: weir.All(weir.TokenBucket{Rate: second, Burst: 2}, weir.SlidingLog{Limit: 5, Window: time.Second})},
		{Name: "zone-small", Limit: weir.TokenBucket{Rate: second, Burst: 2}, Zone: "z"},
		{Name: "zone-large", Limit: weir.TokenBucket{Rate: second, Burst: 5}, Zone: "z"},
		{Name: "nginx-small", Limit: weir.NginxBucket{Rate: second, Queue: 1}, Zone: "n"},
		{Name: "nginx-large", Limit: weir.NginxBucket{Rate: second, Queue: 4, DelayAfter: 4}, Zone: "n"},
		{Name: "plans", Limit: weir.TokenBucket{Rate: second, Burst: 2}, Plans: []policy.PlanLimit{{Plan: "pro", Limit: weir.TokenBucket{Rate: second, Burst: 5}}}},
		{Name: "shadow", Limit: weir.TokenBucket{Rate: second, Burst: 1}, Shadow: true},
		{Name: "stored-bucket", Limit: weir.TokenBucket{Rate: second, Burst: 4}, Store: "one"},
		{Name: "stored-window", Limit: weir.FixedWindow{Limit: 4, Window: time.Second}, Store: "one"},
		{Name: "stored-log", Limit: weir.SlidingLog{Limit: 4, Window: time.Second}, Store: "two"},
	}
	for i := range all {
		if all[i].Name != "empty" { // a key that is not evaluated does not begin to fill
			all[i].Key = []string{"header.user"}
		}
	}
	return policy.Policy{Plans: policy.Plans{Default: "free", From: []string{"header.x-plan"}, Unknown: policy.UnknownDefault}, Limits: all}
}

// TestRetryAfterOfAsks: in random calls with any number of limits and keys, each also several times, a
// refused call is admitted after RetryAfter and not a nanosecond sooner, and never if it is Never. Calls
// that could never be admitted named the wait of their last ask, and calls for several keys of a limit
// that of the first key.
func TestRetryAfterOfAsks(t *testing.T) {
	raced.Skip(t)
	random := seeds.Of(t.Name())
	var waits, nevers, stored int
	for range 200 {
		clock := new(weirtest.Clock)
		clock.Set(int64(time.Hour) * random.Int64N(20000))
		p := asked()
		e := sharing(t, p, clock, map[string]weir.Store{"one": weirtest.NewStore(clock.Now), "two": weirtest.NewStore(clock.Now)})
		if banned := random.IntN(4) == 0; banned {
			p.Limits = slices.DeleteFunc(p.Limits, func(l policy.Limit) bool { return l.Name == "empty" }) // a ban decides before it is evaluated
			except(t, e, policy.Override{Limit: "bucket", Key: []string{"a"}, Ban: true, For: 2 * time.Second})
		}
		some := drawLimits(random, p)
		for range 40 {
			asks := drawAsks(random, some)
			take := func() *policy.Answer {
				t.Helper()
				a, err := e.Take(t.Context(), asks)
				if err != nil {
					t.Fatal(err)
				}
				return a
			}
			a, then := take(), clock.Now()
			isStored := strings.HasPrefix(a.Limit, "stored")
			switch retry := a.Decision.RetryAfter; {
			case a.Allowed, a.Banned(): // what the limit says after the ban, the ban does not know
			case retry == weir.Never:
				nevers++
				waits := []time.Duration{1, time.Second, time.Minute, 365 * 24 * time.Hour}
				for _, wait := range waits[:1+max(0, random.IntN(20)-16)] { // after a long one, all limits are unused
					if clock.Set(then + int64(wait)); take().Allowed {
						t.Fatalf("%+v: never, and admitted after %v", asks, wait)
					}
				}
			default:
				waits++
				if isStored {
					stored++
				}
				if clock.Set(then + int64(retry) - 1); take().Allowed {
					t.Fatalf("%+v, refused by %s: admitted before %v", asks, a.Limit, retry)
				}
				clock.Set(then + int64(retry))
				if later := take(); !later.Allowed && (isStored || !strings.HasPrefix(later.Limit, "stored")) {
					t.Fatalf("%+v, refused by %s: refused by %s after %v: %+v", asks, a.Limit, later.Limit, retry, later.Decision)
				}
			}
			clock.Set(clock.Now() + random.Int64N(int64(300*time.Millisecond)))
		}
	}
	if waits < 500 || nevers < 200 || stored < 100 {
		t.Errorf("%d waits, %d nevers, %d refused by stores", waits, nevers, stored)
	}
}

// drawLimits draws a few limits; of a zone also another one of it.
func drawLimits(r *rand.Rand, p policy.Policy) []policy.Limit {
	from := p.Limits
	if r.IntN(3) == 0 {
		from = slices.DeleteFunc(slices.Clone(from), func(l policy.Limit) bool { return l.Store == "" })
	}
	some := make([]policy.Limit, 1+r.IntN(3))
	for i := range some {
		some[i] = from[r.IntN(len(from))]
	}
	if zone := some[0].Zone; zone != "" {
		some = append(some, from[slices.IndexFunc(from, func(l policy.Limit) bool { return l.Zone == zone })])
	}
	return some
}

// drawAsks draws a call that often names a limit and a key several times.
func drawAsks(r *rand.Rand, some []policy.Limit) (asks []policy.Ask) {
	for range 1 + r.IntN(4) {
		ask := policy.Ask{Limit: some[r.IntN(len(some))].Name, Cost: r.Int64N(3)}
		if key := r.IntN(3) / 2; ask.Limit != "empty" {
			ask.Key, ask.Plan = []string{[]string{"a", "b"}[key]}, []string{"free", "pro"}[key]
		}
		asks = append(asks, ask)
	}
	return asks
}

// TestRefusalsInMemoryCallNoStore: a limit in memory that refuses keeps stores from being called, also to
// learn how long they would let the call wait.
func TestRefusalsInMemoryCallNoStore(t *testing.T) {
	clock := new(weirtest.Clock)
	store := newFaulty(clock)
	e := sharing(t, named(), clock, map[string]weir.Store{"shared": store})
	asks := []policy.Ask{{Limit: "window", Key: []string{"10.0.0.1"}, Cost: 5}, {Limit: "stored", Key: []string{"a"}, Cost: 1}}
	for want := range 2 {
		a, err := e.Take(t.Context(), asks)
		if err != nil || a.Allowed != (want == 0) || store.called() != 1 {
			t.Errorf("%+v, %v, %d calls", a, err, store.called())
		}
	}
}

// TestAsksForOneKeyAreOneCharge: their costs are added, settled by their sum, and answered alike; asks by
// the parameters of two plans are an error.
func TestAsksForOneKeyAreOneCharge(t *testing.T) {
	for _, limit := range []string{"bucket", "stored-bucket"} {
		clock := new(weirtest.Clock)
		store := &noting{Store: weirtest.NewStore(clock.Now)}
		e := sharing(t, asked(), clock, map[string]weir.Store{"one": store, "two": weirtest.NewStore(clock.Now)})
		ask := func(cost int64) policy.Ask { return policy.Ask{Limit: limit, Key: []string{"a"}, Cost: cost} }
		a, err := e.Reserve(context.Background(), []policy.Ask{ask(1), {Limit: "log", Key: []string{"a"}, Cost: 1}, ask(2)}, 0)
		if err != nil || !a.Allowed || a.Each[0].Decision.Remaining != 1 || a.Each[0].Decision != a.Each[2].Decision || a.Each[0].Cost != 1 || a.Each[2].Cost != 2 {
			t.Fatalf("%+v, %v", a, err)
		}
		if a.Settle(context.Background(), []int64{0, 1, 1}, 0) != nil || a.Each[2].Decision.Remaining != 3 {
			t.Errorf("%+v", a.Each)
		}
		if look, err := e.Peek(t.Context(), []policy.Ask{ask(2), ask(2)}); err != nil || look.Allowed || look.Each[1].Decision.Allowed {
			t.Errorf("%+v, %v", look, err)
		}
		if limit == "stored-bucket" && len(store.seen) != 3 {
			t.Errorf("the store was called for %+v", store.seen)
		}
		asks := []policy.Ask{{Limit: "plans", Key: []string{"a"}, Cost: 1, Plan: "pro"}, {Limit: "plans", Key: []string{"a"}, Cost: 1}}
		if err := e.Check(asks); err == nil || !strings.Contains(err.Error(), `write plan "pro" in both`) {
			t.Error(err)
		}
		asks[1].Key = []string{"b"}
		if err := e.Check(asks); err != nil {
			t.Error(err)
		}
	}
}
