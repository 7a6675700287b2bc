package policy_test

import (
	"context"
	"net/http"
	"testing"
	"time"

	"github.com/weirflow/weir"
	"github.com/weirflow/weir/policy"
	"github.com/weirflow/weir/weirtest"
)

// TestUsageBeyondALimit: costs that are known only afterwards can use more than a quota allows. Usage and its
// export said that as much was used as is allowed, and bills were too low.
func TestUsageBeyondALimit(t *testing.T) {
	for _, limit := range []weir.Limit{
		weir.FixedWindow{Limit: 1000, Align: "month"},
		weir.FixedWindow{Limit: 1000, Window: 24 * time.Hour},
		weir.SlidingWindow{Limit: 1000, Window: 24 * time.Hour, Slots: 24},
		weir.TokenBucket{Rate: weir.PerDay(1000), Burst: 1000},
	} {
		clock := new(weirtest.Clock)
		p := costly(limit, policy.Costs{Before: terms("100"), After: terms("header.x-cost")}, func(l *policy.Limit) { l.Key = []string{"header.x-user"} })
		e, err := policy.New(p, policy.Options{Clock: clock.Now, Timers: clock.AfterFunc, Keys: true})
		if err != nil {
			t.Fatal(err)
		}
		defer e.Close()
		spend := func(user, cost string) {
			t.Helper()
			v := decideBody(t, e, "", "X-User", user)
			if v.Outcome != policy.Allow {
				t.Fatalf("%v: %v", limit, v.Outcome)
			}
			respond(&v, http.Header{"X-Cost": {cost}}, "")
			v.Done(weir.OK)
		}
		check := func(user string, of, want int64) {
			t.Helper()
			if u := e.Usage(t.Context(), "tokens", []string{user}, "")[0]; u.Used != want || u.Of != of || u.Left != max(of-want, 0) {
				t.Errorf("%+v: %+v, want %d used", limit, u, want)
			}
			for u := range e.Usages() {
				if u.Key[0] == user && (u.Used != want || u.Of != of) {
					t.Errorf("%+v: exported %+v, want %d used", limit, u, want)
				}
			}
		}
		spend("ann", "400")
		check("ann", 1000, 400)
		spend("ann", "2500")
		check("ann", 1000, 2900)
		spend("bob", "1000")
		check("bob", 1000, 1000)
		if _, window := limit.(weir.FixedWindow); window { // a grant on top of what was used
			if err := e.Override(policy.Override{Limit: "tokens", Key: []string{"ann"}, Set: map[string]string{"limit": "2000"}, For: time.Hour}); err != nil {
				t.Fatal(err)
			}
			check("ann", 2000, 2900)
			if err := e.Override(policy.Override{Limit: "tokens", Key: []string{"bob"}, Ban: true, For: time.Hour}); err != nil {
				t.Fatal(err)
			}
			if u := e.Usage(t.Context(), "tokens", []string{"bob"}, "")[0]; u.Used > u.Of {
				t.Errorf("banned: %+v", u)
			}
		}
	}
}

// TestUsageBeyondALimitInAStore: the same in a store. It was cut to what the quota allows.
func TestUsageBeyondALimitInAStore(t *testing.T) {
	p := costly(weir.FixedWindow{Limit: 1000, Window: 24 * time.Hour}, policy.Costs{Before: terms("100"), After: terms("header.x-cost")}, func(l *policy.Limit) {
		l.Key, l.Store = []string{"header.x-user"}, "s"
	})
	p.Stores = []policy.Store{{Name: "s", URL: "redis://127.0.0.1"}}
	store := listing{weirtest.NewStore(nil)}
	open := func() *policy.Engine {
		e, err := policy.New(p, policy.Options{Stores: map[string]weir.Store{"s": store}})
		if err != nil {
			t.Fatal(err)
		}
		return e
	}
	first := open()
	v := decideBody(t, first, "", "X-User", "ann")
	respond(&v, http.Header{"X-Cost": {"2500"}}, "")
	v.Done(weir.OK)
	if err := first.Close(); err != nil { // waits for what is settled in the background
		t.Fatal(err)
	}
	e := open()
	defer e.Close()
	if u := e.Usage(t.Context(), "tokens", []string{"ann"}, "")[0]; u.Used != 2500 || u.Of != 1000 || u.Left != 0 || u.Problem != nil {
		t.Errorf("%+v, want 2500 used of 1000", u)
	}
	rows := 0
	if err := e.StoredUsages(t.Context(), func(u policy.Usage) error {
		if rows++; u.Used != 2500 || u.Of != 1000 || u.Problem != nil {
			t.Errorf("exported %+v, want 2500 used of 1000", u)
		}
		return nil
	}); err != nil || rows != 1 {
		t.Errorf("%d rows, %v", rows, err)
	}
}

// listing is a store that lists one key.
type listing struct{ weir.Store }

func (listing) StateKeys(_ context.Context, _ string, _ []weir.Limit, each func(key string, under int) error) error {
	return each(policy.EncodeKey("ann"), 0)
}
