package keyed_test

import (
	"math"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/weirflow/weir"
	"github.com/weirflow/weir/internal/seeds"
	"github.com/weirflow/weir/keyed"
)

// TestTakeEachIsTakeInTurn: a batch decides as the same calls do one after the other, for each kind of
// state and for each way to treat a full table: keys that are there twice, new, idle, evicted, invalid, with
// a limit of their own, and with a reservation.
func TestTakeEachIsTakeInTurn(t *testing.T) {
	limits := []weir.Limit{
		weir.TokenBucket{Rate: weir.PerSecond(3), Burst: 5},
		weir.FixedWindow{Limit: 4, Window: time.Second},
		weir.SlidingWindow{Limit: 6, Window: time.Second, Slots: 4},
		weir.SlidingLog{Limit: 3, Window: time.Second},
		weir.SmoothBursty{Rate: weir.PerSecond(5)},
	}
	for _, limit := range limits {
		for _, full := range []keyed.Full{keyed.Evict, keyed.Refuse, keyed.Share} {
			rng := seeds.Of(t.Name())
			now := int64(0)
			options := keyed.Options{Clock: func() int64 { return now }, WallClock: func() int64 { return now }, Timers: neverFires, MaxKeys: 40, Full: full, Top: 10}
			if full == keyed.Evict {
				options.MaxKeys = 100 // which key is evicted depends on the seed of the hashes
			}
			one, each := newTable(t, limit, options), newTable(t, limit, options)
			for range 300 {
				now += rng.Int64N(int64(300 * time.Millisecond))
				keys := make([]any, rng.IntN(60))
				for i := range keys {
					switch keys[i] = "k" + strconv.Itoa(rng.IntN(60)); rng.IntN(30) {
					case 0:
						keys[i] = math.NaN()
					case 1:
						keys[i] = []int{1}
					}
				}
				if rng.IntN(10) == 0 {
					for _, k := range []*keyed.Limiter[any]{one, each} {
						_ = k.Override("k1", keyed.Override{Limit: weir.TokenBucket{Rate: weir.PerSecond(1), Burst: 1}, For: time.Second}) // both tables have room, or none
						k.Reserve("k2", 1, time.Second)
					}
				}
				cost := rng.Int64N(4) - 1
				got, want := make([]weir.Decision, len(keys)), make([]weir.Decision, len(keys))
				each.TakeEach(keys, cost, got)
				for i, key := range keys {
					want[i] = one.Take(key, cost)
				}
				for i := range keys {
					if got[i] != want[i] {
						t.Fatalf("%v, %v: cost %d, key %d of %v:\n%+v, want\n%+v", limit, full, cost, i, keys, got[i], want[i])
					}
				}
			}
			if a, b := one.Stats(), each.Stats(); a.Refused != b.Refused || a.Shared != b.Shared {
				t.Errorf("%v, %v: %+v, want %+v", limit, full, b, a)
			}
		}
	}
}

func newTable(t *testing.T, limit weir.Limit, o keyed.Options) *keyed.Limiter[any] {
	t.Helper()
	k, err := keyed.New[any](limit, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { k.Close() })
	return k
}

// TestTakeEachBesideGrowth: batches, single calls and changes of the limit from several goroutines admit as
// much as the limit, also while the table grows.
func TestTakeEachBesideGrowth(t *testing.T) {
	const burst, count = 7, 3000
	windows := []weir.Limit{weir.FixedWindow{Limit: burst, Window: 24 * time.Hour}, weir.FixedWindow{Limit: burst, Window: 24 * time.Hour, Align: "first"}}
	now := time.Hour.Nanoseconds() // no window ends
	k, err := keyed.New[int](windows[0], keyed.Options{Clock: func() int64 { return now }, WallClock: func() int64 { return now }, Timers: neverFires})
	if err != nil {
		t.Fatal(err)
	}
	defer k.Close()
	var admitted atomic.Int64
	var callers sync.WaitGroup
	for g := range 4 {
		rng := seeds.Of(t.Name() + strconv.Itoa(g))
		callers.Go(func() {
			order := rng.Perm(count)
			for range 5 {
				for len(order) > 0 {
					keys := order[:min(len(order), 1+rng.IntN(100))]
					order = order[len(keys):]
					out := make([]weir.Decision, len(keys))
					k.TakeEach(keys, 1, out)
					for _, d := range out {
						if d.Allowed {
							admitted.Add(1)
						}
					}
				}
				order = rng.Perm(count)
			}
		})
	}
	callers.Go(func() {
		for i := range 20 {
			if err := k.SetLimit(windows[(i+1)%2]); err != nil {
				t.Error(err)
			}
		}
	})
	callers.Wait()
	if n := admitted.Load(); n != burst*count {
		t.Errorf("%d are admitted, want %d", n, burst*count)
	}
}

// TestTakeEachAllocatesNothing holds the documentation to its word, and to a panic for slices that do not
// fit together.
func TestTakeEachAllocatesNothing(t *testing.T) {
	k, err := keyed.New[string](weir.TokenBucket{Rate: weir.PerSecond(1), Burst: 1}, keyed.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer k.Close()
	keys := make([]string, 50)
	for i := range keys {
		keys[i] = strconv.Itoa(i)
	}
	out := make([]weir.Decision, len(keys))
	k.TakeEach(keys, 1, out)
	if n := testing.AllocsPerRun(100, func() { k.TakeEach(keys, 1, out) }); n > 0 {
		t.Errorf("%v allocations", n)
	}
	defer func() {
		if recover() == nil {
			t.Error("out is too short, and nobody says so")
		}
	}()
	k.TakeEach(keys, 1, out[1:])
}
