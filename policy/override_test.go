package policy_test

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/weirflow/weir"
	"github.com/weirflow/weir/policy"
	"github.com/weirflow/weir/weirtest"
)

const minute = int64(time.Minute)

// guarded has a limit by address and user, and one by address. Each admits two requests an hour.
func guarded(change ...func(*policy.Policy)) policy.Policy {
	two := weir.TokenBucket{Rate: weir.PerHour(2), Burst: 2}
	p := policy.Policy{
		Limits: []policy.Limit{
			{Name: "per-ip", Key: []string{"client.ip"}, Limit: two},
			{Name: "per-user", Key: []string{"client.ip", "header.user-id"}, Limit: two},
		},
		Routes: []policy.Route{{Match: "/one", Limits: []string{"per-ip"}}, {Match: "/both", Limits: []string{"per-ip", "per-user"}}},
	}
	for _, c := range change {
		c(&p)
	}
	return p
}

func from(path, addr, user string) policy.Request {
	return policy.Request{Method: "GET", Path: path, Client: policy.ClientKeyOf(addr), Header: map[string][]string{"User-Id": {user}}}
}

func except(t *testing.T, e *policy.Engine, ex policy.Override) {
	t.Helper()
	if err := e.Override(ex); err != nil {
		t.Fatal(err)
	}
}

// TestBan: all requests are refused until the ban ends, RetryAfter gives the time until then, and
// no limit of the route is charged.
func TestBan(t *testing.T) {
	clock := new(weirtest.Clock)
	e := newEngine(t, guarded(), policy.Options{Clock: clock.Now})
	except(t, e, policy.Override{Limit: "per-user", Key: []string{"10.0.0.1", "7"}, Ban: true, For: time.Hour})
	clock.Set(10 * minute)
	for range 5 {
		v := e.Decide(from("/both", "10.0.0.1", "7"))
		if v.Outcome != policy.Deny || v.Limit != "per-user" || v.Decision.By != "per-user/ban" || v.Decision.RetryAfter != 50*time.Minute {
			t.Fatalf("%+v", v)
		}
		if v.Cancel(); len(v.Evaluated()) != 0 {
			t.Errorf("it tells of limits that were not asked: %v", v.Evaluated())
		}
	}
	for i, want := range []policy.Outcome{policy.Allow, policy.Allow, policy.Deny} { // per-ip has not been charged
		if v := e.Decide(from("/one", "10.0.0.1", "")); v.Outcome != want {
			t.Errorf("%d: %v", i, v.Outcome)
		}
	}
	if v := e.Decide(from("/both", "10.0.0.2", "7")); v.Outcome != policy.Allow {
		t.Errorf("another address: %+v", v)
	}
	clock.Set(60 * minute)
	if v := e.Decide(from("/both", "10.0.0.1", "7")); v.Outcome != policy.Allow {
		t.Errorf("after its end: %+v", v)
	}
	if all := e.Overrides(); len(all) != 0 {
		t.Errorf("%+v", all)
	}
	for _, c := range e.Counts() {
		if want := map[string]uint64{"per-user": 5}[c.Limit]; c.Banned != want {
			t.Errorf("%+v", c)
		}
	}
}

// TestGrant: no request is refused or charged by the limit; other limits still count. Lifting the
// grant ends it at once.
func TestGrant(t *testing.T) {
	clock := new(weirtest.Clock)
	e := newEngine(t, guarded(), policy.Options{Clock: clock.Now})
	key := []string{"10.0.0.1"}
	except(t, e, policy.Override{Limit: "per-ip", Key: key, For: time.Hour})
	for range 5 {
		if v := e.Decide(from("/one", "10.0.0.1", "")); v.Outcome != policy.Allow {
			t.Fatalf("%+v", v)
		}
	}
	for i, want := range []policy.Outcome{policy.Allow, policy.Allow, policy.Deny} {
		if v := e.Decide(from("/both", "10.0.0.1", "7")); v.Outcome != want || want == policy.Deny && v.Limit != "per-user" {
			t.Errorf("%d: %+v", i, v)
		}
	}
	if lifted, err := e.Lift("per-ip", key); !lifted || err != nil {
		t.Error(lifted, err)
	}
	for i, want := range []policy.Outcome{policy.Allow, policy.Allow, policy.Deny} { // it has used nothing
		if v := e.Decide(from("/one", "10.0.0.1", "")); v.Outcome != want {
			t.Errorf("%d: %v", i, v.Outcome)
		}
	}
	if lifted, err := e.Lift("per-ip", key); lifted || err != nil {
		t.Error(lifted, err)
	}
}

