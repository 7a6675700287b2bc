package weir_test

import (
	"math"
	"testing"
	"time"

	"github.com/weirflow/weir"
)

// reserved makes a reservation and returns the time of its work.
func reserved(t *testing.T, l *weir.Limiter, cost int64, due time.Duration) weir.Reservation {
	t.Helper()
	r, ok := l.Reserve(cost, -1)
	if !ok || r.Delay() != due {
		t.Errorf("Reserve(%d): %v after %v, want %v", cost, ok, r.Delay(), due)
	}
	return r
}

// TestReservationsOfOneStepStayWithinTheBurst: if tokens could go below zero, and a promise were
// the step at which they are zero again, 6 and 9 would both go on at the first step: 15 at once,
// with a Burst of 10.
func TestReservationsOfOneStepStayWithinTheBurst(t *testing.T) {
	l, _ := onClock(t, weir.IntervalBucket{Burst: 10, Refill: 10, Every: time.Second})
	l.Take(5)
	reserved(t, l, 6, time.Second)
	reserved(t, l, 9, 2*time.Second)
}

// TestCancelAtAFullStep: cancelling a reservation for a step that fills the bucket restores the
// tokens before it. The bucket is not full before its time.
func TestCancelAtAFullStep(t *testing.T) {
	l, _ := onClock(t, weir.IntervalBucket{Burst: 1, Refill: 1, Every: time.Second})
	l.Take(1)
	reserved(t, l, 1, time.Second)
	reserved(t, l, 1, 2*time.Second).Cancel()
	reserved(t, l, 1, 2*time.Second)
}

