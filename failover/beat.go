package failover

import (
	"context"
	"sync/atomic"
	"time"
)

// A crowd is how many nodes there are, as far as is known.
type crowd struct {
	nodes atomic.Int64

	// While fewer are seen: since when, and the most of them. Only the heartbeats' goroutine has to do with these.
	fewer bool
	since int64
	most  int64
}

// Nodes returns how many nodes share the limits, as far as is known.
func (s *Store) Nodes() int { return int(s.crowd.nodes.Load()) }

// beat sends heartbeats while the store answers.
func (s *Store) beat(b Beater) {
	ticker := time.NewTicker(s.opts.BeatEvery)
	defer ticker.Stop()
	for {
		if s.State() != Closed {
			s.crowd.fewer = false
		} else if n, err := s.aside(func(ctx context.Context) (int, error) { return b.Beat(ctx, s.opts.ID, s.opts.BeatTTL) }); err == nil && n > 0 {
			s.crowd.saw(int64(n), s.now(), s.opts.BeatTTL)
		}
		select {
		case <-ticker.C:
		case <-s.life.Done():
			return
		}
	}
}

// saw is told how many nodes there are. More of them count at once; fewer only when that was so for as long as a heartbeat counts: after an
// outage the others come back one by one.
func (c *crowd) saw(n, now int64, ttl time.Duration) {
	switch {
	case n >= c.nodes.Load():
		c.nodes.Store(n)
		c.fewer = false
	case !c.fewer:
		c.fewer, c.since, c.most = true, now, n
	default:
		if c.most = max(c.most, n); now-c.since >= int64(ttl) {
			c.nodes.Store(c.most)
			c.fewer = false
		}
	}
}
