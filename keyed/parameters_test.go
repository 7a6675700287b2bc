package keyed_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/weirflow/weir"
	"github.com/weirflow/weir/internal/raced"
	"github.com/weirflow/weir/internal/seeds"
	"github.com/weirflow/weir/keyed"
)

// plansOf are limits of one algorithm with different parameters; the first is that of the table.
func plansOf() map[string][]weir.Limit {
	return map[string][]weir.Limit{
		"TokenBucket":    {weir.TokenBucket{Rate: weir.PerSecond(10), Burst: 20}, weir.TokenBucket{Rate: weir.PerSecond(100), Burst: 200}, weir.TokenBucket{Rate: weir.PerMinute(7), Burst: 3}},
		"FixedWindow":    {weir.FixedWindow{Limit: 10, Window: time.Minute}, weir.FixedWindow{Limit: 100, Window: time.Minute}, weir.FixedWindow{Limit: 5, Window: time.Hour}},
		"Calendar":       {weir.FixedWindow{Limit: 10, Align: "day"}, weir.FixedWindow{Limit: 100, Align: "month:Europe/Berlin"}},
		"SlidingWindow":  {weir.SlidingWindow{Limit: 10, Window: 10 * time.Second, Slots: 5}, weir.SlidingWindow{Limit: 40, Window: 20 * time.Second, Slots: 10}},
		"SlidingLog":     {weir.SlidingLog{Limit: 5, Window: 10 * time.Second}, weir.SlidingLog{Limit: 20, Window: 5 * time.Second}},
		"SlidingCounter": {weir.SlidingCounter{Limit: 10, Window: 10 * time.Second}, weir.SlidingCounter{Limit: 50, Window: time.Minute}},
		"LeakyBucket":    {weir.LeakyBucket{Rate: weir.PerSecond(2), Queue: 3}, weir.LeakyBucket{Rate: weir.PerSecond(50), Queue: 30}},
	}
}

// TestParametersByKey: keys that change their parameters at each charge decide as a weir.Limiter for
// each of them does with SetLimit before each Take. Keys become idle meanwhile.
func TestParametersByKey(t *testing.T) {
	for name, plans := range plansOf() {
		t.Run(name, func(t *testing.T) {
			rng := seeds.Of(t.Name())
			now := int64(1 << 60)
			clock := func() int64 { return now }
			table, err := keyed.New[string](plans[0], keyed.Options{Name: "l", Clock: clock, WallClock: clock, Timers: neverFires})
			if err != nil {
				t.Fatal(err)
			}
			defer table.Close()
			group, err := keyed.NewGroup(table)
			if err != nil {
				t.Fatal(err)
			}
			by := []*keyed.Parameters{nil}
			for _, l := range plans[1:] {
				p, err := table.Parameters(l)
				if err != nil {
					t.Fatal(err)
				}
				by = append(by, p)
			}
			models := map[string]*weir.Limiter{}
			last := map[string]int{}
			for step := range 6000 {
				if rng.IntN(3) == 0 {
					now += rng.Int64N(int64(3 * time.Second))
				}
				if rng.IntN(300) == 0 {
					now += rng.Int64N(int64(48 * time.Hour))
				}
				key := fmt.Sprint(rng.IntN(60))
				plan := last[key]
				if rng.IntN(4) == 0 {
					plan = rng.IntN(len(plans))
				}
				m := models[key]
				if m == nil {
					if m, err = weir.New(plans[plan], weir.Named("l"), weir.WithClock(clock), weir.WithWallClock(clock)); err != nil {
						t.Fatal(err)
					}
					models[key] = m
				}
				if err := m.SetLimit(plans[plan]); err != nil {
					t.Fatal(err)
				}
				last[key] = plan
				cost := rng.Int64N(4)
				want := m.Take(cost)
				charges := []keyed.Charge[string]{{Key: key, Cost: cost, Parameters: by[plan]}}
				got, err := group.Take(charges)
				if err != nil || got != want {
					t.Fatalf("step %d, key %s, plan %d, cost %d: %+v, want %+v (%v)", step, key, plan, cost, got, want, err)
				}
			}
		})
	}
}

