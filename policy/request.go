package policy

import (
	"net/http"
	"net/netip"
)

// A Request holds the parts of a request that a decision depends on.
type Request struct {
	Method string
	Host   string // as the client sent it, with or without a port
	Path   string // as the client sent it, still escaped, without the query
	Query  string // as the client sent it, without the ?
	Client string // the client's address, from ClientKey
	Header http.Header

	// The gateway address that received the request, as in Listen.Gateway. Empty means unknown:
	// then it fits all routes.
	Listener string

	Addr    netip.Addr // the client's full address, for exemptions and client.ip/128; default: taken from Client
	Trusted bool       // the request came from a trusted proxy, so header fields may exempt it
	Length  int64      // the length of the body in bytes; negative: unknown

	Values Values // for value.NAME in keys and costs; nil for none

	// for the replay of a log: the estimate of limits whose Costs.Before reads the request; default: by
	// Before
	Estimate int64
}
