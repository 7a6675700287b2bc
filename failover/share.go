package failover

import (
	"cmp"
	"math"
	"math/big"
	"slices"
	"time"

	"github.com/weirflow/weir"
)

// longest is what no limit may count over: as in the root package.
const longest = 36525 * 24 * time.Hour

// Share returns the part of a limit that each of so many nodes may use where they cannot ask each other: what n of them admit together is
// within what the limit itself admits, but for what cannot be divided.
//
//	TokenBucket            Rate/n exactly; Burst/n, rounded down, and at least 1; Initial/n, rounded down
//	LeakyBucket            Rate/n exactly; Queue+1 and DelayAfter likewise
//	IntervalBucket         Burst/n; Refill/n at each step, or where that is below 1, 1 at each n/Refill-th
//	FixedWindow,           Limit/n in the same windows, and SlotLimit/n, each rounded down, and at least 1
//	SlidingWindow,
//	SlidingCounter,
//	SlidingLog
//	SmoothBursty, WarmUp   Rate/n exactly, over the same MaxBurst and Period
//	All                    each of its limits likewise
//
// Below one, nothing can be divided: with more nodes than Burst or Limit they have one each. A cost above the share's Burst or Limit never
// fits there, although the limit itself has room for it. A rate below one in 100 years is one in 100 years. A Concurrency is not
// divided.
func Share(l weir.Limit, nodes int) weir.Limit {
	if nodes < 2 {
		return l
	}
	n := int64(nodes)
	switch l := l.(type) {
	case weir.TokenBucket:
		l.Rate = slower(l.Rate, n)
		l.Burst = part(l.Burst, n)
		if l.Initial > 0 {
			if l.Initial /= n; l.Initial == 0 {
				l.Initial = weir.InitialEmpty
			}
		}
		return l
	case weir.LeakyBucket:
		l.Rate = slower(l.Rate, n)
		l.Queue = part(l.Queue+1, n) - 1
		l.DelayAfter = min(l.DelayAfter/n, l.Queue)
		return l
	case weir.IntervalBucket:
		return stepwise(l, n)
	case weir.FixedWindow:
		l.Limit = part(l.Limit, n)
		return l
	case weir.SlidingWindow:
		l.Limit = part(l.Limit, n)
		if l.SlotLimit > 0 {
			l.SlotLimit = part(l.SlotLimit, n)
		}
		return l
	case weir.SlidingCounter:
		l.Limit = part(l.Limit, n)
		return l
	case weir.SlidingLog:
		l.Limit = part(l.Limit, n)
		return l
	case weir.SmoothBursty:
		l.Rate = slower(l.Rate, n)
		return l
	case weir.WarmUp:
		l.Rate = slower(l.Rate, n)
		return l
	}
	parts := weir.Parts(l)
	if len(parts) == 1 && parts[0] == l {
		return l
	}
	for i := range parts {
		parts[i] = Share(parts[i], nodes)
	}
	return weir.All(parts...)
}

// part is v/n, rounded down, and at least 1; what is not valid stays so.
func part(v, n int64) int64 {
	if v < 1 {
		return v
	}
	return max(1, v/n)
}

// slower is the rate divided by n.
func slower(r weir.Rate, n int64) weir.Rate {
	if r == weir.Unlimited || r.N < 1 || r.Per < 1 {
		return r
	}
	g := gcd(r.N, n)
	r.N, n = r.N/g, n/g
	if int64(r.Per) <= int64(longest)/n {
		r.Per *= time.Duration(n)
		return r
	}
	// More than 100 years: what comes in 100 of them, rounded down.
	v := new(big.Int).Mul(big.NewInt(r.N), big.NewInt(int64(longest)))
	v.Quo(v, new(big.Int).Mul(big.NewInt(int64(r.Per)), big.NewInt(n)))
	return weir.Rate{N: max(1, v.Int64()), Per: longest}
}

func gcd(a, b int64) int64 {
	for b != 0 {
		a, b = b, a%b
	}
	return a
}

