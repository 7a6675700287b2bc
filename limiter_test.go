package weir_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirflow/weir"
	"github.com/weirflow/weir/weirtest"
)

func newLimiter(t testing.TB, l weir.Limit, opts ...weir.Option) *weir.Limiter {
	t.Helper()
	lim, err := weir.New(l, opts...)
	if err != nil {
		t.Fatal(err)
	}
	return lim
}

func onClock(t testing.TB, l weir.Limit) (*weir.Limiter, *weirtest.Clock) {
	c := new(weirtest.Clock)
	return newLimiter(t, l, weir.WithClock(c.Now), weir.WithTimers(c.AfterFunc)), c
}

func TestNamed(t *testing.T) {
	l := newLimiter(t, weir.TokenBucket{Rate: weir.PerSecond(1), Burst: 1}, weir.Named("login"))
	if d := l.Take(1); d.By != "login" || d.Source != weir.SourceLocal || d.Source.String() != "local" {
		t.Errorf("%+v", d)
	}
	if d := l.Take(5); d.By != "login" || d.RetryAfter != weir.Never {
		t.Errorf("%+v", d)
	}
	if !weir.Equal(l.Limit(), weir.TokenBucket{Rate: weir.PerSecond(1), Burst: 1}) {
		t.Errorf("%+v", l.Limit())
	}
}

// TestNeverOverOnAllCores: whatever the schedule, what was admitted stays within burst + rate * the time between two readings.
func TestNeverOverOnAllCores(t *testing.T) {
	l := newLimiter(t, weir.TokenBucket{Rate: weir.PerSecond(200_000), Burst: 50})
	var admitted atomic.Int64
	var wg sync.WaitGroup
	start := time.Now()
	for range 8 {
		wg.Go(func() {
			for range 40_000 {
				if l.Allow() {
					admitted.Add(1)
				}
			}
		})
	}
	wg.Wait()
	if bound := 50 + int64(200_000*time.Since(start).Seconds()); admitted.Load() > bound {
		t.Errorf("%d admitted, at most %d are within the limit", admitted.Load(), bound)
	}
}

// TestSetLimitBesideTake: the clock stands still, so exactly one burst is there, however often the rate changes meanwhile.
func TestSetLimitBesideTake(t *testing.T) {
	const burst = 50_000
	l, _ := onClock(t, weir.TokenBucket{Rate: weir.PerSecond(3), Burst: burst})
	var admitted atomic.Int64
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			for range burst / 3 {
				if l.Allow() {
					admitted.Add(1)
				}
			}
		})
	}
	wg.Go(func() {
		for i := range 3000 {
			// The waits for one token are whole multiples of each other, so that no rounding hides a lost charge.
			rate := []weir.Rate{weir.PerSecond(3), weir.PerMinute(3), weir.PerHour(3), weir.PerSecond(999999937)}[i%3]
			if err := l.SetLimit(weir.TokenBucket{Rate: rate, Burst: burst}); err != nil {
				t.Error(err)
			}
		}
	})
	wg.Wait()
	for l.Allow() {
		admitted.Add(1)
	}
	if admitted.Load() != burst {
		t.Errorf("%d admitted of a burst of %d", admitted.Load(), burst)
	}
}

func TestNothingAllocates(t *testing.T) {
	l := newLimiter(t, weir.TokenBucket{Rate: weir.PerSecond(1e9), Burst: 1e9})
	denied := newLimiter(t, weir.TokenBucket{Rate: weir.PerDay(1), Burst: 1})
	denied.Allow()
	ctx := t.Context()
	for name, f := range map[string]func(){
		"Allow":          func() { l.Allow() },
		"Take":           func() { l.Take(2) },
		"Take, refused":  func() { denied.Take(1) },
		"Take, never":    func() { denied.Take(2) },
		"Peek":           func() { l.Peek(2) },
		"Reserve":        func() { l.Reserve(1, 0) },
		"Reserve+Settle": func() { r, _ := l.Reserve(5, -1); r.Settle(2) },
		"Reserve+Cancel": func() { r, _ := l.Reserve(5, -1); r.Cancel() },
		"Wait, at once":  func() { l.Wait(ctx, 1) },
	} {
		if n := testing.AllocsPerRun(2000, f); n != 0 {
			t.Errorf("%s: %v allocations", name, n)
		}
	}
	slow := newLimiter(t, weir.TokenBucket{Rate: weir.PerSecond(20_000), Burst: 1})
	if n := testing.AllocsPerRun(200, func() { slow.Wait(ctx, 1) }); n > 1 { // the timer's own goroutine
		t.Errorf("Wait, having to wait: %v allocations", n)
	}
}

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
			t.Errorf("%+v", limited.Decision) // the same Wait succeeds 1 ms later: the deadline moves with it
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

