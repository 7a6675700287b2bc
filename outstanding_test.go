package weir_test

import (
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirflow/weir"
	"github.com/weirflow/weir/internal/raced"
	"github.com/weirflow/weir/weirtest"
)

// TestCancelledNewestFirst: three reservations were cancelled newest first, and one token stayed
// charged.
func TestCancelledNewestFirst(t *testing.T) {
	day := 24 * time.Hour
	for _, limit := range []weir.Limit{
		weir.TokenBucket{Rate: weir.Rate{N: 10, Per: day}, Burst: 8},
		weir.LeakyBucket{Rate: weir.Rate{N: 10, Per: day}, Queue: 7, DelayAfter: 7},
		weir.IntervalBucket{Burst: 8, Refill: 1, Every: day},
		weir.NginxBucket{Rate: weir.PerMinute(1), Queue: 7},
		weir.FixedWindow{Limit: 8, Window: day},
		weir.SlidingWindow{Limit: 8, Window: day, Slots: 24},
		weir.SlidingCounter{Limit: 8, Window: day},
		weir.SlidingLog{Limit: 8, Window: day},
		weir.All(weir.TokenBucket{Rate: weir.Rate{N: 10, Per: day}, Burst: 8}, weir.IntervalBucket{Burst: 9, Refill: 1, Every: day}),
	} {
		for _, order := range [][]int{{2, 1, 0}, {0, 1, 2}, {1, 0, 2}, {1, 2, 0}, {0, 2, 1}, {2, 0, 1}} {
			l, c := onClock(t, limit)
			c.Set(int64(time.Hour))
			before := l.Peek(0)
			var all []weir.Reservation
			for range 3 {
				r, ok := l.Reserve(1, 0)
				if !ok {
					t.Fatalf("%+v: %+v", limit, r.Decision())
				}
				all = append(all, r)
			}
			for _, i := range order {
				all[i].Cancel()
				all[i].Cancel()
			}
			if d := l.Peek(0); d != before {
				t.Errorf("%+v, cancelled in the order %v: %+v, want %+v", limit, order, d, before)
			}
		}
	}
}

// TestReservedAndCancelledConcurrently: eight callers each reserve, wait and cancel a hundred times.
// Half of the bucket stayed charged.
func TestReservedAndCancelledConcurrently(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, err := weir.New(weir.TokenBucket{Rate: weir.Rate{N: 10, Per: 24 * time.Hour}, Burst: 8})
		if err != nil {
			t.Fatal(err)
		}
		var callers sync.WaitGroup
		for caller := range 8 {
			callers.Go(func() {
				<-time.After(time.Duration(caller) * 13 * time.Microsecond)
				for range 100 {
					r, ok := l.Reserve(1, 0)
					if !ok {
						t.Errorf("%+v", r.Decision())
					}
					<-time.After(100 * time.Microsecond)
					r.Cancel()
				}
			})
		}
		callers.Wait()
		if d := l.Peek(0); d.Remaining != 8 || d.ResetAfter != 0 {
			t.Errorf("%+v", d)
		}
	})
}

// TestSettledEstimatesUseTheLimit: requests are estimated at 4,000 tokens and settled to 500 after
// 10 s, at 100,000 per minute, offered as fast as they are admitted. Half of the limit was used.
// With the exact rule, only the estimates of running requests are unused.
func TestSettledEstimatesUseTheLimit(t *testing.T) {
	l, c := onClock(t, weir.TokenBucket{Rate: weir.PerMinute(100_000), Burst: 100_000})
	if got := utilisation(t, l, c, 4000, 500, 10*time.Second); got < 0.76 || got > 1 {
		t.Errorf("%.3f of the limit is used", got)
	}
}

