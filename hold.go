package weir

import (
	"container/heap"
	"fmt"
	"math"
	"math/bits"
	"sync/atomic"
)

// An Outcome says how work went that held a place. It is counted; limits that move by themselves go by it.
type Outcome uint8

// The outcomes of work.
const (
	OK      Outcome = iota // it was done, and how long it took says something
	Ignore                 // it ended in a way that says nothing about load: a bad request, a cancelled one
	Dropped                // it was given up or refused for want of capacity: a timeout, an overload
)

// String returns the outcome's name.
func (o Outcome) String() string {
	switch o {
	case OK:
		return "ok"
	case Ignore:
		return "ignore"
	case Dropped:
		return "dropped"
	}
	return fmt.Sprintf("Outcome(%d)", uint8(o))
}

// A Hold is a place held at a ConcurrencyLimiter. It is a plain value; copies are the same hold. The zero Hold holds nothing, and all its
// methods are harmless. Whoever enters calls Done, whatever happens: a Hold that is dropped without it keeps its place, for ever or
// until MaxHold.
type Hold struct {
	r     *holder
	life  uint64 // which life of the holder this is
	fence int64  // above 0 for one that expires
}

// A holder is what a Hold refers to. It lives many lives, one hold each; a hold of an earlier life finds that it has ended. What is not
// atomic belongs to who holds the place, and, for holds that expire, is guarded by the limiter's lock.
type holder struct {
	life   atomic.Uint64 // how many have ended
	l      *ConcurrencyLimiter
	cost   int64
	slot   uint64 // its bit in the word; 0 for one from the pool
	expiry int64
	index  int    // in expiring
	fence  int64  // of a hold that does not expire: given when asked for, under the lock
	fenced uint64 // the life that fence is of, and 1
}

// The word of a ConcurrencyLimiter says what is free, and which slots are taken, so that one operation takes or gives back both:
//
//	bit 0        busy: someone waits, or holds expire: everyone comes to the lock
//	bits 1..20   the slots that are taken
//	bits 21..63  what is free, and origin: it may be below 0 after the limit was lowered
const (
	busy      = 1
	slotCount = 20
	slotBits  = (1<<slotCount - 1) << 1
	freeShift = slotCount + 1
	origin    = 1 << 42
)

func freeOf(word uint64) int64 { return int64(word>>freeShift) - origin }

// grab takes a place if there is room, unless the word has one of the given bits. It returns the word as it then is.
//
// All speed rests on this path, and on Done's: two holders of slots share no cache line but the word's, and no clock is read.
func (l *ConcurrencyLimiter) grab(cost int64, unless uint64) (h Hold, w uint64, ok bool) {
	for {
		w = l.word.Load()
		if w&unless != 0 || freeOf(w) < cost {
			return h, w, false
		}
		slot := ^w & slotBits
		slot &= -slot
		next := w - uint64(cost)<<freeShift + slot
		if !l.word.CompareAndSwap(w, next) {
			continue
		}
		if slot != 0 {
			h.r = &l.slots[bits.TrailingZeros64(slot)-1]
		} else {
			h.r = l.pool.Get().(*holder)
		}
		h.r.cost = cost
		h.life = h.r.life.Load()
		return h, next, true
	}
}

// Done leaves the place: those who wait move up, and the outcome is counted. The first Done wins, whichever copy it is called on; later
// ones do nothing, and so does one after the hold has expired. It is safe for concurrent use, never waits for others' work and, without
// MaxHold, reads no clock.
func (h Hold) Done(o Outcome) {
	switch r := h.r; {
	case r == nil:
	case h.fence != 0 || o != OK:
		r.l.done(h, o)
	case r.life.CompareAndSwap(h.life, h.life+1):
		if w := r.l.release(r); w&busy != 0 {
			r.l.refresh()
		}
	}
}

// release gives the place back of a holder whose life has just ended, and returns the word as it is then.
func (l *ConcurrencyLimiter) release(r *holder) uint64 {
	back := uint64(r.cost)<<freeShift - r.slot
	if r.slot == 0 {
		l.pooled.Add(1)
		l.pool.Put(r)
	}
	return l.word.Add(back)
}

// done is Done under the lock.
func (l *ConcurrencyLimiter) done(h Hold, o Outcome) {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := l.enter()
	defer l.leave(now)
	if !h.r.life.CompareAndSwap(h.life, h.life+1) {
		return
	}
	if h.fence != 0 {
		l.forget(h.r)
	}
	switch o {
	case OK:
	case Dropped:
		l.counts.Dropped++
	default:
		l.counts.Ignored++
	}
	l.release(h.r)
}

// Fence returns a number that is larger than that of each hold given before, also by a limiter of a process before this one: at least the
// microseconds since the Unix epoch. A resource that remembers the largest it has seen, and refuses what comes with a smaller one, is
// safe from a holder that goes on working after its hold has expired.
//
// Of a limiter with MaxHold, the number is given with the hold and stays. Otherwise it is given when first asked for, and is 0 once the
// hold has ended: without MaxHold no hold ends but by its holder.
func (h Hold) Fence() int64 {
	if h.r == nil || h.fence != 0 {
		return h.fence
	}
	l := h.r.l
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case h.r.life.Load() != h.life:
		return 0
	case h.r.fenced != h.life+1:
		h.r.fence, h.r.fenced = l.nextFence(l.now()), h.life+1
	}
	return h.r.fence
}

// Extend makes the hold last for MaxHold from now, as a heartbeat, and reports whether the place is still held. Where it reports false the
// place may already be another's: the work is to stop. It never shortens a hold. A hold that does not expire is merely asked about.
func (h Hold) Extend() bool {
	if h.r == nil {
		return false
	}
	if h.fence == 0 {
		return h.r.life.Load() == h.life
	}
	l := h.r.l
	l.mu.Lock()
	defer l.mu.Unlock()
	now := l.enter()
	defer l.leave(now)
	if h.r.life.Load() != h.life {
		return false
	}
	h.r.expiry = max(h.r.expiry, l.expiry(now))
	l.latest = max(l.latest, h.r.expiry)
	heap.Fix(&l.expiring, h.r.index)
	return true
}

// expiring is the holds that expire, as a heap: the next to do so is the first.
type expiring []*holder

func (e expiring) Len() int           { return len(e) }
func (e expiring) Less(i, j int) bool { return e[i].expiry < e[j].expiry }
func (e expiring) Swap(i, j int) {
	e[i], e[j] = e[j], e[i]
	e[i].index, e[j].index = i, j
}
func (e *expiring) Push(x any) {
	r := x.(*holder)
	r.index = len(*e)
	*e = append(*e, r)
}
func (e *expiring) Pop() any {
	last := len(*e) - 1
	r := (*e)[last]
	(*e)[last] = nil
	*e = (*e)[:last]
	return r
}

// endless is the expiry of a hold that was extended after MaxHold was taken away.
const endless = math.MaxInt64
