package lease_test

import (
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirflow/weir"
	"github.com/weirflow/weir/lease"
	"github.com/weirflow/weir/weirtest"
)

// TestOtherChargesGoToTheStore: charges that cannot be leased go to the store unchanged, and get its
// results.
func TestOtherChargesGoToTheStore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, r := open(t, day, lease.Options{Lifetime: sec}, 0)
		for range 100 {
			c.take(1)
		}
		synctest.Wait()
		held := 900 - c.left(r)
		if held <= 0 {
			t.Fatal("nothing is held")
		}
		if _, d, _ := c.do(weir.Charge{Op: weir.OpPeek, Cost: 900}); !d.Allowed || d.Remaining != 900 || d.RetryAfter != 0 {
			t.Errorf("peek: %+v", d)
		}
		if _, d, _ := c.do(weir.Charge{Op: weir.OpReserve, Cost: 900}); d.Allowed || d.Source != weir.SourceStore {
			t.Errorf("reserve: %+v", d)
		}
		ch, d, _ := c.do(weir.Charge{Cost: 2, Keep: true})
		if !d.Allowed || ch.Receipt == "" || d.Source != weir.SourceStore {
			t.Errorf("keep: %+v", d)
		}
		ch.Op, ch.Cost = weir.OpSettle, 0
		if _, d, _ := c.do(ch); d.Remaining != 900-held {
			t.Errorf("settle: %+v", d)
		}
		if ch, _, _ := c.do(weir.Charge{Op: weir.OpTakeSome, Cost: 3}); ch.Taken != 3 {
			t.Errorf("take some: %+v", ch)
		}
		for _, cost := range []int64{0, -1, 1001} {
			if _, d, _ := c.do(weir.Charge{Cost: cost}); d.Allowed != (cost == 0) || d.Source != weir.SourceStore {
				t.Errorf("%d: %+v", cost, d)
			}
		}
		group := []weir.Charge{
			{Name: "l", Key: "k", Limit: day, Cost: 1, Group: 1},
			{Name: "l", Key: "z", Limit: day, Cost: 1001, Group: 1},
			{Name: "l", Key: "k", Limit: day, Cost: 1, Group: 2}, // alone
		}
		out := make([]weir.Decision, 3)
		if err := c.s.Do(t.Context(), group, out); err != nil || out[1].Allowed || !out[0].Allowed || out[0].Source != weir.SourceStore || out[2].Source != weir.SourceLease {
			t.Errorf("%+v, %v", out, err)
		}
		if n := c.left(r); n != 900-held-3 {
			t.Errorf("%d left: a group that was refused has charged", n)
		}
		if _, d, _ := c.do(weir.Charge{Op: weir.OpReset}); d.Remaining != 1000 {
			t.Errorf("reset: %+v", d)
		}
		c.take(1)
		<-time.After(2 * sec)
		if n := c.left(r); n != 999 {
			t.Errorf("%d left: what was held was given back to a key that was reset", n)
		}
	})
}

func TestWhatCannotBeLeased(t *testing.T) {
	c, r := open(t, weir.LeakyBucket{Rate: weir.PerSecond(1), Queue: 3}, lease.Options{}, 0)
	for _, l := range []weir.Limit{
		nil, weir.LeakyBucket{Rate: weir.PerSecond(1)}, weir.IntervalBucket{}, weir.SlidingLog{}, weir.SmoothBursty{}, weir.WarmUp{}, weir.Concurrency{},
		weir.All(day, day),
	} {
		if err := lease.Leasable(l); !errors.Is(err, lease.ErrLimit) {
			t.Errorf("%T: %v", l, err)
		}
	}
	for _, l := range []weir.Limit{day, weir.TokenBucket{}, weir.SlidingWindow{}, weir.SlidingCounter{}} {
		if err := lease.Leasable(l); err != nil {
			t.Error(err)
		}
	}
	for _, op := range []weir.Op{weir.OpTake, weir.OpPeek, weir.OpReserve, weir.OpReset} {
		if ch, _, err := c.do(weir.Charge{Op: op, Cost: 1}); !errors.Is(err, lease.ErrLimit) || !errors.Is(ch.Err, weir.ErrCharge) {
			t.Errorf("%v: %v", op, err)
		}
	}
	batch := []weir.Charge{
		{Name: "l", Key: "k", Limit: day, Cost: 1, Group: 1},
		{Name: "l", Key: "k", Limit: c.limit, Cost: 1, Group: 1},
		{Name: "l", Key: "k", Limit: day, Cost: 1},
		{Name: "l", Key: "k", Limit: weir.TokenBucket{}, Cost: 1}, // the store refuses it
		{Name: "l", Key: "y", Limit: day, Cost: 1},
	}
	out := make([]weir.Decision, len(batch))
	err := c.s.Do(t.Context(), batch, out)
	if !errors.Is(err, lease.ErrLimit) || !errors.Is(batch[0].Err, lease.ErrLimit) || batch[2].Err != nil || !out[2].Allowed || batch[3].Err == nil || !out[4].Allowed {
		t.Errorf("%v, %+v", err, out)
	}
	if err := c.s.Do(t.Context(), batch, out[:1]); err == nil {
		t.Error("there was no room for the decisions")
	}
	if n := r.count(weir.OpReserve); n != 0 {
		t.Errorf("%d of what cannot be leased were passed on", n)
	}
}

func TestOptions(t *testing.T) {
	if _, err := lease.New(nil, lease.Options{}); err == nil {
		t.Error("there was no store")
	}
	for _, o := range []lease.Options{{Lifetime: 1}, {Lifetime: time.Hour}, {MaxOutstanding: -1}, {MaxOutstanding: 1 << 41}, {MaxKeys: -1}, {MaxKeys: 1 << 25}, {Timeout: -1}} {
		if _, err := lease.New(weirtest.NewStore(nil), o); err == nil {
			t.Errorf("%+v", o)
		}
	}
}

// TestMaxKeys: the store decides about further keys, and unused keys make room.
func TestMaxKeys(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, _ := open(t, day, lease.Options{Lifetime: 100 * ms, MaxKeys: 5}, 0)
		for i := range 50 {
			c.key = fmt.Sprint(i)
			for range 10 {
				if !c.take(1).Allowed {
					t.Error("refused")
				}
			}
		}
		if n := c.s.Stats().Keys; n != 5 {
			t.Errorf("%d keys", n)
		}
		<-time.After(100 * ms)
		c.key = "new"
		for range 9 {
			c.take(1)
		}
		if d := c.take(1); d.Source != weir.SourceLease {
			t.Errorf("%+v, %+v", d, c.s.Stats())
		}
	})
}

// TestNothingIsAllocated: with leased tokens, and while the key is known to be refused.
func TestNothingIsAllocated(t *testing.T) {
	for name, l := range map[string]weir.Limit{"plenty": plenty, "none": weir.FixedWindow{Limit: 1, Window: 1000 * time.Hour, Align: weir.AlignFirst}} {
		c, _ := open(t, l, lease.Options{Lifetime: time.Minute}, 0)
		batch, out := []weir.Charge{{Name: "l", Key: "k", Limit: l, Cost: 1}}, make([]weir.Decision, 1)
		take := func() {
			if err := c.s.Do(t.Context(), batch, out); err != nil {
				t.Fatal(err)
			}
		}
		for range 100_000 {
			take()
		}
		if n := testing.AllocsPerRun(100_000, take); n != 0 || out[0].Source != weir.SourceLease {
			t.Errorf("%s: %v allocations, %+v", name, n, out[0])
		}
	}
}
