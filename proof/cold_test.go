package proof

import (
	"math/big"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/weirflow/weir"
	"github.com/weirflow/weir/internal/raced"
)

// TestRule1ColdIsSlower: a WarmUp that starts cold admits within d, except for the last request, at
// most as many permits as take d to take from a full store. That is r*Period*2/(1+ColdFactor) in
// the first Period, and r after that. Idle time only makes it colder.
func TestRule1ColdIsSlower(t *testing.T) {
	raced.Skip(t)
	for _, h := range holders {
		t.Run(h.name, func(t *testing.T) {
			rapid.Check(t, func(t *rapid.T) {
				l := warmUp(t, h.tick, century).(weir.WarmUp)
				if l.Rate == weir.Unlimited {
					l.Rate = weir.PerSecond(10)
				}
				if _, err := weir.Prepare(l, h.tick); err != nil {
					t.Skip("too much to count")
				}
				w := h.open(l, true)
				from := walkerAt(t, l, h.tick)
				from.now = min(from.now, endless/2)
				started, first, sum := false, int64(0), new(big.Int)
				walk(t, from, []verb{take, take, take, peek}, func(t *rapid.T, c call) outcome {
					o := w.do(c)
					if c.verb != take || !o.d.Allowed || c.cost == 0 {
						return o
					}
					if !started {
						started, first = true, c.now
					}
					since := new(big.Int).Sub(big.NewInt(c.now), big.NewInt(first))
					if least := fromCold(l, h.tick, sum); least.Cmp(new(big.Rat).SetInt(since)) > 0 && h.remembers {
						t.Fatalf("%+v: %v went within %v, and take %v", l, sum, since, least.FloatString(3))
					}
					sum.Add(sum, big.NewInt(c.cost))
					return o
				})
			})
		})
	}
}

// fromCold returns how many clock units the coldest state takes to admit a number of permits.
func fromCold(l weir.WarmUp, tick time.Duration, permits *big.Int) *big.Rat {
	n := new(big.Rat).SetInt(permits)
	each := new(big.Rat).Inv(perUnit(l, tick)) // when warm
	dear := new(big.Rat).Sub(stored(l), new(big.Rat).Quo(permitsIn(l.Rate, l.Period), big.NewRat(2, 1)))
	sum := new(big.Rat).Mul(n, each)
	if n.Cmp(dear) > 0 {
		n = dear
	}
	// The extra time of a permit rises linearly from 0 to ColdFactor-1 times the warm one: the area
	// of a triangle, minus that of what is left.
	top := new(big.Rat).Sub(coldOf(l), big.NewRat(1, 1))
	top.Mul(top, each)
	left := new(big.Rat).Sub(dear, n)
	area := new(big.Rat).Sub(new(big.Rat).Mul(dear, dear), left.Mul(left, left))
	return sum.Add(sum, area.Mul(area, top.Quo(top, dear.Add(dear, dear))))
}
