package rules

import (
	"math"
	"math/bits"
	"time"
)

// Untouched is the word of an unused or idle state.
const Untouched = math.MinInt64 + 1

// MinReach keeps the base of a word from moving more often than about once a second.
const MinReach = int64(time.Second)

// A WordRule is a rule with a state that may fit one machine word: a time and one or two counts.
// The word form decides as the rule does. Times in a word are kept from a base; when they no longer
// fit, the holder makes another word with a later base.
type WordRule interface {
	Rule
	// Rebase returns the base for the times of a state at now, and how far after it the clock may
	// read. kept is true if the state is idle from then on, and the word is to be Untouched. A
	// reach of 0 means that there is no word form.
	Rebase(state []int64, now int64) (base, reach int64, kept bool)
	// OneWindow reports whether a word represents a single window, so that its base cannot be
	// earlier.
	OneWindow() bool
	// Pack puts a state into a word; the result is below 0 if the state does not fit.
	Pack(r *WordRange, state []int64) int64
	// Unpack is the inverse of Pack; it may reuse state.
	Unpack(r *WordRange, word int64, state []int64) []int64
	// StepWord is Take, or Peek where charge is false, for a cost within 0 and LargestCost at a
	// time, counted from the base, within reach. An untouched state is a word of 0. A retry of 0
	// admits the cost; one below 0 means that the rule itself must decide.
	StepWord(r *WordRange, word, now, cost int64, charge bool) (next, remaining, reset, retry int64)
}

// A WordRange is the span of time that a word can represent.
type WordRange struct {
	Base  int64 // the clock reading that a time of 0 stands for
	Reach int64 // how far after Base the clock may read, in clock units
}

// Covers reports whether the word can decide at a reading.
func (r *WordRange) Covers(now int64) bool { return uint64(now-r.Base) <= uint64(r.Reach) }

// usable reports whether a range is far enough from the ends of the clock, and covers now.
func (r *WordRange) usable(now int64) bool {
	const most = math.MaxInt64 / 2
	return r.Reach > 0 && r.Base >= -most && r.Base <= most && now >= r.Base && now-r.Base <= r.Reach
}

// NewWord returns the word of a state at now, and its range; ok is false if there is none.
func NewWord(rule WordRule, state []int64, now int64) (r WordRange, word int64, ok bool) {
	base, reach, kept := rule.Rebase(state, now)
	r = WordRange{base, reach}
	if !r.usable(now) || kept {
		return r, Untouched, r.usable(now)
	}
	// the call below moves packed to the heap; a copy, so that r only escapes when a word is made
	packed := r
	word = rule.Pack(&packed, state)
	return r, word, word >= 0
}

// RangeAround returns a range whose base is well before now, so that it covers present states; ok
// is false if there is none.
func RangeAround(rule WordRule, now int64) (r WordRange, ok bool) {
	base, reach, _ := rule.Rebase(nil, now)
	if !rule.OneWindow() {
		base, reach, _ = rule.Rebase(nil, Minus(now, reach/4))
	}
	r = WordRange{base, reach}
	return r, r.usable(now)
}

// askRule is the retry of a StepWord that cannot decide, and the word of a Pack that does not fit.
const askRule int64 = -1

// divideWord divides a word into a time, in the high bits, and n counts up to size. It returns how
// many bits each count has, and the latest time, if the word holds it in whole units. Two bits stay
// free. latest is 0 if a base would have to move more often than about once a second, or would pass
// the horizon.
func divideWord(size int64, n uint, unit, horizon int64) (count uint, latest int64) {
	count = uint(bits.Len64(uint64(size)))
	if n*count > 61 {
		return count, 0
	}
	latest = PlusTimes(0, 1<<(62-n*count)-1, unit)
	if latest < MinReach {
		return count, 0
	}
	return count, min(latest, horizon/4)
}
