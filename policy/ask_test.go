package policy_test

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/weirflow/weir"
	"github.com/weirflow/weir/internal/raced"
	"github.com/weirflow/weir/internal/seeds"
	"github.com/weirflow/weir/policy"
	"github.com/weirflow/weir/weirtest"
)

// named has limits of each sort, and a route for each and for some together.
func named() policy.Policy {
	p := policy.Policy{
		Plans: policy.Plans{From: []string{"header.x-plan"}, Unknown: policy.UnknownDefault, Default: "free"},
		Limits: []policy.Limit{
			{Name: "bucket", Key: []string{"client.ip", "header.user"}, Limit: bucket("6/m", 3)},
			{Name: "window", Key: []string{"client.ip"}, Limit: weir.FixedWindow{Limit: 5, Window: time.Minute}},
			{Name: "stored", Key: []string{"header.user"}, Limit: bucket("6/m", 4), Store: "shared"},
			{Name: "stored-too", Limit: bucket("6/m", 9), Store: "shared"},
			{Name: "nginx", Key: []string{"client.ip"}, Limit: weir.NginxBucket{Rate: weir.PerMinute(6), Queue: 3, DelayAfter: 1}},
			{Name: "shadow", Key: []string{"client.ip"}, Limit: bucket("6/m", 1), Shadow: true},
			{Name: "part", Key: []string{"client.ip"}, Limit: bucket("6/m", 1), RollOut: "50%"},
			{Name: "small", Key: []string{"client.ip"}, Limit: bucket("6/m", 2), Zone: "z"},
			{Name: "large", Key: []string{"client.ip"}, Limit: bucket("6/m", 5), Zone: "z"},
			{Name: "planned", Key: []string{"header.user"}, Limit: bucket("6/m", 2), Plans: []policy.PlanLimit{{Plan: "pro", Limit: bucket("60/m", 6)}, {Plan: "all", Unlimited: true}}},
			{Name: "free-net", Key: []string{"client.ip"}, Limit: bucket("6/m", 1), Exempt: []string{"10.0.0.2"}},
		},
	}
	for i, l := range p.Limits {
		p.Routes = append(p.Routes, policy.Route{Match: fmt.Sprintf("/%d", i), Limits: []string{l.Name}})
	}
	p.Routes = append(p.Routes, policy.Route{Match: "/all", Limits: []string{"bucket", "window", "stored", "stored-too", "shadow", "planned"}})
	return p
}

