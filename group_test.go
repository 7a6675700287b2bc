package weir_test

import (
	"context"
	"errors"
	"math"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirflow/weir"
)

func TestGroupAllOrNone(t *testing.T) {
	requests, c := onClock(t, weir.TokenBucket{Rate: weir.PerSecond(1), Burst: 3})
	bytes := newLimiter(t, weir.All(weir.TokenBucket{Rate: weir.PerSecond(100), Burst: 1000}), weir.Named("bytes"), weir.WithClock(c.Now))
	g := weir.NewGroup(requests, bytes)
	if d := g.Take(1, 900); !d.Allowed || d.Limit != 3 || d.Remaining != 2 {
		t.Errorf("%+v", d)
	}
	if d := g.Take(1, 200); d.Allowed || d.By != "bytes/token_bucket.1" || d.RetryAfter != sec || d.Remaining != 100 {
		t.Errorf("%+v", d)
	}
	if d := requests.Peek(0); d.Remaining != 2 {
		t.Errorf("a refusal was charged: %+v", d)
	}
	if d := g.Peek(2, 100); !d.Allowed || requests.Peek(0).Remaining != 2 {
		t.Errorf("%+v", d)
	}
	if d := g.Take(3, 400); d.Allowed || d.By != "bytes/token_bucket.1" || d.RetryAfter != 3*sec {
		t.Errorf("the longest of both: %+v", d)
	}
	if d := g.Take(4, 1001); d.Allowed || d.By != "" || d.RetryAfter != weir.Never {
		t.Errorf("the first of those that are never: %+v", d)
	}
	if d := g.Take(2, 0); !d.Allowed || d.Limit != 3 || d.Remaining != 0 {
		t.Errorf("%+v", d)
	}
	for _, costs := range [][]int64{{}, {1}, {1, 1, 1}, {-1, 1}, {1, math.MinInt64}} {
		if d := g.Take(costs...); d.Allowed || d.RetryAfter != weir.Never {
			t.Errorf("%v: %+v", costs, d)
		}
		want := weir.ErrCosts
		if len(costs) == 2 {
			want = weir.ErrCost
		}
		if err := g.Wait(t.Context(), costs...); !errors.Is(err, want) {
			t.Errorf("%v: %v", costs, err)
		}
	}
	c.Set(int64(3 * sec))
	if d := g.Take(3, 400); !d.Allowed || requests.Peek(0).Remaining != 0 || bytes.Peek(0).Remaining != 0 {
		t.Errorf("after RetryAfter: %+v", d)
	}
	if d := weir.NewGroup(nil, bytes).Take(7, 1); d.Allowed || d.RetryAfter != 10*ms {
		t.Errorf("one that is not asked: %+v", d)
	}
	if d := weir.NewGroup().Take(); !d.Allowed {
		t.Errorf("%+v", d)
	}
}

// TestGroupOfTheSameTwice: two charges of one limiter are made in order. If the second is refused,
// neither is charged.
func TestGroupOfTheSameTwice(t *testing.T) {
	l, c := onClock(t, weir.TokenBucket{Rate: weir.PerSecond(1), Burst: 10})
	other := newLimiter(t, weir.TokenBucket{Rate: weir.PerSecond(1), Burst: 10}, weir.WithClock(c.Now))
	g := weir.NewGroup(l, other, l)
	if d := g.Take(6, 1, 6); d.Allowed || d.RetryAfter != weir.Never || l.Peek(0).Remaining != 10 || other.Peek(0).Remaining != 10 {
		t.Errorf("%+v", d)
	}
	if d := g.Peek(6, 1, 4); !d.Allowed || l.Peek(0).Remaining != 10 {
		t.Errorf("%+v", d)
	}
	if d := g.Take(6, 1, 4); !d.Allowed || l.Peek(0).Remaining != 0 || other.Peek(0).Remaining != 9 {
		t.Errorf("%+v", d)
	}
}

