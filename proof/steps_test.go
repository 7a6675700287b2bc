package proof

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/weirflow/weir"
	"github.com/weirflow/weir/internal/raced"
	"github.com/weirflow/weir/internal/seeds"
	"github.com/weirflow/weir/weirtest"
)

var clocks = flag.Int("clocks", 60, "how many random clocks of each algorithm")

// A swing is a store's clock that reads one of several times: the true one, or one that is ahead of
// it or behind it. The callers retry, reserve, and cancel or settle what they reserved.
type swing struct {
	limit   weir.Limit
	offsets []int64 // milliseconds
	longest int64   // for which is reserved ahead
	r       *rand.Rand
	log     strings.Builder
}

// work is what was admitted: when it goes on by the true time, and its cost.
type work struct{ at, cost int64 }

// outstandingWork is a reservation that is not settled yet.
type outstandingWork struct {
	id   int
	work int
}

// drawSwing draws a limit of an algorithm and a clock.
func drawSwing(r *rand.Rand, kind, times int, ahead bool) *swing {
	span := []int64{20, 200, 1000, 10_000}[r.IntN(4)]
	s := &swing{limit: versionKinds[kind].draw(r, span, 2+r.Int64N(12)), r: r, offsets: []int64{0}}
	if f, ok := s.limit.(weir.FixedWindow); ok && f.Align != weir.AlignFirst && r.IntN(2) == 0 {
		f.Align = weir.AlignEpoch
		s.limit = f
	}
	for len(s.offsets) < times {
		by := []int64{1, span / 10, span, 3 * span, 3_600_000}[r.IntN(5)]
		by = 1 + r.Int64N(by+1)
		s.offsets = append(s.offsets, by*[]int64{1, -1}[r.IntN(2)])
	}
	slices.Sort(s.offsets)
	if ahead {
		s.longest = span
	}
	fmt.Fprintf(&s.log, "%T%+v, clocks %v\n", s.limit, s.limit, s.offsets)
	return s
}

// play makes calls, and returns what was admitted, and the true times at which the clock stepped
// forward.
func (s *swing) play(calls int) (done []work, steps []int64) {
	r, v := s.r, weirtest.NewVersions(time.Millisecond)
	span := comesBackIn(s.limit)
	now, ahead := int64(1_000_000_000), s.offsets[len(s.offsets)-1]
	settle, stay := 1+r.IntN(4), 1+r.IntN(20)
	var open []outstandingWork
	for range calls {
		now += []int64{0, 0, 1, 1 + r.Int64N(3), r.Int64N(span/4 + 2), r.Int64N(span + 1)}[r.IntN(6)]
		if r.IntN(stay) == 0 {
			before := ahead
			if ahead = s.offsets[r.IntN(len(s.offsets))]; ahead > before {
				steps = append(steps, now)
			}
		}
		reading := now + ahead
		switch p := r.IntN(10); {
		case p < 5:
			cost := 1 + r.Int64N(2)
			if v.Take(s.limit, reading, cost).Allowed {
				done = append(done, work{now, cost})
				fmt.Fprintf(&s.log, "%d (%+d) take %d\n", now, ahead, cost)
			}
		case p < 8:
			cost := 1 + r.Int64N(2)
			id, delay, d := v.Reserve(s.limit, reading, cost, r.Int64N(s.longest+1))
			if d.Allowed {
				open = append(open, outstandingWork{id, len(done)})
				done = append(done, work{now + delay.Milliseconds(), cost})
				fmt.Fprintf(&s.log, "%d (%+d) reserve %d, delay %v\n", now, ahead, cost, delay)
			}
		case len(open) > 0 && r.IntN(settle) == 0:
			i := r.IntN(len(open))
			w := &done[open[i].work]
			actual := r.Int64N(w.cost + 1)
			v.Settle(s.limit, reading, open[i].id, actual)
			fmt.Fprintf(&s.log, "%d (%+d) settle %d of the work at %d\n", now, ahead, actual, w.at)
			w.cost, open = actual, slices.Delete(open, i, i+1)
		default:
			v.Peek(s.limit, reading, 1)
		}
	}
	return done, steps
}

// comesBackIn is how long a limit that is used up takes until it is unused, in milliseconds.
func comesBackIn(l weir.Limit) int64 {
	p, err := weir.Prepare(l, time.Millisecond)
	if err != nil {
		panic(err)
	}
	// At 0 a window begins, and so does a slot.
	_, d := p.Step(nil, 0, max(1, p.Peek(nil, 0, 0).Limit))
	if b, ok := l.(weir.SmoothBursty); ok {
		return b.MaxBurst.Milliseconds() + d.ResetAfter.Milliseconds()
	}
	return d.ResetAfter.Milliseconds()
}

