package hook

import (
	"bytes"
	"net/http"

	"github.com/weirflow/weir/internal/refusal"
	"github.com/weirflow/weir/policy"
	"github.com/weirflow/weir/server/active"
	"github.com/weirflow/weir/weirhttp"
)

// refusals are the responses to refused requests by one policy. They are never changed.
type refusals struct {
	of           *active.Snapshot
	byRoute      []refusal.Response
	byLimit      []map[string]refusal.Response // by route: those of limits with a status of their own
	unidentified refusal.Response
	setFields    func(http.Header, []policy.Evaluated)
}

// compile makes the responses of a policy.
func compile(of *active.Snapshot) *refusals {
	p := &of.File.Policy
	c := &refusals{of: of, unidentified: refusal.Unidentified(p.Plans.Bearer()), setFields: weirhttp.SetRateLimit}
	if p.Headers != nil {
		c.setFields = weirhttp.SetHeaders(p.Headers...)
	}
	for i := range p.Routes {
		r := &p.Routes[i]
		own := map[string]refusal.Response{}
		for name, refused := range p.RefusedBy(r) {
			own[name] = refusal.Of(refused, r.Limits, of.File.Bodies)
		}
		c.byRoute, c.byLimit = append(c.byRoute, refusal.Of(r.Refused, r.Limits, of.File.Bodies)), append(c.byLimit, own)
	}
	return c
}

// fields returns the header fields that say what remains of the limits.
func (c *refusals) fields(v *policy.Verdict) http.Header {
	h := http.Header{}
	c.setFields(h, v.Evaluated())
	return h
}

// refused returns the response to a request that a limit refused.
func (c *refusals) refused(v *policy.Verdict, r *policy.Request) *Response {
	response, ok := c.byLimit[v.Route][v.Limit]
	if !ok {
		response = c.byRoute[v.Route]
	}
	w := &writer{header: c.fields(v)}
	weirhttp.SetRetryAfter(w.header, v.Decision)
	response.Write(w, requestOf(r), v.Limit)
	out := w.response()
	out.Limited = true
	return out
}

// unknown returns the response to a request without valid credentials.
func (c *refusals) unknown(r *policy.Request) *Response {
	w := &writer{header: http.Header{}}
	c.unidentified.WriteUnidentified(w, requestOf(r))
	return w.response()
}

// unverified returns the response to a request whose API key could not be looked up.
func unverified(r *policy.Request) *Response {
	w := &writer{header: http.Header{}}
	refusal.WriteUnverified(w, requestOf(r))
	return w.response()
}

// requestOf returns as much of a request as a response depends on.
func requestOf(r *policy.Request) *http.Request {
	return &http.Request{Method: r.Method, Header: r.Header}
}

// writer records a response.
type writer struct {
	header http.Header
	status int
	body   bytes.Buffer
}

func (w *writer) Header() http.Header         { return w.header }
func (w *writer) WriteHeader(status int)      { w.status = status }
func (w *writer) Write(p []byte) (int, error) { return w.body.Write(p) }

// response returns what was written, without Content-Length: a proxy may send the body in another
// encoding, so the sender of the response sets it.
func (w *writer) response() *Response {
	w.header.Del("Content-Length")
	return &Response{Status: w.status, Header: w.header, Body: w.body.Bytes()}
}