// stepwise is the share of an IntervalBucket.
func stepwise(l weir.IntervalBucket, n int64) weir.Limit {
	if l.Burst < 1 || l.Refill < 1 || l.Every < 1 {
		return l
	}
	l.Burst = part(l.Burst, n)
	if l.Refill >= n {
		l.Refill /= n
	} else {
		v := new(big.Int).Mul(big.NewInt(int64(l.Every)), big.NewInt(n))
		v.Add(v, big.NewInt(l.Refill-1)).Quo(v, big.NewInt(l.Refill))
		if l.Refill, l.Every = 1, longest; v.Cmp(big.NewInt(int64(longest))) < 0 {
			l.Every = time.Duration(v.Int64())
		}
	}
	// It is to be full within 100 years, also where it fills more slowly than the limit for what was rounded down.
	if steps := max(1, int64(longest/l.Every)); l.Burst/l.Refill >= steps {
		l.Burst = min(l.Burst, steps*l.Refill)
	}
	return l
}

// A piece is part of what a key is taken to have used when an outage begins.
type piece struct {
	before time.Duration // how long before that
	cost   int64         // at most
	keep   int64         // what is left to it at least
}

// of is the cost of a piece for a key about which a decision says what it has.
func (p piece) of(d weir.Decision) int64 { return min(p.cost, d.Remaining-p.keep) }

// limits is usedUp for a limit that may be several.
func limits(l weir.Limit, now int64) (pieces []piece) {
	for _, l := range weir.Parts(l) {
		pieces = append(pieces, usedUp(l, now)...)
	}
	slices.SortStableFunc(pieces, func(a, b piece) int { return cmp.Compare(b.before, a.before) })
	return pieces
}

// used is the state of a key that was never seen, and has used all that.
func used(p weir.Prepared, began int64, pieces []piece) (state []int64) {
	for _, piece := range pieces {
		at := began - int64(piece.before)
		if cost := piece.of(p.Peek(state, at, 0)); cost > 0 {
			state, _ = p.Step(state, at, cost)
		}
	}
	return state
}

// spreadOver is how many pieces the use of a sliding window is spread over.
const spreadOver = 16

// usedUp is what a key would have used of a limit before now, had it used it all at the limit's pace: of buckets all that they had
// saved up, of windows as much as would have come in them. now is wall time.
func usedUp(l weir.Limit, now int64) (pieces []piece) {
	const all = math.MaxInt64
	switch l := l.(type) {
	case weir.TokenBucket, weir.IntervalBucket:
		return []piece{{cost: all}}
	case weir.LeakyBucket:
		return []piece{{cost: all, keep: l.Queue - l.DelayAfter}} // as if one had gone now, and what may go undelayed
	case weir.SmoothBursty:
		if l.Rate == weir.Unlimited {
			return nil
		}
		return []piece{{cost: all}}
	case weir.FixedWindow:
		if l.Align == weir.AlignFirst { // that began half of it ago
			return []piece{{before: l.Window / 2, cost: l.Limit - l.Limit/2}}
		}
		return []piece{{cost: all, keep: rest(l, now)}}
	case weir.SlidingWindow:
		return spread(l.Limit, l.Window, min(l.Slots, spreadOver))
	case weir.SlidingCounter:
		return spread(l.Limit, l.Window, spreadOver)
	case weir.SlidingLog:
		return spread(l.Limit, l.Window, spreadOver)
	}
	return nil // WarmUp begins cold
}

// spread is a use that was even over a window.
func spread(limit int64, window time.Duration, pieces int) (all []piece) {
	m := min(int64(pieces), limit)
	for i := range m {
		cost := limit/m + (limit%m+i)/m // together the limit
		all = append(all, piece{before: window - window/time.Duration(m)*time.Duration(i+1), cost: cost})
	}
	return all
}

// rest is what comes in the rest of a window that is there already, rounded down.
func rest(l weir.FixedWindow, now int64) int64 {
	length, unit := l.Window, int64(l.Window)
	if l.Window == 0 {
		length = calendarLength(l.Align)
		unit = int64(length)
	}
	p, err := weir.Prepare(l, time.Nanosecond)
	if err != nil || length <= 0 {
		return 0
	}
	_, d := p.Step(nil, now, 1)
	left := min(int64(d.ResetAfter), unit)
	v := new(big.Int).Mul(big.NewInt(l.Limit), big.NewInt(left))
	return v.Quo(v, big.NewInt(unit)).Int64()
}

// calendarLength is how long a window of a calendar is at most.
func calendarLength(a weir.Align) time.Duration {
	const day = 24 * time.Hour
	switch {
	case len(a) >= 3 && a[:3] == "day":
		return day
	case len(a) >= 4 && a[:4] == "week":
		return 7 * day
	case len(a) >= 5 && a[:5] == "month":
		return 31 * day
	}
	return 366 * day
}
