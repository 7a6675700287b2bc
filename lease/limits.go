package lease

import (
	"fmt"
	"math"
	"math/bits"
	"time"

	"github.com/weirflow/weir"
	"github.com/weirflow/weir/internal/rules"
)

// ErrLimit means that a limit cannot be leased. errors.Is finds it in the Err of a charge, and
// weir.ErrCharge too.
var ErrLimit = fmt.Errorf("the limit cannot be leased: %w", weir.ErrCharge)

// Leasable says why a limit cannot be leased, by an error in which errors.Is finds ErrLimit, or nil
// where it can: TokenBucket, FixedWindow, SlidingWindow and SlidingCounter. Whether its parameters
// are right is for the store to say. Call it where limits are configured: Do refuses the others
// with the same error.
func Leasable(l weir.Limit) error {
	k := rules.KindOf(l)
	switch {
	case l == nil:
		return fmt.Errorf("weir: lease: no limit given: %w", ErrLimit)
	case k == nil:
		return fmt.Errorf("weir: lease: %T cannot be leased: its parts would be charged at different times: use the store itself for it: %w", l, ErrLimit)
	case k.NoLease != "":
		return fmt.Errorf("weir: lease: %T cannot be leased: %s: use the store itself for it: %w", l, k.NoLease, ErrLimit)
	}
	return nil
}

// storeTick is the longest clock unit of a store: its times may be rounded up by so much.
const storeTick = time.Microsecond

// termsOf returns how a limit is leased. The limit is Leasable.
func termsOf(l weir.Limit) rules.Leased { return rules.ParamsOf(l).(rules.Leased) }

// mulDiv returns a*b/c, rounded down, for numbers that are not negative; the largest int64 if that
// does not fit, or c is 0.
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

// plus returns a+b, at most the largest int64.
func plus(a int64, b time.Duration) int64 {
	if s := a + int64(b); s >= a || b < 0 {
		return s
	}
	return math.MaxInt64
}
