package weirredis

import (
	"context"
	"fmt"

	"github.com/weirflow/weir"
	"github.com/weirflow/weir/internal/rules"
)

// Enter takes a place of c.Limit, a weir.Concurrency with a MaxHold, for c.Key, under the name
// c.Name. With a Within other than 0 it waits in the queue until there is a place or the context
// ends; otherwise it tries once. A refusal is a decision; done is nil then. An admitted caller
// calls done once the work has ended, and the store extends the hold until then. It is Concurrency
// for callers that have a limit with each request, as a failover.Store has. The limit of a name is
// the one of the latest call.
func (s *Store) Enter(ctx context.Context, c weir.Charge) (done func(weir.Outcome), d weir.Decision, err error) {
	l, ok := rules.PlacesOf(c.Limit)
	if !ok {
		return nil, d, fmt.Errorf("%w: limit %q: only a weir.Concurrency is entered", ErrCharge, c.Name)
	}
	of, err := s.concurrency(c.Name, weir.Concurrency(l))
	if err != nil {
		return nil, d, fmt.Errorf("%w: limit %q: %w", ErrCharge, c.Name, err)
	}
	h, d, err := of.enter(ctx, c.Key, c.Cost, c.Within != 0)
	if err != nil || !d.Allowed {
		return nil, d, err
	}
	return h.Done, d, nil
}

// concurrency returns the Concurrency of a name, with that limit.
func (s *Store) concurrency(name string, l weir.Concurrency) (*Concurrency, error) {
	found, ok := s.entered.Load(name)
	if !ok {
		made, err := NewConcurrency(s, l, name)
		if err != nil {
			return nil, err
		}
		found, _ = s.entered.LoadOrStore(name, made)
	}
	c := found.(*Concurrency)
	if c.Limit() == l {
		return c, nil
	}
	return c, c.SetLimit(l)
}
