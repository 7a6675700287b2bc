package weirmysql

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/weirflow/weir/weirkv"
)

// Lanes are rows of the table whose ids no key has: a prefix does not begin with =. The procedure keeps them for 10
// minutes after their latest call.
const (
	lanePrefix = "=lane/"
	queryLane  = "INSERT INTO weir_states (id, revision, expires, state) VALUES (?, 0, " + clock + " + 600000000, '') ON DUPLICATE KEY UPDATE expires = VALUES(expires)"
	queryTake  = "CALL weir_take_1(?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"
)

// MakeLane implements weirkv.Taker.
func (k *KV) MakeLane(ctx context.Context, lane string) error {
	s, err := k.statement(ctx, queryLane)
	if err == nil {
		_, err = s.ExecContext(ctx, lanePrefix+lane)
	}
	return k.explain(err)
}

// Take implements weirkv.Taker by the procedure weir_take_1. Where two nodes make a key at the same time, the server
// rolls one of them back, and the call is made again.
func (k *KV) Take(ctx context.Context, lane string, t *weirkv.Take) (taken weirkv.Taken, err error) {
	s, err := k.statement(ctx, queryTake)
	if err != nil {
		return taken, err
	}
	for range 10 {
		var reply string
		revision := newRevision()
		err = s.QueryRowContext(ctx, t.Key, t.Limit, t.Fresh, t.TicksPerUnit, t.Full, t.Passes, t.Owing, t.Reach, t.Runs,
			lanePrefix+lane, t.Number, t.Since, revision, t.HasRoom, t.Skew, t.Expires, t.Least, t.Grace).Scan(&taken.Outcome, &taken.Number, &reply, &taken.Item.Value)
		switch codeOf(err) {
		case codeDuplicate, codeDeadlock:
			continue
		case codeRange, codeOutOfRange: // no state that a node has written: it says what is wrong with it
			return weirkv.Taken{}, nil
		}
		if err != nil {
			return taken, k.explain(err)
		}
		if _, err = fmt.Sscanf(reply, "%d,%d,%d,%t", &taken.Now, &taken.Full, &taken.Rest, &taken.New); err != nil {
			return taken, fmt.Errorf("weirmysql: the procedure weir_take_1 returned %.60q: %w", reply, err)
		}
		taken.Item.Revision = uint64(revision)
		return taken, nil
	}
	return taken, err
}

func newRevision() int64 { return rand.Int64N(1<<63-1) + 1 }

// Patient implements weirkv.PatientUpdater.
func (k *KV) Patient() {}

// Update implements weirkv.Updater: nodes that write one key take turns. The row is locked for one round trip.
func (k *KV) Update(ctx context.Context, key string, next func(weirkv.Item) (value []byte, ttl time.Duration, write bool)) (revision uint64, err error) {
	conn, err := k.db.Conn(ctx)
	if err != nil {
		return 0, err
	}
	defer conn.Close() //nolint:errcheck // it goes back to the pool
	var item weirkv.Item
	var old int64
	err = conn.QueryRowContext(ctx, "CALL weir_lock_1(?)", key).Scan(&item.Value, &old)
	if err != nil && !errors.Is(err, sql.ErrNoRows) {
		return 0, k.explain(errors.Join(err, rollback(conn)))
	}
	item.Revision = uint64(old)
	value, ttl, write := next(item)
	if !write {
		return 0, k.explain(rollback(conn))
	}
	revision = uint64(newRevision())
	if item.Revision == 0 {
		_, err = conn.ExecContext(ctx, queryInsert, key, int64(revision), ttl.Microseconds(), value)
		if err == nil {
			_, err = conn.ExecContext(ctx, "COMMIT")
		}
	} else {
		_, err = conn.ExecContext(ctx, "CALL weir_write_1(?, ?, ?, ?)", key, int64(revision), ttl.Microseconds(), value)
	}
	if err != nil {
		return 0, k.explain(errors.Join(err, rollback(conn)))
	}
	return revision, nil
}

// rollback ends a transaction whatever its context says. A connection that is gone has none.
func rollback(conn *sql.Conn) error {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	_, err := conn.ExecContext(ctx, "ROLLBACK")
	return err
}