// mostByAnyClock is mostIn by a clock whose readings have nothing to do with the true time.
func mostByAnyClock(l weir.Limit) func(from, to int64) int64 {
	if parts := weir.Parts(l); len(parts) > 1 {
		first, second := mostByAnyClock(parts[0]), mostByAnyClock(parts[1])
		return func(from, to int64) int64 { return min(first(from, to), second(from, to)) }
	}
	if f, ok := l.(weir.FixedWindow); ok {
		f.Align = weir.AlignFirst
		l = f
	}
	return mostIn(l)
}

// over returns an interval of the true time with too much work: more than the bound of an interval
// that is longer by the time in which the limit comes back, and by as much again for each step
// forward before its end beyond those that are free.
func (s *swing) over(done []work, steps []int64, free bool) string {
	slices.SortStableFunc(done, func(a, b work) int { return int(a.at - b.at) })
	most, lag := mostByAnyClock(s.limit), comesBackIn(s.limit)
	if s.longest > 0 {
		lag = 3*lag + 2*s.longest
	}
	for i, first := range done {
		sum := int64(0)
		for j := i; j < len(done); j++ {
			if sum += done[j].cost; j+1 < len(done) && done[j+1].at == done[j].at {
				continue
			}
			allowed := most(0, done[j].at-first.at+lag)
			if !free {
				n, _ := slices.BinarySearch(steps, done[j].at+1)
				allowed += int64(n) * most(0, lag)
			}
			if sum > allowed {
				return fmt.Sprintf("%d from %d to %d, where at most %d may be", sum, first.at, done[j].at, allowed)
			}
		}
	}
	return ""
}

// TestSwingingClocks: a store's clock that swings between two times creates no capacity, whatever is
// reserved, cancelled and settled meanwhile: in any interval at most one capacity comes on top, as
// the key does not know how long ago it was last used by the other time. Clocks that swing among more
// times may create one capacity for each step forward, as every step forward may.
func TestSwingingClocks(t *testing.T) {
	raced.Skip(t)
	r := seeds.Of(t.Name())
	for kind, k := range versionKinds {
		t.Run(k.name, func(t *testing.T) {
			for i := range *clocks {
				s := drawSwing(r, kind, 2+i%3, i%2 == 0)
				done, steps := s.play(250)
				if bad := s.over(done, steps, len(s.offsets) == 2); bad != "" {
					t.Fatalf("%s\n%s", bad, s.log.String())
				}
			}
		})
	}
}

// TestNothingWaitsForTheStep: after a clock stepped back by an hour, for good, a caller that retries is
// admitted in the time in which the limit comes back, and what RetryAfter says is exact. What was
// reserved ahead before the step is still ahead of it.
func TestNothingWaitsForTheStep(t *testing.T) {
	raced.Skip(t)
	r := seeds.Of(t.Name())
	const back = 3_600_000
	for kind, k := range versionKinds {
		t.Run(k.name, func(t *testing.T) {
			for range *clocks {
				s := drawSwing(r, kind, 1, false)
				v, now := weirtest.NewVersions(time.Millisecond), int64(1_000_000_000)
				var promised, charged int64
				for range 1 + r.IntN(30) {
					if now += r.Int64N(20); r.IntN(4) == 0 {
						_, delay, d := v.Reserve(s.limit, now, 1, comesBackIn(s.limit))
						if d.Allowed {
							promised, charged = max(promised, now+delay.Milliseconds()), now
						}
					} else if v.Take(s.limit, now, 1).Allowed {
						charged = now
					}
				}
				most := comesBackIn(s.limit) + max(promised-charged, 0)
				stepped := now - back
				d := v.Take(s.limit, stepped, 1)
				if d.RetryAfter == weir.Never || d.RetryAfter.Milliseconds() > most {
					t.Fatalf("%T%+v: %+v after the step, where %d ms are enough", s.limit, s.limit, d, most)
				}
				if retry := d.RetryAfter.Milliseconds(); retry > 0 {
					if early := v.Clone().Take(s.limit, stepped+retry-1, 1); early.Allowed {
						t.Errorf("%T%+v: admitted after %d ms, with a RetryAfter of %d", s.limit, s.limit, retry-1, retry)
					}
					if d := v.Take(s.limit, stepped+retry, 1); !d.Allowed {
						t.Errorf("%T%+v: refused after its RetryAfter of %d ms: %+v", s.limit, s.limit, retry, d)
					}
				}
			}
		})
	}
}
