package proof

import (
	"fmt"
	"math"
	"math/big"
	"time"

	"github.com/weirflow/weir"
)

// What is known of each limit: its parameters, its rhythm, and the bound of docs/guarantees.md on what it
// admits.

// sizeOf returns the capacity that decisions show.
func sizeOf(l weir.Limit) int64 {
	if parts := weir.Parts(l); len(parts) > 1 {
		return leastOf(parts, sizeOf)
	}
	switch l := l.(type) {
	case weir.TokenBucket:
		return l.Burst
	case weir.LeakyBucket:
		return l.Queue + 1
	case weir.NginxBucket:
		return l.Queue + 1
	case weir.IntervalBucket:
		return l.Burst
	case weir.FixedWindow:
		return l.Limit
	case weir.SlidingLog:
		return l.Limit
	case weir.SlidingCounter:
		return l.Limit
	case weir.SlidingWindow:
		return perSlot(l)
	case weir.SmoothBursty, weir.WarmUp:
		return floorOf(stored(l))
	}
	panic(fmt.Sprintf("proof: no size of %T", l))
}

// thousandths returns how much of a request drains in a second in nginx, in thousandths.
func thousandths(l weir.NginxBucket) int64 { return l.Rate.N * 1000 / int64(l.Rate.Per/time.Second) }

// perSlot returns the most for one slot.
func perSlot(l weir.SlidingWindow) int64 {
	if l.SlotLimit == 0 {
		return l.Limit
	}
	return l.SlotLimit
}

// largestOf returns the largest cost of one charge.
func largestOf(l weir.Limit, tick time.Duration) int64 {
	if parts := weir.Parts(l); len(parts) > 1 {
		return leastOf(parts, func(p weir.Limit) int64 { return largestOf(p, tick) })
	}
	if owing(l) {
		return floorOf(permitsIn(owingRateOf(l), century/tick*tick)) // bounded by the longest wait
	}
	return sizeOf(l)
}

// rateOf returns the rate of a limit that has one.
func rateOf(l weir.Limit) (r weir.Rate, ok bool) {
	switch l := l.(type) {
	case weir.TokenBucket:
		return l.Rate, true
	case weir.LeakyBucket:
		return l.Rate, true
	case weir.SmoothBursty, weir.WarmUp:
		return owingRateOf(l), true
	}
	return r, false
}

// rhythm returns the time in which one token refills, and that in which all do, in clock units.
func rhythm(l weir.Limit, tick time.Duration) (one, all float64) {
	if parts := weir.Parts(l); len(parts) > 1 {
		return rhythm(parts[0], tick)
	}
	if owing(l) {
		return owingRhythm(l, tick)
	}
	if r, ok := rateOf(l); ok {
		one = float64(r.Per) / float64(r.N) / float64(tick)
		return one, one * float64(max(1, min(sizeOf(l), 1<<40)))
	}
	unit := float64(tick)
	switch l := l.(type) {
	case weir.NginxBucket:
		one = max(float64(time.Second)*1000/float64(thousandths(l)), float64(time.Millisecond)) / unit
		return one, one * float64(min(l.Queue+1, 1<<40))
	case weir.IntervalBucket:
		return float64(l.Every) / unit, float64(l.Every) / unit * math.Ceil(float64(l.Burst)/float64(l.Refill))
	case weir.FixedWindow:
		if dated(l) {
			return float64(8*time.Hour) / unit, float64(40*24*time.Hour) / unit
		}
		return float64(l.Window) / unit / 3, float64(l.Window) / unit
	case weir.SlidingLog:
		return float64(l.Window) / unit / 4, float64(l.Window) / unit
	case weir.SlidingCounter:
		return float64(l.Window) / unit / 8, float64(l.Window) / unit
	case weir.SlidingWindow:
		return float64(l.Window) / unit / float64(l.Slots), float64(l.Window) / unit
	}
	panic(fmt.Sprintf("proof: no rhythm of %T", l))
}

// byVolume reports whether the promised time behind a queue follows from the sum of the costs
// ahead. It is then never later than the turn, but may be earlier if costs do not fill their
// windows.
func byVolume(l weir.Limit) bool {
	_, ok := rateOf(l)
	return !ok
}

