package weirhttp

import (
	"context"
	"errors"
	"slices"

	"github.com/weirflow/weir"
	"github.com/weirflow/weir/keyed"
)

// A Limiter decides about requests by their keys. A *weir.Shared is one; Keyed, One and InFlight
// make one of limits in this process.
//
// A refusal is a Decision. An error means that nothing was decided: see Fallback. If the Limiter
// has the methods Limit() weir.Limit and Wait(ctx, key, cost) error, as *weir.Shared does, header
// fields name the window, and requests can wait.
type Limiter interface {
	Take(ctx context.Context, key string, cost int64) (weir.Decision, error)
}

// described is a Limiter that knows its limit.
type described interface{ Limit() weir.Limit }

// waiter is a Limiter whose callers can wait for their turn. A refusal is an error in which
// errors.Is finds weir.ErrLimited.
type waiter interface {
	Wait(ctx context.Context, key string, cost int64) error
}

// One returns a Limiter for a limit that all requests share, whatever their keys are. Use it with
// Global. More limiters are charged together with the first or not at all, each with the cost of the
// request.
func One(l *weir.Limiter, more ...*weir.Limiter) Limiter {
	all := append([]*weir.Limiter{l}, more...)
	if slices.Contains(all, nil) {
		panic("weirhttp: One of a limiter that is nil")
	}
	if len(more) == 0 {
		return one{l}
	}
	return oneGroup{weir.NewGroup(all...), len(all)}
}

// one is a Limiter without keys.
type one struct{ l *weir.Limiter }

func (o one) Take(_ context.Context, _ string, cost int64) (weir.Decision, error) {
	return o.l.Take(cost), nil
}

func (o one) Wait(ctx context.Context, _ string, cost int64) error { return o.l.Wait(ctx, cost) }

func (o one) Limit() weir.Limit { return o.l.Limit() }

// oneGroup is several limits without keys.
type oneGroup struct {
	g *weir.Group
	n int
}

func (o oneGroup) Take(_ context.Context, _ string, cost int64) (weir.Decision, error) {
	return o.g.Take(o.costs(cost)...), nil
}

func (o oneGroup) Wait(ctx context.Context, _ string, cost int64) error {
	return o.g.Wait(ctx, o.costs(cost)...)
}

func (o oneGroup) costs(cost int64) []int64 {
	costs := make([]int64, o.n)
	for i := range costs {
		costs[i] = cost
	}
	return costs
}

// Keyed returns a Limiter for a limit per key. More limiters are charged together with the first or
// not at all, each with the request's key and cost; each needs a name of its own. Requests cannot
// wait for several.
func Keyed(l *keyed.Limiter[string], more ...*keyed.Limiter[string]) Limiter {
	all := append([]*keyed.Limiter[string]{l}, more...)
	if slices.Contains(all, nil) {
		panic("weirhttp: Keyed of a limiter that is nil")
	}
	if len(more) == 0 {
		return perKey{l}
	}
	g, err := keyed.NewGroup(all...)
	if err != nil {
		panic("weirhttp: Keyed: " + err.Error())
	}
	return perKeyGroup{g, len(all)}
}

// perKey is a limit per key.
type perKey struct{ l *keyed.Limiter[string] }

func (p perKey) Take(_ context.Context, key string, cost int64) (weir.Decision, error) {
	return p.l.Take(key, cost), nil
}

func (p perKey) Wait(ctx context.Context, key string, cost int64) error {
	return p.l.Wait(ctx, key, cost)
}

func (p perKey) Limit() weir.Limit { return p.l.Limit() }

// perKeyGroup is several limits per key.
type perKeyGroup struct {
	g *keyed.Group[string]
	n int
}

func (p perKeyGroup) Take(_ context.Context, key string, cost int64) (weir.Decision, error) {
	charges := make([]keyed.Charge[string], p.n)
	for i := range charges {
		charges[i].Key, charges[i].Cost = key, cost
	}
	return p.g.Take(charges)
}

// InFlight returns a Limiter that bounds how many requests of a key are in flight. Limit holds the
// request's place until its handler has returned or panicked. With Global it bounds all requests.
//
// Its own Take takes no place, as nobody could give it back: it returns what a request would get.
func InFlight(places *keyed.Concurrency[string]) Limiter {
	if places == nil {
		panic("weirhttp: InFlight of a keyed.Concurrency that is nil")
	}
	return inFlight{places}
}

// inFlight is a Concurrency per key.
type inFlight struct{ places *keyed.Concurrency[string] }

func (f inFlight) Take(_ context.Context, key string, cost int64) (weir.Decision, error) {
	return f.places.Peek(key, cost), nil
}

func (f inFlight) Limit() weir.Limit { return f.places.Limit() }

// enter takes a place. If none is free, the request waits in the queue of the limit until the
// context of queue ends; queue is nil for requests that do not wait.
func (f inFlight) enter(key string, cost int64, queue func(weir.Decision) (context.Context, error)) (keyed.Hold[string], weir.Decision, error) {
	hold, d := f.places.TryEnterCost(key, cost)
	if d.Allowed || queue == nil {
		return hold, d, nil
	}
	ctx, err := queue(d)
	if err == nil {
		hold, err = f.places.EnterCost(ctx, key, cost)
	}
	var limited *weir.LimitedError
	switch {
	case err == nil:
		d.Allowed, d.RetryAfter = true, 0
	case errors.As(err, &limited):
		return hold, limited.Decision, nil
	}
	return hold, d, err
}

// local marks the limiters of this process, which never make a request wait for a decision.

func (one) local()         {}
func (oneGroup) local()    {}
func (perKey) local()      {}
func (perKeyGroup) local() {}
func (inFlight) local()    {}
