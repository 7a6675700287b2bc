package postgres

import (
	"context"
	"flag"
	"fmt"
	"math/rand/v2"
	"sync/atomic"
	"testing"
	"time"
	_ "time/tzdata"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/weirflow/weir"
	"github.com/weirflow/weir/internal/raced"
	"github.com/weirflow/weir/internal/seeds"
	"github.com/weirflow/weir/proof/servers"
	"github.com/weirflow/weir/weirpgx"
	"github.com/weirflow/weir/weirsql"
	"github.com/weirflow/weir/weirtest"
)

// walks is the number of random walks for each limit.
var walks = flag.Int("walks", 6, "how many random walks of each limit")

// testClock is an SQL expression that reads the clock of tests.
const testClock = "(SELECT us FROM public.clock)"

// connect returns a pool of connections to a server.
func connect(t testing.TB, s *servers.PostgresServer) *pgxpool.Pool {
	t.Helper()
	return connectTo(t, s.URL())
}

func connectTo(t testing.TB, url string) *pgxpool.Pool {
	t.Helper()
	config, err := pgxpool.ParseConfig(url)
	if err != nil {
		t.Fatal(err)
	}
	config.ConnConfig.DefaultQueryExecMode = pgx.QueryExecModeExec
	pool, err := pgxpool.NewWithConfig(t.Context(), config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	return pool
}

// migrate makes a schema.
func migrate(t testing.TB, pool *pgxpool.Pool, s weirsql.Schema) {
	t.Helper()
	if err := s.Migrate(t.Context(), weirpgx.Querier(pool)); err != nil {
		t.Fatal(err)
	}
}

// world is a server with the test's own clock.
type world struct {
	pool   *pgxpool.Pool
	serial atomic.Int64
}

func newWorld(t testing.TB) *world {
	w := &world{pool: connect(t, servers.StartPostgres(t, servers.PostgresOptions{}))}
	if _, err := w.pool.Exec(t.Context(), "CREATE UNLOGGED TABLE public.clock (us bigint) WITH (fillfactor = 10); INSERT INTO public.clock VALUES (0)"); err != nil {
		t.Fatal(err)
	}
	trap(t, w.pool) // nothing that other users have made is called
	migrate(t, w.pool, weirsql.Schema{Clock: testClock, Unlogged: true})
	return w
}

// open returns a limit in PostgreSQL, on a clock that stands still until it is set: the functions read it
// from a table.
func (w *world) open(l weir.Limit, c *weirtest.Clock) (weirtest.Taker, error) {
	s, err := weirpgx.New(w.pool, weirsql.Options{
		Schema: weirsql.Schema{Clock: testClock}, Prefix: fmt.Sprint(w.serial.Add(1)), Timeout: time.Minute, RoundTrips: 1, SweepEvery: -1,
	})
	if err != nil {
		return nil, err
	}
	return weirtest.Stored(&clocked{Store: s, pool: w.pool, clock: c, set: -1}, l), nil
}

// clocked is a store whose server reads the clock of a test.
type clocked struct {
	*weirsql.Store
	pool  *pgxpool.Pool
	clock *weirtest.Clock
	set   int64
}

func (s *clocked) Do(ctx context.Context, batch []weir.Charge, out []weir.Decision) error {
	if now := s.clock.Now() / int64(time.Microsecond); now != s.set {
		if _, err := s.pool.Exec(ctx, "UPDATE public.clock SET us = $1", now); err != nil {
			return err
		}
		s.set = now
	}
	return s.Store.Do(ctx, batch, out)
}

// stored returns generators of the limits that PostgreSQL keeps.
func stored() (all []func(*rand.Rand) weir.Limit) {
	for _, draw := range weirtest.Limits() {
		if weirsql.Check(draw(rand.New(rand.NewPCG(1, 1)))) == nil {
			all = append(all, draw)
		}
	}
	return append(all, large, long)
}

// TestConform compares the functions with the reference model. Every algorithm is changed to every
// other one.
func TestConform(t *testing.T) {
	raced.Skip(t)
	w := newWorld(t)
	weirtest.Conform(t, weirtest.Subject{Blind: true, Tick: time.Microsecond, Latest: 1 << 52, Open: w.open, Limits: stored(), Seed: seeds.Seed(), Walks: *walks})
}

// large draws a limit whose products are far beyond a bigint.
func large(r *rand.Rand) weir.Limit {
	number := func() int64 {
		return []int64{1<<53 - 1 - r.Int64N(4), 1 + r.Int64N(1<<53-1), 1 + r.Int64N(1<<20)}[r.IntN(3)]
	}
	span := func() time.Duration {
		return time.Duration(1+r.Int64N([]int64{1 << 50, 1 << 36, 1 << 21}[r.IntN(3)])) * time.Microsecond
	}
	for {
		limits := []weir.Limit{
			weir.IntervalBucket{Burst: number(), Refill: number(), Every: span()},
			weir.FixedWindow{Limit: number(), Window: span(), Align: []weir.Align{weir.AlignEpoch, weir.AlignFirst}[r.IntN(2)]},
			weir.SlidingCounter{Limit: number(), Window: span()},
		}
		if l := limits[r.IntN(len(limits))]; l.Validate() == nil {
			return l
		}
	}
}

// long draws a limit with many slots or charges, or a rate without end.
func long(r *rand.Rand) weir.Limit {
	slots := []int{7, 60, 4096}[r.IntN(3)]
	return []weir.Limit{
		weir.SlidingWindow{Limit: 1 + r.Int64N(100), Slots: slots, Window: time.Duration(slots) * 100 * time.Microsecond},
		weir.SlidingLog{Limit: 1 + r.Int64N(300), Window: []time.Duration{300 * time.Microsecond, time.Hour}[r.IntN(2)], MaxEntries: []int{0, 0, 7, 20}[r.IntN(4)]},
		weir.SmoothBursty{Rate: weir.Unlimited, MaxBurst: []time.Duration{0, -1, time.Minute}[r.IntN(3)]},
	}[r.IntN(3)]
}
