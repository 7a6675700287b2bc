// Package tally counts what many goroutines do at once.
package tally

import (
	"math/rand/v2"
	"sync/atomic"
)

// stripes is a power of two.
const stripes = 8

// A Counter is a number that only grows, kept in several places, so that goroutines on several processors that add at the same time do not wait for
// one and the same line of memory. It takes 512 bytes. The zero value is 0. It is safe for concurrent use.
type Counter struct {
	parts [stripes]struct {
		n atomic.Uint64
		_ [56]byte // the rest of a line
	}
}

// Add adds.
func (c *Counter) Add(n uint64) { c.parts[rand.Uint32()%stripes].n.Add(n) }

// Load returns the sum: of all that was added before, and perhaps of some that is added meanwhile.
func (c *Counter) Load() (sum uint64) {
	for i := range c.parts {
		sum += c.parts[i].n.Load()
	}
	return sum
}
