package weirsql

import (
	"sync/atomic"
	"time"
)

// A clock is an estimate of the server's clock.
type clock struct {
	start  time.Time    // on our clock
	offset atomic.Int64 // of the server's clock at start, in microseconds; 0: not known
}

// unknown is an expiry long past, for a server whose clock is not known yet: the refusal has a reading
// of it.
const unknown = -1

// expiry returns, by the server's clock, when a call may be carried out at the latest.
func (c *clock) expiry(end time.Time) int64 {
	if offset := c.offset.Load(); offset != 0 {
		return offset + int64(end.Sub(c.start)/tick)
	}
	return unknown
}

// now returns the estimated reading.
func (c *clock) now() (micros int64, known bool) {
	offset := c.offset.Load()
	return offset + int64(time.Since(c.start)/tick), offset != 0
}

// see updates the estimate by a reading that was taken after the call was sent and before now. The
// highest estimate is the nearest, unless the server's clock was set back.
func (c *clock) see(now int64, sent time.Time) {
	offset := now - int64(time.Since(c.start)/tick)
	latest := now - int64(sent.Sub(c.start)/tick) + 1
	if old := c.offset.Load(); offset > old || latest < old {
		c.offset.Store(offset)
	}
}

// set replaces the estimate by a reading.
func (c *clock) set(now int64) { c.offset.Store(now - int64(time.Since(c.start)/tick)) }
