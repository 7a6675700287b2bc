package gateway

import (
	"net/http"

	"github.com/weirflow/weir/policy"
)

// lasting writes the answer of an upstream. httputil.ReverseProxy clears all header fields after it has passed on an informational answer,
// like 100 or 103: what the client is told about its limits would be gone from the answer that counts. Here it comes back.
type lasting struct {
	http.ResponseWriter
	gateway *Gateway
	tells   func(http.Header, []policy.Asked)
	verdict *policy.Verdict
	cleared bool
}

// WriteHeader writes the header fields.
func (l *lasting) WriteHeader(status int) {
	if status < 200 && status != http.StatusSwitchingProtocols {
		l.ResponseWriter.WriteHeader(status)
		l.cleared = true
		return
	}
	if l.cleared {
		l.tells(l.Header(), l.verdict.Asked())
	}
	l.gateway.sayGoodbye(l.Header())
	l.ResponseWriter.WriteHeader(status)
}

// Unwrap lets http.ResponseController flush, and hijack what is upgraded.
func (l *lasting) Unwrap() http.ResponseWriter { return l.ResponseWriter }

// Leave has each answer from now on end its connection: clients go elsewhere before the server closes, and none of them sends a request
// into a connection that is about to be closed.
func (g *Gateway) Leave() { g.leaving.Store(true) }

func (g *Gateway) sayGoodbye(h http.Header) {
	if g.leaving.Load() {
		h.Set("Connection", "close")
	}
}
