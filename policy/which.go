package policy

import "context"

// A Match is a request with the route that it takes, which is looked for once, whoever asks.
type Match struct {
	Route int // the index of the first route that matches; -1 where none does

	request request
}

// Match returns the route of a request. It charges no limit.
func (e *Engine) Match(req Request) Match {
	m := Match{Route: -1, request: request{Request: req}}
	for i := range e.routes {
		if e.routes[i].pattern.matches(&m.request) {
			m.Route, m.request.pattern = i, &e.routes[i].pattern
			break
		}
	}
	return m
}

// DecideMatch is DecideContext for a request whose route this engine has found.
func (e *Engine) DecideMatch(ctx context.Context, m *Match) Verdict {
	if m.Route < 0 {
		e.noRoute.Add(1)
		return Verdict{Outcome: NoRoute, Route: -1}
	}
	return e.decide(ctx, &m.request, m.Route)
}
