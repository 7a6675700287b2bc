package claim

import (
	"sync"
	"sync/atomic"
	"testing"
)

func TestEachMarkIsClaimedOnce(t *testing.T) {
	var marks Marks
	for i := range 2000 { // across several blocks
		m := marks.Next()
		if m.Claimed() {
			t.Fatalf("mark %d was claimed when new", i)
		}
		var won atomic.Int32
		var wg sync.WaitGroup
		for range 4 {
			wg.Go(func() {
				if m.Claim() {
					won.Add(1)
				}
			})
		}
		wg.Wait()
		if won.Load() != 1 || !m.Claimed() {
			t.Fatalf("mark %d was claimed %d times", i, won.Load())
		}
	}
}

func TestZeroMarkIsClaimed(t *testing.T) {
	var m Mark
	if !m.Claimed() || m.Claim() {
		t.Error("the zero Mark could be claimed")
	}
}

func TestMarksAreCheap(t *testing.T) {
	var marks Marks
	if n := testing.AllocsPerRun(10_000, func() { marks.Next().Claim() }); n > 0 {
		t.Errorf("%v allocations a mark", n)
	}
}
