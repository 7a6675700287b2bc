package policy_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/weirflow/weir"
	"github.com/weirflow/weir/policy"
	"github.com/weirflow/weir/weirtest"
)

// TestWarningsOfLateCosts: a limit whose costs are known only afterwards warns each key once in a window
// too, by what was used and not by estimates. Estimates that were too low, or 0, never warned; those that
// were too high warned with nearly every request.
func TestWarningsOfLateCosts(t *testing.T) {
	for _, c := range []struct {
		estimate string
		cost     int
		warns    int // the request that the limit warns with, counted from 1
		requests int
	}{
		{"1", 50, 17, 25},   // 800 are used after 16 requests
		{"50", 50, 17, 25},  // the estimate is right
		{"300", 10, 0, 100}, // from 700 on, no estimate fits: 800 are never used
		{"190", 10, 81, 90}, // a request that reaches the share by its estimate alone is no warning
		{"0", 50, 17, 40},
		{"1", 900, 2, 5},
		{"1", 2000, 2, 5}, // all is used at once: the request is refused
	} {
		t.Run(fmt.Sprint(c.estimate, "/", c.cost), func(t *testing.T) {
			var warned []string
			clock := new(weirtest.Clock)
			p := costly(weir.FixedWindow{Limit: 1000, Window: time.Hour}, policy.Costs{Before: terms(c.estimate), After: terms("header.x-cost")},
				func(l *policy.Limit) { l.WarnAt, l.Key = "80%", []string{"header.x-user"} })
			e, err := policy.New(p, policy.Options{Clock: clock.Now, Timers: clock.AfterFunc, Warn: func(w policy.Warning) { warned = append(warned, w.Key[0]) }})
			if err != nil {
				t.Fatal(err)
			}
			defer e.Close()
			var want []string
			for window := range 2 {
				for i := 1; i <= c.requests; i++ {
					for _, user := range []string{"ann", "bob"} {
						v := decideBody(t, e, "", "X-User", user)
						if i == c.warns {
							want = append(want, user)
						}
						if !slices.Equal(warned, want) {
							t.Fatalf("window %d, request %d: warned %q, want %q", window, i, warned, want)
						}
						if v.Outcome == policy.Allow {
							respond(&v, http.Header{"X-Cost": {strconv.Itoa(c.cost)}}, "")
						}
						v.Done(weir.OK)
					}
				}
				clock.Set(clock.Now() + int64(2*time.Hour))
			}
			if got := e.Counts()[0].Warned; got != uint64(len(want)) {
				t.Errorf("%d are counted, want %d", got, len(want))
			}
		})
	}
}

// TestWarningsBeforeTheBody: a limit that refuses a request before its body is read warns, too.
func TestWarningsBeforeTheBody(t *testing.T) {
	var warned []string
	p := costly(weir.FixedWindow{Limit: 1000, Window: time.Hour}, policy.Costs{Before: terms("1"), After: terms("header.x-cost")},
		func(l *policy.Limit) { l.WarnAt, l.Key = "80%", []string{"header.x-user"} })
	p.Limits = append(p.Limits, policy.Limit{Name: "models", Key: []string{"body.model"}, Limit: weir.TokenBucket{Rate: weir.PerSecond(10), Burst: 100}})
	p.Routes[0].Limits = []string{"tokens", "models"}
	clock := new(weirtest.Clock)
	e, err := policy.New(p, policy.Options{Clock: clock.Now, Timers: clock.AfterFunc, Warn: func(w policy.Warning) { warned = append(warned, w.Limit) }})
	if err != nil {
		t.Fatal(err)
	}
	defer e.Close()
	v := decideBody(t, e, `{"model":"m"}`, "X-User", "ann")
	respond(&v, http.Header{"X-Cost": {"2000"}}, "")
	v.Done(weir.OK)
	for range 3 {
		m := e.Match(policy.Request{Method: "POST", Path: "/", Header: http.Header{"X-User": {"ann"}}, Length: 13})
		if v, refused := e.RefuseUnread(t.Context(), &m); !refused || v.Limit != "tokens" {
			t.Fatalf("refused: %v by %q", refused, v.Limit)
		}
	}
	if !slices.Equal(warned, []string{"tokens"}) {
		t.Errorf("warned %q", warned)
	}
}

