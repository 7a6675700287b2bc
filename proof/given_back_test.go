package proof

import (
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/weirflow/weir"
	"github.com/weirflow/weir/internal/raced"
	"github.com/weirflow/weir/internal/seeds"
)

// asIf has the algorithms with which a cancelled charge leaves no trace. The steps of an
// IntervalBucket stay where the charge began them, and so does a window that begins with its first
// charge.
var asIf = []string{"TokenBucket", "LeakyBucket", "SmoothBursty", "WarmUp", "NginxBucket", "SlidingLog", "SlidingCounter"}

// asIfAcrossChanges has those with which this holds although the limit changes in between. The
// others round what is used when the limit changes, or then count other charges.
var asIfAcrossChanges = []string{"WarmUp", "NginxBucket"}

// TestGivenBackAsIfNeverCharged: if no work is delayed, the state after a Cancel equals that of a
// limiter without the charge. All fields of decisions are equal, at once and later.
func TestGivenBackAsIfNeverCharged(t *testing.T) {
	raced.Skip(t)
	for _, k := range kinds {
		if !slices.Contains(asIf, k.name) {
			continue
		}
		for _, h := range booking {
			t.Run(k.name+"/"+h.name, func(t *testing.T) {
				rapid.Check(t, func(t *rapid.T) {
					asIfNeverCharged(t, func() weir.Limit {
						l := k.draw(t, h.tick, century)
						if e, ok := l.(weir.SlidingLog); ok {
							e.MaxEntries = 0 // charges that became one for want of room stay one
							return e
						}
						return l
					}, h, slices.Contains(asIfAcrossChanges, k.name))
				})
			})
		}
	}
}

// made is a charge, and the part of it that is kept; or a change of the limit.
type made struct {
	next     weir.Limit
	at, cost int64
	ref      int                // of the reservation
	settle   func(actual int64) // of a kept place in a queue, after its turn
}

// queue joins the queue and waits for the turn. It reports false if the turn is beyond the walk's
// time.
func (w *live) queue(now, cost int64) (settle func(int64), ok bool) {
	w.move(now)
	settle, ready, ok := w.joinKept(cost)
	for ok {
		select {
		case <-ready:
			return settle, true
		default:
		}
		turn, named := w.clock.Next()
		if !named || turn > int64(century) {
			settle(0)
			return nil, false
		}
		w.move(turn)
	}
	return nil, false
}

func asIfNeverCharged(t *rapid.T, draw func() weir.Limit, h holder, changed bool) {
	l := draw()
	rnd := rand.New(rand.NewPCG(seeds.Seed(), uint64(rapid.IntRange(0, 1<<30).Draw(t, "walk"))))
	one, all := rhythm(l, h.tick)
	step := int64(min(max(one, 1), 1e15))
	w := h.open(l, true).(*live)
	size := min(max(sizeOf(l), 1), 12)
	start := int64(time.Hour)
	now := start
	w.do(call{now: now, verb: take, cost: 1}) // the first call of the limit
	var charges []made
	var open []int // indices of charges
	reserved := 0
	changes := 0
	if changed {
		changes = rapid.IntRange(0, 3).Draw(t, "changes")
	}
	for range 60 {
		switch n := rnd.IntN(10); {
		case changes > 0 && rnd.IntN(12) == 0:
			changes--
			next := draw()
			w.do(call{now: now, verb: set, limit: next})
			charges = append(charges, made{at: now, next: next})
		case n < 2:
			now += rnd.Int64N(step + 1)
		case n < 3 && all < 1e15:
			now += rnd.Int64N(int64(all) + 1)
		case n < 6 && len(open) == 0: // waits, while no reservation is open: refunds would have changed its turn
			c := made{at: now, cost: rnd.Int64N(size) + 1}
			var ok bool
			if c.settle, ok = w.queue(now, c.cost); ok {
				charges = append(charges, c)
				open = append(open, len(charges)-1)
			}
			now = max(now, w.clock.Now())
		case n < 4:
			c := rnd.Int64N(size) + 1
			if w.do(call{now: now, verb: take, cost: c}).d.Allowed {
				charges = append(charges, made{at: now, cost: c})
			}
		case n < 7 || len(open) == 0:
			c := rnd.Int64N(size) + 1
			if w.do(call{now: now, verb: reserve, cost: c}).ok { // within 0: it is not delayed
				charges = append(charges, made{at: now, cost: c, ref: reserved})
				open = append(open, len(charges)-1)
				reserved++
			}
		default:
			i := rnd.IntN(len(open))
			c := &charges[open[i]]
			open = slices.Delete(open, i, i+1)
			if c.settle != nil { // a smaller cost would have had another turn
				c.cost *= rnd.Int64N(2)
				w.move(now)
				c.settle(c.cost)
				continue
			}
			c.cost = rnd.Int64N(c.cost + 1) // settled below, or cancelled
			w.do(call{now: now, verb: settle, ref: c.ref, cost: c.cost})
		}
	}
	without := h.open(l, true).(*live)
	without.do(call{now: start, verb: take, cost: 1})
	_, delays := l.(weir.WarmUp) // with less charged it is colder, and may delay what was not delayed
	for _, c := range charges {
		if c.next != nil {
			without.do(call{now: c.at, verb: set, limit: c.next})
			continue
		}
		if c.settle != nil && c.cost > 0 {
			if _, ok := without.queue(c.at, c.cost); !ok {
				t.Fatalf("%+v: without what was given back, %d at %d cannot wait", l, c.cost, c.at)
			}
		} else if c.cost > 0 && !without.do(call{now: c.at, verb: take, cost: c.cost}).d.Allowed {
			if delays {
				return
			}
			t.Fatalf("%+v: without what was given back, %d at %d is refused", l, c.cost, c.at)
		}
	}
	for _, later := range []int64{0, 1, step, 3 * step} {
		at := now + later
		last := call{now: at, verb: peek, cost: 1}
		if got, want := w.do(last), without.do(last); got != want {
			t.Fatalf("%+v: %v\n        got %+v\nwithout it %+v\n%+v", l, last, got, want, charges)
		}
	}
}
