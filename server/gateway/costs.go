package gateway

import (
	"net/http"

	"github.com/weirflow/weir/policy"
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

// refuseUnread responds to a request whose body was needed for its limits, and could not be read.
func (g *Gateway) refuseUnread(w http.ResponseWriter, r *http.Request, err error) {
	if g.failedBody(w, r, err) {
		return
	}
	g.counts.canceled.Add(1)
	w.Header().Set("Connection", "close")
	answer(w, http.StatusBadRequest, "the body of this request did not come")
}