// TestGrantOfParameters: a key has other parameters for a while, and header fields show them. Its
// counts are kept when the grant starts and ends.
func TestGrantOfParameters(t *testing.T) {
	clock := new(weirtest.Clock)
	clock.Set(minute)
	e := newEngine(t, guarded(), policy.Options{Clock: clock.Now})
	e.Decide(from("/one", "10.0.0.1", ""))
	except(t, e, policy.Override{Limit: "per-ip", Key: []string{"10.0.0.1"}, Set: map[string]string{"rate": "10/h", "burst": "10"}, For: time.Hour})
	for i := range 9 {
		v := e.Decide(from("/one", "10.0.0.1", ""))
		if a := v.Evaluated(); v.Outcome != policy.Allow || len(a) != 1 || a[0].Limit != 10 || a[0].Window != time.Hour {
			t.Fatalf("%d: %+v, %+v", i, v, a)
		}
	}
	if v := e.Decide(from("/one", "10.0.0.1", "")); v.Outcome != policy.Deny || v.Decision.RetryAfter != 6*time.Minute {
		t.Errorf("%+v", v)
	}
	if v := e.Decide(from("/one", "10.0.0.2", "")); v.Evaluated()[0].Limit != 2 {
		t.Errorf("another key: %+v", v.Evaluated())
	}
	clock.Set(61 * minute)
	if v := e.Decide(from("/one", "10.0.0.1", "")); v.Outcome != policy.Allow || v.Evaluated()[0].Limit != 2 || v.Evaluated()[0].Window != time.Hour {
		t.Errorf("after its end: %+v, %+v", v, v.Evaluated())
	}
}

// TestRanges: a ban of a prefix of addresses; a longer prefix or an exact key takes precedence.
// IPv6 clients and their bans count by /64.
func TestRanges(t *testing.T) {
	clock := new(weirtest.Clock)
	e := newEngine(t, guarded(), policy.Options{Clock: clock.Now})
	ban := func(limit string, ban bool, key ...string) {
		t.Helper()
		except(t, e, policy.Override{Limit: limit, Key: key, Ban: ban, For: time.Hour})
	}
	ban("per-ip", true, "10.0.0.0/8")
	ban("per-ip", false, "10.1.0.0/16")
	ban("per-ip", true, "10.1.0.1")
	ban("per-ip", true, "2001:db8::1")
	ban("per-ip", true, "2001:db8:f::/48")
	ban("per-user", true, "192.0.2.99/24", "7")
	for _, c := range []struct {
		path, addr, user string
		want             policy.Outcome
	}{
		{"/one", "10.2.3.4", "", policy.Deny},
		{"/one", "::ffff:10.2.3.4", "", policy.Deny},
		{"/one", "10.1.2.3", "", policy.Allow},
		{"/one", "10.1.0.1", "", policy.Deny},
		{"/one", "11.0.0.1", "", policy.Allow},
		{"/one", "2001:db8::ffff", "", policy.Deny},
		{"/one", "2001:db8:0:1::1", "", policy.Allow},
		{"/one", "2001:db8:f:1::1", "", policy.Deny},
		{"/one", "somebody.example", "", policy.Allow},
		{"/both", "192.0.2.1", "7", policy.Deny},
		{"/both", "192.0.2.1", "8", policy.Allow},
	} {
		if v := e.Decide(from(c.path, c.addr, c.user)); v.Outcome != c.want {
			t.Errorf("%+v: %v by %s", c, v.Outcome, v.Decision.By)
		}
	}
	if all := e.Overrides(); len(all) != 6 || all[5].Key[0] != "192.0.2.0/24" {
		t.Errorf("%+v", all)
	}
	if lifted, err := e.Lift("per-ip", []string{"10.0.0.0/8"}); !lifted || err != nil {
		t.Error(lifted, err)
	}
	if v := e.Decide(from("/one", "10.2.3.4", "")); v.Outcome != policy.Allow {
		t.Error("the ban of the prefix was lifted")
	}
}

