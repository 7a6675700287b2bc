// Package tally has a counter for many goroutines.
package tally

import (
	"math/rand/v2"
	"sync/atomic"
)

// stripes is a power of two.
const stripes = 8

// A Counter is a striped counter: goroutines on several processors that add at the same time do not
// contend for one cache line. It takes 512 bytes. The zero value is 0. It is safe for concurrent
// use.
type Counter struct {
	parts [stripes]struct {
		n atomic.Uint64
		_ [56]byte // fills the cache line
	}
}

// Add adds n.
func (c *Counter) Add(n uint64) { c.parts[rand.Uint32()%stripes].n.Add(n) }

// Load returns the sum. It contains all earlier Adds, and perhaps some concurrent ones.
func (c *Counter) Load() (sum uint64) {
	for i := range c.parts {
		sum += c.parts[i].n.Load()
	}
	return sum
}
