package main

import (
	"runtime/debug"
	"runtime/metrics"
	"time"
)

// newBallast returns 64 MiB that are never touched, so that they take no memory. The garbage collector lets
// the heap grow by as much as is in use before it collects. A gateway uses little memory and makes much
// garbage, and would collect dozens of times a second; with the ballast, it collects after 64 MiB of garbage
// at the earliest.
//
// It is in pieces: what is allocated as a whole is cleared as a whole, and so touched, if any part of it was
// in use before.
func newBallast() [][]byte {
	pieces := make([][]byte, 64)
	for i := range pieces {
		pieces[i] = make([]byte, 1<<20)
	}
	return pieces
}

const (
	returnEvery  = 500 * time.Millisecond
	quietGarbage = 512 << 10 // bytes allocated in that time, at most, while little happens
	leastGarbage = 4 << 20   // that are worth a collection

	// how many times returnEvery lie between a collection and the first one after it, while more is in use than before
	// the burst, and how many at most: each takes twice as long as the one before
	firstPause, lastPause = 4, 128
)

// startReturning starts to return memory to the system when little happens, until the function that it returns is
// called. Without it, what a burst of requests left would stay: nothing makes the garbage for the next
// collection, and the runtime keeps what it collected for as large a heap as the ballast stands for.
func startReturning() (stop func()) {
	over, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		tick := time.NewTicker(returnEvery)
		defer tick.Stop()
		r := returning{read: readHeap, collect: debug.FreeOSMemory}
		for first := true; ; first = false {
			select {
			case <-over:
				return
			case <-tick.C:
				if first {
					_ = dropProgramPages() // it only saves memory
				}
				r.look()
			}
		}
	}()
	return func() { close(over); <-ended }
}

// A returning knows how much was allocated since memory was last returned.
type returning struct {
	read    func() (allocated, live uint64) // all bytes ever allocated, and those in use after the latest collection
	collect func()

	seen uint64 // allocated at the last look
	done uint64 // and when memory was last returned

	rest   uint64 // in use before the burst
	pause  int    // how many looks lie between the last collection and the next
	passed int    // how many have passed
}

// look is called every returnEvery. It collects if little was allocated since the last look, but much since memory
// was last returned: beside a large heap, which takes longer to collect, an eighth of it. If requests of a burst
// waited then, what they held is in use: look collects again later, in longer and longer pauses.
func (r *returning) look() {
	allocated, live := r.read()
	quiet := allocated-r.seen <= quietGarbage
	r.seen = allocated
	switch {
	case !quiet:
	case allocated-r.done >= max(leastGarbage, live/8):
		r.collectAt(allocated)
		r.pause = firstPause
	case r.pause == 0:
		r.rest = live
	case live <= r.rest+max(leastGarbage, r.rest/8) || r.pause > lastPause:
		r.pause = 0
	default:
		if r.passed++; r.passed >= r.pause {
			r.collectAt(allocated)
			r.pause *= 2
		}
	}
}

func (r *returning) collectAt(allocated uint64) {
	r.collect()
	r.done, r.passed = allocated, 0
}

// readHeap stops nothing, and takes some microseconds.
func readHeap() (allocated, live uint64) {
	samples := [...]metrics.Sample{{Name: "/gc/heap/allocs:bytes"}, {Name: "/gc/heap/live:bytes"}}
	metrics.Read(samples[:])
	return samples[0].Value.Uint64(), samples[1].Value.Uint64()
}
