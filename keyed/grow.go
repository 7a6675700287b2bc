package keyed

import (
	"math"
	"sync/atomic"

	"github.com/weirflow/weir"
)

// A directory finds the array of a hash by its highest bits. When it needs more bits, a larger
// directory replaces it.
type directory[K comparable] struct {
	shift  uint8 // 64 minus the number of bits
	arrays []atomic.Pointer[array[K]]
}

// A shelf holds up to 64 segments with their bounds. Shelves are added, and never moved.
type shelf[K comparable] struct {
	bounds   [2]shelfBounds // of idle times and of ranks
	segments [64]atomic.Pointer[segment[K]]
}

// array returns the array that a hash belongs to.
func (k *Limiter[K]) array(h uint64) *array[K] {
	d := k.directory.Load()
	return d.arrays[h>>d.shift].Load()
}

// newSegment puts a segment on a shelf, and returns it locked. The caller must hold the structure's
// lock.
func (k *Limiter[K]) newSegment(prefix uint64) *segment[K] {
	shelves := *k.shelves.Load()
	if k.segments%64 == 0 {
		next := &shelf[K]{}
		next.bounds[idleBounds].empty()
		next.bounds[rankBounds].empty()
		grown := append(shelves[:len(shelves):len(shelves)], next)
		k.shelves.Store(&grown)
		shelves = grown
	}
	at := shelves[len(shelves)-1]
	s := &segment[K]{table: k, index: k.segments, prefix: prefix, idle: at.bounds[idleBounds].of(k.segments % 64), ranks: at.bounds[rankBounds].of(k.segments % 64)}
	s.mu.Lock() // before other goroutines can find it
	at.segments[k.segments%64].Store(s)
	k.segments++
	return s
}

// publish puts the segment's array into the directory. The caller must hold the structure's lock.
func (s *segment[K]) publish() {
	a, d := s.array, s.table.directory.Load()
	wide := 64 - d.shift - a.shift // how many bits of the directory the segment does not need
	for i := range uint64(1) << wide {
		d.arrays[s.prefix<<wide|i].Store(a)
	}
}

// bound resets the bounds of an array's blocks. Those of the segment are stale until order is
// called.
func (s *segment[K]) bound(a *array[K]) {
	blocks := int(a.lines+blockLines-1) / blockLines
	s.idle.reset(blocks, math.MaxInt64)
	if s.table.ranked.Load() {
		s.ranks.reset(blocks, leastRank)
	}
}

// order computes the bounds of the segment.
func (s *segment[K]) order() {
	s.idle.order()
	s.ranks.order()
}

// grow makes room for another key: it evicts idle keys, enlarges the array, or splits the segment
// in two.
func (s *segment[K]) grow(now int64) {
	s.sweepAll(now)
	a := s.array
	full := 4*s.count > 3*a.capacity()
	if !full && !s.hasRoom() { // after many changes, the present keys lie far from their lines
		s.rebuild(int(a.lines), a.version)
	}
	switch {
	case !full && s.hasRoom():
	case a.lines >= s.table.mostLines:
		s.split()
	default:
		s.rebuild(int(a.lines+max(a.lines/6, firstLines)), a.version)
	}
}

// rebuild moves all keys to a new array with that many lines and the current layout. If ver is
// another version, it converts their states to its limit.
func (s *segment[K]) rebuild(lines int, ver *version) {
	k := s.table
	a := newArray[K](ver, ver.layoutAt(k.reading(ver.wall)), lines, s.array.shift, k.opts.Keys)
	m := s.rehash()
	s.bound(a)
	a.owner, s.array, s.count = s, a, 0
	for m.next() {
		m.put(s)
	}
	s.order()
	k.structure.Lock()
	defer k.structure.Unlock()
	s.publish()
}

