package policy

import (
	"context"

	"github.com/weirflow/weir"
)

// A Match is a request with its route, so that the route is looked up only once.
type Match struct {
	Route int // the index of the first route that matches; -1 if none does

	// Ambiguous says that some upstreams read the path as one of another route, which protects more.
	// The request must not reach an upstream, and DecideMatch refuses it as Invalid.
	Ambiguous bool

	request request
	fields  *bodyFields // of the request's body, which the limits of the route read; nil for none
}

// Request is the request as it was given. It must not be changed.
func (m *Match) Request() *Request { return &m.request.Request }

// Match returns the route of a request. It charges no limit.
func (e *Engine) Match(req Request) Match {
	m := Match{Route: -1, request: request{Request: req}}
	if m.Route = e.find(&m.request); m.Route >= 0 {
		m.request.pattern, m.request.php = &e.routes[m.Route].pattern, e.policy.Routes[m.Route].Parameters == ParametersPHP
		m.Ambiguous, m.fields = e.ambiguous(&m), e.routes[m.Route].body
	}
	return m
}

// MatchRoute is Match for a request whose route is known, whatever its match is: a program with a
// router of its own has found it.
func (e *Engine) MatchRoute(route int, req Request) Match {
	m := Match{Route: route, request: request{Request: req}}
	m.request.pattern, m.request.php = &e.routes[route].pattern, e.policy.Routes[route].Parameters == ParametersPHP
	m.fields = e.routes[route].body
	return m
}

// Identify looks up the customer of a request, and reports false if DecideMatch will refuse the request
// as UnknownCustomer or UnverifiedCustomer. Call it before RefuseUnread and ReadBody: nothing is kept for requests that are
// refused.
func (e *Engine) Identify(ctx context.Context, m *Match) bool {
	if m.Route < 0 || m.Ambiguous {
		return true
	}
	route, r := &e.routes[m.Route], &m.request
	if !r.asked && (len(route.asks) > 0 || route.readsClaims) {
		r.lacking, r.asked = e.identify(ctx, r, route), true
	}
	return r.lacking == nil
}

// find returns the index of the first route that matches; -1 if none does.
func (e *Engine) find(r *request) int {
	for i := range e.routes {
		if e.routes[i].pattern.matches(r) {
			return i
		}
	}
	return -1
}

// DecideMatch is like DecideContext, for a request whose route this engine has already found.
func (e *Engine) DecideMatch(ctx context.Context, m *Match) (v Verdict) {
	e.DecideInto(ctx, m, &v)
	return v
}

// DecideInto is DecideMatch that writes the verdict to v, whatever is in it, without copies of it.
func (e *Engine) DecideInto(ctx context.Context, m *Match, v *Verdict) {
	if m.Route < 0 {
		e.noRoute.Add(1)
		*v = Verdict{Outcome: NoRoute, Route: -1}
		return
	}
	if m.Ambiguous {
		*v = Verdict{Outcome: Invalid, Route: m.Route, Decision: weir.Decision{RetryAfter: weir.Never}}
		return
	}
	route := &e.routes[m.Route]
	if route.passes {
		in, ok := e.succession.gate.enter()
		if !ok {
			e.decideLater(ctx, m, v)
			return
		}
		defer in.leave()
	}
	e.decide(ctx, &m.request, route, m.Route, v)
}
