package rules

import (
	"math"
	"math/big"
	"math/bits"
	"time"

	"github.com/weirflow/weir/internal/u128"
)

// part is v/n, rounded down, and at least 1; an invalid v stays invalid.
func part(v, n int64) int64 {
	if v < 1 {
		return v
	}
	return max(1, v/n)
}

// dividedBy is the rate divided by n, exactly where its duration stays within MaxSpan, and
// otherwise what comes in that, rounded down.
func (r Rate) dividedBy(n int64) Rate {
	if r == Unlimited || r.N < 1 || r.Per < 1 {
		return r
	}
	g := gcd(r.N, n)
	r.N, n = r.N/g, n/g
	if int64(r.Per) <= int64(MaxSpan)/n {
		r.Per *= time.Duration(n)
		return r
	}
	v := new(big.Int).Mul(big.NewInt(r.N), big.NewInt(int64(MaxSpan)))
	v.Quo(v, new(big.Int).Mul(big.NewInt(int64(r.Per)), big.NewInt(n)))
	return Rate{N: max(1, v.Int64()), Per: MaxSpan}
}

// timeFor is how long the rate takes to bring n, rounded up; the longest duration on overflow.
func (r Rate) timeFor(n int64) time.Duration {
	if n <= 0 || r.Per <= 0 {
		return 0
	}
	if r.N <= 0 {
		return math.MaxInt64
	}
	return time.Duration(min(u128.Mul(uint64(n), uint64(r.Per)).DivCeil(uint64(r.N)), math.MaxInt64))
}

// mulDiv is a*b/c, rounded down. The numbers are at least 0, and the quotient must fit.
func mulDiv(a, b, c int64) int64 {
	hi, lo := bits.Mul64(uint64(a), uint64(b))
	if hi >= uint64(c) {
		return math.MaxInt64
	}
	q, _ := bits.Div64(hi, lo, uint64(c))
	return int64(min(q, math.MaxInt64))
}

// pieces is how many pieces the use of a sliding window is spread over.
const pieces = 16

// spread is a use that was even over a window.
func spread(limit int64, window time.Duration, pieces int) (all []Use) {
	m := min(int64(pieces), limit)
	for i := range m {
		cost := limit/m + (limit%m+i)/m // together the limit
		all = append(all, Use{Before: window - window/time.Duration(m)*time.Duration(i+1), Cost: cost})
	}
	return all
}

// usedAll is the use of everything that a bucket had saved up, except what it keeps.
func usedAll(keep int64) []Use { return []Use{{Cost: math.MaxInt64, Keep: keep}} }

// filling is how long an empty bucket takes to fill.
func filling(p Params) time.Duration {
	size, _ := p.MostPerRequest()
	r, err := p.Compile(time.Nanosecond)
	if err != nil || size < 1 {
		return 0
	}
	_, reset := r.Look(r.Charge(nil, 0, size), 0, 0)
	return time.Duration(reset)
}
