package weirtest

import (
	"math"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/weirflow/weir"
)

// Limits returns a generator for each algorithm. It draws small parameters, for which states often
// coincide, and some extreme ones. All limits count in whole microseconds.
func Limits() []func(*rand.Rand) weir.Limit { return withAll(singles()) }

// StoredLimits returns a generator for each algorithm that stores keep, and further ones. Its All are
// made of all of them.
func StoredLimits(further ...func(*rand.Rand) weir.Limit) []func(*rand.Rand) weir.Limit {
	stored := slices.DeleteFunc(singles(), func(draw func(*rand.Rand) weir.Limit) bool {
		return storable(draw(rand.New(rand.NewPCG(1, 1)))) != nil
	})
	return withAll(append(stored, further...))
}

// withAll adds a generator of All to those of its parts.
func withAll(single []func(*rand.Rand) weir.Limit) []func(*rand.Rand) weir.Limit {
	return append(single, func(r *rand.Rand) weir.Limit {
		parts := make([]weir.Limit, []int{1, 2, 2, 3, 3, 4, 8}[r.IntN(7)])
		for i := range parts {
			parts[i] = single[r.IntN(len(single))](r)
		}
		return weir.All(parts...)
	})
}

// singles returns a generator for each algorithm except All.
func singles() []func(*rand.Rand) weir.Limit {
	return []func(*rand.Rand) weir.Limit{
		func(r *rand.Rand) weir.Limit {
			l := weir.TokenBucket{Rate: drawRate(r), Burst: drawSize(r)}
			if r.IntN(4) == 0 {
				l.Initial = r.Int64N(l.Burst+2) - 1
			}
			return l
		},
		func(r *rand.Rand) weir.Limit {
			l := weir.LeakyBucket{Rate: drawRate(r), Queue: drawSize(r) - 1}
			l.DelayAfter = r.Int64N(l.Queue + 1)
			return l
		},
		func(r *rand.Rand) weir.Limit {
			return weir.IntervalBucket{Burst: drawSize(r), Refill: 1 + r.Int64N(4), Every: drawSpan(r)}
		},
		func(r *rand.Rand) weir.Limit {
			if r.IntN(3) == 0 {
				aligns := []weir.Align{"day", "week", "month:Europe/Berlin", "year", "day:America/St_Johns"}
				return weir.FixedWindow{Limit: drawSize(r), Align: aligns[r.IntN(len(aligns))]}
			}
			return weir.FixedWindow{Limit: drawSize(r), Window: drawSpan(r), Align: []weir.Align{"", weir.AlignEpoch, weir.AlignFirst}[r.IntN(3)]}
		},
		func(r *rand.Rand) weir.Limit {
			l := weir.SlidingWindow{Limit: drawSize(r), Slots: 2 + r.IntN(5)}
			l.Window = drawSpan(r) * time.Duration(l.Slots)
			if r.IntN(2) == 0 {
				l.SlotLimit = 1 + r.Int64N(l.Limit)
			}
			return l
		},
		func(r *rand.Rand) weir.Limit { return weir.SlidingCounter{Limit: drawSize(r), Window: drawSpan(r)} },
		func(r *rand.Rand) weir.Limit {
			return weir.SlidingLog{Limit: drawSize(r), Window: drawSpan(r), MaxEntries: []int{0, 0, 2, 3, 5}[r.IntN(5)]}
		},
		func(r *rand.Rand) weir.Limit {
			return weir.SmoothBursty{Rate: drawRate(r), MaxBurst: []time.Duration{0, -1, drawSpan(r)}[r.IntN(3)]}
		},
		func(r *rand.Rand) weir.Limit {
			return weir.WarmUp{Rate: drawRate(r), Period: drawSpan(r), ColdFactor: []float64{0, 1, 2, 3, 1.3}[r.IntN(5)]}
		},
		func(r *rand.Rand) weir.Limit {
			per := []time.Duration{time.Second, time.Minute}[r.IntN(2)]
			l := weir.NginxBucket{Rate: weir.Rate{N: []int64{1, 2, 7, 10, 100, 333, 5000, 1_000_003}[r.IntN(8)], Per: per}, Queue: drawSize(r) - 1}
			l.DelayAfter = r.Int64N(l.Queue + 1)
			return l
		},
	}
}

