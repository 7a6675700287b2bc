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
	values := make([]any, len(args))
	for i, arg := range args {
		values[i] = arg
	}
	err = q.pool.QueryRow(ctx, statement, values...).Scan(&text)
	return text, err
}

// Exec sends a script.
func (q querier) Exec(ctx context.Context, script string) error {
	_, err := q.pool.Exec(ctx, script, pgx.QueryExecModeSimpleProtocol)
	return err
}
