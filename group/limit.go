package group

import (
	"context"
	"reflect"
	"time"

	"github.com/weirflow/weir"
	"github.com/weirflow/weir/adaptive"
	"github.com/weirflow/weir/internal/pause"
	"github.com/weirflow/weir/keyed"
)

// stage is when a limit is charged: the lower ones first.
type stage int

const (
	inMemory stage = iota
	ofPlaces
	ofStoredPlaces
	inStores
	ofAdaptive
)

// A limit is what a Charge is made of, without its cost.
type limit interface {
	stage() stage

	// same reports whether another limit has the same state.
	same(other limit) bool

	// take charges the cost if it may go now.
	take(ctx context.Context, cost int64) (held, weir.Decision, error)

	// wait charges the cost when its turn comes, in the limit's own queue. refused is the decision of
	// the take before it. A limit in a store only waits: it returns nothing that it holds.
	wait(ctx context.Context, cost int64, refused weir.Decision) (held, error)
}

// peeker is a limit that can be evaluated without a store, and without charging it.
type peeker interface {
	peek(cost int64) weir.Decision
}

// held is what a limit has charged. The zero value holds nothing.
type held struct {
	settle func(actual int64)   // replaces the cost; only the first call counts; nil for places
	done   func(o weir.Outcome) // leaves a place; nil for what is no place
}

// cancel gives all of it back.
func (h held) cancel() {
	if h.settle != nil {
		h.settle(0)
	}
	if h.done != nil {
		h.done(weir.Ignore)
	}
}

// within is how long a context leaves to wait; below 0 for no bound.
func within(ctx context.Context) time.Duration {
	if end, ok := ctx.Deadline(); ok {
		return max(time.Until(end), 0)
	}
	return -1
}

// refusal is the error of a wait that is refused. It is about the context's deadline if a longer
// wait would have helped.
func refusal(d weir.Decision) error {
	return &weir.LimitedError{Decision: d, Deadline: d.RetryAfter != weir.Never}
}

// one is a limit without keys.
type one struct{ l *weir.Limiter }

func (o one) stage() stage                  { return inMemory }
func (o one) same(other limit) bool         { return other == o }
func (o one) peek(cost int64) weir.Decision { return o.l.Peek(cost) }

func (o one) take(_ context.Context, cost int64) (held, weir.Decision, error) {
	r, ok := o.l.Reserve(cost, 0)
	if !ok {
		return held{}, r.Decision(), nil
	}
	return held{settle: r.Settle}, r.Decision(), nil
}

func (o one) wait(ctx context.Context, cost int64, _ weir.Decision) (held, error) {
	place, d := o.l.JoinKept(cost, within(ctx))
	if !d.Allowed {
		return held{}, refusal(d)
	}
	if err := turn(ctx, place); err != nil {
		place.Cancel()
		return held{}, err
	}
	return held{settle: place.Settle}, nil
}

// turn waits until it is the turn of a place. If that and the end of the context come together, it
// is the turn.
func turn(ctx context.Context, place *weir.Place) error {
	if err := pause.Until(ctx, place.Ready()); err != nil {
		select {
		case <-place.Ready():
		default:
			return err
		}
	}
	return place.Err()
}

// perKey is a key of a limit per key.
type perKey[K comparable] struct {
	l   *keyed.Limiter[K]
	key K
}

func (p perKey[K]) stage() stage                  { return inMemory }
func (p perKey[K]) peek(cost int64) weir.Decision { return p.l.Peek(p.key, cost) }

func (p perKey[K]) same(other limit) bool {
	o, ok := other.(perKey[K])
	if !ok || o.l != p.l {
		return false
	}
	_, valid := p.l.Fingerprint(p.key) // keys of an interface type may not be comparable
	return valid && o.key == p.key
}

func (p perKey[K]) take(_ context.Context, cost int64) (held, weir.Decision, error) {
	r, ok := p.l.Reserve(p.key, cost, 0)
	if !ok {
		return held{}, r.Decision(), nil
	}
	return held{settle: r.Settle}, r.Decision(), nil
}

