package weirmysql

import (
	"context"
	"database/sql"
	"time"
)

const (
	sweepEvery = 10 * time.Second
	maxSweep   = 1000 // rows that are looked at together
)

// sweep removes expired rows now and then, until the driver is closed. It goes through the rows in the order of
// their ids, a part at a time: an index on the time would have to be changed with each write.
func (k *KV) sweep() {
	ticker := time.NewTicker(sweepEvery)
	defer ticker.Stop()
	var after []byte
	for {
		select {
		case <-ticker.C:
		case <-k.ctx.Done():
			return
		}
		for {
			removed, next, err := k.sweepPart(k.ctx, after)
			if err != nil {
				break // an outage: other calls report it
			}
			if after = next; removed < maxSweep/4 {
				break
			}
		}
	}
}

// Sweep removes all rows that have expired. The driver does so by itself, a part at a time, every 10 s.
func (k *KV) Sweep(ctx context.Context) (removed int, err error) {
	var after []byte
	for {
		n, next, err := k.sweepPart(ctx, after)
		removed += n
		if after = next; err != nil || next == nil {
			return removed, err
		}
	}
}

// sweepPart looks at the next rows after an id. It returns the last one; nil after the last row.
func (k *KV) sweepPart(ctx context.Context, after []byte) (removed int, last []byte, err error) {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	look, err := k.statement(ctx, queryLook)
	if err != nil {
		return 0, after, err
	}
	if after == nil {
		after = []byte{}
	}
	expired, rows, last, err := k.expired(ctx, look, after)
	if err != nil {
		return 0, after, k.explain(err)
	}
	remove, err := k.statement(ctx, queryDelete)
	if err != nil {
		return 0, after, err
	}
	for _, id := range expired { // one at a time: a row that is in use holds up none of the others
		done, err := remove.ExecContext(ctx, id)
		if err != nil {
			return removed, after, k.explain(err)
		}
		if n, err := done.RowsAffected(); err == nil {
			removed += int(n)
		}
	}
	if rows < maxSweep {
		last = nil
	}
	return removed, last, nil
}

// expired returns those of the next rows that have expired, how many rows there were, and the last id.
func (k *KV) expired(ctx context.Context, look *sql.Stmt, after []byte) (expired [][]byte, n int, last []byte, err error) {
	rows, err := look.QueryContext(ctx, after, maxSweep)
	if err != nil {
		return nil, 0, nil, err
	}
	defer rows.Close()
	for ; rows.Next(); n++ {
		var id []byte
		var over bool
		if err := rows.Scan(&id, &over); err != nil {
			return nil, 0, nil, err
		}
		if last = id; over {
			expired = append(expired, id)
		}
	}
	return expired, n, last, rows.Err()
}
