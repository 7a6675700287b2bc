package weir_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirflow/weir"
	"github.com/weirflow/weir/internal/raced"
	"github.com/weirflow/weir/weirtest"
)

// anyPart draws a limit of any algorithm, with times of about a second.
func anyPart(r *rand.Rand) weir.Limit {
	n := 1 + r.Int64N(9)
	rate := weir.Rate{N: 1 + r.Int64N(9), Per: time.Duration(1+r.IntN(3)) * sec}
	window := time.Duration(1+r.IntN(4)) * sec
	switch r.IntN(9) {
	case 0:
		return weir.TokenBucket{Rate: rate, Burst: n, Initial: []int64{0, weir.InitialEmpty, n}[r.IntN(3)]}
	case 1:
		return weir.LeakyBucket{Rate: rate, Queue: n, DelayAfter: r.Int64N(n + 1)}
	case 2:
		return weir.IntervalBucket{Burst: n, Refill: 1 + r.Int64N(3), Every: window}
	case 3:
		return weir.FixedWindow{Limit: n, Window: window, Align: []weir.Align{weir.AlignEpoch, weir.AlignFirst}[r.IntN(2)]}
	case 4:
		return weir.SlidingWindow{Limit: n, Window: window, Slots: 4}
	case 5:
		return weir.SlidingCounter{Limit: n, Window: window}
	case 6:
		return weir.SlidingLog{Limit: n, Window: window}
	case 7:
		return weir.SmoothBursty{Rate: rate, MaxBurst: window}
	}
	return weir.WarmUp{Rate: rate, Period: window}
}

// TestAllIsItsParts compares All with limits of its parts, each with a state of its own, that are
// charged only if all of them admit.
func TestAllIsItsParts(t *testing.T) {
	raced.Skip(t)
	for seed := range uint64(400) {
		r := rand.New(rand.NewPCG(seed, 4))
		var limits []weir.Limit
		var parts []weir.Prepared
		for range 1 + r.IntN(8) {
			l := anyPart(r)
			p, err := weir.Prepare(l, 1)
			if err != nil {
				t.Fatal(err)
			}
			limits, parts = append(limits, l), append(parts, p)
		}
		states := make([][]int64, len(parts))
		var state []int64
		now := int64(time.Hour)
		for range 100 {
			if now += r.Int64N(int64(sec)); r.IntN(8) == 0 {
				now -= int64(sec)
			}
			cost := r.Int64N(4)
			before := slices.Clone(state)
			var d weir.Decision
			state, d = weir.Step(weir.All(limits...), state, now, cost, 1)
			want := apart(parts, states, now, cost)
			if want != d {
				t.Fatalf("seed %d: %+v\n%d at %d from %v:\ngot  %+v\nwant %+v", seed, limits, cost, now, before, d, want)
			}
			if !d.Allowed && d.RetryAfter != weir.Never {
				after := now + int64(d.RetryAfter)
				if _, d := weir.Step(weir.All(limits...), slices.Clone(state), after, cost, 1); !d.Allowed {
					t.Fatalf("seed %d: %+v: after RetryAfter: %+v", seed, limits, d)
				}
				if _, d := weir.Step(weir.All(limits...), slices.Clone(state), after-1, cost, 1); d.Allowed {
					t.Fatalf("seed %d: %+v: sooner than RetryAfter: %+v", seed, limits, d)
				}
			}
		}
	}
}

