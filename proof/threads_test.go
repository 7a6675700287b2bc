package proof

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/weirflow/weir"
	"github.com/weirflow/weir/internal/seeds"
	"github.com/weirflow/weir/keyed"
)

var threadRounds = flag.Int("threads.rounds", 6, "how many rounds of each limit and holder threads play")

// A threadClock is a clock that threads read while another one sets it. Its timers never fire: each
// call of a limiter serves the waiters whose turns have come.
type threadClock struct {
	atomic.Int64
	yields atomic.Bool // each reading lets other threads run first, in the middle of a limiter's call
}

func (c *threadClock) Now() int64 {
	if c.yields.Load() {
		runtime.Gosched()
	}
	return c.Load()
}

func (c *threadClock) Set(t int64)                                { c.Store(t) }
func (c *threadClock) AfterFunc(time.Duration, func()) weir.Timer { return noTimer{} }

type noTimer struct{}

func (noTimer) Reset(time.Duration) bool { return true }
func (noTimer) Stop() bool               { return true }

// A sharedHolder is a holder with the verbs of this test. end settles a charge.
type sharedHolder struct {
	reserve func(cost int64) (end func(actual int64), ok bool)
	join    func(cost int64) (end func(actual int64), ready <-chan struct{}, ok bool)
	take    func(cost int64) bool
	set     func(weir.Limit) error
	peek    func(cost int64) weir.Decision
}

// openShared opens a holder with a limit and a clock.
type openShared func(t *testing.T, l weir.Limit, clock *threadClock) sharedHolder

// sharedHolders open each holder.
var sharedHolders = map[string]openShared{
	"limiter": func(t *testing.T, l weir.Limit, clock *threadClock) sharedHolder {
		return overLimiter(threadLimiter(t, l, clock))
	},
	"group": func(t *testing.T, l weir.Limit, clock *threadClock) sharedHolder {
		a, b := threadLimiter(t, l, clock), threadLimiter(t, l, clock)
		h, g := overLimiter(a), weir.NewGroup(a, b)
		h.take = func(cost int64) bool { return g.Take(cost, 1).Allowed }
		h.peek = func(cost int64) weir.Decision { return g.Peek(cost, 0) }
		h.set = func(l weir.Limit) error {
			if err := b.SetLimit(l); err != nil {
				return err
			}
			return a.SetLimit(l)
		}
		return h
	},
	"keyed": func(t *testing.T, l weir.Limit, clock *threadClock) sharedHolder {
		return overTable(t, threadTable(t, "a", l, clock))
	},
	"keyed group": func(t *testing.T, l weir.Limit, clock *threadClock) sharedHolder {
		a, b := threadTable(t, "a", l, clock), threadTable(t, "b", l, clock)
		g, err := keyed.NewGroup(b, a)
		if err != nil {
			t.Fatal(err)
		}
		h := overTable(t, a)
		h.reserve = func(cost int64) (func(int64), bool) {
			charges := []keyed.Charge[string]{{Key: "key", Cost: 1, Keep: true}, {Key: "key", Cost: cost, Keep: true}}
			d, err := g.Take(charges)
			return func(actual int64) {
				if charges[0].Cancel() != nil || charges[1].Settle(actual) != nil {
					panic("it was kept")
				}
			}, err == nil && d.Allowed
		}
		h.set = func(l weir.Limit) error {
			if err := b.SetLimit(l); err != nil {
				return err
			}
			return a.SetLimit(l)
		}
		return h
	},
}

func threadLimiter(t *testing.T, l weir.Limit, clock *threadClock) *weir.Limiter {
	lim, err := weir.New(l, weir.WithClock(clock.Now), weir.WithTimers(clock.AfterFunc))
	if err != nil {
		t.Fatal(err)
	}
	return lim
}

