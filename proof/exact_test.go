package proof

import (
	"testing"

	"pgregory.net/rapid"

	"github.com/weirflow/weir"
	"github.com/weirflow/weir/internal/raced"
)

// TestRule3ExactRates: every decision, with every field, and every turn equal those of the model in
// exact fractions, for all rates, clocks and costs.
func TestRule3ExactRates(t *testing.T) {
	raced.Skip(t)
	each(t, holders, func(t *testing.T, k kind, h holder) {
		verbs := []verb{take, take, take, peek}
		if h.books {
			verbs = append(verbs, reserve, reserve, settle, settle, join, join, leave)
		}
		rapid.Check(t, func(t *rapid.T) { besideModel(t, k, h, verbs) })
	})
}

// TestRule10SetLimitKeepsTheUsed: a change of the limit, also to another algorithm, keeps what was
// used as the model does.
func TestRule10SetLimitKeepsTheUsed(t *testing.T) {
	raced.Skip(t)
	each(t, holders, func(t *testing.T, k kind, h holder) {
		verbs := []verb{take, take, set}
		if h.books {
			verbs = append(verbs, reserve, settle, join, leave)
		}
		rapid.Check(t, func(t *rapid.T) { besideModel(t, k, h, verbs) })
	})
}

// sinceNever draws a limit to change to for a key that may have been evicted. An evicted key counts
// as new and stores no permits until its next call, while a kept one starts to store them at the
// change.
func sinceNever(next, now weir.Limit) weir.Limit {
	l, ok := next.(weir.SmoothBursty)
	if before, was := now.(weir.SmoothBursty); ok && !(was && before.Rate != weir.Unlimited && storeOf(before) > 0) {
		l.MaxBurst = -1
		return l
	}
	return next
}

// besideModel makes the same calls on a holder and a model.
func besideModel(t *rapid.T, k kind, h holder, verbs []verb) {
	l := k.draw(t, h.tick, century)
	punctual := rapid.Bool().Draw(t, "punctual")
	w, m := h.open(l, punctual), newModel(l, h.tick, punctual)
	if h.name == "Limiter" {
		m.m.Contact(0) // at the limiter's creation
	}
	from := walkerAt(t, l, h.tick)
	if h.books {
		from.now = min(from.now, endless/2)
	}
	from.back, from.wild = true, true
	other := from.set
	from.set = func(t *rapid.T) weir.Limit {
		if rapid.Bool().Draw(t, "same algorithm") {
			return k.draw(t, h.tick, century)
		}
		return other(t)
	}
	if next := from.set; h.name == "keyed" {
		from.set = func(t *rapid.T) weir.Limit { return sinceNever(next(t), from.limit) }
	}
	if of, ok := w.(*live); ok && of.keyed != nil {
		released := uint64(0)
		of.watch = func() {
			if n := of.keyed.Stats().EvictedIdle; n != released {
				released = n
				now := of.clock.Now()
				m.move(now)
				if d := m.m.Peek(now, 0); d.ResetAfter != 0 {
					t.Fatalf("at %d the key was evicted, though it is not idle until %v later", now, d.ResetAfter)
				}
				m.drop()
			}
		}
	}
	walk(t, from, verbs, func(t *rapid.T, c call) outcome {
		if c.verb == join && c.now >= endless {
			t.Skip("too near the end of the clock")
		}
		got, want := w.do(c), m.do(c)
		if c.verb == set && h.name == "Limiter" {
			m.m.Contact(c.now) // of a key that was never charged
		}
		if got != want {
			t.Fatalf("%v\n got %+v\nwant %+v", c, got, want)
		}
		look := call{now: c.now, verb: peek, cost: 1} // this also serves waiters whose turn has come
		if got, want := w.do(look), m.do(look); got != want {
			t.Fatalf("%v\n got %+v\nwant %+v", look, got, want)
		}
		from.waiting = false
		for i := range m.places {
			if got, want := w.waits(i), m.waits(i); got != want {
				t.Fatalf("%v\nplace #%d waits: %v, want %v", c, i, got, want)
			}
			from.waiting = from.waiting || m.waits(i)
		}
		return want
	})
}
