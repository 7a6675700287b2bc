package policy_test

import (
	"fmt"
	"net/http"
	"slices"
	"strconv"
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
