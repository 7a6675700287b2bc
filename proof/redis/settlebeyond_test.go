package redis

import (
	"fmt"
	"math"
	"testing"
	"time"

	"github.com/weirflow/weir"
	"github.com/weirflow/weir/proof/servers"
	"github.com/weirflow/weir/weirredis"
)

// TestSettleBeyondWhatRedisCounts: an actual cost above 2^53 is charged as far as Redis can count, and
// never dropped: a client that could make its cost vanish by sending a large one would not be limited.
// The key goes on afterwards: other reservations of it can be settled.
func TestSettleBeyondWhatRedisCounts(t *testing.T) {
	store := open(t, connect(t, servers.StartRedis(t, servers.RedisOptions{}).Addr), weirredis.Options{})
	for name, l := range map[string]weir.Limit{
		"token":    weir.TokenBucket{Rate: weir.PerSecond(1000), Burst: 10},
		"day":      slow(10),
		"leaky":    weir.LeakyBucket{Rate: weir.PerSecond(10), Queue: 9, DelayAfter: 9},
		"interval": weir.IntervalBucket{Burst: 10, Refill: 5, Every: time.Hour},
		"fixed":    weir.FixedWindow{Limit: 10, Window: time.Hour, Align: weir.AlignFirst},
		"sliding":  weir.SlidingWindow{Limit: 10, Window: time.Hour, Slots: 6},
		"capped":   weir.SlidingWindow{Limit: 10, Window: time.Hour, Slots: 6, SlotLimit: 8},
		"counter":  weir.SlidingCounter{Limit: 10, Window: time.Hour},
		"log":      weir.SlidingLog{Limit: 10, Window: time.Hour},
		"smooth":   weir.SmoothBursty{Rate: weir.PerSecond(10)},
		"warm":     weir.WarmUp{Rate: weir.PerSecond(10), Period: time.Second},
		"all":      weir.All(weir.TokenBucket{Rate: weir.PerSecond(1000), Burst: 10}, weir.SlidingCounter{Limit: 10, Window: time.Hour}),
	} {
		for _, estimate := range []bool{false, true} {
			for _, actual := range []int64{1 << 40, 1 << 52, 1<<52 + 2, 1<<53 - 2, 1<<53 - 1, 1 << 53, 1<<53 + 1, 1 << 60, math.MaxInt64} {
				key := fmt.Sprint(actual, estimate)
				charge := weir.Charge{Name: name, Key: key, Limit: l, Cost: 1, Keep: true, Estimate: estimate}
				first, second := do(t, store, charge), done{}
				if charge.Cost = 1; name != "warm" && name != "smooth" {
					second = do(t, store, charge)
				}
				settle := func(of done, cost int64) {
					t.Helper()
					c := of.Charge
					c.Op, c.Cost = weir.OpSettle, cost
					if d := do(t, store, c).decision; d.Remaining != 0 {
						t.Errorf("%s: settled by %d: %+v", name, actual, d)
					}
				}
				settle(first, actual)
				if second.decision.Allowed {
					settle(second, actual)
				}
				after := do(t, store, weir.Charge{Name: name, Key: key, Limit: l, Cost: 1, Op: weir.OpPeek})
				if after.decision.Allowed {
					t.Errorf("%s: settled by %d, and the next unit is admitted: %+v", name, actual, after.decision)
				}
			}
		}
	}
}
