package redis

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/weirflow/weir"
	"github.com/weirflow/weir/internal/seeds"
	"github.com/weirflow/weir/proof/servers"
	"github.com/weirflow/weir/weirredis"
	"github.com/weirflow/weir/weirtest"
)

// threeVersions are limits that callers have at once: of one algorithm, and of several.
func threeVersions() map[string][]weir.Limit {
	const m, h = time.Minute, time.Hour
	return map[string][]weir.Limit{
		"fixed":    {weir.FixedWindow{Limit: 5, Window: m}, weir.FixedWindow{Limit: 9, Window: m}, weir.FixedWindow{Limit: 20, Window: h}},
		"first":    {weir.FixedWindow{Limit: 5, Window: m, Align: weir.AlignFirst}, weir.FixedWindow{Limit: 9, Window: 2 * m, Align: weir.AlignFirst}, weir.FixedWindow{Limit: 20, Window: h}},
		"month":    {weir.FixedWindow{Limit: 5, Window: m}, weir.FixedWindow{Limit: 100, Align: "day"}, weir.FixedWindow{Limit: 200, Align: "month"}},
		"log":      {weir.SlidingLog{Limit: 5, Window: m}, weir.SlidingLog{Limit: 9, Window: m}, weir.SlidingLog{Limit: 20, Window: 10 * m}},
		"window":   {weir.SlidingWindow{Limit: 5, Window: m, Slots: 6}, weir.SlidingWindow{Limit: 9, Window: m, Slots: 6}, weir.SlidingWindow{Limit: 20, Window: 10 * m, Slots: 10}},
		"counter":  {weir.SlidingCounter{Limit: 5, Window: m}, weir.SlidingCounter{Limit: 9, Window: m}, weir.SlidingCounter{Limit: 20, Window: 10 * m}},
		"bucket":   {weir.TokenBucket{Rate: weir.PerMinute(5), Burst: 5}, weir.TokenBucket{Rate: weir.PerMinute(9), Burst: 9}, weir.TokenBucket{Rate: weir.PerHour(60), Burst: 20, Initial: 1}},
		"leaky":    {weir.LeakyBucket{Rate: weir.PerMinute(5), Queue: 4}, weir.LeakyBucket{Rate: weir.PerMinute(9), Queue: 8}, weir.TokenBucket{Rate: weir.PerHour(60), Burst: 20}},
		"interval": {weir.IntervalBucket{Burst: 5, Refill: 5, Every: m}, weir.IntervalBucket{Burst: 9, Refill: 9, Every: m}, weir.IntervalBucket{Burst: 20, Refill: 20, Every: 10 * m}},
		"bursty":   {weir.SmoothBursty{Rate: weir.PerMinute(5), MaxBurst: m}, weir.SmoothBursty{Rate: weir.PerMinute(9), MaxBurst: m}, weir.SmoothBursty{Rate: weir.PerHour(60), MaxBurst: 20 * m}},
		"warm":     {weir.WarmUp{Rate: weir.PerMinute(5), Period: m}, weir.WarmUp{Rate: weir.PerMinute(9), Period: m}, weir.WarmUp{Rate: weir.PerHour(60), Period: 20 * m}},
		"mixed":    {weir.FixedWindow{Limit: 5, Window: m}, weir.SlidingLog{Limit: 9, Window: m}, weir.TokenBucket{Rate: weir.PerHour(60), Burst: 20}},
		"mixed 2":  {weir.SlidingWindow{Limit: 5, Window: m, Slots: 6}, weir.SlidingCounter{Limit: 9, Window: m}, weir.SmoothBursty{Rate: weir.PerHour(60), MaxBurst: 20 * m}},
		"mixed 3":  {weir.IntervalBucket{Burst: 5, Refill: 5, Every: m}, weir.LeakyBucket{Rate: weir.PerMinute(9), Queue: 8}, weir.FixedWindow{Limit: 20, Window: h}},
		"all":      {weir.All(weir.FixedWindow{Limit: 5, Window: m}, weir.TokenBucket{Rate: weir.PerHour(60), Burst: 20}), weir.All(weir.FixedWindow{Limit: 9, Window: m}, weir.TokenBucket{Rate: weir.PerHour(90), Burst: 20}), weir.FixedWindow{Limit: 20, Window: h}},
		"all 2":    {weir.All(weir.SlidingLog{Limit: 5, Window: m}, weir.FixedWindow{Limit: 20, Window: h}), weir.SlidingLog{Limit: 9, Window: m}, weir.All(weir.SlidingWindow{Limit: 20, Window: 10 * m, Slots: 10}, weir.FixedWindow{Limit: 30, Window: h})},
	}
}

