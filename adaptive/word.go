package adaptive

import (
	"math"
	"math/bits"
	"sync/atomic"

	"github.com/weirflow/weir"
)

// The word of a Limiter holds how many requests are in flight, the taken slots, and a running
// number, so that one atomic operation changes all:
//
//	bit 0        busy: every request takes the lock of the gate
//	bits 1..20   the taken slots
//	bits 21..42  how many requests are in flight
//	bits 43..63  the running number of the latest request that entered
//
// The word of its plan holds what a caller must know to enter:
//
//	bits 0..5    one in 2^this of the requests is measured
//	bits 6..27   the limit
//	bits 28..63  the version of the limit
const (
	busy          = 1
	slotCount     = 20
	slotBits      = (1<<slotCount - 1) << 1
	inFlightShift = slotCount + 1
	inFlightBits  = 22
	numberShift   = inFlightShift + inFlightBits
	oneMore       = 1<<inFlightShift + 1<<numberShift
	rareBits      = 6
	versionShift  = rareBits + inFlightBits
)

func inFlight(word uint64) int64 { return int64(word >> inFlightShift & (1<<inFlightBits - 1)) }

func limitOf(plan uint64) int64 { return int64(plan >> rareBits & (1<<inFlightBits - 1)) }

func rareOf(plan uint64) uint { return uint(plan & (1<<rareBits - 1)) }

func versionOf(plan uint64) uint64 { return plan >> versionShift }

// A Hold is a place held at a Limiter. It is a plain value; copies are the same hold. The zero Hold
// holds nothing, and its methods do nothing. Every caller that enters must call Done: without it the
// place stays taken.
type Hold struct {
	r *holder

	// bits 0..47 are the life of the holder that this hold is, bits 48..62 which part of the gate it
	// belongs to, and bit 63 is set if it is measured
	life uint64
}

const (
	lifeBits  = 1<<partShift - 1
	partShift = 48
	mostParts = 1 << 15
	measured  = 1 << 63
)

// A holder is the record behind a Hold. Holders are reused: each life is one hold, and a Hold of an
// earlier life finds that it has ended. The fields that are not atomic belong to the caller that
// holds the place, but for l and slot, which never change.
type holder struct {
	life    atomic.Uint64 // how many lives have ended
	l       *Limiter
	slot    uint64   // its bit in the word; 0 for a holder from the pool
	plan    uint64   // the word of the plan when the request entered
	entered uint64   // the word after that, of a request that is measured
	began   int64    // when that one entered
	_       [80]byte // two holders share no cache line
}

const unmeasured = math.MinInt64

// golden is 2^64 divided by the golden ratio: the products of successive numbers with it spread evenly over
// all words, and so do those of every second or third one.
const golden = 0x9E3779B97F4A7C15

// take takes a place if there is one, and so many are left. Otherwise it lets the gate decide about the
// request, if it has one.
//
// This path and that of Done decide the throughput: an unmeasured request reads no clock, and two
// of them write to no cache line in common but that of the word.
func (l *Limiter) take(leave int64, r *Request) (Hold, bool) {
	for {
		plan, w := l.plan.Load(), l.word.Load()
		if w&busy != 0 || inFlight(w)+leave >= limitOf(plan) {
			if l.paced != nil && w&busy == 0 && l.paced.refusedAt() {
				continue
			}
			if r == nil {
				return Hold{}, false
			}
			return l.tryEnterSlowly(*r)
		}
		slot := freeSlot(w)
		next := w + oneMore + slot
		if !l.word.CompareAndSwap(w, next) {
			continue
		}
		if slot == 0 {
			return l.begin(l.pool.Get().(*holder), plan, next, 0), true
		}
		place := &l.slots[bits.TrailingZeros64(slot)-1]
		if isMeasured(plan, next) {
			return l.begin(place, plan, next, 0), true
		}
		place.plan = plan
		return Hold{r: place, life: place.life.Load()}, true
	}
}

// freeSlot returns the bit of the first free slot, or 0: adding to the slots, the carry goes there.
func freeSlot(w uint64) uint64 { return (w&^busy + 2) &^ w & slotBits }

// isMeasured reports whether the request is measured that has entered with a plan and made the word
// what it is. The product spreads those that are measured: kinds of requests may take turns.
func isMeasured(plan, word uint64) bool { return word>>numberShift*golden>>(64-rareOf(plan)) == 0 }

// occupy takes a place for a part of the gate, which has decided that there is one.
func (l *Limiter) occupy(part int) Hold {
	for {
		plan, w := l.plan.Load(), l.word.Load()
		slot := freeSlot(w)
		next := w + oneMore + slot
		if !l.word.CompareAndSwap(w, next) {
			continue
		}
		if slot == 0 {
			return l.begin(l.pool.Get().(*holder), plan, next, part)
		}
		return l.begin(&l.slots[bits.TrailingZeros64(slot)-1], plan, next, part)
	}
}

// begin fills the holder of a request that has entered, and reads the clock if it is measured.
func (l *Limiter) begin(r *holder, plan, word uint64, part int) Hold {
	h := Hold{r: r, life: r.life.Load() | uint64(part)<<partShift}
	r.plan = plan
	if isMeasured(plan, word) {
		if r.entered, r.began = word, l.now(); l.paced != nil {
			l.paced.at(r.began)
		}
		h.life |= measured
	}
	return h
}

// Done gives the place back and says how the request went:
//
//   - weir.OK: it was done. Its duration is a sample of the latency.
//   - weir.Ignore: it ended early, and says nothing about the load, such as an invalid request, or
//     one that its client has given up. It changes no limit.
//   - weir.Dropped: the service refused it or took too long. That lowers the limit.
//
// The first Done wins, whichever copy it is called on; later calls do nothing. Done is safe for
// concurrent use.
func (h Hold) Done(o weir.Outcome) {
	r := h.r
	if r == nil {
		return
	}
	l, slot, life := r.l, r.slot, h.life&lifeBits
	if !r.life.CompareAndSwap(life, life+1) {
		return
	}
	if o != weir.OK || h.life&measured != 0 || slot == 0 {
		h.end(o)
	} else if l.word.Add(-(1<<inFlightShift+slot))&busy != 0 {
		l.gate.left(h.part())
	}
}

func (h Hold) part() int { return int(h.life &^ measured >> partShift) }

// end ends a hold that tells something, or whose holder goes back to the pool.
func (h Hold) end(o weir.Outcome) {
	r := h.r
	l, slot := r.l, r.slot
	end := ending{outcome: o, version: versionOf(r.plan), began: unmeasured}
	if h.life&measured != 0 {
		end.inFlight, end.began = inFlight(r.entered), r.began
	}
	if slot == 0 {
		l.recycle(r)
	}
	word := l.word.Add(-(1<<inFlightShift + slot))
	if l.waves { // the first requests of a wave began alone, and the last ones end alone
		end.inFlight = max(end.inFlight, inFlight(word)+1)
	}
	if o != weir.OK || end.began != unmeasured {
		l.finish(end)
	}
	if word&busy != 0 {
		l.gate.left(h.part())
	}
}

// recycle keeps a holder that belongs to no slot for another request.
func (l *Limiter) recycle(r *holder) {
	l.pooled.Add(1)
	l.pool.Put(r)
}
