package weirsql

import (
	"context"
	"database/sql"
)

// DB returns a Querier over database/sql. The driver must not be told to prepare statements where
// pgbouncer in transaction mode is between: see its documentation.
func DB(db *sql.DB) Querier { return database{db} }

type database struct{ db *sql.DB }

func (d database) Query(ctx context.Context, statement string, args ...string) (text string, err error) {
	values := make([]any, len(args))
	for i, arg := range args {
		values[i] = arg
	}
	err = d.db.QueryRowContext(ctx, statement, values...).Scan(&text)
	return text, err
}

func (d database) Exec(ctx context.Context, script string) error {
	_, err := d.db.ExecContext(ctx, script)
	return err
}
