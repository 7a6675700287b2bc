package failover

import (
	"slices"

	"github.com/weirflow/weir"
	"github.com/weirflow/weir/keyed"
)

// A localGroup is the charges of a group that the fallback decides about: all of the group, or those
// of shards that are down.
type localGroup struct {
	s       *Store
	all     []*weir.Charge
	outs    []*weir.Decision // about all
	needs   []*need          // of all
	err     error            // the group cannot be decided about
	refused bool

	// those that local shares decide about
	charges []*weir.Charge
	records []*record
	out     []*weir.Decision
	made    []keyed.Reservation[string] // while the group is held
}

// newGroup returns the charges of a group that have an outage.
func (s *Store) newGroup(batch []weir.Charge, out []weir.Decision, outages []*outage, group int) *localGroup {
	g := &localGroup{s: s}
	for i := range batch {
		if c := &batch[i]; c.Group == group && c.Op == weir.OpTake && outages[i] != nil {
			blank(c)
			g.all, g.outs = append(g.all, c), append(g.outs, &out[i])
			g.needs = append(g.needs, &need{charge: c, outage: outages[i], keys: s.policy(c.Name) == Local})
		}
	}
	return g
}

// failAll makes the group fail.
func (g *localGroup) failAll(err error) {
	g.err = err
	for i, c := range g.all {
		*g.outs[i] = weir.Decision{By: c.Name, Source: g.s.policy(c.Name).source()}
		c.Err = err
	}
}

// fix decides about the charges that need no share, finds those that do, and reports whether one of
// the former is refused. The lock is held.
func (g *localGroup) fix() (refused bool) {
	for i, c := range g.all {
		f := g.s.policy(c.Name)
		if g.s.count(f); f == Local {
			g.charges = append(g.charges, c)
			g.records = append(g.records, g.needs[i].record)
			g.out = append(g.out, g.outs[i])
			continue
		}
		*g.outs[i] = g.s.fixed(c, g.needs[i], f)
		refused = refused || !g.outs[i].Allowed
	}
	return refused
}

// sign says that shares decided.
func (g *localGroup) sign() {
	for _, d := range g.out {
		d.Source = weir.SourceShare
	}
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
	if g.reserve() {
		g.confirm()
	}
}

// reserve charges one after another, in a way that can be cancelled, and reports whether all were
// admitted. Otherwise nothing is charged. The lock is held.
func (g *localGroup) reserve() bool {
	for i, c := range g.charges {
		r, ok := g.records[i].keys.Reserve(c.Key, c.Cost, 0)
		if ok {
			*g.out[i] = r.Decision()
			g.made = append(g.made, r)
			continue
		}
		g.cancel()
		*g.out[i] = r.Decision()
		return false
	}
	return true
}

// confirm makes what was reserved a charge, with a receipt if the caller wants one.
func (g *localGroup) confirm() {
	for i, c := range g.charges {
		if c.Keep && c.Cost > 0 {
			c.Receipt = g.s.keep(heldCharge{g.made[i], g.records[i]})
		} else {
			g.made[i].Settle(c.Cost) // it cannot be given back any more
		}
	}
}

// cancel gives back what was reserved, and decides without it. The lock is held.
func (g *localGroup) cancel() {
	for _, r := range slices.Backward(g.made) {
		r.Cancel()
	}
	g.made = nil
	g.look()
}

// hold charges the group until end says whether the rest of the group is admitted.
func (g *localGroup) hold() {
	exclusive, err := g.s.lock(g.needs...)
	if err != nil {
		g.failAll(err)
		return
	}
	defer g.s.unlock(exclusive)
	if g.refused = g.fix(); g.refused {
		g.look()
	} else {
		g.refused = !g.reserve()
	}
	g.sign()
}

// end confirms a group that is held, or cancels it.
func (g *localGroup) end(admitted bool) {
	if g.err != nil || g.refused {
		return // nothing is charged
	}
	g.s.shares.mu.RLock()
	defer g.s.shares.mu.RUnlock()
	if admitted {
		g.confirm()
		return
	}
	g.cancel()
	g.sign()
}
