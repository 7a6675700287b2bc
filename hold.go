package weir

import (
	"fmt"
	"math"
	"math/bits"
	"sync/atomic"

	"github.com/weirflow/weir/internal/heap"
)

// An Outcome says how the work of a hold went. It is counted, and adaptive limits react to it.
type Outcome uint8

// The outcomes of work.
const (
	OK Outcome = iota // the work was done; its duration is a valid sample of latency
	// the work ended without information about load: a bad or cancelled request
	Ignore
	Dropped // the work failed for lack of capacity: a timeout, an overload
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

// A Hold is a place held at a ConcurrencyLimiter. It is a plain value; copies are the same hold.
// The zero Hold holds nothing, and its methods do nothing. Every caller that enters must call Done:
// without it the place stays taken, forever or until MaxHold.
type Hold struct {
	r     *holder
	life  uint64 // the life of the holder that this hold is
	fence int64  // above 0 for a hold that expires
}

// A holder is the record behind a Hold. Holders are reused: each life is one hold, and a Hold of an
// earlier life finds that it has ended. The fields that are not atomic belong to the caller that
// holds the place; for holds that expire, the limiter's lock guards them.
type holder struct {
	life   atomic.Uint64 // how many lives have ended
	l      *ConcurrencyLimiter
	cost   int64
	slot   uint64 // its bit in the word; 0 for a holder from the pool
	expiry heap.Node[holder]
	// of a hold that does not expire: assigned by the first call of Fence, under the lock
	fence  int64
	fenced uint64 // the life that fence belongs to, plus 1
}

// The word of a ConcurrencyLimiter holds the free capacity and the taken slots, so that one atomic
// operation changes both:
//
//	bit 0        busy: a caller waits, or holds expire: every caller takes the lock
//	bits 1..20   the taken slots
//	bits 21..63  the free capacity plus origin, as it is below 0 after the limit was lowered
const (
	busy      = 1
	slotCount = 20
	slotBits  = (1<<slotCount - 1) << 1
	freeShift = slotCount + 1
	origin    = 1 << 42
)

func freeIn(word uint64) int64 { return int64(word>>freeShift) - origin }

// takeByWord takes a place if there is room, unless the word has one of the bits in unless. It
// returns the word as it is afterwards.
//
// This path and that of Done decide the throughput: two holders of slots share no cache line but
// the word's, and no clock is read.
func (l *ConcurrencyLimiter) takeByWord(cost int64, unless uint64) (h Hold, w uint64, ok bool) {
	for {
		w = l.word.Load()
		if w&unless != 0 || freeIn(w) < cost {
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

// Done gives the place back: waiters move up, and the outcome is counted. The first Done wins,
// whichever copy it is called on; later calls do nothing, and neither does a call after the hold
// has expired. Done is safe for concurrent use and never blocks on the work of others. Without
// MaxHold it reads no clock.
func (h Hold) Done(o Outcome) {
	switch r := h.r; {
	case r == nil:
	case h.fence != 0 || o != OK:
		r.l.done(h, o)
	case r.life.CompareAndSwap(h.life, h.life+1):
		if w := r.l.release(r); w&busy != 0 {
			r.l.serveQueue()
		}
	}
}

// release gives back the place of a holder whose life has just ended, and returns the new word.
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
		l.removeExpiring(h.r)
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

// Fence returns a fencing token: a number that is larger than that of every earlier hold, also of
// limiters in an earlier process. It is at least the microseconds since the Unix epoch. A resource
// that remembers the largest fence it has seen, and refuses smaller ones, is safe from a caller
// that goes on working after its hold has expired.
//
// With MaxHold, the fence is assigned with the hold. Without MaxHold, it is assigned by the first
// call of Fence, and is 0 once the hold has ended: only its holder can end such a hold.
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

// Extend is a heartbeat: the hold lasts for MaxHold from now, or as long as before if that is
// longer. It reports whether the place is still held. If it reports false, the place may already
// belong to another caller, and the work must stop. For a hold that does not expire, Extend changes
// nothing.
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
	expiry := max(l.expiring.Key(&h.r.expiry), l.expiry(now))
	l.latest = max(l.latest, expiry)
	l.expiring.Move(&h.r.expiry, expiry)
	return true
}

// endless is the expiry of a hold that was extended after MaxHold was removed.
const endless = math.MaxInt64
