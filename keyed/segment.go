package keyed

import (
	"math"
	"sync"
	"time"

	"github.com/weirflow/weir"
)

const (
	firstLines = 4   // lines of a new table
	mostLines  = 512 // lines of a segment: rebuilding one takes some 100 us
	blockLines = 2   // lines of a block: searching one takes some 100 ns
)

// A segment is a part of the table, chosen by the high bits of the hash: an array and the lock of
// its structure. A decision about a present key does not take that lock.
type segment[K comparable] struct {
	mu      sync.Mutex
	table   *Limiter[K]
	array   *array[K]
	index   int    // on the shelves
	prefix  uint64 // the high bits of the hashes
	count   int    // slots in use
	entries []*entry[K]
	unused  []int // free indexes of entries

	idle  bounds // a time before which no key of a block is idle
	ranks bounds // a rank below which a block has no key that can be evicted: see rank
	hand  hand

	scratch [16]int64
}

// An entry is a key whose state does not fit a slot, or that has a limiter because a caller waits
// or has reserved. The slot's first word is its index in the segment's entries.
type entry[K comparable] struct {
	h     uint64
	key   K // zero without Options.Keys
	place int
	state []int64
	words [4]int64
	lim   *weir.Limiter
	pins  int // callers that are about to queue: the limiter must stay
	gone  bool
	over  *override
	own   *Parameters // nil for those of the limiter

	memory keyBudget   // of lim
	frozen frozenClock // of lim
}

// lockSegment returns the segment that a hash belongs to, locked.
func (k *Limiter[K]) lockSegment(h uint64) *segment[K] {
	for {
		a := k.array(h)
		s := a.owner
		s.mu.Lock()
		if k.array(h) == s.array {
			return s
		}
		s.mu.Unlock() // the segment was split meanwhile
	}
}

// block returns the block of a slot.
func (s *segment[K]) block(slot int) int { return slot / (s.array.size * perLine * blockLines) }

// lower records that a slot's key may be idle from free on, and may be less restricted than known.
func (s *segment[K]) lower(slot int, free int64) {
	b := s.block(slot)
	if s.idle.lower(b, free); s.ranks.blocks != nil {
		s.ranks.lower(b, leastRank)
	}
}

// reading returns a reading of the clock of the segment's limit; now, if that is a reading of it. While the limit is
// changed, segments can have different clocks.
func (s *segment[K]) reading(now int64, wall bool) int64 {
	if s.array.version.wall == wall {
		return now
	}
	return s.table.reading(s.array.version.wall)
}

// freeAt returns when the key of a locked slot is idle, as of now; the end of the clock if that is
// unknown. A key with callers that are about to queue, or with its own limit, is not idle for a
// while yet.
func (s *segment[K]) freeAt(slot int, head, now int64) int64 {
	ver := s.array.version
	if head&away == 0 {
		reset, ok := s.array.layout.ResetAfter(s.array.words(slot), now)
		if !ok {
			reset = ver.prepared.Peek(s.unpack(slot), now, 0).ResetAfter
		}
		return later(now, reset)
	}
	x := s.entry(slot)
	reset := x.reset(ver, now)
	if x.over != nil {
		reset = max(reset, x.over.rest())
	}
	if reset == 0 && x.pins > 0 {
		reset = sweepEvery
	}
	return later(now, reset)
}

// reset returns how long until an entry is idle.
func (x *entry[K]) reset(ver *version, now int64) time.Duration {
	if x.lim != nil {
		return x.lim.Peek(0).ResetAfter
	}
	return x.preparedBy(ver).Peek(x.state, now, 0).ResetAfter
}

// idle reports whether an entry can be evicted: nobody waits for it, and it has no override in force.
func (x *entry[K]) idle() bool {
	return x.pins == 0 && (x.over == nil || x.over.rest() == 0) && (x.lim == nil || x.lim.Waiting() == 0)
}

// entry returns the entry of a slot whose state is away.
func (s *segment[K]) entry(slot int) *entry[K] { return s.entries[s.array.slots[slot+1]] }

// unpack unpacks the state of a slot, into memory that the next call reuses.
func (s *segment[K]) unpack(slot int) []int64 {
	return s.array.layout.Unpack(s.scratch[:0], s.array.words(slot))
}

