package policy_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/weirflow/weir"
	"github.com/weirflow/weir/policy"
)

// succeed hands the quotas of an engine over to a new one.
func succeed(t *testing.T, from, to *policy.Engine) *policy.HandOver {
	t.Helper()
	var counts bytes.Buffer
	h, err := from.HandOver(&counts)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := to.ReadSnapshot(counts.Bytes()); err != nil {
		t.Fatal(err)
	}
	return h
}

func serving(t *testing.T, p policy.Policy) *policy.Engine {
	t.Helper()
	e, err := policy.New(p, policy.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { e.Close() })
	return e
}

func moving(limit int64) policy.Policy {
	return policy.Policy{
		Limits: []policy.Limit{
			{Name: "monthly", Key: []string{"header.x-team"}, Limit: weir.FixedWindow{Limit: limit, Align: "month"}},
			{Name: "all", Limit: weir.TokenBucket{Rate: weir.PerDay(1), Burst: 30_000}},
			{Name: "pace", Key: []string{"header.x-team"}, Limit: weir.TokenBucket{Rate: weir.PerSecond(1 << 20), Burst: 1 << 30}},
		},
		Routes: []policy.Route{
			{Match: "/one", Limits: []string{"monthly"}},
			{Match: "/", Limits: []string{"pace", "monthly", "all"}},
		},
	}
}

func requestOf(team, path string) policy.Request {
	return policy.Request{Method: "GET", Path: path, Header: http.Header{"X-Team": {team}}}
}

// TestHandOverIsExact: requests of two processes share the quotas of one while the one hands over to the
// other. As many are admitted as without, neither more nor less.
func TestHandOverIsExact(t *testing.T) {
	const limit, each = 2000, 1500
	for _, path := range []string{"/one", "/both"} {
		from, to := serving(t, moving(limit)), serving(t, moving(limit))
		var admitted, started atomic.Int64
		var callers sync.WaitGroup
		call := func(e *policy.Engine, wait <-chan struct{}) {
			callers.Go(func() {
				<-wait
				for range each {
					started.Add(1)
					if e.Decide(requestOf("red", path)).Outcome == policy.Allow {
						admitted.Add(1)
					}
				}
			})
		}
		now, later := make(chan struct{}), make(chan struct{})
		close(now)
		for range 2 {
			call(from, now)
			call(to, later)
		}
		for started.Load() < limit/4 {
			continue
		}
		h := succeed(t, from, to)
		close(later)
		store, _ := to.Quotas()
		h.Done(store)
		callers.Wait()
		if n := admitted.Load(); n != limit {
			t.Errorf("%s: %d of %d were admitted", path, n, limit)
		}
	}
}

// TestHandOverOfReservations: what is reserved before a handover is settled in the other process, and so is
// what is reserved after it by the process that leaves.
func TestHandOverOfReservations(t *testing.T) {
	from, to := serving(t, moving(1000)), serving(t, moving(1000))
	reserve := func(cost int64) *policy.Answer {
		t.Helper()
		a, err := from.Reserve(t.Context(), []policy.Ask{{Limit: "monthly", Key: []string{"red"}, Cost: cost}}, 0)
		if err != nil || !a.Allowed {
			t.Fatalf("%+v, %v", a, err)
		}
		return a
	}
	left := func() int64 { return to.Usage(t.Context(), "monthly", []string{"red"}, "")[0].Left }
	early, debt := reserve(100), reserve(10)
	h := succeed(t, from, to)
	store, forget := to.Quotas()
	h.Done(store)
	if got := left(); got != 890 {
		t.Errorf("%d are left after the handover", got)
	}
	later, kept := reserve(50), reserve(7)
	settle := func(a *policy.Answer, cost int64) {
		t.Helper()
		if err := a.Settle(t.Context(), []int64{cost}, 0); err != nil {
			t.Error(err)
		}
	}
	settle(early, 40)
	settle(debt, 30)
	settle(later, 45)
	if got := left(); got != 1000-40-30-45-7 {
		t.Errorf("%d are left after the settlements", got)
	}
	forget()
	settle(kept, 0)
	if got := left(); got != 1000-40-30-45-7 {
		t.Errorf("%d are left: a reservation that was forgotten stays charged", got)
	}
	if _, err := from.ChargeDone(t.Context(), policy.Ask{Limit: "monthly", Key: []string{"red"}, Cost: 2000}); err != nil {
		t.Error(err)
	}
	if v := to.Decide(requestOf("red", "/one")); v.Outcome != policy.Deny {
		t.Errorf("%v after work that was done in the process that leaves", v.Outcome)
	}
	if v := from.Decide(requestOf("red", "/both")); v.Outcome != policy.Deny || v.Limit != "monthly" {
		t.Errorf("%v by %q in the process that leaves", v.Outcome, v.Limit)
	}
	if v := from.Decide(requestOf("blue", "/both")); v.Outcome != policy.Allow {
		t.Errorf("%v for another team", v.Outcome)
	}
	if got := to.Usage(t.Context(), "all", nil, "")[0].Used; got != 1 {
		t.Errorf("%d are used of the limit for all: one was refused by another limit", got)
	}
}