// TestAskDecidesAsRoutesDo: the same work, asked for by name and sent to routes, gets the same
// decisions and the same counts, in virtual time, with bans, grants and plans.
func TestAskDecidesAsRoutesDo(t *testing.T) {
	raced.Skip(t)
	random := seeds.Of(t.Name())
	p := named()
	clock := new(weirtest.Clock)
	routed := sharing(t, p, clock, map[string]weir.Store{"shared": weirtest.NewStore(clock.Now)})
	asked := sharing(t, p, clock, map[string]weir.Store{"shared": weirtest.NewStore(clock.Now)})
	for _, e := range []*policy.Engine{routed, asked} {
		except(t, e, policy.Override{Limit: "bucket", Key: []string{"10.0.0.1", "b"}, Ban: true, For: 10 * time.Minute})
		except(t, e, policy.Override{Limit: "window", Key: []string{"10.0.0.3"}, For: 20 * time.Minute})
		except(t, e, policy.Override{Limit: "window", Key: []string{"2001:db8::/32"}, Ban: true, For: 30 * time.Minute})
		except(t, e, policy.Override{Limit: "free-net", Key: []string{"10.0.0.4"}, Set: map[string]string{"burst": "4"}, For: 15 * time.Minute})
	}
	addresses := []string{"10.0.0.1", "10.0.0.2", "10.0.0.3", "10.0.0.4", "2001:db8::7"}
	users := []string{"a", "b", "c"}
	plans := []string{"", "pro", "all", "free"}
	now := int64(0)
	for step := range 12000 {
		now += random.Int64N(int64(200 * time.Millisecond))
		clock.Set(now)
		r := p.Routes[random.IntN(len(p.Routes))]
		address, user, plan := addresses[random.IntN(len(addresses))], users[random.IntN(len(users))], plans[random.IntN(len(plans))]
		req := policy.Request{Method: "GET", Path: r.Match, Client: policy.ClientKeyOf(address), Trusted: true,
			Header: map[string][]string{"User": {user}}}
		if plan != "" {
			req.Header["X-Plan"] = []string{plan}
		}
		var asks []policy.Ask
		for _, name := range r.Limits {
			asks = append(asks, policy.Ask{Limit: name, Key: keyOf(p, name, address, user), OwnCost: true, Plan: plan})
		}
		v := routed.Decide(req)
		a, err := asked.Take(t.Context(), asks)
		if err != nil {
			t.Fatal(err)
		}
		if v.Decision.Limit == 0 && a.Allowed { // routes say nothing of shadows and exemptions
			a.Decision = v.Decision
		}
		if (v.Outcome != policy.Deny) != a.Allowed || v.Decision != a.Decision || v.Delay != a.Delay || !a.Allowed && v.Limit != a.Limit {
			t.Fatalf("step %d, %s, %s %s %q: the route says %v %q %+v, the ask %+v", step, r.Match, address, user, plan, v.Outcome, v.Limit, v.Decision, a)
		}
	}
	for i, c := range routed.Counts() {
		got := asked.Counts()[i]
		if c.Keys = got.Keys; !reflect.DeepEqual(c, got) { // the tables count calls, too
			t.Errorf("the counts differ: routes %+v, asks %+v", c, got)
		}
		if c.Allowed == 0 || c.Limited == 0 {
			t.Errorf("%q was not tested: %+v", c.Limit, c)
		}
	}
}

// keyOf returns the key of a limit.
func keyOf(p policy.Policy, limit, address, user string) (key []string) {
	for _, l := range p.Limits {
		if l.Name != limit {
			continue
		}
		for _, part := range l.Key {
			if part == "client.ip" {
				key = append(key, address)
			} else {
				key = append(key, user)
			}
		}
	}
	return key
}

// TestAsksAreAllOrNothing: several asks, also for one limit, are all charged or none, in memory and in
// stores; the limit that refused is named.
func TestAsksAreAllOrNothing(t *testing.T) {
	clock := new(weirtest.Clock)
	e := sharing(t, named(), clock, map[string]weir.Store{"shared": weirtest.NewStore(clock.Now)})
	left := func(limit string, key ...string) int64 {
		a, err := e.Peek(t.Context(), []policy.Ask{{Limit: limit, Key: key}})
		if err != nil {
			t.Fatal(err)
		}
		return a.Each[0].Decision.Remaining
	}
	take := func(asks ...policy.Ask) *policy.Answer {
		a, err := e.Take(t.Context(), asks)
		if err != nil {
			t.Fatal(err)
		}
		return a
	}
	a := take(policy.Ask{Limit: "window", Key: []string{"10.0.0.1"}, Cost: 3}, policy.Ask{Limit: "stored", Key: []string{"a"}, Cost: 5})
	if a.Allowed || a.Limit != "stored" || a.Decision.RetryAfter != weir.Never {
		t.Errorf("%+v", a)
	}
	a = take(policy.Ask{Limit: "window", Key: []string{"10.0.0.1"}, Cost: 3}, policy.Ask{Limit: "window", Key: []string{"10.0.0.1"}, Cost: 3})
	if a.Allowed || a.Limit != "window" {
		t.Errorf("one key twice: %+v", a)
	}
	a = take(policy.Ask{Limit: "stored", Key: []string{"a"}, Cost: 4}, policy.Ask{Limit: "stored", Key: []string{"b"}, Cost: 5}, policy.Ask{Limit: "stored-too", Cost: 1})
	if a.Allowed || a.Each[1].Decision.Allowed {
		t.Errorf("two keys of a limit in a store: %+v", a)
	}
	a = take(policy.Ask{Limit: "small", Key: []string{"10.0.0.1"}, Cost: 2}, policy.Ask{Limit: "large", Key: []string{"10.0.0.1"}, Cost: 4})
	if a.Allowed || a.Limit != "large" {
		t.Errorf("a zone: %+v", a)
	}
	if w, s, too, z := left("window", "10.0.0.1"), left("stored", "a"), left("stored-too"), left("large", "10.0.0.1"); w != 5 || s != 4 || too != 9 || z != 5 {
		t.Errorf("refused work was charged: %d, %d, %d, %d are left", w, s, too, z)
	}
	if a = take(policy.Ask{Limit: "window", Key: []string{"10.0.0.1"}, Cost: 2}, policy.Ask{Limit: "window", Key: []string{"10.0.0.1"}, Cost: 3}); !a.Allowed || left("window", "10.0.0.1") != 0 {
		t.Errorf("%+v", a)
	}
}

