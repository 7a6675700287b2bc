package weir_test

import (
	"context"
	"errors"
	"math"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirflow/weir"
	"github.com/weirflow/weir/weirtest"
)

func newConcurrency(t testing.TB, l weir.Concurrency, opts ...weir.Option) *weir.ConcurrencyLimiter {
	t.Helper()
	c, err := weir.NewConcurrency(l, opts...)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// held returns a limiter on a virtual clock, with all of its places taken.
func held(t testing.TB, l weir.Concurrency, c *weirtest.Clock) (*weir.ConcurrencyLimiter, []weir.Hold) {
	t.Helper()
	lim := newConcurrency(t, l, weir.WithClock(c.Now), weir.WithTimers(c.AfterFunc))
	var holds []weir.Hold
	for range l.Limit {
		h, d := lim.TryEnter()
		if !d.Allowed {
			t.Fatalf("%+v", d)
		}
		holds = append(holds, h)
	}
	return lim, holds
}

func TestConcurrencyParameters(t *testing.T) {
	for _, c := range []struct {
		l    weir.Concurrency
		want string
	}{
		{weir.Concurrency{}, "Concurrency.Limit: 0 lets nothing pass"},
		{weir.Concurrency{Limit: -1}, "Concurrency.Limit"},
		{weir.Concurrency{Limit: math.MaxInt64}, "at most 2^41"},
		{weir.Concurrency{Limit: 1, Queue: -1}, "Concurrency.Queue"},
		{weir.Concurrency{Limit: 1, MaxHold: -1}, "Concurrency.MaxHold"},
		{weir.Concurrency{Limit: 1, MaxHold: math.MaxInt64}, "Concurrency.MaxHold"},
	} {
		lim, err := weir.NewConcurrency(c.l)
		var wrong *weir.FieldError
		if lim != nil || !errors.As(err, &wrong) || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%+v: %v", c.l, err)
		}
		if _, err := weir.New(c.l); !errors.As(err, &wrong) {
			t.Errorf("New(%+v): %v", c.l, err)
		}
	}
	good := weir.Concurrency{Limit: 1 << 41, Queue: 5}
	if _, err := weir.New(good); err == nil || !strings.Contains(err.Error(), "use NewConcurrency") {
		t.Errorf("New: %v", err)
	}
	l := newConcurrency(t, good)
	if err := l.SetLimit(weir.Concurrency{}); err == nil || l.Limit() != good {
		t.Errorf("a wrong limit was set: %+v, %v", l.Limit(), err)
	}
	if !weir.Equal(good, weir.Concurrency{Limit: 1 << 41, Queue: 5}) || weir.Equal(good, weir.Concurrency{Limit: 1}) {
		t.Error("Equal")
	}
}

func TestEnterAndDone(t *testing.T) {
	l := newConcurrency(t, weir.Concurrency{Limit: 3}, weir.Named("db"))
	if d := l.Peek(3); !d.Allowed || d.Remaining != 3 || d.Limit != 3 || d.ResetAfter != 0 || d.By != "db" {
		t.Errorf("%+v", d)
	}
	two, err := l.EnterCost(t.Context(), 2)
	if err != nil {
		t.Fatal(err)
	}
	if d := l.Peek(2); d.Allowed || d.Remaining != 1 || d.RetryAfter != weir.Never || d.ResetAfter != weir.Never {
		t.Errorf("%+v", d)
	}
	one, d := l.TryEnter()
	if !d.Allowed || d.Remaining != 0 || d.RetryAfter != 0 || l.Holding() != 3 {
		t.Errorf("%+v", d)
	}
	if none, d := l.TryEnter(); d.Allowed || none != (weir.Hold{}) || d.RetryAfter != weir.Never {
		t.Errorf("a fourth: %+v", d)
	}
	_, err = l.Enter(t.Context())
	var limited *weir.LimitedError
	if !errors.Is(err, weir.ErrLimited) || !errors.As(err, &limited) || limited.Decision.RetryAfter != weir.Never || limited.Decision.By != "db" {
		t.Errorf("a queue of 0: %v", err)
	}
	copied := two
	copied.Done(weir.Dropped)
	two.Done(weir.OK) // the first wins
	two.Done(weir.Ignore)
	if l.Holding() != 1 {
		t.Errorf("%d are held", l.Holding())
	}
	other, d := l.TryEnterCost(2) // it may have taken the same record
	if !d.Allowed {
		t.Errorf("%+v", d)
	}
	two.Done(weir.OK)
	if l.Holding() != 3 || two.Extend() || !other.Extend() {
		t.Error("a hold that had ended left once more")
	}
	one.Done(weir.Ignore)
	other.Done(weir.OK)
	if got, want := l.Outcomes(), (weir.Outcomes{OK: 1, Ignored: 1, Dropped: 1}); got != want {
		t.Errorf("%+v, want %+v", got, want)
	}

	var zero weir.Hold
	zero.Done(weir.OK)
	if zero.Fence() != 0 || zero.Extend() {
		t.Error("a zero hold holds something")
	}
}

