package weir_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/weirflow/weir"
	"github.com/weirflow/weir/internal/raced"
	"github.com/weirflow/weir/weirtest"
)

// TestLimiterIsTheModel makes the same random calls at the same readings on limiters and their
// reference models. Every field of every decision is the same. proof/ has long runs that are
// shrunk.
func TestLimiterIsTheModel(t *testing.T) {
	raced.Skip(t)
	for seed := range uint64(300) {
		walk(t, seed, 300)
	}
}

// endless is a reading beyond which waits reach the end of the clock. Queues are safe there, but
// their results are not specified.
const endless = math.MaxInt64 - 2*100*366*24*int64(time.Hour)

func walk(t *testing.T, seed uint64, steps int) {
	r := rand.New(rand.NewPCG(seed, 1))
	limit := anyLimit(r)
	var clock weirtest.Clock
	clock.Set(anyOrigin(r))
	punctual := r.IntN(2) == 0 // otherwise no timer fires, and turns are noticed late
	timers := clock.AfterFunc
	if !punctual {
		timers = new(weirtest.Clock).AfterFunc
	}
	l, err := weir.New(limit, weir.Named("x"), weir.WithClock(clock.Now), weir.WithTimers(timers))
	if err != nil {
		t.Fatalf("seed %d: %+v: %v", seed, limit, err)
	}
	m := weirtest.NewModel(limit, 1)
	type open struct {
		r  weir.Reservation
		id int
	}
	type place struct {
		p  *weir.Place
		id int
	}
	var opens []open
	var places []place
	var log []string
	fail := func(format string, args ...any) {
		t.Helper()
		t.Fatalf("seed %d: %+v\n%s\n%s", seed, limit, join(log), fmt.Sprintf(format, args...))
	}
	check := func(got, want weir.Decision) {
		t.Helper()
		want.By = "x"
		if got != want {
			fail("got  %+v\nwant %+v", got, want)
		}
	}
	for range steps {
		next := anyMove(r, clock.Now(), limit, l.Waiting() == 0)
		for punctual {
			turn, ok := m.NextTurn()
			if !ok || turn > next || turn < clock.Now() {
				break
			}
			m.Peek(turn, 0)
		}
		clock.Set(next)
		now := clock.Now()
		size := m.Peek(now, 0).Limit
		cost := anyCost(r, size)
		say := func(format string, args ...any) {
			log = append(log, fmt.Sprintf("at %d ", now)+fmt.Sprintf(format, args...))
		}
		switch op := r.IntN(12); {
		case op < 4:
			say("take %d", cost)
			check(l.Take(cost), m.Take(now, cost))
		case op < 5:
			say("peek %d", cost)
			check(l.Peek(cost), m.Peek(now, cost))
		case op < 7:
			within := anyWithin(r)
			say("reserve %d within %d", cost, within)
			got, ok := l.Reserve(cost, time.Duration(within))
			id, delay, want := m.Reserve(now, cost, within)
			check(got.Decision(), want)
			if ok != want.Allowed || got.Delay() != delay {
				fail("got delay %v, want %v", got.Delay(), delay)
			}
			opens = append(opens, open{got, id})
		case op < 9 && len(opens) > 0:
			i := r.IntN(len(opens))
			o := opens[i]
			if r.IntN(2) == 0 {
				say("cancel #%d", o.id)
				o.r.Cancel()
				m.Cancel(now, o.id)
			} else {
				actual := anyCost(r, size)
				say("settle #%d %d", o.id, actual)
				o.r.Settle(actual)
				m.Settle(now, o.id, actual)
			}
			if r.IntN(4) != 0 { // otherwise it may be settled again, which does nothing
				opens = append(opens[:i], opens[i+1:]...)
			}
		case op < 10 && now < endless:
			within := anyWithin(r)
			say("join %d within %d", cost, within)
			p, d := l.Join(cost, time.Duration(within))
			id, delay, want := m.Join(now, cost, within)
			check(d, want)
			switch {
			case p == nil && d.Allowed && delay != 0, p != nil && (!d.Allowed || p.Delay() != delay):
				fail("got place %v, want delay %v", p, delay)
			case p != nil:
				places = append(places, place{p, id})
			}
		case op < 11 && len(places) > 0:
			i := r.IntN(len(places))
			p := places[i]
			say("leave #%d", p.id)
			if got, want := p.p.Leave(), m.Leave(now, p.id); got != want {
				fail("got %v, want %v", got, want)
			}
			places = append(places[:i], places[i+1:]...)
		case op < 12 && r.IntN(8) == 0:
			limit = anyLimit(r)
			say("set %+v", limit)
			if err := l.SetLimit(limit); err != nil {
				fail("%v", err)
			}
			m.SetLimit(now, limit)
		}
		check(l.Peek(1), m.Peek(now, 1)) // this also serves waiters whose turn has come
		if got, want := weir.StateOf(l), m.State(); (got == nil) != (want == nil) || got != nil && got.Cmp(want) != 0 {
			fail("state %v, want %v", got, want)
		}
		for _, p := range places {
			waits := true
			select {
			case <-p.p.Ready():
				waits = false
			default:
			}
			if want := m.Waits(now, p.id); waits != want {
				fail("place #%d waits: got %v, want %v", p.id, waits, want)
			}
		}
	}
}

