package policy

import (
	"context"
	"errors"
	"slices"

	"github.com/weirflow/weir"
	"github.com/weirflow/weir/internal/rules"
	"github.com/weirflow/weir/keyed"
)

// concurrencyPlace is a Concurrency of a request's route, with the place that the request has taken
// in it.
type concurrencyPlace struct {
	l    *limit
	key  string
	cost int64
	hold keyed.Hold[string]

	leave func(weir.Outcome) // leaves a place in a store; otherwise nil
	shade *shadowPlace       // the place of a shadow limit in a store; otherwise nil
}

// concurrencyOf returns the parameters of a Concurrency. It reports false for any other limit.
func concurrencyOf(l weir.Limit) (weir.Concurrency, bool) {
	of, ok := rules.PlacesOf(l)
	return weir.Concurrency(of), ok
}

// compilePlaces compiles a Concurrency.
func (e *Engine) compilePlaces(c *limit, of weir.Concurrency, old *limit, changes *[]func() error) (err error) {
	if store := e.opts.Stores[c.Limit.Store]; store != nil && c.Limit.Store != "" {
		return e.compileHolder(c, of, store)
	}
	// replay runs without the store. With a store, MaxHold frees only the places of a crashed
	// process, so it must not end a request's place here.
	if c.Limit.Store != "" {
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

// newPlaces returns the places of a Concurrency.
func (e *Engine) newPlaces(l Limit, of weir.Concurrency) (*keyed.Concurrency[string], error) {
	maxKeys := l.MaxKeys
	if maxKeys == 0 {
		maxKeys = e.opts.MaxKeys
	}
	return keyed.NewConcurrency[string](of, keyed.Options{MaxKeys: maxKeys, Name: l.Name, Clock: e.opts.Clock, Timers: e.opts.Timers})
}

// inOrder sorts limits as they stand in the policy. Requests wait for a place while they hold
// others. One order for all routes prevents deadlocks.
func (e *Engine) inOrder(all []*limit) {
	slices.SortFunc(all, func(a, b *limit) int { return slices.Index(e.limits, a) - slices.Index(e.limits, b) })
}

// refuseBanned refuses a request that is banned at a Concurrency, before any limit is charged.
func (v *Verdict) refuseBanned(places []*limit, r *request) bool {
	for _, l := range places {
		if l.Shadow || l.except.now() == nil {
			continue
		}
		var buf [maxKey]byte
		if key, _, q := l.keyAndCost(buf[:0], r); q == banned {
			v.settle(l, key, q, r)
			return true
		}
	}
	return false
}

// findPlaces determines which places the request must take. If a missing key or an invalid cost
// already decides, it refuses the request and gives back all charges.
func (v *Verdict) findPlaces(ctx context.Context, r *request, places []*limit) {
	var buf [maxKey]byte
	for _, l := range places {
		key, cost, q := l.keyAndCost(buf[:0], r)
		switch {
		case q == charged:
			v.extra().places = append(v.extra().places, concurrencyPlace{l: l, key: l.keyInStore(key, r), cost: cost})
		case q == skipped || q == exempt || l.Shadow:
			l.countExempt(q)
		default:
			v.giveBack(ctx)
			v.extra().places = nil
			v.settle(l, key, q, r)
			return
		}
	}
}

// Enter takes a place at each Concurrency of the route for a request that may go on, or at none of
// them. Done leaves them. If a limit has a queue, Enter waits there.
//
// If a limit refuses, the outcome becomes Deny, and the error is a *weir.LimitedError. The charges
// of the other limits are given back as far as that cannot admit too much. If the context ends
// first, the error is that of the context.
func (v *Verdict) Enter(ctx context.Context) error { return v.EnterQueued(ctx, nil) }

// EnterQueued is Enter for callers that limit how many requests wait. It calls queued before the
// request waits for a place, also of an adaptive limit, possibly several times. queued returns the context for the wait, which
// Queue.Within bounds, or a *weir.LimitedError, which refuses the request as the limit would.
func (v *Verdict) EnterQueued(ctx context.Context, queued func() (context.Context, error)) error {
	return v.EnterUpstream(ctx, queued, nil)
}

// EnterUpstream is EnterQueued for callers that send requests to upstreams. When all limits have
// admitted the request, upstream is called, if the route's upstream has an adaptive limit. Done gives its place
// back.
func (v *Verdict) EnterUpstream(ctx context.Context, queued func() (context.Context, error), upstream EnterUpstream) error {
	if err := v.EnterPlaces(ctx, queued); err != nil {
		return err
	}
	return v.EnterAdaptive(ctx, queued, upstream)
}

// EnterPlaces is the first half of EnterUpstream: it takes places at each Concurrency. EnterAdaptive or SkipAdaptive
// follows. In between, the caller may wait for the client.
func (v *Verdict) EnterPlaces(ctx context.Context, queued func() (context.Context, error)) error {
	if v.rare == nil {
		return nil
	}
	dryRefused := false
	for i := range v.rare.places {
		d := &v.rare.places[i]
		if d.dryRun() && dryRefused {
			continue
		}
		if err := d.enter(ctx, queued); err != nil && !d.l.Shadow {
			v.refusePlace(ctx, d, err)
			return err
		} else if err != nil {
			v.note(d.l, weir.Decision{}, d.cost, 0)
			d.observes(v, weir.Decision{By: d.l.Name})
			dryRefused = dryRefused || d.dryRun()
		}
	}
	if dryRefused { // if these limits were enforced, the request would have taken no place
		for i := range v.rare.places {
			if d := &v.rare.places[i]; d.dryRun() {
				d.hold.Done(weir.Ignore)
			}
		}
	}
	return nil
}

// EnterAdaptive is the second half of EnterUpstream: it takes places at adaptive limits.
func (v *Verdict) EnterAdaptive(ctx context.Context, queued func() (context.Context, error), upstream EnterUpstream) error {
	if v.rare == nil {
		return nil
	}
	if err := v.admit(ctx, queued, upstream); err != nil {
		return err
	}
	v.rare.entered = true
	v.conclude()
	return nil
}

// SkipAdaptive ends a request that has ended before EnterAdaptive. Its charges stay. After EnterAdaptive it does
// nothing.
func (v *Verdict) SkipAdaptive() {
	if v.rare != nil && !v.rare.entered && !v.overloaded {
		v.rare.entered = true
		v.conclude()
	}
}

// dryRun reports whether the place belongs to a shadow limit and counts in a zone.
func (d *concurrencyPlace) dryRun() bool { return d.l.Shadow && d.l.zone != nil }

// enter takes a place, and waits if the limit has a queue. Requests never wait for a shadow limit.
func (d *concurrencyPlace) enter(ctx context.Context, queued func() (context.Context, error)) (err error) {
	if d.l.holder != nil {
		return d.enterStore(ctx, queued)
	}
	queue := d.l.enterWait && !d.l.Shadow
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
		defer d.l.observesWait()()
		d.hold, err = d.l.places.EnterCost(ctx, d.key, d.cost)
		err = waited(ctx, d.l.Name, err)
	}
	switch {
	case err == nil:
		d.l.counts.allowed.Add(1)
	case errors.Is(err, weir.ErrLimited):
		d.l.counts.limited.Add(1)
	}
	return err
}

// refusePlace ends a request that got no place, or stopped waiting for one.
func (v *Verdict) refusePlace(ctx context.Context, d *concurrencyPlace, err error) {
	v.GiveUp(ctx)
	var limited *weir.LimitedError
	if !errors.As(err, &limited) {
		return
	}
	limited.Decision.By = d.l.Name
	v.deny(d.l, d.key, limited.Decision)
	d.observes(v, limited.Decision)
	v.note(d.l, limited.Decision, d.cost, 0)
}

// GiveUp ends an admitted request that does not go on after all, before Enter: its charges are given back, and it has
// no places.
func (v *Verdict) GiveUp(ctx context.Context) {
	v.Done(weir.Ignore)
	v.giveBack(ctx)
}

// EndAtOnce ends an admitted request whose end nobody will report, such as one that another proxy asks
// about: estimates of costs stay charged, a cost in bytes is 0, and places of concurrency limits are given
// back at once. Without a place, the outcome becomes Deny as by Enter, and the error is its error.
func (v *Verdict) EndAtOnce() error {
	v.KeepEstimates()
	if v.CountsBytes() {
		v.SettleBytes(0)
	}
	full := func() (context.Context, error) { return nil, &weir.LimitedError{} } // nothing is queued
	if v.rare != nil {                                                           // a request that ends at once says nothing about the latency
		v.rare.admits = admission{}
	}
	err := v.EnterQueued(context.Background(), full)
	v.Done(weir.Ignore)
	return err
}

// WithoutPlaces is for requests whose end nobody will report, as in the replay of a log: they take no places
// of concurrency limits and adaptive limits, and their charges stay. Otherwise each charge would be
// remembered, as it may have to be given back when there is no place.
func (v *Verdict) WithoutPlaces() {
	if v.Holds() {
		v.rare.places, v.rare.admits = nil, admission{}
		if v.Outcome == Allow {
			v.conclude()
		}
	}
}

// Holds reports whether the request holds places of concurrency limits or adaptive limits, which Done
// gives back.
func (v *Verdict) Holds() bool {
	return v.rare != nil && (len(v.rare.places) > 0 || v.rare.admits.is())
}

// Done leaves the places that Enter took, once, and records how the work ended. Call it when the
// request has ended, in any way.
func (v *Verdict) Done(o weir.Outcome) {
	if v.rare == nil {
		return
	}
	for i := range v.rare.places {
		d := &v.rare.places[i]
		d.hold.Done(o)
		if d.leave != nil {
			d.leave(o)
		}
		d.shade.done(o)
	}
	v.rare.admits.leave(o)
}