// TestLeavingMovesTheOthersUp is rule 2: a cancelled wait gives back exactly what it would have taken.
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
		time.Sleep(50 * ms)
		leave()
		if err := <-left; err != context.Canceled {
			t.Errorf("the one who left: %v", err)
		}
		if after := <-served; after != 100*ms {
			t.Errorf("the one behind was served after %v, want 100ms", after)
		}
		time.Sleep(900 * ms)
		if d := l.Peek(1); d.Remaining != 9 { // ten came in, one was taken
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
				if leaves { // without a deadline that would be known at the start
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
		// While anyone waits nothing is left over: the i-th is served exactly when its token comes.
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

func TestReservation(t *testing.T) {
	l, c := onClock(t, weir.TokenBucket{Rate: weir.PerSecond(10), Burst: 3})
	first, ok := l.Reserve(3, 0)
	if !ok || first.Delay() != 0 || !first.Decision().Allowed {
		t.Fatalf("%+v", first)
	}
	second, ok := l.Reserve(2, -1)
	if !ok || second.Delay() != 200*ms {
		t.Fatalf("delay %v", second.Delay())
	}
	if r, ok := l.Reserve(1, 299*ms); ok || r.Delay() != 1*ms {
		t.Errorf("a delay of 300ms was accepted within 299: %v, %v", ok, r.Delay())
	}
	if r, ok := l.Reserve(4, -1); ok || r.Delay() != weir.Never {
		t.Errorf("above the capacity: %v, %v", ok, r.Delay())
	}
	if r, ok := l.Reserve(-1, -1); ok || r.Delay() != weir.Never {
		t.Errorf("a negative cost: %v, %v", ok, r.Delay())
	}
	second.Cancel()
	if d := l.Peek(1); d.RetryAfter != 100*ms {
		t.Errorf("after the cancel: %+v", d)
	}
	second.Cancel() // later ones do nothing
	second.Settle(3)
	if d := l.Peek(1); d.RetryAfter != 100*ms {
		t.Errorf("after the second cancel: %+v", d)
	}
	c.Set(int64(100 * ms))
	first.Settle(5) // two more than reserved: into debt
	if d := l.Peek(1); d.RetryAfter != 200*ms || d.Remaining != 0 {
		t.Errorf("after settling more: %+v", d)
	}
	third, _ := l.Reserve(3, -1)
	third.Settle(-1) // no cost: it stays open
	third.Settle(1)
	if d := l.Peek(1); d.RetryAfter != 300*ms {
		t.Errorf("after settling less: %+v", d)
	}
	nothing, ok := l.Reserve(0, 0) // nothing known ahead, everything afterwards
	if !ok {
		t.Fatal("a reservation of 0 was refused")
	}
	nothing.Settle(2)
	if d := l.Peek(1); d.RetryAfter != 500*ms {
		t.Errorf("after settling what was not reserved: %+v", d)
	}
	var zero weir.Reservation
	zero.Cancel()
}

// TestTrapsOfCancel are the two ways to admit too much that SEMANTICS names.
func TestTrapsOfCancel(t *testing.T) {
	l, _ := onClock(t, weir.TokenBucket{Rate: weir.PerSecond(1), Burst: 1})
	l.Allow()
	one, _ := l.Reserve(1, -1)
	two, _ := l.Reserve(1, -1)
	one.Cancel()
	if r, _ := l.Reserve(1, -1); r.Delay() == two.Delay() {
		t.Errorf("two may go after %v", r.Delay())
	}

	l, c := onClock(t, weir.TokenBucket{Rate: weir.PerSecond(1), Burst: 10})
	first, _ := l.Reserve(10, 0)
	c.Set(int64(10 * sec))
	l.Take(10)
	first.Cancel()
	if d := l.Take(1); d.Allowed {
		t.Error("what had been refilled was given back too")
	}
}

func TestFirstSettleWinsOnAllCores(t *testing.T) {
	l, _ := onClock(t, weir.TokenBucket{Rate: weir.PerSecond(1), Burst: 1000})
	for range 200 {
		r, _ := l.Reserve(5, 0)
		var wg sync.WaitGroup
		for range 4 {
			wg.Go(r.Cancel)
		}
		wg.Wait()
	}
	if d := l.Peek(0); d.Remaining != 1000 {
		t.Errorf("%d of 1000 are left", d.Remaining)
	}
}

func TestReserveComesAfterThoseWhoWait(t *testing.T) {
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
	// The reservation cannot move up, so the second, who leaves, opens no gap that would let two go at once.
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
	now, d := l.Join(1, -1)
	if now == nil || !d.Allowed || now.Delay() != 0 || now.Leave() || now.Err() != nil {
		t.Fatalf("%+v", d)
	}
	<-now.Ready()
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
	if p, _ := l.Join(0, 0); p == nil || p.Delay() != 0 {
		t.Error("no cost has to wait")
	}
}

func TestSetLimitAndThoseWhoWait(t *testing.T) {
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
		// Ten are used of a capacity of five: five come back in 0.5 s, then two more.
		if after := <-small; after != 700*ms {
			t.Errorf("served after %v, want 700ms", after)
		}
	})
}

