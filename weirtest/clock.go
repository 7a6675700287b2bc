package weirtest

import (
	"time"

	"github.com/weirflow/weir"
	"github.com/weirflow/weir/internal/vclock"
)

// A Clock is a virtual clock for weir.WithClock and weir.WithTimers. It stands still until Set
// moves it. Timers then fire in order, each at its own time, in the goroutine that calls Set. The
// zero value reads 0. Now is safe for concurrent use; all other methods are not.
type Clock struct{ c vclock.Clock }

// Now returns the reading, in nanoseconds.
func (c *Clock) Now() int64 { return c.c.Now() }

// Set moves the clock to t, forward or back. A step back fires no timers.
func (c *Clock) Set(t int64) { c.c.Set(t) }

// AfterFunc calls f when the clock has moved forward by d.
func (c *Clock) AfterFunc(d time.Duration, f func()) weir.Timer { return c.c.AfterFunc(d, f) }

// Next returns when the first timer fires, and whether there is one.
func (c *Clock) Next() (at int64, ok bool) { return c.c.Next() }
