package policy_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/weirflow/weir"
	"github.com/weirflow/weir/policy"
)

// zoned has a limit of the zone "one" by client, for each algorithm that nginx's limit_req can
// become.
func zoned(name string, l weir.Limit) policy.Limit {
	return policy.Limit{Name: name, Zone: "one", Key: []string{"client.ip"}, Log: "error", Limit: l}
}

// TestZone: limits of one zone with different bursts count together, each with its own burst, as in
// nginx: with 1r/m, a burst of 2 without delay at /a and none at /b, /a /a /a /b gives 200 200 200
// 503.
func TestZone(t *testing.T) {
	for kind, limits := range map[string][2]weir.Limit{
		"leaky": {weir.LeakyBucket{Rate: weir.PerMinute(1), Queue: 2, DelayAfter: 2}, weir.LeakyBucket{Rate: weir.PerMinute(1)}},
		"nginx": {weir.NginxBucket{Rate: weir.PerMinute(1), Queue: 2, DelayAfter: 2}, weir.NginxBucket{Rate: weir.PerMinute(1)}},
		"token": {weir.TokenBucket{Rate: weir.PerMinute(1), Burst: 3}, weir.TokenBucket{Rate: weir.PerMinute(1), Burst: 1}},
	} {
		t.Run(kind, func(t *testing.T) {
			e, c := engine(t, policy.Policy{
				Limits: []policy.Limit{zoned("a", limits[0]), zoned("b", limits[1])},
				Routes: []policy.Route{{Match: "/a", Limits: []string{"a"}}, {Match: "/b", Limits: []string{"b"}}},
			})
			for i, path := range []string{"/a", "/a", "/a"} {
				if v := e.Decide(get(path, "10.0.0.1")); v.Outcome != policy.Allow {
					t.Fatalf("request %d: %v", i, v.Outcome)
				}
			}
			v := e.Decide(get("/b", "10.0.0.1"))
			if v.Outcome != policy.Deny || v.Limit != "b" || v.Decision.By != "b" || v.Decision.Limit != 1 || v.Decision.Remaining != 0 {
				t.Fatalf("/b: %v %+v", v.Outcome, v.Decision)
			}
			if got := lines(&v); len(got) != 1 || !strings.HasPrefix(got[0], "error: limiting requests, excess: 3.000 by zone \"one\"") {
				t.Errorf("%q", got)
			}
			if v := e.Decide(get("/b", "10.0.0.2")); v.Outcome != policy.Allow {
				t.Errorf("another client: %v", v.Outcome)
			}
			c.Set(int64(v.Decision.RetryAfter) - 1)
			if v := e.Decide(get("/b", "10.0.0.1")); v.Outcome != policy.Deny {
				t.Errorf("1 ns before RetryAfter: %v", v.Outcome)
			}
			c.Set(int64(v.Decision.RetryAfter))
			if v := e.Decide(get("/b", "10.0.0.1")); v.Outcome != policy.Allow {
				t.Errorf("after RetryAfter: %v", v.Outcome)
			}
		})
	}
}

// TestZoneDelays: a request waits until enough of the zone has drained, whichever limit charged it,
// except for the part that its own limit does not delay. A client that leaves gets its last charge
// back.
func TestZoneDelays(t *testing.T) {
	e, c := engine(t, policy.Policy{
		Limits: []policy.Limit{
			zoned("quick", weir.LeakyBucket{Rate: weir.PerSecond(10), Queue: 4, DelayAfter: 4}),
			zoned("slow", weir.LeakyBucket{Rate: weir.PerSecond(10), Queue: 3, DelayAfter: 1}),
		},
		Routes: []policy.Route{{Match: "/quick", Limits: []string{"quick"}}, {Match: "/slow", Limits: []string{"slow"}}},
	})
	for range 3 {
		e.Decide(get("/quick", "10.0.0.1"))
	}
	c.Set(int64(50 * time.Millisecond))
	v := e.Decide(get("/slow", "10.0.0.1")) // 2.5 are left: 1.5 too many
	if v.Outcome != policy.Delay || v.Delay != 150*time.Millisecond || v.Limit != "slow" {
		t.Fatalf("%v %v %q", v.Outcome, v.Delay, v.Limit)
	}
	if got := lines(&v); len(got) != 1 || got[0] != `warn: delaying request, excess: 2.500, by zone "one"` {
		t.Errorf("%q", got)
	}
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	if err := v.Wait(gone); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	if v := e.Decide(get("/slow", "10.0.0.1")); v.Delay != 150*time.Millisecond {
		t.Errorf("after one left: %v", v.Delay)
	}
	if v := e.Decide(get("/slow", "10.0.0.1")); v.Outcome != policy.Deny {
		t.Errorf("3.5 are there, and 3 may queue: %v", v.Outcome)
	}
}

