package weir_test

import (
	"math"
	"sync"
	"sync/atomic"
	"testing"
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

// TestNeverOverOnAllCores: whatever the schedule, at most burst + rate * time is admitted between
// two readings.
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

// TestSetLimitBesideTake: the clock stands still, so exactly one burst is admitted, however often
// the rate changes.
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
			// Tokens take whole multiples of each other's times, so that no rounding hides a lost
			// charge.
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
	if n := testing.AllocsPerRun(200, func() { slow.Wait(ctx, 1) }); n > 1 { // one allocation: the goroutine of the timer
		t.Errorf("Wait, having to wait: %v allocations", n)
	}
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
	third.Settle(-1) // a negative cost does nothing: it stays open
	third.Settle(1)
	if d := l.Peek(1); d.RetryAfter != 300*ms {
		t.Errorf("after settling less: %+v", d)
	}
	nothing, ok := l.Reserve(0, 0) // nothing reserved ahead, and everything charged afterwards
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

// TestTrapsOfCancel has the two wrong refund rules of docs/guarantees.md, and one that the search in
// proof/ found. Each would admit too much.
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

	// Released one per second, none undelayed: the room that the three cancelled ones leave is not
	// for others while one that was promised a time behind them still waits.
	l, c = onClock(t, weir.LeakyBucket{Rate: weir.PerSecond(1), Queue: 2})
	three, _ := l.Reserve(3, 0)
	c.Set(int64(1 * sec))
	if behind, ok := l.Reserve(1, -1); !ok || behind.Delay() != 2*sec {
		t.Fatalf("delay %v", behind.Delay())
	}
	c.Set(int64(2 * sec))
	three.Cancel()
	c.Set(int64(3 * sec))
	if d := l.Take(3); d.Allowed || d.RetryAfter != 1*sec {
		t.Errorf("at the moment at which the one behind goes: %+v", d)
	}
}

// TestWordAfterJumpsOfTheClock: the clock jumps by decades, and the word still decides as the rule does.
// TestCancelGivesBackForever: the total given back may exceed what the clock can count.
func TestCancelGivesBackForever(t *testing.T) {
	for _, l := range []weir.Limit{
		weir.TokenBucket{Rate: weir.Rate{N: 1, Per: 50 * 365 * 24 * time.Hour}, Burst: 2},
		weir.LeakyBucket{Rate: weir.Rate{N: 1, Per: 50 * 365 * 24 * time.Hour}, Queue: 1, DelayAfter: 1},
	} {
		lim, _ := onClock(t, l)
		lim.Take(1)
		for i := range 100 { // 5000 years
			r, ok := lim.Reserve(1, 0)
			if !ok {
				t.Fatalf("%+v: the cancel before reservation %d gave nothing back: %+v", l, i, r.Decision())
			}
			r.Cancel()
		}
		if d := lim.Peek(0); d.Remaining != 1 {
			t.Errorf("%+v: %+v", l, d)
		}
	}
}

func TestWordAfterJumpsOfTheClock(t *testing.T) {
	const size, far = 1 << 30, 1 << 60 // a full bucket is worth 36 years
	limit := weir.TokenBucket{Rate: weir.Rate{N: 1, Per: 1 << 30}, Burst: size}
	for _, origin := range []int64{0, math.MaxInt64 - 2*far, math.MaxInt64 - 4*far} {
		var c weirtest.Clock
		c.Set(origin)
		l := newLimiter(t, limit, weir.WithClock(c.Now))
		m := weirtest.NewModel(limit, 1)
		for _, d := range []int64{far / 2, far, far, -far, -far / 2, far} {
			for _, cost := range []int64{1, size} {
				c.Set(origin + d)
				if got, want := l.Take(cost), m.Take(c.Now(), cost); got != want {
					t.Errorf("%d at %d from %d: got %+v, want %+v", cost, d, origin, got, want)
				}
			}
		}
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
	r.Cancel() // charged under one version of the limit, given back under the next: half a token has come back by itself
	if d := l.Peek(0); d.Remaining != 4 || d.ResetAfter != 5*time.Hour+30*time.Minute {
		t.Errorf("cancelled after a change: %+v", d)
	}
}

// TestConvertToAnEqualLimit: converting a state to an equal limit moved its time to that of the change,
// so that after a later step back of the clock more seemed used than was.
func TestConvertToAnEqualLimit(t *testing.T) {
	prepare := func(l weir.Limit) weir.Prepared {
		t.Helper()
		p, err := weir.Prepare(l, 1)
		if err != nil {
			t.Fatal(err)
		}
		return p
	}
	from, same := prepare(weir.LeakyBucket{Rate: weir.Rate{N: 3, Per: 1}, Queue: 3}), prepare(weir.LeakyBucket{Rate: weir.Rate{N: 9, Per: 3}, Queue: 3})
	state, _ := from.Step(nil, 0, 1)
	want := from.Peek(state, 0, 3)
	if got := same.Peek(from.Convert(state, 100, same, 100), 0, 3); got != want {
		t.Errorf("got %+v, want %+v", got, want)
	}
}
