package weir_test

import (
	"math"
	"math/big"
	"strings"
	"testing"
	"time"

	"github.com/weirflow/weir"
	"github.com/weirflow/weir/weirtest"
)

// TestAnUnlimitedOneThatWasNeverUsedStartsAsAFreshOne: if a limit that was Unlimited and never used
// gets a rate, it is as if created then. A WarmUp was warm, and a SmoothBursty began to store at
// its first call.
func TestAnUnlimitedOneThatWasNeverUsedStartsAsAFreshOne(t *testing.T) {
	for _, c := range []struct{ was, is weir.Limit }{
		{weir.WarmUp{Rate: weir.Unlimited, Period: sec}, weir.WarmUp{Rate: weir.PerSecond(5), Period: sec}},
		{weir.SmoothBursty{Rate: weir.Unlimited}, weir.SmoothBursty{Rate: weir.PerSecond(5)}},
		{weir.TokenBucket{Rate: weir.PerSecond(1), Burst: 1}, weir.SmoothBursty{Rate: weir.PerSecond(5)}},
		{weir.All(weir.WarmUp{Rate: weir.Unlimited, Period: sec}), weir.All(weir.WarmUp{Rate: weir.PerSecond(5), Period: sec})},
	} {
		changed, clock := onClock(t, c.was)
		clock.Set(int64(time.Minute))
		if err := changed.SetLimit(c.is); err != nil {
			t.Fatal(err)
		}
		fresh := newLimiter(t, c.is, weir.WithClock(clock.Now))
		for range 12 {
			if got, want := changed.Take(1), fresh.Take(1); got != want {
				t.Fatalf("%+v at %v: got %+v, want %+v", c.is, clock.Now(), got, want)
			}
			clock.Set(clock.Now() + int64(150*ms))
		}
	}
}

// TestAnUnlimitedOneThatWasUsedIsAsGuavas: a used limit that was Unlimited gets a rate. As in
// Guava, a WarmUp is then warm, with nothing stored, and a SmoothBursty is full.
func TestAnUnlimitedOneThatWasUsedIsAsGuavas(t *testing.T) {
	warm, clock := onClock(t, weir.WarmUp{Rate: weir.Unlimited, Period: sec})
	bursty := newLimiter(t, weir.SmoothBursty{Rate: weir.Unlimited}, weir.WithClock(clock.Now))
	for _, l := range []*weir.Limiter{warm, bursty} {
		if d := l.Take(1000); !d.Allowed || d.ResetAfter != 0 {
			t.Errorf("%+v", d)
		}
	}
	if err := warm.SetLimit(weir.WarmUp{Rate: weir.PerSecond(5), Period: sec}); err != nil {
		t.Fatal(err)
	}
	if err := bursty.SetLimit(weir.SmoothBursty{Rate: weir.PerSecond(5)}); err != nil {
		t.Fatal(err)
	}
	if d := warm.Take(1); !d.Allowed || d.Remaining != 0 || warm.Peek(1).RetryAfter != 200*ms {
		t.Errorf("it is to be warm: %+v, %+v", d, warm.Peek(1))
	}
	if d := bursty.Take(5); !d.Allowed || d.Remaining != 0 || bursty.Peek(1).RetryAfter != 0 {
		t.Errorf("it is to be full: %+v, %+v", d, bursty.Peek(1))
	}
}

// TestADebtOfAWarmUpLastsAsLongAsTheClock: settling upwards was cut to 292 years from the reading,
// and a charge at a reading long before the debt's end lost the rest.
func TestADebtOfAWarmUpLastsAsLongAsTheClock(t *testing.T) {
	const early = math.MinInt64 + 5
	l, clock := onClock(t, weir.WarmUp{Rate: weir.Rate{N: 1, Per: 2}, Period: 1})
	clock.Set(early)
	r, ok := l.Reserve(1, 0)
	if !ok {
		t.Fatal(r.Decision())
	}
	r.Settle(math.MaxInt64)
	clock.Set(-10)
	if d := l.Peek(1); d.Allowed || d.RetryAfter != weir.Never || d.ResetAfter != math.MaxInt64 {
		t.Errorf("%+v", d)
	}

	p, err := weir.Prepare(weir.WarmUp{Rate: weir.Rate{N: 1, Per: 1}, Period: 1}, 1)
	if err != nil {
		t.Fatal(err)
	}
	now := int64(math.MaxInt64 - 3*time.Hour.Nanoseconds())
	state, d := p.Step(nil, now, int64(time.Hour)) // a debt of an hour, near the end of the clock
	if !d.Allowed {
		t.Fatalf("%+v", d)
	}
	owed := p.Peek(state, now, 1)
	changed, err := weir.Prepare(weir.WarmUp{Rate: weir.Rate{N: 1, Per: 1}, Period: 2}, 1)
	if err != nil {
		t.Fatal(err)
	}
	state = p.Convert(state, early, changed, early) // the clock has stepped back as far as it can
	if d := changed.Peek(state, now, 1); d.RetryAfter != owed.RetryAfter {
		t.Errorf("%v was owed, and after the change %v", owed.RetryAfter, d.RetryAfter)
	}
}

