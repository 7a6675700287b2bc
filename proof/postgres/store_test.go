package postgres

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/weirflow/weir"
	"github.com/weirflow/weir/internal/seeds"
	"github.com/weirflow/weir/proof/regions"
	"github.com/weirflow/weir/proof/servers"
	"github.com/weirflow/weir/weirpgx"
	"github.com/weirflow/weir/weirsql"
	"github.com/weirflow/weir/weirtest"
)

// hour is a limit that brings nothing back during a test.
var hour = weir.FixedWindow{Limit: 100, Window: time.Hour, Align: weir.AlignFirst}

// do carries out charges, and fails the test where the store fails.
func do(t testing.TB, s weir.Store, batch ...weir.Charge) []weir.Decision {
	t.Helper()
	out := make([]weir.Decision, len(batch))
	if err := try(t, s, batch, out); err != nil {
		t.Fatal(err)
	}
	return out
}

// try makes a call that has as long as tests wait for anything: without a deadline it would fail where the
// machine stands still for a second.
func try(t testing.TB, s weir.Store, batch []weir.Charge, out []weir.Decision) error {
	ctx, cancel := context.WithTimeout(t.Context(), servers.Patience)
	defer cancel()
	return s.Do(ctx, batch, out)
}

// open returns a store with a lane, or as many as o says.
func open(t testing.TB, q weirsql.Querier, o weirsql.Options) *weirsql.Store {
	t.Helper()
	s, err := weirsql.New(q, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() }) // it returns nil
	return s
}

