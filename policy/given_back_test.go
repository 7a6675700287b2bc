package policy_test

import (
	"net/http"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/weirflow/weir"
	"github.com/weirflow/weir/policy"
)

// TestRequestsThatAPlaceRefusesAreNotCharged: most of many concurrent requests are refused by a concurrency
// limit, and only those that it admits stay charged. The charges overlapped, and some of refused
// requests stayed.
func TestRequestsThatAPlaceRefusesAreNotCharged(t *testing.T) {
	const burst = 1000
	e, err := policy.New(policy.Policy{
		Limits: []policy.Limit{
			{Name: "rate", Limit: weir.TokenBucket{Rate: weir.Rate{N: 1, Per: 800 * time.Hour}, Burst: burst}},
			{Name: "queue", Limit: weir.LeakyBucket{Rate: weir.Rate{N: 1, Per: 800 * time.Hour}, Queue: burst - 1, DelayAfter: burst - 1}},
			{Name: "places", Limit: weir.Concurrency{Limit: 1}},
		},
		Routes: []policy.Route{{Match: "/look", Limits: []string{"rate", "queue"}}, {Match: "/", Limits: []string{"rate", "queue", "places"}}},
	}, policy.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer e.Close()
	var mu sync.Mutex
	admitted, refused := int64(0), 0
	var callers sync.WaitGroup
	for range 8 {
		callers.Go(func() {
			for range 50 {
				v := e.DecideContext(t.Context(), policy.Request{Method: "GET", Path: "/", Header: http.Header{}})
				err := v.Enter(t.Context())
				runtime.Gosched() // so that some find the place taken
				v.Done(weir.OK)
				mu.Lock()
				if err == nil && v.Outcome == policy.Allow {
					admitted++
				} else {
					refused++
				}
				mu.Unlock()
			}
		})
	}
	callers.Wait()
	v := e.Decide(policy.Request{Method: "GET", Path: "/look", Header: http.Header{}})
	for _, l := range v.Evaluated() {
		if got, want := l.Decision.Remaining, burst-admitted-1; got != want {
			t.Errorf("%s: %d remain, want %d: %d were admitted", l.Name, got, want, admitted)
		}
	}
	if refused == 0 {
		t.Error("nobody was refused")
	}
}

// TestAQueueIsGivenBackAfterItsTurn: a request that had waited in a queue stayed charged there if
// it was then refused, by a place of concurrency or by a store that was called at its turn.
func TestAQueueIsGivenBackAfterItsTurn(t *testing.T) {
	e, c := engine(t, policy.Policy{
		Limits: []policy.Limit{
			{Name: "rate", Limit: bucket("1/d", 9)},
			{Name: "queue", Limit: weir.LeakyBucket{Rate: weir.PerSecond(1), Queue: 8}},
			{Name: "places", Limit: weir.Concurrency{Limit: 1}},
		},
		Routes: []policy.Route{{Match: "/look", Limits: []string{"rate", "queue"}}, {Match: "/", Limits: []string{"rate", "queue", "places"}}},
	})
	first := e.Decide(get("/", "x"))
	if err := first.Enter(t.Context()); err != nil {
		t.Fatal(err)
	}
	for range 3 { // each waits for its turn, and then finds the place taken
		v := e.Decide(get("/", "x"))
		if v.Outcome != policy.Delay || v.Delay != sec {
			t.Fatalf("%+v", v)
		}
		c.Set(c.Now() + int64(sec))
		if err := v.Wait(t.Context()); err != nil {
			t.Fatal(err)
		}
		if err := v.Enter(t.Context()); err == nil || v.Outcome != policy.Deny || v.Limit != "places" {
			t.Fatalf("%v, %+v", err, v)
		}
		look := e.Decide(get("/look", "x")) // goes at once: the turn of the refused request is free
		if look.Outcome != policy.Allow {
			t.Fatalf("after a refusal: %+v", look)
		}
	}
	first.Done(weir.OK)
	left := map[string]int64{}
	v := e.Decide(get("/look", "x"))
	for _, a := range v.Evaluated() {
		left[a.Name] = a.Decision.Remaining
	}
	if left["rate"] != 9-5 || v.Outcome != policy.Delay {
		t.Errorf("%v, %+v", left, v)
	}
	v.Cancel()
	for _, counts := range e.Counts() {
		if counts.Keys.Inexact != 0 {
			t.Errorf("%s: %d are inexact", counts.Limit, counts.Keys.Inexact)
		}
	}
}

// TestAdmittedChargesAreNotRemembered: charges are remembered only until the request can no longer be
// refused. Requests with a place stayed outstanding, so a busy key had more of them than are kept
// apart.
func TestAdmittedChargesAreNotRemembered(t *testing.T) {
	waits := weir.LeakyBucket{Rate: weir.PerSecond(100), Queue: 50}
	for name, p := range map[string]policy.Policy{
		"a place": {
			Limits: []policy.Limit{{Name: "rate", Limit: bucket("100/s", 5000)}, {Name: "places", Limit: weir.Concurrency{Limit: 1}}},
			Routes: []policy.Route{{Match: "/", Limits: []string{"rate", "places"}}},
		},
		"a queue": {
			Limits: []policy.Limit{{Name: "rate", Limit: bucket("100/s", 5000)}, {Name: "queue", Limit: waits}},
			Routes: []policy.Route{{Match: "/", Limits: []string{"rate", "queue"}}},
		},
		"a queue and a place": {
			Limits: []policy.Limit{{Name: "rate", Limit: bucket("100/s", 5000)}, {Name: "queue", Limit: waits}, {Name: "places", Limit: weir.Concurrency{Limit: 1}}},
			Routes: []policy.Route{{Match: "/", Limits: []string{"rate", "queue", "places"}}},
		},
		"a queue that is tried out": {
			Limits: []policy.Limit{{Name: "queue", Shadow: true, Limit: weir.LeakyBucket{Rate: weir.PerSecond(100), Queue: 5000, DelayAfter: 3000}}},
			Routes: []policy.Route{{Match: "/", Limits: []string{"queue"}}},
		},
		"what nginx does": {
			Limits: []policy.Limit{{Name: "rate", Limit: weir.NginxBucket{Rate: weir.PerSecond(100), Queue: 5000, DelayAfter: 5000}}, {Name: "places", Limit: weir.Concurrency{Limit: 1}}},
			Routes: []policy.Route{{Match: "/", Limits: []string{"rate", "places"}}},
		},
	} {
		e, c := engine(t, p)
		for i := range 3000 {
			v := e.Decide(get("/", "x"))
			if v.Outcome != policy.Allow && v.Outcome != policy.Delay {
				t.Fatalf("%s, request %d: %+v", name, i, v)
			}
			c.Set(c.Now() + int64(v.Delay) + int64(time.Millisecond))
			if err := v.Wait(t.Context()); err != nil {
				t.Fatal(err)
			}
			if err := v.Enter(t.Context()); err != nil {
				t.Fatal(err)
			}
			v.Done(weir.OK)
		}
		for _, counts := range e.Counts() {
			if counts.Keys.Inexact != 0 {
				t.Errorf("%s: %s: %d reservations are inexact", name, counts.Limit, counts.Keys.Inexact)
			}
		}
	}
}

// TestSettlingALengthEndsTheReservation: as TestAdmittedChargesAreNotRemembered, for requests of unknown
// length.
func TestSettlingALengthEndsTheReservation(t *testing.T) {
	e, c := engine(t, policy.Policy{
		Limits: []policy.Limit{
			{Name: "rate", Limit: bucket("100/s", 5000)},
			{Name: "bytes", Limit: bucket("100/s", 5000), Cost: "bytes"},
			{Name: "places", Limit: weir.Concurrency{Limit: 1}},
		},
		Routes: []policy.Route{{Match: "/", Limits: []string{"rate", "bytes", "places"}}},
	})
	for range 3000 {
		r := get("/", "x")
		r.Length = -1
		v := e.Decide(r)
		if err := v.Enter(t.Context()); err != nil || v.Outcome != policy.Allow || !v.CountsBytes() {
			t.Fatalf("%v, %+v", err, v)
		}
		v.SettleBytes(1)
		v.Done(weir.OK)
		c.Set(c.Now() + int64(9*time.Millisecond))
	}
	for _, counts := range e.Counts() {
		if counts.Keys.Inexact != 0 {
			t.Errorf("%s: %d reservations are inexact", counts.Limit, counts.Keys.Inexact)
		}
	}
}