// TestReservations: what is reserved is settled or given back once, in memory and in stores, alone and
// together; a single ask may be charged ahead of its time.
func TestReservations(t *testing.T) {
	for _, limits := range [][]string{{"bucket"}, {"stored"}, {"bucket", "stored", "window"}, {"bucket", "bucket"}} {
		clock := new(weirtest.Clock)
		e := sharing(t, named(), clock, map[string]weir.Store{"shared": weirtest.NewStore(clock.Now)})
		var asks []policy.Ask
		var zero, one []int64
		for _, name := range limits {
			asks = append(asks, policy.Ask{Limit: name, Key: keyOf(named(), name, "10.0.0.1", "a"), Cost: 1})
			zero, one = append(zero, 0), append(one, 1)
		}
		used := func() (n int64) {
			a, err := e.Peek(t.Context(), asks[:1])
			if err != nil {
				t.Fatal(err)
			}
			return a.Each[0].Decision.Limit - a.Each[0].Decision.Remaining
		}
		for _, within := range []time.Duration{0, time.Minute} {
			a, err := e.Reserve(t.Context(), asks, within)
			if err != nil || !a.Allowed || a.Delay != 0 || used() == 0 {
				t.Fatalf("%v: %+v, %v", limits, a, err)
			}
			settled := a.Settle(t.Context(), zero, 0)
			twice := []error{a.Settle(t.Context(), one, 0), a.Settle(t.Context(), one, time.Minute), a.Cancel(t.Context())}
			if settled != nil || used() != 0 || slices.ContainsFunc(twice, func(err error) bool { return !errors.Is(err, policy.ErrEnded) }) {
				t.Errorf("%v: settled twice, or not given back: %d used", limits, used())
			}
		}
		a, _ := e.Reserve(t.Context(), asks, 0)
		if before := used(); a.Keep(t.Context()) != nil || used() != before {
			t.Errorf("%v: what was kept changed", limits)
		}
	}
	clock := new(weirtest.Clock)
	e := sharing(t, named(), clock, map[string]weir.Store{"shared": weirtest.NewStore(clock.Now)})
	for _, ask := range []policy.Ask{{Limit: "bucket", Key: []string{"10.0.0.1", "a"}, Cost: 3}, {Limit: "stored", Key: []string{"a"}, Cost: 4}} {
		if a, err := e.Take(t.Context(), []policy.Ask{ask}); err != nil || !a.Allowed {
			t.Fatalf("%+v, %v", a, err)
		}
		ask.Cost = 1
		a, err := e.Reserve(t.Context(), []policy.Ask{ask}, time.Second)
		if err != nil || a.Allowed {
			t.Errorf("a delay beyond within: %+v, %v", a, err)
		}
		a, err = e.Reserve(t.Context(), []policy.Ask{ask}, 10*time.Second)
		if err != nil || !a.Allowed || a.Delay != 10*time.Second {
			t.Errorf("%+v, %v", a, err)
		}
		if err := a.Cancel(t.Context()); err == nil {
			if again, _ := e.Reserve(t.Context(), []policy.Ask{ask}, -1); again.Delay != 10*time.Second {
				t.Errorf("the cancelled place was not given back: %+v", again)
			}
		}
	}
}

