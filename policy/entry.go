package policy

import (
	"context"
	"fmt"
	"math"
	"slices"

	"github.com/weirflow/weir"
	"github.com/weirflow/weir/keyed"
)

// An entry is the asks of a call for one key of a limit: one charge, of the sum of their costs.
type entry struct {
	*namedAsk       // the first of them, with the sum
	asks      []int // their positions in the call
}

// newAnswer returns the answer about asks before any limit is evaluated.
func newAnswer(all []*namedAsk) *Answer {
	a := &Answer{Allowed: true, Decision: weir.Decision{Allowed: true}, Each: make([]Answered, len(all))}
	for i, n := range all {
		a.Each[i] = n.answered()
	}
	return a
}

// combine makes the entries of the asks that a call charges.
func (a *Answer) combine(all []*namedAsk) {
	a.entries = a.one.entries[:0] // one ask needs no more
	for i, n := range all {
		at := slices.IndexFunc(a.entries, func(e entry) bool { return e.sameKey(n) })
		if at >= 0 {
			e := &a.entries[at]
			e.cost, e.asks = sum(e.cost, n.cost), append(e.asks, i)
			continue
		}
		e := entry{namedAsk: n}
		if i == 0 {
			e.asks = a.one.asks[:1]
		} else {
			e.asks = []int{i}
		}
		a.entries = append(a.entries, e)
	}
}

// Size returns about how many bytes a reservation occupies until it is settled, in the limits too.
func (a *Answer) Size() int64 {
	const answer, limit = 256, 2048 // without keys; measured with 1 and with 256 limits
	size := int64(answer)
	for i := range a.Each {
		size += limit
		for _, part := range a.Each[i].Key {
			size += 2 * int64(len(part)) // in the answer and in the limit
		}
	}
	return size
}

// sameKey reports whether two asks are for the same key of a limit.
func (n *namedAsk) sameKey(other *namedAsk) bool {
	return n.limit == other.limit && slices.Equal(n.parts, other.parts)
}

// checkPlans finds asks for one key by the parameters of different plans: the key has one state.
func checkPlans(all []*namedAsk) *AskError {
	for i, n := range all {
		if len(n.limit.Plans) == 0 {
			continue
		}
		for _, other := range all[:i] {
			if n.sameKey(other) && n.limit.of(n.plan) != n.limit.of(other.plan) {
				return &AskError{Index: i, Field: "plan", Problem: fmt.Sprintf("the key has the plan %q in another entry for %q", other.plan, n.limit.Name),
					Fix: fmt.Sprintf("write plan %q in both, or send two calls", other.plan)}
			}
		}
	}
	return nil
}

// sum adds two costs; a sum that is too large is the largest cost.
func sum(a, b int64) int64 { return a + min(b, math.MaxInt64-a) }

// sum adds the costs of an entry's asks.
func (a *Answer) sum(entry int, costs []int64) (all int64) {
	for _, at := range a.entries[entry].asks {
		all = sum(all, max(costs[at], 0))
	}
	return all
}

// retryOfAll raises the RetryAfter of a refused call to that of all its limits, not only of those that
// were evaluated. Limits in stores are peeked at if a limit in a store refused.
func (e *Engine) retryOfAll(ctx context.Context, a *Answer) {
	if a.Decision.RetryAfter == weir.Never {
		return
	}
	peekStores := slices.ContainsFunc(a.entries, func(n entry) bool { return n.limit.Name == a.Limit && n.limit.store != nil })
	var stored []*peeking
	for i := range a.entries {
		n := *a.entries[i].namedAsk
		before := a.chargedBefore(i)
		if n.limit.Shadow || a.Each[a.entries[i].asks[0]].Evaluated && before == 0 {
			continue
		}
		n.cost = sum(n.cost, before)
		p := e.newPeeking(&n)
		switch {
		case p.l.store == nil || p.known:
			p.inMemory(e)
			a.wait(p)
		case peekStores:
			stored = append(stored, p)
		}
	}
	for len(stored) > 0 {
		of := stored[0].l.store
		var batch []weir.Charge
		var some, others []*peeking
		for _, p := range stored {
			if p.l.Store != stored[0].l.Store {
				others = append(others, p)
				continue
			}
			some, batch = append(some, p), append(batch, p.charge)
		}
		out := make([]weir.Decision, len(batch))
		if err := of.Do(ctx, batch, out); err == nil { // else on_failure will decide, which nobody knows yet
			for k, p := range some {
				p.d = out[k]
				a.wait(p)
			}
		}
		stored = others
	}
}

// wait raises the RetryAfter of a refused call to that of one of its limits.
func (a *Answer) wait(p *peeking) {
	if !p.d.Allowed && longer(p.d.RetryAfter, a.Decision.RetryAfter) {
		a.Decision.RetryAfter = p.d.RetryAfter
	}
}

// chargedBefore returns what the call charges to the state of an entry before it: the costs of other
// limits of its zone for the same key. It makes no difference to a cost of 0.
func (a *Answer) chargedBefore(i int) (cost int64) {
	n := &a.entries[i]
	if n.cost == 0 {
		return 0
	}
	for j := range a.entries[:i] {
		if other := &a.entries[j]; n.limit.zone != nil && other.limit.zone == n.limit.zone && !other.limit.Shadow && slices.Equal(n.parts, other.parts) {
			cost = sum(cost, other.cost)
		}
	}
	return cost
}

// A peeking is a look at one limit, which charges nothing.
type peeking struct {
	l      *limit // as it is for the plan
	key    string
	cost   int64
	charge weir.Charge // of a limit in a store
	known  bool        // an exemption or a ban has decided
	exempt bool
	d      weir.Decision
}

func (e *Engine) newPeeking(n *namedAsk) *peeking {
	r := &request{named: &namedAsks{all: []*namedAsk{n}, peek: true}}
	p := &peeking{l: n.limit.of(n.plan)}
	var buf [maxKey]byte
	key, cost, q := p.l.keyAndCost(buf[:0], r)
	p.key, p.cost = string(key), cost
	switch q {
	case skipped, exempt:
		p.known, p.exempt, p.d = true, true, weir.Decision{Allowed: true}
	case banned:
		p.known, p.d = true, weir.Decision{RetryAfter: r.banned, ResetAfter: r.banned, By: p.l.banBy}
	case charged, missing, invalidCost:
		if p.l.store != nil {
			p.charge = weir.Charge{Name: p.l.state, Key: p.l.keyInStore(key, r), Limit: p.l.Limit.Limit, Plan: p.l.plan, Cost: cost, Op: weir.OpPeek}
		}
	}
	return p
}

// inMemory decides about a limit in memory, unless the decision is known.
func (p *peeking) inMemory(e *Engine) {
	switch {
	case p.known:
	case p.l.zone != nil:
		charges := []keyed.Charge[string]{{Key: p.key, Cost: p.cost, Spare: p.l.spare}}
		g := e.alone[p.l.Name].group
		if p.l.Shadow {
			g = e.alone[p.l.Name].dryGroup
		}
		p.d, _ = g.Peek(charges) // an error can only mean a wrong number of charges
	default:
		p.d = p.l.table.PeekBy(p.l.parameters, p.key, p.cost)
	}
}
