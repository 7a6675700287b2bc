package gateway

import (
	"context"
	"errors"
	"net/http"

	"github.com/weirflow/weir"
	"github.com/weirflow/weir/adaptive"
	"github.com/weirflow/weir/internal/clientwait"
	"github.com/weirflow/weir/server/upstream"
)

// placeAtUpstream takes a place at the adaptive limits of the route's upstream: see policy.EnterUpstream. What
// else keeps an upstream from taking a request is found when it is sent.
func (to *route) placeAtUpstream(ctx context.Context, as adaptive.Request, queued func() (context.Context, error)) (*upstream.Place, error) {
	if to.forward == nil {
		return nil, nil
	}
	return to.forward.place(ctx, as, queued)
}

// place is placeAtUpstream for an upstream.
func (p *forwarder) place(ctx context.Context, as adaptive.Request, queued func() (context.Context, error)) (*upstream.Place, error) {
	if !p.to.Adaptive() {
		return nil, nil
	}
	place, err := p.to.Enter(ctx, as, queued)
	switch {
	case errors.Is(err, upstream.ErrOverloaded):
		return nil, &weir.LimitedError{}
	case errors.Is(err, upstream.ErrOut), errors.Is(err, upstream.ErrFull):
		return nil, nil
	}
	return place, err
}

// Full reports whether no target of an upstream has a place at its adaptive limit: see policy.Upstreams.
func (s *state) Full(name string, as adaptive.Request) bool {
	to := s.adaptive[name]
	return to != nil && to.Full(as)
}

// watchClient measures how long a request with a place at an adaptive limit waits for its client.
func (l *responseWriter) watchClient(r *http.Request) *http.Request {
	if !l.verdict.Measured() {
		return r
	}
	// a client that hardly takes the response keeps no place: the upstream has done its work
	l.waits = clientwait.New(func() { l.verdict.LeaveAdaptive(weir.Ignore) })
	return l.waits.Request(r)
}

// leaveAdaptive leaves the adaptive limits. A connection that is upgraded leaves them when it switches to its
// protocol: it may last for hours without being work.
func (l *responseWriter) leaveAdaptive(o weir.Outcome) { l.verdict.LeaveAdaptive(l.served(o)) }

// served returns what an adaptive limit hears of an outcome: the duration of a request with a slow client says
// nothing about the upstream.
func (l *responseWriter) served(o weir.Outcome) weir.Outcome {
	if o == weir.OK && l.waits.Most() {
		return weir.Ignore
	}
	return o
}

// enterLater takes the places of a request at adaptive limits, once its body has come as far as it is buffered: a
// client that sends slowly must not keep a place from others. The error is an *unplacedError.
type enterLater = func() (*upstream.Place, error)

func (g *Gateway) laterEntry(l *responseWriter, s *state, client string) enterLater {
	return func() (*upstream.Place, error) { return g.enterLater(l, s, client) }
}

func (g *Gateway) enterLater(l *responseWriter, s *state, client string) (*upstream.Place, error) {
	v := l.verdict
	logged := len(v.Events())
	place, err := g.enterHolds(l.request, s, v, client, v.EnterAdaptive)
	g.logEventsFrom(v, logged)
	if err != nil {
		return nil, &unplacedError{s, err}
	}
	l.place = place
	l.waits.Restart()
	recordOf(l.ResponseWriter).passed(l.route.forward.name)
	g.admitted(v)
	s.tells(l.Header(), v.Evaluated())
	return place, nil
}

// unplacedError is the error of a request that got no place at the adaptive limits once its body had come.
type unplacedError struct {
	state *state
	err   error
}

func (e *unplacedError) Error() string { return e.err.Error() }
func (e *unplacedError) Unwrap() error { return e.err }

// refuseUnplaced responds to such a request.
func (g *Gateway) refuseUnplaced(l *responseWriter, e *unplacedError) {
	l.unsent, l.own = true, true
	r := *l.request
	r.Body = nil // it is consumed
	g.leave(l.ResponseWriter, &r, e.state, l.verdict, e.err)
}
