package weir_test

import (
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/weirflow/weir"
	"github.com/weirflow/weir/internal/raced"
	"github.com/weirflow/weir/internal/seeds"
	"github.com/weirflow/weir/weirtest"
)

// TestGroupRetryAfterOfTheSameTwice: in random groups that list limiters several times, a refused call is
// admitted after RetryAfter and not a nanosecond sooner, and never if RetryAfter is Never. A group that
// could never be charged said when the last of its costs would fit without the first.
func TestGroupRetryAfterOfTheSameTwice(t *testing.T) {
	raced.Skip(t)
	random := seeds.Of(t.Name())
	limits := weirtest.Limits()
	waits, nevers, changed := 0, 0, 0
	for range 3000 {
		c := new(weirtest.Clock)
		c.Set(int64(time.Hour) * random.Int64N(20000))
		var members []*weir.Limiter
		for range 1 + random.IntN(2) {
			l := limits[random.IntN(len(limits))](random)
			one, err := weir.New(l, weir.WithClock(c.Now))
			if err != nil {
				continue // an All of limits that do not fit
			}
			members = append(members, slices.Repeat([]*weir.Limiter{one}, 1+random.IntN(3))...)
		}
		random.Shuffle(len(members), func(i, j int) { members[i], members[j] = members[j], members[i] })
		g := weir.NewGroup(members...)
		for range 12 {
			costs := drawCosts(random, members)
			d := g.Take(costs...)
			if d.Allowed {
				continue
			}
			then := c.Now()
			if alone := longestAlone(members, costs); alone != d.RetryAfter {
				changed++
			}
			if d.RetryAfter == weir.Never {
				nevers++
				for _, wait := range []time.Duration{1, time.Second, d.ResetAfter, time.Hour * 24 * 365} {
					if c.Set(then + int64(wait)); g.Peek(costs...).Allowed {
						t.Fatalf("%v of %v: never, and admitted after %v", costs, limitsOf(members), wait)
					}
				}
				c.Set(then + random.Int64N(int64(time.Second)))
				continue
			}
			waits++
			c.Set(then + int64(d.RetryAfter) - 1)
			if sooner := g.Peek(costs...); sooner.Allowed {
				t.Fatalf("%v of %#v: admitted before %v; at %d", costs, limitsOf(members), d, then)
			}
			c.Set(then + int64(d.RetryAfter))
			if later := g.Peek(costs...); !later.Allowed {
				t.Fatalf("%v of %v: refused after %v: %+v", costs, limitsOf(members), d.RetryAfter, later)
			}
			if random.IntN(2) == 0 {
				c.Set(then + random.Int64N(int64(d.RetryAfter))) // other calls in between
			}
		}
	}
	if waits < 500 || nevers < 500 || changed < 500 {
		t.Errorf("%d waits, %d nevers, %d that one limiter alone does not say", waits, nevers, changed)
	}
}

// drawCosts draws a cost for each limiter, around what several of them can have together.
func drawCosts(r *rand.Rand, members []*weir.Limiter) (costs []int64) {
	for _, l := range members {
		most := max(min(l.Peek(0).Limit, 1<<40), 1)
		costs = append(costs, min(r.Int64N(4), most))
		if r.IntN(3) == 0 {
			costs[len(costs)-1] = r.Int64N(most + 1)
		}
	}
	return costs
}

// longestAlone returns the longest wait of the costs, each by itself.
func longestAlone(members []*weir.Limiter, costs []int64) (longest time.Duration) {
	for i, l := range members {
		switch d := l.Peek(costs[i]); {
		case d.RetryAfter == weir.Never:
			return weir.Never
		default:
			longest = max(longest, d.RetryAfter)
		}
	}
	return longest
}

func limitsOf(members []*weir.Limiter) (all []weir.Limit) {
	for _, l := range members {
		all = append(all, l.Limit())
	}
	return all
}