// utilisation returns the fraction of a limit of 100,000 per minute that is used in an hour.
// Requests come every 300 ms, the rate at which the limit could serve their actual costs.
func utilisation(t *testing.T, l *weir.Limiter, c *weirtest.Clock, estimate, actual int64, takes time.Duration) float64 {
	t.Helper()
	type open struct {
		r    weir.Reservation
		ends int64
	}
	var running []open
	done := int64(0)
	const length = int64(time.Hour)
	each := int64(time.Minute) * actual / 100_000
	for now := int64(0); now < length; now += each {
		for len(running) > 0 && running[0].ends <= now {
			c.Set(running[0].ends)
			running[0].r.Settle(actual)
			running = running[1:]
		}
		c.Set(now)
		if r, ok := l.Reserve(estimate, 0); ok {
			running = append(running, open{r, now + int64(takes)})
			done += actual
		}
	}
	return float64(done) / float64(100_000*60)
}

// TestAbandonedReservationsAreBounded: a million reservations that are neither settled nor
// cancelled.
func TestAbandonedReservationsAreBounded(t *testing.T) {
	raced.Skip(t)
	for _, limit := range []weir.Limit{
		weir.TokenBucket{Rate: weir.PerHour(1), Burst: 10_000},
		weir.IntervalBucket{Burst: 10_000, Refill: 1, Every: time.Hour},
		weir.SmoothBursty{Rate: weir.PerHour(1), MaxBurst: 10_000 * time.Hour},
		weir.NginxBucket{Rate: weir.PerMinute(1), Queue: 10_000},
		weir.WarmUp{Rate: weir.PerHour(1), Period: time.Hour},
	} {
		l, c := onClock(t, limit)
		c.Set(int64(20_000 * time.Hour))
		n := 20_000
		if _, ok := limit.(weir.TokenBucket); ok {
			n = 1_000_000
		}
		before := heap()
		admitted := 0
		for range n {
			if _, ok := l.Reserve(1, 0); ok {
				admitted++
			} else if l.Take(1).Allowed {
				t.Fatal("a Take where a Reserve was refused")
			}
		}
		if more := heap() - before; more > 256<<10 {
			t.Errorf("%T: %d bytes more", limit, more)
		}
		if _, ok := limit.(weir.WarmUp); !ok && (admitted < 10_000 || l.Inexact() == 0) {
			t.Errorf("%T: %d admitted, %d of them inexactly", limit, admitted, l.Inexact())
		}
		c.Set(int64(100_000 * time.Hour)) // all of them have drained
		l.Take(1)
		if was, _ := l.Reserve(1, 0); was.Decision().Allowed {
			was.Cancel()
		}
		if d := l.Peek(0); d.Remaining < 0 {
			t.Errorf("%+v", d)
		}
	}
}

func heap() int64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

// TestBeyondTheBoundNothingIsGivenTwice: with more outstanding reservations than a limiter keeps
// apart, cancelling all of them gives back no more than they took.
func TestBeyondTheBoundNothingIsGivenTwice(t *testing.T) {
	for _, newest := range []bool{true, false} {
		l, _ := onClock(t, weir.TokenBucket{Rate: weir.PerHour(1), Burst: 5000})
		var all []weir.Reservation
		for range 4000 {
			r, _ := l.Reserve(1, 0)
			all = append(all, r)
		}
		if newest {
			slices.Reverse(all)
		}
		for _, r := range all {
			r.Cancel()
		}
		d := l.Peek(0)
		if d.Remaining > 5000 || d.Remaining < 4950 {
			t.Errorf("newest first: %v: %+v", newest, d)
		}
		if l.Inexact() == 0 {
			t.Error("they were not counted")
		}
	}
}

