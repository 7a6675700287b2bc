package keyed

import (
	"math"
	"slices"
	"sync"
	"testing"

	"github.com/weirflow/weir/internal/seeds"
)

// TestTheLeastBoundOfAShelf: however many goroutines change the bounds of segments at once, the shelf knows the
// least one afterwards. If it stayed below all of them, a full table would look for a key in this shelf alone, and
// refuse new keys once it was empty.
func TestTheLeastBoundOfAShelf(t *testing.T) {
	const segments = 8
	for round := range 300 {
		s := &shelfBounds{}
		s.empty()
		var all [segments]bounds
		for i := range all {
			all[i] = s.of(i)
			all[i].reset(40, math.MaxInt64)
			all[i].order()
		}
		var crowd sync.WaitGroup
		for i := range all {
			r := seeds.Of(t.Name() + string(rune('a'+i)) + string(rune('a'+round%26)))
			crowd.Go(func() {
				b := &all[i]
				for i := range int64(500) { // bounds rise with time, as in a table that keys pass through
					block, bound := b.least(0), 1000*i+r.Int64N(100_000)
					if r.IntN(20) == 0 {
						bound = math.MaxInt64
					}
					if b.set(block, bound); r.IntN(2) == 0 {
						b.lower(r.IntN(40), 1000*i+r.Int64N(100_000))
					}
				}
			})
		}
		crowd.Wait()
		least := int64(math.MaxInt64)
		for i := range all {
			b := &all[i]
			if of := slices.Min(b.blocks); b.first.Load() != of {
				t.Fatalf("round %d: the least bound of segment %d is %d, and known as %d", round, i, of, b.first.Load())
			}
			least = min(least, b.first.Load())
		}
		if s.least.Load() != least {
			t.Fatalf("round %d: the least bound is %d, and known as %d", round, least, s.least.Load())
		}
		if at, found := s.leastFrom(5); found != least || (at >= 0) != (least < math.MaxInt64) {
			t.Fatalf("round %d: the least bound is %d, and found as %d", round, least, found)
		}
	}
}
