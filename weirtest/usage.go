package weirtest

import (
	"context"
	"fmt"
	"time"

	"github.com/weirflow/weir"
)

// Usage tests that an OpPeek with Usage of a store returns how much a key has used: within the limit, and
// beyond it, which costs that are known only afterwards can use. name begins the names of the limits. The
// store's clock is the real one.
func Usage(t TB, s weir.Store, name string) {
	t.Helper()
	for i, l := range []weir.Limit{
		weir.TokenBucket{Rate: weir.PerDay(1), Burst: 1000},
		weir.LeakyBucket{Rate: weir.PerDay(1), Queue: 999, DelayAfter: 999},
		weir.IntervalBucket{Burst: 1000, Refill: 1, Every: 24 * time.Hour},
		weir.FixedWindow{Limit: 1000, Window: 365 * 24 * time.Hour},
		weir.SlidingWindow{Limit: 1000, Window: 24 * time.Hour, Slots: 24},
		weir.SlidingLog{Limit: 1000, Window: 24 * time.Hour},
		weir.All(weir.FixedWindow{Limit: 1000, Window: 365 * 24 * time.Hour}, weir.TokenBucket{Rate: weir.PerDay(1), Burst: 5000}),
	} {
		if k, ok := s.(weir.Keeper); ok && k.Keeps(l) != nil {
			continue
		}
		c := weir.Charge{Name: fmt.Sprint(name, i), Key: "a", Limit: l}
		used := func(want int64) {
			t.Helper()
			peek := c
			peek.Op, peek.Usage, peek.Cost = weir.OpPeek, true, 1
			if _, err := one(s, &peek); err != nil || peek.Used != want {
				t.Errorf("%T%+v: %d used, want %d (%v)", l, l, peek.Used, want, err)
			}
		}
		used(0)
		reserve := c
		reserve.Op, reserve.Cost, reserve.Estimate = weir.OpReserve, 100, true
		if d, err := one(s, &reserve); err != nil || !d.Allowed {
			t.Errorf("%T%+v: %+v, %v", l, l, d, err)
			return
		}
		used(100)
		settle := reserve
		settle.Op, settle.Cost = weir.OpSettle, 2500
		if _, err := one(s, &settle); err != nil {
			t.Errorf("%T%+v: %v", l, l, err)
		}
		used(2500)
	}
}

// one carries out a charge.
func one(s weir.Store, c *weir.Charge) (weir.Decision, error) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	batch, out := []weir.Charge{*c}, make([]weir.Decision, 1)
	err := s.Do(ctx, batch, out)
	*c = batch[0]
	return out[0], err
}