// TestOutstandingConcurrently makes all kinds of calls concurrently on few limits. In the end, only
// the charges that were kept are charged.
func TestOutstandingConcurrently(t *testing.T) {
	limits := []weir.Limit{
		weir.TokenBucket{Rate: weir.Rate{N: 1, Per: 80 * time.Hour}, Burst: 10_000},
		weir.IntervalBucket{Burst: 10_000, Refill: 1, Every: 80 * time.Hour},
		weir.All(weir.TokenBucket{Rate: weir.Rate{N: 1, Per: 80 * time.Hour}, Burst: 10_000}, weir.FixedWindow{Limit: 9000, Window: 80 * time.Hour}),
	}
	for _, limit := range limits {
		l, err := weir.New(limit)
		if err != nil {
			t.Fatal(err)
		}
		capacity := l.Peek(0).Limit
		var mu sync.Mutex
		used := int64(0)
		var callers sync.WaitGroup
		for caller := range 8 {
			callers.Go(func() {
				rnd := rand.New(rand.NewPCG(uint64(caller), 3))
				var mine []weir.Reservation
				did := int64(0)
				for range 400 {
					switch rnd.IntN(5) {
					case 0:
						if l.Take(1).Allowed {
							did++
						}
					case 1, 2:
						if r, ok := l.Reserve(3, 0); ok {
							mine = append(mine, r)
						}
					default:
						if len(mine) == 0 {
							continue
						}
						i, actual := rnd.IntN(len(mine)), rnd.Int64N(5)
						mine[i].Settle(actual)
						mine[i].Cancel()
						mine = slices.Delete(mine, i, i+1)
						did += actual
					}
				}
				for _, r := range mine {
					r.Cancel()
				}
				mu.Lock()
				defer mu.Unlock()
				used += did
			})
		}
		callers.Wait()
		if d := l.Peek(0); d.Remaining != capacity-used {
			t.Errorf("%v: %d remain of %d, of which %d were used", fmt.Sprintf("%+v", limit), d.Remaining, capacity, used)
		}
	}
}

// TestCancelledDelays holds the table of docs/guarantees.md on delayed reservations that are all
// cancelled: how much later the next request is admitted than without them.
func TestCancelledDelays(t *testing.T) {
	each := 10 * time.Second
	for _, c := range []struct {
		limit weir.Limit
		stays [2]time.Duration // if cancelled newest first, and oldest first
	}{
		{weir.TokenBucket{Rate: weir.Rate{N: 1, Per: each}, Burst: 10}, [2]time.Duration{}},
		{weir.LeakyBucket{Rate: weir.Rate{N: 1, Per: each}, Queue: 100}, [2]time.Duration{}},
		{weir.SmoothBursty{Rate: weir.Rate{N: 1, Per: each}, MaxBurst: 10 * each}, [2]time.Duration{}},
		{weir.WarmUp{Rate: weir.Rate{N: 1, Per: each}, Period: 10 * each}, [2]time.Duration{}},
		{weir.IntervalBucket{Burst: 10, Refill: 1, Every: each}, [2]time.Duration{0, 29 * each}},
		{weir.IntervalBucket{Burst: 10, Refill: 10, Every: 10 * each}, [2]time.Duration{0, 20 * each}},
		{weir.FixedWindow{Limit: 10, Window: 10 * each}, [2]time.Duration{0, 20 * each}},
		{weir.SlidingWindow{Limit: 10, Window: 10 * each, Slots: 10}, [2]time.Duration{0, 20 * each}},
		{weir.SlidingLog{Limit: 10, Window: 10 * each}, [2]time.Duration{0, 10 * each}},
	} {
		for i, stays := range c.stays {
			l, clock := onClock(t, c.limit)
			clock.Set(int64(time.Second))
			l.Take(10)
			before := l.Peek(1).RetryAfter
			var all []weir.Reservation
			for range 30 {
				r, ok := l.Reserve(1, -1)
				if !ok {
					t.Fatalf("%+v: %+v", c.limit, r.Decision())
				}
				all = append(all, r)
			}
			if i == 0 {
				slices.Reverse(all)
			}
			for _, r := range all {
				r.Cancel()
			}
			if got := l.Peek(1).RetryAfter - before; got != stays {
				t.Errorf("%T, newest first %v: the next request is admitted %v later than without them, want %v", c.limit, i == 0, got, stays)
			}
		}
	}
}
