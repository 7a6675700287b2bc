package keyed

import (
	"math"
	"sync/atomic"

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

// A hand is where the search for the least restricted key of a segment continues. In each round it
// comes to one slot of each block, and evicts the key there. So all parts of a segment stay equally
// full, and a new key stays for about as many evictions as there are keys, wherever its hash puts it:
// a caller that goes on is restricted by then.
type hand struct {
	block int
	round uint32
}

// mostSkips bounds how many blocks without a key in the slot whose turn it is are passed over.
const mostSkips = 8

// slot returns which slot of a block is evicted in this round: each in one of eight rounds.
func (h *hand) slot() int { return int(h.round * 5 % (blockLines * perLine)) }

// turn moves the segment's hand to the next of the blocks with the least bound that has a key in the slot
// whose turn it is.
func (s *segment[K]) turn() (block int) {
	h, a := &s.hand, s.array
	for skipped := 0; ; skipped++ {
		block = s.ranks.least(h.block)
		if block < h.block {
			h.round++
		}
		h.block = block
		slot := (block*blockLines*perLine + h.slot()) * a.size
		if skipped == mostSkips || slot < len(a.slots) && atomic.LoadInt64(&a.slots[slot])&used != 0 {
			return block
		}
		h.block++
	}
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

// searchRanks searches a block with the least bound of ranks, and evicts its least restricted key
// if no block can have a less restricted one. Of segments with equal bounds, it searches that of the new
// key: what a segment gains, it loses, and no array outgrows its share of the table. It reports
// whether there is nothing to search.
func (f *finder[K]) searchRanks() bool {
	_, s, first := f.k.leastOf(rankBounds, f.k.array(f.h).owner.index)
	if s == nil {
		return true
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	b := s.turn()
	known := s.ranks.blocks[b]
	if known > first { // another goroutine searched it meanwhile
		return false
	}
	slot, least, second := s.ranksOf(b, s.hand.slot(), f.at(s))
	if s.ranks.set(b, min(least, second)); slot < 0 {
		return false
	}
	if f.best.s == nil || least < f.best.free {
		f.best = candidate[K]{s, s.array, slot, least, true}
	}
	if least <= known {
		s.ranks.set(b, second)
		f.evictLimited(s, slot)
		s.hand.block++
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
