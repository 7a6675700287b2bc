package keyed_test

import (
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/weirflow/weir"
	"github.com/weirflow/weir/keyed"
	"github.com/weirflow/weir/weirtest"
)

// TestNoChargeIsLostWhileTheTableGrows: goroutines take from the same keys, many of them new, while
// the table grows, is iterated over and swept, and its limit changes back and forth. Each key
// admits exactly its burst.
func TestNoChargeIsLostWhileTheTableGrows(t *testing.T) {
	for name, limits := range map[string][2]weir.Limit{
		"a word":       {weir.TokenBucket{Rate: weir.PerDay(1), Burst: 3}, weir.TokenBucket{Rate: weir.PerDay(2), Burst: 3}},
		"words":        {weir.All(weir.TokenBucket{Rate: weir.PerDay(1), Burst: 3}), weir.All(weir.TokenBucket{Rate: weir.PerDay(2), Burst: 3})},
		"no fixed one": {weir.SlidingLog{Limit: 3, Window: time.Hour}, weir.SlidingLog{Limit: 3, Window: 2 * time.Hour}},
	} {
		t.Run(name, func(t *testing.T) {
			c := new(weirtest.Clock)
			k, err := keyed.New[int](limits[0], keyed.Options{MaxKeys: 1 << 20, Clock: c.Now, Timers: c.AfterFunc})
			if err != nil {
				t.Fatal(err)
			}
			defer k.Close()
			const keys, callers = 4_000, 4
			var admitted atomic.Int64
			var wg sync.WaitGroup
			for g := range callers {
				wg.Go(func() {
					random := rand.New(rand.NewPCG(uint64(g), 1))
					for i := range keys {
						for _, key := range []int{i, random.IntN(i + 1), keys - 1 - i} {
							switch random.IntN(10) {
							case 0:
								if r, ok := k.Reserve(key, 1, 0); ok {
									admitted.Add(1)
									r.Settle(1) // a Cancel may have to give back less, because others reserve and cancel meanwhile
								}
							case 1:
								if n, _ := k.TakeAtMost(key, 2); n > 0 {
									admitted.Add(n)
								}
							default:
								if k.Take(key, 1).Allowed {
									admitted.Add(1)
								}
							}
						}
					}
				})
			}
			done := make(chan struct{})
			var beside sync.WaitGroup
			beside.Go(func() {
				for i := range 100 {
					select {
					case <-done:
						return
					default:
					}
					if err := k.SetLimit(limits[i%2]); err != nil {
						t.Error(err)
					}
					n := 0
					for range k.All() {
						n++
					}
					k.Stats()
				}
			})
			wg.Wait()
			close(done)
			beside.Wait()
			for key := range keys { // what each key has left
				for k.Take(key, 1).Allowed {
					admitted.Add(1)
				}
			}
			if got := admitted.Load(); got != 3*keys || k.Len() != keys {
				t.Errorf("%d of %d admitted, %d of %d keys", got, 3*keys, k.Len(), keys)
			}
		})
	}
}

// TestAFullTableUnderLoad: new and old keys in a full table, on all cores. There are never more
// keys than MaxKeys, and the most restricted keys stay limited throughout.
func TestAFullTableUnderLoad(t *testing.T) {
	var now atomic.Int64
	clock := func() int64 { return now.Add(1000) }
	const ceiling, known = 2000, 50
	k, err := keyed.New[int](weir.TokenBucket{Rate: weir.PerMinute(1), Burst: 5}, keyed.Options{MaxKeys: ceiling, Clock: clock})
	if err != nil {
		t.Fatal(err)
	}
	defer k.Close()
	for key := range known {
		k.Take(-key, 5)
	}
	var wg sync.WaitGroup
	var next, over atomic.Int64
	for range 4 {
		wg.Go(func() {
			for range 5_000 {
				i := int(next.Add(1))
				k.Take(i, 1)
				if k.Take(-(i % known), 5).Allowed {
					over.Add(1)
				}
				if i%1000 == 0 && k.Len() > ceiling {
					t.Errorf("%d keys", k.Len())
				}
			}
		})
	}
	wg.Wait()
	s := k.Stats()
	if over.Load() != 0 || s.Keys > ceiling || s.Refused != 0 || s.EvictedFull < 15_000 {
		t.Errorf("%d of the known were admitted again; %+v", over.Load(), s)
	}
}
