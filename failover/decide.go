package failover

import (
	"fmt"
	"slices"
	"time"

	"github.com/weirflow/weir"
)

// decide makes the fallback's decisions: on all charges of a batch, or only on those whose Err is a
// failure of the store, and their groups. cause is the store's error.
func (s *Store) decide(batch []weir.Charge, out []weir.Decision, all bool, cause error) error {
	var room [4]*outage
	outages := room[:0]
	for i := range batch {
		outages = append(outages, s.outageOf(batch, i, all))
	}
	return s.decideIn(batch, out, outages, cause)
}

// outageOf returns the outage in which the fallback decides about a charge: that of its shard or, if
// another charge of its group was not answered, that of the other's shard. It is nil for a charge
// that the store decided.
func (s *Store) outageOf(batch []weir.Charge, i int, all bool) *outage {
	c := &batch[i]
	if all || ofStore(c.Err) {
		return s.failing(c).latest(s)
	}
	if c.Group <= 0 {
		return nil
	}
	for j := range batch {
		if other := &batch[j]; other.Group == c.Group && ofStore(other.Err) {
			return s.failing(other).latest(s)
		}
	}
	return nil
}

// latest returns the outage that lasts, or else the last one, for a fallback that decides when the
// shard has just come back.
func (d *shard) latest(s *Store) *outage {
	if d.outage.Load() == nil {
		s.suffered(d)
	}
	return d.outage.Load()
}

// decideIn decides about charges in their outages, and leaves those alone that have none.
func (s *Store) decideIn(batch []weir.Charge, out []weir.Decision, outages []*outage, cause error) (err error) {
	for i := range batch {
		c := &batch[i]
		switch {
		case outages[i] == nil:
		case c.Group <= 0 || c.Op != weir.OpTake:
			s.decideOne(c, &out[i], outages[i], cause)
		case !slices.ContainsFunc(batch[:i], func(b weir.Charge) bool { return b.Group == c.Group && b.Op == weir.OpTake }):
			s.decideGroup(batch[i:], out[i:], outages[i:], c.Group)
		}
		if err == nil {
			err = c.Err
		}
	}
	return err
}

// policy returns the fallback of a limit.
func (s *Store) policy(name string) OnFailure {
	if f, ok := s.policies[name]; ok {
		return f
	}
	return s.opts.OnFailure
}

// undone returns the error of an operation that only the store can carry out.
func undone(c *weir.Charge, cause error) error {
	if cause == nil {
		return fmt.Errorf("%w: %v of %q was not done", ErrUnavailable, c.Op, c.Name)
	}
	return fmt.Errorf("%w: %v of %q was not done: %w", ErrUnavailable, c.Op, c.Name, cause)
}

// blank clears the results that the store may have left in a charge.
func blank(c *weir.Charge) {
	c.Err, c.Delay, c.Taken, c.Used = nil, 0, 0, 0
	if c.Op != weir.OpSettle {
		c.Receipt = ""
	}
}

// decideOne decides on a charge that is in no group.
func (s *Store) decideOne(c *weir.Charge, d *weir.Decision, o *outage, cause error) {
	blank(c)
	policy := s.policy(c.Name)
	*d = weir.Decision{By: c.Name, Source: policy.source()}
	if c.Op == weir.OpSettle {
		c.Err = undone(c, cause)
		return
	}
	if c.EachCall {
		s.decideEachCall(c, d, o, cause)
		return
	}
	n := need{charge: c, outage: o, keys: policy == Local}
	exclusive, err := s.lock(&n)
	if err != nil {
		c.Err = err
		return
	}
	defer s.unlock(exclusive)
	switch {
	case policy == Local:
		s.local(c, d, n.record)
	case c.Op == weir.OpTakeSome:
		s.fixedSome(c, d, &n, policy)
	default:
		*d = s.fixed(c, &n, policy)
	}
	if s.count(policy); c.Op == weir.OpReset || c.Op == weir.OpGiveBack {
		c.Err = undone(c, cause)
	}
}

