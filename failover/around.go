package failover

import (
	"context"

	"github.com/weirflow/weir"
)

// around is do while some breakers are not closed: the fallback decides about the charges of their
// shards, and the store about the others.
func (s *Store) around(ctx context.Context, batch []weir.Charge, out []weir.Decision) error {
	var room [4]*outage
	outages, down := room[:0], 0
	for i := range batch {
		var o *outage
		if d := s.shards.of(&batch[i]); d != nil && d.State() != Closed {
			o = d.latest(s)
			down++
		}
		outages = append(outages, o)
	}
	switch down {
	case 0:
		return s.through(ctx, batch, out)
	case len(batch):
		s.counters.skipped.Add(1)
		return s.decideIn(batch, out, outages, nil)
	}
	return s.onBoth(ctx, batch, out, outages)
}

// onBoth decides about a batch of which a part has outages, and the store decides about the rest.
//
// The part of a group that local shares decide about is charged first, as it can be cancelled
// exactly, and without a round trip. If it is refused, nothing of the group is charged in the store;
// if the store refuses its part, the shares get theirs back.
func (s *Store) onBoth(ctx context.Context, batch []weir.Charge, out []weir.Decision, outages []*outage) error {
	groups := s.holdGroups(batch, out, outages)
	var rest []weir.Charge
	var places []int // in batch
	for i := range batch {
		c, g := batch[i], groupOf(groups, &batch[i])
		switch {
		case outages[i] != nil:
			if g != nil {
				outages[i] = nil // it is decided
			}
			continue
		case g == nil:
		case g.err != nil:
			batch[i].Err = g.err
			continue
		case g.refused: // what would be decided without a charge
			c.Op, c.Group, c.Keep = weir.OpPeek, 0, false
		}
		rest, places = append(rest, c), append(places, i)
	}
	answers := make([]weir.Decision, len(rest))
	if len(rest) > 0 {
		if err := s.through(ctx, rest, answers); err != nil {
			if ctx.Err() != nil {
				for _, g := range groups {
					g.end(false)
				}
				return err
			}
			spreadError(rest, err)
		}
	}
	for n, i := range places {
		to, from := &batch[i], &rest[n]
		out[i], to.Err, to.Delay, to.Taken, to.Used = answers[n], from.Err, from.Delay, from.Taken, from.Used
		if to.Op != weir.OpSettle {
			to.Receipt = from.Receipt
		}
	}
	for number, g := range groups {
		g.end(admitted(batch, out, number))
	}
	return s.decideIn(batch, out, outages, nil)
}

// groupOf returns the group of a charge, if it is one of some.
func groupOf(groups map[int]*localGroup, c *weir.Charge) *localGroup {
	if c.Op != weir.OpTake {
		return nil
	}
	return groups[c.Group]
}

// holdGroups charges the local shares for the groups of which only a part has outages, until it is
// known whether the store admits the rest.
func (s *Store) holdGroups(batch []weir.Charge, out []weir.Decision, outages []*outage) map[int]*localGroup {
	var in, without map[int]bool
	for i := range batch {
		if c := &batch[i]; c.Group > 0 && c.Op == weir.OpTake {
			if in == nil {
				in, without = map[int]bool{}, map[int]bool{}
			}
			if outages[i] != nil {
				in[c.Group] = true
			} else {
				without[c.Group] = true
			}
		}
	}
	var groups map[int]*localGroup
	for i := range batch {
		number := batch[i].Group
		if !in[number] || !without[number] || groups[number] != nil {
			continue
		}
		if groups == nil {
			groups = map[int]*localGroup{}
		}
		groups[number] = s.newGroup(batch, out, outages, number)
		groups[number].hold()
	}
	return groups
}

// spreadError gives an error about a whole batch to each charge.
func spreadError(batch []weir.Charge, err error) {
	for i := range batch {
		if batch[i].Err != nil {
			return
		}
	}
	for i := range batch {
		batch[i].Err = err
	}
}

// admitted reports whether all charges of a group were admitted.
func admitted(batch []weir.Charge, out []weir.Decision, group int) bool {
	for i := range batch {
		if c := &batch[i]; c.Group == group && c.Op == weir.OpTake && (c.Err != nil || !out[i].Allowed) {
			return false
		}
	}
	return true
}