// TestAnAllIsAsValidAsItsParts: All refused a WarmUp whose times overflow in nanoseconds, but not
// in microseconds.
func TestAnAllIsAsValidAsItsParts(t *testing.T) {
	huge := weir.WarmUp{Rate: weir.Rate{N: 8589934593, Per: time.Microsecond}, Period: 36525 * 24 * time.Hour, ColdFactor: 65535.99999}
	for _, l := range []weir.Limit{huge, weir.All(huge)} {
		_, inNano := weir.Prepare(l, 1)
		_, inMicro := weir.Prepare(l, time.Microsecond)
		if err := l.Validate(); err != nil || inNano == nil || inMicro != nil {
			t.Errorf("%v: %v, %v, %v", l, err, inNano, inMicro)
		}
	}
	wrong := weir.All(huge, weir.TokenBucket{Rate: weir.PerSecond(1)}, weir.Concurrency{Limit: 1})
	if err := wrong.Validate(); err == nil || !strings.Contains(err.Error(), "token_bucket.2.Burst") {
		t.Error(err)
	}
	if err := weir.All(huge, weir.Concurrency{Limit: 1}).Validate(); err == nil || !strings.Contains(err.Error(), "concurrency.2") {
		t.Error(err)
	}
}

// TestAWarmUpEndsWithTheClock: at the last reading of the clock no wait is possible, and any number
// of charges was admitted.
func TestAWarmUpEndsWithTheClock(t *testing.T) {
	for _, now := range []int64{math.MaxInt64, math.MaxInt64 - int64(sec)} {
		var state []int64
		var d weir.Decision
		admitted := 0
		for range 10 {
			if state, d = weir.Step(weir.WarmUp{Rate: weir.PerSecond(1), Period: sec}, state, now, 1, 1); d.Allowed {
				admitted++
			}
		}
		if admitted > 1 || d.RetryAfter == 0 {
			t.Errorf("%d at %d: %+v", admitted, now, d)
		}
	}
}

// TestAWarmUpOfMoreThanCanBeCounted: a WarmUp that stores more permits than an int64 counts seemed
// unused, so a change of algorithm dropped its usage.
func TestAWarmUpOfMoreThanCanBeCounted(t *testing.T) {
	huge := weir.WarmUp{Rate: weir.Rate{N: 1e9, Per: 1}, Period: 400 * 24 * time.Hour, ColdFactor: 1}
	p, err := weir.Prepare(huge, 1)
	if err != nil {
		t.Fatal(err)
	}
	next, err := weir.Prepare(weir.FixedWindow{Limit: 2e9, Window: time.Hour, Align: weir.AlignFirst}, 1)
	if err != nil {
		t.Fatal(err)
	}
	state, d := p.Step(nil, 0, 1e9) // it waits until 1
	if !d.Allowed || d.Limit != math.MaxInt64 {
		t.Fatalf("%+v", d)
	}
	if d := next.Peek(p.Convert(state, 1, next, 1), 1, 1); d.Remaining != 1e9 {
		t.Errorf("1e9 were used: %+v", d)
	}
}

// TestRemainingOfAWarmUpFits: a WarmUp that stores the permits of 150 years had all of them as
// Remaining, but no charge may take more than those of 100 years.
func TestRemainingOfAWarmUpFits(t *testing.T) {
	l := weir.WarmUp{Rate: weir.PerSecond(1), Period: 36525 * 24 * time.Hour, ColdFactor: 1}
	_, d := weir.Step(l, nil, 0, 0, 1)
	if _, d := weir.Step(l, nil, 0, d.Remaining, 1); !d.Allowed {
		t.Errorf("%+v", d)
	}
}

