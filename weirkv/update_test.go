package weirkv

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirflow/weir"
	"github.com/weirflow/weir/internal/raced"
	"github.com/weirflow/weir/internal/seeds"
	"github.com/weirflow/weir/weirtest"
)

// updating is a KV that is an Updater, and loses some replies.
type updating struct {
	Memory
	mu     sync.Mutex
	random *rand.Rand    // nil: it loses none
	before time.Duration // how long a write waits for others
}

func (k *updating) Update(ctx context.Context, key string, next func(Item) ([]byte, time.Duration, bool)) (uint64, error) {
	if k.before > 0 {
		<-time.After(k.before)
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	draw := 9
	if k.random != nil {
		draw = k.random.IntN(10)
	}
	item, err := k.Get(ctx, key)
	if err != nil || draw == 0 {
		return 0, errLost
	}
	value, ttl, write := next(item)
	if !write {
		return item.Revision, nil
	}
	if draw == 1 {
		return 0, errLost
	}
	revision, _, err := k.CompareAndSwap(ctx, key, item.Revision, value, ttl)
	if draw == 2 {
		return 0, errLost
	}
	return revision, err
}

// TestUpdateConforms: with an Updater, the store is the reference model, too.
func TestUpdateConforms(t *testing.T) {
	raced.Skip(t)
	weirtest.Conform(t, weirtest.Subject{Seed: seeds.Seed(), Walks: 10, Tick: unit, Limits: weirtest.StoredLimits(), Open: func(l weir.Limit, c *weirtest.Clock) (weirtest.Taker, error) {
		s, err := New(new(updating), exact(c.Now))
		if err != nil {
			return nil, err
		}
		return weirtest.Stored(s, l), nil
	}})
}

// TestUpdate: nodes that write one key by an Updater never write it twice for one decision, whatever the
// others wrote meanwhile; where replies are lost, each charge that has a decision was made once.
func TestUpdate(t *testing.T) {
	for _, lossy := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			kv := &updating{before: time.Millisecond}
			if lossy {
				kv.random = seeds.Of("lost replies of an updater")
			}
			const burst = 100_000
			var admitted atomic.Int64
			var wg sync.WaitGroup
			var all []*Store
			for range 4 {
				s := open(t, kv, Options{Timeout: time.Hour})
				all = append(all, s)
				for range 8 {
					wg.Go(func() {
						for range 50 {
							if _, d := do(t, s, weir.Charge{Limit: perHour(burst), Cost: 1}); d.Allowed {
								admitted.Add(1)
							}
						}
					})
				}
			}
			wg.Wait()
			_, d := do(t, open(t, kv, Options{}), weir.Charge{Limit: perHour(burst), Op: weir.OpPeek})
			if n := admitted.Load(); n != 4*8*50 || burst-d.Remaining != n {
				t.Errorf("%d were admitted, %d were charged, want %d", n, burst-d.Remaining, 4*8*50)
			}
			tried, conflicts := uint64(0), uint64(0)
			for _, s := range all {
				n, lost := s.Writes()
				tried, conflicts = tried+n, conflicts+lost
			}
			if !lossy && (tried != kv.revision || conflicts == 0) {
				t.Errorf("%d tries and %d conflicts for %d writes", tried, conflicts, kv.revision)
			}
		})
	}
}

// TestUpdateLeft: a caller that leaves while the driver waits for its turn is charged nothing.
func TestUpdateLeft(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		kv := &updating{before: 100 * time.Millisecond}
		s := open(t, kv, Options{Timeout: time.Hour})
		var wg sync.WaitGroup
		for i := range 3 {
			wg.Go(func() {
				ctx, cancel := context.WithTimeout(t.Context(), time.Duration(i+1)*30*time.Millisecond)
				defer cancel()
				batch := []weir.Charge{{Name: "limit", Key: "k", Limit: perHour(10), Cost: 1}}
				if err := s.Do(ctx, batch, make([]weir.Decision, 1)); err == nil {
					t.Error("a call took no time")
				}
			})
		}
		wg.Wait()
		if _, d := do(t, s, weir.Charge{Limit: perHour(10), Cost: 1}); d.Remaining != 9 {
			t.Errorf("%+v after callers that left", d)
		}
	})
}

// TestUpdateManyOnce: settlements that may be repeated count once, also where another node's write comes
// between, and where they have to move to keys of their own.
func TestUpdateManyOnce(t *testing.T) {
	kv := new(updating)
	a, b := open(t, kv, Options{fewOnce: true}), open(t, kv, Options{fewOnce: true})
	limit := weir.FixedWindow{Limit: 1000, Window: 1000 * time.Hour, Align: weir.AlignFirst}
	for range 2 {
		for i := range 60 {
			c := weir.Charge{Limit: limit, Op: weir.OpSettle, Cost: 1, Once: fmt.Sprint(i), OnceFor: time.Hour}
			do(t, []*Store{a, b}[i%2], c)
			do(t, []*Store{b, a}[i%2], c)
		}
	}
	if _, d := do(t, a, weir.Charge{Limit: limit, Op: weir.OpPeek}); d.Remaining != 1000-60 {
		t.Errorf("%+v", d)
	}
}
