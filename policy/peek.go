package policy

import (
	"context"

	"github.com/weirflow/weir"
)

// Peek returns what Take would decide about each key of a limit alone, and charges and counts nothing.
// The answer is allowed if all of them are. A key with a state decides by the parameters of its last
// charge.
func (e *Engine) Peek(ctx context.Context, asks []Ask) (*Answer, error) {
	e, in := e.enter()
	defer in.leave()
	all, err := e.check(asks)
	if err != nil {
		return nil, err
	}
	a := newAnswer(all)
	a.combine(all)
	for _, n := range a.entries {
		first := &a.Each[n.asks[0]]
		if err := e.peek(ctx, a, first, n.namedAsk); err != nil {
			return nil, err
		}
		for _, at := range n.asks[1:] {
			cost := a.Each[at].Cost
			a.Each[at] = *first
			a.Each[at].Cost = cost
		}
		d := first.Decision
		switch {
		case first.Shadow, first.Exempt:
		case !d.Allowed && (a.Allowed || longer(d.RetryAfter, a.Decision.RetryAfter)):
			a.Allowed, a.Limit, a.Decision = false, n.limit.Name, d
		case a.Allowed && d.Limit > 0 && (a.Decision.Limit == 0 || d.Remaining < a.Decision.Remaining):
			a.Decision = d
		}
	}
	a.withoutEnforced()
	return a, nil
}

func (e *Engine) peek(ctx context.Context, a *Answer, each *Answered, n *namedAsk) error {
	p := e.newPeeking(n)
	switch {
	case p.exempt:
		each.Exempt, each.Decision = true, n.unused()
		return nil
	case p.known:
		each.Evaluated, each.Decision = true, p.d
		return nil
	case p.l.store != nil:
		batch, out := []weir.Charge{p.charge}, make([]weir.Decision, 1)
		if err := p.l.store.Do(ctx, batch, out); err != nil {
			if ctx.Err() != nil {
				return err
			}
			a.Err, out[0] = err, p.l.withoutStore(err)
		}
		p.d = out[0]
	default:
		p.inMemory(e)
	}
	each.Evaluated, each.Decision = true, p.d
	each.Decision.By = p.l.Name
	each.Window = p.l.except.window(p.key, p.l.window)
	return nil
}
