package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"golang.org/x/sync/errgroup"

	"github.com/weirflow/weir"
	"github.com/weirflow/weir/proof/servers"
	"github.com/weirflow/weir/weirpgx"
	"github.com/weirflow/weir/weirsql"
)

// A sqlSubject makes calls on a database.
type sqlSubject struct {
	name     string
	call     caller
	atLeast  float64 // on one key, beside SELECT ... FOR UPDATE; 0: it has no target
	compared bool    // it is SELECT ... FOR UPDATE
}

// sql measures a token bucket in PostgreSQL, MariaDB and SQLite, beside programs that lock a row and write it, and
// beside the least that any statement costs. For another database, write a function that returns its subjects.
func sql(r *report) error {
	ctx, cancel := context.WithTimeout(context.Background(), startTime)
	defer cancel()
	server, err := servers.Postgres(ctx, servers.PostgresOptions{Persist: true, Config: []string{"max_connections=300"}})
	if err != nil {
		return err
	}
	subjects, end, err := postgresSubjects(ctx, server)
	if err == nil {
		err = r.sqlTables("PostgreSQL", subjects)
	}
	end()
	if err := errors.Join(err, server.Stop()); err != nil {
		return err
	}
	return r.otherSQL()
}

// postgresSubjects returns the subjects in PostgreSQL. All of them leave the write-ahead log to be written later.
func postgresSubjects(ctx context.Context, server *servers.PostgresServer) (all []sqlSubject, end func(), err error) {
	var ends []func()
	end = func() {
		for _, f := range slices.Backward(ends) {
			f()
		}
	}
	config, err := pgxpool.ParseConfig(server.URL())
	if err != nil {
		return nil, end, err
	}
	config.MaxConns = redisCallers
	config.ConnConfig.RuntimeParams["synchronous_commit"] = "off"
	pool, err := pgxpool.NewWithConfig(ctx, config)
	if err != nil {
		return nil, end, err
	}
	ends = append(ends, pool.Close)
	if _, err := pool.Exec(ctx, "CREATE TABLE rows (key text PRIMARY KEY, tokens bigint NOT NULL, at timestamptz NOT NULL) WITH (fillfactor = 50)"); err != nil {
		return nil, end, err
	}
	if err := (weirsql.Schema{}).Migrate(ctx, weirpgx.Querier(pool)); err != nil {
		return nil, end, err
	}
	if _, err := pool.Exec(ctx, "INSERT INTO rows SELECT 'k' || i, 1000000000, now() FROM generate_series(0, $1::int) i", redisKeys); err != nil {
		return nil, end, err
	}
	combined, err := weirpgx.Open(server.URL(), weirsql.Options{Prefix: "one:"})
	if err != nil {
		return nil, end, err
	}
	ends = append(ends, func() { _ = combined.Close() }) // it is stopped either way
	if err := combined.Ready(ctx); err != nil {
		return nil, end, err
	}
	one, err := weir.NewShared(oneMillion, combined, weir.Named("bench"))
	if err != nil {
		return nil, end, err
	}
	if err := chargeAll(ctx, one); err != nil { // the other programs have rows for all keys, too
		return nil, end, err
	}
	querier := weirpgx.Querier(pool)
	nodes := func(prefix string, limit weir.Limit) (caller, error) {
		free := make(chan *weir.Shared, redisCallers)
		for i := range redisCallers {
			s, err := weirsql.New(querier, weirsql.Options{Prefix: prefix, RoundTrips: 1, Timeout: time.Minute})
			if err != nil {
				return nil, err
			}
			ends = append(ends, func() { _ = s.Close() }) // it returns nil
			l, err := weir.NewShared(limit, s, weir.Named("bench"))
			if err != nil {
				return nil, err
			}
			if i == 0 {
				if err := chargeAll(ctx, l); err != nil {
					return nil, err
				}
			}
			free <- l
		}
		return func(ctx context.Context, key string) (bool, error) {
			l := <-free
			defer func() { free <- l }()
			return l.Allow(ctx, key)
		}, nil
	}
	plain, err := nodes("plain:", oneMillion)
	if err != nil {
		return nil, end, err
	}
	exhausted, err := nodes("exhausted:", weir.TokenBucket{Rate: weir.PerDay(1), Burst: 1})
	if err != nil {
		return nil, end, err
	}
	return []sqlSubject{
		{name: "SELECT ... FOR UPDATE, UPDATE, COMMIT: three round trips", call: func(ctx context.Context, key string) (bool, error) { return selectForUpdate(ctx, pool, key) }, compared: true},
		{name: "weir, 64 nodes with one caller each", atLeast: 3, call: plain},
		{name: "weir, the same, and keys that are exhausted", call: func(ctx context.Context, key string) (bool, error) {
			yes, err := exhausted(ctx, key)
			return !yes, err
		}},
		{name: "weir, one node, whose callers share calls", atLeast: 5, call: one.Allow},
		{name: "floor: UPDATE ... RETURNING", call: func(ctx context.Context, key string) (bool, error) {
			var left int64
			err := pool.QueryRow(ctx, "UPDATE rows SET tokens = tokens - 1 WHERE key = $1 RETURNING tokens", key).Scan(&left)
			return left > 0, err
		}},
	}, end, nil
}

