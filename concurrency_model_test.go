package weir_test

import (
	"context"
	"errors"
	"math"
	"math/rand/v2"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirflow/weir"
	"github.com/weirflow/weir/weirtest"
)

// TestNeverTooManyAtOnce: whatever the schedule and the changes of the limit, the costs inside
// never exceed the largest limit that was in force. In the end every place is free, and every hold
// was counted once.
func TestNeverTooManyAtOnce(t *testing.T) {
	const most, each = 30, 2000 // more goroutines than slots
	for _, maxHold := range []time.Duration{0, time.Hour} {
		l := newConcurrency(t, weir.Concurrency{Limit: most, Queue: 100, MaxHold: maxHold})
		var inside, done atomic.Int64
		work := func(h weir.Hold, cost int64, r *rand.Rand) {
			if n := inside.Add(cost); n > most {
				t.Errorf("%d are inside", n)
			}
			if r.IntN(4) == 0 {
				runtime.Gosched()
			}
			inside.Add(-cost)
			for range 1 + r.IntN(2) {
				h.Done(weir.Outcome(r.IntN(3)))
			}
			done.Add(1)
		}
		var wg sync.WaitGroup
		for g := range 40 {
			wg.Go(func() {
				r := rand.New(rand.NewPCG(uint64(g), 1))
				for range each / 10 {
					cost := 1 + r.Int64N(3)
					switch r.IntN(3) {
					case 0:
						if h, d := l.TryEnterCost(cost); d.Allowed {
							work(h, cost, r)
						}
					case 1:
						if h, err := l.EnterCost(t.Context(), cost); err == nil {
							work(h, cost, r)
						}
					case 2:
						ctx, cancel := context.WithTimeout(t.Context(), time.Duration(r.IntN(50))*time.Microsecond)
						if h, err := l.EnterCost(ctx, cost); err == nil {
							work(h, cost, r)
						}
						cancel()
					}
				}
			})
		}
		wg.Go(func() {
			for i := range each {
				if err := l.SetLimit(weir.Concurrency{Limit: most - int64(i%27), Queue: 100, MaxHold: maxHold}); err != nil {
					t.Error(err)
				}
				runtime.Gosched()
			}
			if err := l.SetLimit(weir.Concurrency{Limit: most, Queue: 100, MaxHold: maxHold}); err != nil {
				t.Error(err)
			}
		})
		wg.Wait()
		o := l.Outcomes()
		if d := l.Peek(most); !d.Allowed || l.Holding() != 0 || l.Waiting() != 0 {
			t.Errorf("%+v, %d held, %d wait", d, l.Holding(), l.Waiting())
		}
		if n := o.OK + o.Ignored + o.Dropped; n != uint64(done.Load()) || o.OK == 0 || o.Ignored == 0 || o.Dropped == 0 || o.Expired != 0 {
			t.Errorf("%+v of %d", o, done.Load())
		}
	}
}

func TestFirstDoneWinsOnAllCores(t *testing.T) {
	l := newConcurrency(t, weir.Concurrency{Limit: 25})
	var holds []weir.Hold
	for range 24 {
		h, _ := l.TryEnter()
		holds = append(holds, h)
	}
	for i := range 500 {
		h := holds[i%len(holds)]
		var wg sync.WaitGroup
		for j := range 4 {
			wg.Go(func() { h.Done(weir.Outcome(j % 3)) })
		}
		wg.Wait()
		if n := l.Holding(); n != 23 {
			t.Fatalf("%d are held", n)
		}
		holds[i%len(holds)], _ = l.TryEnter()
	}
}

// TestConcurrencyIsItsModel makes the same random calls on a limiter and on a list of holds, on a
// virtual clock.
func TestConcurrencyIsItsModel(t *testing.T) {
	for seed := range uint64(300) {
		walkConcurrency(t, seed)
	}
}