// TestGroupNamesALimiterThatCanAdmitNothing: a limiter that has nothing stored and can admit nothing was
// left out of the comparison, and By was another one with more left.
func TestGroupNamesALimiterThatCanAdmitNothing(t *testing.T) {
	bare, c := onClock(t, weir.SmoothBursty{Rate: weir.PerSecond(1), MaxBurst: -1})
	full := newLimiter(t, weir.TokenBucket{Rate: weir.PerSecond(1), Burst: 9}, weir.WithClock(c.Now))
	if d := weir.NewGroup(bare, full).Peek(1, 1); !d.Allowed || d.Limit != 0 || d.Remaining != 0 {
		t.Errorf("%+v", d)
	}
}

// TestGroupFirstCall: a limit that starts empty fills from the first call on, also if the group
// refuses it.
func TestGroupFirstCall(t *testing.T) {
	for _, twice := range []bool{false, true} {
		l, c := onClock(t, weir.TokenBucket{Rate: weir.PerSecond(1), Burst: 5, Initial: weir.InitialEmpty})
		g, costs := weir.NewGroup(l), []int64{2}
		if twice {
			g, costs = weir.NewGroup(l, l), []int64{1, 1}
		}
		g.Peek(costs...) // it stores no state
		c.Set(int64(sec))
		if d := g.Take(costs...); d.Allowed {
			t.Errorf("%+v", d)
		}
		c.Set(int64(3*sec) - 1)
		if d := g.Take(costs...); d.Allowed || d.RetryAfter != 1 {
			t.Errorf("%+v", d)
		}
		c.Set(int64(3 * sec))
		if d := g.Take(costs...); !d.Allowed {
			t.Errorf("%+v", d)
		}
	}
}

// TestGroupsOnAllCores: groups share limiters in any order, beside direct callers of the limiters.
// The clock stands still, so exactly the stored tokens are given out, all or none to each group,
// and no group deadlocks.
func TestGroupsOnAllCores(t *testing.T) {
	const burst = 3000
	limiters := make([]*weir.Limiter, 4)
	for i := range limiters {
		limiters[i] = newLimiter(t, weir.TokenBucket{Rate: weir.PerDay(1), Burst: burst}, weir.WithClock(func() int64 { return 0 }))
	}
	orders := [][]int{{0, 1, 2, 3}, {3, 2, 1, 0}, {1, 3}, {3, 1}, {2, 0, 2}, {0, 2}}
	var taken [4]atomic.Int64
	var wg sync.WaitGroup
	for g := range 12 {
		order := orders[g%len(orders)]
		var members []*weir.Limiter
		for _, i := range order {
			members = append(members, limiters[i])
		}
		group := weir.NewGroup(members...)
		wg.Go(func() {
			costs := make([]int64, len(order))
			for n := range 600 {
				for j := range costs {
					costs[j] = int64((n + j) % 4)
				}
				if group.Take(costs...).Allowed {
					for j, i := range order {
						taken[i].Add(costs[j])
					}
				}
				if l := limiters[n%4]; l.Allow() {
					taken[n%4].Add(1)
				}
				group.Peek(costs...)
			}
		})
	}
	wg.Wait()
	for i, l := range limiters {
		if left := l.Peek(0).Remaining; taken[i].Load() != burst-left || left < 0 {
			t.Errorf("limiter %d: %d were taken and %d are left of %d", i, taken[i].Load(), left, burst)
		}
		for l.Allow() {
			taken[i].Add(1)
		}
		if taken[i].Load() != burst {
			t.Errorf("limiter %d: %d of %d", i, taken[i].Load(), burst)
		}
	}
}