// chargeAll charges all keys once.
func chargeAll(ctx context.Context, l *weir.Shared) error {
	var all errgroup.Group
	all.SetLimit(redisCallers)
	for i := range redisKeys {
		all.Go(func() error {
			_, err := l.Allow(ctx, "k"+strconv.Itoa(i))
			return err
		})
	}
	return all.Wait()
}

// selectForUpdate is a token bucket as programs write it: the row is locked while the program decides.
func selectForUpdate(ctx context.Context, pool *pgxpool.Pool, key string) (yes bool, err error) {
	c, err := pool.Acquire(ctx)
	if err != nil {
		return false, err
	}
	defer c.Release()
	var locked pgx.Batch // BEGIN goes with the first statement
	var tokens int64
	var at, now time.Time
	locked.Queue("BEGIN")
	locked.Queue("SELECT tokens, at, clock_timestamp() FROM rows WHERE key = $1 FOR UPDATE", key).QueryRow(func(row pgx.Row) error { return row.Scan(&tokens, &at, &now) })
	if err := c.SendBatch(ctx, &locked).Close(); err != nil {
		return false, err
	}
	tokens = min(tokens+int64(now.Sub(at).Seconds()*1e9), 1e9) - 1
	if _, err := c.Exec(ctx, "UPDATE rows SET tokens = $2, at = $3 WHERE key = $1", key, tokens, now); err != nil {
		return false, err
	}
	_, err = c.Exec(ctx, "COMMIT")
	return tokens > 0, err
}

// sqlTables measures subjects with many callers, on one key and on many.
func (r *report) sqlTables(title string, subjects []sqlSubject) error {
	for _, keys := range []int{1, redisKeys} {
		t := table{
			Title:   fmt.Sprintf("%s, %d callers, %d keys", title, redisCallers, keys),
			Notes:   []string{"calls/s: median of the rounds, which take turns; / select: beside the program that locks the row, / floor: beside the UPDATE"},
			Columns: []column{{"calls/s", 0}, {"p50 us", 0}, {"p99 us", 0}, {"/ select", 2}, {"/ floor", 2}},
		}
		rates, latencies := make([][]float64, len(subjects)), make([][]time.Duration, len(subjects))
		for round := range r.rounds + 1 {
			for i, s := range subjects {
				rate, took, err := drive(s.call, redisCallers, keys, redisRounds*r.round)
				if err != nil {
					return fmt.Errorf("%s: %w", s.name, err)
				}
				if round > 0 {
					rates[i], latencies[i] = append(rates[i], rate), append(latencies[i], took...)
				}
			}
		}
		median := func(i int) float64 { return rates[i][len(rates[i])/2] }
		for i := range subjects {
			slices.Sort(rates[i])
			slices.Sort(latencies[i])
		}
		base := slices.IndexFunc(subjects, func(s sqlSubject) bool { return s.compared })
		for i, s := range subjects {
			p := func(q float64) float64 {
				return float64(latencies[i][int(q*float64(len(latencies[i])-1))]) / float64(time.Microsecond)
			}
			line := row{Name: s.name, Values: []float64{median(i), p(0.5), p(0.99), median(i) / median(base), median(i) / median(len(subjects)-1)}}
			if keys == 1 && s.atLeast > 0 {
				line.Target, line.Missed = atLeast(median(i)/median(base), s.atLeast, "select")
			}
			t.Rows = append(t.Rows, line)
		}
		r.add(t)
	}
	return nil
}
