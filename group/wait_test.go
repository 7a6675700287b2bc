package group_test

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirflow/weir"
	"github.com/weirflow/weir/group"
	"github.com/weirflow/weir/keyed"
	"github.com/weirflow/weir/weirtest"
)

// perSecond is a fixture for waits in a bubble: each limit admits 1 per second, or has 1 place.
type perSecond struct {
	one    *weir.Limiter
	keyed  *keyed.Limiter[string]
	places *weir.ConcurrencyLimiter
	shared *weir.Shared
}

func newPerSecond(t *testing.T) perSecond {
	t.Helper()
	second := weir.TokenBucket{Rate: weir.PerSecond(1), Burst: 1}
	return perSecond{
		must(weir.New(second, weir.Named("one")))(t),
		must(keyed.New[string](second, keyed.Options{Name: "keyed"}))(t),
		must(weir.NewConcurrency(weir.Concurrency{Limit: 1, Queue: 100}, weir.Named("places")))(t),
		must(weir.NewShared(second, weirtest.NewStore(nil), weir.Named("shared")))(t),
	}
}

func (r perSecond) charges() []group.Charge {
	return []group.Charge{group.One(r.one, 1), group.Keyed(r.keyed, "k", 1), group.InFlight(r.places, 1), group.Shared(r.shared, "k", 1)}
}

// use uses up the limit with a name. What it returns ends that.
func (r perSecond) use(t *testing.T, name string) (end func()) {
	t.Helper()
	switch name {
	case "one":
		r.one.Take(1)
	case "keyed":
		r.keyed.Take("k", 1)
	case "shared":
		must(r.shared.Take(t.Context(), "k", 1))(t)
	case "places":
		hold, _ := r.places.TryEnter()
		return func() { hold.Done(weir.OK) }
	}
	return func() {}
}

// unused reports an error unless all limits are as if they had never been charged.
func (r perSecond) unused(t *testing.T, but string) {
	t.Helper()
	for name, left := range map[string]int64{
		"one": r.one.Peek(0).Remaining, "keyed": r.keyed.Peek("k", 0).Remaining, "places": r.places.Peek(0).Remaining,
		"shared": must(r.shared.Peek(t.Context(), "k", 0))(t).Remaining,
	} {
		if name != but && left != 1 {
			t.Errorf("%s is charged", name)
		}
	}
}

// TestWait: a caller waits for the limit that refuses, and is charged for all once it may go.
func TestWait(t *testing.T) {
	for _, name := range []string{"one", "keyed", "shared", "places"} {
		synctest.Test(t, func(t *testing.T) {
			r := newPerSecond(t)
			end := r.use(t, name)
			time.AfterFunc(time.Second, end)
			began := time.Now()
			res, err := group.Wait(t.Context(), r.charges()...)
			if err != nil || time.Since(began) != time.Second {
				t.Fatalf("%s: %v after %v", name, err, time.Since(began))
			}
			for _, d := range res.Decisions() {
				if !d.Allowed {
					t.Errorf("%s: %+v", name, d)
				}
			}
			if res.Cancel(t.Context()) != nil {
				t.Error("not cancelled")
			}
			r.unused(t, "")
		})
	}
}

// TestWaitRefuses: a wait that cannot help, or that would last beyond the deadline, ends at once, and
// nothing is charged.
func TestWaitRefuses(t *testing.T) {
	for _, name := range []string{"one", "keyed", "shared"} {
		synctest.Test(t, func(t *testing.T) {
			r := newPerSecond(t)
			r.use(t, name)
			ctx, cancel := context.WithTimeout(t.Context(), 999*time.Millisecond)
			defer cancel()
			began := time.Now()
			_, err := group.Wait(ctx, r.charges()...)
			var limited *weir.LimitedError
			if !errors.As(err, &limited) || limited.Decision.By != name || !errors.Is(err, context.DeadlineExceeded) || time.Since(began) != 0 {
				t.Errorf("%s: %v after %v", name, err, time.Since(began))
			}
			r.unused(t, name)
		})
	}
	synctest.Test(t, func(t *testing.T) {
		r := newPerSecond(t)
		for _, c := range []group.Charge{group.One(r.one, 2), group.Keyed(r.keyed, "k", 2), group.InFlight(r.places, 2), group.Shared(r.shared, "k", 2)} {
			_, err := group.Wait(t.Context(), append(r.charges()[:1:1], c)...)
			if !errors.Is(err, weir.ErrLimited) || errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("%v", err)
			}
			r.unused(t, "")
		}
	})
}

// TestWaitEnds: a caller whose context ends leaves the queue, and nothing stays charged.
func TestWaitEnds(t *testing.T) {
	for _, name := range []string{"one", "keyed", "shared", "places"} {
		synctest.Test(t, func(t *testing.T) {
			r := newPerSecond(t)
			end := r.use(t, name)
			ctx, cancel := context.WithCancel(t.Context())
			time.AfterFunc(time.Second/2, cancel)
			if _, err := group.Wait(ctx, r.charges()...); !errors.Is(err, context.Canceled) {
				t.Errorf("%s: %v", name, err)
			}
			end()
			<-time.After(time.Second)
			r.unused(t, "")
		})
	}
}

