package failover

import "sync/atomic"

// Stats is what a Store has counted since it was made, and its present state. Calls are those of Do
// and Enter; charges are those within them.
type Stats struct {
	State State
	Nodes int // that the shares are for

	Shards int      // of the store; 1 if it is not Sharded
	Down   []string // the names of the shards whose breakers are not closed, in order
	// why: the latest error of each shard in Down, of a call or a probe; nil if it had none
	Causes []error
	Cause  error // the latest of Causes; nil if there is none

	// Transitions of all breakers: closed to open, open to half-open, half-open to closed and
	// half-open to open.
	Opened, Probed, Returned, Reopened uint64

	// Calls: answered by the store, errors about a charge included; not answered by the deadline;
	// failed; not made, because the breakers of all its shards were open; and left by a caller whose
	// own context ended.
	Answered, Late, Failed, Skipped, Left uint64

	// Charges and entries decided without the store, by the fallback.
	Allowed, Denied, Shared uint64

	InFlight int // calls of the store in flight; 0 with Options.Direct
	Receipts int // local reservations that can be settled
	// local reservations that can no longer be settled, because there were more than MaxReceipts
	Evicted uint64
}

// counters are what Stats is made of.
type counters struct {
	opened, probed, returned, reopened atomic.Uint64
	late, failed, skipped, left        atomic.Uint64
	allowed, denied, shared            atomic.Uint64
	_                                  [64]byte
	// written by each call: apart from the cache line of what each call reads
	answered atomic.Uint64
	_        [64]byte
}

// turned counts a transition.
func (c *counters) turned(from, to State) {
	switch {
	case from == Closed:
		c.opened.Add(1)
	case to == HalfOpen:
		c.probed.Add(1)
	case to == Closed:
		c.returned.Add(1)
	default:
		c.reopened.Add(1)
	}
}

// Stats returns the counters.
func (s *Store) Stats() Stats {
	c := &s.counters
	kept, evicted := s.receipts.count()
	down, causes, shards := s.shards.downs()
	return Stats{
		Shards:   shards,
		Down:     down,
		Causes:   causes,
		Cause:    s.shards.cause(),
		State:    s.State(),
		Nodes:    s.Nodes(),
		Opened:   c.opened.Load(),
		Probed:   c.probed.Load(),
		Returned: c.returned.Load(),
		Reopened: c.reopened.Load(),
		Answered: c.answered.Load(),
		Late:     c.late.Load(),
		Failed:   c.failed.Load(),
		Skipped:  c.skipped.Load(),
		Left:     c.left.Load(),
		Allowed:  c.allowed.Load(),
		Denied:   c.denied.Load(),
		Shared:   c.shared.Load(),
		InFlight: len(s.slots),
		Receipts: kept,
		Evicted:  evicted,
	}
}
