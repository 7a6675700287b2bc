package group_test

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirflow/weir"
	"github.com/weirflow/weir/adaptive"
	"github.com/weirflow/weir/group"
	"github.com/weirflow/weir/weirtest"
)

// adaptively returns an adaptive limiter with so many places.
func adaptively(t *testing.T, places int64, queue adaptive.Queue) *adaptive.Limiter {
	t.Helper()
	l, err := adaptive.New(adaptive.Options{Algorithm: adaptive.Knee{Initial: places, Max: places}, Name: "in-flight", Queue: queue})
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// TestAdaptiveCharge: rate, a place of Concurrency, a limit in a store and an adaptive limit are charged together or
// not at all, and one Done leaves all.
func TestAdaptiveCharge(t *testing.T) {
	var clock weirtest.Clock
	rate, err := weir.New(weir.TokenBucket{Rate: weir.PerHour(1), Burst: 3}, weir.Named("rate"), weir.WithClock(clock.Now))
	if err != nil {
		t.Fatal(err)
	}
	places, err := weir.NewConcurrency(weir.Concurrency{Limit: 5}, weir.Named("places"))
	if err != nil {
		t.Fatal(err)
	}
	stored := &store{Store: weirtest.NewStore(clock.Now)}
	shared, err := weir.NewShared(weir.TokenBucket{Rate: weir.PerHour(1), Burst: 10}, stored, weir.Named("shared"))
	if err != nil {
		t.Fatal(err)
	}
	l := adaptively(t, 2, adaptive.Queue{})
	take := func() (*group.Reservation, weir.Decision) {
		r, d, err := group.Take(t.Context(), group.Adaptive(l, adaptive.Request{}), group.One(rate, 1), group.InFlight(places, 1), group.Shared(shared, "k", 1))
		if err != nil {
			t.Fatal(err)
		}
		return r, d
	}
	first, d := take()
	if !d.Allowed || d.By != "rate" || d.Remaining != 2 || l.InFlight() != 1 {
		t.Fatalf("%+v, %d in flight", d, l.InFlight())
	}
	second, _ := take()
	calls := stored.calls
	for range 3 {
		if _, d := take(); d.Allowed || d.By != "in-flight" || d.RetryAfter != weir.Never {
			t.Errorf("without a place: %+v", d)
		}
	}
	if rate.Peek(0).Remaining != 1 || places.Peek(0).Remaining != 3 || stored.calls != calls || l.Outcomes().Refused != 3 {
		t.Errorf("what a refused call has cost: %+v, %+v, %d calls of the store, %+v", rate.Peek(0), places.Peek(0), stored.calls-calls, l.Outcomes())
	}
	first.Done(weir.Dropped)
	first.Done(weir.OK)
	if err := second.Settle(t.Context(), 0, 1, 1, 1); err != nil {
		t.Fatal(err)
	}
	if err := second.Cancel(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got := l.Outcomes(); got != (adaptive.Outcomes{Ignored: 1, Dropped: 1, Refused: 3}) || l.InFlight() != 0 || places.Peek(0).Remaining != 5 {
		t.Errorf("%+v, %d in flight, %+v", got, l.InFlight(), places.Peek(0))
	}
	take()
	if _, d := take(); d.By != "rate" || l.InFlight() != 1 { // three are taken
		t.Errorf("beyond the rate: %+v, %d in flight", d, l.InFlight())
	}
	stored.err = errors.New("down")
	rate.SetLimit(weir.TokenBucket{Rate: weir.PerHour(1), Burst: 10})
	if _, _, err := group.Take(t.Context(), group.Adaptive(l, adaptive.Request{}), group.Shared(shared, "k", 1)); err == nil || l.InFlight() != 1 {
		t.Errorf("a store that fails: %v, %d in flight", err, l.InFlight())
	}
}

// TestAdaptiveGroupWait: Wait waits in the queue of an adaptive limit, which counts the call once.
func TestAdaptiveGroupWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := adaptively(t, 1, adaptive.Queue{Length: 1, Wait: time.Second})
		first, _, err := group.Take(t.Context(), group.Adaptive(l, adaptive.Request{}))
		if err != nil {
			t.Fatal(err)
		}
		results := make(chan error, 2)
		for range 2 { // one in the queue, and one beyond it
			go func() {
				r, err := group.Wait(t.Context(), group.Adaptive(l, adaptive.Request{}))
				r.Done(weir.OK)
				results <- err
			}()
			synctest.Wait()
		}
		if err := <-results; !errors.Is(err, weir.ErrLimited) {
			t.Errorf("beyond the queue: %v", err)
		}
		time.Sleep(100 * time.Millisecond)
		first.Done(weir.OK)
		if err := <-results; err != nil {
			t.Error(err)
		}
		if got := l.Outcomes(); got != (adaptive.Outcomes{OK: 2, Refused: 1}) {
			t.Errorf("%+v", got)
		}
		full := adaptively(t, 1, adaptive.Queue{})
		_, _, _ = group.Take(t.Context(), group.Adaptive(full, adaptive.Request{}))
		if _, err := group.Wait(t.Context(), group.Adaptive(full, adaptive.Request{})); !errors.Is(err, weir.ErrLimited) || full.Outcomes().Refused != 1 {
			t.Errorf("without a queue: %v, %+v", err, full.Outcomes())
		}
	})
}