// TestStore has what one server can be used for side by side.
func TestStore(t *testing.T) {
	server := servers.StartPostgres(t, servers.PostgresOptions{Config: []string{"deadlock_timeout=100ms", "log_min_messages=warning"}})
	pool := connect(t, server)
	q := weirpgx.Querier(pool)
	t.Run("migrations", func(t *testing.T) {
		// several processes that start at once
		var all sync.WaitGroup
		for range 8 {
			all.Go(func() {
				if err := (weirsql.Schema{}).Migrate(context.WithoutCancel(t.Context()), q); err != nil {
					t.Error(err)
				}
			})
		}
		all.Wait()
		// once more, by hand
		script, err := weirsql.Schema{}.Script()
		if err != nil {
			t.Fatal(err)
		}
		if err := q.Exec(t.Context(), script); err != nil {
			t.Error(err)
		}
		word := weirsql.Schema{Name: "user"} // a word of SQL
		migrate(t, pool, word)
		do(t, open(t, q, weirsql.Options{Schema: word}), weir.Charge{Name: "x", Limit: hour, Cost: 1})
		other := open(t, q, weirsql.Options{Schema: weirsql.Schema{Name: "other", Unlogged: true}})
		ctx, cancel := context.WithTimeout(t.Context(), servers.Patience)
		defer cancel()
		err = other.Do(ctx, []weir.Charge{{Name: "x", Limit: hour, Cost: 1}}, make([]weir.Decision, 1))
		if err == nil || !strings.Contains(err.Error(), "weir store sql --schema other --unlogged | psql") {
			t.Errorf("without tables: %v", err)
		}
		if err := other.Ping(ctx); err == nil || !strings.Contains(err.Error(), "weir store sql --schema other --unlogged | psql") {
			t.Errorf("without tables: %v", err)
		}
	})
	t.Run("fleet", func(t *testing.T) {
		testFleet(t, q, "fleet", hour)
		testFleet(t, q, "fleet of buckets", bucket)
	})
	for i, call := range takes {
		name := fmt.Sprint("take", i)
		t.Run(name, func(t *testing.T) { testTake(t, pool, open(t, q, weirsql.Options{Prefix: name}), 4711+i, call) })
	}
	t.Run("exhausted", func(t *testing.T) { testExhausted(t, pool) })
	t.Run("pgbouncer", func(t *testing.T) { // in transaction mode, with fewer connections than the stores have lanes
		pool := connectTo(t, servers.StartPgbouncer(t, server, 3))
		testFleet(t, weirpgx.Querier(pool), "pgbouncer", hour)
		testFleet(t, weirpgx.Querier(pool), "pgbouncer and buckets", bucket)
	})
	t.Run("prepared", func(t *testing.T) { testPrepared(t, server) })
	t.Run("regions", func(t *testing.T) {
		regions.Check(t, func(t *testing.T, name string) weir.Store {
			return open(t, q, weirsql.Options{Prefix: "regions-" + name})
		})
	})
	t.Run("usage", func(t *testing.T) { weirtest.Usage(t, open(t, q, weirsql.Options{Prefix: "usage"}), "usage") })
	t.Run("groups", func(t *testing.T) { testGroups(t, open(t, q, weirsql.Options{Prefix: "groups"})) })
	t.Run("once", func(t *testing.T) { testOnce(t, q) })
	t.Run("hostile", func(t *testing.T) { testHostile(t, open(t, q, weirsql.Options{Prefix: "hostile"})) })
	t.Run("corrupt", func(t *testing.T) { testCorrupt(t, pool, open(t, q, weirsql.Options{Prefix: "corrupt"})) })
	t.Run("locked", func(t *testing.T) {
		s := open(t, q, weirsql.Options{Prefix: "locked"})
		do(t, s, weir.Charge{Name: "x", Key: "a", Limit: hour, Cost: 1})
		tx, err := pool.Begin(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if _, err := tx.Exec(t.Context(), "SELECT 1 FROM weir.states FOR UPDATE"); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
		defer cancel()
		err = s.Do(ctx, []weir.Charge{{Name: "x", Key: "a", Limit: hour, Cost: 1}}, make([]weir.Decision, 1))
		if !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("a key that is locked: %v", err)
		}
		// the server gives the call up by itself
		servers.Poll(t, "no call waits", func() bool {
			var n int
			if err := pool.QueryRow(t.Context(), "SELECT count(*) FROM pg_locks WHERE NOT granted").Scan(&n); err != nil {
				t.Fatal(err)
			}
			return n == 0
		})
		if err := tx.Rollback(t.Context()); err != nil {
			t.Fatal(err)
		}
		if d := do(t, s, weir.Charge{Name: "x", Key: "a", Limit: hour, Cost: 1})[0]; d.Remaining != 98 {
			t.Errorf("a call that was given up has charged: %+v", d)
		}
	})
	t.Run("isolation", func(t *testing.T) {
		_, err := pool.Exec(t.Context(), "BEGIN ISOLATION LEVEL SERIALIZABLE; SELECT weir.carry_out(0, 0, 0, false, '{}', '{}', '{}', '{}', '{}'); COMMIT")
		if err == nil || !strings.Contains(err.Error(), "READ COMMITTED") {
			t.Errorf("under another isolation level: %v", err)
		}
	})
	t.Run("ping", func(t *testing.T) { testPing(t, server, pool) })
	t.Run("sweep", func(t *testing.T) {
		s := open(t, q, weirsql.Options{Prefix: "sweep", Grace: time.Microsecond, SweepEvery: -1})
		short := weir.TokenBucket{Rate: weir.PerSecond(1_000_000), Burst: 1}
		for i := range 3000 / 100 {
			var batch []weir.Charge
			for j := range 100 {
				batch = append(batch, weir.Charge{Name: "x", Key: fmt.Sprint(i*100 + j), Limit: short, Cost: 1})
			}
			do(t, s, batch...)
		}
		do(t, s, weir.Charge{Name: "x", Key: "stays", Limit: hour, Cost: 1})
		rows := func() (n int) {
			if err := pool.QueryRow(t.Context(), `SELECT count(*) FROM weir.states WHERE position('\x73776565703a'::bytea in id) > 0 OR position('sweep'::bytea in id) > 0`).Scan(&n); err != nil {
				t.Fatal(err)
			}
			return n
		}
		if n := rows(); n != 3001 {
			t.Fatalf("%d rows", n)
		}
		removed, err := s.Sweep(t.Context())
		if err != nil || removed < 3000 || rows() != 1 {
			t.Errorf("%d removed, %d left: %v", removed, rows(), err)
		}
		if d := do(t, s, weir.Charge{Name: "x", Key: "stays", Limit: hour, Op: weir.OpPeek})[0]; d.Remaining != 99 {
			t.Errorf("%+v", d)
		}
		do(t, s, weir.Charge{Name: "x", Key: "stays", Limit: hour, Op: weir.OpReset})
		if n := rows(); n != 0 {
			t.Errorf("%d rows after a reset", n)
		}
		// what nothing was charged to leaves no row
		do(t, s, weir.Charge{Name: "x", Key: "peeked", Limit: hour, Op: weir.OpPeek, Cost: 1}, weir.Charge{Name: "x", Key: "refused", Limit: hour, Cost: 101})
		if n := rows(); n != 0 {
			t.Errorf("%d rows after a peek and a refusal", n)
		}
	})
	t.Run("updates in place", func(t *testing.T) {
		pages := func() (n int) {
			t.Helper()
			if err := pool.QueryRow(t.Context(), "SELECT (pg_relation_size('weir.calls') + pg_relation_size('weir.states')) / 8192").Scan(&n); err != nil {
				t.Fatal(err)
			}
			return n
		}
		s := open(t, q, weirsql.Options{Prefix: "hot"})
		before := pages()
		for range 500 {
			do(t, s, weir.Charge{Name: "x", Key: "a", Limit: weir.TokenBucket{Rate: weir.PerSecond(1), Burst: 1 << 30}, Cost: 1})
		}
		if after := pages(); after > before+4 {
			t.Errorf("500 updates of one key took %d more pages: they are not in place", after-before)
		}
	})
	t.Run("settled once", func(t *testing.T) {
		s := open(t, q, weirsql.Options{Prefix: "settled"})
		reserve := []weir.Charge{{Name: "x", Limit: hour, Cost: 10, Op: weir.OpReserve, Estimate: true}}
		if err := try(t, s, reserve, make([]weir.Decision, 1)); err != nil {
			t.Fatal(err)
		}
		for i, c := range []struct {
			once      string
			actual    int64
			remaining int64
		}{{"a", 4, 96}, {"a", 4, 96}, {"a", 100, 96}, {"b", 12, 94}} {
			settle := reserve[0]
			settle.Op, settle.Cost, settle.Once, settle.OnceFor = weir.OpSettle, c.actual, c.once, time.Hour
			if d := do(t, s, settle)[0]; d.Remaining != c.remaining {
				t.Errorf("settle %d: %d remain, want %d", i, d.Remaining, c.remaining)
			}
		}
	})
	t.Run("nodes", func(t *testing.T) {
		s := open(t, q, weirsql.Options{Prefix: "nodes"})
		for i := range 3 {
			if n, err := s.Beat(t.Context(), fmt.Sprint(i), time.Hour); err != nil || n != i+1 {
				t.Errorf("%d nodes: %v", n, err)
			}
		}
		if n, err := s.Beat(t.Context(), "2", 0); err != nil || n > 3 {
			t.Errorf("%d nodes: %v", n, err)
		}
		apart := open(t, q, weirsql.Options{Prefix: "apart"})
		if n, err := apart.Beat(t.Context(), "0", time.Hour); err != nil || n != 1 {
			t.Errorf("%d nodes with another prefix: %v", n, err)
		}
	})
}

