package weir_test

import (
	"testing"
	"time"

	"github.com/weirflow/weir"
)

// queued has limits that 10 at once use up, with the time until the next request may go.
var queued = []weir.Limit{
	weir.LeakyBucket{Rate: weir.PerSecond(3), Queue: 40},
	weir.LeakyBucket{Rate: weir.PerSecond(3), Queue: 40, DelayAfter: 9},
	weir.TokenBucket{Rate: weir.PerSecond(3), Burst: 10},
	weir.SmoothBursty{Rate: weir.PerSecond(3), MaxBurst: time.Second},
	weir.WarmUp{Rate: weir.PerSecond(3), Period: time.Second},
	weir.IntervalBucket{Burst: 10, Refill: 1, Every: time.Second},
	weir.FixedWindow{Limit: 10, Window: 5 * time.Second},
	weir.SlidingWindow{Limit: 10, Window: 5 * time.Second, Slots: 5},
	weir.SlidingCounter{Limit: 10, Window: 5 * time.Second},
	weir.SlidingLog{Limit: 10, Window: 5 * time.Second},
	weir.All(weir.TokenBucket{Rate: weir.PerSecond(3), Burst: 10}, weir.SlidingLog{Limit: 12, Window: 5 * time.Second}),
}

// TestKeptPlaceIsGivenBack: a place could not be given back after its turn. Whether it is cancelled
// before its turn, at its turn or later, the limiter is as if it had never been taken.
func TestKeptPlaceIsGivenBack(t *testing.T) {
	for _, limit := range queued {
		for _, after := range []time.Duration{0, 1, time.Millisecond, 700 * time.Millisecond} {
			for _, early := range []bool{true, false} {
				l, c := onClock(t, limit)
				never, clock := onClock(t, limit)
				c.Set(int64(time.Hour))
				clock.Set(int64(time.Hour))
				if l.Take(10) != never.Take(10) {
					t.Fatal("the limiters differ")
				}
				place, d := l.JoinKept(2, -1)
				if place == nil || !d.Allowed || place.Delay() <= 0 {
					t.Fatalf("%+v: %+v", limit, d)
				}
				at := c.Now() + int64(place.Delay()+after)
				if early {
					at = c.Now() + int64(place.Delay()/2)
				}
				c.Set(at)
				clock.Set(at)
				select {
				case <-place.Ready():
					if early || place.Err() != nil || place.Leave() {
						t.Errorf("%+v: early: %v, %v", limit, early, place.Err())
					}
				default:
					if !early {
						t.Errorf("%+v: the turn has not come", limit)
					}
				}
				place.Cancel()
				place.Settle(5) // the first wins
				for _, later := range []time.Duration{0, 1, 100 * time.Millisecond, time.Second, 5 * time.Second, 20 * time.Second} {
					c.Set(at + int64(later))
					clock.Set(at + int64(later))
					if got, want := l.Peek(1), never.Peek(1); got != want {
						t.Errorf("%+v, cancelled %v after its turn (early: %v), %v later:\n got %+v\nwant %+v", limit, after, early, later, got, want)
						break
					}
				}
				if l.Waiting() != 0 || l.Inexact() != 0 {
					t.Errorf("%d wait, %d inexact", l.Waiting(), l.Inexact())
				}
			}
		}
	}
}

// TestKeptPlaceIsSettled: for less than the estimate, for more, and while it waits.
func TestKeptPlaceIsSettled(t *testing.T) {
	for _, c := range []struct {
		waits  bool
		actual int64
		left   int64 // of 10, just after the turn
	}{{false, 0, 2}, {false, 1, 1}, {false, 2, 0}, {false, 4, 0}, {true, 0, 2}, {true, 1, 1}} {
		l, clock := onClock(t, weir.TokenBucket{Rate: weir.PerSecond(1), Burst: 10})
		l.Take(10)
		place, _ := l.JoinKept(2, -1)
		if !c.waits {
			clock.Set(int64(2 * time.Second))
		}
		place.Settle(c.actual)
		place.Cancel()
		clock.Set(int64(2 * time.Second))
		reset := 8*time.Second + time.Duration(c.actual)*time.Second
		if d := l.Peek(0); d.Remaining != c.left || d.ResetAfter != reset {
			t.Errorf("%+v: %+v", c, d)
		}
	}
}

// TestKeptPlaceThatMayGoAtOnce: there is a place, its turn has come, and it can be given back.
func TestKeptPlaceThatMayGoAtOnce(t *testing.T) {
	for _, limit := range queued {
		l, c := onClock(t, limit)
		c.Set(int64(time.Hour))
		before := l.Peek(1)
		for _, cost := range []int64{0, 1} {
			place, d := l.JoinKept(cost, 0)
			if place == nil || place.Delay() != 0 || !d.Allowed || d != l.Peek(0) && cost > 0 {
				t.Fatalf("%+v: %+v", limit, d)
			}
			<-place.Ready()
			place.Cancel()
		}
		if got := l.Peek(1); got != before {
			t.Errorf("%+v: %+v, want %+v", limit, got, before)
		}
	}
}

// TestKeptPlaceBehindAReservation: a Reserve charges the waiters ahead of it. A kept place among
// them can still be given back after its turn.
func TestKeptPlaceBehindAReservation(t *testing.T) {
	l, c := onClock(t, weir.TokenBucket{Rate: weir.PerSecond(1), Burst: 10})
	l.Take(10)
	place, _ := l.JoinKept(2, -1)
	r, ok := l.Reserve(3, -1)
	if !ok || r.Delay() != 5*time.Second {
		t.Fatal(r.Decision())
	}
	c.Set(int64(3 * time.Second))
	<-place.Ready()
	c.Set(int64(20 * time.Second))
	if d := l.Peek(0); d.Remaining != 10 {
		t.Fatal(d)
	}
	l, c = onClock(t, weir.TokenBucket{Rate: weir.PerSecond(1), Burst: 10})
	l.Take(10)
	place, _ = l.JoinKept(2, -1)
	r, _ = l.Reserve(3, -1)
	c.Set(int64(6 * time.Second))
	place.Cancel()
	r.Cancel()
	if d := l.Peek(0); d.Remaining != 6 || d.ResetAfter != 4*time.Second {
		t.Errorf("%+v", d)
	}
}
