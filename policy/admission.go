package policy

import (
	"context"
	"errors"
	"reflect"
	"slices"
	"time"

	"github.com/weirflow/weir"
	"github.com/weirflow/weir/adaptive"
)

// An adaptiveLimit is the adaptive limit of a route.
type adaptiveLimit struct {
	name    string
	of      Adaptive
	limiter *adaptive.Limiter
}

// An admission is the adaptive limits of a route, and the place of a request there. They come last: what
// they measure must not include the wait for other limits.
type admission struct {
	limit    *adaptiveLimit // of the route; nil for none
	upstream string         // the upstream with an adaptive limit, which the caller keeps; empty for none
	// whether to refuse before any limit is charged, if the route or its upstream has no place
	probe, probeUpstream bool
	hold                 adaptive.Hold // of limit
	place                UpstreamPlace // at the upstream; nil for none
	as                   adaptive.Request
	priority             *adaptive.Priority // of the route; nil for none
}

// An UpstreamPlace is the place of a request at the adaptive limit of an upstream. Done gives it back. Only its
// first call counts.
type UpstreamPlace interface{ Done(o weir.Outcome) }

// An EnterUpstream takes a place at the adaptive limit of the route's upstream. Before it waits for one, it calls
// queued, which returns the context for the wait or refuses: see Verdict.EnterQueued. A *weir.LimitedError refuses
// the request as a limit would.
type EnterUpstream func(ctx context.Context, as adaptive.Request, queued func() (context.Context, error)) (UpstreamPlace, error)

// Upstreams says whether upstreams have places at their adaptive limits.
type Upstreams interface {
	// Full reports whether no target of an upstream has a place for a request that does not wait. The limits
	// count the request as refused then.
	Full(upstream string, as adaptive.Request) bool
}

// AskUpstreams makes DecideMatch refuse the request before any limit is charged, if its upstream has no place
// for it. Without it, the charges are given back when EnterUpstream finds none.
func (m *Match) AskUpstreams(u Upstreams) { m.request.upstreams = u }

// is reports whether there is any.
func (a *admission) is() bool { return a.limit != nil || a.upstream != "" }

// enters reports whether requests take places, so that charges may have to be given back.
func (r *route) enters() bool { return len(r.places) > 0 || r.admits.is() }

// compileAdaptive compiles the adaptive limits of routes. One whose parameters stay keeps what it has
// learnt.
func (e *Engine) compileAdaptive(before *Engine) error {
	names := e.policy.adaptiveOf()
	e.ranks = newRanks(&e.policy)
	queues := func(a Adaptive) bool { return a.Queue != adaptive.Queue{} && e.opts.Clock == nil } // see limiter
	for i := range e.routes {
		r, of := &e.routes[i], e.policy.Routes[i].Adaptive
		r.admits.priority = priorityOf(e.policy.Routes[i].Priority)
		waits := slices.ContainsFunc(slices.Concat(r.live, r.places), func(l *limit) bool { return l.wait || l.enterWait })
		if u := e.policy.adaptiveUpstream(&e.policy.Routes[i]); u != nil {
			r.admits.upstream = u.Name
			r.admits.probeUpstream = !queues(u.Adaptive) && !waits
		}
		if !of.On {
			continue
		}
		l := before.adaptive(names[i])
		if l == nil || !reflect.DeepEqual(l.of, of) {
			limiter, err := of.limiter(names[i], e.opts.Signals, e.opts.Clock)
			if err != nil {
				return err
			}
			l = &adaptiveLimit{name: names[i], of: of, limiter: limiter}
		}
		e.adaptives = append(e.adaptives, l)
		r.admits.limit = l
		r.admits.probe = !queues(of) && !waits
	}
	return nil
}

// adaptive returns the adaptive limit with that name, or nil.
func (e *Engine) adaptive(name string) *adaptiveLimit {
	if e == nil {
		return nil
	}
	for _, l := range e.adaptives {
		if l.name == name {
			return l
		}
	}
	return nil
}

