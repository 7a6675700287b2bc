package weir_test

import (
	"math"
	"strings"
	"testing"
	"time"

	"github.com/weirflow/weir"
)

// tick is one call of Step: a reading, a cost, and the expected decision.
type tick struct {
	at, cost  int64
	allowed   bool
	remaining int64
	retry     time.Duration
	reset     time.Duration
}

func runTicks(t *testing.T, l weir.Limit, unit time.Duration, ticks []tick) {
	t.Helper()
	var state []int64
	for i, c := range ticks {
		var d weir.Decision
		before := append([]int64(nil), state...)
		state, d = weir.Step(l, state, c.at, c.cost, unit)
		want := weir.Decision{Allowed: c.allowed, Limit: d.Limit, Remaining: c.remaining, RetryAfter: c.retry, ResetAfter: c.reset}
		if d != want {
			t.Errorf("%v, step %d (%d at %d):\ngot  %+v\nwant %+v", l, i, c.cost, c.at, d, want)
		}
		if !d.Allowed && len(before) > 0 && !equalWords(before, state) {
			t.Errorf("%v, step %d: a refusal wrote %v over %v", l, i, state, before)
		}
	}
}

func equalWords(a, b []int64) bool {
	if len(a) != len(b) {
		return false
	}
	for i := range a {
		if a[i] != b[i] {
			return false
		}
	}
	return true
}

const (
	ms  = time.Millisecond
	sec = time.Second
)

func TestTokenBucket(t *testing.T) {
	runTicks(t, weir.TokenBucket{Rate: weir.PerSecond(10), Burst: 3}, 1, []tick{
		{0, 3, true, 0, 0, 300 * ms},
		{0, 1, false, 0, 100 * ms, 300 * ms},
		{0, 0, true, 0, 0, 300 * ms},                      // a cost of 0 charges nothing
		{int64(99 * ms), 1, false, 0, 1 * ms, 201 * ms},   // the instant before
		{int64(100 * ms), 1, true, 0, 0, 300 * ms},        // the instant itself
		{int64(50 * ms), 1, false, 0, 150 * ms, 350 * ms}, // the clock stepped back: no tokens for it
		{int64(200 * ms), 1, true, 0, 0, 300 * ms},        // and nothing lost
		{int64(10 * sec), 4, false, 3, weir.Never, 0},     // never fits
		{int64(10 * sec), -1, false, 3, weir.Never, 0},    // a negative cost is refused
		{int64(10 * sec), math.MinInt64, false, 3, weir.Never, 0},
		{int64(10 * sec), math.MaxInt64, false, 3, weir.Never, 0},
		{int64(10 * sec), 2, true, 1, 0, 200 * ms},
	})
}

func TestTokenBucketStartsAsItSays(t *testing.T) {
	runTicks(t, weir.TokenBucket{Rate: weir.PerSecond(1), Burst: 5, Initial: 2}, 1, []tick{
		{7, 0, true, 2, 0, 3 * sec},
		{7, 3, false, 2, 1 * sec, 3 * sec}, // the first call's state is kept even if the call is refused
		{7 + int64(sec), 3, true, 0, 0, 5 * sec},
	})
	runTicks(t, weir.TokenBucket{Rate: weir.PerSecond(1), Burst: 5, Initial: weir.InitialEmpty}, 1, []tick{
		{0, 1, false, 0, 1 * sec, 5 * sec},
		{int64(sec), 1, true, 0, 0, 5 * sec},
	})
}

// TestFractionsAreCarried is rule 3: 3/s is not 333333333 ns a token. Ten million tokens later it
// is still exact.
func TestFractionsAreCarried(t *testing.T) {
	l := weir.TokenBucket{Rate: weir.PerSecond(3), Burst: 1}
	var state []int64
	now := int64(0)
	for i := range int64(100_000) {
		var d weir.Decision
		state, d = weir.Step(l, state, now, 1, 1)
		if !d.Allowed {
			t.Fatalf("token %d at %d is refused: %+v", i, now, d)
		}
		_, d = weir.Step(l, append([]int64(nil), state...), now, 1, 1)
		next := now + int64(d.RetryAfter)
		// If each token is taken as soon as it is there, the i-th goes at the first nanosecond not
		// before i/3 s. Each reading is rounded up by less than 1 ns, and the bucket is full then,
		// so the model counts the next token from the reading.
		if exact := now + 333333334; next != exact {
			t.Fatalf("token %d at %d: the next at %d, want %d", i, now, next, exact)
		}
		if _, d = weir.Step(l, append([]int64(nil), state...), next-1, 1, 1); d.Allowed {
			t.Fatalf("token %d is there a nanosecond too early", i+1)
		}
		now = next
	}
	// With a burst that holds what refills between readings, nothing is lost: 3 per second for a
	// day, read once a second.
	l.Burst = 4
	state = nil
	taken := int64(0)
	for s := range int64(86400) {
		for {
			var d weir.Decision
			if state, d = weir.Step(l, state, s*int64(sec), 1, 1); !d.Allowed {
				break
			}
			taken++
		}
	}
	if want := 4 + 3*int64(86399); taken != want {
		t.Errorf("%d tokens in a day, want %d", taken, want)
	}
}