// TestWarmUpOfExtremes makes the same random calls on limits with extreme parameters and on the
// reference model.
func TestWarmUpOfExtremes(t *testing.T) {
	const century = 36525 * 24 * time.Hour
	counted := 0
	for _, rate := range []weir.Rate{{N: 1, Per: century}, {N: 1, Per: 1}, {N: 1e9, Per: 1}, {N: math.MaxInt64, Per: 1}, {N: math.MaxInt64, Per: century}, {N: 999_999_937, Per: 999_983}} {
		for _, period := range []time.Duration{1, 999_983, sec, century} {
			for _, cold := range []float64{1, 1 + 1./65536, 3, 65536} {
				limit := weir.WarmUp{Rate: rate, Period: period, ColdFactor: cold}
				p, err := weir.Prepare(limit, 1)
				if tooMuch := stored(limit).BitLen() > 126; tooMuch || err != nil {
					if !tooMuch || err == nil {
						t.Errorf("%+v: %v", limit, err)
					}
					continue
				}
				counted++
				for _, origin := range []int64{math.MinInt64, 0, math.MaxInt64 - int64(century)} {
					m, state, now := weirtest.NewModel(limit, 1), []int64(nil), origin
					for i, cost := range []int64{1, math.MaxInt64, p.Largest(), 1, math.MaxInt64 - 1, p.Largest(), p.Largest() / 2, 0, -1, math.MinInt64, 3} {
						var d weir.Decision
						state, d = p.Step(state, now, cost)
						if want := m.Take(now, cost); d != want {
							t.Fatalf("%+v: call %d at %d, cost %d:\ngot  %+v\nwant %+v", limit, i, now, cost, d, want)
						}
						if now += []int64{0, 1, int64(sec), int64(century), -int64(sec)}[i%5]; i%3 == 2 && d.RetryAfter > 0 {
							now += int64(d.RetryAfter)
						}
						if i%5 != 4 && now < origin {
							now = math.MaxInt64
						}
					}
				}
			}
		}
	}
	if counted < 60 {
		t.Errorf("only %d of them can be counted", counted)
	}
}

// stored returns the number of parts that a WarmUp's state has.
func stored(l weir.WarmUp) *big.Int {
	rate := big.NewRat(l.Rate.N, int64(l.Rate.Per)).Num()
	cold := new(big.Rat).SetFloat64(l.ColdFactor)
	parts := new(big.Int).Add(new(big.Int).Mul(big.NewInt(5), cold.Denom()), cold.Num())
	return parts.Mul(parts.Mul(parts, rate), big.NewInt(int64(l.Period)))
}

// TestANeverUsedSmoothBurstyKeepsItsTime: permits are stored from the creation of a limiter on. A
// change of the rate keeps the time during which they were stored, as Guava's setRate does.
func TestANeverUsedSmoothBurstyKeepsItsTime(t *testing.T) {
	for at, want := range map[time.Duration]int64{0: 0, time.Second / 2: 5, time.Second: 10, time.Hour: 10} {
		l, c := onClock(t, weir.SmoothBursty{Rate: weir.PerSecond(5)})
		c.Set(int64(at))
		if err := l.SetLimit(weir.SmoothBursty{Rate: weir.PerSecond(10)}); err != nil {
			t.Fatal(err)
		}
		if d := l.Peek(0); d.Remaining != want {
			t.Errorf("after %v: %+v, want %d remaining", at, d, want)
		}
	}
	l, c := onClock(t, weir.SmoothBursty{Rate: weir.Unlimited})
	c.Set(int64(time.Hour))
	if err := l.SetLimit(weir.SmoothBursty{Rate: weir.PerSecond(10)}); err != nil {
		t.Fatal(err)
	}
	if d := l.Peek(0); d.Remaining != 0 {
		t.Errorf("after an unlimited rate: %+v", d)
	}
}

