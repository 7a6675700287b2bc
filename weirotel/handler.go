package weirotel

import (
	"net/http"

	"github.com/weirflow/weir/weirhttp"
)

// Handler records what the middleware around it has decided, with the span of the request: wrap the handler
// with it, and give the middleware weirhttp.InContext. Refusals do not reach a handler that is behind the
// middleware: give Refused to weirhttp.Refused, for them.
func (m *Metrics) Handler(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		m.fromContext(r)
		next.ServeHTTP(w, r)
	})
}

// Refused records a refusal with the span of the request, and then calls a handler that responds to it: for
// weirhttp.Refused.
func (m *Metrics) Refused(respond http.Handler) http.Handler { return m.Handler(respond) }

func (m *Metrics) fromContext(r *http.Request) {
	if response, ok := weirhttp.ResponseFrom(r.Context()); ok {
		m.http(r.Context(), response)
	}
}