// apart returns the decision of All by its definition.
func apart(parts []weir.Prepared, states [][]int64, now, cost int64) (all weir.Decision) {
	kinds := map[string]string{
		"TokenBucket": "token_bucket", "LeakyBucket": "leaky_bucket", "IntervalBucket": "interval_bucket", "FixedWindow": "fixed_window",
		"SlidingWindow": "sliding_window", "SlidingCounter": "sliding_counter", "SlidingLog": "sliding_log", "SmoothBursty": "smooth_bursty",
		"WarmUp": "warm_up", "NginxBucket": "nginx_bucket",
	}
	all.Allowed = true
	var ds []weir.Decision
	if cost > 0 && !slices.ContainsFunc(parts, func(p weir.Prepared) bool { return !weir.Fits(p, cost) }) {
		for i, p := range parts {
			states[i] = weir.Contact(p, states[i], now)
		}
	}
	for i, p := range parts {
		d := p.Peek(states[i], now, cost)
		d.By = fmt.Sprintf("%s.%d", kinds[strings.TrimPrefix(fmt.Sprintf("%T", p.Limit()), "weir.")], i+1)
		ds = append(ds, d)
		all.Allowed = all.Allowed && d.Allowed
	}
	for i, p := range parts {
		d := &ds[i]
		var step weir.Decision
		if all.Allowed {
			states[i], step = p.Step(states[i], now, cost)
			d.Remaining, d.ResetAfter = step.Remaining, step.ResetAfter
		}
		if i == 0 {
			all.Limit, all.Remaining, all.ResetAfter, all.By = d.Limit, d.Remaining, d.ResetAfter, d.By
			all.RetryAfter = d.RetryAfter
			continue
		}
		if all.Allowed && d.Remaining < all.Remaining || longerWait(d.RetryAfter, all.RetryAfter) {
			all.By = d.By
		}
		all.Limit, all.Remaining = min(all.Limit, d.Limit), min(all.Remaining, d.Remaining)
		all.ResetAfter = max(all.ResetAfter, d.ResetAfter)
		if longerWait(d.RetryAfter, all.RetryAfter) {
			all.RetryAfter = d.RetryAfter
		}
	}
	return all
}

func longerWait(a, b time.Duration) bool { return b != weir.Never && (a == weir.Never || a > b) }

// TestAllOfOneIsThatOne makes the same random calls on a limiter with a limit and on one with an
// All of that limit alone. Both do the same, with queues too. (All charges nothing ahead, so
// Reserve is left out.)
func TestAllOfOneIsThatOne(t *testing.T) {
	raced.Skip(t)
	for seed := range uint64(300) {
		r := rand.New(rand.NewPCG(seed, 5))
		limit := anyPart(r)
		var c weirtest.Clock
		c.Set(int64(time.Hour))
		opts := []weir.Option{weir.WithClock(c.Now), weir.WithTimers(c.AfterFunc)}
		if seed%2 == 0 { // no timer fires, so turns are noticed late
			opts[1] = weir.WithTimers(new(weirtest.Clock).AfterFunc)
		}
		one, all := newLimiter(t, limit, opts...), newLimiter(t, weir.All(limit), opts...)
		check := func(a, b weir.Decision) {
			t.Helper()
			a.By, b.By = "", ""
			if a != b {
				t.Fatalf("seed %d: %+v at %d:\ngot  %+v\nwant %+v", seed, limit, c.Now(), b, a)
			}
		}
		type pair struct{ one, all weir.Reservation }
		type places struct{ one, all *weir.Place }
		var open []pair
		var line []places
		for range 120 {
			switch r.IntN(6) {
			case 0:
				c.Set(c.Now() + r.Int64N(int64(sec)))
			case 2:
				c.Set(c.Now() + r.Int64N(int64(20*ms)))
			case 1:
				c.Set(c.Now() - r.Int64N(int64(sec/5)))
			}
			cost := 1 + r.Int64N(3)
			switch r.IntN(8) {
			case 0, 1:
				check(one.Take(cost), all.Take(cost))
			case 2:
				a, ok := one.Reserve(cost, 0)
				b, too := all.Reserve(cost, 0)
				check(a.Decision(), b.Decision())
				if ok != too || a.Delay() != b.Delay() {
					t.Fatalf("%v, %v", a.Delay(), b.Delay())
				}
				open = append(open, pair{a, b})
			case 3:
				if len(open) > 0 {
					p, actual := open[r.IntN(len(open))], r.Int64N(4)
					p.one.Settle(actual)
					p.all.Settle(actual)
				}
			case 4, 5:
				a, da := one.Join(cost, -1)
				b, db := all.Join(cost, -1)
				check(da, db)
				if (a == nil) != (b == nil) || a != nil && a.Delay() != b.Delay() {
					t.Fatalf("seed %d: %+v: places %v, %v", seed, limit, a, b)
				}
				if a != nil {
					line = append(line, places{a, b})
				}
			case 6:
				if len(line) > 0 {
					p := line[r.IntN(len(line))]
					if a, b := p.one.Leave(), p.all.Leave(); a != b {
						t.Fatalf("seed %d: %+v: left %v, %v", seed, limit, a, b)
					}
				}
			case 7:
				if r.IntN(4) == 0 {
					limit = anyPart(r)
					for _, err := range []error{one.SetLimit(limit), all.SetLimit(weir.All(limit))} {
						if err != nil {
							t.Fatal(err)
						}
					}
				}
			}
			check(one.Peek(1), all.Peek(1))
			if one.Waiting() != all.Waiting() {
				t.Fatalf("seed %d: %+v: %d wait, want %d", seed, limit, all.Waiting(), one.Waiting())
			}
		}
	}
}

