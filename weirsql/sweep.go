package weirsql

import (
	"context"
	"encoding/hex"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/weirflow/weir/internal/pause"
)

// maxSweep is how many rows are looked at in one statement.
const maxSweep = 1000

// sweep removes idle rows now and then, until the store is closed. It goes through the rows in the order
// of their ids, a part at a time.
func (s *Store) sweep() {
	after := ""
	for pause.For(s.ctx, s.opts.SweepEvery) == nil {
		for {
			removed, next, err := s.sweepPart(s.ctx, after)
			if err != nil {
				break // an outage: other calls report it
			}
			if after = next; removed < maxSweep/4 || s.ctx.Err() != nil {
				break
			}
		}
	}
}

// Sweep removes the rows that have been idle for longer than Grace: all that are there. A Store does so
// by itself, a part at a time: see Options.SweepEvery.
func (s *Store) Sweep(ctx context.Context) (removed int, err error) {
	after := ""
	for {
		n, next, err := s.sweepPart(ctx, after)
		removed += n
		if after = next; err != nil || next == "" {
			return removed, err
		}
	}
}

// sweepPart looks at the next rows after an id. It returns the last one; empty after the last row.
func (s *Store) sweepPart(ctx context.Context, after string) (removed int, last string, err error) {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	text, err := s.querier.Query(ctx, "SELECT "+s.schema+".sweep($1::bytea, $2::integer, $3::bigint)",
		`\x`+hex.EncodeToString([]byte(after)), strconv.Itoa(maxSweep), strconv.FormatInt(int64(s.opts.Grace/tick), 10))
	if err != nil {
		return 0, after, fmt.Errorf("weirsql: %w", err)
	}
	count, id, _ := strings.Cut(text, " ")
	removed, err = strconv.Atoi(count)
	if err != nil {
		return 0, after, errReply
	}
	raw, err := hex.DecodeString(id)
	if err != nil {
		return 0, after, errReply
	}
	return removed, string(raw), nil
}