// testFleet: processes with stores of their own charge the same keys, in batches in any order, singly and
// in groups. What they are granted is exactly the limit, and no call waits for another in a circle.
func testFleet(t *testing.T, q weirsql.Querier, prefix string, l weir.Limit) {
	const keys, processes, callers = 7, 4, 4
	var granted [keys]atomic.Int64
	var all sync.WaitGroup
	for p := range processes {
		s := open(t, q, weirsql.Options{Prefix: prefix, RoundTrips: 3})
		for c := range callers {
			random := rand.New(rand.NewPCG(seeds.Seed(), uint64(p*callers+c)))
			all.Go(func() {
				for range 60 {
					n := 1 + random.IntN(5)
					batch, of := make([]weir.Charge, n), make([]int, n)
					group := random.IntN(2)
					for i := range batch {
						of[i] = random.IntN(keys)
						batch[i] = weir.Charge{Name: "x", Key: fmt.Sprint(of[i]), Limit: l, Cost: 1, Group: group}
					}
					out := make([]weir.Decision, n)
					if err := try(t, s, batch, out); err != nil {
						t.Error(err)
						return
					}
					for i := range out {
						every := true
						for j := range out {
							every = every && out[j].Allowed
						}
						if out[i].Allowed && (group == 0 || every) {
							granted[of[i]].Add(1)
						}
					}
				}
			})
		}
	}
	all.Wait()
	s := open(t, q, weirsql.Options{Prefix: prefix})
	for i := range granted {
		d := do(t, s, weir.Charge{Name: "x", Key: fmt.Sprint(i), Limit: l, Op: weir.OpPeek})[0]
		if n := granted[i].Load(); n != 100-d.Remaining || n < 90 {
			t.Errorf("key %d: %d granted, and %d remain", i, n, d.Remaining)
		}
	}
}

