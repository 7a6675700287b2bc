package main

import (
	"runtime"
	"runtime/metrics"
	"testing"
	"time"
)

// TestReturning: memory is returned once little happens, and only if there is something to return.
func TestReturning(t *testing.T) {
	var allocated, live uint64
	collected := 0
	r := returning{
		read:    func() (uint64, uint64) { return allocated, live },
		collect: func() { collected++ },
	}
	for _, step := range []struct {
		what  string
		adds  uint64
		live  uint64
		wants int
	}{
		{"a start", 30 << 20, 1 << 20, 0},
		{"nothing after it", 0, 1 << 20, 1},
		{"still nothing", 0, 1 << 20, 1},
		{"little", quietGarbage, 1 << 20, 1},
		{"a burst", 20 << 20, 1 << 20, 1},
		{"more of it", 20 << 20, 1 << 20, 1},
		{"little after it", quietGarbage, 1 << 20, 2},
		{"a burst beside a large heap", 20 << 20, 800 << 20, 2},
		{"nothing after it", 0, 800 << 20, 2},
		{"a larger burst", 90 << 20, 800 << 20, 2},
		{"nothing after it", 0, 800 << 20, 3},
	} {
		allocated, live = allocated+step.adds, step.live
		if r.look(); collected != step.wants {
			t.Errorf("%s: collected %d times, want %d", step.what, collected, step.wants)
		}
	}
	for range 100 { // a trickle: what it leaves is collected at last
		allocated += quietGarbage
		live = 1 << 20
		r.look()
	}
	if want := 3 + 100*quietGarbage/leastGarbage; collected < want-1 || collected > want+1 {
		t.Errorf("a trickle was collected %d times, want %d", collected-3, want-3)
	}
}

// TestReturningLater: what requests hold that wait at the first collection is returned after they have gone, and what
// stays in use is collected a few times alone.
func TestReturningLater(t *testing.T) {
	for _, gone := range []int{3, 30, 1 << 30} { // the look at which the requests have gone
		var allocated uint64
		looks, collected, held := 0, 0, uint64(1<<20) // in use after the last collection
		r := returning{read: func() (uint64, uint64) { return allocated, held }}
		r.collect = func() {
			collected++
			if held = 100 << 20; looks >= gone {
				held = 1 << 20
			}
		}
		r.look()
		allocated += 100 << 20
		for ; looks < 2000; looks++ {
			r.look()
		}
		switch {
		case gone < 2000 && held != 1<<20:
			t.Errorf("%d bytes stay after requests that had gone at look %d", held, gone)
		case collected > 8:
			t.Errorf("collected %d times after one burst", collected)
		}
	}
}

// TestReturningToSystem: what a burst left is returned to the system, although nothing more is allocated.
func TestReturningToSystem(t *testing.T) {
	defer startReturning()()
	const burst = 8 << 20
	garbage := make([][]byte, 256)
	for i := range garbage {
		garbage[i] = make([]byte, burst/len(garbage))
	}
	most := held()
	runtime.KeepAlive(garbage)
	clear(garbage)
	for late := time.After(30 * time.Second); held() > most-burst/2; {
		select {
		case <-late:
			t.Fatalf("the heap holds %d bytes, of %d", held(), most)
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// held is how many bytes of memory the heap has from the system.
func held() (bytes uint64) {
	samples := [...]metrics.Sample{{Name: "/memory/classes/heap/objects:bytes"}, {Name: "/memory/classes/heap/unused:bytes"}, {Name: "/memory/classes/heap/free:bytes"}}
	metrics.Read(samples[:])
	for _, s := range samples {
		bytes += s.Value.Uint64()
	}
	return bytes
}
