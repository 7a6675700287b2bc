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
//	bits 0        reserved
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
	r    *holder
	life uint64 // the life of the holder that this hold is
}

// A holder is the record behind a Hold. Holders are reused: each life is one hold, and a Hold of an
// earlier life finds that it has ended. The fields that are not atomic belong to the caller that
// holds the place.
type holder struct {
	life    atomic.Uint64 // how many lives have ended
	l       *Limiter
	slot    uint64   // its bit in the word; 0 for a holder from the pool
	plan    uint64   // the word of the plan when the request entered
	entered uint64   // the word after that
	began   int64    // when it entered; unmeasured if its time is not wanted
	_       [64]byte // two holders share no cache line
}

const unmeasured = math.MinInt64

// golden is 2^64 divided by the golden ratio: the products of successive numbers with it spread evenly over
// all words, and so do those of every second or third one.
const golden = 0x9E3779B97F4A7C15

// take takes a place if there is one.
//
// This path and that of Done decide the throughput: an unmeasured request reads no clock, and two
// of them write to no cache line in common but that of the word.
func (l *Limiter) take() (Hold, bool) {
	for {
		plan, w := l.plan.Load(), l.word.Load()
		if inFlight(w) >= limitOf(plan) {
			l.refused.Add(1)
			return Hold{}, false
		}
		slot := ^w & slotBits
		slot &= -slot
		next := w + oneMore + slot
		if !l.word.CompareAndSwap(w, next) {
			continue
		}
		var r *holder
		if slot != 0 {
			r = &l.slots[bits.TrailingZeros64(slot)-1]
		} else {
			r = l.pool.Get().(*holder)
		}
		r.plan, r.entered, r.began = plan, next, unmeasured
		// the product spreads those that are measured: kinds of requests may take turns
		if next>>numberShift*golden>>(64-rareOf(plan)) == 0 {
			r.began = l.now()
		}
		return Hold{r: r, life: r.life.Load()}, true
	}
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
	if r == nil || !r.life.CompareAndSwap(h.life, h.life+1) {
		return
	}
	l, slot := r.l, r.slot
	if o == weir.OK && r.began == unmeasured {
		if slot == 0 {
			l.recycle(r)
		}
		l.word.Add(-(1<<inFlightShift + slot))
		return
	}
	end := ending{outcome: o, version: versionOf(r.plan), inFlight: inFlight(r.entered), began: r.began}
	if slot == 0 {
		l.recycle(r)
	}
	l.word.Add(-(1<<inFlightShift + slot))
	l.finish(end)
}

// recycle keeps a holder that belongs to no slot for another request.
func (l *Limiter) recycle(r *holder) {
	l.pooled.Add(1)
	l.pool.Put(r)
}
