package main

import (
	"context"
	stdsql "database/sql"
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"github.com/weirflow/weir"
	"github.com/weirflow/weir/proof/servers"
	"github.com/weirflow/weir/weirkv"
	"github.com/weirflow/weir/weirmysql"
	"github.com/weirflow/weir/weirsqlite"
)

// The subjects in MariaDB: the log is written to the disk once a second. The procedure is the least that one which
// decides a token bucket could do: it locks the row, reads the clock, and writes the row, with numbers that fit.
const (
	mariaRows      = "CREATE TABLE rows_ (k VARBINARY(255) PRIMARY KEY, tokens BIGINT NOT NULL, at BIGINT NOT NULL) ENGINE=InnoDB"
	mariaClock     = "TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6))"
	mariaProcedure = `CREATE PROCEDURE take(key_ VARBINARY(255), cost BIGINT)
BEGIN
  DECLARE left_, at_, now_ BIGINT;
  START TRANSACTION;
  SELECT tokens, at INTO left_, at_ FROM rows_ WHERE k = key_ FOR UPDATE;
  SET now_ = ` + mariaClock + `;
  SET left_ = LEAST(left_ + (now_ - at_), 1000000000) - cost;
  IF left_ >= 0 THEN
    UPDATE rows_ SET tokens = left_, at = now_ WHERE k = key_;
  END IF;
  COMMIT;
  SELECT left_;
END`
)

// mariaConfig has the sizes that a server has by default, in place of the small ones of tests: with a small log, it writes
// pages to the disk all the time.
var mariaConfig = []string{"--max-connections=1200", "--innodb-log-file-size=96M", "--innodb-buffer-pool-size=128M"}

func mariaSubjects(ctx context.Context, server *servers.MariaDBServer) (all []sqlSubject, end func(), err error) {
	var ends closers
	open := func(settings string) (*stdsql.DB, error) {
		db, err := stdsql.Open("mysql", "root@tcp("+server.Addr+")/weir?interpolateParams=true"+settings)
		if err != nil {
			return nil, err
		}
		db.SetMaxOpenConns(redisCallers)
		db.SetMaxIdleConns(redisCallers)
		ends.add(db.Close)
		return db, nil
	}
	locks, err := open("&autocommit=0")
	if err != nil {
		return nil, ends.close, err
	}
	alone, err := open("")
	if err != nil {
		return nil, ends.close, err
	}
	for _, statement := range []string{mariaRows, mariaProcedure, "INSERT INTO rows_ SELECT CONCAT('k', seq), 1000000000, 0 FROM seq_0_to_" + strconv.Itoa(redisKeys)} {
		if _, err := alone.ExecContext(ctx, statement); err != nil {
			return nil, ends.close, err
		}
	}
	shared, plain, err := kvNodes(ctx, &ends, redisCallers, func(o weirkv.Options) (*weirkv.Store, func() error, error) {
		s, err := weirmysql.Open(server.URL(), o)
		if err != nil {
			return nil, nil, err
		}
		return s.Store, s.Close, nil
	})
	if err != nil {
		return nil, ends.close, err
	}
	return []sqlSubject{
		{name: "SELECT ... FOR UPDATE, UPDATE, COMMIT: three round trips", compared: true, call: func(ctx context.Context, key string) (bool, error) {
			tx, err := locks.Conn(ctx)
			if err != nil {
				return false, err
			}
			defer tx.Close() //nolint:errcheck // it goes back to the pool
			var tokens, at, now int64
			if err := tx.QueryRowContext(ctx, "SELECT tokens, at, "+mariaClock+" FROM rows_ WHERE k = ? FOR UPDATE", key).Scan(&tokens, &at, &now); err != nil {
				return false, err
			}
			tokens = min(tokens+now-at, 1e9) - 1
			if _, err := tx.ExecContext(ctx, "UPDATE rows_ SET tokens = ?, at = ? WHERE k = ?", tokens, now, key); err != nil {
				return false, err
			}
			_, err = tx.ExecContext(ctx, "COMMIT")
			return tokens >= 0, err
		}},
		{name: "weir, 64 nodes with one caller each", call: plain},
		{name: "weir, one node, whose callers share calls", call: shared},
		{name: "a stored procedure that decides", call: func(ctx context.Context, key string) (bool, error) {
			var left int64
			err := alone.QueryRowContext(ctx, "CALL take(?, 1)", key).Scan(&left)
			return left >= 0, err
		}},
		{name: "floor: UPDATE", call: func(ctx context.Context, key string) (bool, error) {
			_, err := alone.ExecContext(ctx, "UPDATE rows_ SET tokens = tokens - 1 WHERE k = ?", key)
			return true, err
		}},
	}, ends.close, nil
}

// sqliteNodes is how many open the file, as processes do.
const sqliteNodes = 8