// testGroups: a group is charged or not, and the decisions of a refused one are those without it.
func testGroups(t *testing.T, s *weirsql.Store) {
	small := weir.FixedWindow{Limit: 2, Window: time.Hour, Align: weir.AlignFirst}
	group := func(cost int64) []weir.Decision {
		return do(t, s,
			weir.Charge{Name: "a", Limit: hour, Cost: 1, Group: 1},
			weir.Charge{Name: "free", Limit: hour, Cost: 1},
			weir.Charge{Name: "b", Limit: small, Cost: cost, Group: 1, Keep: true},
			weir.Charge{Name: "a", Limit: hour, Cost: 1, Group: 1},
		)
	}
	for i, c := range []struct {
		cost    int64
		allowed string
		remain  string
	}{
		{2, "true true true true", "99 99 0 98"},
		{1, "true true false true", "98 98 0 98"},
		{0, "true true true true", "97 97 0 96"},
	} {
		var allowed, remain []string
		for _, d := range group(c.cost) {
			allowed, remain = append(allowed, fmt.Sprint(d.Allowed)), append(remain, fmt.Sprint(d.Remaining))
		}
		if a, r := strings.Join(allowed, " "), strings.Join(remain, " "); a != c.allowed || r != c.remain {
			t.Errorf("%d: %s with %s, want %s with %s", i, a, r, c.allowed, c.remain)
		}
	}
	// a bucket that starts empty fills from its first call on
	empty := weir.TokenBucket{Rate: weir.PerSecond(1), Burst: 5, Initial: weir.InitialEmpty}
	first := do(t, s, weir.Charge{Name: "full", Limit: hour, Cost: 1, Group: 1}, weir.Charge{Name: "empty", Limit: empty, Cost: 5, Group: 1})
	servers.Poll(t, "a bucket that was refused in a group fills", func() bool {
		return do(t, s, weir.Charge{Name: "empty", Limit: empty, Op: weir.OpPeek, Cost: 1})[0].RetryAfter < first[1].RetryAfter-4*time.Second
	})
	// the same group twice in one batch, apart from each other, and two groups
	out := do(t, s,
		weir.Charge{Name: "c", Limit: small, Cost: 2, Group: 1}, weir.Charge{Name: "d", Limit: small, Cost: 3, Group: 2},
		weir.Charge{Name: "c", Limit: small, Cost: 1, Group: 1}, weir.Charge{Name: "e", Limit: small, Cost: 2, Group: 2},
		weir.Charge{Name: "c", Limit: small, Op: weir.OpPeek, Cost: 2}, weir.Charge{Name: "e", Limit: small, Op: weir.OpPeek, Cost: 2})
	if !out[4].Allowed || !out[5].Allowed || out[2].Allowed == out[0].Allowed {
		t.Errorf("groups that were refused have charged: %+v", out)
	}
}

// losing is a Querier that loses replies, and sometimes carries the same statement out twice at once.
type losing struct {
	weirsql.Querier
	random *rand.Rand
	mu     sync.Mutex
	late   sync.WaitGroup
}

var errLost = errors.New("the connection was lost")

func (l *losing) Query(ctx context.Context, statement string, args ...string) (string, error) {
	l.mu.Lock()
	draw := l.random.IntN(6)
	l.mu.Unlock()
	switch draw {
	case 0: // the call never arrives
		return "", errLost
	case 1: // its reply is lost
		_, _ = l.Querier.Query(ctx, statement, args...)
		return "", errLost
	case 2: // it arrives later than its repetition, or at the same time
		l.late.Go(func() { _, _ = l.Querier.Query(context.WithoutCancel(ctx), statement, args...) })
		return "", errLost
	}
	return l.Querier.Query(ctx, statement, args...)
}

