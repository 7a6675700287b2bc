package weir_test

import (
	"math"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/weirflow/weir"
	"github.com/weirflow/weir/internal/raced"
	"github.com/weirflow/weir/weirtest"
)

// TestWordIsTheRule makes the same random calls at the same readings on pairs of limiters. One
// keeps its state in a word whenever it can, and the other uses the rule each time. Every decision
// is the same.
func TestWordIsTheRule(t *testing.T) {
	raced.Skip(t)
	onWord := map[string]int{}
	for seed := range uint64(1500) {
		r := rand.New(rand.NewPCG(seed, 3))
		limit, kind, interval := anyWordLimit(r)
		wordWalk(t, r, limit, interval, func(l *weir.Limiter) {
			if weir.OnWord(l) {
				onWord[kind]++
			}
		})
	}
	for _, kind := range []string{"FixedWindow", "FixedWindow first", "FixedWindow calendar", "SlidingCounter", "IntervalBucket", "bucket"} {
		if onWord[kind] < 5000 {
			t.Errorf("%s: only %d calls found a word", kind, onWord[kind])
		}
	}
}

// TestDirectIsTheRule does the same for rules that implement DirectRule.
func TestDirectIsTheRule(t *testing.T) {
	raced.Skip(t)
	for seed := range uint64(1000) {
		r := rand.New(rand.NewPCG(seed, 4))
		size := []int64{1, 2, 5, 100, 1000, math.MaxInt64}[r.IntN(6)]
		slots := 2 + r.IntN(6)
		width := []time.Duration{1, 10, time.Microsecond, 7 * ms, sec, 3 * sec, time.Hour, 365 * 24 * time.Hour}[r.IntN(8)]
		var limit weir.Limit = weir.SlidingLog{Limit: size, Window: width, MaxEntries: []int{0, 2, 3, 10}[r.IntN(4)]}
		switch r.IntN(3) {
		case 0:
			limit = weir.SlidingWindow{Limit: size, Window: width * time.Duration(slots), Slots: slots, SlotLimit: r.Int64N(size)}
		case 1:
			cold := []float64{0, 1, 2.7, 1000}[r.IntN(4)]
			limit = weir.WarmUp{Rate: weir.Rate{N: 1 + r.Int64N(1e6), Per: width}, Period: min(width*time.Duration(slots), 1e15), ColdFactor: cold}
			if limit.Validate() != nil {
				t.Fatal(limit)
			}
			if _, err := weir.Prepare(limit, 1); err != nil {
				continue // more than can be counted
			}
		}
		wordWalk(t, r, limit, int64(width), func(*weir.Limiter) {})
	}
}

// wordWalk makes the same random calls on both limiters, and calls look before each of them.
func wordWalk(t *testing.T, r *rand.Rand, limit weir.Limit, interval int64, look func(*weir.Limiter)) {
	const steps = 200
	now := []int64{0, 12345678, 1_700_000_000 * int64(sec), -int64(time.Hour), r.Int64() / 2}[r.IntN(5)]
	clock := weir.WithClock(func() int64 { return now })
	var pair [2]*weir.Limiter
	for i := range pair {
		var err error
		if pair[i], err = weir.New(limit, clock, weir.Named("x"), weir.WithTimers(new(weirtest.Clock).AfterFunc)); err != nil {
			t.Fatalf("%+v: %v", limit, err)
		}
	}
	weir.UnderLock(pair[1])
	var log []any
	var open [2][]weir.Reservation
	var places [2][]*weir.Place
	for range steps {
		now += wordMove(r, interval)
		look(pair[0])
		size := min(pair[0].Peek(0).Limit, pair[1].Peek(0).Limit) // on both, because a call also serves the waiters whose turn has come
		op, cost, within := r.IntN(20), wordCost(r, size), anyWithin(r)
		weir.UnderLock(pair[1])
		which, next := r.IntN(1<<20), changed(r, limit)
		var got [2]weir.Decision
		for i, l := range pair {
			switch {
			case op < 11:
				got[i] = l.Take(cost)
			case op < 14:
				got[i] = l.Peek(cost)
			case op < 16:
				res, _ := l.Reserve(cost, time.Duration(within))
				got[i] = res.Decision()
				got[i].RetryAfter = res.Delay()
				open[i] = append(open[i], res)
			case op < 18 && len(open[i]) > 0:
				n := which % len(open[i])
				if which%3 == 0 {
					open[i][n].Settle(cost)
				} else {
					open[i][n].Cancel()
				}
				open[i] = append(open[i][:n], open[i][n+1:]...)
			case op == 18 && which%8 == 0:
				if err := l.SetLimit(next); err != nil {
					t.Fatal(err)
				}
			case op == 18:
				var p *weir.Place
				if p, got[i] = l.Join(cost, time.Duration(within)); p != nil {
					places[i] = append(places[i], p)
				}
			case len(places[i]) > 0:
				places[i][0].Leave()
				places[i] = places[i][1:]
			}
			weir.UnderLock(pair[1])
		}
		log = append(log, []any{now, op, cost, within, which, got[1].Allowed})
		if got[0] != got[1] {
			t.Fatalf("%+v\n%v\ngot         %+v\nby the rule %+v", limit, log, got[0], got[1])
		}
	}
}