// TestZoneDryRun: a shadow limit of a zone charges it, as nginx's dry run does. All limits of a
// route are charged together or not at all.
func TestZoneDryRun(t *testing.T) {
	one := func(name string, queue int64, shadow bool) policy.Limit {
		l := zoned(name, weir.NginxBucket{Rate: weir.PerMinute(1), Queue: queue})
		l.Shadow = shadow
		return l
	}
	other := policy.Limit{Name: "other", Zone: "two", Key: []string{"client.ip"}, Shadow: true, Limit: weir.NginxBucket{Rate: weir.PerMinute(1)}}
	e, _ := engine(t, policy.Policy{
		Limits: []policy.Limit{one("delay", 2, true), one("reject", 0, true), one("off", 0, false), other},
		Routes: []policy.Route{
			{Match: "/delay", Limits: []string{"delay"}},
			{Match: "/reject", Limits: []string{"reject", "other"}},
			{Match: "/off", Limits: []string{"off"}},
			{Match: "/other", Limits: []string{"other"}},
		},
	})
	for i, c := range []struct {
		path string
		want policy.Outcome
		line string
	}{
		{"/delay", policy.Allow, ""},
		{"/delay", policy.Allow, `warn: delaying request, dry run, excess: 1.000, by zone "one"`},
		{"/reject", policy.Allow, `error: limiting requests, dry run, excess: 2.000 by zone "one"`},
		{"/off", policy.Deny, `error: limiting requests, excess: 2.000 by zone "one"`},
	} {
		v := e.Decide(get(c.path, "10.0.0.1"))
		if got := strings.Join(lines(&v), "; "); v.Outcome != c.want || got != c.line {
			t.Errorf("request %d: %v %q, want %v %q", i, v.Outcome, got, c.want, c.line)
		}
	}
	e.Decide(get("/other", "10.0.0.1"))
	if got := counts(e, "other"); got != [3]uint64{1, 0, 0} { // the refusal of /reject charged nothing
		t.Errorf("%v", got)
	}
}

// TestZonePlaces: concurrency limits with different numbers count the same requests, and so do dry
// runs.
func TestZonePlaces(t *testing.T) {
	conns := func(name string, most int64, shadow bool) policy.Limit {
		return policy.Limit{Name: name, Zone: "addr", Key: []string{"client.ip"}, Shadow: shadow, Log: "error", Limit: weir.Concurrency{Limit: most}}
	}
	e, _ := engine(t, policy.Policy{
		Limits: []policy.Limit{conns("one", 1, false), conns("five", 5, false), conns("dry", 2, true)},
		Routes: []policy.Route{
			{Match: "/one", Limits: []string{"one"}}, {Match: "/five", Limits: []string{"five"}}, {Match: "/dry", Limits: []string{"dry"}},
		},
	})
	enter := func(path string, want bool) *policy.Verdict {
		t.Helper()
		v := e.Decide(get(path, "10.0.0.1"))
		if err := v.Enter(t.Context()); (err == nil) != want {
			t.Fatalf("%s: %v", path, err)
		}
		return &v
	}
	first := enter("/five", true)
	if v := enter("/one", false); v.Limit != "one" || v.Decision.By != "one" || v.Decision.Limit != 1 {
		t.Errorf("%q %+v", v.Limit, v.Decision)
	}
	second := enter("/dry", true)
	third := enter("/dry", true) // it would have been refused, and so takes no place
	if got := lines(third); !slices.Equal(got, []string{`error: limiting connections, dry run, by zone "addr"`}) {
		t.Errorf("%q", got)
	}
	for range 3 {
		enter("/five", true)
	}
	enter("/five", false)
	for _, v := range []*policy.Verdict{first, second, third} {
		v.Done(weir.OK)
	}
	if n := e.Counts()[0].Held; n != 3 {
		t.Errorf("%d places are taken, want 3", n)
	}
}

// TestZoneReload: a zone keeps its counts while its limits change, come and go.
func TestZoneReload(t *testing.T) {
	p := policy.Policy{
		Limits: []policy.Limit{zoned("a", weir.LeakyBucket{Rate: weir.PerMinute(1), Queue: 1, DelayAfter: 1})},
		Routes: []policy.Route{{Match: "/", Limits: []string{"a"}}},
	}
	e, _ := engine(t, p)
	e.Decide(get("/", "10.0.0.1"))
	e.Decide(get("/", "10.0.0.1"))
	p = policy.Policy{
		Limits: []policy.Limit{zoned("b", weir.LeakyBucket{Rate: weir.PerMinute(1), Queue: 2, DelayAfter: 2})},
		Routes: []policy.Route{{Match: "/", Limits: []string{"b"}}},
	}
	next, err := e.Next(p)
	if err != nil {
		t.Fatal(err)
	}
	if err := e.Retire(next); err != nil {
		t.Error(err)
	}
	for i, want := range []policy.Outcome{policy.Allow, policy.Deny} {
		if v := next.Decide(get("/", "10.0.0.1")); v.Outcome != want {
			t.Errorf("request %d: %v, want %v", i, v.Outcome, want)
		}
	}
	if err := next.Close(); err != nil {
		t.Error(err)
	}
}