// split divides a segment in two.
func (s *segment[K]) split() {
	k, ver := s.table, s.array.version
	layout, depth := ver.layoutAt(k.reading(ver.wall)), s.array.shift+1
	counts := s.countHalves()
	m := s.rehash()
	k.structure.Lock()
	defer k.structure.Unlock()
	s.prefix *= 2
	halves := [2]*segment[K]{s, k.newSegment(s.prefix + 1)}
	defer halves[1].mu.Unlock()
	for i, half := range halves {
		lines := max(int(m.old.lines)*7/12, counts[i]/perLine*5/4+firstLines)
		half.array, half.count = newArray[K](ver, layout, lines, depth, k.opts.Keys), 0
		half.array.owner = half
		half.bound(half.array)
	}
	for m.next() {
		m.put(halves[m.h>>(64-depth)&1])
	}
	if d := k.directory.Load(); 64-d.shift < depth {
		twice := &directory[K]{shift: d.shift - 1, arrays: make([]atomic.Pointer[array[K]], 2*len(d.arrays))}
		for i := range twice.arrays {
			twice.arrays[i].Store(d.arrays[i/2].Load())
		}
		k.directory.Store(twice)
	}
	for _, half := range halves {
		half.order()
		half.publish()
	}
}

// countHalves counts the keys of the two halves of a segment.
func (s *segment[K]) countHalves() (counts [2]int) {
	a := s.array
	for slot := 0; slot < len(a.slots); slot += a.size {
		if head := atomic.LoadInt64(&a.slots[slot]); head&used != 0 {
			counts[a.hash(slot, head, s.prefix)>>(63-a.shift)&1]++
		}
	}
	return counts
}

// A rehash removes the keys from an array one by one, in order. A goroutine that looks for a
// removed key comes to the segment's lock.
type rehash[K comparable] struct {
	old    *array[K]
	from   *segment[K]
	bounds []int64
	prefix uint64
	now    int64
	at     int

	slot int
	head int64
	h    uint64
}

func (s *segment[K]) rehash() *rehash[K] {
	s.array.moves.Add(1)
	return &rehash[K]{old: s.array, from: s, bounds: s.idle.blocks, prefix: s.prefix, now: s.table.now()}
}

// next removes the next key. It reports false at the end.
func (m *rehash[K]) next() bool {
	a := m.old
	for ; m.at < len(a.slots); m.at += a.size {
		head := a.takeOut(m.at)
		if head == 0 {
			continue
		}
		m.slot, m.head, m.h = m.at, head, a.hash(m.at, head, m.prefix)
		m.at += a.size
		return true
	}
	return false
}

// put moves the key to another array, and converts its state if the limit or the layout has
// changed. If the layout has changed, an idle key is evicted instead: the new layout may have no
// words for its state.
func (m *rehash[K]) put(s *segment[K]) {
	old, a := m.old, s.array
	free := m.bounds[m.slot/(old.size*perLine*blockLines)]
	var state []int64
	anew := m.head&away == 0 && (old.version != a.version || old.layout != a.layout)
	if anew {
		if state, free = m.carry(a.version); free == math.MinInt64 {
			s.table.count.Add(-1)
			s.table.stats.evictedIdle.Add(1)
			return
		}
	}
	slot := s.append(m.h)
	words, flags := a.words(slot), int64(0)
	switch {
	case anew:
		flags = s.store(slot, m.h, state, m.now)
	case m.head&away == 0:
		if from := old.words(m.slot); len(words) == 1 {
			words[0] = from[0]
		} else {
			copy(words, from)
		}
	default:
		x := m.from.entries[old.slots[m.slot+1]]
		if m.from.leave(x); old.version != a.version {
			free = x.convert(old.version, a.version)
		}
		if flags = away; x.lim != nil || x.over != nil || x.own != nil || !s.pack(slot, x.state, m.now) {
			s.enter(slot, x)
		} else {
			x.gone, flags = true, 0
		}
	}
	if old.keys != nil {
		a.keys[slot/a.size] = old.keys[m.slot/old.size]
	}
	if a.high != nil {
		a.high[slot/a.size] = uint8(m.h >> 56)
	}
	a.slots[slot] |= int64(m.h&lowHash) | used | flags
	b := s.block(slot)
	s.idle.blocks[b] = min(s.idle.blocks[b], free)
}