// overloadRetry is when a client that an adaptive limit has refused may try again. Nobody knows when there
// will be a place; a second is long beside most requests.
const overloadRetry = time.Second

// refuseOverload refuses a request before any limit is charged, if the adaptive limit of its route or of its
// upstream has no place. A place that is free now is taken later: the request may wait for stores first.
func (v *Verdict) refuseOverload(e *Engine, r *request, a *admission) bool {
	if a.probe {
		if to := a.limit.limiter; to.Refuses(e.rank(r, a)) {
			v.overload(a.limit.name, &weir.LimitedError{Decision: weir.Decision{Limit: to.Limit()}})
			return true
		}
	}
	if a.probeUpstream && r.upstreams != nil && r.upstreams.Full(a.upstream, e.rank(r, a)) {
		v.overload(AdaptiveName(a.upstream), &weir.LimitedError{})
		return true
	}
	return false
}

// admit takes the places of a request at adaptive limits, or at none of them. queued is that of EnterQueued.
func (v *Verdict) admit(ctx context.Context, queued func() (context.Context, error), upstream EnterUpstream) (err error) {
	a, name, wait := &v.rare.admits, "", ctx
	joins := func() (_ context.Context, err error) {
		if queued != nil {
			wait, err = queued()
		}
		return wait, err
	}
	if a.limit != nil {
		name = a.limit.name
		a.hold, err = a.limit.enter(ctx, joins, a.as)
	}
	if err == nil && a.upstream != "" && upstream != nil {
		name = AdaptiveName(a.upstream)
		a.place, err = upstream(ctx, a.as, joins)
	}
	err = waited(wait, name, err)
	if err != nil {
		v.GiveUp(ctx)
		if v.overload(name, err); v.overloaded {
			v.observesOverload()
		}
	}
	return err
}

// enter takes a place, and waits if the limit has a queue.
func (l *adaptiveLimit) enter(ctx context.Context, queued func() (context.Context, error), as adaptive.Request) (h adaptive.Hold, err error) {
	if l.of.Queue.Length > 0 && !l.limiter.HasPlace(as) {
		if ctx, err = queued(); err != nil {
			return h, err
		}
	}
	return l.limiter.EnterAs(ctx, as)
}

// leave leaves the adaptive limits. Only its first call counts.
func (a *admission) leave(o weir.Outcome) {
	if a.hold.Done(o); a.place != nil {
		a.place.Done(o)
	}
}

// LeaveAdaptive leaves the adaptive limits of the route and its upstream, where Done would also leave other
// limits: for callers that know more about the duration of the work. Only the first of both calls counts.
func (v *Verdict) LeaveAdaptive(o weir.Outcome) {
	if v.rare != nil {
		v.rare.admits.leave(o)
	}
}

// Measured reports whether the duration of the request matters to an adaptive limit.
func (v *Verdict) Measured() bool { return v.rare != nil && v.rare.admits.is() }

// overload makes the outcome Deny for the *weir.LimitedError of an adaptive limit.
func (v *Verdict) overload(name string, err error) {
	var limited *weir.LimitedError
	if errors.As(err, &limited) {
		limited.Decision.By, limited.Decision.RetryAfter = name, overloadRetry
		v.Outcome, v.Limit, v.Key, v.Decision, v.overloaded = Deny, name, "", limited.Decision, true
		v.evaluated, v.shared = nil, nil // nothing is charged any more
	}
}

// Overloaded reports whether an adaptive limit refused the request.
func (v *Verdict) Overloaded() bool { return v.overloaded }

// An AdaptiveCount is the state of the adaptive limit of a route.
type AdaptiveCount struct {
	Name string // as in Verdict.Limit
	adaptive.Stats
}

// AdaptiveCounts returns the state of the adaptive limits of routes, in the order of the policy.
func (e *Engine) AdaptiveCounts() (all []AdaptiveCount) {
	for _, l := range e.adaptives {
		all = append(all, AdaptiveCount{l.name, l.limiter.Stats()})
	}
	return all
}
