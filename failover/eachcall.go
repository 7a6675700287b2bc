package failover

import (
	"fmt"
	"math/bits"
	"time"

	"github.com/weirflow/weir"
	"github.com/weirflow/weir/internal/rules"
	"github.com/weirflow/weir/keyed"
)

// decideEachCall is decideOne for a charge whose parameters come with each call, as those of redis-cell's
// CL.THROTTLE do: the fallback keeps states by key alone, as times.
func (s *Store) decideEachCall(c *weir.Charge, d *weir.Decision, o *outage, cause error) {
	policy := s.policy(c.Name)
	var rate rules.Rate
	var size int64
	if l, ok := rules.ParamsOf(c.Limit).(rules.Metered); ok {
		rate, size = l.Meter()
	}
	switch {
	case size < 1 || rate.N < 1 || rate.Per < 1:
		c.Err = fmt.Errorf("%w: %v has no fallback with parameters of each call: use a TokenBucket", weir.ErrCharge, c.Limit)
		return
	case c.Op != weir.OpTake && c.Op != weir.OpPeek && c.Op != weir.OpReset || c.Keep:
		c.Err = undone(c, cause)
		return
	case policy != Local:
		*d = s.fixed(c, &need{charge: c, outage: o, record: &record{size: size, largest: size}}, policy)
	default:
		backlogs, err := s.backlogs()
		if err != nil {
			c.Err = err
			return
		}
		s.shareOfCall(c, d, o, backlogs, rate, size)
	}
	if s.count(policy); c.Op == weir.OpReset {
		c.Err = undone(c, cause)
	}
}

// backlogs returns the local states of keys whose parameters come with each call.
func (s *Store) backlogs() (*keyed.Backlogs, error) {
	if b := s.shares.calls.Load(); b != nil {
		return b, nil
	}
	s.shares.mu.Lock()
	defer s.shares.mu.Unlock()
	if b := s.shares.calls.Load(); b != nil {
		return b, nil
	}
	full := s.opts.Full
	if full == keyed.Share {
		full = keyed.Evict
	}
	b, err := keyed.NewBacklogs(keyed.Options{MaxKeys: s.opts.MaxKeys, Full: full, Clock: s.now})
	if err == nil {
		s.shares.calls.Store(b)
	}
	return b, err
}

// shareOfCall has this node's share of the parameters decide: the rate divided by the nodes, and the
// burst likewise, rounded down and at least 1. A key begins an outage empty: its backlog counts as if it
// had been as long as it may be when the outage began.
func (s *Store) shareOfCall(c *weir.Charge, d *weir.Decision, o *outage, backlogs *keyed.Backlogs, rate rules.Rate, size int64) {
	nodes := int64(s.Nodes())
	burst := max(1, size/nodes)
	each := eachOf(rate, nodes)
	longest := times(burst, each)
	least := time.Duration(0)
	if !s.opts.StartFull {
		least = max(0, longest-time.Duration(s.now()-o.began.mono))
	}
	cost := c.Cost
	if c.Op == weir.OpReset {
		backlogs.Reset([]byte(c.Key))
		cost = 0
	}
	*d = weir.Decision{Limit: burst, By: c.Name, Source: weir.SourceShare}
	if cost < 0 || cost > burst {
		d.RetryAfter, cost = weir.Never, 0
	}
	work := times(cost, each)
	charged := work
	if c.Op != weir.OpTake {
		charged = 0
	}
	backlog, added, refused := backlogs.AddTo(least, []byte(c.Key), charged, longest)
	d.ResetAfter, d.Remaining = backlog, int64(max(0, longest-backlog)/each)
	switch {
	case d.RetryAfter == weir.Never:
	case refused != 0: // no room for a new key
		d.RetryAfter = refused
	case charged != work && backlog+work > longest || charged == work && !added:
		d.RetryAfter = backlog + work - longest
	default:
		d.Allowed = true
	}
}

// eachOf returns how much time one token takes at a node's share of a rate, rounded up.
func eachOf(r rules.Rate, nodes int64) time.Duration {
	hi, lo := bits.Mul64(uint64(r.Per), uint64(nodes))
	if hi >= uint64(r.N) {
		return keyed.MaxBacklog
	}
	each, rest := bits.Div64(hi, lo, uint64(r.N))
	if rest > 0 {
		each++
	}
	return time.Duration(min(each, uint64(keyed.MaxBacklog)))
}

// times returns how much time a number of tokens takes, at most what a backlog can be.
func times(n int64, each time.Duration) time.Duration {
	if hi, lo := bits.Mul64(uint64(n), uint64(each)); hi == 0 && lo <= uint64(keyed.MaxBacklog) {
		return time.Duration(lo)
	}
	return keyed.MaxBacklog
}
