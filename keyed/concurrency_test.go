package keyed_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirflow/weir"
	"github.com/weirflow/weir/keyed"
	"github.com/weirflow/weir/weirtest"
)

func newConcurrency[K comparable](t testing.TB, l weir.Concurrency, o keyed.Options) *keyed.Concurrency[K] {
	t.Helper()
	c, err := keyed.NewConcurrency[K](l, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

// calls that check nothing keep no key
func nothing[K comparable](t testing.TB, c *keyed.Concurrency[K]) {
	t.Helper()
	if s := c.Stats(); c.Len() != 0 || s.Keys+s.Waiting != 0 || s.Holding != 0 {
		t.Errorf("%d keys are kept: %+v", c.Len(), s)
	}
}

func TestConcurrencyOptions(t *testing.T) {
	for _, c := range []struct {
		l weir.Concurrency
		o keyed.Options
	}{
		{weir.Concurrency{}, keyed.Options{}},
		{weir.Concurrency{Limit: 1, Queue: -1}, keyed.Options{}},
		{weir.Concurrency{Limit: 1}, keyed.Options{MaxKeys: -1}},
		{weir.Concurrency{Limit: 1}, keyed.Options{MaxBytes: 1 << 30}},
	} {
		if l, err := keyed.NewConcurrency[int](c.l, c.o); err == nil || l != nil {
			t.Errorf("%+v was accepted", c)
		}
	}
	good := weir.Concurrency{Limit: 2}
	c := newConcurrency[int](t, good, keyed.Options{})
	if err := c.SetLimit(weir.Concurrency{}); err == nil || c.Limit() != good {
		t.Errorf("a wrong limit was set: %+v, %v", c.Limit(), err)
	}
}

func TestConcurrencyKeysHaveTheirOwnStates(t *testing.T) {
	c := newConcurrency[string](t, weir.Concurrency{Limit: 2}, keyed.Options{Name: "uploads"})
	a, d := c.TryEnter("a")
	if !d.Allowed || d.Remaining != 1 || d.By != "uploads" {
		t.Errorf("%+v", d)
	}
	more, err := c.Enter(t.Context(), "a")
	if err != nil {
		t.Fatal(err)
	}
	_, err = c.Enter(t.Context(), "a")
	var limited *weir.LimitedError
	if !errors.As(err, &limited) || limited.Decision.By != "uploads" || limited.Decision.RetryAfter != weir.Never {
		t.Errorf("a third: %v", err)
	}
	b, d := c.TryEnterCost("b", 2)
	if !d.Allowed || c.Len() != 2 || c.Holding("a") != 2 || c.Holding("b") != 2 || c.Holding("c") != 0 {
		t.Errorf("%+v, %d keys", d, c.Len())
	}
	copied := a
	copied.Done(weir.Dropped)
	a.Done(weir.OK) // the first wins
	if d := c.Peek("a", 1); !d.Allowed || c.Holding("a") != 1 {
		t.Errorf("%+v", d)
	}
	more.Done(weir.OK)
	b.Done(weir.Ignore)
	nothing(t, c)
	if got, want := c.Stats().Outcomes, (weir.Outcomes{OK: 1, Ignored: 1, Dropped: 1}); got != want {
		t.Errorf("%+v, want %+v", got, want)
	}

	// The states are used again: old holds do not act on new ones.
	for i := range 8 {
		c.TryEnterCost(fmt.Sprint(i), 2)
	}
	for _, old := range []keyed.Hold[string]{a, more, b} {
		if old.Done(weir.OK); old.Extend() || old.Fence() != 0 {
			t.Error("a hold that had ended is held")
		}
	}
	if s := c.Stats(); s.Holding != 16 || s.Keys != 8 {
		t.Errorf("a hold that had ended left once more: %+v", s)
	}
	var zero keyed.Hold[string]
	zero.Done(weir.OK)
	if zero.Fence() != 0 || zero.Extend() {
		t.Error("a zero hold holds something")
	}
}

func TestConcurrencyInvalidCallsKeepNothing(t *testing.T) {
	c := newConcurrency[any](t, weir.Concurrency{Limit: 5, Queue: 1, MaxHold: time.Hour}, keyed.Options{})
	for _, cost := range []int64{-1, math.MinInt64, 6, math.MaxInt64} {
		want := weir.ErrLimited
		if cost < 0 {
			want = weir.ErrCost
		}
		if _, err := c.EnterCost(t.Context(), "a", cost); !errors.Is(err, want) {
			t.Errorf("%d: %v", cost, err)
		}
		h, d := c.TryEnterCost("a", cost)
		if p := c.Peek("a", cost); d.Allowed || d.RetryAfter != weir.Never || h != (keyed.Hold[any]{}) || d.Remaining != 5 || p != d {
			t.Errorf("%d: %+v, %+v", cost, d, p)
		}
	}
	if h, err := c.EnterCost(t.Context(), "a", 0); err != nil || h != (keyed.Hold[any]{}) {
		t.Error(err)
	}
	if _, d := c.TryEnterCost("a", 0); !d.Allowed {
		t.Errorf("%+v", d)
	}
	gone, leave := context.WithCancel(t.Context())
	leave()
	if _, err := c.Enter(gone, "a"); err != context.Canceled {
		t.Error(err)
	}
	for _, key := range []any{math.NaN(), []int{1}, [1]any{func() {}}} {
		if _, err := c.Enter(t.Context(), key); !errors.Is(err, keyed.ErrKey) {
			t.Errorf("%T: %v", key, err)
		}
		if _, d := c.TryEnter(key); d.Allowed || d.RetryAfter != weir.Never || c.Peek(key, 1) != d {
			t.Errorf("%T: %+v", key, d)
		}
		if c.Holding(key) != 0 || c.Waiting(key) != 0 {
			t.Errorf("%T is kept", key)
		}
	}
	nothing(t, c)
}

// TestConcurrencyIsOneLimiterPerKey: one key among others does the same as a weir.ConcurrencyLimiter of its
// own, step by step, while its state is made and dropped.
func TestConcurrencyIsOneLimiterPerKey(t *testing.T) {
	for run := range uint64(60) {
		r := rand.New(rand.NewPCG(run, 3))
		clock, other := new(weirtest.Clock), new(weirtest.Clock)
		draw := func() weir.Concurrency {
			return weir.Concurrency{Limit: 1 + r.Int64N(30), Queue: r.Int64N(3), MaxHold: time.Duration(r.Int64N(3)) * sec}
		}
		l := draw()
		k := newConcurrency[int](t, l, keyed.Options{Name: "x", Clock: clock.Now, Timers: clock.AfterFunc})
		one, err := weir.NewConcurrency(l, weir.Named("x"), weir.WithClock(other.Now), weir.WithTimers(other.AfterFunc))
		if err != nil {
			t.Fatal(err)
		}
		type pair struct {
			a keyed.Hold[int]
			b weir.Hold
		}
		var pairs []pair
		for step := range 400 {
			pick := func() (p pair) {
				if len(pairs) > 0 {
					p = pairs[r.IntN(len(pairs))]
				}
				return p
			}
			switch r.IntN(9) {
			case 0, 1, 2:
				cost := r.Int64N(5)
				a, d := k.TryEnterCost(7, cost)
				b, want := one.TryEnterCost(cost)
				if d != want {
					t.Fatalf("run %d, step %d: %+v, want %+v", run, step, d, want)
				}
				pairs = append(pairs, pair{a, b})
			case 3, 4:
				p, o := pick(), weir.Outcome(r.IntN(3))
				p.a.Done(o)
				p.b.Done(o)
			case 5:
				if p := pick(); p.a.Extend() != p.b.Extend() {
					t.Fatalf("run %d, step %d: extended", run, step)
				}
			case 6:
				at := clock.Now() + r.Int64N(int64(sec))
				clock.Set(at)
				other.Set(at)
			case 7:
				h, _ := k.TryEnter(r.IntN(100) + 10)
				h.Done(weir.Ignore)
			case 8:
				if r.IntN(10) == 0 {
					l = draw()
					if err := errors.Join(k.SetLimit(l), one.SetLimit(l)); err != nil {
						t.Fatal(err)
					}
				}
			}
			cost := r.Int64N(5)
			if d, want := k.Peek(7, cost), one.Peek(cost); d != want || k.Holding(7) != one.Holding() || k.Limit() != l {
				t.Fatalf("run %d, step %d: %+v, want %+v", run, step, d, want)
			}
		}
		for _, p := range pairs {
			p.a.Done(weir.OK)
			p.b.Done(weir.OK)
		}
		nothing(t, k)
		got, want := k.Stats().Outcomes, one.Outcomes()
		if got.OK != want.OK || got.Dropped != want.Dropped || got.Expired != want.Expired {
			t.Errorf("run %d: %+v, want %+v", run, got, want)
		}
	}
}

// TestConcurrencyInOrder: for each key in the order of arrival; when a waiter leaves, the ones
// behind it move up.
func TestConcurrencyInOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newConcurrency[string](t, weir.Concurrency{Limit: 1, Queue: 4}, keyed.Options{})
		var mu sync.Mutex
		order := map[string][]int{}
		first := map[string]keyed.Hold[string]{}
		var leave context.CancelFunc
		for _, key := range []string{"a", "b"} {
			first[key], _ = c.TryEnter(key)
			for i := range 4 {
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				if key == "a" && i == 1 {
					leave = cancel
				}
				go func() {
					h, err := c.Enter(ctx, key)
					mu.Lock()
					if err != nil {
						i = -i
					}
					order[key] = append(order[key], i)
					mu.Unlock()
					h.Done(weir.OK)
				}()
				synctest.Wait()
			}
		}
		if _, err := c.Enter(t.Context(), "a"); !errors.Is(err, weir.ErrLimited) || errors.Is(err, keyed.ErrFull) {
			t.Errorf("the queue is full: %v", err)
		}
		if s := c.Stats(); c.Waiting("a") != 4 || c.Waiting("b") != 4 || s.Waiting != 8 || s.Holding != 2 {
			t.Errorf("%+v", s)
		}
		leave()
		synctest.Wait()
		first["a"].Done(weir.OK)
		synctest.Wait()
		if want := []int{-1, 0, 2, 3}; !slices.Equal(order["a"], want) || len(order["b"]) > 0 {
			t.Errorf("%v, want %v", order, want)
		}
		first["b"].Done(weir.OK)
		synctest.Wait()
		if want := []int{0, 1, 2, 3}; !slices.Equal(order["b"], want) {
			t.Errorf("%v, want %v", order, want)
		}
		nothing(t, c)
	})
}

