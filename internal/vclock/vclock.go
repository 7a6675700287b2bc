// Package vclock is a virtual clock. It stands still until it is set, and its timers fire in order,
// in the goroutine that sets it.
package vclock

import (
	"math"
	"sync/atomic"
	"time"

	"github.com/weirflow/weir/internal/heap"
)

// A Clock returns the time it was last set to, in nanoseconds. The zero value reads 0. Now is safe
// for concurrent use, as timers of the real clock may read it: those of a table that got only this
// clock. All else is not.
type Clock struct {
	now    atomic.Int64
	timers heap.Heap[Timer] // timers set for the same time fire in the order in which they were set
}

// Now returns the reading.
func (c *Clock) Now() int64 { return c.now.Load() }

// Set moves the clock to t, forward or back. On the way forward each timer fires at its own time,
// and timers set by those that fire do so too; a step back fires nothing and moves no timer.
func (c *Clock) Set(t int64) {
	for next := c.timers.Due(t); next != nil; next = c.timers.Due(t) {
		c.now.Store(max(c.now.Load(), c.timers.Key(&next.node)))
		c.timers.Remove(&next.node)
		next.f()
	}
	c.now.Store(t)
}

// Next returns when the first timer fires, and whether there is one.
func (c *Clock) Next() (at int64, ok bool) {
	first, at := c.timers.First()
	return at, first != nil
}

// AfterFunc makes a timer that calls f when the clock has advanced by d.
func (c *Clock) AfterFunc(d time.Duration, f func()) *Timer {
	t := &Timer{clock: c, f: f}
	t.Reset(d)
	return t
}

// A Timer calls its function once for each time it is set.
type Timer struct {
	clock *Clock
	f     func()
	node  heap.Node[Timer] // in a heap while it is set
}

// Reset sets the timer to fire when the clock has advanced by d, and reports whether it was active.
func (t *Timer) Reset(d time.Duration) bool {
	was := t.Stop()
	at := t.clock.Now() + max(int64(d), 0)
	if at < t.clock.Now() { // d overflowed
		at = math.MaxInt64
	}
	t.clock.timers.Push(&t.node, t, at)
	return was
}

// Stop stops the timer, and reports whether it was active.
func (t *Timer) Stop() bool {
	if !t.node.In() {
		return false
	}
	t.clock.timers.Remove(&t.node)
	return true
}
