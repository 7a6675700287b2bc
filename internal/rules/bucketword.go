package rules

import (
	"math"
	"math/bits"
)

// A BucketRule is a rule whose state may fit a BucketWord: TokenBucket, LeakyBucket and
// SmoothBursty.
type BucketRule interface {
	Rule
	// NewBucketWord returns the word form with its base at now; ok is false where the parameters do
	// not fit.
	NewBucketWord(now int64) (w BucketWord, ok bool)
	// SameWord reports whether a word form counts by this rule's parameters.
	SameWord(w *BucketWord) bool
	// StartsFull reports whether an untouched state is a full bucket.
	StartsFull() bool
	// TicksPerUnit is how many ticks come in per clock unit: the denominator of the state's
	// remainder.
	TicksPerUnit() int64
}

// A BucketWord is the word form of a bucket: the time Z at which the bucket is full again, in ticks
// from a base. It is only a representation: it decides as the rule does. Its methods are small
// enough to be inlined, as they are the hot path of Limiter.Take.
//
// 64 bits of ticks last 292 years at 100/s but only 9 s at 999999937/s, so the holder makes another
// word with a later base whenever the clock nears the end of the range.
type BucketWord struct {
	base   int64 // the clock reading that the word's 0 stands for
	reach  int64 // how far from base the clock may read, in clock units
	n, p   int64 // as in gcraRule
	full   int64
	room   int64 // the most ticks that may be used after a charge
	passes int64
	size   int64
	most   int64  // the largest cost that the word decides about
	inv    uint64 // 2^64/p, to divide by p with a multiplication
}

// maxTicks bounds a reading's distance from the base, the debt of a packed state, and the capacity,
// so that no sum overflows 63 bits.
const maxTicks = 1 << 60

// NewBucketWord implements BucketRule.
func (b *gcraRule) NewBucketWord(now int64) (f BucketWord, ok bool) {
	if b.full.Hi != 0 || b.full.Lo > maxTicks || b.n > maxTicks/uint64(MinReach) || b.p == 0 {
		return f, false
	}
	// The longest wait that the word can name is three times its reach: from one end of the range
	// to a full bucket beyond the other end. The rule must be able to name it too, and it must end
	// before the clock does.
	reach := min(int64(maxTicks/b.n), b.horizon/4)
	if now > math.MaxInt64-5*reach || now < math.MinInt64+2*reach {
		return f, false // the rule decides about the ends of the clock
	}
	f = BucketWord{
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
	return f, true
}

// SameWord implements BucketRule.
func (b *gcraRule) SameWord(f *BucketWord) bool {
	return f.n == int64(b.n) && f.p == int64(b.p) && f.size == b.size && f.passes == int64(b.passes.Lo) && f.AllowsDebt() == b.owing
}

// AllowsDebt reports whether a cost above the capacity may be charged.
func (f *BucketWord) AllowsDebt() bool { return f.room != f.full }

// Size is the capacity.
func (f *BucketWord) Size() int64 { return f.size }

// Numbers returns what a store needs to decide as the rule does: how many ticks come in a clock unit, how many a full
// bucket has, how many may be used before a charge, whether a charge may leave a debt, and for how many clock units at
// most the bucket may not be full.
func (f *BucketWord) Numbers() (perUnit, full, passes int64, debt bool, reach int64) {
	return f.n, f.full, f.passes, f.AllowsDebt(), f.reach
}

// Odd reports whether the word does not decide about a cost: 0, below 0 or too large.
func (f *BucketWord) Odd(cost int64) bool { return uint64(cost-1) >= uint64(f.most) }

// Covers reports whether the word can decide at a reading.
func (f *BucketWord) Covers(now int64) bool { return uint64(now-f.base+f.reach) <= uint64(2*f.reach) }

// NearBase reports whether a reading is in the middle of the range, so that the base need not
// change.
func (f *BucketWord) NearBase(now int64) bool {
	return uint64(now-f.base+f.reach/2) <= uint64(f.reach)
}

// At is a covered reading in ticks from the base, and Need is a cost in ticks.
func (f *BucketWord) At(now int64) int64 { return (now - f.base) * f.n }

// Need is a cost in ticks.
func (f *BucketWord) Need(cost int64) int64 { return cost * f.p }

// Measure decides about a charge of need ticks at t: it is admitted if lacks is at most 0. used is
// how much is used before the charge. The word after the charge is t + used + need.
func (f *BucketWord) Measure(word, t, need int64) (used, lacks int64) {
	used = max(word, t) - t // not word-t, which overflows for Untouched
	return used, max(used+need-f.room, used-f.passes)
}

// IsAhead reports whether more is used than the bucket holds. So it is in debt, or it was charged by a later
// reading than the one that used was measured at.
func (f *BucketWord) IsAhead(used int64) bool { return used > f.full }

// FullAfter is how many clock units fill an empty bucket, rounded up.
func (f *BucketWord) FullAfter() int64 { return f.Units(f.full) }

// Remaining is the largest cost that would be admitted after used ticks.
func (f *BucketWord) Remaining(used int64) int64 {
	if used > f.passes {
		return 0
	}
	left := uint64(f.full - used)
	q, _ := bits.Mul64(left, f.inv)
	if left-q*uint64(f.p) >= uint64(f.p) {
		q++
	}
	return int64(q)
}

// Units is how many clock units bring ticks, rounded up.
func (f *BucketWord) Units(ticks int64) int64 {
	if f.n != 1 {
		ticks = (ticks + f.n - 1) / f.n
	}
	return ticks
}

// Pack puts a state into a word. It reports false if the state holds too much debt.
func (f *BucketWord) Pack(state []int64) (word int64, ok bool) {
	switch z, rem := state[wordZ], state[wordRem]; {
	case z >= f.base && uint64(z)-uint64(f.base) >= uint64(f.reach):
		return 0, false
	case z >= f.base || uint64(f.base)-uint64(z) < uint64(f.reach):
		return (z-f.base)*f.n + rem, true
	}
	return Untouched, true // full since before the word's range
}

// Unpack returns the state of a word other than Untouched: whole clock units, and the remainder in
// ticks.
func (f *BucketWord) Unpack(word int64) (z, rem int64) {
	units, rem := word/f.n, word%f.n
	if rem < 0 {
		units, rem = units-1, rem+f.n
	}
	return f.base + units, rem
}

// UnpackFull returns the state of a bucket that has been full since before the word's range.
func (f *BucketWord) UnpackFull() (z, rem int64) { return f.base - f.reach, 0 }
