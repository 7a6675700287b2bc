// Package guard keeps web pages in browsers away from services over HTTP.
//
// A browser sends requests for every page that it shows, also to addresses that only its own machine
// can reach. A page reaches such an address directly, as another origin, or by DNS rebinding: under a
// name of its own, which it makes resolve to 127.0.0.1.
package guard

import (
	"mime"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strings"
)

// A Guard refuses requests of web pages to one address. It is safe for concurrent use.
type Guard struct {
	loopback   bool   // only programs of this machine can connect
	host, port string // of the address
	pages      bool   // the service sends pages to browsers, whose requests pass
}

// A Refusal says why a request was refused: the detail, and what to do instead.
type Refusal struct{ Detail, Fix string }

// Error says why, and what to do instead.
func (r *Refusal) Error() string { return r.Detail + ": " + r.Fix }

// New returns the guard of a service for programs, at an address as the policy writes it.
func New(address string) *Guard {
	g := &Guard{loopback: IsLoopback(address)}
	g.host, g.port, _ = net.SplitHostPort(address)
	return g
}

// ForPages returns the guard of a service that sends pages to browsers: their own requests pass.
func ForPages(address string) *Guard {
	g := New(address)
	g.pages = true
	return g
}

// ListensOn sets the port of the address, where the policy leaves it open. Call it before the first
// request.
func (g *Guard) ListensOn(address string) { _, g.port, _ = net.SplitHostPort(address) }

// IsLoopback reports whether only programs of this machine can connect to an address.
func IsLoopback(hostPort string) bool {
	host, _, err := net.SplitHostPort(hostPort)
	return err == nil && isLocal(host)
}

func isLocal(host string) bool {
	addr, err := netip.ParseAddr(host)
	return err == nil && addr.Unmap().IsLoopback() || strings.EqualFold(host, "localhost")
}

// Page returns why a request may be that of a web page; nil if it is not.
func (g *Guard) Page(r *http.Request) *Refusal {
	switch {
	case g.loopback && !g.isOwn(r.Host):
		return &Refusal{"the name in Host is not one of this machine", "use the address that the policy listens on, or localhost"}
	case slices.ContainsFunc(r.Header["Origin"], func(o string) bool { return !g.pages || o != origin(r) }),
		slices.ContainsFunc(r.Header["Sec-Fetch-Site"], func(s string) bool { return s != "" && s != "none" && (!g.pages || s != "same-origin") }):
		return &Refusal{"the request comes from a web page", "call without Origin and Sec-Fetch-Site"}
	}
	return nil
}

// Hook returns why a request may be that of a web page, for requests in which a proxy describes the
// request of a client. Origin and Sec-Fetch-Site are the client's then, and so is Host where the proxy
// passes it on. named is the header field with the client's address: browsers let no page of another
// origin send it. A page that has made its own name resolve to this machine can send it, and has this
// service's port in Host.
func (g *Guard) Hook(r *http.Request, named string) *Refusal {
	switch {
	case len(r.Header[named]) == 0:
		return &Refusal{"the proxy does not say who the client is", "let the proxy set " + named + " to the client's address"}
	case g.loopback && portOf(r) == g.port && !g.isOwn(r.Host):
		return &Refusal{"Host has the port of this service, and a name that is not one of this machine", "let the proxy send as Host what the client has sent, or the address that the policy listens on"}
	}
	return nil
}

// isOwn reports whether a Host is this machine, or the name that the policy listens on.
func (g *Guard) isOwn(hostPort string) bool {
	host, _, err := net.SplitHostPort(hostPort)
	if err != nil {
		host = strings.Trim(hostPort, "[]")
	}
	return isLocal(host) || g.host != "" && strings.EqualFold(host, g.host)
}

// portOf returns the port that a request was sent to.
func portOf(r *http.Request) string {
	_, port, err := net.SplitHostPort(r.Host)
	switch {
	case err == nil:
		return port
	case r.TLS != nil:
		return "443"
	}
	return "80"
}

// origin returns the origin of the service's own pages, by the name that the request was sent to.
func origin(r *http.Request) string {
	if r.TLS != nil {
		return "https://" + r.Host
	}
	return "http://" + r.Host
}

// IsTyped reports whether the body of a request is said to be one of some types. With the right types,
// no form of a page of another origin can say so.
func IsTyped(r *http.Request, types ...string) bool {
	if written := r.Header["Content-Type"]; len(written) == 1 && slices.Contains(types, written[0]) {
		return true
	}
	got, _, err := mime.ParseMediaType(r.Header.Get("Content-Type"))
	return err == nil && len(r.Header["Content-Type"]) == 1 && slices.Contains(types, got)
}
