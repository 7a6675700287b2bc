package keyed_test

import (
	"math/rand/v2"
	"runtime"
	"slices"
	"testing"
	"time"

	"github.com/weirflow/weir"
	"github.com/weirflow/weir/internal/raced"
	"github.com/weirflow/weir/internal/seeds"
	"github.com/weirflow/weir/keyed"
	"github.com/weirflow/weir/weirtest"
)

// heap returns how many bytes are in use.
func heap() int64 {
	var m runtime.MemStats
	runtime.GC()
	runtime.GC() // empties the pools
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

// TestReservationsOfManyKeysStayWithinMaxBytes: a client makes as many reservations for each of
// many keys as fit, at once and ahead, and ends none of them. The memory for them was not counted.
func TestReservationsOfManyKeysStayWithinMaxBytes(t *testing.T) {
	raced.Skip(t)
	const size = 1 << 20
	every := weir.PerHour(1)
	for _, l := range []weir.Limit{
		weir.TokenBucket{Rate: every, Burst: 300},
		weir.SmoothBursty{Rate: every},
		weir.IntervalBucket{Burst: 300, Refill: 1, Every: time.Hour},
		weir.WarmUp{Rate: every, Period: time.Hour},
		weir.NginxBucket{Rate: weir.PerMinute(1), Queue: 300},
		weir.All(weir.TokenBucket{Rate: every, Burst: 300}, weir.NginxBucket{Rate: weir.PerMinute(1), Queue: 300}),
	} {
		clock := new(weirtest.Clock)
		clock.Set(int64(time.Hour))
		before := heap()
		k, err := keyed.New[int](l, keyed.Options{MaxBytes: size, Clock: clock.Now, Timers: clock.AfterFunc})
		if err != nil {
			t.Fatal(err)
		}
		for i := range 40_000 { // states of other keys fill their own part
			clock.Set(clock.Now() + int64(time.Microsecond))
			k.Take(-1-i, 1)
		}
		states := heap() - before
		made := 0
		for key := range 110 {
			for range 60 {
				if _, ok := k.Reserve(key, 1, -1); ok {
					made++
				}
			}
		}
		took := heap() - before - states
		s := k.Stats()
		t.Logf("%T: %d keys take %.2f of MaxBytes; %d reservations, %d of them inexact, take %.2f", l, s.Keys, float64(states)/size, made, s.Inexact, float64(took)/size)
		if states+took > size || made < 1000 {
			t.Errorf("%T: %d reservations and the states of %d keys take %d bytes, where MaxBytes is %d", l, made, s.Keys, states+took, size)
		}
		// three quarters, and the table itself; the word of an IntervalBucket never fitted: each key had an entry, and took five times as much
		if states > size*4/5 {
			t.Errorf("%T: the states of other keys take %d bytes, where MaxBytes is %d", l, states, size)
		}
		if s.Inexact == 0 {
			t.Errorf("%T: the budget never ended: this test is about nothing", l)
		}
		if err := k.Close(); err != nil {
			t.Error(err)
		}
	}
}

// TestNothingIsGivenTwiceWithoutRoom: in a table with too little memory for its reservations, no
// key ever has more left than without refunds. A key has less left only if Stats counts a
// reservation that was not kept.
func TestNothingIsGivenTwiceWithoutRoom(t *testing.T) {
	type open struct {
		r    keyed.Reservation[int]
		cost int64
	}
	const burst, keys = 500, 4
	for seed := range uint64(20) {
		rnd := rand.New(rand.NewPCG(seeds.Seed(), seed))
		clock := new(weirtest.Clock)
		k, err := keyed.New[int](weir.TokenBucket{Rate: weir.PerHour(1), Burst: burst}, keyed.Options{MaxBytes: 64 << 10, Clock: clock.Now, Timers: clock.AfterFunc})
		if err != nil {
			t.Fatal(err)
		}
		var kept [keys]int64
		var all [keys][]open
		for range 3000 {
			key := rnd.IntN(keys)
			if n := len(all[key]); n > 0 && rnd.IntN(3) == 0 {
				i := rnd.IntN(n)
				o := all[key][i]
				all[key] = slices.Delete(all[key], i, i+1)
				actual := rnd.Int64N(o.cost + 1)
				o.r.Settle(actual)
				kept[key] -= o.cost - actual
			} else if cost := rnd.Int64N(3) + 1; rnd.IntN(3) == 0 {
				if k.Take(key, cost).Allowed {
					kept[key] += cost
				}
			} else if r, ok := k.Reserve(key, cost, 0); ok {
				kept[key] += cost
				all[key] = append(all[key], open{r, cost})
			}
			if left := k.Peek(key, 0).Remaining; left+kept[key] > burst {
				t.Fatalf("seed %d: %d remain and %d are kept, of %d", seed, left, kept[key], burst)
			}
		}
		missing := int64(0)
		for key := range keys {
			missing += burst - kept[key] - k.Peek(key, 0).Remaining
		}
		if s := k.Stats(); s.Inexact == 0 || missing > int64(s.Inexact) {
			t.Errorf("seed %d: %d are missing, %d counted as inexact", seed, missing, s.Inexact)
		}
		if err := k.Close(); err != nil {
			t.Error(err)
		}
	}
}

// TestStatesOfOneWord: with limits in the hundreds, the states of windows and steps did not fit
// into a word at present times, so each key had an entry of some 160 bytes.
func TestStatesOfOneWord(t *testing.T) {
	for _, l := range []weir.Limit{
		weir.IntervalBucket{Burst: 300, Refill: 1, Every: time.Minute},
		weir.FixedWindow{Limit: 300, Window: time.Hour},
		weir.SlidingCounter{Limit: 300, Window: time.Hour},
	} {
		clock := new(weirtest.Clock)
		clock.Set(int64(time.Hour))
		before := heap()
		k, err := keyed.New[int](l, keyed.Options{Clock: clock.Now, Timers: clock.AfterFunc})
		if err != nil {
			t.Fatal(err)
		}
		const keys = 20_000
		for i := range keys {
			k.Take(i, 1)
		}
		if each := (heap() - before) / keys; each > 30 {
			t.Errorf("%T: %d bytes for each key", l, each)
		}
		if err := k.Close(); err != nil {
			t.Error(err)
		}
	}
}
