package room

import (
	"context"
	"fmt"
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"
	"pgregory.net/rapid"

	"github.com/weirflow/weir/proof/servers"
	"github.com/weirflow/weir/server/room"
	"github.com/weirflow/weir/server/stores/postgres"
	"github.com/weirflow/weir/weirpgx"
	"github.com/weirflow/weir/weirsql"
)

// testClock is an SQL expression that reads the clock of tests.
const testClock = "(SELECT us FROM public.clock)"

// connectTo returns a pool of connections with a server.
func connectTo(t testing.TB, url string) *pgxpool.Pool {
	t.Helper()
	pool, err := pgxpool.New(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	return pool
}

// withClock starts a PostgreSQL whose functions read the clock of tests.
func withClock(t *testing.T) (pool *pgxpool.Pool, set func(at int64)) {
	t.Helper()
	pool = connectTo(t, servers.StartPostgres(t, servers.PostgresOptions{}).URL())
	if _, err := pool.Exec(t.Context(), "CREATE TABLE public.clock (us bigint NOT NULL); INSERT INTO public.clock VALUES (0)"); err != nil {
		t.Fatal(err)
	}
	if err := (weirsql.Schema{Clock: testClock, Unlogged: true}).Migrate(t.Context(), weirpgx.Querier(pool)); err != nil {
		t.Fatal(err)
	}
	return pool, func(at int64) {
		if _, err := pool.Exec(context.Background(), "UPDATE public.clock SET us = $1", at); err != nil {
			t.Error(err)
		}
	}
}

func openPostgres(t testing.TB, q weirsql.Querier, name string, spec room.Spec) *postgres.Queue {
	line, err := postgres.NewQueue(q, spec, postgres.QueueOptions{Name: name, Deadline: servers.Patience})
	if err != nil {
		t.Fatal(err)
	}
	return line
}

func TestQueueInPostgres(t *testing.T) {
	pool, set := withClock(t)
	n := 0
	rapid.Check(t, func(r *rapid.T) {
		n++
		spec := specs.Draw(r, "room")
		line := openPostgres(t, weirpgx.Querier(pool), fmt.Sprint(n), spec)
		walk(r, spec, func(at int64, q room.Poll) room.Standing {
			set(at)
			a, err := line.Poll(context.Background(), q)
			if err != nil {
				r.Fatal(err)
			}
			return a
		})
	})
}
