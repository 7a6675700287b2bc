package weirsqlite

import (
	"context"
	"time"

	"github.com/weirflow/weir/internal/pause"
)

// Each process looks at so many rows every while, and removes those that have expired. While it finds many, it
// goes on soon.
const (
	sweepEvery = 10 * time.Second
	sweepSoon  = 100 * time.Millisecond
	sweepRows  = 1000
	sweepMany  = sweepRows / 10
)

// sweep removes rows that have expired until the context ends.
func (k *KV) sweep(ctx context.Context) {
	after := ""
	for next := sweepEvery; pause.For(ctx, next) == nil; {
		next = sweepEvery
		removed, last, err := k.sweepFrom(ctx, after, time.Now())
		if after = last; err == nil && removed >= sweepMany {
			next = sweepSoon
		}
	}
}

// sweepFrom looks at the rows after a key. last is the last of them; empty if there are no more.
func (k *KV) sweepFrom(ctx context.Context, after string, now time.Time) (removed int, last string, err error) {
	var rows int
	var from string
	o := &operation{sweep: func(s *session) (err error) {
		rows, from, err = s.sweep(after, now.UnixNano())
		return err
	}}
	if err := k.writes.do(ctx, o); err != nil {
		return 0, "", err
	}
	return rows, from, nil
}

// sweep removes rows within a transaction.
func (s *session) sweep(after string, now int64) (removed int, last string, err error) {
	var rows, expired int
	if err := s.look.QueryRow(after, now, sweepRows).Scan(&last, &rows, &expired); err != nil {
		return 0, "", s.explain(err)
	}
	if expired > 0 {
		if _, err := s.expire.Exec(after, last, now); err != nil {
			return 0, "", s.explain(err)
		}
	}
	if rows < sweepRows {
		last = ""
	}
	return expired, last, nil
}
