package adaptive

import (
	"context"
	"errors"
	"fmt"
	"math"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/weirflow/weir"
	"github.com/weirflow/weir/internal/raced"
)

// clocked returns a limiter and its clock.
func clocked(t *testing.T, a Algorithm) (*Limiter, *int64) {
	t.Helper()
	now := new(int64)
	l, err := New(Options{Algorithm: a, Name: "test", Clock: func() int64 { return *now }})
	if err != nil {
		t.Fatal(err)
	}
	return l, now
}

// rounds sends rounds of requests that fill the limit and take a time.
func rounds(l *Limiter, now *int64, n int, latency time.Duration, o weir.Outcome) {
	for range n {
		var all []Hold
		for h, ok := l.TryEnter(); ok; h, ok = l.TryEnter() {
			all = append(all, h)
		}
		*now += int64(latency)
		for _, h := range all {
			h.Done(o)
		}
	}
}

func TestEnterAndLeave(t *testing.T) {
	l, _ := clocked(t, Knee{Initial: 30})
	var all []Hold
	for range 30 { // more than there are slots
		h, err := l.Enter(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, h)
	}
	_, err := l.Enter(t.Context())
	var limited *weir.LimitedError
	if !errors.As(err, &limited) || !errors.Is(err, weir.ErrLimited) || limited.Decision.By != "test" || limited.Decision.Limit != 30 || limited.Decision.RetryAfter != weir.Never {
		t.Errorf("beyond the limit: %v", err)
	}
	if _, ok := l.TryEnter(); ok || l.InFlight() != 30 {
		t.Errorf("%d in flight, and another was let in: %v", l.InFlight(), ok)
	}
	all[0].Done(weir.OK)
	all[0].Done(weir.Dropped) // has no effect
	all[1].Done(weir.Ignore)
	all[29].Done(weir.Dropped)
	Hold{}.Done(weir.OK)
	if got, want := l.Outcomes(), (Outcomes{OK: 1, Ignored: 1, Dropped: 1, Refused: 2}); got != want || l.InFlight() != 27 {
		t.Errorf("%+v with %d in flight, want %+v with 27", got, l.InFlight(), want)
	}
	again, ok := l.TryEnter()
	all[0].Done(weir.OK) // its place belongs to another now
	if !ok || l.InFlight() != 28 {
		t.Errorf("%d in flight, want 28", l.InFlight())
	}
	again.Done(weir.OK)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := l.Enter(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("with an ended context: %v", err)
	}
}

func TestDoCountsHowItEnds(t *testing.T) {
	l, _ := clocked(t, Knee{})
	other := errors.New("other")
	for _, fails := range []error{nil, context.DeadlineExceeded, fmt.Errorf("busy: %w", weir.ErrLimited), context.Canceled, other} {
		if err := l.Do(t.Context(), func(context.Context) error { return fails }); !errors.Is(err, fails) {
			t.Errorf("%v, want %v", err, fails)
		}
	}
	func() {
		defer func() {
			if recover() != "boom" {
				t.Error("the panic was lost")
			}
		}()
		_ = l.Do(t.Context(), func(context.Context) error { panic("boom") })
	}()
	if got, want := l.Outcomes(), (Outcomes{OK: 1, Ignored: 2, Dropped: 3}); got != want || l.InFlight() != 0 {
		t.Errorf("%+v with %d in flight, want %+v", got, l.InFlight(), want)
	}
	full, _ := clocked(t, Knee{Max: 1})
	full.TryEnter()
	if err := full.Do(t.Context(), func(context.Context) error { t.Error("called"); return nil }); !errors.Is(err, weir.ErrLimited) {
		t.Error(err)
	}
}

// TestIgnoredRequestsChangeNothing: however many, and whatever they took.
func TestIgnoredRequestsChangeNothing(t *testing.T) {
	for _, a := range []Algorithm{Knee{}, AIMD{}, Vegas{}, Gradient2{}} {
		l, now := clocked(t, a)
		rounds(l, now, 3, 10*time.Millisecond, weir.OK)
		before := l.Limit()
		rounds(l, now, 100, time.Minute, weir.Ignore)
		if l.Limit() != before {
			t.Errorf("%T: the limit went from %d to %d", a, before, l.Limit())
		}
	}
}

