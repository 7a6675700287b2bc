// Package vclock is a virtual clock. It stands still until it is set, and its timers fire in order,
// in the goroutine that sets it.
package vclock

import (
	"container/heap"
	"time"
)

// A Clock returns the time it was last set to, in nanoseconds. The zero value reads 0. It is not
// safe for concurrent use.
type Clock struct {
	now    int64
	serial uint64
	timers timers
}

// Now returns the reading.
func (c *Clock) Now() int64 { return c.now }

// Set moves the clock to t, forward or back. On the way forward each timer fires at its own time,
// and timers set by those that fire do so too; a step back fires nothing and moves no timer.
func (c *Clock) Set(t int64) {
	for len(c.timers) > 0 && c.timers[0].at <= t {
		next := c.timers[0]
		c.now = max(c.now, next.at)
		heap.Pop(&c.timers)
		next.f()
	}
	c.now = t
}

// Next returns when the first timer fires, and whether there is one.
func (c *Clock) Next() (at int64, ok bool) {
	if len(c.timers) == 0 {
		return 0, false
	}
	return c.timers[0].at, true
}

// AfterFunc makes a timer that calls f when the clock has advanced by d.
func (c *Clock) AfterFunc(d time.Duration, f func()) *Timer {
	t := &Timer{clock: c, f: f, index: -1}
	t.Reset(d)
	return t
}

// A Timer calls its function once for each time it is set.
type Timer struct {
	clock  *Clock
	f      func()
	at     int64
	serial uint64 // timers set for the same time fire in the order in which they were set
	index  int    // in the heap, -1 when not set
}

// Reset sets the timer to fire when the clock has advanced by d, and reports whether it was active.
func (t *Timer) Reset(d time.Duration) bool {
	was := t.Stop()
	t.at = t.clock.now + max(int64(d), 0)
	if t.at < t.clock.now { // d overflowed
		t.at = 1<<63 - 1
	}
	t.clock.serial++
	t.serial = t.clock.serial
	heap.Push(&t.clock.timers, t)
	return was
}

// Stop stops the timer, and reports whether it was active.
func (t *Timer) Stop() bool {
	if t.index < 0 {
		return false
	}
	heap.Remove(&t.clock.timers, t.index)
	return true
}

type timers []*Timer

func (h timers) Len() int { return len(h) }
func (h timers) Less(i, j int) bool {
	return h[i].at < h[j].at || h[i].at == h[j].at && h[i].serial < h[j].serial
}
func (h timers) Swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	h[i].index, h[j].index = i, j
}
func (h *timers) Push(x any) {
	t := x.(*Timer)
	t.index = len(*h)
	*h = append(*h, t)
}
func (h *timers) Pop() any {
	last := len(*h) - 1
	t := (*h)[last]
	(*h)[last] = nil
	*h = (*h)[:last]
	t.index = -1
	return t
}
