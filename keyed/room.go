package keyed

import (
	"math"
	"runtime"
	"time"
	"unsafe"

	"github.com/weirflow/weir"
	"github.com/weirflow/weir/internal/rules"
)

const (
	// sweepEvery is the least time between two sweeps.
	sweepEvery = time.Second
	// mostTries bounds how many blocks are searched for the least restricted key, once a key was found that
	// admits a request.
	mostTries = 64
	// mostLooks is the same bound without such a key, or if no key may be evicted. The result is then a
	// time at which there is room for certain, but perhaps not the first.
	mostLooks = 4096
	// mostRetries bounds how often a search is repeated because other callers change the table meanwhile.
	mostRetries = 1000

	// Sizes in bytes, rounded up: a key's own limiter with its entry, what each part of its limit
	// takes for the first outstanding reservations, and the smallest table.
	limiterBytes = 1280
	memoryBytes  = 768
	leastBytes   = 64 << 10
)

// ceiling computes how many keys may be kept.
func (k *Limiter[K]) ceiling(ver *version) {
	o := &k.opts
	if o.MaxBytes == 0 {
		if o.MaxKeys == 0 {
			o.MaxKeys = DefaultMaxKeys
		}
		return
	}
	slot := int64(8 * (1 + ver.words))
	if o.Keys {
		slot += int64(unsafe.Sizeof(*new(K)))
	}
	slot += 2 // the highest bits of its hash, and a bound of 8 bytes for each block of 8 slots
	if !ver.resetRanks {
		slot++ // another bound
	}
	slot = slot*12/7 + 1 // arrays are at least seven twelfths full: see grow and newArray
	entry := limiterBytes + memoryBytes*partsWithMemory(ver.prepared.Limit())
	keys := o.MaxBytes * 3 / 4 / slot
	k.most = o.MaxBytes * 3 / 16 / entry
	if ver.layout.Load() == nil { // each key has an entry
		keys = o.MaxBytes * 15 / 16 / (slot + entry + 8*stateWords(ver.prepared.Limit()))
		k.most = keys
	}
	k.memory = new(budget)
	k.memory.left.Store(o.MaxBytes / 16)
	if keys = max(keys, 1); o.MaxKeys == 0 || int64(o.MaxKeys) > keys {
		o.MaxKeys = int(keys)
	}
}

// stateWords returns how many words a state can have.
func stateWords(l weir.Limit) (words int64) {
	for _, part := range weir.Parts(l) {
		if p := rules.ParamsOf(part); p != nil {
			words += p.MostWords()
		}
	}
	return words
}

// partsWithMemory returns how many parts of a limit remember their outstanding reservations.
func partsWithMemory(l weir.Limit) (n int64) {
	for _, part := range weir.Parts(l) {
		if p := rules.ParamsOf(part); p != nil {
			if r, err := p.Compile(time.Nanosecond); err == nil && r.NeedsMemory() {
				n++
			}
		}
	}
	return n
}

// makeRoom reserves room for a new key, of hash h, at the ceiling. It evicts an idle key, or does what
// Options.Full says. Without room it reports false, and when there will be some. now is a reading of
// wall time or not. The caller must hold no lock.
func (k *Limiter[K]) makeRoom(h uint64, now int64, wall bool) (wait time.Duration, ok bool) {
	k.room.Lock()
	defer k.room.Unlock()
	for tries, settled := 0, 0; ; tries++ {
		if k.count.Add(1) <= int64(k.opts.MaxKeys) {
			return 0, true
		}
		k.count.Add(-1)
		f := finder[K]{k: k, h: h, now: now, wall: wall, evicts: k.opts.Full == Evict, first: math.MaxInt64}
		f.search()
		if settled++; f.gone == 0 && (f.stale || f.evicts && k.isReserved()) {
			settled = 0
		}
		switch {
		case f.gone > 0:
			tries, settled = 0, 0
		case f.evicts && tries < mostRetries && settled < 2: // others change the table, or did so during the search
			runtime.Gosched()
		case !f.evicts && f.first != math.MaxInt64 && k.version.Load().returns:
			return until(now, f.first), false
		default:
			return weir.Never, false
		}
	}
}

// A finder looks for a key to evict.
type finder[K comparable] struct {
	k      *Limiter[K]
	h      uint64 // of the new key
	now    int64
	wall   bool  // now is wall time
	stale  bool  // what was to be evicted has changed meanwhile
	evicts bool  // evict the least restricted key if none is idle
	gone   int   // how many keys were evicted
	first  int64 // when the first key seen is idle
	tries  int   // how many blocks without an idle key were searched
	raised []raisedBound[K]
	best   candidate[K] // the least restricted key seen
}

// A candidate is a limited key that can be evicted.
type candidate[K comparable] struct {
	s    *segment[K]
	a    *array[K]
	slot int
	free int64 // when it is idle, or its rank

	ranked bool
}

