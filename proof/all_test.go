package proof

import (
	"math"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/weirflow/weir"
	"github.com/weirflow/weir/internal/raced"
)

// allKind draws an All of two or more limits of any algorithms.
var allKind = kind{name: "All", draw: func(t *rapid.T, tick, fill time.Duration) weir.Limit {
	parts := make([]weir.Limit, rapid.SampledFrom([]int{2, 2, 2, 3, 3, 8}).Draw(t, "parts"))
	for i := range parts {
		parts[i] = either(t, tick, fill)
	}
	return weir.All(parts...)
}}

// leastOf returns the least value of a function over limits.
func leastOf(parts []weir.Limit, of func(weir.Limit) int64) int64 {
	least := int64(math.MaxInt64)
	for _, p := range parts {
		least = min(least, of(p))
	}
	return least
}

// TestRule1AllIsNeverOver: what an All admits is within the bound of each of its limits. A waiter
// of several limits goes when the last of them has room, at a whole clock unit.
func TestRule1AllIsNeverOver(t *testing.T) {
	raced.Skip(t)
	eachOf(t, []kind{allKind}, holders, func(t *testing.T, k kind, h holder) {
		verbs, slack := []verb{take, take, take, peek}, int64(0)
		if h.books {
			verbs, slack = append(verbs, join, join, leave, reserve, settle), 1
		}
		rapid.Check(t, func(t *rapid.T) {
			l := k.draw(t, h.tick, century)
			r := record(h.open(l, true), l, h.tick)
			from := linesAt(t, l, h.tick)
			from.back = h.remembers && !h.books
			walk(t, from, verbs, func(t *rapid.T, c call) outcome { return r.do(c) })
			for _, p := range weir.Parts(l) {
				one := *r.inOrder()
				if one.versions = []version{{limit: p}}; from.back {
					one.runs = r.runs
				}
				if over := one.over(slack); over != "" {
					t.Fatalf("%+v of %+v: %s", p, l, over)
				}
			}
		})
	})
}

// TestRule3AllIsExact: every decision, the part in By, and every turn equal the model's.
func TestRule3AllIsExact(t *testing.T) {
	raced.Skip(t)
	eachOf(t, []kind{allKind}, holders, func(t *testing.T, k kind, h holder) {
		verbs := []verb{take, take, take, peek}
		if h.books {
			verbs = append(verbs, reserve, settle, join, join, leave)
		}
		rapid.Check(t, func(t *rapid.T) { besideModel(t, k, h, verbs) })
	})
}

// TestRule4AllIsTight: after RetryAfter the same Take is admitted, and one clock unit earlier it is
// refused.
func TestRule4AllIsTight(t *testing.T) {
	raced.Skip(t)
	eachOf(t, []kind{allKind}, holders, func(t *testing.T, k kind, h holder) {
		rapid.Check(t, func(t *rapid.T) {
			l := k.draw(t, h.tick, century)
			w, made := h.open(l, true), []call(nil)
			from := linesAt(t, l, h.tick)
			from.back = h.remembers
			walk(t, from, []verb{take}, func(t *rapid.T, c call) outcome {
				if c.now > endless {
					t.Skip("too near the end of the clock")
				}
				o := w.do(c)
				if made = append(made, c); o.d.Allowed || o.d.RetryAfter == weir.Never {
					return o
				}
				for _, sooner := range []int64{0, 1} {
					again := c
					again.now += int64(o.d.RetryAfter/h.tick) - sooner
					if got := h.replay(l, made).do(again); got.d.Allowed != (sooner == 0) {
						t.Fatalf("%+v: %v: RetryAfter is %v, and %d before the end of it the answer is %+v", l, c, o.d.RetryAfter, sooner, got.d)
					}
				}
				return o
			})
		})
	})
}
