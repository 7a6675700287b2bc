package policy

import "context"

// A Match is a request with its route, so that the route is looked up only once.
type Match struct {
	Route int // the index of the first route that matches; -1 if none does

	request request
}

// Match returns the route of a request. It charges no limit.
func (e *Engine) Match(req Request) Match {
	m := Match{Route: -1, request: request{Request: req}}
	for i := range e.routes {
		if e.routes[i].pattern.matches(&m.request) {
			m.Route, m.request.pattern, m.request.php = i, &e.routes[i].pattern, e.policy.Routes[i].Parameters == ParametersPHP
			break
		}
	}
	return m
}

// DecideMatch is like DecideContext, for a request whose route this engine has already found.
func (e *Engine) DecideMatch(ctx context.Context, m *Match) Verdict {
	if m.Route < 0 {
		e.noRoute.Add(1)
		return Verdict{Outcome: NoRoute, Route: -1}
	}
	return e.decide(ctx, &m.request, m.Route)
}