func TestInvalidCosts(t *testing.T) {
	for _, l := range []weir.Concurrency{{Limit: 5, Queue: 1}, {Limit: 5, Queue: 1, MaxHold: time.Hour}} {
		lim := newConcurrency(t, l)
		for _, cost := range []int64{-1, math.MinInt64, 6, math.MaxInt64} {
			if h, d := lim.TryEnterCost(cost); d.Allowed || d.RetryAfter != weir.Never || h != (weir.Hold{}) || d.Remaining != 5 || d.ResetAfter != 0 {
				t.Errorf("%d: %+v", cost, d)
			}
			if d := lim.Peek(cost); d.Allowed || d.RetryAfter != weir.Never {
				t.Errorf("%d: %+v", cost, d)
			}
			want := weir.ErrLimited
			if cost < 0 {
				want = weir.ErrCost
			}
			if _, err := lim.EnterCost(t.Context(), cost); !errors.Is(err, want) {
				t.Errorf("%d: %v", cost, err)
			}
		}
		if h, d := lim.TryEnterCost(0); !d.Allowed || h != (weir.Hold{}) {
			t.Errorf("%+v", d)
		}
		if h, err := lim.EnterCost(t.Context(), 0); err != nil || h != (weir.Hold{}) {
			t.Error(err)
		}
		gone, leave := context.WithCancel(t.Context())
		leave()
		if _, err := lim.Enter(gone); err != context.Canceled {
			t.Error(err)
		}
		if lim.Holding() != 0 {
			t.Errorf("%d are held", lim.Holding())
		}
	}
}

// TestPlacesInOrder: waiters get places in the order of arrival. A small cost does not overtake a
// large one, and when a waiter leaves, the ones behind it move up.
func TestPlacesInOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newConcurrency(t, weir.Concurrency{Limit: 4, Queue: 4})
		three, _ := l.EnterCost(t.Context(), 3)
		var mu sync.Mutex
		var order []string
		holds := map[string]weir.Hold{}
		enter := func(who string, cost int64) context.CancelFunc {
			ctx, cancel := context.WithCancel(t.Context())
			go func() {
				h, err := l.EnterCost(ctx, cost)
				mu.Lock()
				defer mu.Unlock()
				if err != nil {
					who += " " + err.Error()
				}
				order = append(order, who)
				holds[who] = h
			}()
			synctest.Wait()
			return cancel
		}
		defer enter("a", 2)()
		leave := enter("b", 4)
		defer enter("c", 1)()
		defer enter("d", 3)()
		if _, d := l.TryEnter(); d.Allowed || d.Remaining != 0 || l.Waiting() != 4 {
			t.Errorf("one overtook: %+v", d)
		}
		if _, err := l.Enter(t.Context()); !errors.Is(err, weir.ErrLimited) {
			t.Errorf("the queue is full: %v", err)
		}
		three.Done(weir.OK)
		synctest.Wait()
		if want := []string{"a"}; !slices.Equal(order, want) || l.Holding() != 2 {
			t.Errorf("%v, %d held", order, l.Holding())
		}
		leave()
		synctest.Wait()
		if want := []string{"a", "b context canceled", "c"}; !slices.Equal(order, want) || l.Holding() != 3 || l.Waiting() != 1 {
			t.Errorf("%v, %d held", order, l.Holding())
		}
		holds["c"].Done(weir.OK)
		holds["a"].Done(weir.OK)
		synctest.Wait()
		if l.Holding() != 3 || l.Waiting() != 0 {
			t.Errorf("%d held, %d wait", l.Holding(), l.Waiting())
		}
		holds["d"].Done(weir.OK)
		if d := l.Peek(4); !d.Allowed || d.ResetAfter != 0 {
			t.Errorf("%+v", d)
		}
	})
}

func TestSetLimitTakesNothingAway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newConcurrency(t, weir.Concurrency{Limit: 4, Queue: 10})
		var holds []weir.Hold
		for range 4 {
			h, _ := l.Enter(t.Context())
			holds = append(holds, h)
		}
		must := func(next weir.Concurrency) {
			t.Helper()
			if err := l.SetLimit(next); err != nil {
				t.Fatal(err)
			}
		}
		must(weir.Concurrency{Limit: 2, Queue: 10})
		if d := l.Peek(1); l.Holding() != 4 || d.Allowed || d.Remaining != 0 || d.Limit != 2 {
			t.Errorf("lowered: %+v", d)
		}
		big := make(chan error, 1)
		entered := make(chan weir.Hold, 2)
		go func() {
			_, err := l.EnterCost(t.Context(), 2)
			big <- err
		}()
		synctest.Wait()
		for range 2 {
			go func() {
				h, err := l.Enter(t.Context())
				if err != nil {
					t.Error(err)
				}
				entered <- h
			}()
		}
		synctest.Wait()
		must(weir.Concurrency{Limit: 1, Queue: 1}) // the cost of 2 does not fit any more; the queue of two stays
		if err := <-big; !errors.Is(err, weir.ErrLimited) || l.Waiting() != 2 {
			t.Errorf("%v, %d wait", err, l.Waiting())
		}
		holds[0].Done(weir.OK)
		holds[1].Done(weir.OK)
		holds[2].Done(weir.OK)
		synctest.Wait()
		if l.Waiting() != 2 || l.Holding() != 1 {
			t.Errorf("%d wait, %d held", l.Waiting(), l.Holding())
		}
		must(weir.Concurrency{Limit: 3, Queue: 1})
		(<-entered).Done(weir.OK)
		(<-entered).Done(weir.OK)
		holds[3].Done(weir.OK)
		if d := l.Peek(3); !d.Allowed {
			t.Errorf("%+v", d)
		}
	})
}

