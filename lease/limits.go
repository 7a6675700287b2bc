package lease

import (
	"fmt"
	"math"
	"math/bits"
	"time"

	"github.com/weirflow/weir"
)

// ErrLimit is found by errors.Is in the Err of a charge of a limit that cannot be leased. errors.Is finds weir.ErrCharge too.
var ErrLimit = fmt.Errorf("the limit cannot be leased: %w", weir.ErrCharge)

// Leasable says why a limit cannot be leased, by an error in which errors.Is finds ErrLimit, or nil where it can: TokenBucket, FixedWindow,
// SlidingWindow and SlidingCounter. Whether its numbers are right is for the store to say. Call it where limits are configured: Do refuses
// the others with the same error.
func Leasable(l weir.Limit) error {
	switch l.(type) {
	case weir.TokenBucket, weir.FixedWindow, weir.SlidingWindow, weir.SlidingCounter:
		return nil
	case nil:
		return fmt.Errorf("weir: lease: no limit given: %w", ErrLimit)
	}
	return fmt.Errorf("weir: lease: %T is none of TokenBucket, FixedWindow, SlidingWindow and SlidingCounter: use the store itself for it: %w", l, ErrLimit)
}

// storeTick is the longest clock unit of a store, by which what it says of times may be rounded up.
const storeTick = time.Microsecond

// counted is how much longer what was charged just now is counted as of now: to the end of the window, or of the slot. What is used within
// that time is used as the limit itself would have admitted it. reset is the ResetAfter just after the charge. It reports false for a
// bucket, which has no such time.
func counted(l weir.Limit, reset time.Duration) (time.Duration, bool) {
	switch l := l.(type) {
	case weir.FixedWindow:
		return reset - storeTick, true
	case weir.SlidingWindow:
		return reset - time.Duration(l.Slots-1)*longest(l) - storeTick, true
	case weir.SlidingCounter:
		return reset - l.Window - storeTick, true
	}
	return 0, false
}

// longest is the longest that counted can be.
func longest(l weir.Limit) time.Duration {
	switch l := l.(type) {
	case weir.FixedWindow:
		if l.Window > 0 {
			return l.Window
		}
	case weir.SlidingWindow:
		if l.Slots > 0 {
			return l.Window / time.Duration(l.Slots)
		}
	case weir.SlidingCounter:
		return l.Window
	}
	return math.MaxInt64
}

// pause is the least time between two questions about a key that was refused, so that what comes back to it meanwhile is taken in one trip.
// It is short enough that a bucket does not fill up, and that a window is not left unused.
func pause(l weir.Limit, lifetime time.Duration) time.Duration {
	switch l := l.(type) {
	case weir.TokenBucket:
		return min(lifetime/32, wait(l.Rate, l.Burst)/4)
	case weir.SlidingCounter:
		return min(lifetime, l.Window) / 32
	}
	return 0 // it comes back at the start of a window or slot, all at once
}

// further is how much longer it takes until a cost fits that is larger by more. It reports false where that cannot be told.
func further(l weir.Limit, more int64) (time.Duration, bool) {
	if more == 0 {
		return 0, true
	}
	switch l := l.(type) {
	case weir.TokenBucket:
		return wait(l.Rate, more), true
	case weir.FixedWindow:
		return 0, true
	}
	return 0, false
}

// wait is how long a rate takes to bring n, rounded up.
func wait(r weir.Rate, n int64) time.Duration {
	d := mulDiv(n, int64(r.Per), r.N)
	if d < math.MaxInt64 && uint64(n)*uint64(r.Per) != uint64(d)*uint64(r.N) { // they differ by less than N
		d++
	}
	return time.Duration(d)
}

// mulDiv is a*b/c, rounded down, of numbers that are not negative; or the largest where that does not fit, or c is 0.
func mulDiv(a, b, c int64) int64 {
	if a <= 0 || b <= 0 {
		return 0
	}
	hi, lo := bits.Mul64(uint64(a), uint64(b))
	if c <= 0 || hi >= uint64(c) {
		return math.MaxInt64
	}
	q, _ := bits.Div64(hi, lo, uint64(c))
	return int64(min(q, math.MaxInt64))
}

// plus is a+b, held at the largest.
func plus(a int64, b time.Duration) int64 {
	if s := a + int64(b); s >= a || b < 0 {
		return s
	}
	return math.MaxInt64
}