// TestBanOfPlaces: a request that is banned from a concurrency limit is charged nothing by the
// other limits.
func TestBanOfPlaces(t *testing.T) {
	p := guarded(func(p *policy.Policy) {
		p.Limits = append(p.Limits, policy.Limit{Name: "at-once", Key: []string{"client.ip"}, Limit: weir.Concurrency{Limit: 1}})
		p.Routes[0].Limits = []string{"per-ip", "at-once"}
	})
	e := newEngine(t, p, policy.Options{})
	ex := policy.Override{Limit: "at-once", Key: []string{"10.0.0.1"}, Ban: true, For: time.Hour}
	except(t, e, ex)
	for range 3 {
		if v := e.Decide(from("/one", "10.0.0.1", "")); v.Outcome != policy.Deny || v.Decision.By != "at-once/ban" {
			t.Fatalf("%+v", v)
		}
	}
	ex.Ban = false
	except(t, e, ex)
	for range 2 {
		v := e.Decide(from("/one", "10.0.0.1", ""))
		if err := v.Enter(t.Context()); err != nil {
			t.Fatal(err)
		}
		defer v.Done(weir.OK)
	}
	ex.Set = map[string]string{"limit": "5"}
	if err := e.Override(ex); err == nil {
		t.Error("numbers for a key of a limit of concurrency")
	}
}

// TestOverridesInStores: bans and grants apply to limits in stores; other parameters do not.
func TestOverridesInStores(t *testing.T) {
	clock := new(weirtest.Clock)
	store := weirtest.NewStore(clock.Now)
	p := guarded(func(p *policy.Policy) {
		p.Stores = []policy.Store{{Name: "s", URL: "redis://x"}}
		p.Limits[0].Store = "s"
	})
	e := newEngine(t, p, policy.Options{Clock: clock.Now, Stores: map[string]weir.Store{"s": store}})
	ex := policy.Override{Limit: "per-ip", Key: []string{"10.0.0.1"}, Ban: true, For: time.Hour}
	except(t, e, ex)
	if v := e.Decide(from("/both", "10.0.0.1", "7")); v.Outcome != policy.Deny || v.Decision.By != "per-ip/ban" {
		t.Errorf("%+v", v)
	}
	ex.Ban = false
	except(t, e, ex)
	for range 5 {
		if v := e.Decide(from("/one", "10.0.0.1", "")); v.Outcome != policy.Allow {
			t.Errorf("%+v", v)
		}
	}
	ex.Set = map[string]string{"burst": "5"}
	if err := e.Override(ex); err == nil || !strings.Contains(err.Error(), "store") {
		t.Error(err)
	}
}

