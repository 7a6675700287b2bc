package weirtest

import (
	"time"

	"github.com/weirflow/weir"
	"github.com/weirflow/weir/internal/vclock"
)

// A Clock is time under control, for weir.WithClock and weir.WithTimers: it stands still until Set moves it, and timers fire, in
// order and each at its own time, in the goroutine that sets it. The zero value reads 0. It is not safe for concurrent use.
type Clock struct{ c vclock.Clock }

// Now returns the reading, in nanoseconds.
func (c *Clock) Now() int64 { return c.c.Now() }

// Set moves the clock to t, forward or back. A step back fires nothing.
func (c *Clock) Set(t int64) { c.c.Set(t) }

// AfterFunc calls f once the clock has gone d further.
func (c *Clock) AfterFunc(d time.Duration, f func()) weir.Timer { return c.c.AfterFunc(d, f) }

// Next returns when the first timer fires, and whether one is set.
func (c *Clock) Next() (at int64, ok bool) { return c.c.Next() }