// TestGroupWaits: callers of a group wait in order. Nothing is charged, or kept for them, before
// all charges of a caller can be made.
func TestGroupWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		requests := newLimiter(t, weir.TokenBucket{Rate: weir.PerSecond(10), Burst: 1})
		bytes := newLimiter(t, weir.TokenBucket{Rate: weir.PerSecond(100), Burst: 100}, weir.Named("bytes"))
		g, same := weir.NewGroup(requests, bytes), weir.NewGroup(bytes, requests)
		start := time.Now()
		var mu sync.Mutex
		at := map[string]time.Duration{}
		var wg sync.WaitGroup
		wait := func(who string, costs ...int64) context.CancelFunc {
			ctx, cancel := context.WithCancel(t.Context())
			wg.Go(func() {
				err := g.Wait(ctx, costs...)
				mu.Lock()
				defer mu.Unlock()
				if at[who] = time.Since(start); err != nil {
					at[who+" "+err.Error()] = at[who]
				}
			})
			synctest.Wait()
			return cancel
		}
		defer wait("a", 1, 100)()
		defer wait("b", 1, 50)()   // after 500ms
		leave := wait("c", 1, 100) // would be after 1500ms
		defer wait("d", 1, 20)()   // and this one after 1700ms
		if d := requests.Take(1); d.Allowed || d.RetryAfter != 100*ms {
			t.Errorf("%+v", d)
		}
		if d := g.Take(1, 1); d.Allowed || d.RetryAfter != 1710*ms || g.Waiting() != 3 {
			t.Errorf("behind three: %+v, %d wait", d, g.Waiting())
		}
		soon, cancel := context.WithTimeout(t.Context(), sec)
		defer cancel()
		var limited *weir.LimitedError
		if err := g.Wait(soon, 1, 1); !errors.Is(err, context.DeadlineExceeded) || !errors.As(err, &limited) || limited.Decision.By != "bytes" {
			t.Errorf("%v", err)
		}
		if err := g.Wait(t.Context(), 1, 101); !errors.Is(err, weir.ErrLimited) || errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("more than there will ever be: %v", err)
		}
		<-time.After(200 * ms)
		if d := requests.Take(1); !d.Allowed { // tokens that the group cannot use yet are not kept for it
			t.Errorf("%+v", d)
		}
		<-time.After(400 * ms)
		leave()
		wg.Wait()
		want := map[string]time.Duration{"a": 0, "b": 500 * ms, "c": 600 * ms, "c context canceled": 600 * ms, "d": 700 * ms}
		for who, when := range want {
			if at[who] != when {
				t.Errorf("%s: %v, want %v", who, at[who], when)
			}
		}
		if d := same.Peek(0, 1); len(at) != len(want) || d.Allowed || g.Waiting() != 0 {
			t.Errorf("%v, %+v", at, d)
		}
	})
}

// TestGroupWaitersGoSooner: the first waiter of a group goes sooner after a refund, a raised limit, or if a
// waiter of a member's own queue leaves.
func TestGroupWaitersGoSooner(t *testing.T) {
	for name, change := range map[string]func(l *weir.Limiter, r weir.Reservation){
		"cancel": func(_ *weir.Limiter, r weir.Reservation) { r.Cancel() },
		"raise": func(l *weir.Limiter, _ weir.Reservation) {
			_ = l.SetLimit(weir.TokenBucket{Rate: weir.PerHour(1), Burst: 20})
		},
	} {
		synctest.Test(t, func(t *testing.T) {
			one, two := newLimiter(t, weir.TokenBucket{Rate: weir.PerHour(1), Burst: 10}), newLimiter(t, weir.TokenBucket{Rate: weir.PerHour(1), Burst: 10})
			r, _ := two.Reserve(10, 0)
			g := weir.NewGroup(one, two)
			start := time.Now()
			done := make(chan error)
			go func() { done <- g.Wait(t.Context(), 1, 5) }()
			synctest.Wait()
			<-time.After(sec)
			change(two, r)
			if err := <-done; err != nil || time.Since(start) != sec {
				t.Errorf("%s: %v after %v", name, err, time.Since(start))
			}
			if n := one.Peek(0).Remaining; n != 9 {
				t.Errorf("%s: %d", name, n)
			}
		})
	}
	synctest.Test(t, func(t *testing.T) {
		l := newLimiter(t, weir.TokenBucket{Rate: weir.PerSecond(1), Burst: 10})
		l.Take(10)
		long, leave := context.WithCancel(t.Context())
		alone := make(chan error, 1)
		go func() { alone <- l.Wait(long, 10) }()
		synctest.Wait()
		start := time.Now()
		done := make(chan error)
		go func() { done <- weir.NewGroup(l).Wait(t.Context(), 2) }()
		synctest.Wait()
		<-time.After(5 * sec)
		leave()
		if err := <-done; err != nil || time.Since(start) != 5*sec || <-alone != context.Canceled {
			t.Errorf("%v after %v", err, time.Since(start))
		}
	})
	synctest.Test(t, func(t *testing.T) {
		l := newLimiter(t, weir.TokenBucket{Rate: weir.PerHour(1), Burst: 10})
		l.Take(10)
		done := make(chan error)
		go func() { done <- weir.NewGroup(l).Wait(t.Context(), 6) }()
		synctest.Wait()
		if err := l.SetLimit(weir.TokenBucket{Rate: weir.PerHour(1), Burst: 5}); err != nil {
			t.Error(err)
		}
		if err := <-done; !errors.Is(err, weir.ErrLimited) {
			t.Errorf("a cost that fits no more: %v", err)
		}
	})
}

