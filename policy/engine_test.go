package policy_test

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirflow/weir"
	"github.com/weirflow/weir/policy"
	"github.com/weirflow/weir/weirtest"
)

const sec = time.Second

func engine(t testing.TB, p policy.Policy) (*policy.Engine, *weirtest.Clock) {
	t.Helper()
	c := new(weirtest.Clock)
	e, err := policy.New(p, policy.Options{Clock: c.Now, Timers: c.AfterFunc, Keys: true})
	if err != nil {
		t.Fatal(err)
	}
	return e, c
}

// get returns a GET request for a path with a query, from an address, with header fields in pairs.
func get(target, from string, fields ...string) policy.Request {
	path, query, _ := strings.Cut(target, "?")
	r := policy.Request{Method: "GET", Host: "shop.example", Path: path, Query: query, Client: from, Header: http.Header{}}
	for i := 0; i+1 < len(fields); i += 2 {
		r.Header.Add(fields[i], fields[i+1])
	}
	return r
}

func counts(e *policy.Engine, name string) [3]uint64 {
	for _, c := range e.Counts() {
		if c.Limit == name {
			return [3]uint64{c.Allowed, c.Limited, c.Delayed}
		}
	}
	return [3]uint64{}
}

func TestFlashSale(t *testing.T) {
	e, c := engine(t, policy.Policy{
		Limits: []policy.Limit{{Name: "per-sku", Key: []string{"query.sku_id"}, Limit: bucket("6/m", 1)}},
		Routes: []policy.Route{{Match: "GET /ratelimit/sku", Limits: []string{"per-sku"}}},
	})
	decide := func(target string) policy.Verdict { return e.Decide(get(target, "10.0.0.1")) }
	if v := decide("/ratelimit/sku?sku_id=1"); v.Outcome != policy.Allow || v.Limit != "" || v.Route != 0 {
		t.Errorf("%+v", v)
	}
	v := decide("/ratelimit/sku?sku_id=1")
	if v.Outcome != policy.Deny || v.Limit != "per-sku" || v.Decision.RetryAfter != 10*sec || v.Decision.By != "per-sku" {
		t.Errorf("%+v", v)
	}
	if key, err := policy.DecodeKey(v.Key); err != nil || len(key) != 1 || key[0] != "1" {
		t.Errorf("%q, %v", key, err)
	}
	if v := decide("/ratelimit/sku?sku_id=2"); v.Outcome != policy.Allow {
		t.Errorf("another sku: %+v", v)
	}
	if v := decide("/elsewhere"); v.Outcome != policy.NoRoute || v.Route != -1 || e.NoRoute() != 1 {
		t.Errorf("no route: %+v", v)
	}
	c.Set(int64(10 * sec))
	if v := decide("/ratelimit/sku?sku_id=1"); v.Outcome != policy.Allow {
		t.Errorf("ten seconds later: %+v", v)
	}
	if got := counts(e, "per-sku"); got != [3]uint64{3, 1, 0} {
		t.Errorf("%v", got)
	}
	asked := v.Evaluated()
	if len(asked) != 1 || asked[0].Name != "per-sku" || asked[0].Limit != 1 || asked[0].Window != 10*sec || asked[0].Decision.RetryAfter != 10*sec {
		t.Errorf("%+v", asked)
	}
}

func TestAllLimitsOrNone(t *testing.T) {
	e, _ := engine(t, policy.Policy{
		Limits: []policy.Limit{
			{Name: "user", Key: []string{"header.user-id"}, Limit: bucket("1/h", 3)},
			{Name: "all", Limit: bucket("1/d", 2)},
		},
		Routes: []policy.Route{{Match: "/", Limits: []string{"user", "all"}}},
	})
	for i, want := range []string{"", "", "all", "all"} {
		if v := e.Decide(get("/", "x", "User-Id", "a")); v.Limit != want {
			t.Errorf("request %d is decided by %q, want %q", i, v.Limit, want)
		}
	}
	// A limit that did not refuse counted neither a charge nor a request for what another one
	// refused.
	if u, all := counts(e, "user"), counts(e, "all"); u != [3]uint64{2, 0, 0} || all != [3]uint64{2, 2, 0} {
		t.Errorf("user %v, all %v", u, all)
	}
}

func TestMissingParts(t *testing.T) {
	limit := func(onMissing string) policy.Policy {
		return policy.Policy{
			Limits: []policy.Limit{{Name: "l", Key: []string{"header.user-id"}, Limit: bucket("1/d", 1), OnMissing: onMissing}},
			Routes: []policy.Route{{Match: "/", Limits: []string{"l"}}},
		}
	}
	for onMissing, want := range map[string][2]policy.Outcome{
		"":     {policy.Allow, policy.Deny}, // the empty text is a key, too
		"key":  {policy.Allow, policy.Deny},
		"skip": {policy.Allow, policy.Allow},
		"deny": {policy.Deny, policy.Deny},
	} {
		e, _ := engine(t, limit(onMissing))
		for i := range want {
			if v := e.Decide(get("/", "x")); v.Outcome != want[i] {
				t.Errorf("%q, request %d: %v", onMissing, i, v.Outcome)
			}
		}
		// A field that is sent twice does not count as missing. Otherwise sending it twice would be
		// a way around the limit.
		e.Decide(get("/", "x", "User-Id", "a", "User-Id", "b"))
		if v := e.Decide(get("/", "x", "User-Id", "c", "User-Id", "d")); v.Outcome != policy.Deny {
			t.Errorf("%q, given twice: %v", onMissing, v.Outcome)
		}
	}
}

