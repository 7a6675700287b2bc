package keyed

import (
	"math"
	"math/bits"
	"runtime"
	"slices"
	"sync/atomic"

	"github.com/weirflow/weir"
)

// A slot is a header and the words of a state. The header holds the low bits of the key's hash, and
// the high bits choose the slot's position. Once a table has some hundreds of lines, position and
// header together hold all 64 bits. Four slots are a line: 64 bytes, a cache line, if the state is
// one word.
const (
	locked   = math.MinInt64 // a goroutine reads or writes the words; held for a few nanoseconds
	used     = 1 << 62
	away     = 1 << 61 // the state is in an entry of the segment
	lowHash  = 1<<56 - 1
	identity = used | lowHash // the bits that identify a key

	perLine = 4
	// maxFar is how many lines after its own a new key may lie before the array grows.
	maxFar = 47
)

// An array is the slots of a segment: a hash table with linear probing, line by line. Finding keys and
// changing their states takes no lock but that of the slot. Everything that changes which key a slot
// holds happens under the segment's lock. A segment that grows gets a new array, and all slots of the
// old one become empty.
type array[K comparable] struct {
	slots   []int64
	high    []uint8 // the highest hash bits of each slot, unless the segment's prefix implies them
	keys    []K     // the key of each slot, with Options.Keys
	lines   uint64
	shift   uint8        // how many high bits of the hash choose the segment
	size    int          // words per slot, with the header
	far     atomic.Int32 // the most lines that a key has been after its own
	moves   atomic.Int64 // odd while keys are moved, and for good once the array is replaced
	wall    bool
	layout  *weir.Layout // nil if states have no fixed length
	version *version
	owner   *segment[K]
}

// newArray returns an array with that many lines, or a few more if the allocation has room for
// them.
func newArray[K comparable](ver *version, layout *weir.Layout, lines int, depth uint8, keys bool) *array[K] {
	a := &array[K]{shift: depth, size: 1 + ver.words, wall: ver.wall, layout: layout, version: ver}
	a.slots = slices.Grow([]int64(nil), lines*perLine*a.size)
	lines = cap(a.slots) / (perLine * a.size)
	a.slots = a.slots[:lines*perLine*a.size]
	a.lines = uint64(lines)
	if depth < 8 {
		a.high = make([]uint8, lines*perLine)
	}
	if keys {
		a.keys = make([]K, lines*perLine)
	}
	return a
}

func (a *array[K]) capacity() int { return int(a.lines) * perLine }

// home is the first line that is searched for a key. It rises with the hash.
func (a *array[K]) home(h uint64) int {
	line, _ := bits.Mul64(h<<a.shift, a.lines)
	return int(line)
}

// absent and moved stand for no slot: the key has none, or its slot has just changed.
const (
	absent = -1
	moved  = -2
)

// acquire finds the key's slot and locks it. It returns the slot's position and header. All lines
// before that of a key are full, from its home on.
func (a *array[K]) acquire(h uint64, key K) (slot int, head int64) {
	want := int64(h&lowHash) | used
	width := perLine * a.size
	moves := a.moves.Load()
	for line, i := a.home(h), int32(0); ; i++ {
		first, full := line*width, int64(used)
		for slot = first; slot < first+width; slot += a.size {
			head = atomic.LoadInt64(&a.slots[slot])
			if full &= head; head&identity != want {
				continue
			}
			if head < 0 || !atomic.CompareAndSwapInt64(&a.slots[slot], head, head|locked) {
				var ok bool
				if head, ok = a.lock(slot, want); !ok {
					return moved, 0
				}
			}
			if a.keys == nil || a.keys[slot/a.size] == key {
				return slot, head
			}
			a.unlock(slot, head)
		}
		if full == 0 || i >= a.far.Load() {
			if moves&1 != 0 || a.moves.Load() != moves {
				return moved, 0
			}
			return absent, 0
		}
		if line++; line == int(a.lines) {
			line = 0
		}
	}
}

// lock locks a slot that others may have locked. It reports false if the slot no longer matches
// want.
func (a *array[K]) lock(slot int, want int64) (head int64, ok bool) {
	for spins := 0; ; spins++ {
		head = atomic.LoadInt64(&a.slots[slot])
		switch {
		case head&identity != want:
			return 0, false
		case head >= 0 && atomic.CompareAndSwapInt64(&a.slots[slot], head, head|locked):
			return head, true
		case spins > 20: // the goroutine that holds the lock is not running
			runtime.Gosched()
		}
	}
}

func (a *array[K]) unlock(slot int, head int64) { atomic.StoreInt64(&a.slots[slot], head) }

func (a *array[K]) words(slot int) []int64 { return a.slots[slot+1 : slot+a.size : slot+a.size] }

// lockUsed locks any used slot, under the segment's lock. It reports false for an empty slot.
func (a *array[K]) lockUsed(slot int) (head int64, ok bool) {
	head = atomic.LoadInt64(&a.slots[slot])
	if head&used == 0 {
		return 0, false
	}
	return a.lock(slot, head&identity)
}

// takeOut removes a key from an array that is being replaced, under the segment's lock, and returns
// its header; 0 for an empty slot. The words stay as they are, and only the caller may use them.
func (a *array[K]) takeOut(slot int) (head int64) {
	for spins := 0; ; spins++ {
		head = atomic.LoadInt64(&a.slots[slot])
		switch {
		case head&used == 0:
			return 0
		case head >= 0 && atomic.CompareAndSwapInt64(&a.slots[slot], head, 0):
			return head
		case spins > 20:
			runtime.Gosched()
		}
	}
}

// place finds an empty slot for a new key, at most that many lines after its own; below 0 if there
// is none. It leaves the slot empty. The caller must hold the segment's lock.
func (a *array[K]) place(h uint64, most int) int {
	width := perLine * a.size
	for i, line := 0, a.home(h); i <= most; i++ {
		for slot := line * width; slot < (line+1)*width; slot += a.size {
			if atomic.LoadInt64(&a.slots[slot])&used == 0 {
				if i > int(a.far.Load()) {
					a.far.Store(int32(i))
				}
				return slot
			}
		}
		if line++; line == int(a.lines) {
			line = 0
		}
	}
	return -1
}

// fill assigns an empty slot to the key. The words must be written before. The slot is unlocked
// afterwards, or locked by the caller if flags say so.
func (a *array[K]) fill(slot int, h uint64, key K, flags int64) (head int64) {
	if a.high != nil {
		a.high[slot/a.size] = uint8(h >> 56)
	}
	if a.keys != nil {
		a.keys[slot/a.size] = key
	}
	head = int64(h&lowHash) | used | flags&^locked
	atomic.StoreInt64(&a.slots[slot], head|flags&locked)
	return head
}

// hash returns the full hash of the key in a slot, in a segment with that prefix.
func (a *array[K]) hash(slot int, head int64, prefix uint64) uint64 {
	h := uint64(head) & lowHash
	if a.high != nil {
		return h | uint64(a.high[slot/a.size])<<56
	}
	return h | prefix>>(a.shift-8)<<56
}