// TestOverridesSurviveNext: overrides are kept while the limit has the same name and key, also in a
// new table. Parameters that do not fit any more are removed.
func TestOverridesSurviveNext(t *testing.T) {
	clock := new(weirtest.Clock)
	e := newEngine(t, guarded(), policy.Options{Clock: clock.Now})
	except(t, e, policy.Override{Limit: "per-ip", Key: []string{"10.0.0.1"}, Ban: true, For: time.Hour})
	except(t, e, policy.Override{Limit: "per-ip", Key: []string{"10.0.0.2"}, Set: map[string]string{"burst": "5"}, For: time.Hour})
	next := func(change func(*policy.Policy)) {
		t.Helper()
		n, err := e.Next(guarded(change))
		if err != nil {
			t.Fatal(err)
		}
		if err := e.Retire(n); err != nil {
			t.Fatal(err)
		}
		e = n
	}
	next(func(p *policy.Policy) { p.Limits[0].MaxKeys = 100 })
	for i := range 6 {
		if v := e.Decide(from("/one", "10.0.0.2", "")); (v.Outcome == policy.Allow) != (i < 5) {
			t.Errorf("%d: %+v", i, v)
		}
	}
	if v := e.Decide(from("/one", "10.0.0.1", "")); v.Outcome != policy.Deny {
		t.Error("the ban is gone")
	}
	next(func(p *policy.Policy) { p.Limits[0].Limit = weir.FixedWindow{Limit: 1, Window: time.Hour} })
	if all := e.Overrides(); len(all) != 1 || !all[0].Ban {
		t.Errorf("%+v", all)
	}
	next(func(p *policy.Policy) { p.Limits[0].Key = []string{"header.user-id"} })
	if all := e.Overrides(); len(all) != 0 {
		t.Errorf("with another key: %+v", all)
	}
	if _, err := e.Next(policy.Policy{Limits: []policy.Limit{{Name: "UPPER"}}}); err == nil {
		t.Error("a wrong policy")
	}
	except(t, e, policy.Override{Limit: "per-ip", Key: []string{"7"}, Ban: true, For: time.Hour}) // the engine is unchanged
	if err := e.Close(); err != nil {
		t.Error(err)
	}
}

func TestOverridesAreChecked(t *testing.T) {
	e := newEngine(t, guarded(func(p *policy.Policy) {
		p.Limits = append(p.Limits, policy.Limit{Name: "quiet", Shadow: true, Limit: p.Limits[0].Limit}, policy.Limit{Name: "shop", Key: []string{"const.shop"}, Limit: p.Limits[0].Limit})
	}), policy.Options{})
	good := policy.Override{Limit: "per-ip", Key: []string{"10.0.0.1"}, Ban: true, For: time.Hour}
	for want, change := range map[string]func(*policy.Override){
		`did you mean "per-ip"`:      func(x *policy.Override) { x.Limit = "per-pi" },
		"2 parts (client.ip, header": func(x *policy.Override) { x.Limit = "per-user" },
		"is a shadow":                func(x *policy.Override) { x.Limit, x.Key = "quiet", nil },
		"up to ten years":            func(x *policy.Override) { x.For = 0 },
		"a ban has no parameters":    func(x *policy.Override) { x.Set = map[string]string{"burst": "5"} },
		"no parameter is set":        func(x *policy.Override) { x.Ban, x.Set = false, map[string]string{} },
		`did you mean "burst"`:       func(x *policy.Override) { x.Ban, x.Set = false, map[string]string{"burts": "5"} },
		"neither an address nor":     func(x *policy.Override) { x.Key = []string{"10.0.0.0/33"} },
		`"bob" is no IP address, and part 1 of its key is client.ip`: func(x *policy.Override) { x.Key = []string{"bob"} },
		`"10.0.0.300" is no IP`:   func(x *policy.Override) { x.Key = []string{"10.0.0.300"} },
		`"127.0.0.1:80" is no IP`: func(x *policy.Override) { x.Key = []string{"127.0.0.1:80"} },
		`"127.0.0.1 " is no IP`:   func(x *policy.Override) { x.Key = []string{"127.0.0.1 "} },
		`"localhost" is no IP`:    func(x *policy.Override) { x.Key = []string{"localhost"} },
		`"" is no IP`:             func(x *policy.Override) { x.Key = []string{""} },
		"counts by /64":           func(x *policy.Override) { x.Key = []string{"2001:db8::/65"} },
		"neither of IPv4":         func(x *policy.Override) { x.Key = []string{"::ffff:0.0.0.0/80"} },
		"a prefix stands for many": func(x *policy.Override) {
			x.Ban, x.Set, x.Key = false, map[string]string{"burst": "5"}, []string{"10.0.0.0/8"}
		},
		"always \"shop\"": func(x *policy.Override) { x.Limit, x.Key = "shop", []string{"other"} },
		"longer than":     func(x *policy.Override) { x.Key = []string{strings.Repeat("x", 5000)} },
	} {
		ex := good
		change(&ex)
		if err := e.Override(ex); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", want, err)
		}
		if strings.Contains(fmt.Sprint(ex), "10.0.0.1") {
			t.Error("the words about an override hold its key")
		}
	}
	if all := e.Overrides(); len(all) != 0 {
		t.Errorf("%+v", all)
	}
}

