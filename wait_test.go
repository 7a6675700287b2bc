package weir_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirflow/weir"
	"github.com/weirflow/weir/weirtest"
)

func TestWaitServesInOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLimiter(t, weir.TokenBucket{Rate: weir.PerSecond(10), Burst: 2})
		start := time.Now()
		type done struct {
			who   int
			after time.Duration
		}
		var mu sync.Mutex
		var order []done
		var wg sync.WaitGroup
		for who := range 5 {
			wg.Go(func() {
				if err := l.Wait(t.Context(), 1); err != nil {
					t.Error(err)
				}
				mu.Lock()
				defer mu.Unlock()
				order = append(order, done{who, time.Since(start)})
			})
			synctest.Wait()
		}
		if l.Waiting() != 3 {
			t.Errorf("%d wait", l.Waiting())
		}
		wg.Wait()
		want := []done{{0, 0}, {1, 0}, {2, 100 * ms}, {3, 200 * ms}, {4, 300 * ms}}
		if !slices.Equal(order, want) {
			t.Errorf("got %v, want %v", order, want)
		}
	})
}

func TestWaitRefusesAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLimiter(t, weir.TokenBucket{Rate: weir.PerSecond(10), Burst: 1}, weir.Named("api"))
		start := time.Now()
		l.Allow()
		ctx, cancel := context.WithTimeout(t.Context(), 99*ms)
		defer cancel()

		err := l.Wait(ctx, 1)
		var limited *weir.LimitedError
		if !errors.Is(err, weir.ErrLimited) || !errors.Is(err, context.DeadlineExceeded) || !errors.As(err, &limited) {
			t.Fatalf("got %v", err)
		}
		if limited.Decision.By != "api" || limited.Decision.RetryAfter != 1*ms {
			t.Errorf("%+v", limited.Decision) // the same Wait succeeds 1 ms later, because the deadline moves with it
		}
		if err := l.Wait(t.Context(), 2); !errors.Is(err, weir.ErrLimited) || errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("above the capacity: %v", err)
		}
		if err := l.Wait(ctx, -1); !errors.Is(err, weir.ErrCost) {
			t.Errorf("a negative cost: %v", err)
		}
		if err := l.Wait(ctx, 0); err != nil {
			t.Errorf("no cost: %v", err)
		}
		gone, leave := context.WithCancel(t.Context())
		leave()
		if err := l.Wait(gone, 1); err != context.Canceled {
			t.Errorf("a context that is done: %v", err)
		}
		if time.Since(start) != 0 {
			t.Errorf("%v went by", time.Since(start))
		}

		exact, cancel2 := context.WithTimeout(t.Context(), 100*ms)
		defer cancel2()
		if err := l.Wait(exact, 1); err != nil || time.Since(start) != 100*ms {
			t.Errorf("a deadline at the very turn: %v after %v", err, time.Since(start))
		}
		if d := l.Take(1); d.Allowed || d.RetryAfter != 100*ms {
			t.Errorf("%+v", d)
		}
	})
}

// TestLeavingMovesTheOthersUp is rule 2: a cancelled wait has charged nothing, and the waiters
// behind it move up.
func TestLeavingMovesTheOthersUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLimiter(t, weir.TokenBucket{Rate: weir.PerSecond(10), Burst: 10})
		start := time.Now()
		l.Take(10)
		big, leave := context.WithCancel(t.Context())
		left := make(chan error, 1)
		go func() { left <- l.Wait(big, 10) }()
		synctest.Wait()
		served := make(chan time.Duration, 1)
		go func() {
			if err := l.Wait(t.Context(), 1); err != nil {
				t.Error(err)
			}
			served <- time.Since(start)
		}()
		synctest.Wait()
		if d := l.Take(1); d.Allowed || d.RetryAfter != 1200*ms || d.Remaining != 0 {
			t.Errorf("while others wait: %+v", d)
		}
		<-time.After(50 * ms)
		leave()
		if err := <-left; err != context.Canceled {
			t.Errorf("the one who left: %v", err)
		}
		if after := <-served; after != 100*ms {
			t.Errorf("the one behind was served after %v, want 100ms", after)
		}
		<-time.After(900 * ms)
		if d := l.Peek(1); d.Remaining != 9 { // ten came, one was taken
			t.Errorf("%+v", d)
		}
	})
}