// TestWrongZones: an error names the settings that limits with one state cannot differ in.
func TestWrongZones(t *testing.T) {
	leaky := weir.LeakyBucket{Rate: weir.PerSecond(1)}
	for want, l := range map[string]policy.Limit{
		"different keys":           {Key: []string{"host"}, Limit: leaky},
		"different rates":          {Key: []string{"client.ip"}, Limit: weir.LeakyBucket{Rate: weir.PerSecond(2)}},
		"different algorithms":     {Key: []string{"client.ip"}, Limit: weir.TokenBucket{Rate: weir.PerSecond(1), Burst: 1}},
		"different max_keys":       {Key: []string{"client.ip"}, Limit: leaky, MaxKeys: 5},
		"cannot share its state":   {Key: []string{"client.ip"}, Limit: weir.FixedWindow{Limit: 1, Window: time.Second}},
		"two states of its own":    {Key: []string{"client.ip"}, Limit: leaky, RollOut: "5%"},
		"memory of this process":   {Key: []string{"client.ip"}, Limit: leaky, Store: "s"},
		"would be charged twice":   {Key: []string{"client.ip"}, Limit: weir.LeakyBucket{Rate: weir.PerSecond(1), Queue: 1}},
		"is not a name for a zone": {Key: []string{"client.ip"}, Limit: leaky, Zone: "One"},
	} {
		l.Name = "b"
		if l.Zone == "" {
			l.Zone = "one"
		}
		p := policy.Policy{
			Stores: []policy.Store{{Name: "s", URL: "redis://127.0.0.1:6379"}},
			Limits: []policy.Limit{zoned("a", leaky), l},
			Routes: []policy.Route{{Match: "/", Limits: []string{"a", "b"}}},
		}
		var all []string
		for _, problem := range p.Check() {
			all = append(all, problem.String())
		}
		if text := strings.Join(all, "\n"); !strings.Contains(text, want) {
			t.Errorf("%s: got %s", want, text)
		}
	}
}

// TestZoneBound plays random requests to three limits of a zone, and compares the admissions with
// docs/guarantees.md: each limit's own stay within its burst, and all of them within the largest.
func TestZoneBound(t *testing.T) {
	bursts := []int64{1, 3, 6}
	for seed := range uint64(20) {
		r := rand.New(rand.NewPCG(seed, 1))
		var p policy.Policy
		for i, b := range bursts {
			name := string(rune('a' + i))
			p.Limits = append(p.Limits, zoned(name, weir.TokenBucket{Rate: weir.PerSecond(10), Burst: b}))
			p.Routes = append(p.Routes, policy.Route{Match: "/" + name, Limits: []string{name}})
		}
		p.Limits[1].Shadow = seed%2 == 1
		e, c := engine(t, p)
		type admitted struct{ limit, at int64 }
		var all []admitted
		for now := int64(0); now < int64(3*time.Second); now += r.Int64N(int64(60 * time.Millisecond)) {
			c.Set(now)
			i := r.IntN(len(bursts))
			before := counts(e, string(rune('a'+i)))[0]
			e.Decide(get("/"+string(rune('a'+i)), "10.0.0.1"))
			if counts(e, string(rune('a'+i)))[0] > before {
				all = append(all, admitted{int64(i), now})
			}
		}
		for i := range all {
			own := map[int64]int64{}
			for j := i; j < len(all); j++ {
				own[all[j].limit]++
				drained := (all[j].at - all[i].at) / int64(100*time.Millisecond)
				if n := int64(j - i + 1); n > bursts[len(bursts)-1]+drained {
					t.Fatalf("seed %d: %d in %v", seed, n, time.Duration(all[j].at-all[i].at))
				}
				for l, n := range own {
					if n > bursts[l]+drained {
						t.Fatalf("seed %d: limit %d: %d in %v", seed, l, n, time.Duration(all[j].at-all[i].at))
					}
				}
			}
		}
		if len(all) < 30 {
			t.Fatalf("seed %d: %d were admitted", seed, len(all))
		}
	}
}
