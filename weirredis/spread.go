package weirredis

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/weirflow/weir"
)

// On a cluster, a group with keys in several slots cannot be charged in one step. It is charged
// slot by slot, in the order of the batch, and cancelled if a later slot refuses. Other callers may
// be refused meanwhile because of charges that are then cancelled; none is wrongly admitted. If the
// process ends in between, what was charged stays charged.

// inTurn carries out a batch with groups that are spread over slots.
func (s *Store) inTurn(ctx context.Context, end time.Time, batch []weir.Charge, out []weir.Decision, split map[int]bool) error {
	var together []int
	spread := map[int][]int{}
	var order []int
	for i := range batch {
		g := batch[i].Group
		if g <= 0 || !split[g] {
			together = append(together, i)
			continue
		}
		if spread[g] == nil {
			order = append(order, g)
		}
		spread[g] = append(spread[g], i)
	}
	first := s.some(ctx, end, batch, out, together, nil)
	for _, g := range order {
		if err := s.spread(ctx, end, batch, out, spread[g]); err != nil && first == nil {
			first = err
		}
	}
	return first
}

// some carries out some charges of a batch, each changed by a function.
func (s *Store) some(ctx context.Context, end time.Time, batch []weir.Charge, out []weir.Decision, which []int, change func(*weir.Charge)) error {
	if len(which) == 0 {
		return nil
	}
	charges, decisions := make([]weir.Charge, 0, len(which)), make([]weir.Decision, len(which))
	for _, i := range which {
		c := batch[i]
		if change != nil {
			change(&c)
		}
		charges = append(charges, c)
	}
	err := s.until(ctx, end, charges, decisions, false)
	for n, i := range which {
		out[i] = decisions[n]
		batch[i].Receipt, batch[i].Delay, batch[i].Taken, batch[i].Used, batch[i].Err = charges[n].Receipt, charges[n].Delay, charges[n].Taken, charges[n].Used, charges[n].Err
	}
	return err
}

// spread charges a group slot by slot.
func (s *Store) spread(ctx context.Context, end time.Time, batch []weir.Charge, out []weir.Decision, which []int) error {
	slots := s.bySlot(batch, which)
	for n, slot := range slots {
		err := s.some(ctx, end, batch, out, slot, func(c *weir.Charge) { c.Keep, c.Group = true, 1 })
		refused := slices.ContainsFunc(slot, func(i int) bool { return !out[i].Allowed })
		if err == nil && !refused {
			continue
		}
		if err != nil {
			s.undo(ctx, batch, slots[:n])
		} else {
			for _, charged := range slots[:n] {
				err = errors.Join(err, s.giveBack(ctx, batch, out, charged))
			}
			for _, later := range slots[n+1:] {
				err = errors.Join(err, s.some(ctx, end, batch, out, later, func(c *weir.Charge) { c.Op, c.Group = weir.OpPeek, 0 }))
			}
		}
		for _, i := range which {
			batch[i].Receipt = ""
		}
		return err
	}
	for _, i := range which {
		if !batch[i].Keep {
			batch[i].Receipt = ""
		}
	}
	return nil
}

// undo cancels the charges of slots, when another slot of their group has failed. The error is about
// that one: these slots have answered, so nothing is changed about their charges. The give-backs are
// sent also if the caller's context has ended, and then not waited for.
func (s *Store) undo(ctx context.Context, batch []weir.Charge, slots [][]int) {
	copied, out := slices.Clone(batch), make([]weir.Decision, len(batch))
	for _, charged := range slots {
		_ = s.giveBack(ctx, copied, out, charged) // what is not given back stays charged until it has refilled
	}
}

// bySlot puts charges of a slot together, in the order of the first of each.
func (s *Store) bySlot(batch []weir.Charge, which []int) (slots [][]int) {
	at := map[uint16]int{}
	for _, i := range which {
		slot := slotOf(s.key(batch[i].Name, batch[i].Key))
		n, ok := at[slot]
		if !ok {
			n = len(slots)
			at[slot], slots = n, append(slots, nil)
		}
		slots[n] = append(slots[n], i)
	}
	return slots
}

// patience is how long cancelling charges may take.
const patience = time.Second

// giveBack cancels charges, also if the caller's context has ended. Their decisions are then those
// of the states afterwards.
func (s *Store) giveBack(ctx context.Context, batch []weir.Charge, out []weir.Decision, which []int) error {
	end := time.Now().Add(patience)
	return s.some(ctx, end, batch, out, which, func(c *weir.Charge) { c.Op, c.Cost, c.Group = weir.OpSettle, 0, 0 })
}
