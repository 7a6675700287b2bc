package proof

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"

	"github.com/weirflow/weir"
	"github.com/weirflow/weir/internal/seeds"
)

// A visit is one call of a thread on a ConcurrencyLimiter, and its result.
type visit struct {
	verb    string
	id      int // of this hold, or of the one that is left or extended
	cost    int64
	outcome weir.Outcome
	limit   weir.Concurrency
	now     int64 // the reading that counted
}

type seenOf struct {
	ok        bool
	remaining int64
}

// linearPlaces is the model's state within a history. It is immutable: a call returns a new one.
type linearPlaces struct {
	*places
	print string
}

func printed(p *places) linearPlaces {
	slices.SortFunc(p.holds, byID)
	s := linearPlaces{p, fmt.Sprint(p.limit, p.high)}
	for _, h := range p.holds {
		s.print += fmt.Sprint(" ", *h)
	}
	return s
}

// withID finds a hold; nil if it has ended.
func (p *places) withID(id int) *held {
	for _, h := range p.holds {
		if h.id == id {
			return h
		}
	}
	return &held{over: true}
}

var placesRules = porcupine.Model{
	Step: func(state, input, output any) (bool, any) {
		p, v, seen := state.(linearPlaces).clone(), input.(visit), output.(seenOf)
		if h := p.withID(v.id); v.verb != "done" || v.outcome != weir.OK || h.expiry != 0 || h.over {
			p.at(v.now)
		} // otherwise it gives its place back without the lock, and the model ticks after that
		switch got := (seenOf{}); v.verb {
		case "try":
			if got.ok = p.fits(v.cost); got.ok {
				p.hold(&held{id: v.id, cost: v.cost})
			}
			if got.remaining = max(p.free(), 0); got != seen {
				return false, state
			}
		case "peek":
			if got = (seenOf{p.fits(v.cost), max(p.free(), 0)}); got != seen {
				return false, state
			}
		case "holding":
			if got.remaining = p.holding(); got != seen {
				return false, state
			}
		case "extend":
			if got.ok = p.extend(p.withID(v.id)); got != seen {
				return false, state
			}
		case "done":
			p.done(p.withID(v.id), v.outcome)
		case "set":
			p.set(v.now, v.limit)
		}
		return true, printed(p)
	},
	Equal: func(a, b any) bool { return a.(linearPlaces).print == b.(linearPlaces).print },
}

// TestConcurrencyIsLinearizable: threads enter, leave, extend and look concurrently, while holds
// expire and the limit changes. They see what they would have seen one after the other.
func TestConcurrencyIsLinearizable(t *testing.T) {
	for name, limits := range map[string][]weir.Concurrency{
		"lock-free": {{Limit: 6}, {Limit: 4}, {Limit: 24}},
		"MaxHold":   {{Limit: 6, MaxHold: 20000}, {Limit: 4, MaxHold: 9000}, {Limit: 10, MaxHold: 20000}},
		"both":      {{Limit: 6, MaxHold: 6000}, {Limit: 5}, {Limit: 24}},
	} {
		t.Run(name, func(t *testing.T) {
			for range 3 {
				if visitsAreLinearizable(t, limits) {
					return
				}
			}
			t.Fatal("the checker did not get to an answer about any of three histories")
		})
	}
}