func TestThousandsWaitAndLeave(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const rate, burst = 1000, 7
		l := newLimiter(t, weir.TokenBucket{Rate: weir.PerSecond(rate), Burst: burst})
		start := time.Now()
		var mu sync.Mutex
		var served []time.Duration
		var wg sync.WaitGroup
		r := rand.New(rand.NewPCG(1, 1))
		for range 3000 {
			patience := time.Duration(r.IntN(4000)) * ms
			leaves := r.IntN(2) == 0
			wg.Go(func() {
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				if leaves { // without a deadline that is known at the start
					defer time.AfterFunc(patience, cancel).Stop()
				}
				switch err := l.Wait(ctx, 1); err {
				case nil:
					mu.Lock()
					served = append(served, time.Since(start))
					mu.Unlock()
				case context.Canceled:
				default:
					t.Error(err)
				}
			})
		}
		wg.Wait()
		if l.Waiting() != 0 {
			t.Errorf("%d still wait", l.Waiting())
		}
		// While there are waiters, no token is left over: the i-th is served exactly when its token
		// comes.
		slices.Sort(served)
		for i, at := range served {
			if want := max(0, time.Duration(i+1-burst)) * sec / rate; at != want {
				t.Fatalf("number %d was served at %v, want %v", i, at, want)
			}
		}
		if len(served) < 1500 {
			t.Errorf("only %d were served", len(served))
		}
	})
}

func TestLeakyBucketQueues(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLimiter(t, weir.LeakyBucket{Rate: weir.PerSecond(10), Queue: 2})
		start := time.Now()
		var wg sync.WaitGroup
		var mu sync.Mutex
		var at []time.Duration
		refused := 0
		for range 5 {
			wg.Go(func() {
				err := l.Wait(t.Context(), 1)
				mu.Lock()
				defer mu.Unlock()
				if err == nil {
					at = append(at, time.Since(start))
				} else if errors.Is(err, weir.ErrLimited) && !errors.Is(err, context.DeadlineExceeded) {
					refused++
				} else {
					t.Error(err)
				}
			})
		}
		wg.Wait()
		if want := []time.Duration{0, 100 * ms, 200 * ms}; !slices.Equal(at, want) || refused != 2 {
			t.Errorf("served at %v, %d refused", at, refused)
		}
	})
}

func TestReserveComesAfterWaiters(t *testing.T) {
	l, c := onClock(t, weir.TokenBucket{Rate: weir.PerSecond(10), Burst: 1})
	l.Allow()
	first, _ := l.Join(1, -1)
	second, _ := l.Join(1, -1)
	r, ok := l.Reserve(1, -1)
	if !ok || first.Delay() != 100*ms || second.Delay() != 200*ms || r.Delay() != 300*ms {
		t.Fatalf("delays %v, %v, %v", first.Delay(), second.Delay(), r.Delay())
	}
	last, _ := l.Join(1, -1)
	if last.Delay() != 400*ms {
		t.Errorf("delay %v", last.Delay())
	}
	// The reservation cannot move up. So when the second waiter leaves, there is no gap in which
	// two could go at once.
	second.Leave()
	for now := range int64(10) {
		c.Set(now * int64(50*ms))
		for _, p := range []struct {
			*weir.Place
			turn int64
		}{{first, 2}, {last, 8}} {
			select {
			case <-p.Ready():
				if now < p.turn {
					t.Errorf("served at %v", time.Duration(c.Now()))
				}
			default:
				if now >= p.turn {
					t.Errorf("not served at %v", time.Duration(c.Now()))
				}
			}
		}
	}
}

