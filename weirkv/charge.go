package weirkv

import (
	"fmt"
	"math"
	"time"

	"github.com/weirflow/weir"
	"github.com/weirflow/weir/internal/outstanding"
	"github.com/weirflow/weir/internal/packed"
	"github.com/weirflow/weir/internal/rules"
)

// A turn is the evaluation of charges on the entry of their key, at one time.
type turn struct {
	*entry
	limits   *limits
	remember int
	now      int64
	dirty    bool // the entry has changed, and has to be written

	moved   map[uint64]int64 // settlements that were looked up: until when they count, by a key of their own
	unknown []uint64         // settlements that have to be looked up before the evaluation counts
}

// one carries out a charge.
func (t *turn) one(c *weir.Charge) (d weir.Decision, err error) {
	limit, err := t.limits.of(c.Limit)
	if err != nil {
		return d, err
	}
	switch c.Op {
	case weir.OpTake:
		d = t.take(limit, c)
	case weir.OpPeek:
		d = t.peek(limit, c.Cost)
		if c.Used = 0; c.Usage {
			c.Used = t.used(limit)
		}
	case weir.OpReserve:
		t.use(limit)
		d = t.reserve(limit, c, c.Cost, true)
	case weir.OpTakeSome:
		d = t.takeSome(limit, c)
	case weir.OpSettle:
		err = t.settle(limit, c)
		d = t.peek(limit, 0)
	case weir.OpCarry:
		t.dirty = t.carry(limit, t.now) || t.dirty
		d = t.peek(limit, 0)
	case weir.OpReset:
		t.dirty = t.dirty || len(t.versions) > 0
		t.versions, t.brief, t.third = nil, nil, false
		d = t.peek(limit, 0)
	case weir.OpGiveBack:
		err = t.giveBack(limit, c.Cost)
		d = t.peek(limit, 0)
	default:
		err = fmt.Errorf("a store knows no operation %d", c.Op)
	}
	return named(d, c.Name), err
}

// named is a decision with the name of its limit.
func named(d weir.Decision, name string) weir.Decision {
	switch {
	case name == "":
	case d.By == "":
		d.By = name
	default:
		d.By = name + "/" + d.By
	}
	d.Source = weir.SourceStore
	return d
}

func (t *turn) use(limit *compiled) {
	t.dirty = t.entry.use(limit, t.now, t.remember) || t.dirty
}

// peek decides as take would. It changes nothing.
func (t *turn) peek(limit *compiled, cost int64) weir.Decision {
	if i := t.find(limit); i >= 0 {
		return limit.Decision(rules.Peek(limit.rule, t.versions[i].state, t.now, rules.Queue{}, cost))
	}
	seen := &turn{entry: t.copied(), limits: t.limits, remember: t.remember, now: t.now}
	seen.use(limit)
	d := seen.worst(limit, func(v *version) weir.Decision {
		return v.limit.Decision(rules.Peek(v.limit.rule, v.state, t.now, rules.Queue{}, cost))
	})
	return d
}

// used is how much of a limit is used, also beyond its capacity.
func (t *turn) used(limit *compiled) (most int64) {
	seen := &turn{entry: t.copied(), limits: t.limits, remember: t.remember, now: t.now}
	seen.use(limit)
	for _, v := range seen.deciding() {
		most = max(most, v.limit.rule.Spent(v.state, t.now))
	}
	return most
}

// worst is the decision of the versions that decide: that of the longest wait. For a caller of a third
// version, it has that version's capacity.
func (t *turn) worst(limit *compiled, of func(v *version) weir.Decision) (d weir.Decision) {
	for i, v := range t.deciding() {
		next := of(v)
		switch {
		case i == 0:
			d = next
		case !next.Allowed && d.Allowed:
			d = next
		case !next.Allowed && longer(next.RetryAfter, d.RetryAfter):
			d = next
		case next.Allowed == d.Allowed:
			d.Remaining = min(d.Remaining, next.Remaining)
			d.ResetAfter = max(d.ResetAfter, next.ResetAfter)
		}
	}
	if t.third {
		d.Limit, d.By = limit.rule.Capacity(), ""
	}
	return d
}

func longer[D ~int64](a, b D) bool { return b >= 0 && (a < 0 || a > b) }

