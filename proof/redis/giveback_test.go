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

// TestGiveBack: counts that are lowered without a receipt are those of the model: beside takes, promised
// work and receipts, and under two and three versions of a limit that callers have at once.
func TestGiveBack(t *testing.T) {
	client := connect(t, servers.StartRedis(t, servers.RedisOptions{}).Addr)
	r := rand.New(rand.NewPCG(seeds.Seed(), 21))
	five, nine := weir.FixedWindow{Limit: 5, Window: time.Minute}, weir.FixedWindow{Limit: 9, Window: time.Minute}
	hour, first := weir.FixedWindow{Limit: 20, Window: time.Hour}, weir.FixedWindow{Limit: 7, Window: time.Minute, Align: weir.AlignFirst}
	monthly := weir.FixedWindow{Limit: 12, Align: "month"}
	clock := new(weirtest.Clock)
	// one call in four gives back
	ops := []weir.Op{weir.OpTake, weir.OpTake, weir.OpTake, weir.OpReserve, weir.OpSettle, weir.OpPeek, weir.OpGiveBack, weir.OpGiveBack}
	both := []weir.Store{open(t, client, weirredis.Options{ClockKey: "clock", Timeout: patience}), weirtest.NewStore(clock.Now)}
	at := 1_700_000_000 * time.Second
	for walk, limits := range [][]weir.Limit{{five}, {first}, {monthly}, {five, nine}, {five, hour}, {five, nine, hour}, {five, hour, monthly}} {
		var receipts [2]weir.Receipt
		var reserved weir.Limit // by which the last reservation was made
		raised := 0
		for range 300 {
			at += time.Duration(r.IntN(8_000_000)) * time.Microsecond
			clockAt(t, client, at)
			clock.Set(int64(at))
			charge := weir.Charge{Name: "api", Key: string(rune('a' + walk)), Limit: limits[r.IntN(len(limits))], Op: ops[r.IntN(len(ops))], Cost: r.Int64N(4), Within: time.Minute}
			switch {
			case charge.Op == weir.OpSettle && receipts[0] == "":
				continue
			case charge.Op == weir.OpSettle:
				charge.Limit = reserved
			case charge.Op == weir.OpReserve:
				reserved = charge.Limit
			}
			var said [2]weir.Decision
			for k, store := range both {
				batch := []weir.Charge{charge}
				if charge.Op == weir.OpSettle {
					batch[0].Receipt, receipts[k] = receipts[k], ""
				}
				if err := store.Do(t.Context(), batch, said[k:k+1]); err != nil {
					t.Fatal(err)
				}
				if charge.Op == weir.OpReserve {
					receipts[k] = batch[0].Receipt
				}
			}
			if said[0] != said[1] {
				t.Fatalf("walk %d: %v of %d under %+v at %v: redis %+v, the model %+v", walk, charge.Op, charge.Cost, charge.Limit, at, said[0], said[1])
			}
			if charge.Op == weir.OpGiveBack && said[0].Remaining > 0 {
				raised++
			}
		}
		if raised < 10 {
			t.Errorf("walk %d: %d calls gave something back", walk, raised)
		}
	}
	bucket := []weir.Charge{{Name: "bucket", Key: "k", Limit: weir.TokenBucket{Rate: weir.PerHour(1), Burst: 5}, Op: weir.OpGiveBack, Cost: 1}}
	for _, store := range both {
		if err := store.Do(t.Context(), bucket, make([]weir.Decision, 1)); err == nil {
			t.Error("a bucket gives back without a receipt")
		}
	}
}
