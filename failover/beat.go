package failover

import (
	"context"
	"sync/atomic"
	"time"
)

// A nodeCount is how many nodes share the limits, as far as is known.
type nodeCount struct {
	count atomic.Int64

	// While heartbeats report fewer nodes: since when, and the most of these reports. Only the
	// goroutine of the heartbeats uses them.
	fewer bool
	since int64
	most  int64
}

// Nodes returns how many nodes share the limits, as far as is known.
func (s *Store) Nodes() int { return int(s.nodes.count.Load()) }

// beat sends heartbeats while the store, or one of its shards, is not down: which shard has the
// heartbeats is not known.
func (s *Store) beat(b Beater) {
	ticker := time.NewTicker(s.opts.BeatEvery)
	defer ticker.Stop()
	for {
		if down, _, all := s.shards.downs(); len(down) == all {
			s.nodes.fewer = false
		} else if n, err := s.aside(func(ctx context.Context) (int, error) { return b.Beat(ctx, s.opts.ID, s.opts.BeatTTL) }); err != nil {
			s.nodes.fewer = false
		} else if n > 0 {
			s.nodes.report(int64(n), s.now(), s.opts.BeatTTL)
		}
		select {
		case <-ticker.C:
		case <-s.life.Done():
			return
		}
	}
}

// report takes in how many nodes a heartbeat found. A higher count is used at once. A lower one is
// used only after it has been reported for a whole TTL: after an outage the other nodes come back
// one by one.
func (c *nodeCount) report(n, now int64, ttl time.Duration) {
	switch {
	case n >= c.count.Load():
		c.count.Store(n)
		c.fewer = false
	case !c.fewer:
		c.fewer, c.since, c.most = true, now, n
	default:
		if c.most = max(c.most, n); now-c.since >= int64(ttl) {
			c.count.Store(c.most)
			c.fewer = false
		}
	}
}
