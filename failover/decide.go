package failover

import (
	"fmt"
	"slices"
	"time"

	"github.com/weirflow/weir"
	"github.com/weirflow/weir/keyed"
)

// decide makes the fallback's decisions: on all charges of a batch, or only on those whose Err says
// that the store failed. cause is the store's error.
func (s *Store) decide(batch []weir.Charge, out []weir.Decision, all bool, cause error) (err error) {
	if !all {
		joinGroups(batch)
	}
	for i := range batch {
		c := &batch[i]
		switch {
		case !all && !ofStore(c.Err):
		case c.Group <= 0 || c.Op != weir.OpTake:
			s.decideOne(c, &out[i], cause)
		case !slices.ContainsFunc(batch[:i], func(b weir.Charge) bool { return b.Group == c.Group && b.Op == weir.OpTake }):
			s.decideGroup(batch[i:], out[i:], c.Group)
		}
		if err == nil {
			err = c.Err
		}
	}
	return err
}

// joinGroups marks all charges of a group as failed if one of them failed.
func joinGroups(batch []weir.Charge) {
	for i := range batch {
		if c := &batch[i]; c.Group > 0 && ofStore(c.Err) {
			for j := range batch {
				if batch[j].Group == c.Group {
					batch[j].Err = c.Err
				}
			}
		}
	}
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
	c.Err, c.Delay, c.Taken = nil, 0, 0
	if c.Op != weir.OpSettle {
		c.Receipt = ""
	}
}

// decideOne decides on a charge that is in no group.
func (s *Store) decideOne(c *weir.Charge, d *weir.Decision, cause error) {
	blank(c)
	policy := s.policy(c.Name)
	*d = weir.Decision{By: c.Name, Source: policy.source()}
	if c.Op == weir.OpSettle {
		c.Err = undone(c, cause)
		return
	}
	n := need{charge: c, keys: policy == Local}
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
		s.fixedSome(c, d, n.record, policy)
	default:
		*d = s.fixed(c, n.record, policy)
	}
	if s.count(policy); c.Op == weir.OpReset {
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
func (s *Store) fixed(c *weir.Charge, r *record, f OnFailure) weir.Decision {
	d := weir.Decision{Limit: r.size, By: c.Name, Source: f.source()}
	cost := c.Cost
	if c.Op == weir.OpCarry || c.Op == weir.OpReset {
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
		d.RetryAfter = s.untilAsked()
		d.ResetAfter = d.RetryAfter
	}
	return d
}

// fixedSome is fixed for OpTakeSome.
func (s *Store) fixedSome(c *weir.Charge, d *weir.Decision, r *record, f OnFailure) {
	asked := *c
	asked.Cost = min(c.Cost, r.size)
	if *d = s.fixed(&asked, r, f); d.Allowed {
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
func (s *Store) decideGroup(batch []weir.Charge, out []weir.Decision, group int) {
	var members []int
	var needs []*need
	for i := range batch {
		if c := &batch[i]; c.Group == group && c.Op == weir.OpTake {
			blank(c)
			members = append(members, i)
			needs = append(needs, &need{charge: c, keys: s.policy(c.Name) == Local})
		}
	}
	exclusive, err := s.lock(needs...)
	if err != nil {
		for _, i := range members {
			out[i] = weir.Decision{By: batch[i].Name, Source: s.policy(batch[i].Name).source()}
			batch[i].Err = err
		}
		return
	}
	defer s.unlock(exclusive)
	var locals []int
	refused := false
	for j, i := range members {
		f := s.policy(batch[i].Name)
		if s.count(f); f == Local {
			locals = append(locals, j)
			continue
		}
		out[i] = s.fixed(&batch[i], needs[j].record, f)
		refused = refused || !out[i].Allowed
	}
	g := localGroup{s: s}
	for _, j := range locals {
		g.charges = append(g.charges, &batch[members[j]])
		g.records = append(g.records, needs[j].record)
		g.out = append(g.out, &out[members[j]])
	}
	switch {
	case len(locals) == 0:
	case refused:
		g.look()
	case g.distinct():
		g.together()
	default:
		g.inOrder()
	}
	for _, d := range g.out {
		d.Source = weir.SourceShare
	}
}

// A localGroup is the charges of a group whose limits have Local as their fallback.
type localGroup struct {
	s       *Store
	charges []*weir.Charge
	records []*record
	out     []*weir.Decision
}

// look decides without a charge.
func (g *localGroup) look() {
	for i, c := range g.charges {
		*g.out[i] = g.records[i].keys.Peek(c.Key, c.Cost)
	}
}

// distinct reports whether no two charges are of the same limit.
func (g *localGroup) distinct() bool {
	for i, r := range g.records {
		if slices.Contains(g.records[:i], r) {
			return false
		}
	}
	return true
}

// together makes all charges at one moment.
func (g *localGroup) together() {
	limiters := make([]*keyed.Limiter[string], len(g.records))
	charges := make([]keyed.Charge[string], len(g.records))
	for i, c := range g.charges {
		limiters[i] = g.records[i].keys
		charges[i] = keyed.Charge[string]{Key: c.Key, Cost: c.Cost, Keep: c.Keep}
	}
	group, err := keyed.NewGroup(limiters...)
	if err != nil {
		g.fail(err)
		return
	}
	d, err := group.Take(charges)
	if err != nil {
		g.fail(err)
		return
	}
	for i, c := range g.charges {
		if *g.out[i] = charges[i].Decision; d.Allowed && c.Keep && c.Cost > 0 {
			c.Receipt = g.s.keep(heldCharge{kept{&charges[i]}, g.records[i]})
		}
	}
}

func (g *localGroup) fail(err error) {
	for _, c := range g.charges {
		c.Err = err
	}
}

// inOrder makes the charges one after another, because some are of the same limit, and cancels all of
// them if one is refused. Other callers may be refused meanwhile because of charges that are then
// cancelled. None is wrongly admitted.
func (g *localGroup) inOrder() {
	var made []keyed.Reservation[string]
	for i, c := range g.charges {
		r, ok := g.records[i].keys.Reserve(c.Key, c.Cost, 0)
		if ok {
			*g.out[i] = r.Decision()
			made = append(made, r)
			continue
		}
		for _, r := range slices.Backward(made) {
			r.Cancel()
		}
		g.look()
		*g.out[i] = r.Decision()
		return
	}
	for i, c := range g.charges {
		if c.Keep && c.Cost > 0 {
			c.Receipt = g.s.keep(heldCharge{made[i], g.records[i]})
		} else {
			made[i].Settle(c.Cost) // it cannot be given back any more
		}
	}
}

// reserve makes a reservation, and gives the charge a receipt for it.
func (s *Store) reserve(c *weir.Charge, r *record, cost int64, within time.Duration) weir.Decision {
	res, ok := r.keys.Reserve(c.Key, cost, within)
	if ok && cost > 0 {
		c.Delay, c.Receipt = res.Delay(), s.keep(heldCharge{res, r})
	}
	return res.Decision()
}
