package policy_test

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/weirflow/weir"
	"github.com/weirflow/weir/policy"
)

// TestQueueWithoutRoom: a leaky bucket whose queue has no room decides as Join of the limit does, without an allocation.
func TestQueueWithoutRoom(t *testing.T) {
	limit := weir.LeakyBucket{Rate: weir.PerMinute(7)}
	now := int64(time.Hour)
	clock := func() int64 { return now }
	e, err := policy.New(speedPolicy(limit), policy.Options{Clock: clock})
	if err != nil {
		t.Fatal(err)
	}
	l, err := weir.New(limit, weir.WithClock(clock))
	if err != nil {
		t.Fatal(err)
	}
	req := speedRequest("/one")
	r := rand.New(rand.NewPCG(1, 2))
	admitted := 0
	for range 2000 {
		now += r.Int64N(int64(6 * time.Second))
		_, want := l.Join(1, time.Hour)
		got := e.Decide(req).Decision
		if got.By, want.By = "", ""; got != want {
			t.Fatalf("at %v: %+v, want %+v", time.Duration(now), got, want)
		}
		if got.Allowed {
			admitted++
		}
	}
	if admitted == 0 || admitted == 2000 {
		t.Errorf("%d of 2000 admitted", admitted)
	}
	e.Decide(req)
	if n := testing.AllocsPerRun(100, func() { e.Decide(req) }); n != 0 {
		t.Errorf("%v allocations", n)
	}
	if err := e.Close(); err != nil {
		t.Error(err)
	}
}