func TestCosts(t *testing.T) {
	e, _ := engine(t, policy.Policy{
		Limits: []policy.Limit{
			{Name: "fixed", Key: []string{"client.ip"}, Limit: bucket("1/d", 10), Cost: "5"},
			{Name: "said", Key: []string{"client.ip"}, Limit: bucket("1/d", 10), Cost: "header.x-cost"},
			{Name: "bytes", Key: []string{"client.ip"}, Limit: bucket("1/d", 1000), Cost: "bytes"},
		},
		Routes: []policy.Route{
			{Match: "/fixed", Limits: []string{"fixed"}},
			{Match: "/said", Limits: []string{"said"}},
			{Match: "/bytes", Limits: []string{"bytes"}},
		},
	})
	remaining := func(r policy.Request) int64 {
		return func(v policy.Verdict) int64 { return v.Decision.Remaining }(e.Decide(r))
	}
	if n := remaining(get("/fixed", "a")); n != 5 {
		t.Errorf("fixed: %d left", n)
	}
	if n := remaining(get("/said", "a", "X-Cost", "3")); n != 7 {
		t.Errorf("said: %d left", n)
	}
	if n := remaining(get("/said", "a")); n != 6 {
		t.Errorf("not said: %d left", n)
	}
	for _, bad := range []string{"0", "-1", "x", "", "1.5", "9223372036854775808"} {
		if v := e.Decide(get("/said", "a", "X-Cost", bad)); v.Outcome != policy.Invalid {
			t.Errorf("a cost of %q: %v", bad, v.Outcome)
		}
	}
	if v := e.Decide(get("/said", "a", "X-Cost", "1", "X-Cost", "2")); v.Outcome != policy.Invalid {
		t.Errorf("two costs: %v", v.Outcome)
	}
	if v := e.Decide(get("/said", "a", "X-Cost", "11")); v.Outcome != policy.Deny || v.Decision.RetryAfter != weir.Never {
		t.Errorf("a cost that never fits: %+v", v.Decision)
	}
	post := get("/bytes", "a")
	post.Length = 400
	if n := remaining(post); n != 600 {
		t.Errorf("bytes: %d left", n)
	}
	post.Length = -1 // not known yet
	v := e.Decide(post)
	if v.Decision.Remaining != 600 || !v.CountsBytes() {
		t.Errorf("bytes, not known: %+v", v.Decision)
	}
	v.SettleBytes(150)
	v.SettleBytes(150)
	if n := remaining(get("/bytes", "a")); n != 450 {
		t.Errorf("bytes, settled: %d left", n)
	}
}

func TestShadowLimitsHaveTheirOwnState(t *testing.T) {
	p := policy.Policy{
		Limits: []policy.Limit{
			{Name: "live", Key: []string{"client.ip"}, Limit: bucket("1/d", 3)},
			{Name: "tight", Key: []string{"client.ip"}, Limit: bucket("1/d", 1), Shadow: true},
			{Name: "queue", Key: []string{"client.ip"}, Limit: weir.LeakyBucket{Rate: weir.PerSecond(1), Queue: 1}, Shadow: true},
		},
		Routes: []policy.Route{{Match: "/", Limits: []string{"tight", "live", "queue"}}},
	}
	e, _ := engine(t, p)
	for i := range 5 {
		v := e.Decide(get("/", "a"))
		if want := i < 3; (v.Outcome == policy.Allow) != want || v.Delay != 0 || len(v.Evaluated()) != 1 {
			t.Errorf("request %d: %+v", i, v)
		}
	}
	for name, want := range map[string][3]uint64{"live": {3, 2, 0}, "tight": {1, 2, 0}, "queue": {1, 1, 1}} {
		if got := counts(e, name); got != want {
			t.Errorf("%s: %v, want %v", name, got, want)
		}
	}
}

