package weir_test

import (
	"math"
	"testing"
	"time"

	"github.com/weirflow/weir"
)

// reserved reserves and returns when the work is due.
func reserved(t *testing.T, l *weir.Limiter, cost int64, due time.Duration) weir.Reservation {
	t.Helper()
	r, ok := l.Reserve(cost, -1)
	if !ok || r.Delay() != due {
		t.Errorf("Reserve(%d): %v after %v, want %v", cost, ok, r.Delay(), due)
	}
	return r
}

// TestPromisesOfOneStepStayWithinTheBurst: were tokens taken below zero instead, due when they are zero again, 6 and 9 would both go at
// the first step: 15 at one instant, of a Burst of 10.
func TestPromisesOfOneStepStayWithinTheBurst(t *testing.T) {
	l, _ := onClock(t, weir.IntervalBucket{Burst: 10, Refill: 10, Every: time.Second})
	l.Take(5)
	reserved(t, l, 6, time.Second)
	reserved(t, l, 9, 2*time.Second)
}

// TestUndoneAtAFullStep: a reservation due at a step that fills the bucket leaves, undone, the tokens that there were before it, and not
// a bucket that is full before its time.
func TestUndoneAtAFullStep(t *testing.T) {
	l, _ := onClock(t, weir.IntervalBucket{Burst: 1, Refill: 1, Every: time.Second})
	l.Take(1)
	reserved(t, l, 1, time.Second)
	reserved(t, l, 1, 2*time.Second).Cancel()
	reserved(t, l, 1, 2*time.Second)
}

// TestReserveBehindALineIsPromisedItsOwnStep: those who wait are told a time by the sum of the costs before them, which is too early where
// a step brings more than the bucket holds; a promise is of the time at which there is a token.
func TestReserveBehindALineIsPromisedItsOwnStep(t *testing.T) {
	l, _ := onClock(t, weir.IntervalBucket{Burst: 1, Refill: 2, Every: time.Second})
	l.Take(1)
	if p, _ := l.Join(1, -1); p == nil {
		t.Fatal("nobody waits")
	}
	reserved(t, l, 1, 2*time.Second)
	if r, ok := l.Reserve(1, 2*time.Second); ok || r.Delay() != time.Second {
		t.Errorf("a third within 2s: %v, to come back after %v", ok, r.Delay())
	}
}

// TestADebtSurvivesASmallerBurst: what was used may be more than an int64 holds.
func TestADebtSurvivesASmallerBurst(t *testing.T) {
	l, _ := onClock(t, weir.IntervalBucket{Burst: math.MaxInt64, Refill: math.MaxInt64, Every: 1})
	l.Take(1)
	r := reserved(t, l, 1, 0)
	r.Settle(math.MaxInt64)
	if err := l.SetLimit(weir.IntervalBucket{Burst: 1, Refill: 1, Every: 1}); err != nil {
		t.Fatal(err)
	}
	if d := l.Take(1); d.Allowed || d.RetryAfter != weir.Never {
		t.Errorf("a debt of 2^63 was forgotten: %+v", d)
	}
}

// TestAWindowThatEndsWithTheClock: the last window of the clock is one window, at the very end of the clock too, and the first one ends
// where the next begins, though it began before the clock.
func TestAWindowThatEndsWithTheClock(t *testing.T) {
	l := weir.FixedWindow{Limit: 1, Window: 7}
	state, d := weir.Step(l, nil, math.MaxInt64, 1, 1)
	if !d.Allowed {
		t.Errorf("%+v", d)
	}
	if _, d = weir.Step(l, state, math.MaxInt64, 1, 1); d.Allowed || d.RetryAfter != weir.Never {
		t.Errorf("a second one in the last window: %+v", d)
	}
	state, _ = weir.Step(l, nil, math.MinInt64, 1, 1)
	_, d = weir.Step(l, state, math.MinInt64, 1, 1)
	if want := time.Duration(7 - (7+math.MinInt64%7)%7); d.RetryAfter != want {
		t.Errorf("the first window ends after %v, want %v", d.RetryAfter, want)
	}
}

// TestNobodyOvertakesTheFirstInLine: one who would fit is refused while one who does not fit waits.
func TestNobodyOvertakesTheFirstInLine(t *testing.T) {
	for _, limit := range []weir.Limit{
		weir.TokenBucket{Rate: weir.PerSecond(1), Burst: 10},
		weir.IntervalBucket{Burst: 10, Refill: 10, Every: time.Second},
		weir.FixedWindow{Limit: 10, Window: time.Second},
		weir.SlidingWindow{Limit: 20, Window: time.Second, Slots: 10, SlotLimit: 10},
		weir.SlidingCounter{Limit: 10, Window: time.Second},
		weir.SlidingLog{Limit: 10, Window: time.Second},
	} {
		l, _ := onClock(t, limit)
		l.Take(1)
		if p, _ := l.Join(10, -1); p == nil {
			t.Fatalf("%T: nobody waits", limit)
		}
		if d := l.Take(1); d.Allowed || d.Remaining != 0 || d.RetryAfter < 1 {
			t.Errorf("%T: while one waits: %+v", limit, d)
		}
	}
}
