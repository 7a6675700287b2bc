package main

import (
	"sync/atomic"
	"testing"
	"time"
)

func TestTimed(t *testing.T) {
	for _, procs := range []int{1, 2, 5} {
		var calls, ops atomic.Int64
		r := timed(func(n int) int {
			calls.Add(1)
			ops.Add(int64(n))
			<-time.After(time.Millisecond)
			return n - 1
		}, 10, procs)
		if calls.Load() != int64(procs) || ops.Load() != int64(10*procs) || r.ops != 10*procs || r.yes != 9*procs {
			t.Errorf("%d goroutines: %d calls, %d operations, %+v", procs, calls.Load(), ops.Load(), r)
		}
		if r.took < time.Millisecond || r.perOp() != float64(r.took)/float64(10*procs) {
			t.Errorf("%d goroutines: %+v, %v ns/op", procs, r, r.perOp())
		}
	}
}

// TestAllAtOnce: no loop begins before all goroutines are there.
func TestAllAtOnce(t *testing.T) {
	const procs = 4
	var inside atomic.Int64
	yes, _ := atOnce(func(int) int {
		inside.Add(1)
		for deadline := time.Now().Add(10 * time.Second); inside.Load() < procs; <-time.After(time.Millisecond) {
			if time.Now().After(deadline) {
				return 0
			}
		}
		return 1
	}, 1, procs)
	if yes != procs {
		t.Errorf("%d of %d goroutines met the others", yes, procs)
	}
}

func TestCalibrate(t *testing.T) {
	const want = 20 * time.Millisecond
	for _, perOp := range []time.Duration{1, 37, 5000, 3 * time.Millisecond, time.Second} {
		run := func(n int) time.Duration { return time.Duration(n) * perOp }
		if n := calibrate(want, run); n != max(1, int(want/perOp)) {
			t.Errorf("%v per operation: %d operations", perOp, n)
		}
	}
}

// TestCalibrateInterrupted: an interrupted run does not count as a slow operation.
func TestCalibrateInterrupted(t *testing.T) {
	runs := 0
	n := calibrate(20*time.Millisecond, func(n int) time.Duration {
		took := time.Duration(n) * 100
		if runs++; runs%3 != 0 {
			took += 50 * time.Millisecond
		}
		return took
	})
	if n != 200_000 {
		t.Errorf("%d operations", n)
	}
}

// TestCalibrateNothing: calibrate also ends for an operation too fast for the clock.
func TestCalibrateNothing(t *testing.T) {
	if n := calibrate(time.Millisecond, func(int) time.Duration { return 0 }); n < 1 {
		t.Errorf("%d operations", n)
	}
}