func join(lines []string) (s string) {
	for _, l := range lines[max(0, len(lines)-40):] {
		s += l + "\n"
	}
	return s
}

// anyRate draws common, fractional and extreme rates.
func anyRate(r *rand.Rand) weir.Rate {
	pers := []time.Duration{1, 7, time.Microsecond, 100 * time.Millisecond, time.Second, time.Minute, time.Hour, 24 * time.Hour, 999999937}
	ns := []int64{1, 2, 3, 6, 10, 100, 333, 12345, 999983, 999999937, 1e9}
	rate := weir.Rate{N: ns[r.IntN(len(ns))], Per: pers[r.IntN(len(pers))]}
	switch r.IntN(12) {
	case 0:
		rate.N = math.MaxInt64 - int64(r.IntN(3))
	case 1:
		rate.N = 1 + r.Int64N(1<<40)
	}
	return rate
}

func anyLimit(r *rand.Rand) weir.Limit {
	for {
		rate := anyRate(r)
		size := 1 + r.Int64N(12)
		if r.IntN(6) == 0 {
			size = 1 + r.Int64()>>r.IntN(63)
		}
		var l weir.Limit
		if r.IntN(2) == 0 {
			b := weir.TokenBucket{Rate: rate, Burst: size}
			if r.IntN(3) == 0 {
				b.Initial = []int64{-1, 0, 1, size, size / 2}[r.IntN(5)]
			}
			l = b
		} else {
			b := weir.LeakyBucket{Rate: rate, Queue: size - 1}
			switch r.IntN(3) {
			case 0:
				b.DelayAfter = b.Queue
			case 1:
				b.DelayAfter = r.Int64N(size)
			}
			l = b
		}
		if l.Validate() == nil {
			return l
		}
	}
}

func anyOrigin(r *rand.Rand) int64 {
	return []int64{0, 0, 0, 1, -5, 1_700_000_000_000_000_000, math.MinInt64, math.MaxInt64 - int64(time.Hour)}[r.IntN(8)]
}

// anyMove draws the next reading: mostly forward by a time that matters to the limit, sometimes
// back, and rarely any reading.
func anyMove(r *rand.Rand, now int64, l weir.Limit, anywhere bool) int64 {
	interval := float64(1)
	switch l := l.(type) {
	case weir.TokenBucket:
		interval = float64(l.Rate.Per) / float64(l.Rate.N)
	case weir.LeakyBucket:
		interval = float64(l.Rate.Per) / float64(l.Rate.N)
	}
	var d int64
	switch r.IntN(16) {
	case 0, 1, 2, 3, 4:
	case 5, 6, 7:
		d = int64(interval)
	case 8, 9, 10:
		d = int64(interval * r.Float64() * 2)
	case 11:
		d = int64(r.IntN(3))
	case 12:
		d = int64(interval * r.Float64() * 20)
	case 13:
		d = -int64(interval * r.Float64() * 5)
	case 14:
		d = -int64(r.IntN(3))
	case 15:
		if anywhere && r.IntN(20) == 0 {
			return int64(r.Uint64())
		}
	}
	next := now + d
	if d > 0 && next < now {
		return math.MaxInt64
	}
	if d < 0 && next > now {
		return math.MinInt64
	}
	return next
}

func anyCost(r *rand.Rand, size int64) int64 {
	switch r.IntN(20) {
	case 0:
		return 0
	case 1:
		return -1 - r.Int64N(1<<62)
	case 2:
		return size
	case 3:
		return size + min(1, math.MaxInt64-size)
	case 4:
		return r.Int64()
	}
	return 1 + r.Int64N(min(size, 5))
}

func anyWithin(r *rand.Rand) int64 {
	switch r.IntN(4) {
	case 0:
		return 0
	case 1:
		return r.Int64() >> r.IntN(63)
	}
	return -1
}