func TestConcurrencyDo(t *testing.T) {
	l := newConcurrency(t, weir.Concurrency{Limit: 1})
	wrong := errors.New("wrong")
	for _, err := range []error{nil, wrong, context.DeadlineExceeded, &weir.LimitedError{}} {
		if got := l.Do(t.Context(), func(ctx context.Context) error {
			if ctx != t.Context() || l.Holding() != 1 {
				t.Error("not held")
			}
			if err := l.Do(ctx, func(context.Context) error { return nil }); !errors.Is(err, weir.ErrLimited) {
				t.Errorf("a second: %v", err)
			}
			return err
		}); got != err {
			t.Errorf("%v, want %v", got, err)
		}
	}
	func() {
		defer func() {
			if recover() != wrong {
				t.Error("the panic did not go on")
			}
		}()
		_ = l.Do(t.Context(), func(context.Context) error { panic(wrong) })
	}()
	var wg sync.WaitGroup
	wg.Go(func() { _ = l.Do(t.Context(), func(context.Context) error { runtime.Goexit(); return nil }) })
	wg.Wait()
	if got, want := l.Outcomes(), (weir.Outcomes{OK: 1, Ignored: 1, Dropped: 4}); got != want || l.Holding() != 0 {
		t.Errorf("%+v, %d held", got, l.Holding())
	}
}

func TestEnteringAllocatesNothing(t *testing.T) {
	ctx := t.Context()
	free := newConcurrency(t, weir.Concurrency{Limit: 100})
	full := newConcurrency(t, weir.Concurrency{Limit: 40})
	for range 39 { // all slots are taken: the next holds come from the pool
		full.TryEnter()
	}
	none := newConcurrency(t, weir.Concurrency{Limit: 1})
	none.TryEnter()
	timed := newConcurrency(t, weir.Concurrency{Limit: 100, MaxHold: time.Hour})
	for name, f := range map[string]func(){
		"Enter+Done":            func() { h, _ := free.Enter(ctx); h.Done(weir.OK) },
		"Enter+Done, dropped":   func() { h, _ := free.Enter(ctx); h.Done(weir.Dropped) },
		"TryEnter+Done":         func() { h, _ := free.TryEnter(); h.Done(weir.OK) },
		"TryEnter+Done, pooled": func() { h, _ := full.TryEnter(); h.Done(weir.OK) },
		"TryEnter, refused":     func() { none.TryEnter() },
		"Peek":                  func() { free.Peek(1) },
		"TryEnter+Done, timed":  func() { h, _ := timed.TryEnter(); h.Extend(); h.Done(weir.OK) },
	} {
		if n := testing.AllocsPerRun(2000, f); n != 0 {
			t.Errorf("%s: %v allocations", name, n)
		}
	}
}

// TestTheWordIsReadWithoutAClock: without MaxHold, neither entering nor waiting reads a clock.
func TestTheWordIsReadWithoutAClock(t *testing.T) {
	l := newConcurrency(t, weir.Concurrency{Limit: 1, Queue: 1}, weir.WithClock(func() int64 { panic("the clock was read") }))
	h, _ := l.TryEnter()
	entered := make(chan struct{})
	go func() {
		defer close(entered)
		h, err := l.Enter(context.Background())
		if err != nil {
			t.Error(err)
		}
		h.Done(weir.Dropped)
	}()
	for l.Waiting() == 0 {
		runtime.Gosched()
	}
	l.TryEnter()
	h.Done(weir.OK)
	<-entered
	if l.Holding() != 0 || l.Outcomes() != (weir.Outcomes{OK: 1, Dropped: 1}) {
		t.Errorf("%+v", l.Outcomes())
	}
}

func TestFenceOfAWallClock(t *testing.T) {
	l := newConcurrency(t, weir.Concurrency{Limit: 1}, weir.WithWallClock(func() int64 { return int64(time.Hour) }))
	h, _ := l.TryEnter()
	if f := h.Fence(); f != int64(time.Hour/time.Microsecond) {
		t.Errorf("%d", f)
	}
}

func TestOutcomeNames(t *testing.T) {
	for o, want := range map[weir.Outcome]string{weir.OK: "ok", weir.Ignore: "ignore", weir.Dropped: "dropped", 9: "Outcome(9)"} {
		if o.String() != want {
			t.Errorf("%v, want %s", o, want)
		}
	}
}