// testOnce: calls whose replies are lost are repeated, and charge once.
func testOnce(t *testing.T, q weirsql.Querier) {
	lossy := &losing{Querier: q, random: rand.New(rand.NewPCG(seeds.Seed(), 7))}
	s := open(t, lossy, weirsql.Options{Prefix: "once"})
	large := weir.FixedWindow{Limit: 1 << 40, Window: time.Hour, Align: weir.AlignFirst}
	var all sync.WaitGroup
	var granted atomic.Int64
	for range 8 {
		all.Go(func() {
			for range 40 {
				if do(t, s, weir.Charge{Name: "x", Limit: large, Cost: 1})[0].Allowed {
					granted.Add(1)
				}
			}
		})
	}
	all.Wait()
	lossy.late.Wait()
	d := do(t, open(t, q, weirsql.Options{Prefix: "once"}), weir.Charge{Name: "x", Limit: large, Op: weir.OpPeek})[0]
	if n := large.Limit - d.Remaining; n != 320 || granted.Load() != 320 {
		t.Errorf("%d charged, %d granted", n, granted.Load())
	}
}

// testHostile: keys with any bytes are keys of their own, receipts and costs of any kind are no more than
// errors, and what another program wrote is an error of its key alone.
func testHostile(t *testing.T, s *weirsql.Store) {
	one := weir.FixedWindow{Limit: 1, Window: time.Hour, Align: weir.AlignFirst}
	keys := []string{"", "\x00", "'", `"`, `\`, "{}", "},{", ";", "a;b c", "--", "$1", "\xff\xfe", strings.Repeat("k", 511), strings.Repeat("k", 600), strings.Repeat("k", 1<<20), "NULL", "ü"}
	for round := range 2 {
		for _, key := range keys {
			d := do(t, s, weir.Charge{Name: "n", Key: key, Limit: one, Cost: 1})[0]
			if d.Allowed != (round == 0) {
				t.Errorf("%.20q in round %d: %+v", key, round, d)
			}
		}
	}
	for _, c := range []weir.Charge{{Name: "1:n", Key: ""}, {Name: "", Key: "n"}, {Name: "nn", Key: ""}, {Name: "n;", Key: "'"}} {
		c.Limit, c.Cost = one, 1
		if d := do(t, s, c)[0]; !d.Allowed {
			t.Errorf("%+v has the state of another key", c)
		}
	}
	for _, paper := range []string{"x", "{}", "{1}~1~1~{1}'; DROP TABLE weir.states", "~~~", "{1,0,1,1,1,0}~1~1~{1,2,3", "{1,0,1,1,1,0}~99999999999999999999999~1~{}", "settled"} {
		batch := []weir.Charge{{Name: "n", Limit: one, Op: weir.OpSettle, Receipt: weir.Receipt(paper)}}
		if err := try(t, s, batch, make([]weir.Decision, 1)); !errors.Is(err, weir.ErrCharge) {
			t.Errorf("receipt %q: %v", paper, err)
		}
	}
	for _, cost := range []int64{-1 << 63, -1, 0, 1<<53 - 1, 1 << 53, 1<<63 - 1} {
		for op := weir.OpTake; op <= weir.OpGiveBack; op++ {
			for _, l := range []weir.Limit{one, weir.TokenBucket{Rate: weir.PerSecond(999983), Burst: 3}, weir.SlidingLog{Limit: 3, Window: time.Second}, weir.SlidingWindow{Limit: 3, Window: time.Second, Slots: 2}, weir.SlidingCounter{Limit: 3, Window: time.Second}, weir.IntervalBucket{Burst: 3, Refill: 1, Every: time.Second}} {
				batch := []weir.Charge{{Name: weir.Algorithm(l), Key: fmt.Sprint(cost, op), Limit: l, Op: op, Cost: cost, Within: -1}}
				if err := try(t, s, batch, make([]weir.Decision, 1)); err != nil && !errors.Is(err, weir.ErrCharge) {
					t.Errorf("%v of %d of %T: %v", op, cost, l, err)
				}
			}
		}
	}
}