// TestWarningsOfLateCostsInAStore: of several gateways that share a limit whose costs are known only
// afterwards, the first warns. While the store does not respond to that question, each warns once.
func TestWarningsOfLateCostsInAStore(t *testing.T) {
	for _, w := range []struct {
		limit  weir.Limit
		broken bool
		want   int
	}{
		{weir.FixedWindow{Limit: 1000, Align: "month"}, false, 1},
		{weir.TokenBucket{Rate: weir.PerDay(1000), Burst: 1000}, false, 1},
		{weir.FixedWindow{Limit: 1000, Align: "month"}, true, 2},
	} {
		store := &markless{Store: weirtest.NewStore(nil), broken: w.broken}
		var mu sync.Mutex
		warned := 0
		both := [2]*policy.Engine{}
		for i := range both {
			p := costly(w.limit, policy.Costs{Before: terms("1"), After: terms("header.x-cost")}, func(l *policy.Limit) { l.WarnAt, l.Key, l.Store = "80%", []string{"header.x-user"}, "s" })
			p.Stores = []policy.Store{{Name: "s", URL: "memory://"}}
			e, err := policy.New(p, policy.Options{Stores: map[string]weir.Store{"s": store}, Warn: func(policy.Warning) {
				mu.Lock()
				defer mu.Unlock()
				warned++
			}})
			if err != nil {
				t.Fatal(err)
			}
			both[i] = e
		}
		deadline := time.Now().Add(time.Minute)
		for after := 0; after < 20 && time.Now().Before(deadline); {
			for _, e := range both {
				v := decideBody(t, e, "", "X-User", "ann")
				if v.Outcome == policy.Allow {
					respond(&v, http.Header{"X-Cost": {"50"}}, "")
				}
				v.Done(weir.OK)
			}
			mu.Lock()
			if warned >= w.want {
				after++
			}
			mu.Unlock()
		}
		var counted uint64
		for _, e := range both {
			e.Close() // waits for calls of the store
			counted += e.Counts()[0].Warned
		}
		if warned != w.want || counted != uint64(w.want) {
			t.Errorf("%+v: %d warnings, and %d are counted", w, warned, counted)
		}
	}
}

// markless is a store that may not respond about marks.
type markless struct {
	weir.Store
	broken bool
}

func (s *markless) Do(ctx context.Context, batch []weir.Charge, out []weir.Decision) error {
	if s.broken && strings.HasPrefix(batch[0].Name, "WARNED.") {
		return errors.New("connection reset")
	}
	return s.Store.Do(ctx, batch, out)
}

// TestWarningsOfReservations: calls that reserve and settle later warn once in a window, by what was used.
func TestWarningsOfReservations(t *testing.T) {
	clock := new(weirtest.Clock)
	var warned []string
	e, err := policy.New(policy.Policy{Limits: []policy.Limit{{Name: "tokens", Key: []string{"header.x-user"}, WarnAt: "80%", Limit: weir.FixedWindow{Limit: 1000, Window: time.Hour}}}},
		policy.Options{Clock: clock.Now, Timers: clock.AfterFunc, Warn: func(w policy.Warning) { warned = append(warned, w.Key[0]) }})
	if err != nil {
		t.Fatal(err)
	}
	defer e.Close()
	reserve := func(user string, cost, actual int64, allowed bool, warnings ...string) {
		t.Helper()
		a, err := e.Reserve(t.Context(), []policy.Ask{{Limit: "tokens", Key: []string{user}, Cost: cost}}, 0)
		if err != nil || a.Allowed != allowed {
			t.Fatalf("%+v, %v", a, err)
		}
		if allowed {
			if err := a.Settle(t.Context(), []int64{actual}, 0); err != nil {
				t.Fatal(err)
			}
		}
		if !slices.Equal(warned, warnings) {
			t.Fatalf("warned %q, want %q", warned, warnings)
		}
	}
	reserve("ann", 900, 100, true) // by its estimate alone
	reserve("ann", 10, 700, true)  // 800 are used afterwards
	reserve("ann", 10, 10, true, "ann")
	reserve("ann", 10, 10, true, "ann")
	reserve("bob", 10, 850, true, "ann")
	reserve("bob", 500, 0, false, "ann", "bob") // a refusal finds it, too
	clock.Set(clock.Now() + int64(time.Hour))
	reserve("ann", 10, 850, true, "ann", "bob")
	reserve("ann", 10, 10, true, "ann", "bob", "ann")
	if n := e.Counts()[0].Warned; n != 3 {
		t.Errorf("%d are counted", n)
	}
}