// TestDropsAreHeard: by all but Gradient2, which ignores them as the original does.
func TestDropsAreHeard(t *testing.T) {
	for _, a := range []Algorithm{Knee{Initial: 100}, AIMD{Initial: 100}, Vegas{Initial: 100}} {
		l, now := clocked(t, a)
		rounds(l, now, 3, 10*time.Millisecond, weir.OK)
		before := l.Limit()
		rounds(l, now, 2, 10*time.Millisecond, weir.Dropped)
		if l.Limit() > before*9/10 {
			t.Errorf("%T: the limit is %d after %d", a, l.Limit(), before)
		}
	}
}

// TestClockSteps: a clock that goes back, or forward by an hour, changes the limit for 10 round
// trips at most.
func TestClockSteps(t *testing.T) {
	for _, step := range []time.Duration{-time.Hour, time.Hour} {
		l, now := clocked(t, Knee{Initial: 50, Max: 50})
		rounds(l, now, 20, 10*time.Millisecond, weir.OK)
		h, _ := l.TryEnter()
		*now += int64(step)
		h.Done(weir.OK)
		rounds(l, now, 10, 10*time.Millisecond, weir.OK)
		if l.Limit() < 45 {
			t.Errorf("a step of %v: the limit is %d", step, l.Limit())
		}
	}
}

// TestIdleLearnsNothing: while the limit is not in use it does not change, however slow the
// requests are.
func TestIdleLearnsNothing(t *testing.T) {
	l, now := clocked(t, Knee{Initial: 50})
	rounds(l, now, 4, 10*time.Millisecond, weir.OK)
	before := l.Limit()
	for range 1000 {
		h, _ := l.TryEnter()
		*now += int64(time.Second)
		h.Done(weir.OK)
	}
	rounds(l, now, 6, 10*time.Millisecond, weir.OK)
	if l.Limit() < before {
		t.Errorf("the limit went from %d to %d", before, l.Limit())
	}
}

// TestLowest: at the lowest limit, a service that has become slower is not taken for a queue for
// long. The limit would never rise again.
func TestLowest(t *testing.T) {
	c, p := Knee{Initial: 2, Max: 2}.begin(func() float64 { return 0.5 })
	for i := range 40 {
		latency := 10.0
		if i > 2 {
			latency = 17
		}
		p = c.next(&period{limit: p.limit, samples: times(16, ms(latency, p.limit)), refused: true, inFlight: int(p.limit)})
	}
	if p.limit < 2 {
		t.Errorf("the limit is %d", p.limit)
	}
}

// TestOutliers: one request in 20 that takes a thousand times as long, for reasons of its own, does
// not lower the limit. Vegas and AIMD do lower it.
func TestOutliers(t *testing.T) {
	after := func(a Algorithm) int64 {
		c, p := a.begin(func() float64 { return 0.5 })
		for range 50 {
			samples := times(19, ms(10, p.limit))
			samples = append(samples, ms(10_000, p.limit))
			p = c.next(&period{limit: p.limit, samples: samples, refused: true, inFlight: int(p.limit)})
		}
		return p.limit
	}
	if got := after(Knee{Initial: 100, Max: 100}); got < 75 { // 75 in a dip
		t.Errorf("Knee: the limit is %d", got)
	}
	if got := after(AIMD{Initial: 100, Max: 100}); got > 90 {
		t.Errorf("AIMD: the limit is %d", got)
	}
}

func TestPackedSamples(t *testing.T) {
	for _, s := range []sample{{1, 1, false}, {longest, mostInFlight, true}, {1e9, 20, true}} {
		if got := unpack(pack(s)); got != s {
			t.Errorf("%+v became %+v", s, got)
		}
	}
	if got := unpack(pack(sample{latency: -5, inFlight: 1})); got.latency != 1 {
		t.Errorf("a negative latency became %d", got.latency)
	}
	if got := unpack(pack(sample{latency: math.MaxInt64, inFlight: 1})); got.latency != longest {
		t.Errorf("the longest latency became %d", got.latency)
	}
}

