package policy

import (
	"context"

	"github.com/weirflow/weir"
	"github.com/weirflow/weir/keyed"
)

// ChargeDone charges the cost of work that is done, whatever is left: into debt if need be. A limit with
// a ban for the key refuses, and so does one whose on_missing denies a missing part; both charge nothing.
// The Decision of the answer is what is left. Costs that a store did not charge, as while it is
// unavailable, are counted: see Counts.Lost.
//
// The error is an *AskError, or that of a context that ended before a store responded.
func (e *Engine) ChargeDone(ctx context.Context, ask Ask) (*Answer, error) {
	e, in := e.enter()
	defer in.leave()
	all, err := e.check([]Ask{ask})
	if err != nil {
		return nil, err
	}
	a := newAnswer(all)
	a.combine(all)
	return a, a.decideAlone(ctx, e, &namedAsks{keep: true, done: true})
}

// isDone reports whether the request is work that is done, whose cost must count.
func (r *request) isDone() bool { return r.named != nil && r.named.done }

// chargeDone charges a single limit that is enforced.
func (v *Verdict) chargeDone(ctx context.Context, e *Engine, r *request) {
	l := v.evaluated[0]
	var buf [maxKey]byte
	key, cost, q := l.keyAndCost(buf[:0], r)
	if q != charged {
		v.withoutCharge(l, key, q, r)
		return
	}
	v.cost = cost
	var d weir.Decision
	if l.store == nil {
		d = l.chargeMemory(e, string(key), cost)
	} else {
		var err error
		if d, err = l.chargeStore(ctx, l.keyInStore(key, r), cost); err != nil {
			if v.Err = err; ctx.Err() != nil {
				v.Outcome = Left
				return
			}
			d = l.withoutStore(err)
			l.countError(err)
		}
		l.counts.sources[d.Source].Add(1)
	}
	if d.By = l.Name; d.Allowed {
		v.Decision = d
	} else {
		v.deny(l, l.text(key), d)
	}
	l.counts.add(d, 0)
}

// shadowDone charges a shadow limit; one in a store in the background.
func (e *Engine) shadowDone(l *limit, r *request) {
	var buf [maxKey]byte
	key, cost, q := l.keyAndCost(buf[:0], r)
	switch {
	case q == missing:
		l.counts.limited.Add(1)
	case q != charged:
		l.countExempt(q)
	case l.store == nil:
		l.counts.add(l.chargeMemory(e, string(key), cost), 0)
	default:
		key := l.keyInStore(key, r)
		e.shadows.run(l, func() {
			d, err := l.chargeStore(context.Background(), key, cost)
			if err != nil {
				l.countError(err)
				return
			}
			l.counts.add(d, 0)
			l.counts.sources[d.Source].Add(1)
		})
	}
}

// chargeMemory charges a limit in memory, and returns what is left. One unit is reserved, whenever it is
// due, and settled by the cost. Where not even that can be reserved, a reservation of nothing is settled.
func (l *limit) chargeMemory(e *Engine, key string, cost int64) weir.Decision {
	if cost > 0 {
		reserved, ok := l.table.ReserveBy(l.parameters, key, 1, -1)
		if !ok {
			reserved, ok = l.table.ReserveBy(l.parameters, key, 0, -1)
		}
		if ok {
			reserved.Settle(cost)
		}
	}
	if l.zone == nil {
		return l.table.PeekBy(l.parameters, key, 0)
	}
	g := e.alone[l.Name].group
	if l.Shadow {
		g = e.alone[l.Name].dryGroup
	}
	d, _ := g.Peek([]keyed.Charge[string]{{Key: key, Spare: l.spare}}) // an error can only mean a wrong number of charges
	return d
}

// chargeStore is chargeMemory for a limit in a store. The reservation lets a fallback of the store charge
// its own share while the store is unavailable. The end of the caller's context does not stop it.
func (l *limit) chargeStore(ctx context.Context, key string, cost int64) (weir.Decision, error) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), patience)
	defer cancel()
	do := func(c weir.Charge) (weir.Receipt, weir.Decision, error) {
		c.Name, c.Key, c.Limit, c.Plan = l.state, key, l.Limit.Limit, l.plan
		batch, out := []weir.Charge{c}, make([]weir.Decision, 1)
		err := l.store.Do(ctx, batch, out)
		return batch[0].Receipt, out[0], err
	}
	if cost == 0 {
		_, d, err := do(weir.Charge{Op: weir.OpPeek})
		return d, err
	}
	receipt, d, err := do(weir.Charge{Op: weir.OpReserve, Cost: 1, Within: -1, Estimate: true})
	switch {
	case err != nil:
		l.counts.lost.Add(1)
		return d, err
	case d.Allowed && receipt == "": // the one unit cannot be replaced any more
		if cost > 1 {
			l.counts.lost.Add(1)
		}
		return d, nil
	}
	_, left, err := do(weir.Charge{Op: weir.OpSettle, Cost: cost, Receipt: receipt})
	if err != nil {
		l.counts.lost.Add(1)
		return weir.Decision{Allowed: true, Limit: d.Limit, ResetAfter: d.ResetAfter, Source: d.Source}, nil
	}
	return left, nil
}
