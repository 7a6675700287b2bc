package weirtest_test

import (
	"testing"
	"time"

	"github.com/weirflow/weir"
	"github.com/weirflow/weir/weirtest"
)

// delayedAndCancelled is what remains of an IntervalBucket of 7 of which 5 are used: a reservation was made,
// a later one was delayed by it and cancelled, and another one came and was cancelled; then the first was.
func delayedAndCancelled(reserve func(cost int64, within time.Duration) (cancel func())) {
	first := reserve(1, 0)
	reserve(2, time.Millisecond)()
	reserve(1, 0)()
	first()
}

// TestDelayedAndCancelled is a case in which a store gave nothing of the first reservation back: the
// delayed one had found a full bucket at its time, and the list was cleaned by the next charge, although
// the delayed one was cancelled.
func TestDelayedAndCancelled(t *testing.T) {
	l := weir.IntervalBucket{Burst: 7, Refill: 7, Every: time.Millisecond}
	process, store := weirtest.NewModel(l, time.Microsecond), weirtest.NewVersions(time.Microsecond)
	process.Take(0, 5)
	store.Take(l, 0, 5)
	delayedAndCancelled(func(cost int64, within time.Duration) func() {
		id, _, _ := process.Reserve(0, cost, within.Microseconds())
		return func() { process.Cancel(0, id) }
	})
	delayedAndCancelled(func(cost int64, within time.Duration) func() {
		id, _, _ := store.Reserve(l, 0, cost, within.Microseconds())
		return func() { store.Settle(l, 0, id, 0) }
	})
	if a, b := process.Peek(0, 1).Remaining, store.Peek(l, 0, 1).Remaining; a != 2 || b != 2 {
		t.Errorf("%d remain in a process, %d in a store, want 2", a, b)
	}
}
