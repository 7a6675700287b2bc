package gateway

import (
	"cmp"
	"io"
	"net/http"
	"strings"

	"github.com/weirflow/weir/internal/httpsyntax"
	"github.com/weirflow/weir/policy"
	"github.com/weirflow/weir/weirhttp"
)

// framing are the header fields that say where a message ends, where it goes, and how long its
// connection lasts.
var framing = [...]string{
	"Content-Length", "Transfer-Encoding", "Host", "Connection", "Keep-Alive", "Upgrade", "Expect", "Te", "Trailer", "Http2-Settings",
	"Proxy-Connection", "Proxy-Authorization", "Proxy-Authenticate", "Authorization", "Cookie", "Content-Type",
}

// fieldRules say which header fields of requests are passed on. They are never changed.
type fieldRules struct {
	priority string              // the field with the priority, from trusted proxies; empty for none
	clientIn string              // the field with the client's address, from trusted proxies
	matter   map[string]struct{} // fields that the policy reads, and framing
	folded   map[string]struct{} // the same, as upstreams may see their names
	unusual  bool                // the policy reads an unusual name, so usual ones may be taken for it
}

func newFieldRules(p *policy.Policy) *fieldRules {
	f := &fieldRules{priority: http.CanonicalHeaderKey(p.Priorities.Header), clientIn: clientHeader(p), matter: map[string]struct{}{}, folded: map[string]struct{}{}}
	for _, name := range append(append(p.ReadsHeaders(), f.clientIn), framing[:]...) {
		f.matter[name] = struct{}{}
		f.folded[httpsyntax.FoldName(name)] = struct{}{}
		f.unusual = f.unusual || !httpsyntax.IsUsualName(name)
	}
	return f
}

// clientHeader is the header field that trusted proxies write a client's address to.
func clientHeader(p *policy.Policy) string {
	return http.CanonicalHeaderKey(cmp.Or(p.ClientHeader, "X-Forwarded-For"))
}

// distrust removes what only proxies may tell, unless the client is trusted, and Proxy from everyone:
// CGI programs get it as HTTP_PROXY, which their HTTP clients take for the proxy to use, and no
// proxy has anything to say there. It reports whether there may be aliases among the fields.
func (f *fieldRules) distrust(h http.Header, trusted bool) (mayAlias bool) {
	mayAlias = f.unusual
	for name := range h {
		switch {
		case name == "Proxy", !trusted && (name == f.clientIn || name == f.priority || policy.IsProxyHeader(name)):
			delete(h, name)
		case !mayAlias:
			mayAlias = !httpsyntax.IsUsualName(name)
		}
	}
	return mayAlias
}

// isAlias reports whether upstreams may take a field for another one that matters: one that the
// policy reads, that frames the message, or that tells what only proxies may.
func (f *fieldRules) isAlias(name string) bool {
	usual := httpsyntax.IsUsualName(name)
	if usual && !f.unusual {
		return false
	}
	if _, itself := f.matter[name]; itself {
		return false
	}
	folded := httpsyntax.FoldName(name)
	_, is := f.folded[folded]
	return is || !usual && policy.IsProxyHeader(http.CanonicalHeaderKey(folded))
}

// dropAliases removes the fields that upstreams may take for others, and returns how many these
// were.
func (f *fieldRules) dropAliases(h http.Header) (n uint64) {
	for name := range h {
		if f.isAlias(name) {
			delete(h, name)
			n++
		}
	}
	return n
}

// dropNamed removes the fields that Connection names, which end at the gateway: a limit may not
// count by a field that the upstream does not get. What proxies tell stays, as it is for the gateway.
func (f *fieldRules) dropNamed(h http.Header) {
	for _, list := range h["Connection"] {
		for name := range strings.SplitSeq(list, ",") {
			switch name = http.CanonicalHeaderKey(strings.Trim(name, " \t")); {
			case name == "Close", name == "Upgrade", name == "Te", name == "Connection", name == f.clientIn, policy.IsProxyHeader(name):
			default:
				delete(h, name)
			}
		}
	}
}

// distrust removes from a request what must not count: fields that end at the gateway, and those
// that only proxies may send, if the client is no trusted proxy. It reports whether there may be
// aliases among the fields.
func (s *state) distrust(r *http.Request) (mayAlias bool) {
	if len(r.Header["Connection"]) > 0 {
		s.fields.dropNamed(r.Header)
	}
	return s.fields.distrust(r.Header, weirhttp.Trusted(r, s.file.Policy.TrustedProxies))
}

// withoutAliases does what the route says about fields that upstreams may take for others. It
// reports false if it has refused the request.
func (g *Gateway) withoutAliases(w http.ResponseWriter, r *http.Request, s *state, route int) bool {
	if route < 0 {
		return true
	}
	switch s.file.Policy.Routes[route].UnderscoreHeaders {
	case policy.UnderscoreAllow:
		return true
	case policy.UnderscoreRefuse:
		for name := range r.Header {
			if s.fields.isAlias(name) {
				g.counts.aliasesRefused.Add(1)
				g.counts.invalid.Add(1)
				g.closeIfLeaving(w.Header())
				answer(w, http.StatusBadRequest, "a header of this request can be taken for another one")
				return false
			}
		}
		return true
	}
	if n := s.fields.dropAliases(r.Header); n > 0 {
		g.counts.aliasesDropped.Add(n)
	}
	return true
}

// mayTrail reports whether a field may be passed on as a trailer. Some upstreams merge trailers into
// the header, after the gateway has decided: so nothing may be in them that routes, frames, limits
// or authenticates a request, or that says how to read its body.
func (f *fieldRules) mayTrail(name string) bool {
	folded := httpsyntax.FoldName(name)
	if _, matters := f.folded[folded]; matters || policy.IsProxyHeader(http.CanonicalHeaderKey(folded)) || name == f.clientIn {
		return false
	}
	for _, prefix := range [...]string{"content-", "if-", "proxy", "sec-", "access-control-", "x-forwarded"} {
		if strings.HasPrefix(folded, prefix) {
			return false
		}
	}
	switch folded {
	case "range", "cache-control", "pragma", "max-forwards", "origin", "referer", "via", "forwarded", "x-http-method-override", "x-http-method", "x-method-override":
		return false
	}
	return true
}

// withTrailers returns a request with those of its announced trailers that may be passed on. Their
// values are known at the end of the body. Trailers that were not announced are dropped, and so are
// those of a request without a body: net/http would never end such a request to an HTTP/2 upstream.
func (f *fieldRules) withTrailers(r *http.Request) *http.Request {
	if len(r.Trailer) == 0 {
		return r
	}
	kept := http.Header{}
	for name := range r.Trailer {
		if r.ContentLength != 0 && f.mayTrail(name) {
			kept[name] = nil
		}
	}
	next := *r
	if next.Trailer = nil; len(kept) > 0 {
		next.Trailer, next.Body = kept, &trailingBody{ReadCloser: r.Body, from: r.Trailer, kept: kept}
	}
	return &next
}

// trailingBody is a request body that copies the trailers at its end.
type trailingBody struct {
	io.ReadCloser
	from, kept http.Header
}

// Read reads the body.
func (b *trailingBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if err == io.EOF {
		for name := range b.kept {
			b.kept[name] = b.from[name]
		}
	}
	return n, err
}