// TestConcurrencyNeverOver: never more than Limit inside for a key, at any moment, while keys come
// and go, waits are given up, and the limit is changed to the same and to smaller ones.
func TestConcurrencyNeverOver(t *testing.T) {
	const workers, each, keys, limit = 16, 1500, 5, 3
	c := newConcurrency[int](t, weir.Concurrency{Limit: limit, Queue: 4}, keyed.Options{MaxKeys: keys})
	var inside [keys]atomic.Int64
	var entered, refused atomic.Int64
	var wg sync.WaitGroup
	for w := range uint64(workers) {
		wg.Go(func() {
			r := rand.New(rand.NewPCG(w, 9))
			for range each {
				key, cost := r.IntN(keys), 1+r.Int64N(limit)
				var h keyed.Hold[int]
				ok := false
				switch r.IntN(4) {
				case 0:
					var d weir.Decision
					h, d = c.TryEnterCost(key, cost)
					ok = d.Allowed
				case 1:
					ctx, cancel := context.WithCancel(t.Context())
					go cancel()
					var err error
					h, err = c.EnterCost(ctx, key, cost)
					ok = err == nil
				case 2:
					if w == 0 {
						c.SetLimit(weir.Concurrency{Limit: 1 + r.Int64N(limit), Queue: 4})
					}
					c.Stats()
					c.Holding(key)
					continue
				default:
					var err error
					h, err = c.EnterCost(t.Context(), key, cost)
					ok = err == nil
				}
				if !ok {
					refused.Add(1)
					continue
				}
				if n := inside[key].Add(cost); n > limit {
					t.Errorf("%d inside", n)
				}
				if entered.Add(1)%3 == 0 {
					runtime.Gosched()
				}
				inside[key].Add(-cost)
				h.Done(weir.OK)
				if r.IntN(8) == 0 {
					h.Done(weir.Dropped)
				}
			}
		})
	}
	wg.Wait()
	nothing(t, c)
	if got := c.Stats().Outcomes; got != (weir.Outcomes{OK: uint64(entered.Load())}) {
		t.Errorf("%+v, %d entered", got, entered.Load())
	}
	if c.Stats().Refused != 0 {
		t.Error("refused below the ceiling")
	}
	if entered.Load() == 0 || refused.Load() == 0 {
		t.Errorf("%d entered, %d were refused", entered.Load(), refused.Load())
	}
}