func TestJoin(t *testing.T) {
	l, c := onClock(t, weir.LeakyBucket{Rate: weir.PerSecond(10), Queue: 1})
	if p, d := l.Join(1, -1); p != nil || !d.Allowed {
		t.Fatalf("a turn at once: %+v", d)
	}
	next, d := l.Join(1, -1)
	if next == nil || next.Delay() != 100*ms || d.Remaining != 0 {
		t.Fatalf("%+v", d)
	}
	if p, d := l.Join(1, -1); p != nil || d.Allowed || d.RetryAfter != 100*ms {
		t.Errorf("a full queue was joined: %+v", d)
	}
	if p, d := l.Join(-1, -1); p != nil || d.RetryAfter != weir.Never {
		t.Errorf("a negative cost: %+v", d)
	}
	if !next.Leave() || next.Leave() || l.Waiting() != 0 {
		t.Error("leaving does not say whether it was in time")
	}
	<-next.Ready()
	again, _ := l.Join(1, -1)
	c.Set(int64(100 * ms))
	<-again.Ready()
	if again.Leave() || again.Err() != nil {
		t.Error("one who was served left in time")
	}
	if p, d := l.Join(0, 0); p != nil || !d.Allowed {
		t.Error("no cost has to wait")
	}
	if d := l.PeekJoin(1, -1); !d.Allowed || l.Waiting() != 0 {
		t.Errorf("looking at the queue: %+v", d)
	}
}

func TestSetLimitWithWaiters(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLimiter(t, weir.TokenBucket{Rate: weir.PerSecond(1), Burst: 10})
		start := time.Now()
		l.Take(10)
		big := make(chan error, 1)
		go func() { big <- l.Wait(t.Context(), 10) }()
		synctest.Wait()
		small := make(chan time.Duration, 1)
		go func() {
			if err := l.Wait(t.Context(), 2); err != nil {
				t.Error(err)
			}
			small <- time.Since(start)
		}()
		synctest.Wait()
		if err := l.SetLimit(weir.TokenBucket{Rate: weir.PerSecond(1)}); err == nil {
			t.Error("a wrong limit was accepted")
		}
		if err := l.SetLimit(weir.TokenBucket{Rate: weir.PerSecond(10), Burst: 5}); err != nil {
			t.Error(err)
		}
		if err := <-big; !errors.Is(err, weir.ErrLimited) || time.Since(start) != 0 {
			t.Errorf("a cost that fits no more: %v after %v", err, time.Since(start))
		}
		// Ten are used of a capacity of five: five of them refill in 0.5 s, then two more.
		if after := <-small; after != 700*ms {
			t.Errorf("served after %v, want 700ms", after)
		}
	})
}

// TestLongStoppedProcess: however late turns are noticed, at most a burst and 10 ms of the rate go
// at once.
func TestLongStoppedProcess(t *testing.T) {
	c := new(weirtest.Clock)
	stopped := new(weirtest.Clock) // its timers do not fire while the process is stopped
	l := newLimiter(t, weir.TokenBucket{Rate: weir.PerSecond(1000), Burst: 5}, weir.WithClock(c.Now), weir.WithTimers(stopped.AfterFunc))
	l.Take(5)
	for range 1000 {
		if _, d := l.Join(1, -1); !d.Allowed {
			t.Fatal("not joined")
		}
	}
	c.Set(int64(10 * sec))
	l.Peek(1)
	if left := 1000 - l.Waiting(); left != 15 {
		t.Errorf("%d left at once, want a burst of 5 and 10 ms of the rate", left)
	}
}

func TestLateTimersLoseNothing(t *testing.T) {
	c := new(weirtest.Clock)
	never := new(weirtest.Clock)
	l := newLimiter(t, weir.TokenBucket{Rate: weir.PerSecond(100_000), Burst: 1}, weir.WithClock(c.Now), weir.WithTimers(never.AfterFunc))
	for range 10_001 {
		if _, d := l.Join(1, -1); !d.Allowed {
			t.Fatal("not joined")
		}
	}
	for now := int64(0); l.Waiting() > 0; now += int64(1100 * time.Microsecond) { // as if each timer fired more than 1 ms late
		c.Set(now)
		l.Peek(1)
		if now > int64(102*ms) {
			t.Fatalf("%d still wait after %v", l.Waiting(), time.Duration(now))
		}
	}
}