// enter adds an entry and assigns it a slot.
func (s *segment[K]) enter(slot int, x *entry[K]) {
	if n := len(s.unused); n > 0 {
		x.place = s.unused[n-1]
		s.unused = s.unused[:n-1]
		s.entries[x.place] = x
	} else {
		x.place = len(s.entries)
		s.entries = append(s.entries, x)
	}
	s.array.slots[slot+1] = int64(x.place)
}

// leave removes an entry.
func (s *segment[K]) leave(x *entry[K]) {
	s.entries[x.place] = nil
	s.unused = append(s.unused, x.place)
}

// leaveFor removes an entry whose key loses its state. The room for its limiter stays reserved.
func (s *segment[K]) leaveFor(x *entry[K]) {
	x.gone = true
	if s.leave(x); x.lim != nil {
		s.table.stats.inexact.Add(x.lim.Inexact())
		if x.memory.table != nil {
			x.memory.close()
		}
	}
}

// drop removes a key whose slot is locked. Another key may have the slot afterwards. It reports whether a
// key moved from the begin of the array to its end.
func (s *segment[K]) drop(slot int, head, now int64) (wrapped bool) {
	if head&away != 0 {
		x := s.entry(slot)
		if s.leaveFor(x); x.lim != nil {
			s.table.limiters.Add(-1)
		}
	}
	wrapped = s.vacate(slot, now)
	s.count--
	s.table.count.Add(-1)
	return wrapped
}

// An occupancy is the result of a sweep: how many keys were evicted, when the first and the second
// of the others are idle, and the first key that can be evicted while limited, with its slot.
type occupancy struct {
	gone                int
	least, second, idle int64
	slot                int
}

// sweep evicts the idle keys of a block, and finds out when the next key will be idle.
func (s *segment[K]) sweep(block int, now int64) occupancy {
	a := s.array
	width := blockLines * perLine * a.size
	none := occupancy{least: math.MaxInt64, second: math.MaxInt64, idle: math.MaxInt64, slot: -1}
	c := none
	for slot := block * width; slot < min((block+1)*width, len(a.slots)); slot += a.size {
		head, ok := a.lockUsed(slot)
		if !ok {
			continue
		}
		free := s.freeAt(slot, head, now)
		// at the end of the clock, no key is known to be idle
		if free <= now && free != math.MaxInt64 && a.version.returns {
			s.table.stats.evictedIdle.Add(1)
			none.gone++
			if c.gone++; s.drop(slot, head, now) {
				slot, c = block*width, none
			}
			slot -= a.size // the slot may have the next key now
			continue
		}
		if c.second = min(c.second, max(c.least, free)); free < c.least {
			c.least = free
		}
		if free < c.idle && (head&away == 0 || s.entry(slot).idle()) {
			c.idle, c.slot = free, slot
		}
		a.unlock(slot, head)
	}
	s.idle.set(block, c.least)
	return c
}

// sweepAll sweeps all blocks that may have an idle key.
func (s *segment[K]) sweepAll(now int64) {
	for b, t := range s.idle.blocks {
		if t <= now && t != math.MaxInt64 {
			s.sweep(b, now)
		}
	}
}

// hasRoom reports whether the array has room for another key. Keys that lie far from their lines
// enlarge it: in an array that is three quarters full, a few do so by chance, after millions of other
// keys, and they may lie twice as far. In one that is half empty, their hashes cluster, and a larger
// array would not help.
func (s *segment[K]) hasRoom() bool {
	room, far := s.array.capacity(), s.array.far.Load()
	switch {
	case 4*s.count > 3*room:
		return 20*(s.count+1) <= 17*room && far <= maxFar
	case 2*s.count > room:
		return far <= 2*maxFar
	}
	return true
}

// put finds a slot for a new key, in a segment that has room for it.
func (s *segment[K]) put(h uint64) (slot int) {
	if slot = s.array.place(h, maxFar); slot < 0 {
		slot = s.array.place(h, int(s.array.lines)) // the next key will find the array full
	}
	s.count++
	return slot
}

// append is put for an array that no other goroutine knows yet, filled in the order of the hashes.
func (s *segment[K]) append(h uint64) (slot int) {
	a := s.array
	first := a.home(h) * perLine * a.size
	for slot = first; slot < first+perLine*a.size; slot += a.size {
		if a.slots[slot]&used == 0 {
			s.count++
			return slot
		}
	}
	return s.put(h)
}