// TestReserveBehindAQueueIsPromisedItsOwnStep: the turns of waiters are estimated by the sum of the
// costs before them, which is too early if a step refills more than fits into the bucket. At a
// promised time there is a token.
func TestReserveBehindAQueueIsPromisedItsOwnStep(t *testing.T) {
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

// TestADebtSurvivesASmallerBurst: the used tokens may exceed an int64.
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

// TestAWindowThatEndsWithTheClock: the last window of the clock is one window up to the end of the
// clock. The first one began before the clock, and ends where the next begins.
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

// TestNoCallerOvertakesTheFirstWaiter: a call that would fit is refused while the first waiter does
// not fit.
func TestNoCallerOvertakesTheFirstWaiter(t *testing.T) {
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

// TestALogKeepsChargesThatAPromiseWouldExpire: charges that will have expired at a promised time have not
// expired yet. They count again if the promise is cancelled.
func TestALogKeepsChargesThatAPromiseWouldExpire(t *testing.T) {
	l, _ := onClock(t, weir.SlidingLog{Limit: 1, Window: time.Second})
	l.Take(1)
	reserved(t, l, 1, time.Second).Cancel()
	if d := l.Take(1); d.Allowed || d.RetryAfter != time.Second {
		t.Errorf("two at once: %+v", d)
	}
}

// TestAnEqualPromiseStays: if one of two promises of the same time is cancelled, the other still
// lies ahead.
func TestAnEqualPromiseStays(t *testing.T) {
	l, _ := onClock(t, weir.SlidingLog{Limit: 2, Window: time.Second})
	reserved(t, l, 2, 0)
	first := reserved(t, l, 1, time.Second)
	reserved(t, l, 1, time.Second)
	first.Cancel()
	if d := l.Take(1); d.Allowed || d.RetryAfter != time.Second {
		t.Errorf("a third at once: %+v", d)
	}
}

// TestALogAtTheEndsOfTheClock: a log counts the first and the last reading of the clock.
func TestALogAtTheEndsOfTheClock(t *testing.T) {
	l := weir.SlidingLog{Limit: 1, Window: time.Second}
	for _, now := range []int64{math.MinInt64, math.MaxInt64} {
		state, d := weir.Step(l, nil, now, 1, 1)
		if !d.Allowed {
			t.Errorf("at %d: %+v", now, d)
		}
		if _, d = weir.Step(l, state, now, 1, 1); d.Allowed || d.ResetAfter != time.Second {
			t.Errorf("at %d: a second one: %+v", now, d)
		}
	}
	state, _ := weir.Step(l, nil, math.MaxInt64-int64(time.Second), 1, 1)
	if _, d := weir.Step(l, state, math.MaxInt64-1, 1, 1); d.Allowed || d.RetryAfter != 1 {
		t.Errorf("before the last moment: %+v", d)
	}
}

// TestALogKnowsALargeDebt: if a part of a sum beyond an int64 expires, the rest still counts.
func TestALogKnowsALargeDebt(t *testing.T) {
	l, _ := onClock(t, weir.SlidingLog{Limit: 1, Window: 1})
	reserved(t, l, 0, 0).Settle(math.MaxInt64)
	reserved(t, l, 1, 1)
	if d := l.Peek(1); d.ResetAfter != 2 {
		t.Errorf("%+v", d)
	}
}

// TestACorrectionKeepsThePromise: settling upwards while a promise lies ahead lets no caller go
// before it.
func TestACorrectionKeepsThePromise(t *testing.T) {
	for _, limit := range []weir.Limit{
		weir.SlidingWindow{Limit: 4, Window: 2 * time.Second, Slots: 2},
		weir.SlidingLog{Limit: 4, Window: 2 * time.Second},
		weir.FixedWindow{Limit: 4, Window: 2 * time.Second},
		weir.IntervalBucket{Burst: 4, Refill: 4, Every: 2 * time.Second},
	} {
		l, _ := onClock(t, limit)
		l.Take(2)
		small := reserved(t, l, 1, 0)
		reserved(t, l, 2, 2*time.Second)
		small.Settle(2)
		if d := l.Take(1); d.Allowed || d.RetryAfter != 2*time.Second {
			t.Errorf("%T: %+v", limit, d)
		}
	}
}

// TestACorrectionKeepsThePromiseHoweverFarBack: the same after the clock was set back by more than
// an int64 holds.
func TestACorrectionKeepsThePromiseHoweverFarBack(t *testing.T) {
	for _, limit := range []weir.Limit{
		weir.SlidingWindow{Limit: 4, Window: 2 * time.Second, Slots: 2},
		weir.SlidingLog{Limit: 4, Window: 2 * time.Second},
		weir.FixedWindow{Limit: 4, Window: 2 * time.Second},
		weir.IntervalBucket{Burst: 4, Refill: 4, Every: 2 * time.Second},
	} {
		l, clock := onClock(t, limit)
		l.Take(3)
		small := reserved(t, l, 1, 0)
		reserved(t, l, 1, 2*time.Second)
		clock.Set(math.MinInt64)
		small.Settle(2)
		clock.Set(0)
		if d := l.Take(1); d.Allowed || d.RetryAfter != 2*time.Second {
			t.Errorf("%T: %+v", limit, d)
		}
	}
}

// TestWideSlotsUpToTheEndOfTheClock: slots of many years work up to the end of the clock.
func TestWideSlotsUpToTheEndOfTheClock(t *testing.T) {
	l := weir.SlidingWindow{Limit: 1, Window: 36525 * 24 * time.Hour, Slots: 2}
	if _, d := weir.Step(l, nil, 4*int64(l.Window)/2, 1, 1); !d.Allowed {
		t.Errorf("%+v", d)
	}
	for _, width := range []time.Duration{1, 7, l.Window / 2} {
		l := weir.SlidingWindow{Limit: 1, Window: 2 * width, Slots: 2}
		for _, now := range []int64{math.MinInt64, math.MaxInt64} {
			state, d := weir.Step(l, nil, now, 1, 1)
			if !d.Allowed || d.ResetAfter < 1 {
				t.Errorf("slots of %d at %d: %+v", width, now, d)
			}
			if _, d = weir.Step(l, state, now, 1, 1); d.Allowed {
				t.Errorf("slots of %d at %d: a second one: %+v", width, now, d)
			}
		}
	}
}

// TestSlotsKnowALargeDebt: if a part of a total beyond an int64 leaves the window, the rest still
// counts.
func TestSlotsKnowALargeDebt(t *testing.T) {
	for _, direct := range []bool{true, false} {
		l, clock := onClock(t, weir.SlidingWindow{Limit: 1, Window: 2, Slots: 2})
		if !direct {
			weir.UnderLock(l)
		}
		reserved(t, l, 0, 0).Settle(math.MaxInt64)
		clock.Set(1)
		reserved(t, l, 0, 0).Settle(1)
		if d := l.Take(1); d.Allowed || d.RetryAfter != 2 {
			t.Errorf("%+v", d)
		}
	}
}

// TestAPromiseLeavesNoTraceOnceUndone: a log of two entries merges charges to make room for a
// promise. Cancelling the promise restores them.
func TestAPromiseLeavesNoTraceOnceUndone(t *testing.T) {
	l, clock := onClock(t, weir.SlidingLog{Limit: 3, Window: 10, MaxEntries: 2})
	for range 2 {
		l.Take(1)
		clock.Set(clock.Now() + 2)
	}
	reserved(t, l, 1, 0).Cancel()
	clock.Set(10)
	if d := l.Take(2); !d.Allowed || d.Remaining != 0 {
		t.Errorf("once the first has left: %+v", d)
	}
}

// TestAPromiseGivenBackBehindAnother: cancelling an earlier promise, and then a later one, does not
// restore the earlier one.
func TestAPromiseGivenBackBehindAnother(t *testing.T) {
	l, _ := onClock(t, weir.SlidingLog{Limit: 2, Window: time.Second})
	l.Take(1)
	first := reserved(t, l, 2, time.Second)
	second := reserved(t, l, 2, 2*time.Second)
	first.Cancel()
	second.Cancel()
	if d := l.Take(1); !d.Allowed {
		t.Errorf("nothing is promised: %+v", d)
	}
}

// TestSlidingCounterBehindAQueueIsNotTooLate: the time that callers behind a queue get is not later
// than their turn. If all of them fit into one window, it is exactly their turn.
func TestSlidingCounterBehindAQueueIsNotTooLate(t *testing.T) {
	l, clock := onClock(t, weir.SlidingCounter{Limit: 10, Window: 10 * time.Second})
	l.Take(5)
	start := 10 * time.Second
	clock.Set(int64(start))
	l.Take(5)
	var places []*weir.Place
	for _, c := range []struct {
		cost  int64
		delay time.Duration
	}{{1, 2 * time.Second}, {1, 4 * time.Second}, {1, 6 * time.Second}, {1, 8 * time.Second}, {1, start}, {1, start}, {9, 18 * time.Second}, {1, 2 * start}} {
		p, d := l.Join(c.cost, -1)
		if p == nil || p.Delay() != c.delay {
			t.Fatalf("Join(%d) returned %+v, %+v, want %v", c.cost, p, d, c.delay)
		}
		places = append(places, p)
	}
	for i, turn := range []time.Duration{
		2 * time.Second, 4 * time.Second, 6 * time.Second, 8 * time.Second, start, 11_111_111_112, 25 * time.Second, 3 * start,
	} {
		next, _ := clock.Next()
		if clock.Set(next); time.Duration(next)-start != turn {
			t.Errorf("turn %d came after %v, want %v", i, time.Duration(next)-start, turn)
		}
		if _, waits := <-places[i].Ready(); waits {
			t.Errorf("turn %d did not come", i)
		}
	}
}

// TestACounterAtTheEndsOfTheClock: the first window of the clock, which began before it, and the
// last, which ends after it, count like others.
func TestACounterAtTheEndsOfTheClock(t *testing.T) {
	const window = 7
	l := weir.SlidingCounter{Limit: 1, Window: window}
	into := int64(window + math.MinInt64%window)
	state, d := weir.Step(l, nil, math.MinInt64, 1, 1)
	if !d.Allowed || d.ResetAfter != time.Duration(2*window-into) {
		t.Errorf("at the beginning: %+v", d)
	}
	second := math.MinInt64 + window - into
	if _, d = weir.Step(l, state, second, 1, 1); d.Allowed || d.RetryAfter != window {
		t.Errorf("in the second window: %+v", d)
	}
	state, d = weir.Step(l, nil, math.MaxInt64, 1, 1)
	if !d.Allowed || d.ResetAfter != time.Duration(2*window-math.MaxInt64%window) {
		t.Errorf("at the end: %+v", d)
	}
	if _, d = weir.Step(l, state, math.MaxInt64, 1, 1); d.Allowed || d.RetryAfter != weir.Never {
		t.Errorf("a second one at the end: %+v", d)
	}
}

// TestAResetBeyondACentury: no wait is longer than 100 years, but ResetAfter may be.
func TestAResetBeyondACentury(t *testing.T) {
	const century = 36525 * 24 * time.Hour
	l := weir.IntervalBucket{Burst: 1, Refill: 1, Every: century}
	state, _ := weir.Step(l, nil, 0, 1, 1)
	if _, d := weir.Step(l, state, -1, 1, 1); d.RetryAfter != weir.Never || d.ResetAfter != century+1 {
		t.Errorf("%+v", d)
	}
}

// TestASwingingClockCreatesNothing: with a clock that swings back and forth, and a reservation
// cancelled at each later reading, at most the bound of the time between the extremes is admitted.
func TestASwingingClockCreatesNothing(t *testing.T) {
	const later = int64(25 * time.Second)
	rate := weir.Rate{N: 5, Per: 10 * time.Second}
	for most, limits := range map[int][]weir.Limit{
		15: {
			weir.SlidingLog{Limit: 5, Window: 10 * time.Second},
			weir.All(weir.SlidingLog{Limit: 5, Window: 10 * time.Second}, weir.TokenBucket{Rate: weir.PerSecond(1000), Burst: 1000}),
			weir.SlidingWindow{Limit: 5, Window: 10 * time.Second, Slots: 5},
			weir.FixedWindow{Limit: 5, Window: 10 * time.Second},
			weir.FixedWindow{Limit: 5, Window: 10 * time.Second, Align: weir.AlignFirst},
			weir.IntervalBucket{Burst: 5, Refill: 5, Every: 10 * time.Second},
		},
		17: {
			weir.TokenBucket{Rate: rate, Burst: 5},
			weir.LeakyBucket{Rate: rate, Queue: 4, DelayAfter: 4},
			weir.SlidingCounter{Limit: 5, Window: 10 * time.Second},
		},
	} {
		for _, limit := range limits {
			for _, order := range []string{"cancelled later", "cancelled after the clock went back"} {
				now, admitted := int64(0), 0
				l, err := weir.New(limit, weir.WithClock(func() int64 { return now }))
				if err != nil {
					t.Fatal(err)
				}
				for range 20 {
					for range 8 {
						if l.Allow() {
							admitted++
						}
					}
					now = later
					r, ok := l.Reserve(1, 0)
					if order != "cancelled later" {
						now = 0
					}
					if ok {
						r.Cancel()
					}
					now = 0
				}
				if admitted > most {
					t.Errorf("%+v, %s: %d admitted, at most %d may be", limit, order, admitted, most)
				}
			}
		}
	}
}