// TestWaitInOrder: callers that wait for one limit go in the order in which they came, at its rate,
// also if another limit sends them away in between.
func TestWaitInOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newPerSecond(t)
		r.use(t, "one")
		began := time.Now()
		var mu sync.Mutex
		var order []int
		var all sync.WaitGroup
		for i := range 5 {
			all.Go(func() {
				res, err := group.Wait(t.Context(), r.charges()...)
				if err != nil {
					t.Error(err)
				}
				mu.Lock()
				order = append(order, i)
				mu.Unlock()
				res.Done(weir.OK)
			})
			synctest.Wait()
		}
		all.Wait()
		for i, n := range order {
			if i != n {
				t.Errorf("the order is %v", order)
				break
			}
		}
		if took := time.Since(began); took != 5*time.Second {
			t.Errorf("5 callers at 1/s took %v", took)
		}
	})
}

// TestWaitForOneInAStore: callers that wait for a single limit in a store are charged ahead, with one
// call each, in their order. What they settle is given back.
func TestWaitForOneInAStore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		counted := &store{Store: weirtest.NewStore(nil)}
		s := must(weir.NewShared(weir.TokenBucket{Rate: weir.PerSecond(1), Burst: 1}, counted, weir.Named("shared")))(t)
		began := time.Now()
		var all sync.WaitGroup
		for range 20 {
			all.Go(func() {
				if _, err := group.Wait(t.Context(), group.Shared(s, "k", 1)); err != nil {
					t.Error(err)
				}
			})
		}
		all.Wait()
		if took := time.Since(began); took != 19*time.Second || counted.calls != 20 {
			t.Errorf("20 callers at 1/s took %v and %d calls", took, counted.calls)
		}
		<-time.After(time.Second)
		r, err := group.Wait(t.Context(), group.Shared(s, "k", 1))
		if err != nil || !r.Decisions()[0].Allowed {
			t.Fatal(err)
		}
		if err := r.Cancel(t.Context()); err != nil {
			t.Error(err)
		}
		if left := must(s.Peek(t.Context(), "k", 0))(t).Remaining; left != 1 {
			t.Errorf("%d are left", left)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second/2)
		defer cancel()
		must(s.Take(t.Context(), "k", 1))(t)
		if _, err := group.Wait(ctx, group.Shared(s, "k", 1)); !errors.Is(err, weir.ErrLimited) || !errors.Is(err, context.DeadlineExceeded) {
			t.Error(err)
		}
	})
}

// panics is a store that panics.
type panics struct{}

func (panics) Do(context.Context, []weir.Charge, []weir.Decision) error {
	panic("a defect of the store")
}
func (panics) Close() error { return nil }

// TestPanic: if a store panics, nothing stays charged and no place is kept.
func TestPanic(t *testing.T) {
	r := newPerSecond(t)
	broken := must(weir.NewShared(weir.FixedWindow{Limit: 1, Window: time.Hour}, panics{}, weir.Named("broken")))(t)
	func() {
		defer func() {
			if recover() == nil {
				t.Error("the panic was lost")
			}
		}()
		_, _, _ = group.Take(t.Context(), group.One(r.one, 1), group.InFlight(r.places, 1), group.Shared(broken, "k", 1))
	}()
	r.unused(t, "")
}

// TestNothingIsLost: callers side by side, most of them refused by one limit or another; in the end
// each limit is charged with what was admitted, and no place is taken.
func TestNothingIsLost(t *testing.T) {
	const callers, calls = 8, 300
	many := weir.TokenBucket{Rate: weir.PerDay(1), Burst: 1000}
	few := weir.TokenBucket{Rate: weir.PerDay(1), Burst: 100}
	store := &store{Store: weirtest.NewStore(func() int64 { return 0 })}
	clock := weir.WithClock(func() int64 { return 0 })
	one := must(weir.New(many, clock))(t)
	per := must(keyed.New[int](few, keyed.Options{Clock: func() int64 { return 0 }}))(t)
	places := must(weir.NewConcurrency(weir.Concurrency{Limit: callers / 2}))(t)
	shared := must(weir.NewShared(weir.TokenBucket{Rate: weir.PerDay(1), Burst: 150}, store, weir.Named("shared")))(t)
	var admitted [2]atomic.Int64
	var all sync.WaitGroup
	for i := range callers {
		all.Go(func() {
			for n := range calls {
				key := (i + n) % 2
				r, d, err := group.Take(t.Context(), group.One(one, 1), group.Keyed(per, key, 1), group.InFlight(places, 1), group.Shared(shared, "k", 1))
				switch {
				case err != nil:
					t.Error(err)
				case d.Allowed && n%3 == 0:
					if err := r.Cancel(t.Context()); err != nil {
						t.Error(err)
					}
				case d.Allowed:
					admitted[key].Add(1)
					r.Done(weir.OK)
				}
			}
		})
	}
	all.Wait()
	total := admitted[0].Load() + admitted[1].Load()
	if left := one.Peek(0).Remaining; left != 1000-total {
		t.Errorf("%d were admitted, and of 1000 in memory %d are left", total, left)
	}
	for key := range 2 {
		if n, left := admitted[key].Load(), per.Peek(key, 0).Remaining; left != 100-n {
			t.Errorf("%d were admitted of key %d, and of 100 %d are left", n, key, left)
		}
	}
	if places.Holding() != 0 {
		t.Errorf("%d places are taken", places.Holding())
	}
	if d := must(shared.Peek(t.Context(), "k", 0))(t); d.Remaining > 150-total {
		t.Errorf("%d were admitted, and of 150 in the store %d are left", total, d.Remaining)
	}
	if total < 50 {
		t.Errorf("only %d were admitted", total)
	}
}
