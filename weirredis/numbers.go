package weirredis

import (
	"fmt"
	"math"

	"github.com/weirflow/weir"
)

// windowNumbers are Limit, SlotLimit, Slots, and the width of a slot.
func windowNumbers(l weir.SlidingWindow) []int64 {
	perSlot := l.SlotLimit
	if perSlot == 0 {
		perSlot = l.Limit
	}
	return []int64{l.Limit, perSlot, int64(l.Slots), int64(l.Window/tick) / int64(l.Slots)}
}

// maxEntries is how many charges a log may remember in Redis: each one copies them.
const maxEntries = 1 << 14

// logNumbers are Limit, Window and MaxEntries.
func logNumbers(l weir.SlidingLog) ([]int64, error) {
	entries := int64(l.MaxEntries)
	if entries == 0 {
		entries = max(2, min(l.Limit, 4096))
	}
	if entries > maxEntries {
		return nil, fmt.Errorf("weirredis: SlidingLog.MaxEntries: %d are too many for Redis, where each charge copies them all: at most %d", entries, maxEntries)
	}
	return []int64{l.Limit, int64(l.Window / tick), entries}, nil
}

// warmNumbers are the rate in ticks, the period, and the cold factor as a fraction; n is 0 for a rate without end.
func warmNumbers(l weir.WarmUp) ([]int64, error) {
	if l.Rate == weir.Unlimited {
		return []int64{0, 1, 0, 1, 1}, nil
	}
	n, p, err := ticks(l.Rate)
	if err != nil {
		return nil, err
	}
	w, err := weir.Prepare(l, tick)
	if err != nil {
		return nil, err
	}
	if permits := w.Peek(nil, 0, 0).Limit; permits > most {
		return nil, fmt.Errorf("weirredis: WarmUp.Period: %v at %v stores %d permits, which is more than Redis can count: at most %d", l.Period, l.Rate, permits, int64(most))
	}
	factor := l.ColdFactor
	if factor == 0 {
		factor = 3
	}
	const parts = 1 << 16 // what weir rounds a ColdFactor to parts of
	k := int64(math.Round(factor * parts))
	g := gcd(k, parts)
	return []int64{n, p, int64(l.Period / tick), k / g, parts / g}, nil
}
