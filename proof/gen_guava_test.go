package proof

import (
	"math"
	"math/big"
	"time"

	"pgregory.net/rapid"

	"github.com/weirflow/weir"
)

// Generators and facts of SmoothBursty and WarmUp, which admit any cost and make the next request
// wait for it.

var guavaKinds = []kind{
	{"SmoothBursty", smoothBursty, smallBursty},
	{"WarmUp", warmUp, smallWarmUp},
}

func smoothBursty(t *rapid.T, tick, fill time.Duration) weir.Limit {
	l := weir.SmoothBursty{Rate: owingRate(t, tick, fill)}
	l.MaxBurst = rapid.OneOf(
		rapid.Just(time.Duration(-1)),
		rapid.Just(time.Duration(0)),
		rapid.Custom(func(t *rapid.T) time.Duration { return drawSpan(t, tick, fill) }),
	).Draw(t, "max_burst")
	return l
}

func warmUp(t *rapid.T, tick, fill time.Duration) weir.Limit {
	l := weir.WarmUp{Rate: owingRate(t, tick, fill), Period: drawSpan(t, tick, fill), ColdFactor: coldFactor(t)}
	for { // a limit with too much to count is an error, and is drawn again
		if _, err := weir.Prepare(l, tick); err == nil {
			return l
		}
		l.Rate.N = l.Rate.N>>8 + 1
	}
}

// coldFactor draws whole parts of 65536, and values that are rounded to them.
func coldFactor(t *rapid.T) float64 {
	return rapid.OneOf(
		rapid.SampledFrom([]float64{0, 1, 1.3, 2, 3, 4.25, 65536, 1 + 1./65536, 1 + 1./(1<<20), 65535.99999}),
		rapid.Float64Range(1, 65536),
	).Draw(t, "cold_factor")
}

// owingRate draws a rate; sometimes Unlimited.
func owingRate(t *rapid.T, tick, fill time.Duration) weir.Rate {
	if rapid.IntRange(0, 19).Draw(t, "unlimited") == 19 {
		return weir.Unlimited
	}
	return drawRate(t, tick, fill)
}

func smallBursty(t *rapid.T, length time.Duration) weir.Limit {
	store := rapid.SampledFrom([]time.Duration{-1, length, 2 * length, 3 * length, 4 * length}).Draw(t, "store")
	return weir.SmoothBursty{Rate: weir.Rate{N: 1, Per: length}, MaxBurst: store}
}

func smallWarmUp(t *rapid.T, length time.Duration) weir.Limit {
	return weir.WarmUp{
		Rate: weir.Rate{N: 1, Per: length}, Period: length * time.Duration(upTo(8).Draw(t, "period")),
		ColdFactor: rapid.SampledFrom([]float64{1, 2, 3}).Draw(t, "cold_factor"),
	}
}

// owing reports whether a limit admits any cost at once and makes the next request wait for it.
func owing(l weir.Limit) bool {
	switch l.(type) {
	case weir.SmoothBursty, weir.WarmUp:
		return true
	}
	return false
}

// roundsEach reports whether a limit rounds the cost of each charge up to a clock unit. The time
// that is promised behind a queue is then too early by one unit for each waiter.
func roundsEach(l weir.Limit) bool {
	_, ok := l.(weir.WarmUp)
	return ok
}

// permitsIn returns how many permits a rate brings in a time, exactly; nil if it is Unlimited.
func permitsIn(r weir.Rate, d time.Duration) *big.Rat {
	if r == weir.Unlimited {
		return nil
	}
	return new(big.Rat).SetFrac(new(big.Int).Mul(big.NewInt(int64(d)), big.NewInt(r.N)), big.NewInt(int64(r.Per)))
}

// stored returns how many permits a limit can store.
func stored(l weir.Limit) *big.Rat {
	switch l := l.(type) {
	case weir.SmoothBursty:
		return permitsIn(l.Rate, storeOf(l))
	case weir.WarmUp:
		all := permitsIn(l.Rate, l.Period)
		if all == nil {
			return nil
		}
		// half of the permits of the period, and the other half weighted by the cold rate
		cold := new(big.Rat).Add(coldOf(l), big.NewRat(1, 1))
		part := new(big.Rat).Add(big.NewRat(1, 2), cold.Quo(big.NewRat(2, 1), cold))
		return part.Mul(part, all)
	}
	return new(big.Rat)
}

// storeOf returns the time during which permits are stored.
func storeOf(l weir.SmoothBursty) time.Duration {
	if l.MaxBurst == 0 {
		return time.Second
	}
	return max(l.MaxBurst, 0)
}

// coldOf returns the effective ColdFactor.
func coldOf(l weir.WarmUp) *big.Rat {
	if l.ColdFactor == 0 {
		return big.NewRat(3, 1)
	}
	return big.NewRat(int64(math.Round(l.ColdFactor*65536)), 65536)
}

// floorOf returns the whole part, or the largest int64 if it does not fit.
func floorOf(v *big.Rat) int64 {
	if v == nil {
		return math.MaxInt64
	}
	if q := new(big.Int).Quo(v.Num(), v.Denom()); q.IsInt64() {
		return q.Int64()
	}
	return math.MaxInt64
}

// owingRateOf returns the rate of an owing limit.
func owingRateOf(l weir.Limit) weir.Rate {
	switch l := l.(type) {
	case weir.SmoothBursty:
		return l.Rate
	case weir.WarmUp:
		return l.Rate
	}
	return weir.Rate{}
}

// owingBurst returns what an owing limit admits in an interval beyond its rate: the permits that a
// SmoothBursty has stored, and the last cost, for which nothing has waited. The stored permits of a
// WarmUp have to be waited for, too.
func owingBurst(l weir.Limit, largest int64) *big.Rat {
	burst := new(big.Rat).SetInt64(largest)
	if l, ok := l.(weir.SmoothBursty); ok {
		burst.Add(burst, stored(l))
	}
	return burst
}

// owingRhythm is rhythm for an owing limit.
func owingRhythm(l weir.Limit, tick time.Duration) (one, all float64) {
	r := owingRateOf(l)
	if r == weir.Unlimited {
		return 1000, 1e6
	}
	one = float64(r.Per) / float64(r.N) / float64(tick)
	switch l := l.(type) {
	case weir.SmoothBursty:
		return one, max(one, float64(storeOf(l))/float64(tick))
	case weir.WarmUp:
		return one, max(one, float64(l.Period)/float64(tick))
	}
	return one, one
}

// owingBound returns the bound across changes of an owing limit. A debt is a time, and so are
// stored permits: a cost charged at one rate is waited for at that rate, also after a change. So
// the bound uses the fastest rate, both for the interval and for the longest store.
func owingBound(versions []version, tick time.Duration, fastest *big.Rat, lo, hi, largest int64) *big.Rat {
	units := new(big.Int).Sub(big.NewInt(hi), big.NewInt(lo))
	store := int64(0)
	for _, e := range versions {
		if l, ok := e.limit.(weir.SmoothBursty); ok {
			store = max(store, int64(storeOf(l)/tick))
		}
	}
	bound := new(big.Rat).SetInt(units.Add(units, big.NewInt(store)))
	bound.Mul(bound, fastest)
	return bound.Add(bound, new(big.Rat).SetInt64(largest))
}
