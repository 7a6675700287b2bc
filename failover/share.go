package failover

import (
	"cmp"
	"slices"
	"time"

	"github.com/weirflow/weir"
	"github.com/weirflow/weir/internal/rules"
)

// Share returns the part of a limit that each of n nodes may use by itself: what n nodes admit
// together is within the limit, except for what cannot be divided.
//
//	TokenBucket            Rate/n exactly; Burst/n, rounded down, and at least 1; Initial/n, rounded down
//	LeakyBucket            Rate/n exactly; Queue+1 and DelayAfter likewise
//	NginxBucket            the same, with a rate that nginx can write
//	IntervalBucket         Burst/n; Refill/n at each step, or where that is below 1, 1 at each n/Refill-th
//	FixedWindow,           Limit/n in the same windows, and SlotLimit/n, each rounded down, and at least 1
//	SlidingWindow,
//	SlidingCounter,
//	SlidingLog
//	SmoothBursty, WarmUp   Rate/n exactly, over the same MaxBurst and Period
//	All                    each of its limits likewise
//
// One token cannot be divided: with more nodes than Burst or Limit, each has one. A cost above the
// share's Burst or Limit never fits there, although it fits the limit. A rate below one in 100
// years becomes one in 100 years. A Concurrency is not divided here: see Store.Enter.
func Share(l weir.Limit, nodes int) weir.Limit {
	if nodes < 2 {
		return l
	}
	if p, ok := rules.ParamsOf(l).(rules.Shared); ok {
		return rules.WithParams(l, p.Share(int64(nodes)))
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

// costOf returns the cost of a use, for a key with that decision.
func costOf(u rules.Use, d weir.Decision) int64 { return min(u.Cost, d.Remaining-u.Keep) }

// limits is usedUp for a limit that may be several.
func limits(l weir.Limit, now int64) (pieces []rules.Use) {
	for _, l := range weir.Parts(l) {
		pieces = append(pieces, usedUp(l, now)...)
	}
	slices.SortStableFunc(pieces, func(a, b rules.Use) int { return cmp.Compare(b.Before, a.Before) })
	return pieces
}

// used returns the state of a new key after these uses.
func used(p weir.Prepared, began int64, pieces []rules.Use) (state []int64) {
	for _, piece := range pieces {
		at := began - int64(piece.Before)
		if cost := costOf(piece, p.Peek(state, at, 0)); cost > 0 {
			state, _ = p.Step(state, at, cost)
		}
	}
	return state
}

// usedUp returns what a key that always used a limit in full would have used before now: the whole
// burst of a bucket, and of a window as much as it admits by then. now is wall time.
func usedUp(l weir.Limit, now int64) []rules.Use {
	p, ok := rules.ParamsOf(l).(rules.Shared)
	if !ok {
		return nil
	}
	_, d := weir.Step(l, nil, now, 1, time.Nanosecond)
	return p.UsedUp(d.ResetAfter)
}