// TestHandOverAbandoned: a process that does not start leaves the quotas to the one before, with all that
// was used; a second attempt hands them over.
func TestHandOverAbandoned(t *testing.T) {
	from := serving(t, moving(1000))
	use := func(e *policy.Engine, n int) {
		t.Helper()
		for range n {
			if v := e.Decide(requestOf("red", "/one")); v.Outcome != policy.Allow {
				t.Fatal(v.Outcome)
			}
		}
	}
	left := func(e *policy.Engine) int64 {
		return e.Usage(context.Background(), "monthly", []string{"red"}, "")[0].Left
	}
	use(from, 10)
	h := succeed(t, from, serving(t, moving(1000)))
	waited := make(chan policy.Outcome)
	go func() { waited <- from.Decide(requestOf("red", "/one")).Outcome }()
	h.Abandon()
	if got := <-waited; got != policy.Allow {
		t.Errorf("a request that waited: %v", got)
	}
	use(from, 9)
	next, err := from.Next(moving(500)) // a reload
	if err != nil {
		t.Fatal(err)
	}
	use(next, 1)
	if got := left(next); got != 500-21 {
		t.Errorf("%d are left", got)
	}
	to := serving(t, moving(700))
	h = succeed(t, next, to)
	store, _ := to.Quotas()
	h.Done(store)
	use(from, 1) // an engine of before the reload
	use(next, 2)
	again, err := next.Next(moving(500))
	if err != nil {
		t.Fatal(err)
	}
	use(again, 3)
	if got := left(to); got != 700-27 {
		t.Errorf("%d are left in the process that goes on", got)
	}
}

// TestHandOverTwice: a process that has taken the quotas over hands them on while the one before still has
// requests in flight. What these settle came to the last process as a reservation that it does not know, so that
// the estimate stayed. The same goes for requests that waited for a process that then did not start.
func TestHandOverTwice(t *testing.T) {
	first, second, third := serving(t, moving(1000)), serving(t, moving(1000)), serving(t, moving(1000))
	reserve := func(costs ...int64) *policy.Answer {
		t.Helper()
		var asks []policy.Ask
		for i, cost := range costs {
			asks = append(asks, []policy.Ask{{Limit: "monthly", Key: []string{"red"}, Cost: cost}, {Limit: "all", Cost: cost}}[i])
		}
		a, err := first.Reserve(t.Context(), asks, 0)
		if err != nil || !a.Allowed {
			t.Fatalf("%+v, %v", a, err)
		}
		return a
	}
	left := func() int64 { return third.Usage(t.Context(), "monthly", []string{"red"}, "")[0].Left }
	failed := succeed(t, first, serving(t, moving(1000)))
	waited := make(chan *policy.Answer)
	go func() { waited <- reserve(20) }()
	failed.Abandon()
	early := <-waited
	h := succeed(t, first, second)
	store, _ := second.Quotas()
	h.Done(store)
	alone, late, both := reserve(100), reserve(10), reserve(50, 50)
	h = succeed(t, second, third)
	if got := left(); got != 1000-20-100-10-50 {
		t.Errorf("%d are left after the second handover", got)
	}
	store, _ = third.Quotas()
	h.Done(store)
	for _, s := range []struct {
		of    *policy.Answer
		costs []int64
	}{{early, []int64{3}}, {alone, []int64{40}}, {late, []int64{30}}, {both, []int64{45, 60}}} {
		if err := s.of.Settle(t.Context(), s.costs, 0); err != nil {
			t.Error(err)
		}
	}
	if got := left(); got != 1000-3-40-30-45 {
		t.Errorf("%d are left after the settlements", got)
	}
	if got := third.Usage(t.Context(), "all", nil, "")[0].Used; got != 60 {
		t.Errorf("%d are used of the limit for all", got)
	}
}