// TestWrongAsks: what is wrong is named with its field and a fix, and nothing is charged.
func TestWrongAsks(t *testing.T) {
	p := named()
	p.Limits = append(p.Limits, policy.Limit{Name: "places", Limit: weir.Concurrency{Limit: 1}}, policy.Limit{Name: "const", Key: []string{"const.api", "host"}, Limit: bucket("6/m", 3)})
	e := sharing(t, p, new(weirtest.Clock), map[string]weir.Store{"shared": weirtest.NewStore(func() int64 { return 0 })})
	for want, asks := range map[string][]policy.Ask{
		"no limit is named": nil,
		`0 limit: there is no limit "windo": did you mean "window"?`: {{Limit: "windo"}},
		"0 limit: \"places\" is a concurrency":                       {{Limit: "places", Cost: 1}},
		"1 key: it has 1 part, and the key of \"bucket\" has 2 parts: write one text for each of client.ip, header.user, in this order": {{Limit: "stored-too"}, {Limit: "bucket", Key: []string{"10.0.0.1"}}},
		"0 key: part 1: it is not an IP address":                       {{Limit: "window", Key: []string{"10.0.0.0/8"}}},
		"0 key: part 1 is always \"api\"":                              {{Limit: "const", Key: []string{"x", "y"}}},
		"0 cost: -1 is negative":                                       {{Limit: "stored-too", Cost: -1}},
		"0 key: it is longer than":                                     {{Limit: "stored", Key: []string{strings.Repeat("x", 5000)}}},
		"1 key: it has 1 part, and the key of \"stored-too":            {{Limit: "stored-too"}, {Limit: "stored-too", Key: []string{""}}},
		"limits are named in one call":                                 make([]policy.Ask, policy.MaxAsks+1),
		"0 plan: there is no plan \"por\": did you mean \"pro\"?":      {{Limit: "stored-too", Plan: "por"}},
		"0 plan: there is no plan \"business\": known: all, free, pro": {{Limit: "planned", Key: []string{"a"}, Plan: "business"}},
	} {
		for _, verb := range []func() (*policy.Answer, error){
			func() (*policy.Answer, error) { return e.Take(t.Context(), asks) },
			func() (*policy.Answer, error) { return e.Peek(t.Context(), asks) },
			func() (*policy.Answer, error) { return e.Reserve(t.Context(), asks, -1) },
			func() (*policy.Answer, error) { return nil, e.Check(asks) },
		} {
			a, err := verb()
			var wrong *policy.AskError
			if !errors.As(err, &wrong) || a != nil {
				t.Fatalf("%s: %+v, %v", want, a, err)
			}
			if text := fmt.Sprintf("%d %s", wrong.Index, strings.TrimPrefix(err.Error(), "weir: ")); !strings.Contains(text, want) || wrong.Fix == "" {
				t.Errorf("%q lacks %q", text, want)
			}
		}
	}
	if _, err := e.Take(t.Context(), []policy.Ask{{Limit: "stored-too", Cost: -1}}); !errors.Is(err, weir.ErrCost) {
		t.Error(err)
	}
	// spellings of one key count in one state
	for _, key := range [][]string{{"api", "Shop.Example."}, {"api", "shop.example:443"}, {"api", "shop.example"}} {
		if a, err := e.Take(t.Context(), []policy.Ask{{Limit: "const", Key: key, Cost: 1}}); err != nil || !a.Allowed {
			t.Error(a, err)
		}
	}
	if a, _ := e.Take(t.Context(), []policy.Ask{{Limit: "const", Key: []string{"api", "SHOP.example"}, Cost: 1}}); a.Allowed {
		t.Errorf("%+v", a)
	}
}