func walkConcurrency(t *testing.T, seed uint64) {
	r := rand.New(rand.NewPCG(seed, 2))
	var c weirtest.Clock
	numbers := weir.Concurrency{Limit: 1 + r.Int64N(30), MaxHold: time.Duration(r.IntN(2)) * sec}
	l := newConcurrency(t, numbers, weir.WithClock(c.Now), weir.WithTimers(c.AfterFunc))
	type hold struct {
		h            weir.Hold
		cost, expiry int64
		over         bool
	}
	var holds []*hold
	at := func() (in int64) { // the costs that are held, after expired holds are removed
		for _, h := range holds {
			if h.expiry <= c.Now() {
				h.over = true
			}
			if !h.over {
				in += h.cost
			}
		}
		return in
	}
	expiry := func() int64 {
		if numbers.MaxHold == 0 {
			return math.MaxInt64
		}
		return c.Now() + int64(numbers.MaxHold)
	}
	for range 200 {
		if r.IntN(3) == 0 {
			c.Set(c.Now() + r.Int64N(int64(sec/2)))
		}
		in, cost := at(), 1+r.Int64N(4)
		switch r.IntN(4) {
		case 0, 1:
			h, d := l.TryEnterCost(cost)
			if want := in+cost <= numbers.Limit; d.Allowed != want {
				t.Fatalf("seed %d: %d beside %d of %+v: %+v", seed, cost, in, numbers, d)
			}
			if d.Allowed {
				holds = append(holds, &hold{h: h, cost: cost, expiry: expiry()})
			} else if d.RetryAfter != weir.Never && r.IntN(4) == 0 {
				c.Set(c.Now() + int64(d.RetryAfter))
				if d := l.Peek(cost); !d.Allowed {
					t.Fatalf("seed %d: after RetryAfter: %+v", seed, d)
				}
			}
		case 2:
			if len(holds) > 0 {
				h := holds[r.IntN(len(holds))]
				h.h.Done(weir.OK)
				h.over = true
			}
		case 3:
			if len(holds) > 0 {
				h := holds[r.IntN(len(holds))]
				if got := h.h.Extend(); got == h.over {
					t.Fatalf("seed %d: extended: %v", seed, got)
				}
				if !h.over {
					h.expiry = max(h.expiry, expiry())
				}
			}
		}
		if got, want := l.Holding(), at(); got != want {
			t.Fatalf("seed %d: %d are held, want %d", seed, got, want)
		}
	}
}

// TestRetryAfterBehindOthers: while waiters come and leave on a virtual clock, a TryEnter after
// RetryAfter is always admitted.
func TestRetryAfterBehindOthers(t *testing.T) {
	for seed := range uint64(60) {
		synctest.Test(t, func(t *testing.T) {
			r := rand.New(rand.NewPCG(seed, 3))
			limit := 1 + r.Int64N(8)
			l := newConcurrency(t, weir.Concurrency{Limit: limit, Queue: 20, MaxHold: sec})
			for range 1 + r.IntN(15) {
				cost := 1 + r.Int64N(limit)
				go func() {
					if _, err := l.EnterCost(t.Context(), cost); err != nil && !errors.Is(err, context.Canceled) {
						t.Error(err)
					}
				}()
				synctest.Wait()
				<-time.After(time.Duration(r.IntN(300)) * ms)
			}
			cost := 1 + r.Int64N(limit)
			d := l.Peek(cost)
			if d.Allowed {
				return
			}
			if d.RetryAfter <= 0 {
				t.Fatalf("%+v", d)
			}
			<-time.After(d.RetryAfter)
			synctest.Wait()
			if again := l.Peek(cost); !again.Allowed {
				t.Errorf("seed %d: %d of %d: %+v and then %+v", seed, cost, limit, d, again)
			}
		})
	}
}

// TestNeverBehindHoldsWithoutEnd: with waiters ahead and no MaxHold, RetryAfter is Never, because they may
// hold their places forever.
func TestNeverBehindHoldsWithoutEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newConcurrency(t, weir.Concurrency{Limit: 2, Queue: 2, MaxHold: sec})
		l.TryEnterCost(2)
		if err := l.SetLimit(weir.Concurrency{Limit: 2, Queue: 2}); err != nil {
			t.Fatal(err)
		}
		var wg sync.WaitGroup
		wg.Go(func() {
			if _, err := l.EnterCost(t.Context(), 2); err != nil {
				t.Error(err)
			}
		})
		synctest.Wait()
		if _, d := l.TryEnter(); d.Allowed || d.RetryAfter != weir.Never {
			t.Errorf("%+v", d)
		}
		wg.Wait()
		if l.Holding() != 2 {
			t.Errorf("%d are held", l.Holding())
		}
	})
}
