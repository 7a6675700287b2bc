package policy_test

import (
	"bytes"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/weirflow/weir"
	"github.com/weirflow/weir/policy"
	"github.com/weirflow/weir/weirtest"
)

// quotas is a policy with quotas of several algorithms, by customer.
func quotas() policy.Policy {
	p := withPlans()
	p.Limits = []policy.Limit{
		{Name: "monthly", Key: []string{"customer"}, Limit: weir.FixedWindow{Limit: 10, Align: "month:Europe/Berlin"},
			Plans: []policy.PlanLimit{{Plan: "pro", Limit: weir.FixedWindow{Limit: 100, Align: "month:Europe/Berlin"}}}},
		{Name: "hourly", Key: []string{"customer"}, Limit: weir.TokenBucket{Rate: weir.PerHour(20), Burst: 20}},
		{Name: "log", Key: []string{"customer"}, Limit: weir.SlidingLog{Limit: 20, Window: 2 * time.Hour}},
		{Name: "pace", Key: []string{"customer"}, Limit: weir.TokenBucket{Rate: weir.PerSecond(1), Burst: 50}},
	}
	p.Routes = []policy.Route{{Match: "/", Limits: []string{"monthly", "hourly", "log", "pace"}}}
	return p
}

func onClock(t *testing.T, p policy.Policy, c *weirtest.Clock) *policy.Engine {
	t.Helper()
	e, err := policy.New(p, policy.Options{Clock: c.Now, Timers: c.AfterFunc, Customers: known()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { e.Close() })
	return e
}

// left returns what is left of each limit for a customer.
func left(t *testing.T, e *policy.Engine, customer, plan string) map[string]int64 {
	t.Helper()
	all := map[string]int64{}
	for _, u := range e.Usage(t.Context(), "", []string{customer}, plan) {
		if u.Problem != nil || u.Used != u.Of-u.Left {
			t.Errorf("%+v", u)
		}
		all[u.Limit] = u.Left
	}
	return all
}

// TestUsage: what is left of each limit of a key, by its plan, in memory and in a store; asking
// charges nothing and keeps no key.
func TestUsage(t *testing.T) {
	p := quotas()
	p.Stores = []policy.Store{{Name: "s", URL: "memory://"}}
	p.Limits[1].Store = "s"
	e := planned(t, p, policy.Options{Stores: map[string]weir.Store{"s": weirtest.NewStore(nil)}})
	for range 3 {
		e.Decide(request("/", "X-Api-Key", "k-pro"))
	}
	e.Decide(request("/", "X-Api-Key", "k-free"))
	for range 2 {
		for name, want := range map[string]int64{"monthly": 97, "hourly": 17, "log": 17, "pace": 47} {
			if got := left(t, e, "acme", "")[name]; got != want {
				t.Errorf("acme, %s: %d left, want %d", name, got, want)
			}
		}
	}
	if got := left(t, e, "nobody", "pro")["monthly"]; got != 100 {
		t.Errorf("a customer of pro who has used nothing: %d", got)
	}
	if n := e.Counts()[0].Keys.Keys; n != 2 {
		t.Errorf("%d keys", n)
	}
	if all := e.Usage(t.Context(), "", []string{"a", "b"}, ""); len(all) != 0 {
		t.Errorf("a key of two parts: %+v", all)
	}
	found := map[string]int64{}
	for u := range e.Usages() {
		found[u.Limit+" "+strings.Join(u.Key, ",")] = u.Used
	}
	if len(found) != 4 || found["monthly acme"] != 3 || found["monthly fred"] != 1 || found["log acme"] != 3 {
		t.Errorf("%v", found)
	}
}

// TestSnapshot: quotas go on in another process, with the time that has passed in between, and the
// limits that are no quotas begin unused.
func TestSnapshot(t *testing.T) {
	c := new(weirtest.Clock)
	c.Set(time.Date(2030, 5, 10, 12, 0, 0, 0, time.UTC).UnixNano())
	e := onClock(t, quotas(), c)
	for range 8 {
		e.Decide(request("/", "X-Api-Key", "k-pro"))
		e.Decide(request("/", "X-Api-Key", "k-free"))
	}
	var b bytes.Buffer
	if n, err := e.WriteSnapshot(&b); err != nil || n != 6 {
		t.Fatalf("%d, %v", n, err)
	}
	for _, k := range []struct {
		after                      time.Duration
		monthly, free, hourly, log int64
	}{
		{0, 92, 2, 12, 12},
		{6 * time.Minute, 92, 2, 14, 12},
		{3 * time.Hour, 92, 2, 20, 20},
		{31 * 24 * time.Hour, 100, 10, 20, 20},
	} {
		c2 := new(weirtest.Clock)
		c2.Set(c.Now() + int64(k.after))
		next := onClock(t, quotas(), c2)
		if _, err := next.ReadSnapshot(b.Bytes()); err != nil {
			t.Fatal(err)
		}
		pro, free := left(t, next, "acme", "pro"), left(t, next, "fred", "")
		if pro["hourly"] != k.hourly || pro["log"] != k.log || pro["pace"] != 50 || free["monthly"] != k.free {
			t.Errorf("after %v: %v, %v", k.after, pro, free)
		}
		// the state is converted to the plan's parameters with the customer's first request
		if v := next.Decide(request("/", "X-Api-Key", "k-pro")); v.Outcome != policy.Allow {
			t.Errorf("after %v: %v", k.after, v.Outcome)
		}
		if got := left(t, next, "acme", "pro")["monthly"]; got != k.monthly-1 {
			t.Errorf("after %v: %d left of pro, want %d", k.after, got, k.monthly-1)
		}
	}
}

// TestSnapshotOfPlans: what a customer of a plan has used beyond the limit's own parameters is used after a
// restart, also if the plan's parameters have changed.
func TestSnapshotOfPlans(t *testing.T) {
	c := new(weirtest.Clock)
	c.Set(time.Date(2030, 5, 10, 12, 0, 0, 0, time.UTC).UnixNano())
	p := quotas()
	p.Limits, p.Routes[0].Limits = p.Limits[:1], []string{"monthly"}
	e := onClock(t, p, c)
	for range 80 {
		e.Decide(request("/", "X-Api-Key", "k-pro"))
	}
	var b bytes.Buffer
	if _, err := e.WriteSnapshot(&b); err != nil {
		t.Fatal(err)
	}
	for _, limit := range []int64{100, 150} {
		p.Limits[0].Plans = []policy.PlanLimit{{Plan: "pro", Limit: weir.FixedWindow{Limit: limit, Align: "month:Europe/Berlin"}}}
		next := onClock(t, p, c)
		if _, err := next.ReadSnapshot(b.Bytes()); err != nil {
			t.Fatal(err)
		}
		if got := left(t, next, "acme", "pro")["monthly"]; got != limit-80 {
			t.Errorf("%d left of %d after 80", got, limit)
		}
		if n := int64(admitted(next, 200, request("/", "X-Api-Key", "k-pro"))); n != limit-80 {
			t.Errorf("%d admitted of %d after 80", n, limit)
		}
	}
}

// TestSnapshotUnderChangedParameters: keys whose parameters no plan has any more, because they had a grant or
// the plan has changed meanwhile, were listed as unlimited after a restart.
func TestSnapshotUnderChangedParameters(t *testing.T) {
	c := new(weirtest.Clock)
	c.Set(time.Date(2030, 5, 10, 12, 0, 0, 0, time.UTC).UnixNano())
	month := func(limit int64) weir.Limit { return weir.FixedWindow{Limit: limit, Align: "month"} }
	p := quotas()
	p.Limits, p.Routes[0].Limits = p.Limits[:1], []string{"monthly"}
	plans := func(pro int64) []policy.PlanLimit {
		return []policy.PlanLimit{{Plan: "pro", Limit: month(pro)}, {Plan: "enterprise", Unlimited: true}}
	}
	for _, of := range []struct{ free, pro, freeOf, proOf int64 }{
		{4, 4, 10, 10}, // what was used is within those of the limit
		{12, 30, 50, 50},
		{12, 60, 50, 0}, // within those of enterprise alone
	} {
		p.Limits[0].Limit, p.Limits[0].Plans = month(10), plans(100)
		e := onClock(t, p, c)
		if err := e.Override(policy.Override{Limit: "monthly", Key: []string{"fred"}, Set: map[string]string{"limit": "15"}, For: time.Hour}); err != nil {
			t.Fatal(err)
		}
		admitted(e, int(of.free), request("/", "X-Api-Key", "k-free"))
		admitted(e, int(of.pro), request("/", "X-Api-Key", "k-pro"))
		var b bytes.Buffer
		if _, err := e.WriteSnapshot(&b); err != nil {
			t.Fatal(err)
		}
		p.Limits[0].Plans = plans(50)
		next := onClock(t, p, c)
		if n, err := next.ReadSnapshot(b.Bytes()); err != nil || n != 2 {
			t.Fatalf("%d, %v", n, err)
		}
		for u := range next.Usages() {
			if want, size := of.free, of.freeOf; u.Key[0] == "fred" && (u.Used != want || u.Of != size || u.Unlimited) {
				t.Errorf("%+v: %+v", of, u)
			}
			if want, size := of.pro, of.proOf; u.Key[0] == "acme" && (u.Used != want || u.Of != size || u.Unlimited != (size == 0)) {
				t.Errorf("%+v: %+v", of, u)
			}
		}
		if got := left(t, next, "fred", "")["monthly"]; got != of.freeOf-of.free {
			t.Errorf("%+v: %d left", of, got)
		}
		next.Decide(request("/", "X-Api-Key", "k-pro"))
		if u := next.Usage(t.Context(), "monthly", []string{"acme"}, "pro")[0]; u.Left != max(50-of.pro-1, 0) || u.Of != 50 {
			t.Errorf("%+v: %+v", of, u)
		}
	}
}

// TestSnapshotOfAnotherPolicy: a limit whose parameters have changed keeps what was used; one that
// counts by another key, or is gone, begins unused.
func TestSnapshotOfAnotherPolicy(t *testing.T) {
	c := new(weirtest.Clock)
	c.Set(time.Date(2030, 5, 10, 12, 0, 0, 0, time.UTC).UnixNano())
	e := onClock(t, quotas(), c)
	for range 3 {
		e.Decide(request("/", "X-Api-Key", "k-free"))
	}
	var b bytes.Buffer
	if _, err := e.WriteSnapshot(&b); err != nil {
		t.Fatal(err)
	}
	p := quotas()
	p.Limits[0].Limit = weir.FixedWindow{Limit: 50, Align: "month:Europe/Berlin"}
	p.Limits[1].Key = []string{"client.ip"}
	p.Limits = append(p.Limits[:2], p.Limits[3])
	p.Routes[0].Limits = []string{"monthly", "hourly", "pace"}
	next := onClock(t, p, c)
	if n, err := next.ReadSnapshot(b.Bytes()); err != nil || n != 1 {
		t.Errorf("%d, %v", n, err)
	}
	if got := left(t, next, "fred", ""); got["monthly"] != 47 {
		t.Errorf("%v", got)
	}
	if n, err := next.ReadSnapshot(b.Bytes()); err != nil || n != 0 {
		t.Errorf("a key that has a state already: %d, %v", n, err)
	}
}

// TestBrokenSnapshots: every change of a byte, and every cut, is found before anything is restored.
func TestBrokenSnapshots(t *testing.T) {
	c := new(weirtest.Clock)
	c.Set(time.Date(2030, 5, 10, 12, 0, 0, 0, time.UTC).UnixNano())
	e := onClock(t, quotas(), c)
	e.Decide(request("/", "X-Api-Key", "k-free"))
	var b bytes.Buffer
	if _, err := e.WriteSnapshot(&b); err != nil {
		t.Fatal(err)
	}
	next := onClock(t, quotas(), c)
	broken := func(what string, data []byte) {
		t.Helper()
		if n, err := next.ReadSnapshot(data); !errors.Is(err, policy.ErrSnapshot) || n != 0 {
			t.Errorf("%s: %d, %v", what, n, err)
		}
	}
	text := b.Bytes()
	for i := range len(text) - 1 { // without the final newline
		broken("a cut", text[:i])
		other := bytes.Clone(text)
		if other[i] ^= 1; i < len(text)-20 {
			broken("a changed byte", other)
		}
	}
	for _, foreign := range []string{"{}", "null", "\n", "# a policy\nlimits: {}\n", `{"sha256":"e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"}` + "\n"} {
		broken("a foreign file", []byte(foreign))
	}
	if n := next.Counts()[0].Keys.Keys; n != 0 {
		t.Errorf("%d keys", n)
	}
	if n, err := next.ReadSnapshot(text); n != 3 || err != nil {
		t.Errorf("the whole one: %d, %v", n, err)
	}
}

// byName is a directory that knows the plans of customers by name.
type byName struct{ directory }

func (byName) PlanOf(customer string) string {
	return map[string]string{"acme": "pro", "mega": "enterprise"}[customer]
}

// TestSnapshotAfterAGrant: a grant ends with the process, and what was used under it is used of the
// customer's plan. Until the customer's next request, usage and the export said that the plan was
// unlimited, because another plan was.
func TestSnapshotAfterAGrant(t *testing.T) {
	c := new(weirtest.Clock)
	c.Set(time.Date(2030, 5, 10, 12, 0, 0, 0, time.UTC).UnixNano())
	p := quotas()
	p.Limits, p.Routes[0].Limits = p.Limits[:1], []string{"monthly"}
	p.Limits[0].Plans = append(p.Limits[0].Plans, policy.PlanLimit{Plan: "enterprise", Unlimited: true})
	p.Plans.Default = "free"
	start := func() *policy.Engine {
		e, err := policy.New(p, policy.Options{Clock: c.Now, Timers: c.AfterFunc, Customers: byName{known()}})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { e.Close() })
		return e
	}
	e := start()
	for customer, limit := range map[string]string{"fred": "15", "acme": "1000"} {
		if err := e.Override(policy.Override{Limit: "monthly", Key: []string{customer}, Set: map[string]string{"limit": limit}, For: time.Hour}); err != nil {
			t.Fatal(err)
		}
	}
	for key, n := range map[string]int{"k-free": 12, "k-pro": 70, "k-big": 30} {
		if got := admitted(e, n, request("/", "X-Api-Key", key)); got != n {
			t.Fatalf("%s: %d", key, got)
		}
	}
	var b bytes.Buffer
	if _, err := e.WriteSnapshot(&b); err != nil {
		t.Fatal(err)
	}
	next := start()
	if _, err := next.ReadSnapshot(b.Bytes()); err != nil {
		t.Fatal(err)
	}
	want := map[string]policy.Usage{"fred": {Of: 10, Used: 12}, "acme": {Of: 100, Used: 70, Left: 30}, "mega": {Used: 30, Unlimited: true}}
	check := func(u policy.Usage) {
		t.Helper()
		if w := want[u.Key[0]]; u.Of != w.Of || u.Used != w.Used || u.Left != w.Left || u.Unlimited != w.Unlimited {
			t.Errorf("%+v", u)
		}
	}
	for customer := range want {
		check(next.Usage(t.Context(), "monthly", []string{customer}, "")[0])
	}
	for u := range next.Usages() {
		check(u)
	}
	if n := admitted(next, 100, request("/", "X-Api-Key", "k-pro")); n != 30 {
		t.Errorf("%d of 30 are admitted", n)
	}
	if n := admitted(next, 100, request("/", "X-Api-Key", "k-free")); n != 0 {
		t.Errorf("%d are admitted beyond the quota", n)
	}
}
