package postgres

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/weirflow/weir"
	"github.com/weirflow/weir/proof/servers"
	"github.com/weirflow/weir/weirsql"
)

// testCorrupt: a row with numbers that no state has is an error of its key, and charges nothing to the
// other keys of the call.
func testCorrupt(t *testing.T, pool *pgxpool.Pool, s *weirsql.Store) {
	ctx, cancel := context.WithTimeout(t.Context(), servers.Patience)
	defer cancel()
	for _, l := range []weir.Limit{
		hour, weir.TokenBucket{Rate: weir.PerDay(9), Burst: 30}, weir.LeakyBucket{Rate: weir.PerDay(9), Queue: 30}, weir.SmoothBursty{Rate: weir.PerDay(9), MaxBurst: 24 * time.Hour},
		weir.IntervalBucket{Burst: 30, Refill: 1, Every: time.Hour}, weir.SlidingLog{Limit: 30, Window: time.Hour}, weir.SlidingWindow{Limit: 30, Window: time.Hour, Slots: 2}, weir.SlidingCounter{Limit: 30, Window: time.Hour},
	} {
		name := weir.Algorithm(l)
		charge := func(key string, op weir.Op) weir.Charge {
			return weir.Charge{Name: name, Key: key, Limit: l, Cost: 1, Op: op}
		}
		for _, number := range []string{"NaN", "Infinity", "-Infinity", "9e100", "0.5", "-1"} {
			do(t, s, charge(number, weir.OpTake), charge("sound", weir.OpTake))
			tag, err := pool.Exec(ctx, "UPDATE weir.states SET s = array_fill($1::numeric, ARRAY[cardinality(s)]) WHERE position($2::bytea in id) > 0 AND position($3::bytea in id) > 0", number, []byte(name+number), []byte("corrupt"))
			if err != nil || tag.RowsAffected() != 1 {
				t.Fatalf("%s %s: %v rows: %v", name, number, tag.RowsAffected(), err)
			}
			for _, op := range []weir.Op{weir.OpPeek, weir.OpTake, weir.OpReserve, weir.OpTakeSome} {
				before := do(t, s, charge("sound", weir.OpPeek))[0].Remaining
				err := s.Do(ctx, []weir.Charge{charge("sound", weir.OpTake), charge(number, op)}, make([]weir.Decision, 2))
				if err != nil && !errors.Is(err, weir.ErrCharge) {
					t.Errorf("%s %s, %v: %v", name, number, op, err)
				}
				if after := do(t, s, charge("sound", weir.OpPeek))[0].Remaining; err != nil && after < before {
					t.Errorf("%s %s, %v: %v, and %d was charged to another key", name, number, op, err, before-after)
				}
			}
			for range 2 { // alone, which take_key decides
				if err := s.Do(ctx, []weir.Charge{charge(number, weir.OpTake)}, make([]weir.Decision, 1)); err != nil && !errors.Is(err, weir.ErrCharge) {
					t.Errorf("%s %s: %v", name, number, err)
				}
			}
			do(t, s, charge("sound", weir.OpReset))
		}
	}
}
