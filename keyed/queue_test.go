package keyed_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirflow/weir"
	"github.com/weirflow/weir/internal/raced"
	"github.com/weirflow/weir/keyed"
	"github.com/weirflow/weir/weirtest"
)

func TestWaitPerKey(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k, err := keyed.New[string](weir.TokenBucket{Rate: weir.PerSecond(10), Burst: 1}, keyed.Options{MaxKeys: 3})
		if err != nil {
			t.Fatal(err)
		}
		defer k.Close()
		start := time.Now()
		var wg sync.WaitGroup
		for _, key := range []string{"a", "b"} {
			for i := range 3 {
				wg.Go(func() {
					if err := k.Wait(t.Context(), key, 1); err != nil {
						t.Error(err)
					}
					if after := time.Since(start); after != time.Duration(i)*100*ms {
						t.Errorf("%s number %d after %v", key, i, after)
					}
				})
				synctest.Wait()
			}
		}
		if k.Waiting() != 4 || k.Allow("a") {
			t.Errorf("%d wait", k.Waiting())
		}
		for i := range 20 { // keys with waiters are never evicted
			k.Take(fmt.Sprint(i), 1)
		}
		if k.Waiting() != 4 {
			t.Errorf("%d wait", k.Waiting())
		}
		ctx, cancel := context.WithTimeout(t.Context(), 50*ms)
		defer cancel()
		if err := k.Wait(ctx, "a", 1); !errors.Is(err, context.DeadlineExceeded) || !errors.Is(err, weir.ErrLimited) {
			t.Errorf("%v", err)
		}
		if err := k.Wait(ctx, "a", -1); !errors.Is(err, weir.ErrCost) {
			t.Errorf("%v", err)
		}
		if err := k.Wait(ctx, "a", 0); err != nil {
			t.Errorf("%v", err)
		}
		wg.Wait()
		place, _ := k.Join("a", 1, -1)
		if place == nil || place.Delay() != 100*ms || !place.Leave() {
			t.Error("no place")
		}
	})
}

// TestEachKeyIsTheModel: random calls on a few keys of a table with room, each compared with a
// model of its own.
func TestEachKeyIsTheModel(t *testing.T) {
	raced.Skip(t)
	for seed := range uint64(60) {
		r := rand.New(rand.NewPCG(seed, 3))
		limit := weir.Limit(weir.TokenBucket{Rate: weir.Rate{N: 1 + r.Int64N(50), Per: sec}, Burst: 1 + r.Int64N(6)})
		if seed%2 == 0 {
			limit = weir.LeakyBucket{Rate: weir.Rate{N: 1 + r.Int64N(50), Per: sec}, Queue: 2, DelayAfter: r.Int64N(3)}
		}
		k, c := onClock[int](t, limit, keyed.Options{MaxKeys: 8})
		models := map[int]*weirtest.Model{}
		type open struct {
			r   keyed.Reservation[int]
			key int
			id  int
		}
		var opens []open
		for range 400 {
			c.Set(c.Now() + r.Int64N(int64(200*ms))) // never back: a full key may have been evicted
			key := r.IntN(6)
			cost, now := r.Int64N(4), c.Now()
			if models[key] == nil {
				models[key] = weirtest.NewModel(limit, 1)
			}
			m := models[key]
			var got, want weir.Decision
			switch r.IntN(5) {
			case 0, 1:
				got, want = k.Take(key, cost), m.Take(now, cost)
			case 2:
				got, want = k.Peek(key, cost), m.Peek(now, cost)
			case 3:
				res, _ := k.Reserve(key, cost, -1)
				var id int
				id, _, want = m.Reserve(now, cost, -1)
				got = res.Decision()
				opens = append(opens, open{res, key, id})
			case 4:
				if len(opens) == 0 {
					continue
				}
				o := opens[r.IntN(len(opens))]
				o.r.Settle(cost)
				models[o.key].Settle(now, o.id, cost)
				got, want = k.Peek(o.key, 1), models[o.key].Peek(now, 1)
			}
			if got != want {
				t.Fatalf("seed %d, %+v, key %d at %d:\ngot  %+v\nwant %+v", seed, limit, key, now, got, want)
			}
		}
	}
}

// TestManyGoroutinesManyKeys makes all kinds of calls concurrently, for the race detector, and
// compares each key with its bound.
func TestManyGoroutinesManyKeys(t *testing.T) {
	k, err := keyed.New[int](weir.TokenBucket{Rate: weir.PerSecond(1000), Burst: 20}, keyed.Options{MaxKeys: 200})
	if err != nil {
		t.Fatal(err)
	}
	defer k.Close()
	const keys = 40
	var admitted [keys]atomic.Int64
	start := time.Now()
	var wg sync.WaitGroup
	for g := range 8 {
		wg.Go(func() {
			r := rand.New(rand.NewPCG(uint64(g), 1))
			for range 5000 {
				key := r.IntN(keys)
				switch r.IntN(8) {
				case 0:
					ctx, cancel := context.WithTimeout(t.Context(), time.Duration(r.IntN(3))*ms)
					if k.Wait(ctx, key, 1) == nil {
						admitted[key].Add(1)
					}
					cancel()
				case 1:
					if res, ok := k.Reserve(key, 2, 0); ok {
						admitted[key].Add(2)
						if r.IntN(2) == 0 {
							res.Settle(2)
						}
					}
				case 2:
					k.Peek(key, 1)
				case 3:
					k.Stats()
				default:
					if k.Allow(key) {
						admitted[key].Add(1)
					}
				}
			}
		})
	}
	wg.Wait()
	bound := 20 + int64(1000*(time.Since(start)+10*ms).Seconds()) // docs/guarantees.md says how late a queue may be
	for key := range admitted {
		if n := admitted[key].Load(); n > bound {
			t.Errorf("key %d: %d admitted, at most %d are within the limit", key, n, bound)
		}
	}
}
