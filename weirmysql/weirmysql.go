// Package weirmysql keeps limits in MariaDB or MySQL, in one table, through the driver go-sql-driver/mysql.
// See package weirkv for what such a store guarantees.
//
// Takes from token buckets, leaky buckets and SmoothBursty are decided by a stored procedure, in one round trip and by
// the server's clock: see Schema. The language of these servers has no arrays, so the rules of all other limits and
// operations run here, between reading a row and writing it back with an UPDATE that names the revision that was read.
// Where another node was faster, the row is locked for one round trip instead. The clock of the nodes is corrected by
// the server's.
package weirmysql

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/go-sql-driver/mysql"

	"github.com/weirflow/weir/weirkv"
)

// The statements, which are prepared once. Preparing them shows, too, whether the user has the rights for them.
const (
	queryGet    = "SELECT state, revision FROM weir_states WHERE id = ?"
	queryInsert = "INSERT INTO weir_states (id, revision, expires, state) VALUES (?, ?, " + clock + " + ?, ?)"
	queryUpdate = "UPDATE weir_states SET revision = ?, expires = " + clock + " + ?, state = ? WHERE id = ? AND revision = ?"
	queryLook   = "SELECT id, expires < " + clock + " FROM weir_states WHERE id > ? ORDER BY id LIMIT ?"
	queryDelete = "DELETE FROM weir_states WHERE id = ? AND expires < " + clock
)

// KV is the driver for weirkv over a pool of connections. Their sessions must have autocommit, as they have by
// default, and an isolation of READ COMMITTED or more.
type KV struct {
	db      *sql.DB
	migrate bool // make the table and procedures if they are not there
	idle    int  // connections that the pool keeps; 0 for a pool of the program's

	mu       sync.Mutex
	prepared map[string]*sql.Stmt // nil until all are

	ctx    context.Context
	cancel context.CancelFunc
	tasks  sync.WaitGroup
}

// NewKV returns the driver over a pool. It removes expired rows in the background until it is closed. It does not
// make the table: see Schema.
func NewKV(db *sql.DB) *KV {
	k := newKV(db)
	k.tasks.Go(k.sweep)
	return k
}

func newKV(db *sql.DB) *KV {
	k := &KV{db: db}
	k.ctx, k.cancel = context.WithCancel(context.Background())
	return k
}

// Get implements weirkv.KV. A row that has expired is returned until it is removed.
func (k *KV) Get(ctx context.Context, key string) (item weirkv.Item, err error) {
	s, err := k.statement(ctx, queryGet)
	if err != nil {
		return item, err
	}
	var revision int64
	err = s.QueryRowContext(ctx, key).Scan(&item.Value, &revision)
	if errors.Is(err, sql.ErrNoRows) {
		return weirkv.Item{}, nil
	}
	item.Revision = uint64(revision)
	return item, k.explain(err)
}

// CompareAndSwap implements weirkv.KV. Revisions are drawn at random: a row that was removed and made anew
// has none that it had before.
func (k *KV) CompareAndSwap(ctx context.Context, key string, revision uint64, value []byte, ttl time.Duration) (next uint64, swapped bool, err error) {
	next = uint64(newRevision())
	query, args := queryUpdate, []any{int64(next), ttl.Microseconds(), value, key, int64(revision)}
	if revision == 0 {
		query, args = queryInsert, []any{key, int64(next), ttl.Microseconds(), value}
	}
	s, err := k.statement(ctx, query)
	if err != nil {
		return 0, false, err
	}
	done, err := s.ExecContext(ctx, args...)
	if err != nil {
		switch codeOf(err) {
		case codeDuplicate, codeDeadlock, codeLockWait: // nothing was written
			return 0, false, nil
		}
		return 0, false, k.explain(err)
	}
	n, err := done.RowsAffected()
	return next, n == 1, err
}

// Now implements weirkv.Clocked.
func (k *KV) Now(ctx context.Context) (time.Time, error) {
	var micros int64
	err := k.db.QueryRowContext(ctx, "SELECT "+clock).Scan(&micros)
	return time.UnixMicro(micros), k.explain(err)
}

// Close ends what the driver has started. The pool stays open.
func (k *KV) Close() error {
	k.cancel()
	k.tasks.Wait()
	k.mu.Lock()
	defer k.mu.Unlock()
	var err error
	for _, s := range k.prepared {
		err = errors.Join(err, s.Close())
	}
	k.prepared = nil
	return err
}