func TestConcurrencyCeiling(t *testing.T) {
	clock := new(weirtest.Clock)
	c := newConcurrency[int](t, weir.Concurrency{Limit: 2, Queue: 1, MaxHold: 10 * sec},
		keyed.Options{MaxKeys: 2, Name: "x", Clock: clock.Now, Timers: clock.AfterFunc})
	c.Close() // without the janitor, so that nothing happens by itself
	one, _ := c.TryEnter(1)
	clock.Set(int64(5 * sec))
	c.TryEnter(2)
	if _, err := c.Enter(t.Context(), 3); err != keyed.ErrFull || !errors.Is(err, weir.ErrLimited) {
		t.Errorf("%v", err)
	}
	want := weir.Decision{Limit: 2, RetryAfter: weir.Never, By: "x"}
	if _, d := c.TryEnter(3); d != want || c.Peek(3, 1) != want {
		t.Errorf("%+v, %+v", d, c.Peek(3, 1))
	}
	if d := c.Peek(3, 3); d.Allowed || d.Remaining != 2 {
		t.Errorf("what never fits needs no room: %+v", d)
	}
	if _, d := c.TryEnter(1); !d.Allowed {
		t.Errorf("a key that is there: %+v", d)
	}
	if s := c.Stats(); s.Refused != 2 || s.Keys != 2 {
		t.Errorf("%+v", s)
	}
	one.Done(weir.OK)
	clock.Set(int64(15 * sec)) // all have expired, and no caller came
	three, d := c.TryEnter(3)
	if !d.Allowed || c.Len() != 1 {
		t.Errorf("%+v: %d keys", d, c.Len())
	}
	if err := c.Do(t.Context(), 4, func(context.Context) error { return nil }); err != nil {
		t.Errorf("room was left: %v", err)
	}
	three.Done(weir.OK)
	nothing(t, c)
	if got, want := c.Stats().Outcomes, (weir.Outcomes{OK: 3, Expired: 2}); got != want {
		t.Errorf("%+v, want %+v", got, want)
	}
}