// anyWordLimit draws a limit of an algorithm that may have a word, and a time that matters to it.
func anyWordLimit(r *rand.Rand) (l weir.Limit, kind string, interval int64) {
	size := []int64{1, 2, 5, 100, 1000, 1e6, 1e9, 1e12, math.MaxInt64}[r.IntN(9)]
	window := []time.Duration{1, 10, time.Microsecond, 7 * ms, sec, 3 * sec, time.Hour, 24 * time.Hour, 20 * 365 * 24 * time.Hour}[r.IntN(9)]
	switch r.IntN(7) {
	case 0:
		return weir.FixedWindow{Limit: size, Window: window}, "FixedWindow", int64(window)
	case 1:
		return weir.FixedWindow{Limit: size, Window: window, Align: weir.AlignFirst}, "FixedWindow first", int64(window)
	case 2:
		align := []weir.Align{"day:Europe/Berlin", "week", "month:America/New_York", "year"}[r.IntN(4)]
		return weir.FixedWindow{Limit: size, Align: align}, "FixedWindow calendar", int64(24 * time.Hour)
	case 3, 4:
		return weir.SlidingCounter{Limit: size, Window: window}, "SlidingCounter", int64(window)
	case 5:
		refill := 1 + r.Int64N(size)
		for window > 1 && float64(size)/float64(refill)*float64(window) > 1e18 {
			window = max(1, window/1000)
		}
		if float64(size)/float64(refill) > 1e18 {
			refill = size
		}
		return weir.IntervalBucket{Burst: size, Refill: refill, Every: window}, "IntervalBucket", int64(window)
	}
	rate := weir.Rate{N: 1 + r.Int64N(1000), Per: min(window, 24*time.Hour)}
	return weir.TokenBucket{Rate: rate, Burst: min(size, 1000)}, "bucket", max(1, int64(rate.Per)/rate.N)
}

// changed draws a limit of the same algorithm, or of another.
func changed(r *rand.Rand, l weir.Limit) weir.Limit {
	switch l := l.(type) {
	case weir.FixedWindow:
		l.Limit = 1 + r.Int64N(200)
		return l
	case weir.SlidingCounter:
		l.Limit = 1 + r.Int64N(200)
		return l
	case weir.SlidingWindow, weir.SlidingLog, weir.WarmUp:
		return l
	}
	next, _, _ := anyWordLimit(r)
	return next
}

func wordMove(r *rand.Rand, interval int64) int64 {
	f := float64(interval)
	switch r.IntN(14) {
	case 0, 1, 2, 3, 4:
		return 0
	case 5, 6:
		return interval
	case 7:
		return interval - 1
	case 8, 9:
		return int64(f * r.Float64())
	case 10:
		return int64(f * r.Float64() * 3)
	case 11:
		return min(int64(f*r.Float64()*50), int64(365*24*time.Hour))
	case 12:
		return -int64(f * r.Float64() * 2)
	}
	return int64(r.IntN(3))
}

func wordCost(r *rand.Rand, size int64) int64 {
	if r.IntN(3) == 0 {
		return 1 + r.Int64N(max(1, size/3))
	}
	return anyCost(r, size)
}

// TestWordsAreNeverOver: whatever the number of concurrent callers, a word admits exactly as many
// as the limit allows.
func TestWordsAreNeverOver(t *testing.T) {
	for _, limit := range []weir.Limit{
		weir.FixedWindow{Limit: 1000, Window: time.Second},
		weir.FixedWindow{Limit: 1000, Window: time.Second, Align: weir.AlignFirst},
		weir.FixedWindow{Limit: 1000, Align: "day"},
		weir.SlidingCounter{Limit: 1000, Window: time.Second},
		weir.IntervalBucket{Burst: 1000, Refill: 1000, Every: time.Second},
	} {
		var now, admitted atomic.Int64
		l, err := weir.New(limit, weir.WithClock(now.Load))
		if err != nil {
			t.Fatal(err)
		}
		if !weir.OnWord(l) {
			t.Errorf("%+v is not on a word", limit)
		}
		for window := range int64(3) {
			now.Store(window * 2 * int64(24*time.Hour))
			var crowd sync.WaitGroup
			for i := range 8 {
				crowd.Go(func() {
					for range 400 {
						if l.Allow() {
							admitted.Add(1)
						}
						if i == 0 {
							if r, ok := l.Reserve(1, 0); ok { // under the lock, beside the takes
								r.Cancel()
							}
						}
					}
				})
			}
			crowd.Wait()
		}
		for l.Allow() { // what was reserved while other callers took
			admitted.Add(1)
		}
		if n := admitted.Load(); n > 3000 || n < 2900 {
			t.Errorf("%+v: %d admitted in three windows of 1000", limit, n)
		}
	}
}

// TestALongWindowOfManyHasAWord: a count and the time of its window do not always fit a word, and then the word
// is about one window.
func TestALongWindowOfManyHasAWord(t *testing.T) {
	day := int64(24 * time.Hour)
	var now atomic.Int64
	now.Store(20_000*day + day/2)
	l, err := weir.New(weir.FixedWindow{Limit: 1e9, Window: 24 * time.Hour}, weir.WithClock(now.Load), weir.WithWallClock(now.Load))
	if err != nil {
		t.Fatal(err)
	}
	for range 3 {
		if l.Allow(); !weir.OnWord(l) {
			t.Fatal("it has no word")
		}
		d := l.Take(1e9 - 1)
		if !d.Allowed || d.Remaining != 0 || d.ResetAfter != 12*time.Hour {
			t.Errorf("in the middle of a day: %+v", d)
		}
		if d = l.Take(1); d.Allowed || d.RetryAfter != 12*time.Hour {
			t.Errorf("with nothing left: %+v", d)
		}
		now.Add(day)
	}
}