// versionKey is a key of a store beside the model of it. Each keeps the charges that can be settled.
type versionKey struct {
	store    weir.Store
	key      string
	model    *weirtest.Versions
	receipts []weir.Receipt
	ids      []int
}

// do makes a call on both sides, and returns what each says. A settle is of the charge with that number.
func (v *versionKey) do(t *testing.T, at time.Duration, c weir.Charge, of int) (got, want string) {
	t.Helper()
	c.Name, c.Key = "api", v.key
	if c.Op == weir.OpSettle {
		c.Receipt = v.receipts[of]
	}
	batch, out := []weir.Charge{c}, make([]weir.Decision, 1)
	err := v.store.Do(t.Context(), batch, out)
	if err != nil && !errors.Is(err, weir.ErrExpired) {
		t.Fatal(err)
	}
	out[0].Source, out[0].By = 0, ""
	got = fmt.Sprintf("%+v, delay %v, expired %v", out[0], batch[0].Delay, err != nil)
	d, id, delay, expired := v.expected(at.Microseconds(), c, of)
	d.By = ""
	if d.Allowed && id > 0 && batch[0].Receipt != "" {
		v.receipts, v.ids = append(v.receipts, batch[0].Receipt), append(v.ids, id)
	}
	return got, fmt.Sprintf("%+v, delay %v, expired %v", d, delay, expired)
}

// expected is what the model says.
func (v *versionKey) expected(now int64, c weir.Charge, of int) (d weir.Decision, id int, delay time.Duration, expired bool) {
	m := v.model
	switch c.Op {
	case weir.OpTake:
		if c.Keep {
			id, d = m.TakeKept(c.Limit, now, c.Cost, c.Estimate)
			return d, id, 0, false
		}
		return m.Take(c.Limit, now, c.Cost), 0, 0, false
	case weir.OpTakeSome:
		some := max(min(c.Cost, m.Peek(c.Limit, now, 1).Remaining), 1)
		id, d = m.TakeKept(c.Limit, now, some, false)
		return d, id, 0, false
	case weir.OpReserve:
		if id, delay, d = m.Reserve(c.Limit, now, c.Cost, c.Within.Microseconds()); !d.Allowed {
			delay = 0
		}
		return d, id, delay, false
	case weir.OpSettle:
		if m.Settle(c.Limit, now, v.ids[of], c.Cost) {
			return d, 0, 0, true
		}
	case weir.OpCarry:
		m.Carry(c.Limit, now)
	}
	cost := int64(0)
	if c.Op == weir.OpPeek {
		cost = c.Cost
	}
	return m.Peek(c.Limit, now, cost), 0, 0, false
}

// TestWalksOfThreeVersions: callers with three versions of one limit take, reserve, peek and settle on
// one key, some by another version than they charged by. Redis decides as the model does.
func TestWalksOfThreeVersions(t *testing.T) {
	client := connect(t, servers.StartRedis(t, servers.RedisOptions{}).Addr)
	store := open(t, client, weirredis.Options{ClockKey: "clock", Timeout: patience})
	ops := []weir.Op{weir.OpTake, weir.OpTake, weir.OpTake, weir.OpReserve, weir.OpReserve, weir.OpSettle, weir.OpSettle, weir.OpPeek, weir.OpTakeSome, weir.OpCarry}
	for name, limits := range threeVersions() {
		r := seeds.Of("three versions " + name)
		for walk := range max(*walks/30, 1) {
			v := &versionKey{store: store, key: fmt.Sprint(name, walk), model: weirtest.NewVersions(time.Microsecond)}
			walkOfVersions(t, r, v, limits, ops, func(at time.Duration) { clockAt(t, client, at) })
		}
	}
}