// drawSpan draws a window or another duration.
func drawSpan(r *rand.Rand) time.Duration {
	return []time.Duration{3 * time.Microsecond, 100 * time.Millisecond, time.Second, 7 * time.Second, time.Minute, 24 * time.Hour}[r.IntN(6)]
}

// drawRate draws a rate, reduced or not.
func drawRate(r *rand.Rand) weir.Rate {
	n := []int64{1, 2, 3, 7, 10, 100, 333, 12345, 999983}[r.IntN(9)]
	per := []time.Duration{3 * time.Microsecond, 100 * time.Millisecond, time.Second, 7 * time.Second, time.Minute, 24 * time.Hour}[r.IntN(6)]
	return weir.Rate{N: n, Per: per}
}

// drawSize draws a capacity, usually a small one.
func drawSize(r *rand.Rand) int64 {
	if r.IntN(5) == 0 {
		return 1 + r.Int64N(1000)
	}
	return 1 + r.Int64N(6)
}

// walk draws a limit and calls.
func (s Subject) walk(r *rand.Rand, draw func(*rand.Rand) weir.Limit, all []func(*rand.Rand) weir.Limit) walk {
	draw = s.countable(draw)
	w := walk{limit: draw(r)}
	now, first, last := []int64{0, 5, 1_700_000_000_000_000, 1 << 40}[r.IntN(4)], int64(0), int64(math.MaxInt64)/int64(s.Tick)
	atEnds := endsOfClock(w.limit) && r.IntN(8) == 0 && s.Latest == 0
	if s.Latest > 0 {
		last = s.Latest
	}
	if atEnds {
		first = -last
		now = []int64{first, last, last - r.Int64N(1<<20)}[r.IntN(3)]
	}
	size, step := scale(w.limit, s.Tick)
	made, joined, storing := []int{}, []int{}, stores(w.limit)
	order := []int{3, s.Steps}[r.IntN(2)] // which of the latest reservations are settled
	fleet, versions := s.Blind && r.IntN(2) == 0, []weir.Limit{beginsFull(w.limit, storing)}
	for i := range s.Steps {
		if i > 0 {
			now = moved(now, drawMove(r, step, size), first, last)
		}
		c := call{at: now, key: []string{"a", "a", "a", "b"}[r.IntN(4)], cost: drawCost(r, size)}
		switch p := r.IntN(27); {
		case p < 8 || i == 0:
			c.verb = doTake
		case p == 8:
			c.verb = doSome
		case p < 11:
			c.verb = doPeek
		case atEnds && p >= 19:
			c.verb = doPeek // a queue is not specified there, and not for every limit
		case p >= 20 && p < 23:
			c.verb, c.within = doJoin, []int64{-1, -1, 0, step, 3 * step}[r.IntN(5)]
			joined = append(joined, i)
		case p == 23 && len(joined) > 0:
			c.verb, c.of = doLeave, joined[len(joined)-1-r.IntN(min(3, len(joined)))]
			c.key = w.calls[c.of].key
		case p >= 24 && atEnds:
			c.verb = doPeek
		case p >= 24:
			c.verb, c.within = doKeep, r.Int64N(2)
			made = append(made, i)
		case p < 15:
			c.verb, c.within = doReserve, []int64{-1, 0, step, 3 * step}[r.IntN(4)]
			made = append(made, i)
		case fleet && p >= 16 && p < 20 && r.IntN(2) == 0:
			c.verb, c.limit = doSwitch, versions[r.IntN(len(versions))]
			if len(versions) < 2+r.IntN(2) {
				if c.limit = draw(r); r.IntN(2) == 0 {
					c.limit = s.countable(all[r.IntN(len(all))])(r)
				}
				c.limit = beginsFull(c.limit, storing)
				storing = storing && stores(c.limit)
				versions = append(versions, c.limit)
			}
			size, step = scale(c.limit, s.Tick)
		case p < 19 && len(made) > 0:
			c.verb, c.of = doSettle, made[len(made)-1-r.IntN(min(order, len(made)))]
			c.cost = []int64{0, 0, 1, 2, size, max(w.calls[c.of].cost, 0)}[r.IntN(6)]
		case p == 19 && r.IntN(3) == 0:
			c.verb, c.limit = doSet, draw(r)
			if r.IntN(3) == 0 {
				c.limit = s.countable(all[r.IntN(len(all))])(r)
			}
			c.limit = beginsFull(c.limit, storing)
			storing = storing && stores(c.limit)
			size, step = scale(c.limit, s.Tick)
			versions = append(versions, c.limit)
		}
		if s.Latest > 0 {
			c.cost = min(c.cost, 1<<53-1)
		}
		w.calls = append(w.calls, c)
	}
	return w
}