func overLimiter(l *weir.Limiter) sharedHolder {
	return sharedHolder{
		reserve: func(cost int64) (func(int64), bool) {
			r, ok := l.Reserve(cost, 0)
			return r.Settle, ok
		},
		join: func(cost int64) (func(int64), <-chan struct{}, bool) {
			p, d := l.JoinKept(cost, -1)
			if p == nil || !d.Allowed {
				return nil, nil, false
			}
			return p.Settle, p.Ready(), true
		},
		take: func(cost int64) bool { return l.Take(cost).Allowed },
		set:  l.SetLimit,
		peek: l.Peek,
	}
}

func threadTable(t *testing.T, name string, l weir.Limit, clock *threadClock) *keyed.Limiter[string] {
	k, err := keyed.New[string](l, keyed.Options{Name: name, Clock: clock.Now, Timers: clock.AfterFunc})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = k.Close() })
	return k
}

func overTable(t *testing.T, k *keyed.Limiter[string]) sharedHolder {
	g, err := keyed.NewGroup(k)
	if err != nil {
		t.Fatal(err)
	}
	gone := make(chan struct{})
	close(gone)
	return sharedHolder{
		reserve: func(cost int64) (func(int64), bool) {
			r, ok := k.Reserve("key", cost, 0)
			return r.Settle, ok
		},
		join: func(cost int64) (func(int64), <-chan struct{}, bool) {
			charges := []keyed.Charge[string]{{Key: "key", Cost: cost, Keep: true, Wait: true}}
			d, err := g.Take(charges)
			if err != nil || !d.Allowed {
				return nil, nil, false
			}
			end := func(actual int64) {
				if charges[0].Settle(actual) != nil {
					panic("it was kept")
				}
			}
			if charges[0].Place == nil {
				return end, gone, true
			}
			return end, charges[0].Place.Ready(), true
		},
		take: func(cost int64) bool { return k.Take("key", cost).Allowed },
		set:  k.SetLimit,
		peek: func(cost int64) weir.Decision { return k.Peek("key", cost) },
	}
}

// threadsCancel has pairs of limits. A change from one to the other converts states without a
// remainder.
var threadsCancel = map[string][2]weir.Limit{
	"token bucket":    {weir.TokenBucket{Rate: weir.PerSecond(1), Burst: 40}, weir.TokenBucket{Rate: weir.PerSecond(2), Burst: 30}},
	"leaky bucket":    {weir.LeakyBucket{Rate: weir.PerSecond(1), Queue: 39, DelayAfter: 39}, weir.LeakyBucket{Rate: weir.PerSecond(2), Queue: 29, DelayAfter: 29}},
	"interval bucket": {weir.IntervalBucket{Burst: 40, Refill: 1, Every: time.Second}, weir.IntervalBucket{Burst: 30, Refill: 2, Every: time.Second}},
	"fixed window":    {weir.FixedWindow{Limit: 40, Window: time.Hour}, weir.FixedWindow{Limit: 30, Window: time.Hour}},
	"sliding window":  {weir.SlidingWindow{Limit: 40, Window: time.Hour, Slots: 4}, weir.SlidingWindow{Limit: 30, Window: time.Hour, Slots: 4}},
	"sliding counter": {weir.SlidingCounter{Limit: 40, Window: time.Hour}, weir.SlidingCounter{Limit: 30, Window: time.Hour}},
	"sliding log":     {weir.SlidingLog{Limit: 40, Window: time.Hour}, weir.SlidingLog{Limit: 30, Window: time.Hour}},
	"nginx bucket":    {weir.NginxBucket{Rate: weir.PerSecond(1), Queue: 39}, weir.NginxBucket{Rate: weir.PerSecond(2), Queue: 29}},
}

// TestThreadsThatCancelLeaveNoTrace: on a clock that stands still, threads reserve, join, cancel,
// and change the limit. When all is cancelled, the limit is as if only its changes had been made.
func TestThreadsThatCancelLeaveNoTrace(t *testing.T) {
	for name, open := range sharedHolders {
		for limit, pair := range threadsCancel {
			t.Run(name+"/"+limit, func(t *testing.T) {
				for round := range *threadRounds {
					if trace := traceOfThreads(t, open, pair, round); trace != "" {
						t.Fatalf("round %d, %s", round, trace)
					}
				}
			})
		}
	}
}