// TestNeverOver: concurrent callers never exceed the limit, and all places come back.
func TestNeverOver(t *testing.T) {
	const callers, each = 8, 5000
	l, err := New(Options{Algorithm: AIMD{Initial: 5, Min: 5, Max: 5}})
	if err != nil {
		t.Fatal(err)
	}
	var inside, entered atomic.Int64
	var all sync.WaitGroup
	for i := range callers {
		all.Go(func() {
			for n := range each {
				h, ok := l.TryEnter()
				if !ok {
					continue
				}
				entered.Add(1)
				if inside.Add(1) > 5 {
					t.Error("more than 5 are inside")
				}
				inside.Add(-1)
				o := weir.Outcome((n + i) % 3)
				var twice sync.WaitGroup
				twice.Go(func() { h.Done(o) })
				h.Done(o)
				twice.Wait()
			}
		})
	}
	all.Wait()
	o := l.Outcomes()
	if l.InFlight() != 0 || o.OK+o.Ignored+o.Dropped != uint64(entered.Load()) || o.Refused != callers*each-uint64(entered.Load()) {
		t.Errorf("%d in flight, %+v, and %d entered", l.InFlight(), o, entered.Load())
	}
}

// TestMeasuringIsRare: of very many requests few are measured.
func TestMeasuringIsRare(t *testing.T) {
	l, now := clocked(t, Knee{})
	readings := 0
	l.clock = func() int64 { readings++; return *now }
	for range 1_000_000 { // 10 million a second
		h, _ := l.TryEnter()
		*now += 100
		h.Done(weir.OK)
	}
	if readings > 30_000 {
		t.Errorf("the clock was read %d times in 0.1 s", readings)
	}
	for range 10_000 { // 100 a second
		h, _ := l.TryEnter()
		*now += 1e7
		h.Done(weir.OK)
	}
	if rare := rareOf(l.plan.Load()); rare != 0 {
		t.Errorf("one in %d is measured", 1<<rare)
	}
}

// TestDropsAmongVeryMany: one drop in 200 is as little of a million requests a second, of which few are
// measured, as it is of a thousand.
func TestDropsAmongVeryMany(t *testing.T) {
	for _, latency := range []time.Duration{20 * time.Millisecond, 20 * time.Microsecond} {
		l, now := clocked(t, Knee{Initial: 20, Max: 20})
		lowest, done := l.Limit(), 0
		for range 100_000 {
			var all []Hold
			for h, ok := l.TryEnter(); ok; h, ok = l.TryEnter() {
				all = append(all, h)
			}
			*now += int64(latency)
			for _, h := range all {
				if done++; done%200 == 0 {
					h.Done(weir.Dropped)
				} else {
					h.Done(weir.OK)
				}
			}
			lowest = min(lowest, l.Limit())
		}
		if lowest < 15 { // the limit in a dip
			t.Errorf("with %v: the limit fell to %d, and one in %d is measured", latency, lowest, 1<<rareOf(l.plan.Load()))
		}
	}
}

// TestEachKindIsMeasured: where kinds of requests take turns, each is measured as often as the others, also
// if few requests are.
func TestEachKindIsMeasured(t *testing.T) {
	l, _ := clocked(t, Knee{})
	for rare := range 8 {
		for _, kinds := range []int{2, 3, 4, 16, 64} {
			plan := l.plan.Load()
			l.plan.Store(plan&^(1<<rareBits-1) | uint64(rare))
			counts := make([]int, kinds)
			each := 1000 << rare
			for range each {
				for kind := range kinds {
					h, _ := l.TryEnter()
					if h.life&measured != 0 {
						counts[kind]++
					}
					h.Done(weir.Ignore)
				}
			}
			for kind, n := range counts {
				if n < 800 || n > 1200 {
					t.Errorf("one in %d, %d kinds: of the kind %d, %d of %d were measured", 1<<rare, kinds, kind, n, each)
				}
			}
		}
	}
}

func TestNothingIsAllocated(t *testing.T) {
	raced.Skip(t)
	for _, a := range []Algorithm{Knee{}, AIMD{}, Vegas{}, Gradient2{}} {
		l, err := New(Options{Algorithm: a})
		if err != nil {
			t.Fatal(err)
		}
		// each is measured, so there are many periods
		now := int64(0)
		l.clock = func() int64 { now += 1e6; return now }
		ctx := t.Context()
		if n := testing.AllocsPerRun(10, func() {
			for range 1000 {
				h, _ := l.Enter(ctx)
				h.Done(weir.OK)
			}
		}); n != 0 {
			t.Errorf("%T: %g allocations in 1000 requests", a, n)
		}
	}
}

func BenchmarkEnterDone(b *testing.B) {
	l, _ := New(Options{})
	ctx := context.Background()
	for b.Loop() {
		h, _ := l.Enter(ctx)
		h.Done(weir.OK)
	}
}