// evenly reports whether that time is exact if all costs are 1.
func evenly(l weir.Limit) bool {
	switch l := l.(type) {
	case weir.IntervalBucket:
		return l.Refill <= l.Burst
	case weir.SlidingCounter:
		return false
	case weir.SlidingWindow:
		return perSlot(l) == l.Limit
	case weir.SlidingLog:
		return l.MaxEntries == 0 // otherwise charges are merged, and expire later
	case weir.NginxBucket:
		return false // each charge rounds off what has drained
	}
	return true
}

// perUnit returns how many tokens one clock unit brings; 0 for a limit without a rate.
func perUnit(l weir.Limit, tick time.Duration) *big.Rat {
	r, ok := rateOf(l)
	if !ok || r == weir.Unlimited {
		return new(big.Rat)
	}
	return new(big.Rat).SetFrac(new(big.Int).Mul(big.NewInt(r.N), big.NewInt(int64(tick))), big.NewInt(int64(r.Per)))
}

// whole reports whether tokens come at whole clock units, so that no promised time is rounded.
func whole(l weir.Limit, tick time.Duration) bool {
	return perUnit(l, tick).Num().Cmp(big.NewInt(1)) <= 0
}

// paced reports whether one clock unit brings at most one token. If it brings several, a queue
// still serves only one waiter in each clock unit.
func paced(l weir.Limit, tick time.Duration) bool { return perUnit(l, tick).Cmp(big.NewRat(1, 1)) <= 0 }

// times returns n*m. parts returns into how many pieces of a given size d is divided, counting the
// last incomplete one.
func times(n int64, m *big.Int) *big.Rat { return new(big.Rat).SetInt(m.Mul(m, big.NewInt(n))) }

func parts(d, size *big.Int) *big.Int {
	n := new(big.Int).Add(d, size)
	return n.Div(n.Sub(n, big.NewInt(1)), size)
}

// boundOf returns the most that may run between two readings, for a limit without a rate; nil for
// others.
func boundOf(l weir.Limit, tick time.Duration, lo, hi int64) *big.Rat {
	d := new(big.Int).Sub(big.NewInt(hi), big.NewInt(lo))
	units := func(d time.Duration) *big.Int { return big.NewInt(int64(d / tick)) }
	one := big.NewInt(1)
	switch l := l.(type) {
	case weir.NginxBucket:
		drained := times(thousandths(l), d.Add(d, units(time.Millisecond)))
		drained.Quo(drained, times(1000, units(time.Second)))
		return drained.Add(drained, new(big.Rat).SetInt64(l.Queue+1))
	case weir.IntervalBucket:
		sum := times(l.Refill, parts(d, units(l.Every)))
		return sum.Add(sum, new(big.Rat).SetInt64(l.Burst))
	case weir.FixedWindow:
		switch {
		case dated(l): // the shortest window is a day on which clocks are put forward
			return times(l.Limit, one.Add(one, parts(d, units(22*time.Hour))))
		case l.Align == weir.AlignFirst && d.Sign() == 0:
			return times(l.Limit, one)
		case l.Align == weir.AlignFirst:
			return times(l.Limit, one.Add(one, parts(d, units(l.Window))))
		}
		first := new(big.Int).Div(big.NewInt(lo), units(l.Window))
		last := new(big.Int).Div(big.NewInt(hi), units(l.Window))
		return times(l.Limit, one.Add(one, last.Sub(last, first)))
	case weir.SlidingLog:
		return times(l.Limit, one.Add(one, d.Div(d, units(l.Window))))
	case weir.SlidingCounter:
		share := new(big.Rat).SetFrac(d, units(l.Window))
		return share.Add(share, big.NewRat(1, 1)).Mul(share, new(big.Rat).SetInt64(l.Limit))
	case weir.SlidingWindow:
		window, width := units(l.Window), units(l.Window/time.Duration(l.Slots))
		safe := new(big.Int).Sub(window, width)
		if d.Cmp(safe) > 0 && d.Cmp(window) <= 0 {
			return new(big.Rat).SetInt(new(big.Int).Add(big.NewInt(l.Limit), big.NewInt(perSlot(l))))
		}
		return times(l.Limit, parts(d.Add(d, one), safe.Add(safe, one))) // divided into pieces that are safe
	}
	return nil
}