// raisedBound is a block whose first key cannot be evicted, as callers wait for it. While the
// finder looks for another key, the block's bound is that of its first key that can be evicted.
type raisedBound[K comparable] struct {
	s     *segment[K]
	block int
	bound int64
}

// search evicts idle keys, or else the least restricted one, if it may.
func (f *finder[K]) search() {
	if ver := f.k.version.Load(); f.evicts && !ver.resetRanks {
		f.evictLeastRanked(ver)
		return
	}
	// After many blocks, a key that admits a request is as good as the best: see evictLeastRanked.
	for f.tries < mostLooks && (f.tries < mostTries || !f.bestAdmits()) && !f.searchBlock() {
	}
	if f.restore(); f.gone == 0 && f.evicts {
		f.evictBest()
	}
}

// isReserved reports whether room of a small table is reserved for keys that are not there yet: others, which cannot
// be evicted.
func (k *Limiter[K]) isReserved() bool {
	if len(*k.shelves.Load()) > 1 {
		return false // never for so many keys
	}
	kept := 0
	for s := range k.all {
		kept += s.count
		s.mu.Unlock()
	}
	return kept < k.opts.MaxKeys
}

// at returns the time for a segment, whose lock is held.
func (f *finder[K]) at(s *segment[K]) int64 { return s.reading(f.now, f.wall) }