// TestWarmUpWaitsKeepTheirRemainders: each wait was rounded up to a nanosecond, so at 999,999,937/s
// half of the rate was lost.
func TestWarmUpWaitsKeepTheirRemainders(t *testing.T) {
	l, _ := onClock(t, weir.WarmUp{Rate: weir.PerSecond(3), Period: time.Second, ColdFactor: 1})
	for i, want := range []time.Duration{0, 333_333_334, 666_666_667, time.Second, 1_333_333_334, 1_666_666_667, 2 * time.Second} {
		if r, ok := l.Reserve(1, -1); !ok || r.Delay() != want {
			t.Errorf("reservation %d: %v, %v, want %v", i, r.Delay(), ok, want)
		}
	}
	for _, limit := range []weir.WarmUp{
		{Rate: weir.PerSecond(999_999_937), Period: time.Second, ColdFactor: 1},
		{Rate: weir.PerSecond(999_999_937), Period: time.Millisecond, ColdFactor: 3}, // warm after its first 2 ms
	} {
		l, _ := onClock(t, limit)
		first, _ := l.Reserve(3_000_000, -1) // this makes it warm
		const n = 10_000
		var last weir.Reservation
		for range n + 1 {
			last, _ = l.Reserve(1, -1)
		}
		if took := last.Delay() - first.Delay(); took < n || took > 3_010_000+2_000_000 {
			t.Errorf("%+v: %v", limit, took)
		}
		second, _ := l.Reserve(1, -1)
		for range n - 1 {
			last, _ = l.Reserve(1, -1)
		}
		if took := last.Delay() - second.Delay(); took < n-1 || took > n+1 {
			t.Errorf("%+v: %d permits of a nanosecond took %v", limit, n-1, took)
		}
	}
}

// TestWarmUpIdleTimesRoundOnceEach: each idle time rounds up what is stored once, and delays later
// requests by less than a clock unit.
func TestWarmUpIdleTimesRoundOnceEach(t *testing.T) {
	limit := weir.WarmUp{Rate: weir.PerSecond(7), Period: time.Second}
	exact, rounded := weirtest.NewModel(limit, time.Nanosecond), weirtest.NewModel(limit, time.Microsecond)
	const rounds = 500
	for i := range int64(rounds) { // each request comes after an idle time
		now := i * 150_000_000
		a, b := exact.Take(now, 1), rounded.Take(now/1000, 1)
		if a.Allowed != b.Allowed {
			t.Fatalf("request %d: %+v, %+v", i, a, b)
		}
		if apart := b.ResetAfter - a.ResetAfter; apart < -time.Duration(i+1)*time.Microsecond || apart > time.Duration(i+2)*time.Microsecond {
			t.Fatalf("request %d: %v apart", i, apart)
		}
	}
}

// TestSettledAboveBeforeACancel: work that a Settle charges on top of an estimate is already done.
// It was treated as if it waited for a later reservation, and kept that wait when the reservation
// was cancelled.
func TestSettledAboveBeforeACancel(t *testing.T) {
	limit := weir.WarmUp{Rate: weir.PerSecond(3), Period: 4 * time.Second}
	l, c := onClock(t, limit)
	without, d := onClock(t, limit)
	at := func(now time.Duration) { c.Set(int64(now)); d.Set(int64(now)) }
	first, _ := l.Reserve(1, 0)
	alone, _ := without.Reserve(1, 0)
	at(2 * time.Second)
	second, ok := l.Reserve(9, 0)
	if !ok {
		t.Fatalf("%+v", second.Decision())
	}
	first.Settle(4)
	alone.Settle(4)
	second.Cancel()
	for _, now := range []time.Duration{2 * time.Second, 3 * time.Second, 10 * time.Second} {
		if at(now); l.Peek(1) != without.Peek(1) {
			t.Errorf("at %v: %+v, without the cancelled reservation %+v", now, l.Peek(1), without.Peek(1))
		}
	}
}

// TestAFullWarmUpThatBecomesUnlimited: a full WarmUp that becomes Unlimited is as an unused one,
// because tables and stores drop full states. With a rate again, it is cold.
func TestAFullWarmUpThatBecomesUnlimited(t *testing.T) {
	finite, endless := weir.WarmUp{Rate: weir.PerSecond(5), Period: sec}, weir.WarmUp{Rate: weir.Unlimited, Period: sec}
	for _, c := range []struct{ is, without weir.Limit }{
		{finite, endless},
		{weir.All(finite, weir.TokenBucket{Rate: weir.PerSecond(9), Burst: 100}), weir.All(endless, weir.TokenBucket{Rate: weir.PerSecond(9), Burst: 100})},
	} {
		for _, idle := range []time.Duration{10 * time.Second, 300 * ms} { // full, and not full
			l, clock := onClock(t, c.is)
			l.Take(1)
			clock.Set(int64(idle))
			for _, next := range []weir.Limit{c.without, c.is} {
				if err := l.SetLimit(next); err != nil {
					t.Fatal(err)
				}
			}
			d := l.Take(1)
			fresh := newLimiter(t, c.is, weir.WithClock(clock.Now))
			if want := fresh.Take(1); (d.ResetAfter == want.ResetAfter) != (idle > time.Second) {
				t.Errorf("%T after %v: %+v, a fresh one %+v", c.is, idle, d, want)
			}
		}
	}
}