// take implements weir.OpTake.
func (t *turn) take(limit *compiled, c *weir.Charge) weir.Decision {
	t.use(limit)
	if c.Keep {
		return t.reserve(limit, c, c.Cost, c.Estimate)
	}
	if len(t.versions) > 1 {
		d, _, _ := t.charge(limit, c.Cost, 0, 0)
		return d
	}
	v := t.versions[0]
	unused := len(v.state) == 0
	state, verdict := rules.Take(v.limit.rule, v.memory, v.state, t.now, rules.Queue{}, c.Cost)
	v.state = state
	if verdict.Retry == 0 && c.Cost > 0 {
		v.used = t.now
		t.dirty = true
	}
	t.dirty = t.dirty || unused && len(state) > 0
	return v.limit.Decision(verdict)
}

// takeSome implements weir.OpTakeSome.
func (t *turn) takeSome(limit *compiled, c *weir.Charge) weir.Decision {
	t.use(limit)
	cost := min(c.Cost, 1)
	if c.Cost > 1 {
		left := t.worst(limit, func(v *version) weir.Decision {
			return v.limit.Decision(rules.Peek(v.limit.rule, v.state, t.now, rules.Queue{}, 1))
		})
		cost = max(min(c.Cost, left.Remaining), 1)
	}
	within := c.Within
	c.Within = 0
	d := t.reserve(limit, c, cost, false)
	c.Within, c.Delay, c.Taken = within, 0, 0
	if d.Allowed {
		c.Taken = cost
	}
	return d
}

// reserve charges a cost that can be given back, and writes the receipt. settles is whether it will be
// settled; otherwise it is remembered for a while only.
func (t *turn) reserve(limit *compiled, c *weir.Charge, cost int64, settles bool) weir.Decision {
	within := int64(0)
	if c.Op == weir.OpReserve {
		if within = int64(c.Within / unit); c.Within < 0 {
			within = -1
		}
	}
	c.Receipt, c.Delay = "", 0
	id := t.serial + 1
	d, delay, parts := t.charge(limit, cost, within, id)
	if !d.Allowed {
		return d
	}
	c.Delay = delay
	c.Receipt = receipt{cost: cost, id: id, parts: parts}.text()
	if len(parts) > 0 {
		t.serial = id
		if !settles {
			t.brief = append(t.brief, brief{id, t.now, parts})
		}
	}
	return d
}

// charge charges a cost that may go within so many clock units, below 0 at any time, in each version. With an id,
// it can be given back.
func (t *turn) charge(limit *compiled, cost, within int64, id outstanding.ID) (d weir.Decision, delay time.Duration, parts []part) {
	for _, v := range t.deciding() {
		if !v.limit.rule.CanBook() {
			within = 0
		}
	}
	wait := int64(0)
	plan := t.worst(limit, func(v *version) weir.Decision {
		p, verdict := t.plan(v, cost, within)
		wait = max(wait, p.Wait)
		return v.limit.Decision(verdict)
	})
	if !plan.Allowed || cost <= 0 {
		return plan, 0, nil
	}
	t.dirty = true
	for _, v := range t.deciding() {
		parts = append(parts, t.book(v, cost, t.now+min(wait, math.MaxInt64-max(t.now, 0)), id))
		v.used = t.now
	}
	if len(t.versions) > 1 && !t.third {
		other := t.versions[1]
		parts = append(parts, t.book(other, min(cost, other.room(t.now)), t.now, id))
	}
	d = t.worst(limit, func(v *version) weir.Decision {
		return v.limit.Decision(rules.Describe(v.limit.rule, v.state, t.now, rules.Queue{}, cost, 0))
	})
	return d, time.Duration(min(wait, math.MaxInt64/int64(unit))) * unit, parts
}

// plan decides about a cost. A state that does not start full begins, even if the cost is refused.
func (t *turn) plan(v *version, cost, within int64) (p rules.Plan, verdict rules.Verdict) {
	r := v.limit.rule
	if cost <= 0 || cost > r.LargestCost() {
		return p, rules.Peek(r, v.state, t.now, rules.Queue{}, cost)
	}
	if len(v.state) == 0 {
		v.state = r.FirstCall(v.state, t.now)
		t.dirty = t.dirty || len(v.state) > 0
	}
	p = rules.PlanBehind(r, v.state, t.now, rules.Queue{}, cost)
	retry := int64(0)
	if !p.Accepts(within) {
		retry = p.RetryWithin(within)
	}
	return p, rules.Describe(r, v.state, t.now, rules.Queue{}, cost, retry)
}