// countable draws limits until one has a capacity that a store can count.
func (s Subject) countable(draw func(*rand.Rand) weir.Limit) func(*rand.Rand) weir.Limit {
	if s.Latest == 0 {
		return draw
	}
	return func(r *rand.Rand) weir.Limit {
		for {
			if l := draw(r); !anyPart(l, func(part weir.Limit) bool {
				size, _ := scale(part, s.Tick)
				// unlimited permits are a case of their own
				return size >= 1<<53 && size < math.MaxInt64
			}) {
				return l
			}
		}
	}
}

// beginsFull draws a limit to change to. It must begin full, because a key that was evicted as full
// is like a new key. An algorithm that begins empty is used only if no state has been evicted.
func beginsFull(l weir.Limit, kept bool) weir.Limit {
	if parts := partsOf(l); parts != nil {
		for i, p := range parts {
			parts[i] = beginsFull(p, kept)
		}
		return weir.All(parts...)
	}
	switch l := l.(type) {
	case weir.TokenBucket:
		l.Initial = 0
		return l
	case weir.SmoothBursty:
		if !kept {
			l.MaxBurst = -1
		}
		return l
	}
	return l
}

// endsOfClock reports whether a limit is specified up to both ends of the clock, and not only as
// long as its waits stay within them.
func endsOfClock(l weir.Limit) bool {
	switch l.(type) {
	case weir.SlidingWindow, weir.SlidingCounter, weir.SlidingLog:
		return true
	}
	return false
}

// moved returns a reading after a move, within bounds.
func moved(now, by, first, last int64) int64 {
	switch {
	case by > 0 && now > last-by:
		return last
	case by < 0 && now < first-by:
		return first
	}
	return now + by
}

// stores reports whether the states of a limit are never evicted, because they begin with less than
// they can hold.
func stores(l weir.Limit) bool {
	return anyPart(l, func(p weir.Limit) bool {
		b, ok := p.(weir.SmoothBursty)
		return ok && b.MaxBurst >= 0
	})
}

// anyPart reports whether is holds for a limit, or for any limit of an All.
func anyPart(l weir.Limit, is func(weir.Limit) bool) bool {
	return slices.ContainsFunc(weir.Parts(l), is)
}

// scale returns the capacity of a limit, and about how many clock units one unit takes to come
// back.
func scale(l weir.Limit, tick time.Duration) (size, step int64) {
	p, err := weir.Prepare(l, tick)
	if err != nil {
		return 1, 1
	}
	size = max(p.Peek(nil, 0, 0).Limit, 3) // some algorithms admit any cost
	_, d := p.Step(nil, 0, size)
	return size, max(int64(d.ResetAfter/tick)/max(size, 1), 1)
}

// drawMove draws how far the clock moves: usually by a time that matters for the limit, sometimes
// back, and sometimes far.
func drawMove(r *rand.Rand, step, size int64) int64 {
	switch p := r.IntN(20); {
	case p < 7:
		return 0
	case p < 9:
		return 1
	case p < 14:
		return r.Int64N(2*step + 1)
	case p < 16:
		return step*r.Int64N(4) + r.Int64N(3) - 1
	case p < 17:
		return r.Int64N(step*min(size, 1<<20) + 1)
	case p < 19:
		return -r.Int64N(3*step + 1)
	}
	return 1 << r.IntN(45)
}

// drawCost draws a cost: usually one that fits, sometimes any.
func drawCost(r *rand.Rand, size int64) int64 {
	switch p := r.IntN(12); {
	case p < 7:
		return 1 + r.Int64N(min(size, 3))
	case p < 9:
		return 1 + r.Int64N(size)
	case p < 11:
		return []int64{0, size, size + 1, -1}[r.IntN(4)]
	}
	return []int64{math.MaxInt64, math.MinInt64, r.Int64(), -r.Int64()}[r.IntN(4)]
}
