package postgres

import (
	"flag"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/weirflow/weir"
	"github.com/weirflow/weir/proof/servers"
	"github.com/weirflow/weir/weirpgx"
	"github.com/weirflow/weir/weirsql"
)

var bloatUpdates = flag.Int64("updates", 20_000, "how many times TestBloat updates rows")

// TestBloat: however often rows are updated, the tables stay as large as they were: updates change no index and
// reuse the room on their page. Autovacuum runs as by default, once a minute.
func TestBloat(t *testing.T) {
	for _, keys := range []int{1, 10_000} {
		t.Run(fmt.Sprint(keys), func(t *testing.T) {
			server := servers.StartPostgres(t, servers.PostgresOptions{Config: []string{"autovacuum_naptime=1min"}})
			pool := connect(t, server)
			migrate(t, pool, weirsql.Schema{})
			var updates atomic.Int64
			charge := func(s *weirsql.Store, first, n int) bool {
				batch := make([]weir.Charge, n)
				for i := range batch {
					batch[i] = weir.Charge{Name: "bloat", Key: fmt.Sprint((first + i) % keys), Limit: weir.TokenBucket{Rate: weir.PerSecond(1000), Burst: 1 << 30}, Cost: 1}
				}
				if err := try(t, s, batch, make([]weir.Decision, n)); err != nil {
					t.Error(err)
					return false
				}
				updates.Add(int64(n))
				return true
			}
			together := min(keys, 100)
			pass := func(until int64) {
				config := pool.Config()
				config.MaxConns = 16
				own, err := pgxpool.NewWithConfig(t.Context(), config)
				if err != nil {
					t.Fatal(err)
				}
				defer own.Close() // sessions report their statistics when they end
				var all sync.WaitGroup
				for p := range 8 {
					s := open(t, weirpgx.Querier(own), weirsql.Options{SweepEvery: -1})
					all.Go(func() {
						for i := p * keys / 8; updates.Load() < until && charge(s, i, together); i += together {
						}
						if err := s.Close(); err != nil {
							t.Error(err)
						}
					})
				}
				all.Wait()
			}
			pass(int64(max(keys, 1000))) // all rows are there, and have been updated
			before := sizes(t, pool)
			pass(updates.Load() + *bloatUpdates)
			after := sizes(t, pool)
			var updated, hot int64
			servers.Poll(t, "the statistics have all updates", func() bool {
				err := pool.QueryRow(t.Context(), "SELECT n_tup_upd, n_tup_hot_upd FROM pg_stat_user_tables WHERE schemaname = 'weir' AND relname = 'states'").Scan(&updated, &hot)
				return err == nil && updated >= *bloatUpdates
			})
			t.Logf("%d updates, %.2f %% of them in place; states, its index, and calls: %d kB before, %d kB after", updated, 100*float64(hot)/float64(updated), before, after)
			for i, name := range []string{"states", "its index", "calls"} {
				if after[i] > 2*before[i]+8192 { // what one minute leaves until it is vacuumed
					t.Errorf("%s had %d kB and has %d", name, before[i], after[i])
				}
			}
		})
	}
}

// sizes are those of the tables and of the index of weir.states, in kB.
func sizes(t *testing.T, pool *pgxpool.Pool) (kB [3]int64) {
	t.Helper()
	if err := pool.QueryRow(t.Context(), "SELECT pg_table_size('weir.states')/1024, pg_indexes_size('weir.states')/1024, pg_total_relation_size('weir.calls')/1024").Scan(&kB[0], &kB[1], &kB[2]); err != nil {
		t.Fatal(err)
	}
	return kB
}