// TestAskWhileThePolicyChanges: goroutines take, reserve and cancel beside updates of the policy; what
// is admitted is exactly what the limit has.
func TestAskWhileThePolicyChanges(t *testing.T) {
	clock := new(weirtest.Clock)
	p := policy.Policy{Limits: []policy.Limit{{Name: "a", Limit: bucket("1/h", 600)}, {Name: "b", Limit: bucket("1/h", 1000)}}, Routes: []policy.Route{{Match: "/", Limits: []string{"a"}}}}
	first := newEngine(t, p, policy.Options{Clock: clock.Now, Timers: clock.AfterFunc})
	var now atomic.Pointer[policy.Engine]
	now.Store(first)
	var admitted atomic.Int64
	var wg sync.WaitGroup
	for n := range 4 {
		wg.Go(func() {
			for i := range 400 {
				e := now.Load()
				asks := []policy.Ask{{Limit: "a", Cost: 1}, {Limit: "b", Cost: 1}}
				var a *policy.Answer
				var err error
				switch (i + n) % 3 {
				case 0:
					if e.Decide(policy.Request{Method: "GET", Path: "/"}).Outcome == policy.Allow {
						admitted.Add(1)
					}
					continue
				case 1:
					a, err = e.Take(context.Background(), asks)
				default:
					if a, err = e.Reserve(context.Background(), asks, 0); err == nil && a.Allowed && i%2 == 0 {
						_ = a.Cancel(context.Background())
						continue
					}
					if err == nil {
						_ = a.Keep(context.Background())
					}
				}
				if err != nil {
					t.Error(err)
					return
				}
				if a.Allowed {
					admitted.Add(1)
				}
			}
		})
	}
	for i := range 100 {
		next := p
		next.Limits = append([]policy.Limit(nil), p.Limits...)
		next.Limits[1].Limit = bucket("1/h", 1000+int64(i%2))
		e, err := now.Load().Next(next)
		if err != nil {
			t.Fatal(err)
		}
		old := now.Swap(e)
		if err := old.Retire(e); err != nil {
			t.Fatal(err)
		}
	}
	wg.Wait()
	t.Cleanup(func() { now.Load().Close() })
	a, err := now.Load().Peek(t.Context(), []policy.Ask{{Limit: "a"}})
	if err != nil {
		t.Fatal(err)
	}
	if left := a.Each[0].Decision.Remaining; left+admitted.Load() != 600 {
		t.Errorf("%d were admitted, and %d of 600 are left", admitted.Load(), left)
	}
}

// TestAskWithoutTheStore: on_failure decides, and the answer says so; a context that ends is an error.
func TestAskWithoutTheStore(t *testing.T) {
	for _, onFailure := range []string{"allow", "deny"} {
		clock := new(weirtest.Clock)
		store := newFaulty(clock)
		p := policy.Policy{Limits: []policy.Limit{{Name: "s", Limit: bucket("1/h", 5), Store: "shared", OnFailure: onFailure}}}
		e := sharing(t, p, clock, map[string]weir.Store{"shared": store})
		store.fail(errors.New("down"))
		asks := []policy.Ask{{Limit: "s", Cost: 1}}
		for name, verb := range map[string]func() (*policy.Answer, error){
			"take":    func() (*policy.Answer, error) { return e.Take(t.Context(), asks) },
			"peek":    func() (*policy.Answer, error) { return e.Peek(t.Context(), asks) },
			"reserve": func() (*policy.Answer, error) { return e.Reserve(t.Context(), asks, 0) },
			"ahead":   func() (*policy.Answer, error) { return e.Reserve(t.Context(), asks, -1) },
		} {
			a, err := verb()
			want := map[string]weir.Source{"allow": weir.SourceAllow, "deny": weir.SourceDeny}[onFailure]
			if err != nil || a.Allowed != (onFailure == "allow") || a.Err == nil || a.Each[0].Decision.Source != want {
				t.Errorf("%s, %s: %+v, %v", onFailure, name, a, err)
				continue
			}
			_ = a.Cancel(t.Context())
		}
	}
}
