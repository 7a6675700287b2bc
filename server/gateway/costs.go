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
	l.meter.End(policy.Ending{Complete: l.whole && !l.own, Failed: l.noResponse || l.notSent || l.unsent, Trailer: l.Header()})
}

// readBody reads the body of a request that its limits need, unless the request will be refused for its
// credentials. free must be called once the request has ended.
func (g *Gateway) readBody(r *http.Request, s *state, m *policy.Match) (free func(), err error) {
	if !m.ReadsBody(r) || !s.engine.Identify(r.Context(), m) {
		return func() {}, nil
	}
	defer listen.BoundSilence(r.Context())()
	return m.ReadBody(r, g.upstreams.Memory())
}

// refuseUnread responds to a request whose body was needed for its limits, and could not be read.
func (g *Gateway) refuseUnread(w http.ResponseWriter, r *http.Request, err error) {
	if errors.Is(err, policy.ErrBodyMemory) {
		g.counts.exhausted.Add(1)
		w.Header().Set("Connection", "close")
		w.Header().Set("Retry-After", "1")
		answer(w, http.StatusServiceUnavailable, "the gateway has no memory left for the body of this request")
		return
	}
	if g.failedBody(w, r, err) {
		return
	}
	g.counts.canceled.Add(1)
	w.Header().Set("Connection", "close")
	answer(w, http.StatusBadRequest, "the body of this request did not come")
}
