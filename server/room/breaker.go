package room

import (
	"errors"
	"sync/atomic"
	"time"
)

// A breaker ends polls at once while a queue is unavailable, so that visitors do not wait for its
// deadline. Each room has one: its queue is on one shard of a store, which fails by itself. The zero
// value is closed. It is safe for concurrent use.
type breaker struct {
	row  atomic.Int32 // failed polls since the last successful one
	next atomic.Int64 // when a poll may go to the queue again
}

const (
	breakAfter = 3 // failed polls in a row
	probeEvery = int64(250 * time.Millisecond / tick)
)

var errOpen = errors.New("room: the queue is unavailable, and is polled again within 250ms")

// allows reports whether a poll may go to the queue. While the breaker is open, one poll may in each
// quarter of a second. A clock that steps back delays none.
func (b *breaker) allows(now int64) bool {
	if b.row.Load() < breakAfter {
		return true
	}
	next := b.next.Load()
	return (now >= next || now < next-probeEvery) && b.next.CompareAndSwap(next, now+probeEvery)
}

// polled notes how a poll ended.
func (b *breaker) polled(now int64, failed bool) {
	if !failed {
		if b.row.Load() > 0 {
			b.row.Store(0)
		}
		return
	}
	if n := b.row.Add(1); n >= breakAfter {
		b.row.Store(breakAfter) // and no overflow
		b.next.Store(now + probeEvery)
	}
}