// TestAllNamesWhatIsLeastAfterTheCharge: for an admitted Reserve or Join, By was the part with the
// least left before the charge, while Remaining was that after it.
func TestAllNamesWhatIsLeastAfterTheCharge(t *testing.T) {
	for _, charge := range []func(*weir.Limiter) weir.Decision{
		func(l *weir.Limiter) weir.Decision { return l.Take(3) },
		func(l *weir.Limiter) weir.Decision { _, d := l.Join(3, -1); return d },
		func(l *weir.Limiter) weir.Decision { r, _ := l.Reserve(3, -1); return r.Decision() },
	} {
		// If the second charge has to wait, nothing of it is left. (A queued Join names the part
		// that it waits for.)
		l, _ := onClock(t, weir.All(weir.SlidingLog{Limit: 6, Window: sec}, weir.WarmUp{Rate: weir.PerSecond(10), Period: time.Minute}))
		if d := charge(l); !d.Allowed || d.By != "warm_up.2" || d.Remaining != 0 {
			t.Errorf("%+v", d)
		}
	}
}

func TestAllNames(t *testing.T) {
	second, minute := weir.TokenBucket{Rate: weir.PerSecond(10), Burst: 10}, weir.TokenBucket{Rate: weir.PerMinute(20), Burst: 15}
	l, c := onClock(t, weir.All(second, minute))
	if d := l.Take(10); !d.Allowed || d.By != "token_bucket.1" || d.Remaining != 0 || d.Limit != 10 || d.ResetAfter != 30*sec {
		t.Errorf("%+v", d)
	}
	if d := l.Take(1); d.Allowed || d.By != "token_bucket.1" || d.RetryAfter != 100*ms {
		t.Errorf("%+v", d)
	}
	if d := l.Take(6); d.Allowed || d.By != "token_bucket.2" || d.RetryAfter != 3*sec {
		t.Errorf("%+v", d)
	}
	if d := l.Take(11); d.Allowed || d.By != "token_bucket.1" || d.RetryAfter != weir.Never {
		t.Errorf("more than the first can ever give, and the second not now: %+v", d)
	}
	if d := l.Take(-1); d.Allowed || d.By != "token_bucket.1" || d.RetryAfter != weir.Never {
		t.Errorf("%+v", d)
	}
	c.Set(int64(sec))
	if d := l.Peek(0); !d.Allowed || d.By != "token_bucket.2" || d.Remaining != 5 {
		t.Errorf("%+v", d)
	}
	named := newLimiter(t, weir.All(weir.SlidingLog{Limit: 1, Window: sec}, second), weir.Named("api"), weir.WithClock(c.Now))
	named.Take(1)
	if d := named.Take(1); d.By != "api/sliding_log.1" {
		t.Errorf("%+v", d)
	}
	if r, ok := named.Reserve(1, -1); ok || r.Decision().By != "api/sliding_log.1" || r.Delay() != sec {
		t.Errorf("nothing is booked ahead: %+v", r.Decision())
	}
	if err := named.SetLimit(weir.All(second, minute)); err != nil {
		t.Error(err)
	}
	if d := named.Take(16); d.By != "api/token_bucket.1" {
		t.Errorf("%+v", d)
	}
	if err := named.SetLimit(second); err != nil {
		t.Error(err)
	}
	if d := named.Take(16); d.By != "api" {
		t.Errorf("%+v", d)
	}
	if err := named.Wait(t.Context(), 16); !strings.Contains(err.Error(), `by "api"`) {
		t.Error(err)
	}
}

