package weir

import (
	"math"
	"math/bits"
	"sync/atomic"
	"time"
)

// fastBucket is a bucket's state in one machine word, decided on with one clock reading and one compare-and-swap. It is only a
// representation: it gives the decisions that the rule gives.
//
// The word is Z in ticks from a base. 64 bits of ticks last 292 years at 100/s but 9 s at 999999937/s, so the base moves forward under
// the limiter, by a new fastBucket, whenever the clock nears the end of the range. Whoever holds the limiter's lock may seal the word:
// the state is then in the limiter, and all others come to the lock. A base never changes, so a compare-and-swap that succeeds has
// always worked on the state it read.
type fastBucket struct {
	base   int64 // the clock reading that the word's 0 stands for
	reach  int64 // how far from base, in clock units, the clock may read
	n, p   int64 // as in bucket
	full   int64
	room   int64 // how much may be used after a charge
	passes int64
	size   int64
	most   int64  // the largest cost that the word decides about
	inv    uint64 // 2^64/p, to divide by p with a multiplication

	word atomic.Int64 // on a cache line of its own: the rest is only read, and stays with every core
	_    [56]byte
}

const (
	sealed    = math.MinInt64     // the word does not hold the state
	untouched = math.MinInt64 + 1 // the state is the one that the limiter keeps: never touched, or full since before the range

	// maxTicks bounds a reading's distance from the base, a debt at publication and a capacity, so that no sum leaves 63 bits.
	maxTicks = 1 << 60

	// minReach keeps the base from moving more often than about once a second.
	minReach = int64(time.Second)
)

// newFastBucket returns a sealed word for the rule with its base at now; nil where the numbers do not fit.
func newFastBucket(b *bucket, now int64) *fastBucket {
	if b.full.Hi != 0 || b.full.Lo > maxTicks || b.n > maxTicks/uint64(minReach) || b.p == 0 {
		return nil
	}
	// The longest wait that the word can speak of is three times its reach, from one end of the range to a full bucket beyond the other:
	// it has to be one that the rule would name too, and to end before the clock does.
	reach := min(int64(maxTicks/b.n), b.horizon/4)
	if now > math.MaxInt64-5*reach || now < math.MinInt64+2*reach {
		return nil // the ends of the clock are the rule's business
	}
	f := &fastBucket{
		base:   now,
		reach:  reach,
		n:      int64(b.n),
		p:      int64(b.p),
		full:   int64(b.full.Lo),
		passes: int64(b.passes.Lo),
		room:   int64(b.full.Lo),
		size:   b.size,
		most:   b.size,
		inv:    math.MaxUint64 / b.p,
	}
	if b.owing { // there is room for any cost, but the word has none for a very large one
		f.room, f.most = math.MaxInt64, reach*int64(b.n)/int64(b.p)
	}
	f.word.Store(sealed)
	return f
}

// is reports whether f counts by b's numbers.
func (f *fastBucket) is(b *bucket) bool {
	return f.n == int64(b.n) && f.p == int64(b.p) && f.size == b.size && f.passes == int64(b.passes.Lo) && (f.room != f.full) == b.owing
}

// decide is Take, and Peek where nothing is to be charged. What the word cannot answer goes to the lock.
//
// All speed rests on this path. It writes into the caller's Decision, field by field: a Decision returned as a value would be copied
// twice through memory, which costs as much as the compare-and-swap. The division by p is a multiplication for the same reason.
func (l *Limiter) decide(d *Decision, cost int64, charge bool) {
	f := l.fast.Load()
	if f == nil {
		l.decideWord(d, cost, charge)
		return
	}
	if uint64(cost-1) >= uint64(f.most) {
		l.decideOdd(d, cost, charge)
		return
	}
	var now int64 // l.now(), which the compiler does not inline
	if l.clock == nil {
		now = int64(time.Since(l.start))
	} else {
		now = l.clock()
	}
	if uint64(now-f.base+f.reach) > uint64(2*f.reach) {
		l.decideLocked(d, cost, charge)
		return
	}
	t, need := (now-f.base)*f.n, cost*f.p
	for {
		w := f.word.Load()
		if w == sealed {
			l.decideLocked(d, cost, charge)
			return
		}
		used := max(w, t) - t // not w-t, which overflows for untouched
		lacks := max(used+need-f.room, used-f.passes)
		if lacks <= 0 {
			lacks = 0
			if charge {
				used += need
				if !f.word.CompareAndSwap(w, t+used) {
					continue
				}
			}
		}
		d.Allowed = lacks == 0
		d.Limit = f.size
		d.By = l.name
		if used <= f.passes {
			left := uint64(f.full - used)
			q, _ := bits.Mul64(left, f.inv)
			if left-q*uint64(f.p) >= uint64(f.p) {
				q++
			}
			d.Remaining = int64(q)
		}
		if f.n != 1 {
			lacks, used = (lacks+f.n-1)/f.n, (used+f.n-1)/f.n
		}
		d.RetryAfter, d.ResetAfter = time.Duration(lacks), time.Duration(used)
		return
	}
}

// decideOdd is decide for a cost that is never charged: 0, below 0 or above the capacity. (One above the capacity may be charged by a
// rule that knows debt.)
func (l *Limiter) decideOdd(d *Decision, cost int64, charge bool) {
	if f := l.fast.Load(); cost > 0 && f != nil && f.room != f.full {
		l.decideLocked(d, cost, charge)
		return
	}
	l.decide(d, 1, false)
	switch {
	case cost == 0:
		d.Allowed, d.RetryAfter = true, 0
	case cost < 0 || cost > d.Limit:
		d.Allowed, d.RetryAfter = false, Never
	default: // the limit has just been changed: the cost is not odd any more
		l.decideLocked(d, cost, charge)
	}
}

// unpublish seals the fast word and takes the state out of it.
func (l *Limiter) unpublish() {
	f := l.fast.Load()
	if f == nil {
		l.unpublishWord()
		return
	}
	w := f.word.Swap(sealed)
	if w == sealed || w == untouched {
		return
	}
	units, rem := w/f.n, w%f.n
	if rem < 0 {
		units, rem = units-1, rem+f.n
	}
	if len(l.state) == 0 {
		l.state = append(l.state, 0, 0)
	}
	l.state[wordZ], l.state[wordRem] = f.base+units, rem
}

// publish puts the state into the fast word, where it fits: the one that is sealed, or a new one with its base at now.
func (l *Limiter) publish(now int64) {
	b, ok := l.era.rule.(*bucket)
	if !ok {
		l.publishWord(now)
		return
	}
	if len(l.state) == 0 && !b.missing.IsZero() {
		return // the first contact is to be written down
	}
	f := l.fast.Load()
	if f == nil || !f.is(b) || uint64(now-f.base+f.reach/2) > uint64(f.reach) {
		if f = newFastBucket(b, now); f == nil {
			return
		}
	}
	w := int64(untouched)
	if len(l.state) != 0 {
		z, rem := l.state[wordZ], l.state[wordRem]
		switch {
		case z >= f.base && uint64(z)-uint64(f.base) >= uint64(f.reach):
			return // too much debt for the word: the state stays under the lock until it has drained
		case z >= f.base || uint64(f.base)-uint64(z) < uint64(f.reach):
			w = (z-f.base)*f.n + rem
		}
	}
	f.word.Store(w)
	l.fast.Store(f)
}