// TestOverridesHaveABound: there is always room to replace the override of a key.
func TestOverridesHaveABound(t *testing.T) {
	clock := new(weirtest.Clock)
	e := newEngine(t, guarded(), policy.Options{Clock: clock.Now})
	for i := range 257 {
		err := e.Override(policy.Override{Limit: "per-ip", Key: []string{fmt.Sprintf("10.%d.%d.0/24", i/256, i%256)}, Ban: true, For: time.Minute})
		if full := errors.Is(err, policy.ErrTooMany); full != (i == 256) {
			t.Fatalf("%d: %v", i, err)
		}
	}
	except(t, e, policy.Override{Limit: "per-ip", Key: []string{"10.0.0.0/24"}, For: time.Minute})
	clock.Set(minute)
	except(t, e, policy.Override{Limit: "per-ip", Key: []string{"11.0.0.0/24"}, Ban: true, For: time.Minute}) // all others have expired
	clock.Set(2 * minute)
	if e.Sweep(); len(e.Overrides()) != 0 {
		t.Error("they have ended")
	}
}

// TestOverridesConcurrently: overrides, decisions and new policies at the same time.
func TestOverridesConcurrently(t *testing.T) {
	e := newEngine(t, guarded(), policy.Options{})
	var wg sync.WaitGroup
	for i := range 4 {
		wg.Go(func() {
			for n := range 200 {
				ex := policy.Override{Limit: "per-ip", Key: []string{fmt.Sprintf("10.0.%d.%d", i, n%5)}, Ban: n%2 == 0, For: time.Hour}
				if n%3 == 1 {
					ex.Ban, ex.Set = false, map[string]string{"burst": "50"}
				}
				if err := e.Override(ex); err != nil {
					t.Error(err)
				}
				e.Decide(from("/both", ex.Key[0], "7"))
				if n%4 == 3 {
					if _, err := e.Lift("per-ip", ex.Key); err != nil {
						t.Error(err)
					}
				}
			}
		})
	}
	wg.Go(func() {
		for n := range 20 {
			if _, err := e.Next(guarded(func(p *policy.Policy) {
				p.Limits[0].Limit = weir.TokenBucket{Rate: weir.PerHour(int64(n + 1)), Burst: 2}
			})); err != nil {
				t.Error(err)
			}
		}
	})
	wg.Wait()
}

// TestOverridesCostNothing: decisions about keys without an override, and about banned keys,
// allocate nothing.
func TestOverridesCostNothing(t *testing.T) {
	now := int64(time.Hour)
	e := newEngine(t, guarded(), policy.Options{Clock: func() int64 { return now }})
	except(t, e, policy.Override{Limit: "per-ip", Key: []string{"10.0.0.1"}, Ban: true, For: time.Hour})
	for _, addr := range []string{"10.0.0.1", "10.0.0.2"} {
		req := from("/one", addr, "")
		e.Decide(req)
		if n := testing.AllocsPerRun(100, func() { e.Decide(req) }); n != 0 {
			t.Errorf("%s: %v allocations", addr, n)
		}
	}
	rolled := newEngine(t, rolledOut("50%"), policy.Options{})
	for i := range 4 {
		req := user(i)
		rolled.Decide(req)
		if n := testing.AllocsPerRun(100, func() { rolled.Decide(req) }); n != 0 {
			t.Errorf("roll_out: %v allocations", n)
		}
	}
}