// TestManyWaitForGroups: many waiters come and leave, and each is served in the end, exactly at the
// rate of the tokens.
func TestManyWaitForGroups(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b := newLimiter(t, weir.TokenBucket{Rate: weir.PerSecond(100), Burst: 1}), newLimiter(t, weir.TokenBucket{Rate: weir.PerSecond(100), Burst: 1})
		groups := []*weir.Group{weir.NewGroup(a, b), weir.NewGroup(b, a)}
		start := time.Now()
		var mu sync.Mutex
		var at []time.Duration
		var wg sync.WaitGroup
		for i := range 300 {
			wg.Go(func() {
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				if i%3 == 0 {
					defer time.AfterFunc(time.Duration(i)*ms, cancel).Stop()
				}
				if err := groups[i%2].Wait(ctx, 1, 1); err == nil {
					mu.Lock()
					defer mu.Unlock()
					at = append(at, time.Since(start))
				} else if i%3 != 0 {
					t.Error(err)
				}
			})
		}
		wg.Wait()
		slices.Sort(at)
		for i, got := range at {
			if want := time.Duration(i) * 10 * ms; got != want {
				t.Fatalf("number %d at %v, want %v", i, got, want)
			}
		}
		if len(at) < 200 || groups[0].Waiting()+groups[1].Waiting() != 0 {
			t.Errorf("%d were served", len(at))
		}
	})
}

func TestGroupAllocatesNothing(t *testing.T) {
	big := weir.TokenBucket{Rate: weir.PerSecond(1e9), Burst: 1e9}
	g := weir.NewGroup(newLimiter(t, big), newLimiter(t, weir.All(big, big)))
	ctx := t.Context()
	for name, f := range map[string]func(){
		"Take": func() { g.Take(1, 2) },
		"Peek": func() { g.Peek(1, 2) },
		"Wait": func() { _ = g.Wait(ctx, 1, 2) },
	} {
		if n := testing.AllocsPerRun(1000, f); n != 0 {
			t.Errorf("%s: %v allocations", name, n)
		}
	}
}

// TestGroupQueueOfHugeCosts: a queue refuses costs whose sum would overflow.
func TestGroupQueueOfHugeCosts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLimiter(t, weir.SlidingCounter{Limit: math.MaxInt64, Window: sec})
		l.Take(math.MaxInt64)
		g := weir.NewGroup(l)
		ctx, cancel := context.WithCancel(t.Context())
		var wg sync.WaitGroup
		for range 2 {
			wg.Go(func() {
				if err := g.Wait(ctx, math.MaxInt64); err != context.Canceled {
					t.Error(err)
				}
			})
			synctest.Wait()
		}
		for range 2 {
			if err := g.Wait(ctx, math.MaxInt64); !errors.Is(err, weir.ErrLimited) || g.Waiting() != 2 {
				t.Errorf("%v, %d wait", err, g.Waiting())
			}
		}
		cancel()
		wg.Wait()
	})
}
