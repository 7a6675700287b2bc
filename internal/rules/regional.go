package rules

import (
	"math"
	"math/big"
	"time"
)

// Divided is the Params of algorithms whose limits can be divided between regions, in parts that
// move.
type Divided interface {
	Params
	// Part is what one of several regions may use while it has units of whole. What comes with time
	// (a rate, the limit of a window) is divided by units. What is saved up (a burst) is divided
	// equally, and does not move: a bucket that was used up in one region would otherwise be full in
	// the next. Everything is rounded down; ok is false if nothing would be left.
	Part(units, whole, regions int64) (part Params, ok bool)
	// Settles is how long what was charged under this part may still count by its rules, after a
	// smaller part has come into force: a state in a store drains at the rate under which it was last
	// charged. After it, states are idle, or follow the smaller part.
	Settles() time.Duration
}

// fineness is how many parts of a token a store counts at least if two versions of a bucket share a
// state (weirtest.Versions). finePer is a duration in which rates of whole numbers are so fine: a
// prime number of the stores' clock units.
const (
	fineness  = 64
	storeUnit = time.Microsecond
	finePer   = 1_000_003 * storeUnit
)

// scaled is the rate times units/whole: exactly where its duration stays within MaxSpan, and
// otherwise rounded down. Rates of which a store would keep a state for each are rounded down to one
// that shares its state with others, by at most 1 in 15,000.
func (r Rate) scaled(units, whole int64) Rate {
	if r == Unlimited || r.N < 1 || r.Per < 1 {
		return r
	}
	n, per := new(big.Int).Mul(big.NewInt(r.N), big.NewInt(units)), new(big.Int).Mul(big.NewInt(int64(r.Per)), big.NewInt(whole))
	g := new(big.Int).GCD(nil, nil, n, per)
	n.Quo(n, g)
	per.Quo(per, g)
	in := func(span time.Duration) Rate { // what comes in a span
		v := new(big.Int).Mul(n, big.NewInt(int64(span)))
		if v.Quo(v, per); !v.IsInt64() {
			return r
		}
		return Rate{N: v.Int64(), Per: span}
	}
	switch scaled := (Rate{N: n.Int64(), Per: time.Duration(per.Int64())}); {
	case !per.IsInt64() || scaled.Per > MaxSpan || !n.IsInt64():
		return in(MaxSpan)
	case tooCoarse(scaled):
		return in(finePer)
	default:
		return scaled
	}
}

// tooCoarse reports whether a store would keep a state of its own for the rate.
func tooCoarse(r Rate) bool {
	_, p, err := r.ticks(storeUnit)
	return err == nil && p < fineness
}

// Part implements Divided.
func (l TokenBucket) Part(units, whole, regions int64) (Params, bool) {
	l.Rate, l.Burst = l.Rate.scaled(units, whole), l.Burst/regions
	if l.Initial > 0 {
		if l.Initial /= regions; l.Initial == 0 {
			l.Initial = InitialEmpty
		}
	}
	return l, l.Rate.N > 0 && l.Burst > 0
}

// Settles implements Divided: a bucket that was last charged under this rate is full by then.
func (l TokenBucket) Settles() time.Duration { return l.Rate.timeFor(l.Burst) }

// windowsSettle is how many windows the parts of one have to be apart: the last window of the larger
// part ends before any window begins in which another region has more.
const windowsSettle = 2

func settlesWindow(window time.Duration) time.Duration {
	if window > math.MaxInt64/windowsSettle {
		return math.MaxInt64
	}
	return windowsSettle * window
}

// Part implements Divided.
func (l FixedWindow) Part(units, whole, _ int64) (Params, bool) {
	l.Limit = mulDiv(l.Limit, units, whole)
	return l, l.Limit > 0
}

// Settles implements Divided. A window of a calendar is longer than any that parts can follow.
func (l FixedWindow) Settles() time.Duration {
	if l.CalendarAlign() != "" {
		return math.MaxInt64
	}
	return settlesWindow(l.Window)
}

// Part implements Divided.
func (l SlidingWindow) Part(units, whole, _ int64) (Params, bool) {
	l.Limit = mulDiv(l.Limit, units, whole)
	if l.SlotLimit > 0 {
		if l.SlotLimit = mulDiv(l.SlotLimit, units, whole); l.SlotLimit == 0 {
			return l, false
		}
	}
	return l, l.Limit > 0
}

// Settles implements Divided.
func (l SlidingWindow) Settles() time.Duration { return settlesWindow(l.Window) }
