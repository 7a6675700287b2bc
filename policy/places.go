package policy

import (
	"context"
	"errors"
	"slices"

	"github.com/weirflow/weir"
	"github.com/weirflow/weir/keyed"
)

// concurrencyPlace is a limit of concurrency of a request's route, and the place that the request has taken in it.
type concurrencyPlace struct {
	l    *limit
	key  string
	cost int64
	hold keyed.Hold[string]

	leave func(weir.Outcome) // of a place in a store; nil for none
	shade *shadowPlace       // of a shadow whose places are in a store; nil for none
}

// compilePlaces readies a limit of concurrency.
func (e *Engine) compilePlaces(c *limit, of weir.Concurrency, old *limit, changes *[]func() error) (err error) {
	if store := e.opts.Stores[c.Limit.Store]; store != nil && c.Limit.Store != "" {
		return e.compileHolder(c, of, store)
	}
	if c.Limit.Store != "" { // without the store, as in replay: there MaxHold ends no request's place, but that of a process that crashed
		of.MaxHold = 0
		c.Limit.Limit = of
	}
	if old != nil && old.places != nil && old.keeps(c.Limit) {
		c.places = old.places
		*changes = append(*changes, func() error { return c.places.SetLimit(of) })
		return nil
	}
	c.places, err = e.newPlaces(c.Limit, of)
	return err
}

// newPlaces returns the places of a limit of concurrency.
func (e *Engine) newPlaces(l Limit, of weir.Concurrency) (*keyed.Concurrency[string], error) {
	maxKeys := l.MaxKeys
	if maxKeys == 0 {
		maxKeys = e.opts.MaxKeys
	}
	return keyed.NewConcurrency[string](of, keyed.Options{MaxKeys: maxKeys, Name: l.Name, Clock: e.opts.Clock, Timers: e.opts.Timers})
}

// inOrder sorts limits as they stand in the policy: who waits for a place while holding others does so in one order for all routes.
func (e *Engine) inOrder(all []*limit) {
	slices.SortFunc(all, func(a, b *limit) int { return slices.Index(e.limits, a) - slices.Index(e.limits, b) })
}

// bannedFrom refuses a request that a limit of concurrency has banned, before any other is charged.
func (v *Verdict) bannedFrom(places []*limit, r *request) bool {
	for _, l := range places {
		if l.Shadow || l.except.now() == nil {
			continue
		}
		var buf [maxKey]byte
		if key, _, q := l.question(buf[:0], r); q == banned {
			v.settle(l, key, q, r)
			return true
		}
	}
	return false
}

// openDoors works out which places the request has to take. Where a key that is missing, or a cost that is none, settles the matter, it is
// refused and all is given back.
func (v *Verdict) openDoors(ctx context.Context, r *request, places []*limit) {
	var buf [maxKey]byte
	for _, l := range places {
		key, cost, q := l.question(buf[:0], r)
		switch {
		case q == asks:
			v.more().doors = append(v.more().doors, concurrencyPlace{l: l, key: l.placed(key, r), cost: cost})
		case q == skip || q == exempt || l.Shadow:
			l.passes(q)
		default:
			v.giveBack(ctx)
			v.more().doors = nil
			v.settle(l, key, q, r)
			return
		}
	}
}

// Enter takes a place at each limit of concurrency of the route, or none of them, for a request that may go. Done leaves them. It waits
// where such a limit has a queue. Where a limit refuses, the outcome becomes Deny, what the other limits were charged is given back as far as
// that never admits too much, and the error is a *weir.LimitedError; when the context ends first, it is the context's.
func (v *Verdict) Enter(ctx context.Context) error { return v.EnterQueued(ctx, nil) }

// EnterQueued is Enter for callers that bound how many requests wait: queued is called before a request waits for a place, and may be called again for the next
// one. It returns the context for the wait, or an error, which has to be a *weir.LimitedError: then the request is refused as by the limit.
func (v *Verdict) EnterQueued(ctx context.Context, queued func() (context.Context, error)) error {
	if v.rare == nil {
		return nil
	}
	dryRefused := false
	for i := range v.rare.doors {
		d := &v.rare.doors[i]
		if d.dry() && dryRefused {
			continue
		}
		if err := d.enter(ctx, queued); err != nil && !d.l.Shadow {
			v.refusePlace(ctx, d, err)
			return err
		} else if err != nil {
			v.note(d.l, weir.Decision{}, d.cost, 0)
			dryRefused = dryRefused || d.dry()
		}
	}
	if dryRefused { // enforced, they would have taken no place
		for i := range v.rare.doors {
			if d := &v.rare.doors[i]; d.dry() {
				d.hold.Done(weir.Ignore)
			}
		}
	}
	return nil
}

// dry reports whether it is a shadow's whose places count into a zone.
func (d *concurrencyPlace) dry() bool { return d.l.Shadow && d.l.zone != nil }

// enter takes a place, and waits for it where there is a queue. Nobody waits for a shadow's.
func (d *concurrencyPlace) enter(ctx context.Context, queued func() (context.Context, error)) (err error) {
	if d.l.holder != nil {
		return d.enterStore(ctx, queued)
	}
	queue := d.l.Limit.Limit.(weir.Concurrency).Queue > 0 && !d.l.Shadow
	if !queue || queued != nil {
		var made weir.Decision
		if d.hold, made = d.l.places.TryEnterSpare(d.key, d.cost, d.l.spare); !made.Allowed {
			err = &weir.LimitedError{Decision: made}
		}
	}
	if queue && queued != nil && err != nil {
		ctx, err = queued()
	}
	if queue && err == nil && d.hold == (keyed.Hold[string]{}) {
		d.hold, err = d.l.places.EnterCost(ctx, d.key, d.cost)
	}
	switch {
	case err == nil:
		d.l.counts.allowed.Add(1)
	case errors.Is(err, weir.ErrLimited):
		d.l.counts.limited.Add(1)
	}
	return err
}

// refusePlace ends a request that found no place, or no longer waits for one.
func (v *Verdict) refusePlace(ctx context.Context, d *concurrencyPlace, err error) {
	v.Done(weir.Ignore)
	v.giveBack(ctx)
	var limited *weir.LimitedError
	if !errors.As(err, &limited) {
		return
	}
	limited.Decision.By = d.l.Name
	v.deny(d.l, d.key, limited.Decision)
	v.note(d.l, limited.Decision, d.cost, 0)
}

// Done leaves the places that Enter took, once, with how the work ended. It is called when the request has ended, however it did.
func (v *Verdict) Done(o weir.Outcome) {
	if v.rare == nil {
		return
	}
	for i := range v.rare.doors {
		d := &v.rare.doors[i]
		d.hold.Done(o)
		if d.leave != nil {
			d.leave(o)
		}
		d.shade.done(o)
	}
}
