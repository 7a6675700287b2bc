package proof

import (
	"math"
	"testing"

	"pgregory.net/rapid"

	"github.com/weirflow/weir/internal/raced"
)

// TestRule2RefusedIsNotCharged: without the calls that were refused, all later decisions are the
// same, and likewise without Peek. The one exception is the first call of a bucket that does not
// start full, which is recorded.
func TestRule2RefusedIsNotCharged(t *testing.T) {
	raced.Skip(t)
	each(t, holders, func(t *testing.T, k kind, h holder) {
		verbs := []verb{take, take, peek}
		if h.books {
			verbs = append(verbs, reserve, reserve, join, join, settle, leave)
		}
		rapid.Check(t, func(t *rapid.T) {
			l := k.draw(t, h.tick, century)
			all, without := h.open(l, true), h.open(l, true)
			from := linesAt(t, l, h.tick)
			from.back = h.remembers
			first := call{now: from.now, verb: take, cost: 1}
			all.do(first)
			without.do(first)
			walk(t, from, verbs, func(t *rapid.T, c call) outcome {
				got := all.do(c)
				refused := (c.verb == take || c.verb == peek || c.verb == reserve || c.verb == join) && (c.verb == peek || !got.d.Allowed)
				if w, ok := without.(*live); ok && refused {
					w.move(c.now)
				}
				if !refused {
					if want := without.do(c); got != want {
						t.Fatalf("%v\n        got %+v\nwithout the refused %+v", c, got, want)
					}
				}
				if w, ok := all.(*live); ok {
					from.waiting = w.waiting()
				}
				return got
			})
			last := call{now: from.now, verb: peek, cost: 1}
			if got, want := all.do(last), without.do(last); got != want {
				t.Fatalf("%v\n        got %+v\nwithout the refused %+v", last, got, want)
			}
		})
	})
}

// TestRule2LeavingIsAsIfNeverCome: a waiter that leaves has been charged nothing, and the ones
// behind it move up. From then on all is as if it had never come, unless a waiter behind it could
// have gone meanwhile.
func TestRule2LeavingIsAsIfNeverCome(t *testing.T) {
	raced.Skip(t)
	each(t, booking, func(t *testing.T, k kind, h holder) {
		rapid.Check(t, func(t *rapid.T) {
			l := k.draw(t, h.tick, century)
			from := linesAt(t, l, h.tick)
			with, without := h.open(l, true).(*live), h.open(l, true).(*live)
			both := func(c call) outcome {
				got := with.do(c)
				if want := without.do(c); got != want {
					t.Fatalf("%v\n    got %+v\nwithout %+v", c, got, want)
				}
				return got
			}
			both(call{now: from.now, verb: take, cost: 1}) // the first call of the limit
			walk(t, from, []verb{take, take, reserve, join, join, peek}, func(t *rapid.T, c call) outcome {
				o := both(c)
				from.waiting = with.waiting()
				return o
			})
			if from.now >= endless {
				t.Skip("too near the end of the clock")
			}
			come := call{now: from.now, verb: join, cost: from.cost(t), within: -1}
			if !with.do(come).place {
				t.Skip("no wait")
			}
			who := len(with.places) - 1
			behind := []int64(nil)
			for range rapid.IntRange(0, 4).Draw(t, "behind") {
				cost := rapid.Int64Range(1, max(sizeOf(l), 1)).Draw(t, "cost")
				c := call{now: from.now, verb: join, cost: cost, within: -1}
				a, b := with.do(c), without.do(c)
				if b.place != a.place {
					t.Skip("it would not have had to wait alone")
				}
				if a.place {
					behind = append(behind, cost)
				}
			}
			turn, ok := without.clock.Next()
			if !ok {
				turn = math.MaxInt64
			}
			latest := max(min(turn-1, plus(from.now, int64(century)), endless), from.now)
			leaves := rapid.Int64Range(from.now, latest).Draw(t, "leaves")
			if !with.do(call{now: leaves, verb: leave, ref: who}).ok {
				t.Skip("served before")
			}
			without.move(leaves)
			from.now = leaves
			// The waiters behind it, and all later callers, have the same turns.
			for range 2 * len(behind) {
				at, ok := without.clock.Next()
				if got, gotOK := with.clock.Next(); got != at || gotOK != ok {
					t.Fatalf("after the leaving the next turn is at %d, %v; without at %d, %v", got, gotOK, at, ok)
				}
				if !ok || at > endless {
					break
				}
				from.now = max(at, from.now)
				both(call{now: from.now, verb: peek, cost: 1})
			}
			both(call{now: from.now, verb: join, cost: 1, within: -1})
		})
	})
}

