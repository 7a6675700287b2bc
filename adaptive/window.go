package adaptive

import (
	"math/bits"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weirflow/weir"
)

// maxSamples is how many samples a period has at most.
const maxSamples = 128

// A window collects the samples of a period. Writers never wait: the one that completes a period
// takes the lock if it is free, and changes the limit.
type window struct {
	controller controller

	count   atomic.Int64 // how many samples there are; below 0 while some are passed over
	need    atomic.Int64 // how many complete the period
	drops   atomic.Int64 // requests that were dropped and had begun under the current limit
	most    atomic.Int64 // how many of them complete the period; 0: any number
	samples [maxSamples]packed
	least   atomic.Int64 // the least latency that the algorithm knows of, in nanoseconds; 0: unknown

	mu       sync.Mutex // held by whoever ends a period, and never waited for
	planned  int64      // the count that the period began with
	refused  uint64     // how many callers had been refused then, or had to wait
	counted  int64      // since when measured requests are counted
	measured int64      // how many there were
	buffer   [maxSamples]sample
	period   period // here, as what a controller gets would be allocated
}

// A packed is a sample in one word, so that it is written and read as a whole: the latency in 41
// bits (36 minutes), 22 bits of the requests in flight, and 1 bit for a drop. 0 is none.
type packed struct{ atomic.Uint64 }

const longest = 1<<41 - 1

func pack(s sample) uint64 {
	w := uint64(min(max(s.latency, 1), longest))<<23 | uint64(s.inFlight)<<1
	if s.dropped {
		w |= 1
	}
	return w
}

func unpack(w uint64) sample {
	return sample{latency: int64(w >> 23), inFlight: int64(w >> 1 & (1<<inFlightBits - 1)), dropped: w&1 != 0}
}

// An ending is a request that has finished.
type ending struct {
	outcome         weir.Outcome
	version         uint64
	inFlight, began int64
}

// finish counts a finished request that was measured or was not done, and ends the period if it is
// complete.
func (l *Limiter) finish(e ending) {
	w := &l.window
	complete := false
	switch e.outcome {
	case weir.OK:
	case weir.Dropped:
		l.dropped.Add(1)
		// as the others, those do not count that finish among the first: many of them fail fast
		if e.version == versionOf(l.plan.Load()) && w.count.Load() >= 0 {
			n, most := w.drops.Add(1), w.most.Load()
			complete = most > 0 && n >= most
		}
	default:
		l.ignored.Add(1)
		return
	}
	now := int64(0)
	if e.began != unmeasured {
		now = l.now()
		if l.paced != nil {
			if e.outcome == weir.OK {
				l.paced.finish(e.began, now)
			}
			return
		}
		n := w.count.Add(1)
		if n > 0 && n <= maxSamples {
			w.samples[n-1].Store(pack(sample{latency: now - e.began, inFlight: e.inFlight, dropped: e.outcome == weir.Dropped}))
		}
		complete = complete || n >= w.need.Load()
	}
	if complete && w.mu.TryLock() {
		if e.began == unmeasured {
			now = l.now()
		}
		l.endPeriod(now)
		w.mu.Unlock()
	}
}

// endPeriod hands the samples to the controller and begins the period that it plans, under the
// lock. Samples that are written meanwhile are lost or become part of the next period: both are
// harmless.
func (l *Limiter) endPeriod(now int64) {
	w := &l.window
	count, drops := w.count.Load(), w.drops.Load()
	if most := w.most.Load(); count < w.need.Load() && (most == 0 || drops < most) {
		return // another has just ended it
	}
	w.period = period{limit: l.Limit(), samples: w.buffer[:0], drops: int(drops)}
	p := &w.period
	// every drop is counted, and of the others only those that were measured: make them comparable
	p.drops >>= rareOf(l.plan.Load())
	for i := range min(max(count, 0), maxSamples) {
		if s := w.samples[i].Swap(0); s != 0 {
			p.samples = append(p.samples, unpack(s))
		}
	}
	refused := l.refused.Load() + l.waited.Load()
	p.refused, w.refused = refused != w.refused, refused
	rare := l.rarity(now, count-w.planned)
	p.inFlight = int(l.InFlight() >> rare)
	l.apply(w.controller.next(p), rare)
	w.least.Store(int64(w.controller.leastLatency()))
}

// The samples per second that are aimed at, while there are more requests than that.
const (
	fewSamples  = 32_000
	manySamples = 2 * fewSamples
)

// rarity returns the power of 2 of requests of which one is measured in the next period, after
// count more were measured. It changes once in a millisecond: within less, many may finish at once.
func (l *Limiter) rarity(now, count int64) uint {
	w, rare := &l.window, rareOf(l.plan.Load())
	w.measured += count
	took := now - w.counted
	if took < 0 { // the clock went back
		w.counted, w.measured = now, 0
	}
	if took < int64(time.Millisecond) {
		return rare
	}
	rate := float64(w.measured) * float64(time.Second) / float64(took)
	w.counted, w.measured = now, 0
	switch {
	case rate > manySamples:
		rare += uint(bits.Len64(uint64(rate / manySamples)))
	case rate < fewSamples && rare > 0:
		rare--
	}
	return min(rare, 12)
}

// apply begins a period. The version changes with the limit.
func (l *Limiter) apply(p plan, rare uint) {
	w, now := &l.window, l.plan.Load()
	version := versionOf(now)
	if p.limit != limitOf(now) {
		version++
	}
	l.plan.Store(version<<versionShift | uint64(p.limit)<<rareBits | uint64(rare))
	w.planned = -int64(p.skip)
	w.need.Store(int64(p.need))
	w.most.Store(int64(p.drops) << rare)
	w.drops.Store(0)
	w.count.Store(w.planned)
}
