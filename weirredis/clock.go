package weirredis

import (
	"sync/atomic"
	"time"
)

// A clock is what is known of a server's clock.
type clock struct {
	start  time.Time    // of ours
	offset atomic.Int64 // of the server's from that, in microseconds; 0 where it is not known
	others *clock       // that of another server, to begin with: most agree
}

// unknown is an expiry long past: for where the server's clock is not known yet. The refusal tells it.
const unknown = 1

// expiry is when a call is to be carried out at the latest, by the server's clock.
func (c *clock) expiry(end time.Time) int64 {
	if offset := c.known(); offset != 0 {
		return offset + int64(end.Sub(c.start)/tick)
	}
	return unknown
}

// now is what the clock reads, as far as it is known.
func (c *clock) now() (micros int64, known bool) {
	offset := c.known()
	return offset + int64(time.Since(c.start)/tick), offset != 0
}

// known is the offset, or that of another server, or 0.
func (c *clock) known() int64 {
	if offset := c.offset.Load(); offset != 0 || c.others == nil {
		return offset
	}
	return c.others.offset.Load()
}

// see learns the clock from an answer: it was read after the call was sent, and before now. The latest reading is the nearest, unless the clock
// was put back.
func (c *clock) see(now int64, sent time.Time) {
	offset := now - int64(time.Since(c.start)/tick)
	most := now - int64(sent.Sub(c.start)/tick) + 1
	if old := c.offset.Load(); offset > old || most < old {
		c.put(offset)
	}
}

// set is see where it is known that the clock is another one.
func (c *clock) set(now int64) { c.put(now - int64(time.Since(c.start)/tick)) }

func (c *clock) put(offset int64) {
	c.offset.Store(offset)
	if c.others != nil {
		c.others.offset.Store(offset)
	}
}