func TestSetLimitKeepsWhatIsUsed(t *testing.T) {
	l, c := onClock(t, weir.TokenBucket{Rate: weir.PerSecond(1), Burst: 10})
	l.Take(6)
	must := func(next weir.Limit) {
		t.Helper()
		if err := l.SetLimit(next); err != nil {
			t.Fatal(err)
		}
	}
	must(weir.TokenBucket{Rate: weir.PerSecond(1), Burst: 100})
	if d := l.Peek(0); d.Remaining != 94 {
		t.Errorf("raised: %+v", d)
	}
	must(weir.TokenBucket{Rate: weir.PerMinute(1), Burst: 4})
	if d := l.Peek(1); d.Remaining != 0 || d.RetryAfter != 3*time.Minute {
		t.Errorf("lowered below what is used: %+v", d)
	}
	must(weir.TokenBucket{Rate: weir.PerSecond(1), Burst: 10})
	if d := l.Peek(0); d.Remaining != 4 {
		t.Errorf("lowered and raised: %+v", d)
	}
	must(weir.LeakyBucket{Rate: weir.PerSecond(1), Queue: 9, DelayAfter: 9})
	if d := l.Peek(0); d.Remaining != 4 {
		t.Errorf("another kind: %+v", d)
	}
	r, _ := l.Reserve(4, 0)
	must(weir.TokenBucket{Rate: weir.PerHour(1), Burst: 10})
	c.Set(int64(30 * time.Minute))
	r.Cancel() // charged in one era, given back in the next: half a token has come back by itself
	if d := l.Peek(0); d.Remaining != 4 || d.ResetAfter != 5*time.Hour+30*time.Minute {
		t.Errorf("cancelled after a change: %+v", d)
	}
}

// TestLongStoppedProcess: however long nobody noticed that turns had come, no more than a burst and 10 ms leave at once.
func TestLongStoppedProcess(t *testing.T) {
	c := new(weirtest.Clock)
	stopped := new(weirtest.Clock) // its timers do not fire while the process is stopped
	l := newLimiter(t, weir.TokenBucket{Rate: weir.PerSecond(1000), Burst: 5}, weir.WithClock(c.Now), weir.WithTimers(stopped.AfterFunc))
	l.Take(5)
	for range 1000 {
		if p, _ := l.Join(1, -1); p == nil {
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
		if p, _ := l.Join(1, -1); p == nil {
			t.Fatal("not joined")
		}
	}
	for now := int64(0); l.Waiting() > 0; now += int64(1100 * time.Microsecond) { // as if each timer were more than 1 ms late
		c.Set(now)
		l.Peek(1)
		if now > int64(102*ms) {
			t.Fatalf("%d still wait after %v", l.Waiting(), time.Duration(now))
		}
	}
}
