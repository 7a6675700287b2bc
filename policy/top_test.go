package policy_test

import (
	"fmt"
	"testing"

	"github.com/weirflow/weir"
	"github.com/weirflow/weir/policy"
	"github.com/weirflow/weir/weirtest"
)

// TestTop: the heaviest and the most refused keys of limits in memory and in a store, also after an
// update; none without Options.Top, and none of a limit of requests in flight.
func TestTop(t *testing.T) {
	p := policy.Policy{
		Stores: []policy.Store{{Name: "shared", URL: "redis://127.0.0.1:1/0"}},
		Limits: []policy.Limit{
			{Name: "local", Key: []string{"header.user"}, Limit: weir.TokenBucket{Rate: weir.PerMinute(1), Burst: 3}},
			{Name: "stored", Key: []string{"header.user"}, Limit: weir.TokenBucket{Rate: weir.PerMinute(1), Burst: 5}, Store: "shared"},
			{Name: "places", Key: []string{"header.user"}, Limit: weir.Concurrency{Limit: 3}},
		},
		Routes: []policy.Route{{Match: "/a", Limits: []string{"local"}}, {Match: "/b", Limits: []string{"stored"}}, {Match: "/c", Limits: []string{"places"}}},
	}
	for _, counters := range []int{0, 10} {
		clock := new(weirtest.Clock)
		store := weirtest.NewStore(clock.Now)
		e, err := policy.New(p, policy.Options{Stores: map[string]weir.Store{"shared": store}, Clock: clock.Now, Top: counters})
		if err != nil {
			t.Fatal(err)
		}
		defer e.Close()
		send := func(path, user string, times int) {
			for range times {
				e.Decide(policy.Request{Method: "GET", Path: path, Header: map[string][]string{"User": {user}}})
			}
		}
		for _, path := range []string{"/a", "/b", "/c"} {
			send(path, "ann", 9)
			send(path, "bob", 2)
		}
		if e, err = e.Next(p); err != nil {
			t.Fatal(err)
		}
		send("/b", "bob", 1)
		for name, want := range map[string]string{
			"local":  "[{[ann] 3 0} {[bob] 2 0}] [{[ann] 6 0}] true",
			"stored": "[{[ann] 5 0} {[bob] 3 0}] [{[ann] 4 0}] true",
			"places": "[] [] false", "nothing": "[] [] false",
		} {
			if counters == 0 {
				want = "[] [] false"
			}
			heaviest, refused, ok := e.Top(name, 5)
			if got := fmt.Sprint(heaviest, refused, ok); got != want {
				t.Errorf("%d counters: %s: %s, want %s", counters, name, got, want)
			}
		}
	}
}