// book charges a version, and returns what identifies the charge.
func (t *turn) book(v *version, amount, due int64, id outstanding.ID) part {
	r := v.limit.rule
	if amount <= 0 {
		return part{began: v.began}
	}
	if len(v.state) == 0 {
		v.state = r.FirstCall(v.state, t.now)
	}
	if id == 0 {
		v.state = rules.Charge(r, v.memory, v.state, t.now, amount)
		return part{}
	}
	if v.memory == nil && r.NeedsMemory() {
		v.memory = new(rules.Memory)
		v.memory.Within(v.budget)
	}
	var made rules.Receipt
	v.state, made = rules.Book(r, v.memory, id, v.state, t.now, due, amount)
	return part{v.began, amount, made.Append(nil)}
}

// settle implements weir.OpSettle.
func (t *turn) settle(limit *compiled, c *weir.Charge) error {
	r, err := readReceipt(c.Receipt)
	if err != nil {
		return err
	}
	if c.Cost < 0 {
		return nil
	}
	before, dirty := t.copied(), t.dirty
	if c.Once != "" && c.OnceFor > 0 && !t.firstTime(c) {
		return nil
	}
	for _, p := range r.parts {
		for _, v := range t.versions {
			if err == nil && v.began == p.began {
				err = t.end(v, p, min(c.Cost, p.amount))
			}
		}
	}
	if t.forget(r.id); c.Cost > r.cost {
		t.owe(limit, c.Cost-r.cost)
	}
	if err == nil && !t.valid() {
		err = errReceipt
	}
	if err != nil {
		*t.entry, t.dirty = *before, dirty
	}
	return err
}

// end ends a reservation of a version, of which actual stays charged.
func (t *turn) end(v *version, p part, actual int64) error {
	from := packed.NewReader(p.ticket)
	made := rules.ReadReceipt(from, v.limit.rule)
	if len(p.ticket) == 0 {
		return nil // nothing was charged to this version
	}
	if from.End() != nil {
		return errReceipt
	}
	t.dirty = true
	switch {
	case actual < p.amount:
		v.state = made.Refund(v.limit.rule, v.memory, v.state, t.now, p.amount-actual)
	case v.memory != nil:
		made.Drop(v.limit.rule, v.memory)
	}
	return nil
}

// endBrief ends a charge that was not given back for a while.
func (e *entry) endBrief(b brief) {
	t := turn{entry: e}
	for _, p := range b.parts {
		for _, v := range e.versions {
			if v.began == p.began {
				_ = t.end(v, p, p.amount) // bytes of a value that was read: another writer's mistake drops nothing
			}
		}
	}
}

// forget removes a charge from those that are remembered for a while.
func (t *turn) forget(id outstanding.ID) {
	for i, b := range t.brief {
		if b.id == id {
			t.brief = append(t.brief[:i:i], t.brief[i+1:]...)
			return
		}
	}
}

// owe charges work that was done beyond its estimate.
func (t *turn) owe(limit *compiled, cost int64) {
	if len(t.versions) == 0 {
		t.use(limit)
	} else if i := t.find(limit); i >= 0 {
		t.first(i)
	}
	for i, v := range t.versions {
		amount := cost
		if i > 0 {
			if amount = min(cost, v.room(t.now)); amount == 0 {
				continue
			}
		}
		if len(v.state) == 0 {
			v.state = v.limit.rule.FirstCall(v.state, t.now)
		}
		v.state = rules.ChargeDebt(v.limit.rule, v.memory, v.state, t.now, amount)
		v.used = t.now
	}
	t.dirty = true
}

// giveBack implements weir.OpGiveBack.
func (t *turn) giveBack(limit *compiled, amount int64) error {
	if _, ok := limit.rule.(rules.CountingRule); !ok {
		return fmt.Errorf("only the count of a fixed_window can be given back without a receipt")
	}
	for _, v := range t.versions {
		if r, ok := v.limit.rule.(rules.CountingRule); ok && amount > 0 {
			v.state = r.GiveBack(v.state, t.now, amount)
			t.dirty = true
		}
	}
	return nil
}