// traceOfThreads lets threads cancel all that they reserve, and describes what is left of it.
func traceOfThreads(t *testing.T, open openShared, pair [2]weir.Limit, round int) string {
	clock := new(threadClock)
	clock.Set(int64(time.Hour))
	h, without := open(t, pair[0], clock), open(t, pair[0], clock)
	for _, h := range []sharedHolder{h, without} {
		if !h.take(7) {
			t.Fatal("refused")
		}
	}
	var threads sync.WaitGroup
	clock.yields.Store(true)
	for n := range 4 {
		rnd := rand.New(rand.NewPCG(seeds.Seed(), uint64(round*10+n)))
		threads.Go(func() { reserveAndCancel(t, h, rnd, pair) })
	}
	threads.Wait()
	if err := h.set(pair[0]); err != nil {
		t.Fatal(err)
	}
	for _, cost := range []int64{0, 1, 33} {
		if got, want := h.peek(cost), without.peek(cost); got != want {
			return fmt.Sprintf("peek %d:\n        got %+v\nwithout it %+v", cost, got, want)
		}
	}
	return ""
}

// reserveAndCancel makes the calls of one thread. In the end it has cancelled everything.
func reserveAndCancel(t *testing.T, h sharedHolder, rnd *rand.Rand, pair [2]weir.Limit) {
	var open []func(int64)
	for range 100 {
		cost := rnd.Int64N(4) + 1
		switch n := rnd.IntN(12); {
		case n < 1:
			if err := h.set(pair[rnd.IntN(2)]); err != nil {
				t.Error(err)
			}
		case n < 5:
			if end, ok := h.reserve(cost); ok {
				open = append(open, end)
			}
		case n < 7:
			if end, _, ok := h.join(cost); ok {
				open = append(open, end)
			}
		case len(open) > 0:
			i := rnd.IntN(len(open))
			open[i](0)
			open = slices.Delete(open, i, i+1)
		}
	}
	for _, end := range open {
		end(0)
	}
}

// A threadWork is work that went on between two readings of the clock, and the cost that was kept.
type threadWork struct{ lo, hi, cost int64 }

// A timeline has the rate per second from each of its times on.
type timeline []struct{ at, rate int64 }

// upTo returns what comes until a time, in tokens times nanoseconds per second.
func (l timeline) upTo(t int64) (sum int64) {
	for i, from := range l {
		end := t
		if i+1 < len(l) {
			end = min(t, l[i+1].at)
		}
		sum += max(0, end-from.at) * from.rate
	}
	return sum
}