// visitsAreLinearizable checks a history of a limiter. It reports false if the checker gave up:
// expiring holds can leave it too many orders to try, which says nothing about the limiter.
func visitsAreLinearizable(t *testing.T, limits []weir.Concurrency) bool {
	t.Helper()
	clock, seed := new(sharedClock), seeds.Of(t.Name()).Uint64()
	l, err := weir.NewConcurrency(limits[0], weir.WithClock(clock.read), weir.WithTimers(noTimers))
	if err != nil {
		t.Fatal(err)
	}
	history := visits(clock, l, limits, seed)
	m := placesRules
	m.Init = func() any { return printed(&places{limit: limits[0]}) }
	refused, overlapping, returned := 0, 0, int64(0)
	slices.SortFunc(history, func(a, b porcupine.Operation) int { return cmp.Compare(a.Call, b.Call) })
	for _, o := range history {
		if o.Input.(visit).verb == "try" && !o.Output.(seenOf).ok {
			refused++
		}
		if o.Call < returned {
			overlapping++
		}
		returned = max(returned, o.Return)
	}
	began := time.Now()
	result := porcupine.CheckOperationsTimeout(m, history, searchTime)
	t.Logf("%d calls of %d threads, %d refused, %d overlapping: %v in %v", len(history), threads, refused, overlapping, result,
		time.Since(began).Round(time.Millisecond))
	if len(history) < 1000 || refused < 100 || overlapping < 100 {
		t.Error("the history is too tame")
	}
	if result == porcupine.Illegal {
		t.Fatalf("seed %d: no order of the calls explains what was seen", seed)
	}
	return result == porcupine.Ok
}

// visits has threads call a limiter concurrently, and returns their visits.
func visits(clock *sharedClock, l *weir.ConcurrencyLimiter, limits []weir.Concurrency, seed uint64) []porcupine.Operation {
	var tick atomic.Int64
	all := make([][]porcupine.Operation, threads)
	var wg sync.WaitGroup
	start := make(chan struct{})
	var rounds barriers
	rounds.init()
	for thread := range threads {
		wg.Go(func() {
			r := rand.New(rand.NewPCG(seed, uint64(thread)))
			took := new(readings)
			clock.took.Store(goroutine(), took)
			type mine struct {
				id int
				h  weir.Hold
			}
			var open []mine
			<-start
			for i := range perThread {
				verbs := []string{"try", "try", "try", "done", "done", "extend", "peek", "holding"}
				v := visit{verb: verbs[r.IntN(len(verbs))], id: thread*perThread + i, cost: 1 + r.Int64N(2)}
				if r.IntN(40) == 0 {
					v.verb, v.limit = "set", limits[r.IntN(len(limits))]
				}
				var own mine
				if v.verb == "done" || v.verb == "extend" {
					if len(open) == 0 {
						v.verb = "peek"
					} else {
						n := r.IntN(len(open))
						own = open[n]
						if v.id = own.id; v.verb == "done" {
							open = slices.Delete(open, n, n+1)
						}
					}
				}
				v.outcome = []weir.Outcome{weir.OK, weir.Ignore, weir.Dropped}[r.IntN(3)]
				if r.IntN(2) == 0 {
					clock.now.Add(step)
				}
				*took = readings{}
				var seen seenOf
				called := tick.Add(1)
				if limits[0].MaxHold == 0 && r.IntN(2) == 0 {
					runtime.Gosched() // if no clock is read, other threads run only here
				}
				switch v.verb {
				case "try":
					h, d := l.TryEnterCost(v.cost)
					if seen = (seenOf{d.Allowed, d.Remaining}); d.Allowed {
						open = append(open, mine{v.id, h})
					}
				case "peek":
					d := l.Peek(v.cost)
					seen = seenOf{d.Allowed, d.Remaining}
				case "holding":
					seen.remaining = l.Holding()
				case "done":
					own.h.Done(v.outcome)
				case "extend":
					seen.ok = own.h.Extend()
				case "set":
					if err := l.SetLimit(v.limit); err != nil {
						panic(err)
					}
				}
				returned := tick.Add(1)
				v.now = took.last
				all[thread] = append(all[thread], porcupine.Operation{ClientId: thread, Input: v, Call: called, Output: seen, Return: returned})
				if v.verb == "done" && v.outcome == weir.OK && v.now > 0 { // a second step; other calls may come before it
					tick := visit{verb: "tick", now: v.now}
					all[thread] = append(all[thread], porcupine.Operation{ClientId: thread, Input: tick, Call: called, Output: seenOf{}, Return: returned})
				}
				rounds.end(i)
			}
		})
	}
	close(start)
	wg.Wait()
	return slices.Concat(all...)
}
