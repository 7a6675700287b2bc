package proof

import (
	"errors"
	"math"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/weirflow/weir"
	"github.com/weirflow/weir/internal/raced"
	"github.com/weirflow/weir/keyed"
)

// TestRule6AnyNumberIsSafe: with any limit, reading and cost, also at the ends of the clock,
// nothing panics and every decision is well-formed.
func TestRule6AnyNumberIsSafe(t *testing.T) {
	raced.Skip(t)
	each(t, holders, func(t *testing.T, k kind, h holder) {
		verbs := []verb{take, take, peek, set}
		if h.books {
			verbs = append(verbs, reserve, settle, join, leave)
		}
		rapid.Check(t, func(t *rapid.T) {
			l := k.draw(t, h.tick, century)
			w := h.open(l, rapid.Bool().Draw(t, "punctual"))
			from := walkerAt(t, l, h.tick)
			from.back, from.wild = true, true
			from.extremes = append(from.extremes, math.MinInt64, math.MaxInt64-1)
			walk(t, from, verbs, func(t *rapid.T, c call) outcome {
				o := w.do(c)
				if c.verb == set {
					l = c.limit
				}
				if c.verb != settle && c.verb != leave && c.verb != set {
					sane(t, l, h.tick, c, o.d)
				}
				return o
			})
		})
	})
}

// sane checks that a decision is well-formed.
func sane(t *rapid.T, l weir.Limit, tick time.Duration, c call, d weir.Decision) {
	most := largestOf(l, tick)
	switch {
	case d.Limit != sizeOf(l), d.Remaining < 0, d.Remaining > d.Limit, d.ResetAfter < 0,
		d.Allowed && d.RetryAfter != 0,
		!d.Allowed && d.RetryAfter <= 0 && d.RetryAfter != weir.Never,
		(c.cost < 0 || c.cost > most) && (d.Allowed || d.RetryAfter != weir.Never),
		c.cost == 0 && !d.Allowed,
		c.verb == peek && owing(l) && c.now < endless && c.cost > 0 && c.cost <= d.Remaining && !d.Allowed,
		c.verb == peek && !owing(l) && c.cost > 0 && c.cost <= d.Remaining != d.Allowed:
		t.Fatalf("%+v: %v: %+v", l, c, d)
	}
}

// TestRule6AnyLimitIsSafe: any parameters make a limit or an error, and any words are a state or
// are refused.
func TestRule6AnyLimitIsSafe(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		number := func(name string) int64 {
			return rapid.OneOf(rapid.Int64Range(-2, 3), rapid.Int64(), rapid.SampledFrom([]int64{math.MinInt64, math.MaxInt64})).Draw(t, name)
		}
		rate := weir.Rate{N: number("n"), Per: time.Duration(number("per"))}
		var l weir.Limit = weir.TokenBucket{Rate: rate, Burst: number("burst"), Initial: number("initial")}
		if rapid.Bool().Draw(t, "leaky") {
			l = weir.LeakyBucket{Rate: rate, Queue: number("queue"), DelayAfter: number("delay_after")}
		}
		state := rapid.SliceOfN(rapid.Int64(), 0, 5).Draw(t, "state")
		now, cost, tick := number("now"), number("cost"), time.Duration(number("tick"))
		_, d := weir.Step(l, state, now, cost, tick)
		if l.Validate() != nil && (d.Allowed || d.RetryAfter != weir.Never) {
			t.Fatalf("%+v: %+v", l, d)
		}
		if l.Validate() == nil && d.Limit != 0 {
			sane(t, l, tick, call{verb: take, cost: cost}, d)
		}
	})
}

// TestRule6AnyKeyIsSafe: every verb refuses a key that does not equal itself, or cannot be hashed,
// and never keeps it.
func TestRule6AnyKeyIsSafe(t *testing.T) {
	k, err := keyed.New[any](weir.TokenBucket{Rate: weir.PerSecond(1), Burst: 2}, keyed.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer k.Close()
	for _, key := range []any{
		math.NaN(), []int{1}, map[string]int{}, func() {}, [1]any{[]int{}}, struct{ v any }{math.NaN()}, [2]float64{0, math.NaN()},
	} {
		if d := k.Take(key, 1); d.Allowed || d.RetryAfter != weir.Never {
			t.Errorf("Take(%v) = %+v", key, d)
		}
		if d := k.Peek(key, 1); d.Allowed || d.RetryAfter != weir.Never {
			t.Errorf("Peek(%v) = %+v", key, d)
		}
		if _, ok := k.Reserve(key, 1, -1); ok {
			t.Errorf("Reserve(%v) was accepted", key)
		}
		if p, d := k.Join(key, 1, -1); p != nil || d.Allowed {
			t.Errorf("Join(%v) = %+v", key, d)
		}
		if err := k.Wait(t.Context(), key, 1); !errors.Is(err, keyed.ErrKey) {
			t.Errorf("Wait(%v) = %v", key, err)
		}
	}
	if n := k.Len(); n != 0 {
		t.Errorf("%d of them are kept", n)
	}
}