// searchBlock searches the block with the least bound. It reports whether the search is over.
func (f *finder[K]) searchBlock() bool {
	s, first := f.k.soonest()
	if s == nil {
		return true
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	b := s.idle.least(0)
	known := s.idle.blocks[b]
	if known > first { // another goroutine searched it meanwhile
		return false
	}
	now := f.at(s)
	if known > now {
		f.tries++
	}
	c := s.sweep(b, now)
	f.first = min(f.first, c.least)
	if c.slot >= 0 && (f.best.s == nil || c.idle < f.best.free) {
		f.best = candidate[K]{s, s.array, c.slot, c.idle, false}
	}
	switch {
	case c.gone > 0:
		f.gone = c.gone
		return true
	case c.least > known:
		return false
	case !f.evicts:
		return true
	case c.idle > known:
		f.raised = append(f.raised, raisedBound[K]{s, b, known})
		s.idle.set(b, c.idle)
		return false
	}
	s.idle.set(b, c.second) // before another key may move into the block
	f.evictLimited(s, c.slot)
	return true
}

// evictLimited evicts a limited key, and counts it. The slot may have another key since it was looked at, and one
// that cannot be evicted stays.
func (f *finder[K]) evictLimited(s *segment[K], slot int) {
	head, ok := s.array.lockUsed(slot)
	switch {
	case !ok:
	case head&away != 0 && !s.entry(slot).idle():
		s.array.unlock(slot, head)
	default:
		s.drop(slot, head, f.at(s))
		f.k.stats.evictedFull.Add(1)
		f.gone = 1
	}
}

// evictBest evicts the best candidate, after the search was given up.
func (f *finder[K]) evictBest() {
	s := f.best.s
	if s == nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if f.stale = !f.isBest(s); !f.stale {
		f.evictLimited(s, f.best.slot)
	}
}

// bestAdmits reports whether the best candidate, if there is one to evict, admits a request.
func (f *finder[K]) bestAdmits() bool {
	s := f.best.s
	if s == nil || !f.evicts {
		return false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	head, ok := f.lockBest(s)
	if !ok {
		return false
	}
	defer s.array.unlock(f.best.slot, head)
	rank, _ := s.rankOf(f.best.slot, head, f.at(s))
	return rank < refusesRank
}

// lockBest locks the slot of the best candidate, whose segment is locked. It reports false if the slot is gone or empty.
func (f *finder[K]) lockBest(s *segment[K]) (head int64, ok bool) {
	if s.array != f.best.a {
		return 0, false
	}
	return s.array.lockUsed(f.best.slot)
}

// isBest reports whether the best candidate is in its slot, or one that is no more restricted.
func (f *finder[K]) isBest(s *segment[K]) bool {
	head, ok := f.lockBest(s)
	if !ok {
		return false
	}
	defer s.array.unlock(f.best.slot, head)
	if f.best.ranked {
		rank, evictable := s.rankOf(f.best.slot, head, f.at(s))
		return evictable && rank <= f.best.free
	}
	return s.freeAt(f.best.slot, head, f.at(s)) <= f.best.free
}

// restore restores the bounds that were raised.
func (f *finder[K]) restore() {
	for _, r := range f.raised {
		r.s.mu.Lock()
		if r.block < len(r.s.idle.blocks) {
			r.s.idle.set(r.block, min(r.s.idle.blocks[r.block], r.bound))
		}
		r.s.mu.Unlock()
	}
}

// soonest returns the segment that may be the first to have an idle key, and when.
func (k *Limiter[K]) soonest() (soonest *segment[K], first int64) {
	_, soonest, first = k.leastOf(idleBounds, 0)
	return soonest, first
}

// leastOf returns the segment with the least bound, and its index; nil if no segment has keys. Of
// equal bounds, it returns the first from an index on, or else the first of all.
func (k *Limiter[K]) leastOf(which, from int) (index int, s *segment[K], least int64) {
	for shelves := *k.shelves.Load(); ; {
		of := shelfOf(shelves, which, from)
		if of < 0 {
			return 0, nil, math.MaxInt64
		}
		if at, least := shelves[of].bounds[which].leastFrom(from & 63); at >= 0 {
			return 64*of + at, shelves[of].segments[at].Load(), least
		}
		runtime.Gosched() // its keys have just gone, and its least bound is about to be set
	}
}

// shelfOf returns the index of the shelf with the least bound; below 0 if no shelf has keys.
func shelfOf[K comparable](shelves []*shelf[K], which, from int) int {
	of, at, least := -1, from/64%len(shelves), int64(math.MaxInt64)
	for range shelves {
		if t := shelves[at].bounds[which].least.Load(); t < least {
			least, of = t, at
		}
		if at++; at == len(shelves) {
			at = 0
		}
	}
	return of
}

// wakeJanitor sets the janitor's timer for when the first key may be idle, unless it is set for no later. A key may be
// idle from free on.
func (k *Limiter[K]) wakeJanitor(now, free int64) {
	if max(free, later(now, sweepEvery)) >= k.due.Load() || !k.version.Load().returns {
		return
	}
	k.janitor.Lock()
	defer k.janitor.Unlock()
	_, first := k.soonest()
	d := max(until(now, first), sweepEvery)
	if k.closed || first == math.MaxInt64 || later(now, d) >= k.due.Load() {
		return
	}
	k.due.Store(later(now, d))
	if k.timer == nil {
		k.timer = k.timers(d, k.sweep)
	} else {
		k.timer.Reset(d)
	}
}

// sweep is the janitor's work: it frees the memory of idle keys that nobody calls any more. It
// holds each segment's lock for some microseconds.
func (k *Limiter[K]) sweep() {
	wall := k.version.Load().wall
	now := k.reading(wall)
	for _, shelf := range *k.shelves.Load() {
		for i := range shelf.segments {
			if s := shelf.segments[i].Load(); s != nil && s.idle.first.Load() <= now {
				s.clean(now, wall)
			}
		}
	}
	k.forgetTimer()
	k.wakeJanitor(now, now)
}

// forgetTimer has the next key set the janitor's timer anew.
func (k *Limiter[K]) forgetTimer() {
	k.janitor.Lock()
	defer k.janitor.Unlock()
	if !k.closed {
		k.due.Store(math.MaxInt64)
	}
}

// clean evicts all idle keys of a segment, and shrinks its array: at once if hardly any key is left, otherwise
// if there were few keys already. Most tables that a sweep empties are soon as full as before.
func (s *segment[K]) clean(now int64, wall bool) {
	before := 0
	for b := 0; ; b++ {
		s.mu.Lock()
		if b == 0 {
			before = s.count
		}
		if b >= len(s.idle.blocks) {
			break
		}
		at := s.reading(now, wall)
		if t := s.idle.blocks[b]; t <= at && t != math.MaxInt64 {
			s.sweep(b, at)
		}
		s.mu.Unlock()
	}
	linesFor := func(keys int) int { return max(keys/3+1, firstLines) }
	if lines, needed := int(s.array.lines), linesFor(s.count); lines > 2*linesFor(before) || lines > 8*needed {
		s.rebuild(needed, s.array.version)
	}
	s.mu.Unlock()
}

// Close stops the janitor, which evicts idle keys between calls. The limiter still works, and
// evicts idle keys during calls.
func (k *Limiter[K]) Close() error {
	k.janitor.Lock()
	defer k.janitor.Unlock()
	k.closed = true
	k.due.Store(math.MinInt64) // no key sets the timer
	if k.shared != nil {
		_ = k.shared.Close() // it never returns an error
	}
	if k.timer != nil {
		k.timer.Stop()
	}
	return nil
}

// later returns the time d after now, or the end of the clock.
func later(now int64, d time.Duration) int64 {
	if t := now + int64(d); t >= now {
		return t
	}
	return math.MaxInt64
}

// until returns how long after now t is: 0 if it is past, and the longest duration on overflow.
func until(now, t int64) time.Duration {
	switch d := t - now; {
	case t <= now:
		return 0
	case d < 0:
		return math.MaxInt64
	default:
		return time.Duration(d)
	}
}
