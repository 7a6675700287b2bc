package proof

import (
	"math/big"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/weirflow/weir"
	"github.com/weirflow/weir/internal/raced"
)

// lateness is how much a queue may make up for if its turns are noticed late, in nanoseconds: see
// queue.go.
const lateness = int64(10 * time.Millisecond)

// TestRule1TakesNeverOver: whatever the takes and the steps of the clock, no interval between
// readings has more than the bound.
func TestRule1TakesNeverOver(t *testing.T) {
	raced.Skip(t)
	each(t, holders, func(t *testing.T, k kind, h holder) {
		rapid.Check(t, func(t *rapid.T) {
			l := k.draw(t, h.tick, century)
			r := record(h.open(l, true), l, h.tick)
			from := walkerAt(t, l, h.tick)
			from.wild, from.back = true, h.remembers
			walk(t, from, []verb{take, take, take, peek}, func(t *rapid.T, c call) outcome { return r.do(c) })
			if over := r.over(0); over != "" {
				t.Fatalf("%+v: %s", l, over)
			}
		})
	})
}

// TestRule1PromisesNeverOver: the same with reservations, settlements, cancels and waiters. All
// work runs at its promised time.
func TestRule1PromisesNeverOver(t *testing.T) {
	raced.Skip(t)
	each(t, booking, func(t *testing.T, k kind, h holder) {
		rapid.Check(t, func(t *rapid.T) {
			l := k.draw(t, h.tick, century)
			r := record(h.open(l, true), l, h.tick)
			verbs := []verb{take, reserve, reserve, settle, join, join, leave, keep, keep, release}
			walk(t, linesAt(t, l, h.tick), verbs, func(t *rapid.T, c call) outcome { return r.do(c) })
			slack := int64(1)
			if whole(l, h.tick) {
				slack = 0 // no promised time is rounded
			}
			if over := r.inOrder().over(slack); over != "" {
				t.Fatalf("%+v: %s", l, over)
			}
		})
	})
}

// TestRule1LateQueuesNeverOver: if turns are noticed late, because timers are late, at most a burst
// and 10 ms of the rate go at once.
func TestRule1LateQueuesNeverOver(t *testing.T) {
	raced.Skip(t)
	each(t, booking, func(t *testing.T, k kind, h holder) {
		rapid.Check(t, func(t *rapid.T) {
			l := k.draw(t, h.tick, century)
			r := record(h.open(l, false), l, h.tick)
			walk(t, linesAt(t, l, h.tick), []verb{take, join, join, leave, peek}, func(t *rapid.T, c call) outcome { return r.do(c) })
			if over := r.inOrder().over(lateness + 1); over != "" {
				t.Fatalf("%+v: %s", l, over)
			}
		})
	})
}

// TestRule1ChangesNeverOver: across changes of the limit, the bound is the largest capacity and the
// integral of the rate. For limits whose debt is a time, the fastest rate counts.
func TestRule1ChangesNeverOver(t *testing.T) {
	raced.Skip(t)
	eachOf(t, rateKinds, holders, func(t *testing.T, k kind, h holder) {
		verbs, slack := []verb{take, take, take, set}, int64(0)
		if h.books {
			verbs, slack = append(verbs, join, join, leave, reserve, reserve, settle), 1
		}
		rapid.Check(t, func(t *rapid.T) {
			l := k.draw(t, h.tick, century)
			r := record(h.open(l, true), l, h.tick)
			from := linesAt(t, l, h.tick)
			from.prompt = true
			largest := sizeOf(l)
			from.set = func(t *rapid.T) weir.Limit {
				next := k.draw(t, h.tick, century)
				if !owing(next) && !holds(next, max(largest, sizeOf(next))) {
					t.Skip("a debt would last to the end of the clock")
				}
				largest = max(largest, sizeOf(next))
				return next
			}
			walk(t, from, verbs, func(t *rapid.T, c call) outcome { return r.do(c) })
			if over := r.inOrder().over(slack); over != "" {
				t.Fatalf("%+v: %s", r.versions, over)
			}
		})
	})
}

// holds reports whether a debt of so many tokens ends before the end of the clock.
func holds(l weir.Limit, tokens int64) bool {
	r, _ := rateOf(l)
	wait := new(big.Int).Mul(big.NewInt(tokens), big.NewInt(int64(r.Per)))
	return wait.Div(wait, big.NewInt(r.N)).Cmp(big.NewInt(int64(century))) <= 0
}