// TestThreadsAreNeverOver: while a clock steps and the limit changes, threads take, reserve, join
// and settle. The admitted and kept cost in any interval is at most the largest burst and what the
// rate brings.
func TestThreadsAreNeverOver(t *testing.T) {
	bursts, rates := [2]int64{20, 8}, [2]int64{10, 40}
	for name, open := range sharedHolders {
		for limit, of := range map[string]func(rate, burst int64) weir.Limit{
			"token bucket": func(rate, burst int64) weir.Limit { return weir.TokenBucket{Rate: weir.PerSecond(rate), Burst: burst} },
			"leaky bucket": func(rate, burst int64) weir.Limit {
				return weir.LeakyBucket{Rate: weir.PerSecond(rate), Queue: burst - 1, DelayAfter: burst - 1}
			},
		} {
			t.Run(name+"/"+limit, func(t *testing.T) {
				admitted := 0
				for round := range *threadRounds {
					clock := new(threadClock)
					clock.Set(int64(time.Hour))
					h := open(t, of(rates[0], bursts[0]), clock)
					made := make([][]threadWork, 3)
					var calls atomic.Int64
					var threads sync.WaitGroup
					for n := range made {
						rnd := rand.New(rand.NewPCG(seeds.Seed(), uint64(round*10+n)))
						threads.Go(func() { made[n] = useAndSettle(h, clock, &calls, rnd) })
					}
					line := timeline{{clock.Now(), rates[0]}}
					rnd := rand.New(rand.NewPCG(seeds.Seed(), uint64(round*10+9)))
					done := make(chan struct{})
					go func() {
						threads.Wait()
						close(done)
					}()
					for !isClosed(done) {
						seen := calls.Load()
						for range 4 {
							clock.Set(clock.Now() + rnd.Int64N(int64(30*time.Millisecond)))
							if rnd.IntN(20) > 0 {
								continue
							}
							next := rnd.IntN(2)
							// this thread alone steps the clock
							line = append(line, struct{ at, rate int64 }{clock.Now(), rates[next]})
							if h.set(of(rates[next], bursts[next])) != nil {
								t.Error("the limit is valid")
							}
						}
						for calls.Load() == seen && !isClosed(done) {
							runtime.Gosched() // until a thread has made a call
						}
					}
					all := slices.Concat(made...)
					admitted += len(all)
					if over := mostOver(all, line, max(bursts[0], bursts[1])); over != "" {
						t.Fatalf("round %d: %s", round, over)
					}
				}
				if admitted < 2**threadRounds {
					t.Errorf("only %d were admitted", admitted)
				}
			})
		}
	}
}

func isClosed(done <-chan struct{}) bool {
	select {
	case <-done:
		return true
	default:
		return false
	}
}

// useAndSettle makes the calls of one thread. It counts them, and returns the work that it kept.
func useAndSettle(h sharedHolder, clock *threadClock, calls *atomic.Int64, rnd *rand.Rand) (kept []threadWork) {
	type held struct {
		at  int
		end func(int64)
	}
	var open []held
	for range 150 {
		a := threadWork{lo: clock.Now(), cost: rnd.Int64N(4) + 1}
		calls.Add(1)
		switch n := rnd.IntN(12); {
		case n < 3:
			if h.take(a.cost) {
				a.hi = clock.Now()
				kept = append(kept, a)
			}
		case n < 6:
			if end, ok := h.reserve(a.cost); ok {
				a.hi = clock.Now()
				kept, open = append(kept, a), append(open, held{len(kept), end})
			}
		case n < 8:
			if end, ready, ok := h.join(a.cost); ok {
				for i := 0; i < 80 && !isClosed(ready); i++ {
					now := clock.Now()
					for calls.Add(1); clock.Now() == now; {
						runtime.Gosched() // until the clock has stepped
					}
				}
				if isClosed(ready) {
					a.hi = clock.Now()
					kept, open = append(kept, a), append(open, held{len(kept), end})
				} else {
					end(0)
				}
			}
		case len(open) > 0:
			i := rnd.IntN(len(open))
			o := open[i]
			open = slices.Delete(open, i, i+1)
			actual := rnd.Int64N(kept[o.at].cost + 1)
			kept[o.at].cost = actual
			o.end(actual)
		}
	}
	return kept
}

// mostOver returns an interval that certainly has more than the bound.
func mostOver(all []threadWork, line timeline, burst int64) string {
	slices.SortFunc(all, func(a, b threadWork) int { return int(a.hi - b.hi) })
	came := make([]int64, len(all)) // until hi of each
	for i, a := range all {
		came[i] = line.upTo(a.hi)
	}
	for _, from := range all {
		start, sum := line.upTo(from.lo), int64(0)
		for j, a := range all {
			if a.lo < from.lo {
				continue
			}
			if sum += a.cost; sum*int64(time.Second) > burst*int64(time.Second)+came[j]-start {
				return fmt.Sprintf("%d in [%v, %v], where %d and %.3f may be", sum, time.Duration(from.lo), time.Duration(a.hi), burst, float64(came[j]-start)/1e9)
			}
		}
	}
	return ""
}
