package proof

import (
	"context"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"github.com/weirflow/weir"
	"github.com/weirflow/weir/keyed"
)

// TestRule1WaitersNeverOver: goroutines that Wait, some with a deadline and some that give up, on
// the real clock and timers of a bubble. The admissions are within the bound, every goroutine ends,
// in the order of arrival, and those that gave up were charged nothing.
func TestRule1WaitersNeverOver(t *testing.T) {
	type waiter struct {
		after, patience time.Duration
		cost            int64
	}
	for _, k := range kinds {
		for _, holder := range []string{"Limiter", "keyed"} {
			t.Run(k.name+"/"+holder, func(t *testing.T) {
				rapid.Check(t, func(rt *rapid.T) {
					l := k.small(rt, time.Duration(rapid.Int64Range(140, 1000).Draw(rt, "length"))*time.Millisecond)
					size := max(sizeOf(l), 1)
					waiters := rapid.SliceOfN(rapid.Custom(func(t *rapid.T) waiter {
						return waiter{
							after:    time.Duration(rapid.Int64Range(0, 500).Draw(t, "after")) * time.Millisecond,
							patience: time.Duration(rapid.Int64Range(1, 4000).Draw(t, "patience")) * time.Millisecond,
							cost:     rapid.Int64Range(1, size).Draw(t, "cost"),
						}
					}), 1, 12).Draw(rt, "waiters")
					h := history{tick: 1, versions: []version{{limit: l}}}
					var order []int
					synctest.Test(t, func(t *testing.T) {
						wait, limiter := waits(t, holder, l)
						var mu sync.Mutex
						var wg sync.WaitGroup
						for i, w := range waiters {
							synctest.Wait() // earlier goroutines are queued
							wg.Go(func() {
								ctx, cancel := context.WithCancel(t.Context())
								defer cancel()
								defer time.AfterFunc(w.patience, cancel).Stop()
								if wait(ctx, w.cost) != nil {
									return
								}
								mu.Lock()
								defer mu.Unlock()
								h.runs = append(h.runs, run{at: time.Now().UnixNano(), cost: w.cost, did: w.cost})
								order = append(order, i)
							})
							synctest.Wait()
							<-time.After(w.after)
						}
						wg.Wait()
						if n := limiter.Waiting(); n != 0 {
							t.Errorf("%d are still in line", n)
						}
					})
					if over := h.over(1); over != "" {
						rt.Fatalf("%+v, %+v: %s", l, waiters, over)
					}
					if !slices.IsSorted(order) {
						at := func(i int) int64 { return h.runs[i].at }
						for i := 1; i < len(order); i++ {
							if order[i] < order[i-1] && at(i) != at(i-1) { // at one instant, goroutines run in any order
								rt.Fatalf("%+v, %+v: left in the order %v", l, waiters, order)
							}
						}
					}
				})
			})
		}
	}
}

// waits opens a limiter and returns its Wait.
func waits(t *testing.T, holder string, l weir.Limit) (func(context.Context, int64) error, interface{ Waiting() int }) {
	if holder == "Limiter" {
		lim, err := weir.New(l)
		if err != nil {
			t.Fatal(err)
		}
		return lim.Wait, lim
	}
	k, err := keyed.New[string](l, keyed.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { k.Close() })
	return func(ctx context.Context, cost int64) error { return k.Wait(ctx, "a", cost) }, k
}