// walkOfVersions makes calls until one differs, and then reports all of them.
func walkOfVersions(t *testing.T, r *rand.Rand, v *versionKey, limits []weir.Limit, ops []weir.Op, set func(time.Duration)) {
	t.Helper()
	at, text := 1_700_000_000*time.Second, ""
	most := []time.Duration{2 * time.Second, 8 * time.Second, 30 * time.Second, 90 * time.Second}[r.IntN(4)]
	var open []int           // charges that are not settled
	var charged []weir.Limit // by which each of them was made
	for range 150 {
		at += time.Duration(r.Int64N(most.Microseconds())) * time.Microsecond
		c := weir.Charge{Limit: limits[r.IntN(len(limits))], Op: ops[r.IntN(len(ops))], Cost: r.Int64N(5), Within: time.Minute, Estimate: true}
		of := -1
		switch c.Op {
		case weir.OpTake:
			c.Keep, c.Estimate = r.IntN(2) == 0, r.IntN(2) == 0
		case weir.OpTakeSome:
			c.Cost++
		case weir.OpSettle:
			if len(open) == 0 {
				continue
			}
			i := r.IntN(len(open))
			of, open = open[i], append(open[:i:i], open[i+1:]...)
			if r.IntN(4) > 0 {
				c.Limit = charged[of]
			}
		}
		set(at)
		got, want := v.do(t, at, c, of)
		text += fmt.Sprintf("%d of %v: %v %d of %d (%v, %v) by %T%+v\n", len(v.ids), at, c.Op, c.Cost, of, c.Keep, c.Estimate, c.Limit, c.Limit)
		if got != want {
			t.Fatalf("%s: redis\n%s, the model\n%s\nafter\n%s", v.key, got, want, text)
		}
		if len(v.ids) > len(charged) {
			open, charged = append(open, len(charged)), append(charged, c.Limit)
		}
	}
}

// TestCostsBeyondTheEstimateOfAThirdVersion: work of a third version costs more than was reserved, and
// its version has begun meanwhile, or is gone: what it cost more is charged.
func TestCostsBeyondTheEstimateOfAThirdVersion(t *testing.T) {
	client := connect(t, servers.StartRedis(t, servers.RedisOptions{}).Addr)
	clock := new(weirtest.Clock)
	const begin = 1_700_000_000 * time.Second
	day := weir.FixedWindow{Limit: 50, Window: 1000 * time.Hour}
	for name, store := range map[string]weir.Store{
		"redis":  open(t, client, weirredis.Options{ClockKey: "clock", Timeout: patience}),
		"memory": weirtest.NewStore(clock.Now),
	} {
		call := func(at time.Duration, c weir.Charge) (weir.Charge, weir.Decision) {
			t.Helper()
			clockAt(t, client, begin+at)
			clock.Set(int64(begin + at))
			c.Name, c.Key = "api", "k"
			batch, out := []weir.Charge{c}, make([]weir.Decision, 1)
			if err := store.Do(t.Context(), batch, out); err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			return batch[0], out[0]
		}
		call(0, weir.Charge{Limit: fixed100, Cost: 1})
		call(0, weir.Charge{Limit: log60, Cost: 1})
		made, _ := call(time.Second, weir.Charge{Limit: day, Cost: 1, Op: weir.OpReserve, Estimate: true})
		call(2*time.Minute, weir.Charge{Limit: day, Cost: 1})
		made.Op, made.Cost = weir.OpSettle, 11
		if _, d := call(2*time.Minute, made); d.Remaining != 50-14 {
			t.Errorf("%s: %+v, want %d remaining", name, d, 50-14)
		}
	}
}

// TestTakeSomeOfALimitThatDoesNotStartFull: what remains after OpTakeSome on an unused key is that of a
// limit that began with what OpTake would have found.
func TestTakeSomeOfALimitThatDoesNotStartFull(t *testing.T) {
	store := open(t, connect(t, servers.StartRedis(t, servers.RedisOptions{}).Addr), weirredis.Options{})
	for name, l := range map[string]weir.Limit{
		"token":  weir.TokenBucket{Rate: weir.PerHour(1), Burst: 100, Initial: 3},
		"bursty": weir.SmoothBursty{Rate: weir.PerHour(1), MaxBurst: 100 * time.Hour},
		"all":    weir.All(weir.TokenBucket{Rate: weir.PerHour(1), Burst: 100, Initial: 3}, weir.SlidingLog{Limit: 50, Window: time.Hour}),
	} {
		some := do(t, store, weir.Charge{Name: name, Key: "k", Limit: l, Cost: 1000, Op: weir.OpTakeSome})
		if after := do(t, store, weir.Charge{Name: name, Key: "k", Limit: l, Cost: 1}).decision; after.Allowed || some.Taken > 3 {
			t.Errorf("%s: %d taken, and then %+v", name, some.Taken, after)
		}
	}
}