// TestRule2ATurnIsNeverLaterThanTold: each waiter goes at the promised time of its place, or sooner
// if another leaves, and exactly then if none does. If promises follow the sum of costs, that holds
// for costs of 1, and other turns are never earlier than promised. Rates are up to 10^9/s: if one
// nanosecond brings several tokens, a queue still serves one waiter in each.
func TestRule2ATurnIsNeverLaterThanTold(t *testing.T) {
	raced.Skip(t)
	each(t, booking, func(t *testing.T, k kind, h holder) {
		for name, verbs := range map[string][]verb{
			"with those who leave": {take, join, join, leave, reserve, settle},
			"alone":                {take, join, join, reserve},
		} {
			t.Run(name, func(t *testing.T) {
				rapid.Check(t, func(t *rapid.T) {
					l := k.draw(t, h.tick, century)
					if !paced(l, h.tick) {
						t.Skip("several tokens in one clock unit")
					}
					w := h.open(l, true).(*live)
					from := linesAt(t, l, h.tick)
					from.extremes = []int64{0} // no debt comes before the waiters
					soonest := byVolume(l) && (!evenly(l) || rapid.Bool().Draw(t, "any costs"))
					from.ones = byVolume(l) && !soonest
					var due, early []int64 // early is by how much a promised time may be too early
					served := map[int]bool{}
					look := func() {
						for i := range due {
							if served[i] || w.waits(i) {
								if now := w.clock.Now(); !soonest && !served[i] && now > due[i]+early[i] {
									t.Fatalf("place #%d waits at %d, its delay ended at %d", i, now, due[i])
								}
								continue
							}
							served[i] = true
							if now := w.clock.Now(); name == "alone" && (now < due[i] || now > due[i]+early[i] && !soonest) {
								t.Fatalf("the turn of place #%d came at %d, its delay ended at %d", i, now, due[i])
							}
						}
					}
					w.watch = look
					walk(t, from, verbs, func(t *rapid.T, c call) outcome {
						if c.verb == settle {
							c.cost = 0
						}
						o := w.do(c)
						if o.place {
							due, early = append(due, plus(c.now, int64(o.delay))), append(early, 0)
							if roundsEach(l) {
								early[len(due)-1] = int64(len(due)) // one for each waiter before it, and for the one that left
							}
						}
						from.waiting = w.waiting()
						return o
					})
				})
			})
		}
	})
}

// TestRule2UndoneAtOnce: a reservation that is cancelled before any other call leaves no trace.
func TestRule2UndoneAtOnce(t *testing.T) {
	raced.Skip(t)
	each(t, booking, func(t *testing.T, k kind, h holder) {
		rapid.Check(t, func(t *rapid.T) {
			l := k.draw(t, h.tick, century)
			with, without := h.open(l, true), h.open(l, true)
			from := linesAt(t, l, h.tick)
			first := call{now: from.now, verb: take, cost: 1}
			with.do(first)
			without.do(first)
			walk(t, from, []verb{take, take, reserve, reserve, settle}, func(t *rapid.T, c call) outcome {
				if c.verb == settle { // a reservation is cancelled instead
					c.verb, c.cost, c.within = reserve, from.cost(t), from.within(t)
					if with.do(c).ok {
						w := with.(*live)
						w.reservations[len(w.reservations)-1].Cancel()
						w.reservations = w.reservations[:len(w.reservations)-1]
					}
					c = call{now: c.now, verb: peek, cost: 1}
				}
				got := with.do(c)
				if want := without.do(c); got != want {
					t.Fatalf("%v\n    got %+v\nwithout %+v", c, got, want)
				}
				return got
			})
		})
	})
}