func (p perKey[K]) wait(ctx context.Context, cost int64, refused weir.Decision) (held, error) {
	g, err := keyed.NewGroup(p.l)
	if err != nil {
		return held{}, err
	}
	charge := []keyed.Charge[K]{{Key: p.key, Cost: cost, Wait: true, Keep: true}}
	c := &charge[0]
	d, err := g.Take(charge)
	switch w := within(ctx); {
	case err != nil:
		return held{}, err
	case !d.Allowed:
		return held{}, refusal(d)
	case c.Place == nil:
	case w >= 0 && c.Place.Delay() > w:
		_ = c.Cancel() // it was kept
		refused.RetryAfter = c.Place.Delay()
		return held{}, refusal(refused)
	default:
		if err := turn(ctx, c.Place); err != nil {
			_ = c.Cancel()
			return held{}, err
		}
	}
	return held{settle: func(actual int64) { _ = c.Settle(actual) }}, nil
}

// places is a Concurrency without keys.
type places struct{ c *weir.ConcurrencyLimiter }

func (p places) stage() stage                  { return ofPlaces }
func (p places) same(other limit) bool         { return other == p }
func (p places) peek(cost int64) weir.Decision { return p.c.Peek(cost) }

func (p places) take(_ context.Context, cost int64) (held, weir.Decision, error) {
	hold, d := p.c.TryEnterCost(cost)
	return held{done: hold.Done}, d, nil
}

func (p places) wait(ctx context.Context, cost int64, _ weir.Decision) (held, error) {
	hold, err := p.c.EnterCost(ctx, cost)
	return held{done: hold.Done}, err
}

// keyedPlaces is a key of a Concurrency per key.
type keyedPlaces[K comparable] struct {
	c   *keyed.Concurrency[K]
	key K
}

func (p keyedPlaces[K]) stage() stage                  { return ofPlaces }
func (p keyedPlaces[K]) peek(cost int64) weir.Decision { return p.c.Peek(p.key, cost) }

func (p keyedPlaces[K]) same(other limit) bool {
	o, ok := other.(keyedPlaces[K])
	return ok && o.c == p.c && reflect.ValueOf(&p.key).Elem().Comparable() && reflect.ValueOf(&o.key).Elem().Comparable() && o.key == p.key
}

func (p keyedPlaces[K]) take(_ context.Context, cost int64) (held, weir.Decision, error) {
	hold, d := p.c.TryEnterCost(p.key, cost)
	return held{done: hold.Done}, d, nil
}

func (p keyedPlaces[K]) wait(ctx context.Context, cost int64, _ weir.Decision) (held, error) {
	hold, err := p.c.EnterCost(ctx, p.key, cost)
	return held{done: hold.Done}, err
}

// adaptivePlace is a place at an adaptive limit.
type adaptivePlace struct {
	l  *adaptive.Limiter
	as adaptive.Request
}

func (p adaptivePlace) stage() stage             { return ofAdaptive }
func (p adaptivePlace) same(limit) bool          { return false } // each charge is a request of its own
func (p adaptivePlace) peek(int64) weir.Decision { return p.decision(p.l.HasPlace(p.as)) }

// decision says nothing of how much remains: the limit moves.
func (p adaptivePlace) decision(allowed bool) weir.Decision {
	d := weir.Decision{Allowed: allowed, By: p.l.Name()}
	if !allowed {
		d.RetryAfter, d.ResetAfter = weir.Never, weir.Never // nobody knows when a place is left
	}
	return d
}

func (p adaptivePlace) take(context.Context, int64) (held, weir.Decision, error) {
	enter := p.l.TryEnterAs
	if p.l.Queues() {
		enter = p.l.Attempt // it counts as refused when it has waited in vain
	}
	h, ok := enter(p.as)
	return held{done: h.Done}, p.decision(ok), nil
}

func (p adaptivePlace) wait(ctx context.Context, _ int64, refused weir.Decision) (held, error) {
	if !p.l.Queues() {
		return held{}, &weir.LimitedError{Decision: refused}
	}
	h, err := p.l.EnterAs(ctx, p.as)
	return held{done: h.Done}, err
}
