package keyed

import (
	"math"

	"github.com/weirflow/weir"
	"github.com/weirflow/weir/internal/rules"
)

// Ranks order the keys of a full table by how restricted they are. A key that admits a request has
// the rank of what it has used, and a key that refuses has the rank of the time at which it admits
// again. All of the former are below all of the latter.
const (
	idleRank    = math.MinInt64
	leastRank   = idleRank + 1 // nothing less can have been used
	refusesRank = math.MinInt64 / 2
	mostRank    = math.MaxInt64 - 1 // above it is a block without keys
)

// A hand is where the search for the least restricted key continues. It evicts one key of a block,
// and goes over the whole table before it comes back: all parts stay equally full. In a block, it
// begins at a slot that differs each time. So a new key stays for about as many evictions as there
// are keys, wherever its hash puts it, and a caller that goes on is restricted by then.
type hand struct {
	segment, block int
	evictions      uint64
}

// slot returns at which of the slots of a block to begin.
func (h *hand) slot() int {
	return int(h.evictions * 0x9e3779b97f4a7c15 >> 32 % (blockLines * perLine))
}

// rank returns the rank of a state, from the decision about a cost of 1.
func rank(d *weir.Decision, now int64) int64 {
	switch {
	case d.Allowed:
		return idleRank + min(max(d.Limit-d.Remaining, 0), refusesRank-1-idleRank)
	case d.RetryAfter == weir.Never:
		return mostRank
	}
	return min(max(later(now, d.RetryAfter), refusesRank), mostRank)
}

// rankOf returns the rank of the key of a locked slot. A key that cannot be evicted ranks as one
// that refuses for a while yet, as it may be evicted then.
func (s *segment[K]) rankOf(slot int, head, now int64) (rankOf int64, evictable bool) {
	var d weir.Decision
	ver := s.array.version
	if head&away == 0 {
		if !s.array.layout.Decide(&d, s.array.words(slot), now, 1, false) {
			d = ver.prepared.Peek(s.unpack(slot), now, 1)
		}
		return rank(&d, now), true
	}
	x := s.entry(slot)
	switch {
	case !x.idle():
		return min(max(later(now, sweepEvery), refusesRank), mostRank), false
	case x.lim != nil:
		d = x.lim.Peek(1)
	default:
		d = x.preparedBy(ver).Peek(x.state, now, 1)
	}
	return rank(&d, now), true
}

// resetsRank reports whether, of two states of a limit, the state that resets first is always the
// less restricted one, so that the bounds of idle times find it.
func resetsRank(l weir.Limit) bool {
	parts := weir.Parts(l)
	return len(parts) == 1 && rules.KindOf(parts[0]) != nil && rules.KindOf(parts[0]).ResetRanks
}

// keepRanks begins to keep bounds of ranks, at the first search. A table that never reaches its
// ceiling has none.
func (k *Limiter[K]) keepRanks() {
	if k.ranked.Load() {
		return
	}
	k.ranked.Store(true) // segments that a split adds from now on have bounds
	for s := range k.all {
		s.ranks.reset(len(s.idle.blocks), leastRank)
		s.ranks.order()
		s.mu.Unlock()
	}
}

// evictLeastRanked evicts idle keys, or else the least restricted key.
func (f *finder[K]) evictLeastRanked(ver *version) {
	f.k.keepRanks()
	for ver.returns {
		s, first := f.k.soonest()
		if s == nil || first > f.now || !f.evictIdle(s, first) {
			break
		}
		if f.gone > 0 {
			return
		}
	}
	for ; f.gone == 0; f.tries++ {
		// After many blocks, a key that admits a request is as good as the best. A key that
		// refuses is evicted only if nothing less restricted was found in a millisecond. The bounds
		// of the searched blocks are known to the next search.
		if f.tries >= mostTries && f.best.s != nil && f.best.free < refusesRank || f.tries >= mostLooks {
			f.evictBest()
			return
		}
		if f.searchRanks() {
			return
		}
	}
}

// evictIdle evicts the idle keys of the block that may be the first to have some. It reports false if none can be idle
// by the segment's clock.
func (f *finder[K]) evictIdle(s *segment[K], first int64) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	b, now := s.idle.least(0), f.at(s)
	switch bound := s.idle.blocks[b]; {
	case bound > first: // another goroutine searched it meanwhile
		return true
	case bound > now:
		return false
	}
	f.gone = s.sweep(b, now).gone
	return true
}

// searchRanks searches the block with the least bound of ranks, and evicts its least restricted key
// if no block can have a less restricted one. It reports whether there is nothing to search.
func (f *finder[K]) searchRanks() bool {
	hand := &f.k.hand
	index, s, first := f.k.leastOf(rankBounds, hand.segment)
	if s == nil {
		return true
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if index != hand.segment {
		hand.segment, hand.block = index, 0
	}
	b := s.ranks.least(hand.block)
	if b < hand.block { // nothing after it is as little restricted: the next segments come first
		hand.segment, hand.block = index+1, 0
		if next, _, least := f.k.leastOf(rankBounds, index+1); next != index && least == first {
			return false
		}
	}
	hand.segment, hand.block = index, b
	known := s.ranks.blocks[b]
	if known > first { // another goroutine searched it meanwhile
		return false
	}
	slot, least, second := s.ranksOf(b, hand.slot(), f.at(s))
	if s.ranks.set(b, min(least, second)); slot < 0 {
		return false
	}
	if f.best.s == nil || least < f.best.free {
		f.best = candidate[K]{s, s.array, slot, least, true}
	}
	if least <= known {
		s.ranks.set(b, second)
		f.evictLimited(s, slot)
		hand.block++
		hand.evictions++
	}
	return false
}

// ranksOf returns the least restricted key of a block that can be evicted with its rank, and the
// least rank of the others. Of equal ranks, it is the first from a slot of the block on. Without such
// a key, slot is below 0.
func (s *segment[K]) ranksOf(block, from int, now int64) (slot int, least, second int64) {
	a := s.array
	width := blockLines * perLine * a.size
	slot, least, second = -1, math.MaxInt64, math.MaxInt64
	slots := min(width, len(a.slots)-block*width) / a.size
	for i := range slots {
		at := block*width + (from+i)%slots*a.size
		head, ok := a.lockUsed(at)
		if !ok {
			continue
		}
		rank, evictable := s.rankOf(at, head, now)
		a.unlock(at, head)
		if evictable && rank < least {
			slot, least, rank = at, rank, least
		}
		second = min(second, rank)
	}
	return slot, least, second
}
