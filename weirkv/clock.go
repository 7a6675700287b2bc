package weirkv

import (
	"context"
	"math"
	"sync/atomic"
	"time"
)

// keyClock is the clock of a key: it shows the latest time at which any node has written the key. It is
// never ahead of the fastest clock of the nodes, and never goes back.
type keyClock struct{ last int64 }

// time returns the time of the key for a node whose clock shows reading. Within skew, a node that is behind
// evaluates the key as of its own time. One that is further behind continues from the key's time, by
// as much as its clock is behind: otherwise a key that a clock an hour ahead has written would stand still
// for an hour. stepped reports whether that has just begun, and has to be written.
//
// How far a clock is behind is kept for each node: with one number for all, two nodes that are behind would
// push the clock of the key ahead in turn.
func (e *entry) time(node uint64, reading, skew int64) (now int64, stepped bool) {
	if len(e.versions) == 0 || reading >= e.clock.last-skew {
		e.setBehind(node, 0)
		return reading, false
	}
	behind := e.behind(node)
	if now = reading + behind; behind > 0 && now >= e.clock.last-skew {
		return now, false
	}
	e.setBehind(node, e.clock.last-reading)
	return e.clock.last, true
}

// skew is Options.Skew in clock units; the longest is beyond all clocks.
func (s *Store) skew() int64 {
	if s.o.Skew == math.MaxInt64 {
		return math.MaxInt64 / 2
	}
	return int64(s.o.Skew / unit)
}

func (e *entry) behind(id uint64) int64 {
	for _, n := range e.nodes {
		if n.id == id {
			return max(n.behind, 0)
		}
	}
	return 0
}

func (e *entry) setBehind(id uint64, behind int64) {
	for i := range e.nodes {
		if e.nodes[i].id == id {
			e.nodes[i].behind = behind
			return
		}
	}
	if behind > 0 {
		e.nodes = append(e.nodes, node{id: id, at: e.clock.last, behind: behind})
	}
}

// nodeClock is the clock of this node, corrected by the store's.
type nodeClock struct {
	read   func() int64 // nanoseconds since 1970
	offset atomic.Int64 // of the store's clock, in nanoseconds
}

// now returns the time in clock units.
func (c *nodeClock) now() int64 { return (c.read() + c.offset.Load()) / int64(unit) }

// Samples of the store's clock.
const (
	sampleEvery = 30 * time.Second
	samples     = 5
)

// learn measures how far the store's clock is ahead: the sample with the shortest round trip is the most exact,
// to half of that.
func (c *nodeClock) learn(ctx context.Context, from Clocked) error {
	shortest := time.Duration(-1)
	var offset int64
	for range samples {
		before := c.read()
		began := time.Now()
		t, err := from.Now(ctx)
		trip := time.Since(began)
		if err != nil {
			return err
		}
		if shortest < 0 || trip < shortest {
			shortest, offset = trip, t.UnixNano()-(before+int64(trip)/2)
		}
	}
	c.offset.Store(offset)
	return nil
}