func TestAllAsData(t *testing.T) {
	a, b := weir.TokenBucket{Rate: weir.PerSecond(1), Burst: 1}, weir.FixedWindow{Limit: 5, Window: time.Hour}
	if weir.All(a, b) != weir.All(a, b) || weir.All(a, b) == weir.All(b, a) {
		t.Error("not comparable")
	}
	if !weir.Equal(weir.All(a, b), weir.All(weir.TokenBucket{Rate: weir.PerMinute(60), Burst: 1}, b)) || weir.Equal(weir.All(a), a) {
		t.Error("Equal")
	}
	if !weir.Equal(weir.All(weir.All(a), weir.All(b, weir.All(a))), weir.All(a, b, a)) {
		t.Error("an All in an All is not its limits")
	}
	if parts := weir.Parts(weir.All(a, b)); !slices.Equal(parts, []weir.Limit{a, b}) {
		t.Errorf("%+v", parts)
	}
	if parts := weir.Parts(a); !slices.Equal(parts, []weir.Limit{a}) {
		t.Errorf("%+v", parts)
	}
	for want, l := range map[string]weir.Limit{
		"weir: All.limits: there are none":                         weir.All(),
		"weir: All.limits: 9 are too many":                         weir.All(a, a, a, a, a, a, a, weir.All(a, a)),
		"weir: All.limits: 18 are too":                             weir.All(weir.All(a, a, a, a, a, a, a, a, a), weir.All(a, a, a, a, a, a, a, a, a)),
		"weir: All.limits.2: it is nil":                            weir.All(a, nil),
		"weir: All.concurrency.1: Concurrency is entered and left": weir.All(weir.Concurrency{Limit: 1}, a),
		"weir: All.concurrency.1.Limit: 0 lets nothing pass":       weir.All(weir.Concurrency{}, a),
		"weir: All.token_bucket.2.Burst: 0 lets nothing pass":      weir.All(b, weir.TokenBucket{Rate: weir.PerSecond(1)}),
	} {
		for _, err := range []error{l.Validate(), func() error { _, err := weir.New(l); return err }()} {
			var wrong *weir.FieldError
			if !errors.As(err, &wrong) || !strings.HasPrefix(err.Error(), want) || strings.Count(err.Error(), "weir: ") != 1 {
				t.Errorf("%v, want %q", err, want)
			}
		}
		if weir.Equal(l, a) || !weir.Equal(l, l) {
			t.Errorf("Equal of %+v", l)
		}
	}
	if err := weir.All(a, b).Validate(); err != nil {
		t.Error(err)
	}
}

// TestAllGivesBackToEach: a cancelled charge is given back to each part by the part's own rule,
// also after a change of the limit.
func TestAllGivesBackToEach(t *testing.T) {
	bucket, window := weir.TokenBucket{Rate: weir.PerSecond(1), Burst: 10}, weir.FixedWindow{Limit: 20, Window: time.Hour}
	l, c := onClock(t, weir.All(bucket, window))
	left := func() (n [2]int64) { // left in the bucket and in the window
		t.Helper()
		l.Peek(0)
		for i, other := range []weir.Limit{weir.All(bucket, weir.FixedWindow{Limit: 1 << 40, Window: time.Hour}),
			weir.All(weir.TokenBucket{Rate: weir.PerSecond(1), Burst: 1 << 20}, window)} {
			was := l.Limit()
			for _, next := range []weir.Limit{other, was} {
				if err := l.SetLimit(next); err != nil {
					t.Fatal(err)
				}
				if next == other {
					n[i] = l.Peek(0).Remaining
				}
			}
		}
		return n
	}
	first, _ := l.Reserve(4, 0)
	second, _ := l.Reserve(3, 0)
	if n := left(); n != [2]int64{3, 13} {
		t.Fatalf("%v", n)
	}
	c.Set(int64(sec))
	first.Cancel() // as if only the three had been taken, and one token of them had refilled
	first.Cancel()
	if n := left(); n != [2]int64{8, 17} {
		t.Errorf("%v", n)
	}
	if err := l.SetLimit(weir.All(window, weir.SlidingLog{Limit: 100, Window: time.Hour}, bucket)); err != nil {
		t.Fatal(err)
	}
	second.Settle(1)
	if n := l.Peek(0); n.Remaining != 10 || n.By != "token_bucket.3" {
		t.Errorf("%+v", n)
	}
	third, _ := l.Reserve(2, 0)
	third.Settle(5) // three more are charged to each part
	if n := l.Peek(0); n.Remaining != 5 {
		t.Errorf("%+v", n)
	}
	fourth, _ := l.Reserve(4, 0)
	if err := l.SetLimit(bucket); err != nil {
		t.Fatal(err)
	}
	if n := l.Peek(0); n.Remaining != 1 {
		t.Errorf("%+v", n)
	}
	fourth.Cancel()
	if n := l.Peek(0); n.Remaining != 5 {
		t.Errorf("%+v", n)
	}
	fifth, _ := l.Reserve(4, 0)
	if err := l.SetLimit(weir.All(weir.SlidingLog{Limit: 100, Window: time.Hour}, bucket)); err != nil {
		t.Fatal(err)
	}
	fifth.Cancel()
	if n := l.Peek(0); n.Remaining != 5 {
		t.Errorf("%+v", n)
	}
}

