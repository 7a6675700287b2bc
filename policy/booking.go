package policy

import (
	"context"
	"time"

	"github.com/weirflow/weir"
	"github.com/weirflow/weir/internal/rules"
	"github.com/weirflow/weir/keyed"
)

// books reports whether the limit can be charged ahead of its time.
func (l *limit) books() bool {
	p := rules.ParamsOf(l.Limit.Limit)
	if p == nil {
		return false
	}
	r, err := p.Compile(time.Microsecond)
	return err == nil && r.CanBook()
}

// A booking is the charge of a limit ahead of its time.
type booking struct {
	e      *Engine
	within time.Duration // the longest acceptable delay; below 0, any delay
	l      *limit        // nil if nothing was charged
	key    string
	charge keyed.Reservation[string] // of a limit in memory
	stored weir.Charge               // of a limit in a store
}

// reserveAhead charges one limit ahead of its time.
func (e *Engine) reserveAhead(ctx context.Context, n *namedAsk, within time.Duration) (*Answer, error) {
	b := &booking{e: e, within: within}
	all := []*namedAsk{n}
	a := newAnswer(all)
	a.combine(all)
	a.kept = true
	err := a.decideAlone(ctx, e, &namedAsks{keep: true, estimates: true, ahead: b})
	if b.l != nil {
		a.booked = b
	}
	return a, err
}

// book charges a single limit ahead of its time.
func (v *Verdict) book(ctx context.Context, b *booking, r *request) {
	l := v.evaluated[0]
	var buf [maxKey]byte
	key, cost, q := l.keyAndCost(buf[:0], r)
	if q != charged {
		v.withoutCharge(l, key, q, r)
		return
	}
	b.l, v.cost = l, cost
	if l.store == nil {
		b.key = string(key)
		b.inMemory(v, cost)
		return
	}
	b.key = l.keyInStore(key, r)
	b.inStore(ctx, v, cost)
}

func (b *booking) inMemory(v *Verdict, cost int64) {
	var ok bool
	if b.charge, ok = b.l.table.ReserveBy(b.l.parameters, b.key, cost, b.within); !ok {
		v.deny(b.l, b.key, b.charge.Decision())
	} else {
		v.Decision, v.Delay = b.charge.Decision(), b.charge.Delay()
	}
	b.l.counts.add(v.Decision, v.Delay)
}

func (b *booking) inStore(ctx context.Context, v *Verdict, cost int64) {
	l := b.l
	batch := []weir.Charge{{Name: l.state, Key: b.key, Limit: l.Limit.Limit, Plan: l.plan, Cost: cost, Op: weir.OpReserve, Within: max(b.within, -1), Estimate: true}}
	out := make([]weir.Decision, 1)
	err := l.store.Do(ctx, batch, out)
	b.stored = batch[0]
	d := out[0]
	if err != nil {
		_, _ = b.settle(ctx, 0, settlement{}) // it may have been carried out
		if v.Err = err; ctx.Err() != nil {
			v.Outcome = Left
			return
		}
		d = l.withoutStore(err)
		l.countError(err)
	}
	if d.By = l.Name; d.Allowed {
		v.Decision, v.Delay = d, b.stored.Delay
	} else {
		v.deny(l, b.key, d)
	}
	l.counts.add(d, v.Delay)
	l.counts.sources[d.Source].Add(1)
}

// settle replaces the cost of the charge, and returns what is left then; without a Limit if that is not
// known.
func (b *booking) settle(ctx context.Context, actual int64, as settlement) (left weir.Decision, err error) {
	if b.l.store == nil {
		b.charge.Settle(actual)
		return b.l.table.PeekBy(b.l.parameters, b.key, 0), nil
	}
	c := b.stored
	if nothingToSettle(&c, actual) {
		return left, nil
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), patience)
	defer cancel()
	batch := []weir.Charge{settlementOf(&c, actual)}
	as.sign(&batch[0], 0)
	out := make([]weir.Decision, 1)
	failed := b.l.store.Do(ctx, batch, out)
	err = unsettled(failed)
	if as.isOpen(err) {
		return left, err
	}
	b.stored.Receipt = ""
	if failed != nil {
		b.l.counts.lost.Add(1)
		return left, err
	}
	return out[0], nil
}
