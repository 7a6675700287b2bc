// Package weirpgx connects weirsql to the driver pgx.
package weirpgx

import (
	"context"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/weirflow/weir/weirsql"
)

// New returns a Store over a pool. Close does not close the pool. The pool needs a connection for each
// of Options.RoundTrips, and one more for probes and cleaning. It makes no tables: see
// weirsql.Schema.Migrate.
func New(pool *pgxpool.Pool, o weirsql.Options) (*weirsql.Store, error) {
	return weirsql.New(Querier(pool), o)
}

// Querier sends statements by a pool. pgx repeats none that it has sent. Where the pool's
// DefaultQueryExecMode is the default of pgx, which prepares statements, a pgbouncer before version 1.21
// cannot be in between: set pgx.QueryExecModeExec.
func Querier(pool *pgxpool.Pool) weirsql.Querier { return querier{pool} }

type querier struct{ pool *pgxpool.Pool }

// Query sends one SELECT.
func (q querier) Query(ctx context.Context, statement string, args ...string) (text string, err error) {
	c, err := q.pool.Acquire(ctx)
	if err != nil {
		return "", err
	}
	defer c.Release()
	values := make([]any, 0, 1+len(args))
	if _, ok := c.Conn().PgConn().CustomData()[isDirect]; ok {
		values = append(values, pgx.QueryExecModeCacheStatement)
	}
	for _, arg := range args {
		values = append(values, arg)
	}
	err = c.QueryRow(ctx, statement, values...).Scan(&text)
	return text, err
}

// isDirect marks a connection with the server itself.
const isDirect = "weirpgx: direct"

// find finds out whether a connection is one with the server itself: the number of the process at its other end is
// then the one that it was told at the beginning. A pgbouncer tells a number of its own, as it passes statements
// to any process. With the server itself, statements are prepared once: a call then takes about half of the CPU.
func find(ctx context.Context, c *pgx.Conn) {
	var pid uint32
	if err := c.QueryRow(ctx, "SELECT pg_backend_pid()").Scan(&pid); err == nil && pid == c.PgConn().PID() {
		c.PgConn().CustomData()[isDirect] = true
	}
}

// Exec sends a script.
func (q querier) Exec(ctx context.Context, script string) error {
	_, err := q.pool.Exec(ctx, script, pgx.QueryExecModeSimpleProtocol)
	return err
}