// sqliteSubjects returns the subjects in a file. No commit waits for the disk.
func sqliteSubjects(ctx context.Context, dir string) (all []sqlSubject, end func(), err error) {
	var ends closers
	db, err := stdsql.Open("sqlite", "file:"+filepath.Join(dir, "rows.db")+"?_pragma=busy_timeout(60000)&_pragma=journal_mode(WAL)&_pragma=synchronous(NORMAL)&_txlock=immediate")
	if err != nil {
		return nil, ends.close, err
	}
	ends.add(db.Close)
	db.SetMaxOpenConns(sqliteNodes)
	db.SetMaxIdleConns(sqliteNodes)
	for _, statement := range []string{"CREATE TABLE rows_ (k TEXT PRIMARY KEY, tokens INTEGER NOT NULL, at INTEGER NOT NULL) WITHOUT ROWID",
		"WITH RECURSIVE i(n) AS (SELECT 0 UNION ALL SELECT n + 1 FROM i WHERE n < " + strconv.Itoa(redisKeys) + ") INSERT INTO rows_ SELECT 'k' || n, 1000000000, 0 FROM i"} {
		if _, err := db.ExecContext(ctx, statement); err != nil {
			return nil, ends.close, err
		}
	}
	shared, plain, err := kvNodes(ctx, &ends, sqliteNodes, func(o weirkv.Options) (*weirkv.Store, func() error, error) {
		s, err := weirsqlite.Open("sqlite:"+filepath.Join(dir, "limits.db"), o)
		if err != nil {
			return nil, nil, err
		}
		return s.Store, s.Close, nil
	})
	if err != nil {
		return nil, ends.close, err
	}
	return []sqlSubject{
		{name: "BEGIN IMMEDIATE, SELECT, UPDATE, COMMIT", compared: true, call: func(ctx context.Context, key string) (bool, error) {
			tx, err := db.BeginTx(ctx, nil)
			if err != nil {
				return false, err
			}
			defer tx.Rollback() //nolint:errcheck // nothing after a commit
			var tokens, at int64
			if err := tx.QueryRowContext(ctx, "SELECT tokens, at FROM rows_ WHERE k = ?", key).Scan(&tokens, &at); err != nil {
				return false, err
			}
			now := time.Now().UnixMicro()
			tokens = min(tokens+now-at, 1e9) - 1
			if _, err := tx.ExecContext(ctx, "UPDATE rows_ SET tokens = ?, at = ? WHERE k = ?", tokens, now, key); err != nil {
				return false, err
			}
			return tokens >= 0, tx.Commit()
		}},
		{name: "weir, 8 nodes, which take turns with the callers", call: plain},
		{name: "weir, one node, whose callers share transactions", call: shared},
		{name: "floor: UPDATE", call: func(ctx context.Context, key string) (bool, error) {
			_, err := db.ExecContext(ctx, "UPDATE rows_ SET tokens = tokens - 1 WHERE k = ?", key)
			return true, err
		}},
	}, ends.close, nil
}

// kvNodes returns a call of one node, and one that goes to the next free one of n nodes. All keys are charged once.
func kvNodes(ctx context.Context, ends *closers, n int, open func(weirkv.Options) (*weirkv.Store, func() error, error)) (shared, plain caller, err error) {
	node := func(prefix string) (*weir.Shared, error) {
		s, end, err := open(weirkv.Options{Prefix: prefix, Timeout: time.Minute, Attempts: 1 << 30})
		if err != nil {
			return nil, err
		}
		ends.add(end)
		return weir.NewShared(oneMillion, s, weir.Named("bench"))
	}
	one, err := node("one:")
	if err != nil {
		return nil, nil, err
	}
	if err := chargeAll(ctx, one); err != nil {
		return nil, nil, err
	}
	free := make(chan *weir.Shared, n)
	for i := range n {
		l, err := node("plain:")
		if err == nil && i == 0 {
			err = chargeAll(ctx, l)
		}
		if err != nil {
			return nil, nil, err
		}
		free <- l
	}
	return one.Allow, func(ctx context.Context, key string) (bool, error) {
		l := <-free
		defer func() { free <- l }()
		return l.Allow(ctx, key)
	}, nil
}

// closers are what has to be closed at the end, in reverse order.
type closers []func() error

func (c *closers) add(f func() error) { *c = append(*c, f) }

func (c *closers) close() {
	for i := len(*c) - 1; i >= 0; i-- {
		_ = (*c)[i]() // it is stopped either way
	}
	*c = nil
}

// otherSQL measures MariaDB and SQLite.
func (r *report) otherSQL() error {
	ctx, cancel := context.WithTimeout(context.Background(), 4*startTime)
	defer cancel()
	server, err := servers.MariaDB(ctx, servers.MariaDBOptions{Config: mariaConfig})
	if err != nil {
		return err
	}
	subjects, end, err := mariaSubjects(ctx, server)
	if err == nil {
		err = r.sqlTables("MariaDB", subjects)
	}
	end()
	if stopped := server.Stop(); err != nil || stopped != nil {
		return errors.Join(err, stopped)
	}
	dir, err := os.MkdirTemp("", "weir-bench-")
	if err != nil {
		return err
	}
	subjects, end, err = sqliteSubjects(ctx, dir)
	if err == nil {
		err = r.sqlTables("SQLite", subjects)
	}
	end()
	return errors.Join(err, os.RemoveAll(dir))
}
