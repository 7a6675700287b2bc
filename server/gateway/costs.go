package gateway

import (
	"errors"
	"net/http"

	"github.com/weirflow/weir/policy"
	"github.com/weirflow/weir/server/listen"
)

// meterOf returns what reads the cost of a request from its response; nil if it is known. A response
// that is read must come in an encoding that can be read.
func meterOf(v *policy.Verdict, r *http.Request) *policy.Meter {
	m := v.Meter()
	if accepted := r.Header["Accept-Encoding"]; len(accepted) > 0 && m.ReadsBody() {
		r.Header["Accept-Encoding"] = []string{policy.AcceptEncoding(accepted)}
	}
	return m
}

// settle charges what the request has cost, however its response ended. A request that its client has
// spoiled has an unknown cost if an upstream may have got a part of it: the upstream may have worked.
func (l *responseWriter) settle() {
	if l.meter == nil {
		return
	}
	if l.upgraded != nil {
		l.meter.Passed(l.upgraded.bytes.Load())
	}
	// An upgraded connection has no end of its own: what passed is what it cost.
	l.meter.End(policy.Ending{Complete: l.whole && !l.own || l.upgraded != nil, Failed: l.noResponse || l.notSent || l.unsent, Trailer: l.Header()})
}

// decide decides about a request. Before that, it reads the body if limits need it, unless the request
// is refused without: for its credentials, or by a limit that does not depend on the body. free must be
// called once the request has ended.
func (g *Gateway) decide(r *http.Request, s *state, m *policy.Match, v *policy.Verdict, client string) (free func(), err error) {
	free = func() {}
	if m.ReadsBody(r) && s.engine.Identify(r.Context(), m) {
		if refuseUnread(r, s, m, v) {
			return free, nil
		}
		if free, err = g.readBody(r, m, client); err != nil {
			return free, err
		}
	}
	s.engine.DecideInto(r.Context(), m, v)
	return free, nil
}

// refuseUnread is apart from decide, whose room on the stack it would double: many requests wait in queues, each
// with a stack that has grown to what decide needs.
//
//go:noinline
func refuseUnread(r *http.Request, s *state, m *policy.Match, v *policy.Verdict) (refused bool) {
	*v, refused = s.engine.RefuseUnread(r.Context(), m)
	return refused
}

// readBody reads the body of a request.
func (g *Gateway) readBody(r *http.Request, m *policy.Match, client string) (free func(), err error) {
	defer listen.BoundSilence(r.Context())()
	return m.ReadBody(r, g.bodies.Of(client, g.upstreams.Memory()))
}

// failUnread responds to a request whose body was needed for its limits, and could not be read.
func (g *Gateway) failUnread(w http.ResponseWriter, r *http.Request, err error) {
	if errors.Is(err, policy.ErrBodyMemory) {
		g.counts.exhausted.Add(1)
		endConnection(w, r)
		w.Header().Set("Retry-After", "1")
		answer(w, http.StatusServiceUnavailable, "the gateway has no memory left for the body of this request")
		return
	}
	if g.failedBody(w, r, err) {
		return
	}
	g.counts.canceled.Add(1)
	endConnection(w, r)
	answer(w, http.StatusBadRequest, "the body of this request did not come")
}
