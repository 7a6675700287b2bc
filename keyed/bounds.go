package keyed

import (
	"math"
	"slices"
	"sync"
	"sync/atomic"
)

// fewBlocks is how many blocks have an entry of leasts: finding the block with the least bound takes
// some 20 ns.
const fewBlocks = 32

// bounds are lower bounds, one for each block of a segment. They are guarded by the segment's lock.
type bounds struct {
	blocks []int64
	leasts []int64       // the minimum of each few blocks
	first  *atomic.Int64 // the minimum of all, in its shelf
	shelf  *shelfBounds
}

// The bounds of a shelf.
const (
	idleBounds = iota // when a key may be idle
	rankBounds
)

// shelfBounds are the least bounds of the segments of a shelf. They are stored together, so that
// scanning them is fast. They are read without a lock.
type shelfBounds struct {
	mu    sync.Mutex   // of changes
	least atomic.Int64 // the minimum of first
	first [64]atomic.Int64
}

// of returns the bounds of one segment, without blocks.
func (s *shelfBounds) of(segment int) bounds { return bounds{first: &s.first[segment], shelf: s} }

// empty makes the bounds those of a shelf without segments.
func (s *shelfBounds) empty() {
	s.least.Store(math.MaxInt64)
	for i := range s.first {
		s.first[i].Store(math.MaxInt64)
	}
}

// reset sets the bound of each of n blocks. The minima are stale until order is called.
func (b *bounds) reset(n int, bound int64) {
	b.blocks = make([]int64, n)
	for i := range b.blocks {
		b.blocks[i] = bound
	}
	b.leasts = make([]int64, (n+fewBlocks-1)/fewBlocks)
}

// order computes the minima; there are none before the first reset.
func (b *bounds) order() {
	if b.blocks == nil {
		return
	}
	for few := range b.leasts {
		b.leasts[few] = slices.Min(b.few(few))
	}
	b.shelf.set(b.first, slices.Min(b.leasts))
}

func (b *bounds) few(few int) []int64 {
	return b.blocks[few*fewBlocks : min((few+1)*fewBlocks, len(b.blocks))]
}

// lower lowers the bound of a block, if it is above the given one.
func (b *bounds) lower(block int, bound int64) {
	if bound < b.blocks[block] {
		b.blocks[block] = bound
		if few := block / fewBlocks; bound < b.leasts[few] {
			b.leasts[few] = bound
			if bound < b.first.Load() {
				b.shelf.set(b.first, bound)
			}
		}
	}
}

// set sets the bound of a block, up or down, after searching it.
func (b *bounds) set(block int, bound int64) {
	was := b.blocks[block]
	if was == bound {
		return
	}
	b.blocks[block] = bound
	few := block / fewBlocks
	least := b.leasts[few]
	if b.leasts[few] = min(least, bound); was == least {
		b.leasts[few] = slices.Min(b.few(few))
	}
	if b.leasts[few] != least {
		b.shelf.set(b.first, slices.Min(b.leasts))
	}
}

// least finds the block with the least bound: the first one from a block on, or else the first of
// all.
func (b *bounds) least(from int) (block int) {
	first := b.first.Load()
	if from < len(b.blocks) {
		few := from / fewBlocks
		if i := slices.Index(b.blocks[from:min((few+1)*fewBlocks, len(b.blocks))], first); i >= 0 {
			return from + i
		}
		if i := slices.Index(b.leasts[few+1:], first); i >= 0 {
			few += 1 + i
			return few*fewBlocks + slices.Index(b.few(few), first)
		}
	}
	few := max(0, slices.Index(b.leasts, first))
	return few*fewBlocks + slices.Index(b.few(few), first)
}

// set sets one of first.
func (s *shelfBounds) set(first *atomic.Int64, bound int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	was := first.Swap(bound)
	switch least := s.least.Load(); {
	case bound <= least:
		s.least.Store(bound)
	case was == least:
		s.least.Store(s.earliest())
	}
}

func (s *shelfBounds) earliest() int64 {
	least := int64(math.MaxInt64)
	for i := range s.first {
		least = min(least, s.first[i].Load())
	}
	return least
}

// leastFrom returns which of first is the least, and it; of equal ones, the first from an index on. Without
// keys, the index is below 0.
func (s *shelfBounds) leastFrom(from int) (at int, least int64) {
	at, least = -1, math.MaxInt64
	known := s.least.Load() // mostly, the search ends there
	for i := range s.first {
		if t := s.first[(from+i)&63].Load(); t < least {
			if at, least = (from+i)&63, t; t == known {
				break
			}
		}
	}
	return at, least
}