// statement returns a prepared statement. The first call prepares all of them, and makes the table and procedures if it has to.
func (k *KV) statement(ctx context.Context, query string) (*sql.Stmt, error) {
	k.mu.Lock()
	s, closed := k.prepared[query], k.ctx.Err() != nil
	k.mu.Unlock()
	switch {
	case s != nil:
		return s, nil
	case closed:
		return nil, weirkv.ErrClosed
	}
	all, err := k.prepare(ctx)
	if code := codeOf(err); k.migrate && (code == codeNoTable || code == codeNoProcedure) {
		if err = (Schema{}).Migrate(ctx, k.db); err == nil {
			all, err = k.prepare(ctx)
		}
	}
	if err != nil {
		return nil, k.explain(err)
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.prepared != nil || k.ctx.Err() != nil { // by another call at the same time
		for _, s := range all {
			_ = s.Close() // nothing was carried out with it
		}
		if k.prepared == nil {
			return nil, weirkv.ErrClosed
		}
		return k.prepared[query], nil
	}
	k.prepared = all
	return all[query], nil
}

// prepare prepares all statements.
func (k *KV) prepare(ctx context.Context) (map[string]*sql.Stmt, error) {
	all := map[string]*sql.Stmt{}
	for _, query := range []string{queryGet, queryInsert, queryUpdate, queryLook, queryDelete, queryLane, queryTake} {
		s, err := k.db.PrepareContext(ctx, query)
		if err != nil {
			for _, s := range all {
				_ = s.Close() // nothing was carried out with it
			}
			return nil, err
		}
		all[query] = s
	}
	if err := k.call(ctx); err != nil {
		for _, s := range all {
			_ = s.Close() // nothing was carried out with it
		}
		return nil, err
	}
	return all, nil
}

// Probe implements weirkv.Prober.
func (k *KV) Probe(ctx context.Context) error { return k.explain(k.call(ctx)) }

// call calls each procedure with what changes nothing: preparing a call does not show whether the user has the right
// to it.
func (k *KV) call(ctx context.Context) error {
	conn, err := k.db.Conn(ctx)
	if err != nil {
		return err
	}
	defer conn.Close() //nolint:errcheck // it goes back to the pool
	for _, call := range []string{
		"CALL weir_take_1('=none', '', '', 1, 0, 0, 0, 0, '', '=none', 0, 0, 1, 0, 0, 0, 0, 0)", // expired in 1970
		"CALL weir_lock_1('=none')",
		"CALL weir_write_1('=none', 1, 0, '')", // no such row
	} {
		if _, err := conn.ExecContext(ctx, call); err != nil {
			return errors.Join(err, rollback(conn))
		}
	}
	return nil
}

// The errors of the servers that matter here; both products have the same numbers.
const (
	codeAccess      = 1044 // to the database
	codePassword    = 1045
	codeNoDatabase  = 1049
	codeDuplicate   = 1062 // key
	codeDenied      = 1142 // a statement on the table
	codeNoTable     = 1146
	codeLockWait    = 1205
	codeExists      = 1304 // the procedure
	codeNoProcedure = 1305
	codeOutOfRange  = 1264 // a number, for its column
	codeRange       = 1690
	codeExecute     = 1370 // a procedure, or making one
	codeDeadlock    = 1213
	codeReadOnly    = 1290 // the server runs with --read-only
	codeReadOnlyTx  = 1792
	codeReadOnlyIn  = 1836
)

// codeOf returns the number of an error of the server; 0 for any other error.
func codeOf(err error) uint16 {
	var of *mysql.MySQLError
	if errors.As(err, &of) {
		return of.Number
	}
	return 0
}

// explain adds to an error what an operator can do about it.
func (k *KV) explain(err error) error {
	const grant = "run `GRANT SELECT, INSERT, UPDATE, DELETE ON DATABASE.weir_states TO USER` and, for each procedure that weir store sql makes, `GRANT EXECUTE ON PROCEDURE DATABASE.NAME TO USER`, as an administrator"
	switch codeOf(err) {
	case codeNoTable, codeNoProcedure:
		return fmt.Errorf("%w: run `weir store sql --dialect mysql | mariadb DATABASE`", err)
	case codeDenied:
		if strings.Contains(err.Error(), "CREATE command") {
			return fmt.Errorf("%w: this user cannot make the table: run `weir store sql --dialect mysql | mariadb DATABASE`, and %s", err, strings.TrimPrefix(grant, "run "))
		}
		return fmt.Errorf("%w: %s", err, grant)
	case codeAccess, codeExecute:
		return fmt.Errorf("%w: run `weir store sql --dialect mysql | mariadb DATABASE`, and %s", err, strings.TrimPrefix(grant, "run "))
	case codeNoDatabase:
		return fmt.Errorf("%w: run `CREATE DATABASE` with that name", err)
	case codeReadOnly, codeReadOnlyTx, codeReadOnlyIn:
		// A server that became a replica keeps its connections. New ones may find the primary.
		if k.idle > 0 {
			k.db.SetMaxIdleConns(0)
			k.db.SetMaxIdleConns(k.idle)
		}
		return fmt.Errorf("%w: it is a replica, or was made read-only: write the address of the primary", err)
	}
	return err
}