// TestParametersKeepWhatWasUsed: a customer who changes the plan keeps what is used, in both
// directions, and so does a reservation that is outstanding.
func TestParametersKeepWhatWasUsed(t *testing.T) {
	now := int64(0)
	table, err := keyed.New[string](weir.FixedWindow{Limit: 10, Align: "first", Window: time.Hour}, keyed.Options{Clock: func() int64 { return now }, Timers: neverFires})
	if err != nil {
		t.Fatal(err)
	}
	defer table.Close()
	pro, err := table.Parameters(weir.FixedWindow{Limit: 100, Align: "first", Window: time.Hour})
	if err != nil {
		t.Fatal(err)
	}
	group, err := keyed.NewGroup(table)
	if err != nil {
		t.Fatal(err)
	}
	take := func(cost int64, p *keyed.Parameters, keep bool) *keyed.Charge[string] {
		charges := []keyed.Charge[string]{{Key: "acme", Cost: cost, Parameters: p, Keep: keep}}
		if _, err := group.Take(charges); err != nil {
			t.Fatal(err)
		}
		return &charges[0]
	}
	kept := take(8, nil, true)
	if d := take(60, pro, false).Decision; !d.Allowed || d.Remaining != 32 || d.Limit != 100 {
		t.Errorf("pro after 8 of 10: %+v", d)
	}
	if err := kept.Settle(2); err != nil {
		t.Error(err)
	}
	if d := take(38, pro, false).Decision; !d.Allowed || d.Remaining != 0 {
		t.Errorf("pro after a settle: %+v", d)
	}
	if d := take(1, nil, false).Decision; d.Allowed || d.Limit != 10 || d.Remaining != 0 {
		t.Errorf("back to free with 100 used: %+v", d)
	}
	if now += int64(time.Hour); !take(10, nil, false).Decision.Allowed {
		t.Error("the next hour")
	}
	if table.Len() != 1 {
		t.Errorf("%d keys", table.Len())
	}
}

// TestParametersThatDoNotFit: invalid parameters are an error, and those of another clock are not
// used.
func TestParametersThatDoNotFit(t *testing.T) {
	table, err := keyed.New[string](weir.FixedWindow{Limit: 10, Align: "first", Window: time.Hour}, keyed.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer table.Close()
	if _, err := table.Parameters(weir.FixedWindow{Limit: 0, Window: time.Hour, Align: "first"}); err == nil {
		t.Error("a limit of 0")
	}
	p, err := table.Parameters(weir.FixedWindow{Limit: 99, Window: time.Hour})
	if d := table.TakeBy(p, "a", 1); err != nil || d.Limit != 10 || d.Remaining != 9 {
		t.Errorf("%+v, %v", d, err)
	}
}

// neverFires is a timer of virtual time that nobody turns forward. A table whose clock is a variable of
// the test needs it: the real timer of its janitor fires after a second, and would read the variable in
// another goroutine.
func neverFires(time.Duration, func()) weir.Timer { return stoppedTimer{} }

type stoppedTimer struct{}

func (stoppedTimer) Stop() bool               { return true }
func (stoppedTimer) Reset(time.Duration) bool { return true }

// TestPlansTakeNoMemory: a key has one reservation open, and its calls, nearly all of them refused,
// come with two plans alternately. Each call took some 500 bytes.
func TestPlansTakeNoMemory(t *testing.T) {
	raced.Skip(t)
	now := int64(1 << 60)
	clock := func() int64 { return now }
	table, err := keyed.New[string](weir.TokenBucket{Rate: weir.PerHour(10), Burst: 100}, keyed.Options{Clock: clock, WallClock: clock, Timers: neverFires})
	if err != nil {
		t.Fatal(err)
	}
	defer table.Close()
	pro, err := table.Parameters(weir.TokenBucket{Rate: weir.PerHour(100), Burst: 1000})
	if err != nil {
		t.Fatal(err)
	}
	r, ok := table.ReserveBy(pro, "u", 1, 0)
	if !ok {
		t.Fatal(r.Decision())
	}
	before := heap()
	for range 10_000 {
		table.TakeBy(nil, "u", 100)
		table.TakeBy(pro, "u", 1000)
	}
	if more := heap() - before; more > 512<<10 {
		t.Errorf("%d bytes more", more)
	}
	r.Cancel()
}
