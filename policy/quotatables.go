package policy

import (
	"context"
	"crypto/rand"
	"slices"
	"sync"
	"time"

	"github.com/weirflow/weir"
	"github.com/weirflow/weir/keyed"
)

// tables is the store over the tables of the quotas in memory. Reservations are remembered until they are
// settled, or forgotten.
type tables struct {
	engine func() *Engine

	mu   sync.Mutex
	open map[weir.Receipt]func(actual int64)
}

// limit returns the quota with a state's name, as it is for a plan.
func (t *tables) limit(c *weir.Charge) (*limit, error) {
	for _, l := range t.engine().limits {
		if l.state != c.Name || l.table == nil || !l.passes {
			continue
		}
		if l = l.of(c.Plan); l.unlimited && l.uncharged != nil {
			l = l.uncharged
		}
		return l, nil
	}
	return nil, quotaError(ErrNoQuota, c.Name)
}

// Do carries out a batch, as weir.Store specifies, without OpTakeSome and OpCarry.
func (t *tables) Do(ctx context.Context, batch []weir.Charge, out []weir.Decision) (first error) {
	if err := ctx.Err(); err != nil {
		return err
	}
	var done []int // groups
	for i := range batch {
		c := &batch[i]
		switch c.Err = nil; {
		case c.Group <= 0:
			out[i], c.Err = t.one(c)
		case !slices.Contains(done, c.Group):
			done = append(done, c.Group)
			t.group(batch, out, c.Group)
		}
	}
	for i := range batch {
		if batch[i].Err != nil {
			return batch[i].Err
		}
	}
	return nil
}

// one carries out a charge alone.
func (t *tables) one(c *weir.Charge) (d weir.Decision, err error) {
	l, err := t.limit(c)
	if c.Op == weir.OpSettle && c.Receipt != "" { // also of a limit that is gone since
		if settled := t.settle(c); settled != nil || err != nil {
			return d, settled
		}
		return l.table.PeekBy(l.parameters, c.Key, 0), nil
	}
	if err != nil {
		return d, err
	}
	switch c.Op {
	case weir.OpTake:
		if !c.Keep {
			return l.table.TakeBy(l.parameters, c.Key, c.Cost), nil
		}
		return t.reserve(l, c, 0), nil
	case weir.OpReserve:
		return t.reserve(l, c, c.Within), nil
	case weir.OpSettle:
		l.chargeMemory(t.engine(), c.Key, c.Cost) // without a receipt: into debt if need be
	case weir.OpGiveBack:
		l.table.GiveBack(c.Key, c.Cost) // what other algorithms cannot give back stays used
	case weir.OpReset:
		l.table.Reset(c.Key)
	case weir.OpPeek:
		if c.Used = 0; c.Usage {
			c.Used = l.table.Used(c.Key)
		}
		return l.table.PeekBy(l.parameters, c.Key, c.Cost), nil
	default:
		return d, quotaError(ErrNoQuota, c.Op.String())
	}
	return l.table.PeekBy(l.parameters, c.Key, 0), nil
}

func (t *tables) reserve(l *limit, c *weir.Charge, within time.Duration) weir.Decision {
	r, ok := l.table.ReserveBy(l.parameters, c.Key, c.Cost, within)
	if ok {
		c.Delay, c.Receipt = r.Delay(), t.keep(r.Settle)
	}
	return r.Decision()
}

// keep remembers a reservation.
func (t *tables) keep(settle func(actual int64)) weir.Receipt {
	receipt := weir.Receipt(rand.Text())
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.open == nil {
		t.open = map[weir.Receipt]func(int64){}
	}
	t.open[receipt] = settle
	return receipt
}

// has reports whether a charge settles a reservation that was made here.
func (t *tables) has(c weir.Charge) bool {
	if c.Op != weir.OpSettle || c.Receipt == "" {
		return false
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.open[c.Receipt] != nil
}

// settle settles a reservation.
func (t *tables) settle(c *weir.Charge) error {
	t.mu.Lock()
	settle := t.open[c.Receipt]
	delete(t.open, c.Receipt)
	t.mu.Unlock()
	if settle == nil {
		return quotaError(errNoReceipt, c.Name)
	}
	settle(c.Cost)
	return nil
}

// group makes all charges of a group or none.
func (t *tables) group(batch []weir.Charge, out []weir.Decision, group int) {
	var at []int
	var limiters []*keyed.Limiter[string]
	var charges []keyed.Charge[string]
	var wrong error
	for i := range batch {
		c := &batch[i]
		if c.Group != group {
			continue
		}
		l, err := t.limit(c)
		if err != nil {
			wrong, c.Err = err, err
			continue
		}
		at, limiters = append(at, i), append(limiters, l.table)
		charges = append(charges, keyed.Charge[string]{Key: c.Key, Cost: c.Cost, Keep: c.Keep, Parameters: l.parameters})
	}
	var together *keyed.Group[string]
	if wrong == nil {
		together, wrong = keyed.NewGroup(limiters...)
	}
	if wrong != nil {
		for _, i := range at {
			batch[i].Err = wrong
		}
		return
	}
	all, _ := together.Take(charges) // an error can only mean a wrong number of charges
	for k, i := range at {
		out[i] = charges[k].Decision
		if all.Allowed && charges[k].Keep {
			c := &charges[k]
			batch[i].Receipt = t.keep(func(actual int64) { _ = c.Settle(actual) }) // it is kept
		}
	}
}

// forget ends all reservations: they stay charged.
func (t *tables) forget() {
	t.mu.Lock()
	defer t.mu.Unlock()
	clear(t.open)
}
