package redis

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/weirflow/weir"
	"github.com/weirflow/weir/internal/seeds"
	"github.com/weirflow/weir/proof/servers"
	"github.com/weirflow/weir/weirredis"
	"github.com/weirflow/weir/weirtest"
)

// TestSettleWithoutAReceipt: an OpSettle without a receipt charges as in the model, whatever is left:
// beside takes and reservations, and under two versions of a limit that callers have at once.
func TestSettleWithoutAReceipt(t *testing.T) {
	client := connect(t, servers.StartRedis(t, servers.RedisOptions{}).Addr)
	r := rand.New(rand.NewPCG(seeds.Seed(), 23))
	bucket, counter := weir.TokenBucket{Rate: weir.PerMinute(10), Burst: 5}, weir.SlidingCounter{Limit: 9, Window: time.Minute}
	window, wider := weir.FixedWindow{Limit: 5, Window: time.Minute}, weir.FixedWindow{Limit: 9, Window: time.Minute}
	clock := new(weirtest.Clock)
	ops := []weir.Op{weir.OpTake, weir.OpTake, weir.OpTake, weir.OpReserve, weir.OpPeek, weir.OpSettle}
	both := []weir.Store{open(t, client, weirredis.Options{ClockKey: "clock", Timeout: patience}), weirtest.NewStore(clock.Now)}
	at := 1_700_000_000 * time.Second
	for walk, limits := range [][]weir.Limit{
		{bucket}, {counter}, {weir.All(bucket, counter)}, {window}, {weir.LeakyBucket{Rate: weir.PerMinute(10), Queue: 3}},
		{weir.SlidingLog{Limit: 5, Window: time.Minute}}, {weir.IntervalBucket{Burst: 6, Refill: 3, Every: 20 * time.Second}}, {window, wider},
	} {
		full := 0 // how many costs were charged although nothing was left
		for range 200 {
			at += time.Duration(r.IntN(20_000_000)) * time.Microsecond
			clockAt(t, client, at)
			clock.Set(int64(at))
			charge := weir.Charge{Name: "api", Key: string(rune('a' + walk)), Limit: limits[r.IntN(len(limits))], Op: ops[r.IntN(len(ops))], Cost: r.Int64N(4), Within: time.Minute, Estimate: true}
			if charge.Op == weir.OpSettle && r.IntN(4) == 0 {
				charge.Cost = 12 // more than any limit
			}
			var left, said [2]weir.Decision
			for k, store := range both {
				look := charge
				look.Op, look.Cost = weir.OpPeek, 0
				if err := store.Do(t.Context(), []weir.Charge{look}, left[k:k+1]); err != nil {
					t.Fatal(err)
				}
				if err := store.Do(t.Context(), []weir.Charge{charge}, said[k:k+1]); err != nil {
					t.Fatal(err)
				}
			}
			for _, wait := range []*time.Duration{&said[1].RetryAfter, &said[1].ResetAfter} { // Redis counts in microseconds
				if *wait > 0 {
					*wait = (*wait + time.Microsecond - 1).Truncate(time.Microsecond)
				}
			}
			if said[0] != said[1] {
				t.Fatalf("walk %d: %v of %d under %+v at %v: redis %+v, the model %+v", walk, charge.Op, charge.Cost, charge.Limit, at, said[0], said[1])
			}
			if charge.Op == weir.OpSettle && left[0].Remaining == 0 && charge.Cost > 0 {
				full++
				if said[0].ResetAfter < left[0].ResetAfter {
					t.Fatalf("walk %d: %+v became %+v", walk, left[0], said[0])
				}
			}
		}
		if full < 3 {
			t.Errorf("walk %d: %d costs were charged to a full limit", walk, full)
		}
	}
}
