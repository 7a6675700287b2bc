package gateway

import (
	"net/http"
	"net/netip"
	"sync"

	"github.com/weirflow/weir/policy"
	"github.com/weirflow/weir/server/listen"
	"github.com/weirflow/weir/server/plain"
	"github.com/weirflow/weir/weirhttp"
)

// exchange is the decision about a request, and its response, in one allocation.
type exchange struct {
	match     policy.Match
	verdict   policy.Verdict
	response  responseWriter
	record    *record             // in the access log; nil for none
	free      func()              // what decide has kept; nil for nothing
	postponed bool                // the request has not ended when its handler returns
	simple    bool                // nothing has kept a part of the exchange, or of the request
	evaluated [1]policy.Evaluated // room for the one limit that most routes have
}

// exchanges are used again after simple requests.
var exchanges = sync.Pool{New: func() any { return new(exchange) }}

// end is called when the request has ended.
func (x *exchange) end() {
	if x.free != nil {
		x.free()
	}
	x.record.write()
}

// endTurn is called when the handler of a request returns.
func (x *exchange) endTurn(r *http.Request) {
	if x.postponed {
		return
	}
	x.end()
	if x.simple {
		*x = exchange{}
		exchanges.Put(x)
		plain.Reuse(r.Context())
	}
}

// find finds the route of a request.
func (x *exchange) find(r *http.Request, s *state, client netip.Addr, key string) {
	request := policy.Request{
		Method: r.Method,
		Host:   r.Host,
		Path:   r.URL.EscapedPath(),
		Query:  r.URL.RawQuery,
		Client: key,
		Header: r.Header,
		Length: r.ContentLength,
		Addr:   client,

		Listener: listen.AddressOf(r.Context()),
	}
	request.Trusted = s.asksHop && weirhttp.Trusted(r, s.file.Policy.TrustedProxies)
	x.match = s.engine.Match(request)
	x.match.AskUpstreams(s)
}