// lost is a process that has ended.
type lost struct{ calls atomic.Int64 }

func (l *lost) Do(context.Context, []weir.Charge, []weir.Decision) error {
	l.calls.Add(1)
	return errors.New("connection reset")
}
func (l *lost) Close() error { return nil }

// TestHandOverToALostProcess: when the process that goes on ends, the one that leaves goes on by itself
// with the counts that it has.
func TestHandOverToALostProcess(t *testing.T) {
	from := serving(t, moving(10))
	for range 4 {
		from.Decide(requestOf("red", "/one"))
	}
	h := succeed(t, from, serving(t, moving(10)))
	gone := new(lost)
	h.Done(gone)
	var got []string
	for range 8 {
		got = append(got, from.Decide(requestOf("red", "/one")).Outcome.String())
	}
	if text := fmt.Sprint(got); text != "[allow allow allow allow allow allow deny deny]" || gone.calls.Load() != 1 {
		t.Errorf("%s after %d calls", text, gone.calls.Load())
	}
}

// TestHandOverOfALimitThatIsGone: the process that leaves goes on by itself with a limit that the policy of
// the other one no longer has, or that counts by another key there.
func TestHandOverOfALimitThatIsGone(t *testing.T) {
	p := moving(10)
	p.Limits[0].Key = []string{"header.x-other"}
	from, to := serving(t, moving(10)), serving(t, p)
	from.Decide(requestOf("red", "/one"))
	h := succeed(t, from, to)
	store, _ := to.Quotas()
	h.Done(store)
	for i, path := range []string{"/one", "/both", "/one"} {
		v := from.Decide(requestOf("red", path))
		if left := from.Usage(t.Context(), "monthly", []string{"red"}, "")[0].Left; v.Outcome != policy.Allow || left != int64(8-i) {
			t.Errorf("%s: %v, %d are left", path, v.Outcome, left)
		}
	}
}

// TestSettlementAfterALimitIsGone: a reservation of the process before is settled also if a reload has removed
// its limit meanwhile. Its settlement was an error, and it was remembered until that process ended.
func TestSettlementAfterALimitIsGone(t *testing.T) {
	from, to := serving(t, moving(1000)), serving(t, moving(1000))
	h := succeed(t, from, to)
	store, _ := to.Quotas()
	h.Done(store)
	a, err := from.Reserve(t.Context(), []policy.Ask{{Limit: "monthly", Key: []string{"red"}, Cost: 100}}, 0)
	if err != nil || !a.Allowed {
		t.Fatalf("%+v, %v", a, err)
	}
	without, err := to.Next(policy.Policy{})
	if err != nil {
		t.Fatal(err)
	}
	defer without.Close()
	if err := a.Settle(t.Context(), []int64{40}, 0); err != nil {
		t.Error(err)
	}
	if got := to.Usage(t.Context(), "monthly", []string{"red"}, "")[0].Left; got != 960 {
		t.Errorf("%d are left where it was reserved", got)
	}
}