func TestExtremeRates(t *testing.T) {
	for _, c := range []struct {
		rate weir.Rate
		one  time.Duration // the wait for one token, rounded up
	}{
		{weir.PerDay(1), 24 * time.Hour},
		{weir.PerSecond(1e9), 1},
		{weir.PerSecond(999999937), 2},
		{weir.PerSecond(math.MaxInt64), 1},
		{weir.Rate{N: math.MaxInt64, Per: 1}, 1},
		{weir.Rate{N: 1, Per: 36525 * 24 * time.Hour}, 36525 * 24 * time.Hour},
	} {
		l := weir.TokenBucket{Rate: c.rate, Burst: 1}
		runTicks(t, l, 1, []tick{
			{0, 1, true, 0, 0, c.one},
			{0, 1, false, 0, c.one, c.one},
			{int64(c.one) - 1, 1, false, 0, 1, 1},
			{int64(c.one), 1, true, 0, 0, c.one},
		})
	}
}

func TestOneMicrosecondUnits(t *testing.T) {
	runTicks(t, weir.TokenBucket{Rate: weir.PerSecond(3), Burst: 1}, time.Microsecond, []tick{
		{1e15, 1, true, 0, 0, 333334 * time.Microsecond},
		{1e15 + 333333, 1, false, 0, 1 * time.Microsecond, 1 * time.Microsecond},
		{1e15 + 333334, 1, true, 0, 0, 333334 * time.Microsecond},
	})
}

func TestLeakyBucket(t *testing.T) {
	// Take admits only what may go at once. Limit counts the queue, too.
	runTicks(t, weir.LeakyBucket{Rate: weir.PerSecond(10), Queue: 2}, 1, []tick{
		{0, 1, true, 0, 0, 100 * ms},
		{0, 1, false, 0, 100 * ms, 100 * ms},
		{int64(100 * ms), 1, true, 0, 0, 100 * ms},
		{int64(10 * sec), 3, true, 0, 0, 300 * ms}, // its cost takes the whole queue
		{int64(10 * sec), 4, false, 0, weir.Never, 300 * ms},
	})
	// delay=1: one waiting unit passes undelayed.
	runTicks(t, weir.LeakyBucket{Rate: weir.PerSecond(10), Queue: 2, DelayAfter: 1}, 1, []tick{
		{0, 1, true, 2, 0, 100 * ms},
		{0, 1, true, 0, 0, 200 * ms},
		{0, 1, false, 0, 100 * ms, 200 * ms},
		{0, 2, false, 0, 100 * ms, 200 * ms},
		{int64(100 * ms), 2, true, 0, 0, 300 * ms}, // one is ahead, and the queue has room for a cost of 2
	})
	// nodelay: burst+1 at once, without delays.
	runTicks(t, weir.LeakyBucket{Rate: weir.PerSecond(10), Queue: 2, DelayAfter: 2}, 1, []tick{
		{0, 1, true, 2, 0, 100 * ms},
		{0, 1, true, 1, 0, 200 * ms},
		{0, 1, true, 0, 0, 300 * ms},
		{0, 1, false, 0, 100 * ms, 300 * ms},
		{int64(99 * ms), 1, false, 0, 1 * ms, 201 * ms},
		{int64(100 * ms), 1, true, 0, 0, 300 * ms},
	})
	// A large cost may find the queue short enough to go at once, but too full to take its cost.
	runTicks(t, weir.LeakyBucket{Rate: weir.PerSecond(10), Queue: 2, DelayAfter: 1}, 1, []tick{
		{0, 1, true, 2, 0, 100 * ms},
		{0, 3, false, 2, 100 * ms, 100 * ms},
	})
}

