package policy

import (
	"net/textproto"
	"slices"
	"strings"
)

// What happens to a header field whose name upstreams may take for another one that matters.
const (
	UnderscoreDrop   = "drop"   // the field is not passed on
	UnderscoreRefuse = "refuse" // the request is refused with 400
	UnderscoreAllow  = "allow"  // the field is passed on
)

var underscoreHeaders = []string{UnderscoreDrop, UnderscoreRefuse, UnderscoreAllow}

// ReadsHeaders returns the header fields of requests that the policy reads: in keys, costs and
// exemptions, and ClientHeader. The names are in canonical form, each once.
func (p *Policy) ReadsHeaders() (names []string) {
	add := func(name string) {
		if name = textproto.CanonicalMIMEHeaderKey(name); !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	if p.ClientHeader != "" {
		add(p.ClientHeader)
	}
	if p.Priorities.Header != "" {
		add(p.Priorities.Header)
	}
	for i := range p.Limits {
		l := &p.Limits[i]
		for _, text := range l.reads() {
			source, name, _ := strings.Cut(text, ".")
			switch source {
			case "header":
				add(name)
			case "cookie":
				add("Cookie")
			}
		}
		if x := newExemption(l); x != nil {
			for _, f := range x.fields {
				add(f.name)
			}
		}
	}
	p.planHeaders(add)
	if len(p.Rooms) > 0 {
		add("Cookie")
	}
	return names
}

// reads returns what the limit reads of a request, as the policy has it: parts of its key, then its
// costs.
func (l *Limit) reads() []string {
	all := append(slices.Clone(l.Key), l.Cost)
	for _, t := range l.Costs.Before {
		all = append(all, t.Of)
	}
	return all
}

// IsProxyHeader reports whether a header field tells what a proxy in front of the server knows of
// the request: the client's address, or the host, scheme or path that it asked for. Any client can
// send one, so it is believed from trusted proxies alone. The name is in canonical form.
func IsProxyHeader(name string) bool {
	switch name {
	case "Forwarded", "X-Real-Ip", "X-Client-Ip", "X-Remote-Ip", "X-Remote-Addr", "X-Originating-Ip", "X-Cluster-Client-Ip", "X-Proxyuser-Ip",
		"X-Original-Forwarded-For", "X-Original-Host", "X-Original-Url", "X-Rewrite-Url", "X-Host", "X-Url-Scheme", "Front-End-Https",
		"Client-Ip", "Proxy-Client-Ip", "Wl-Proxy-Client-Ip", "True-Client-Ip", "Cf-Connecting-Ip", "Cf-Connecting-Ipv6", "Cf-Pseudo-Ipv4", "Cf-Ipcountry",
		"Forwarded-For", "X-Forward-For", "Remote-Addr", "X-Http-Host-Override", "X-Nf-Client-Connection-Ip", "X-Vercel-Forwarded-For", "Cloudfront-Viewer-Address", "Incap-Client-Ip",
		"Fastly-Client-Ip", "Fly-Client-Ip", "Do-Connecting-Ip", "X-Envoy-External-Address", "X-Appengine-User-Ip", "X-Azure-Clientip", "X-Azure-Socketip":
		return true
	}
	return strings.HasPrefix(name, "X-Forwarded")
}

// fields checks the settings of a route about header fields and parameters.
func (c *checker) fields(r *Route, at string) {
	if r.UnderscoreHeaders != "" && !slices.Contains(underscoreHeaders, r.UnderscoreHeaders) {
		c.wrong("\""+r.UnderscoreHeaders+"\" is not what to do with a header that an upstream may take for another",
			suggest(r.UnderscoreHeaders, underscoreHeaders), "routes", at, "underscore_headers")
	}
}

// parameters checks how the upstream of a route reads parameters.
func (c *checker) parameters(r *Route, at string) {
	if r.Parameters != "" && !slices.Contains(parameterReadings, r.Parameters) {
		c.wrong("\""+r.Parameters+"\" is not a way to read parameters", suggest(r.Parameters, parameterReadings), "routes", at, "parameters")
	}
}

// proxyHeaders warns of limits that read what only a proxy may tell, if no proxy is trusted.
func (c *checker) proxyHeaders(l *Limit) {
	if len(c.TrustedProxies) > 0 || len(c.Listen.Gateway) == 0 {
		return
	}
	for i, text := range l.reads() {
		name, is := strings.CutPrefix(text, "header.")
		if !is || !IsProxyHeader(textproto.CanonicalMIMEHeaderKey(name)) {
			continue
		}
		path := []string{"limits", l.Name, "cost"}
		if i < len(l.Key) {
			path = []string{"limits", l.Name, "key"}
		}
		c.warn(text+" is never there: such headers are believed only from trusted_proxies, and there are none",
			"add trusted_proxies with the proxies in front, or use client.ip", path...)
	}
}