// carry unpacks the state and converts it to the limit of a version. It also returns when the key is
// idle; for a key that is idle already and may be evicted, that is the beginning of the clock.
func (m *rehash[K]) carry(ver *version) (state []int64, free int64) {
	state, at := m.old.layout.Unpack(m.from.scratch[:0], m.old.words(m.slot)), m.now
	if m.old.version != ver {
		state, at = m.old.version.prepared.Convert(state, ver.was, ver.prepared, ver.began), ver.began
	}
	free = later(at, ver.prepared.Peek(state, at, 0).ResetAfter)
	if m.old.version == ver && free == at && free != math.MaxInt64 && ver.returns {
		return nil, math.MinInt64
	}
	return state, free
}

// store writes a state to a slot's words, or to an entry if it does not fit. It returns the flags
// of the slot.
func (s *segment[K]) store(slot int, h uint64, state []int64, now int64) (flags int64) {
	if s.pack(slot, state, now) {
		return 0
	}
	x := &entry[K]{h: h}
	x.state = append(x.words[:0], state...)
	s.enter(slot, x)
	return away
}

// pack writes a state to a slot's words. It reports false if the state does not fit.
func (s *segment[K]) pack(slot int, state []int64, now int64) bool {
	l := s.array.layout
	return l != nil && len(state) > 0 && (l.Covers(now) || l.IsEarly(now)) && l.Pack(s.array.words(slot), state)
}

// convert converts an entry to another limit, and returns when it will be idle.
func (x *entry[K]) convert(from, to *version) (free int64) {
	if x.own != nil && from.wall == to.wall { // its next charge brings its own parameters
		free = later(to.began, x.reset(to, to.began))
		if x.over != nil {
			free = max(free, later(to.began, x.over.rest()))
		}
		return free
	}
	was := x.preparedBy(from)
	x.own = nil
	switch {
	case x.over != nil: // the key has its own limit, or continues from its state
		if x.fixed() {
			_ = x.lim.SetLimit(to.prepared.Limit()) // cannot fail: the limit was prepared
		}
		return later(to.began, max(x.lim.Peek(0).ResetAfter, x.over.rest()))
	case x.lim != nil:
		if err := x.lim.SetLimit(to.prepared.Limit()); err != nil {
			panic(err) // cannot fail: the limit was prepared
		}
	default:
		x.state = was.Convert(x.state, to.was, to.prepared, to.began)
	}
	return later(to.began, x.reset(to, to.began))
}

// A version of the limit is in force between two changes of it.
type version struct {
	prepared weir.Prepared
	wall     bool // the limit reads wall time
	returns  bool // a state becomes idle by itself
	// of two states, the one that resets first is the less restricted
	resetRanks bool
	words      int  // words of a state in a slot; 1 if states are in entries
	welcomes   bool // a new key is admitted at once, and then has a state
	largest    int64
	layout     atomic.Pointer[weir.Layout]

	// when it came into force, by the clock of the previous limit, and by that of this one
	was, began int64
}

// newVersion makes a version that comes into force at a reading of the limit's clock.
func newVersion(p weir.Prepared, now int64) *version {
	ver := &version{prepared: p, wall: p.Wall(), returns: becomesIdle(p.Limit()), resetRanks: resetsRank(p.Limit()), words: 1, began: now}
	if l := p.Layout(now); l != nil {
		ver.words, ver.welcomes, ver.largest = l.Words(), l.Fresh(make([]int64, l.Words())), p.Largest()
		ver.layout.Store(l)
	}
	return ver
}

// layoutAt returns how states are laid out in words at a time; nil if they have no fixed length.
func (ver *version) layoutAt(now int64) *weir.Layout {
	l := ver.layout.Load()
	if l == nil || l.Covers(now) || l.IsEarly(now) {
		return l
	}
	if next := ver.prepared.Layout(now); next != nil && next.Words() == ver.words {
		ver.layout.Store(next)
		return next
	}
	return l
}