func TestInvalidParametersAreNamed(t *testing.T) {
	for _, c := range []struct {
		l    weir.Limit
		want string
	}{
		{nil, "no limit given"},
		{weir.TokenBucket{Burst: 1}, "TokenBucket.Rate: a rate of 0 lets nothing pass"},
		{weir.TokenBucket{Rate: weir.Rate{N: 1}, Burst: 1}, "TokenBucket.Rate: a rate per 0s"},
		{weir.TokenBucket{Rate: weir.PerSecond(-1), Burst: 1}, "TokenBucket.Rate"},
		{weir.TokenBucket{Rate: weir.Unlimited, Burst: 1}, "unlimited is not a rate for this limit"},
		{weir.TokenBucket{Rate: weir.Rate{N: 1, Per: math.MaxInt64}, Burst: 1}, "at most 100 years"},
		{weir.TokenBucket{Rate: weir.PerSecond(1)}, "TokenBucket.Burst: 0 lets nothing pass"},
		{weir.TokenBucket{Rate: weir.PerSecond(1), Burst: -1}, "TokenBucket.Burst"},
		{weir.TokenBucket{Rate: weir.PerSecond(1), Burst: math.MaxInt64}, "more than 100 years"},
		{weir.TokenBucket{Rate: weir.PerSecond(1), Burst: 5, Initial: 6}, "TokenBucket.Initial"},
		{weir.TokenBucket{Rate: weir.PerSecond(1), Burst: 5, Initial: -2}, "TokenBucket.Initial"},
		{weir.LeakyBucket{}, "LeakyBucket.Rate"},
		{weir.LeakyBucket{Rate: weir.PerSecond(1), Queue: -1}, "LeakyBucket.Queue"},
		{weir.LeakyBucket{Rate: weir.PerSecond(1), Queue: math.MaxInt64}, "LeakyBucket.Queue"},
		{weir.LeakyBucket{Rate: weir.PerSecond(1), Queue: math.MaxInt64 - 1}, "more than 100 years"},
		{weir.LeakyBucket{Rate: weir.PerSecond(1), Queue: 3, DelayAfter: 4}, "LeakyBucket.DelayAfter"},
		{weir.LeakyBucket{Rate: weir.PerSecond(1), Queue: 3, DelayAfter: -1}, "LeakyBucket.DelayAfter"},
	} {
		l, err := weir.New(c.l)
		if err == nil || l != nil || !strings.Contains(err.Error(), c.want) || !strings.HasPrefix(err.Error(), "weir: ") {
			t.Errorf("New(%+v): %v, want one with %q", c.l, err, c.want)
		}
		if c.l == nil {
			continue
		}
		if state, d := weir.Step(c.l, []int64{5, 0}, 0, 1, 1); d.Allowed || d.RetryAfter != weir.Never || len(state) != 2 || state[0] != 5 {
			t.Errorf("Step(%+v) = %v, %+v", c.l, state, d)
		}
	}
	good := weir.TokenBucket{Rate: weir.PerSecond(1), Burst: 1}
	for _, state := range [][]int64{{1}, {1, -1}, {1, 1}, {0, 0, -1, 0}, make([]int64, 5)} {
		if _, d := weir.Step(good, state, 0, 1, 1); d.Allowed || d.RetryAfter != weir.Never {
			t.Errorf("the state %v was accepted: %+v", state, d)
		}
	}
	if _, d := weir.Step(good, nil, 0, 1, 0); d.Allowed {
		t.Error("a tick of 0 was accepted")
	}
	if _, d := weir.Step(weir.TokenBucket{Rate: weir.PerSecond(math.MaxInt64), Burst: 1}, nil, 0, 1, 2*sec); d.Allowed {
		t.Error("a rate was accepted that does not fit the tick")
	}
}

func TestEqual(t *testing.T) {
	a := weir.TokenBucket{Rate: weir.PerMinute(60), Burst: 5}
	for _, c := range []struct {
		a, b weir.Limit
		want bool
	}{
		{a, weir.TokenBucket{Rate: weir.PerSecond(1), Burst: 5}, true},
		{a, weir.TokenBucket{Rate: weir.PerSecond(1), Burst: 5, Initial: 5}, true},
		{a, weir.TokenBucket{Rate: weir.PerSecond(1), Burst: 6}, false},
		{a, weir.LeakyBucket{Rate: weir.PerSecond(1), Queue: 4, DelayAfter: 4}, false},
		{nil, nil, true},
		{a, nil, false},
		{weir.TokenBucket{}, weir.TokenBucket{}, true},
	} {
		if got := weir.Equal(c.a, c.b); got != c.want || weir.Equal(c.b, c.a) != got {
			t.Errorf("Equal(%+v, %+v) = %v", c.a, c.b, got)
		}
	}
}
