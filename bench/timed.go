package main

import (
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
	"time"
)

// A loop does its operation n times and returns how many were admitted. It is a plain loop in the
// subject's own closure, so that no interface or function value is called for each operation.
type loop func(n int) (yes int)

// A reading is one measurement.
type reading struct {
	ops    int           // of all goroutines together
	took   time.Duration // wall-clock time
	yes    int
	allocs uint64
}

// perOp returns the wall-clock nanoseconds per operation. With k goroutines at once, a subject
// without contention shows 1/k of its time alone.
func (r reading) perOp() float64 { return float64(r.took.Nanoseconds()) / float64(r.ops) }

// timed runs a loop n times, on each of procs goroutines at once.
func timed(l loop, n, procs int) reading {
	r := reading{ops: n * procs}
	before := mallocs()
	if procs == 1 {
		begin := time.Now()
		r.yes = l(n)
		r.took = time.Since(begin)
	} else {
		r.yes, r.took = atOnce(l, n, procs)
	}
	r.allocs = mallocs() - before
	return r
}

// atOnce runs a loop on several goroutines. The last goroutine to arrive starts the clock, and the
// last one to finish stops it. So the time to start goroutines does not count.
func atOnce(l loop, n, procs int) (yes int, took time.Duration) {
	var arrived, finished, all atomic.Int64
	var open atomic.Bool
	var begin time.Time
	var wg sync.WaitGroup
	for range procs {
		wg.Go(func() {
			if arrived.Add(1) == int64(procs) {
				begin = time.Now()
				open.Store(true)
			}
			for !open.Load() {
				runtime.Gosched()
			}
			all.Add(int64(l(n)))
			if finished.Add(1) == int64(procs) {
				took = time.Since(begin)
			}
		})
	}
	wg.Wait()
	return int(all.Load()), took
}

// crews are how many goroutines measure at once: one, and one for each core.
func crews() []int {
	if n := runtime.GOMAXPROCS(0); n > 1 {
		return []int{1, n}
	}
	return []int{1}
}

// where returns the end of a title, with the number of goroutines.
func where(procs int) string {
	if procs == 1 {
		return "alone"
	}
	return fmt.Sprintf("%d goroutines at once", procs)
}

// mallocs returns how many objects this process has allocated so far.
func mallocs() uint64 {
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.Mallocs
}

// calibrate returns how many operations a loop needs to run for about the duration want. run does n
// of them. The shortest of three runs counts, because any run may be interrupted.
func calibrate(want time.Duration, run func(n int) time.Duration) int {
	const most = 1 << 40
	for n := 1; ; n *= 4 {
		took := max(1, min(run(n), run(n), run(n)))
		if took >= want/8 || n >= most {
			return max(1, int(float64(n)*float64(want)/float64(took)))
		}
	}
}