// TestAllChargesWaitersTogether: waiters are charged by all parts at once when their turn comes. A waiter that
// leaves is not charged.
func TestAllChargesWaitersTogether(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLimiter(t, weir.All(weir.TokenBucket{Rate: weir.PerSecond(10), Burst: 1}, weir.FixedWindow{Limit: 3, Window: sec, Align: weir.AlignFirst}))
		start := time.Now()
		var mu sync.Mutex
		var at []time.Duration
		var wg sync.WaitGroup
		for i := range 7 {
			ctx, cancel := context.WithCancel(t.Context())
			if i == 3 {
				time.AfterFunc(150*ms, cancel)
			}
			wg.Go(func() {
				defer cancel()
				if err := l.Wait(ctx, 1); err != nil {
					if i != 3 {
						t.Error(err)
					}
					return
				}
				mu.Lock()
				defer mu.Unlock()
				at = append(at, time.Since(start))
			})
			synctest.Wait()
		}
		wg.Wait()
		if want := []time.Duration{0, 100 * ms, 200 * ms, sec, 1100 * ms, 1200 * ms}; !slices.Equal(at, want) {
			t.Errorf("served at %v, want %v", at, want)
		}
		soon, cancel := context.WithTimeout(t.Context(), 500*ms)
		defer cancel()
		var limited *weir.LimitedError
		if err := l.Wait(soon, 1); !errors.Is(err, context.DeadlineExceeded) || !errors.As(err, &limited) || limited.Decision.By != "fixed_window.2" {
			t.Errorf("%v", err)
		}
	})
}

// TestAnyStateIsSafe: All refuses every state that it cannot have made.
func TestAnyStateIsSafe(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 6))
	p, err := weir.Prepare(weir.All(weir.TokenBucket{Rate: weir.PerSecond(3), Burst: 5}, weir.SlidingLog{Limit: 5, Window: sec}), 1)
	if err != nil {
		t.Fatal(err)
	}
	good, _ := p.Step(nil, 5, 2)
	for range 50_000 {
		state := slices.Clone(good)
		for range 1 + r.IntN(3) {
			switch r.IntN(3) {
			case 0:
				state[r.IntN(len(state))] = []int64{0, 1, 2, 3, 5, 8, -1, math.MaxInt64, math.MinInt64, r.Int64()}[r.IntN(10)]
			case 1:
				state = append(state, r.Int64N(3))
			case 2:
				state = state[:1+r.IntN(len(state))]
			}
		}
		p.Step(state, r.Int64(), 1)
	}
}

func TestAllAllocatesNothing(t *testing.T) {
	l := newLimiter(t, weir.All(weir.TokenBucket{Rate: weir.PerSecond(1e9), Burst: 1e9}, weir.SlidingCounter{Limit: 1e9, Window: sec},
		weir.SlidingLog{Limit: 10, Window: time.Hour}), weir.Named("x"))
	for range 20 {
		l.Take(1)
	}
	for name, f := range map[string]func(){
		"Take": func() { l.Take(1) },
		"Peek": func() { l.Peek(1) },
	} {
		if n := testing.AllocsPerRun(1000, f); n != 0 {
			t.Errorf("%s: %v allocations", name, n)
		}
	}
}
