package proof

import (
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/weirflow/weir"
	"github.com/weirflow/weir/internal/raced"
)

// TestRule4RetryAfterIsExact: a refused call that is repeated alone after RetryAfter is admitted,
// and one clock unit earlier it is refused. This holds for Take, and for Reserve and Join with a
// longest wait.
func TestRule4RetryAfterIsExact(t *testing.T) {
	raced.Skip(t)
	each(t, holders, func(t *testing.T, k kind, h holder) {
		verbs := []verb{take, take, take}
		if h.books {
			verbs = append(verbs, reserve, reserve, settle, join, join, leave)
		}
		rapid.Check(t, func(t *rapid.T) {
			l := k.draw(t, h.tick, century)
			if h.books && !paced(l, h.tick) {
				t.Skip("several tokens in one clock unit")
			}
			w := h.open(l, true)
			from := linesAt(t, l, h.tick)
			from.back = h.remembers
			verbs := verbs
			from.ones = h.books && byVolume(l)
			if from.ones && !evenly(l) || h.books && roundsEach(l) { // behind a queue, RetryAfter may be too early
				verbs = []verb{take, take, reserve, settle}
			}
			var made []call
			walk(t, from, verbs, func(t *rapid.T, c call) outcome {
				if c.now > endless {
					t.Skip("too near the end of the clock")
				}
				o := w.do(c)
				made = append(made, c)
				if w, ok := w.(*live); ok {
					from.waiting = w.waiting()
				}
				if c.verb == settle || c.verb == leave || o.d.Allowed {
					return o
				}
				if o.d.RetryAfter == weir.Never {
					return o
				}
				wait := int64(o.d.RetryAfter / h.tick)
				if wait < 1 || time.Duration(wait)*h.tick != o.d.RetryAfter {
					t.Fatalf("%v: RetryAfter %v is not a time ahead in clock units", c, o.d.RetryAfter)
				}
				again := func(after int64) outcome {
					c := c
					c.now += after
					return h.replay(l, made).do(c)
				}
				if got := again(wait); !got.d.Allowed {
					t.Fatalf("%v: RetryAfter is %v, and then the answer is %+v", c, o.d.RetryAfter, got.d)
				}
				if got := again(wait - 1); got.d.Allowed {
					t.Fatalf("%v: RetryAfter is %v, and one unit sooner the answer is %+v", c, o.d.RetryAfter, got.d)
				}
				return o
			})
		})
	})
}

// TestRule4NeverIsNever: RetryAfter is Never for a cost that does not fit, or a wait beyond a
// century, and only then.
func TestRule4NeverIsNever(t *testing.T) {
	raced.Skip(t)
	each(t, holders, func(t *testing.T, k kind, h holder) {
		verbs := []verb{take, peek}
		if h.books {
			verbs = append(verbs, reserve, join, settle)
		}
		rapid.Check(t, func(t *rapid.T) {
			l := k.draw(t, h.tick, century)
			if h.books && !paced(l, h.tick) {
				t.Skip("several tokens in one clock unit")
			}
			w := h.open(l, true)
			from := linesAt(t, l, h.tick)
			from.ones = h.books && byVolume(l) // a queue is counted in 64 bits
			walk(t, from, verbs, func(t *rapid.T, c call) outcome {
				o := w.do(c)
				never := !o.d.Allowed && o.d.RetryAfter == weir.Never && c.verb != settle
				misfit := c.verb != settle && (c.cost < 0 || c.cost > largestOf(l, h.tick))
				if misfit && !never {
					t.Fatalf("%v: %+v", c, o.d)
				}
				if never && !misfit {
					for _, later := range []int64{1, int64(time.Hour / h.tick), int64(century / h.tick)} {
						c := c
						if c.now = plus(c.now, later); !slices.Contains([]verb{take, peek}, c.verb) {
							c.verb = peek
						}
						if o := w.do(call{now: c.now, verb: peek, cost: c.cost}); o.d.Allowed {
							t.Fatalf("Never was said, and %v later the answer is %+v", time.Duration(later)*h.tick, o.d)
						}
					}
					t.Skip("the clock went on")
				}
				if w, ok := w.(*live); ok {
					from.waiting = w.waiting()
				}
				return o
			})
		})
	})
}

// TestRule5EarlierReadingsMintNothing: an earlier reading admits nothing more than the latest one.
// When the clock is back, all is as if it had never stepped.
func TestRule5EarlierReadingsMintNothing(t *testing.T) {
	raced.Skip(t)
	each(t, holders, func(t *testing.T, k kind, h holder) {
		verbs := []verb{take, take, take}
		if h.books {
			verbs = append(verbs, reserve, settle, join, leave)
		}
		rapid.Check(t, func(t *rapid.T) {
			l := k.draw(t, h.tick, century)
			stepping, steady := h.open(l, true), h.open(l, true)
			from := linesAt(t, l, h.tick)
			first := call{now: from.now, verb: take, cost: 1}
			stepping.do(first)
			steady.do(first)
			walk(t, from, verbs, func(t *rapid.T, c call) outcome {
				if c.now > endless {
					t.Skip("too near the end of the clock")
				}
				got := stepping.do(c)
				if want := steady.do(c); got != want {
					t.Fatalf("%v\n         got %+v\nwithout step %+v", c, got, want)
				}
				now := stepping.do(call{now: c.now, verb: peek, cost: 1})
				for range rapid.IntRange(0, 2).Draw(t, "steps back") {
					by := rapid.OneOf(rapid.Int64Range(1, 5), rapid.Int64Range(1, int64(time.Hour)), rapid.Int64Range(1, int64(century))).Draw(t, "by")
					if w, ok := stepping.(*live); ok {
						if at, ok := w.clock.Next(); ok && minus(at, c.now) > int64(century)-by {
							continue // from there, the turn of the first waiter cannot be computed
						}
					}
					earlier := stepping.do(call{now: minus(c.now, by), verb: peek, cost: 1})
					if earlier.d.Remaining > now.d.Remaining || earlier.d.Allowed && !now.d.Allowed {
						t.Fatalf("%v: then %+v, and at an earlier reading %+v", c, now.d, earlier.d)
					}
				}
				if w, ok := stepping.(*live); ok {
					from.waiting = w.waiting()
				}
				return got
			})
		})
	})
}