// source returns the Source of the fallback's decisions.
func (f OnFailure) source() weir.Source {
	return [...]weir.Source{weir.SourceDeny, weir.SourceAllow, weir.SourceShare}[f]
}

// count counts a charge that the fallback decided.
func (s *Store) count(f OnFailure) {
	switch f {
	case Allow:
		s.counters.allowed.Add(1)
	case Deny:
		s.counters.denied.Add(1)
	default:
		s.counters.shared.Add(1)
	}
}

// fixed returns the decision of Allow or Deny. Both refuse a cost that never fits, and both allow a
// cost of 0.
func (s *Store) fixed(c *weir.Charge, n *need, f OnFailure) weir.Decision {
	r := n.record
	d := weir.Decision{Limit: r.size, By: c.Name, Source: f.source()}
	cost := c.Cost
	if c.Op == weir.OpCarry || c.Op == weir.OpReset || c.Op == weir.OpGiveBack {
		cost = 0
	}
	switch {
	case cost < 0 || cost > r.largest:
		d.RetryAfter = weir.Never
	case f == Allow:
		d.Allowed, d.Remaining = true, r.size
	case cost == 0:
		d.Allowed = true
	default:
		d.RetryAfter = s.untilAsked(n.outage.shard)
		d.ResetAfter = d.RetryAfter
	}
	return d
}

// fixedSome is fixed for OpTakeSome.
func (s *Store) fixedSome(c *weir.Charge, d *weir.Decision, n *need, f OnFailure) {
	asked := *c
	asked.Cost = min(c.Cost, n.record.size)
	if *d = s.fixed(&asked, n, f); d.Allowed {
		c.Taken = asked.Cost
	}
}

// local has this node's share of the limit decide. The lock is held.
func (s *Store) local(c *weir.Charge, d *weir.Decision, r *record) {
	switch c.Op {
	case weir.OpTake:
		if c.Keep {
			*d = s.reserve(c, r, c.Cost, 0)
		} else {
			*d = r.keys.Take(c.Key, c.Cost)
		}
	case weir.OpReserve:
		*d = s.reserve(c, r, c.Cost, c.Within)
	case weir.OpTakeSome:
		*d = s.takeSome(c, r)
	case weir.OpPeek:
		*d = r.keys.Peek(c.Key, c.Cost)
	case weir.OpReset:
		r.keys.Reset(c.Key)
		*d = r.keys.Peek(c.Key, 0)
	default:
		*d = r.keys.Peek(c.Key, 0)
	}
	d.Source = weir.SourceShare
}

// someTries bounds the retries of takeSome while other callers take tokens at the same time.
const someTries = 8

// takeSome charges as much of the cost as the share has left.
func (s *Store) takeSome(c *weir.Charge, r *record) (d weir.Decision) {
	for range someTries {
		cost := min(c.Cost, 1)
		if c.Cost > 1 {
			cost = min(c.Cost, max(1, r.keys.Peek(c.Key, 1).Remaining))
		}
		if d = s.reserve(c, r, cost, 0); d.Allowed {
			c.Taken = cost
			return d
		}
		if cost <= 1 {
			return d
		}
	}
	return d
}

// decideGroup decides on a group: all of its charges are made, or none. The first charge of batch
// belongs to it.
func (s *Store) decideGroup(batch []weir.Charge, out []weir.Decision, outages []*outage, group int) {
	g := s.newGroup(batch, out, outages, group)
	exclusive, err := s.lock(g.needs...)
	if err != nil {
		g.failAll(err)
		return
	}
	defer s.unlock(exclusive)
	refused := g.fix()
	switch {
	case len(g.charges) == 0:
	case refused:
		g.look()
	case g.distinct():
		g.together()
	default:
		g.inOrder()
	}
	g.sign()
}

// reserve makes a reservation, and gives the charge a receipt for it.
func (s *Store) reserve(c *weir.Charge, r *record, cost int64, within time.Duration) weir.Decision {
	res, ok := r.keys.Reserve(c.Key, cost, within)
	if ok && cost > 0 {
		c.Delay, c.Receipt = res.Delay(), s.keep(heldCharge{res, r})
	}
	return res.Decision()
}
