package weirhttp

import (
	"context"
	"errors"
	"maps"
	"net/http"

	"github.com/weirflow/weir"
	"github.com/weirflow/weir/policy"
)

// metered lets the costs of a request be read from its response, if some limit needs that. end
// settles the charges.
func metered(w http.ResponseWriter, r *http.Request, v *policy.Verdict) (_ http.ResponseWriter, _ *http.Request, end func(weir.Outcome)) {
	m := v.Meter()
	if m == nil {
		return w, r, func(weir.Outcome) {}
	}
	if accepted := r.Header["Accept-Encoding"]; len(accepted) > 0 && m.ReadsBody() {
		next := *r
		next.Header = maps.Clone(r.Header)
		next.Header["Accept-Encoding"] = []string{policy.AcceptEncoding(accepted)}
		r = &next
	}
	x := &meteredWriter{ResponseWriter: w, meter: m, client: r.Context()}
	return x, r, func(o weir.Outcome) {
		complete := o == weir.OK && !x.failed && r.Context().Err() == nil
		if complete {
			x.begin(http.StatusOK) // a handler that writes nothing
		}
		panicked := o != weir.OK && !x.begun && r.Context().Err() == nil
		m.End(policy.Ending{Complete: complete, Failed: panicked, Trailer: w.Header()})
	}
}

// meteredWriter passes a response on, and reads its cost.
type meteredWriter struct {
	http.ResponseWriter
	meter  *policy.Meter
	client context.Context // ends when the client leaves
	failed bool            // the client did not get a part of the response
	begun  bool
}

// begin reads the header of the response. An error after the client has left is not read: it only says that
// the handler gave up, as that of httputil.ReverseProxy does, and nothing about what the work has cost.
func (m *meteredWriter) begin(status int) {
	if m.begun {
		return
	}
	m.begun = true
	if status < http.StatusBadRequest || !errors.Is(m.client.Err(), context.Canceled) {
		m.meter.Header(status, m.Header())
	}
}

// WriteHeader writes the header.
func (m *meteredWriter) WriteHeader(status int) {
	if status >= http.StatusOK || status == http.StatusSwitchingProtocols {
		m.begin(status)
	}
	m.ResponseWriter.WriteHeader(status)
}

// Write writes a part of the body.
func (m *meteredWriter) Write(p []byte) (int, error) {
	m.begin(http.StatusOK)
	n, err := m.ResponseWriter.Write(p)
	m.failed = m.failed || err != nil
	m.meter.Write(p)
	return n, err
}

// Flush is of http.Flusher, which handlers of streams look for.
func (m *meteredWriter) Flush() {
	m.begin(http.StatusOK)
	_ = http.NewResponseController(m.ResponseWriter).Flush() // the next write meets the error
}

// Unwrap lets http.ResponseController reach the connection.
func (m *meteredWriter) Unwrap() http.ResponseWriter { return m.ResponseWriter }