func TestQueueWaitsForReal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e, err := policy.New(policy.Policy{
			Limits: []policy.Limit{
				{Name: "user", Key: []string{"client.ip"}, Limit: bucket("1/d", 10)},
				{Name: "door", Limit: weir.LeakyBucket{Rate: weir.PerSecond(1), Queue: 2}},
			},
			Routes: []policy.Route{{Match: "/", Limits: []string{"user", "door"}}},
		}, policy.Options{})
		if err != nil {
			t.Fatal(err)
		}
		defer e.Close()
		start := time.Now()
		first := e.Decide(get("/", "a"))
		second, third, fourth := e.Decide(get("/", "a")), e.Decide(get("/", "b")), e.Decide(get("/", "c"))
		if first.Outcome != policy.Allow || second.Outcome != policy.Delay || second.Limit != "door" || second.Delay != sec || third.Delay != 2*sec {
			t.Fatalf("%+v\n%+v\n%+v", first, second, third)
		}
		if fourth.Outcome != policy.Deny || fourth.Limit != "door" || fourth.Decision.RetryAfter != sec {
			t.Errorf("%+v", fourth)
		}
		gone, leave := context.WithTimeout(t.Context(), 500*time.Millisecond)
		defer leave()
		if err := second.Wait(gone); err != context.DeadlineExceeded || time.Since(start) != 500*time.Millisecond {
			t.Errorf("the one who left: %v after %v", err, time.Since(start))
		}
		if err := third.Wait(t.Context()); err != nil || time.Since(start) != sec {
			t.Errorf("the one behind: %v after %v, want the place that became free at 1s", err, time.Since(start))
		}
		if v := e.Decide(get("/x", "a")); v.Evaluated()[0].Decision.Remaining != 8 {
			t.Errorf("the one who left was charged: %+v", v.Evaluated())
		}
		if got := counts(e, "door"); got != [3]uint64{1, 1, 3} {
			t.Errorf("%v", got)
		}
	})
}

func TestNextKeepsWhatWasUsed(t *testing.T) {
	p := policy.Policy{
		Limits: []policy.Limit{
			{Name: "kept", Key: []string{"client.ip"}, Limit: bucket("1/h", 4)},
			{Name: "rekeyed", Key: []string{"client.ip"}, Limit: bucket("1/h", 4)},
		},
		Routes: []policy.Route{{Match: "/kept", Limits: []string{"kept"}}, {Match: "/rekeyed", Limits: []string{"rekeyed"}}},
	}
	e, _ := engine(t, p)
	for _, path := range []string{"/kept", "/kept", "/kept", "/rekeyed", "/rekeyed", "/rekeyed", "/none"} {
		e.Decide(get(path, "a"))
	}
	next := p
	next.Limits = []policy.Limit{
		{Name: "kept", Key: []string{"client.ip"}, Limit: bucket("1/h", 10)},
		{Name: "rekeyed", Key: []string{"host"}, Limit: bucket("1/h", 4)},
	}
	bad := next
	bad.Routes = []policy.Route{{Match: "/", Limits: []string{"nothing"}}}
	var wrong *policy.Error
	if _, err := e.Next(bad); !errors.As(err, &wrong) {
		t.Errorf("%v", err)
	}
	if v := e.Decide(get("/kept", "b")); v.Evaluated()[0].Limit != 4 {
		t.Errorf("a bad policy changed a limit: %+v", v.Evaluated())
	}
	n, err := e.Next(next)
	if err != nil {
		t.Fatal(err)
	}
	if err := e.Retire(n); err != nil {
		t.Error(err)
	}
	if v := n.Decide(get("/kept", "a")); v.Decision.Remaining != 6 || v.Decision.Limit != 10 {
		t.Errorf("kept: %+v", v.Decision)
	}
	if v := n.Decide(get("/rekeyed", "a")); v.Decision.Remaining != 3 {
		t.Errorf("rekeyed: %+v", v.Decision)
	}
	if got := counts(n, "rekeyed"); got != [3]uint64{4, 0, 0} || n.NoRoute() != 1 {
		t.Errorf("counters start again: %v, %d", got, n.NoRoute())
	}
	if len(n.Policy().Limits) != 2 || n.Close() != nil {
		t.Error("the policy is gone")
	}
}

// TestWhenFull: beyond max_keys a new key evicts the least restricted one, is refused, or shares
// one state with all other new ones.
func TestWhenFull(t *testing.T) {
	for how, want := range map[string][]policy.Outcome{
		"":       {policy.Allow, policy.Allow, policy.Allow, policy.Allow},
		"evict":  {policy.Allow, policy.Allow, policy.Allow, policy.Allow},
		"refuse": {policy.Allow, policy.Deny, policy.Deny, policy.Deny},
		"share":  {policy.Allow, policy.Allow, policy.Deny, policy.Deny},
	} {
		e, err := policy.New(policy.Policy{
			Limits: []policy.Limit{{
				Name: "per-user", Key: []string{"query.user"}, Limit: weir.TokenBucket{Rate: weir.PerHour(1), Burst: 1}, MaxKeys: 1, WhenFull: how,
			}},
			Routes: []policy.Route{{Match: "/", Limits: []string{"per-user"}}},
		}, policy.Options{})
		if err != nil {
			t.Fatal(err)
		}
		for i, outcome := range want {
			if v := e.Decide(policy.Request{Method: "GET", Path: "/", Query: "user=" + string(rune('a'+i))}); v.Outcome != outcome {
				t.Errorf("%q: user %d: %v, want %v", how, i, v.Outcome, outcome)
			}
		}
		e.Close()
	}
}
