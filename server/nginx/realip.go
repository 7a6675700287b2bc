package nginx

import (
	"net/netip"
	"slices"
	"strings"
)

// proxies holds set_real_ip_from, real_ip_header and real_ip_recursive of one level.
type proxies struct {
	trusted   []string
	from      []Position
	header    string // of real_ip_header
	recursive bool
}

// add adds the directives of a level to the inherited settings. As in nginx, a level with a
// set_real_ip_from of its own inherits none.
func (p *proxies) add(c *converter, block []Directive) {
	var trusted []string
	var from []Position
	own := false
	for _, d := range block {
		switch arg := first(d.Args); d.Name {
		case "set_real_ip_from":
			own = true
			if _, err := netip.ParsePrefix(arg); err != nil {
				if _, err := netip.ParseAddr(arg); err != nil {
					c.critical(d.Position, "set_real_ip_from %s is left out: trusted_proxies are addresses and prefixes, and clients behind it are one client now", arg)
					continue
				}
			}
			if !slices.Contains(trusted, arg) {
				trusted, from = append(trusted, arg), append(from, d.Position)
			}
		case "real_ip_header":
			p.header = arg
		case "real_ip_recursive":
			p.recursive = arg == "on"
		}
	}
	if own {
		p.trusted, p.from = trusted, from
	}
}

// clientHeader returns the policy's client_header; empty for the default.
func (p *proxies) clientHeader() string {
	switch strings.ToLower(p.header) {
	case "":
		return "X-Real-IP" // nginx's default
	case "x-forwarded-for", "proxy_protocol":
		return ""
	}
	return p.header
}

// same reports whether clients get the same addresses by both settings.
func (p *proxies) same(o *proxies) bool {
	if len(p.trusted) == 0 && len(o.trusted) == 0 {
		return true
	}
	return strings.EqualFold(p.header, o.header) && p.recursive == o.recursive && len(p.trusted) == len(o.trusted) &&
		!slices.ContainsFunc(p.trusted, func(t string) bool { return !slices.Contains(o.trusted, t) })
}

// trusting is the proxies of a location.
type trusting struct {
	proxies
	at      Position
	limited bool
}

// trusts records the proxies of a location or a server.
func (c *converter) trusts(l *level, at Position) {
	c.trusting = append(c.trusting, trusting{l.proxies, at, len(l.requests)+len(l.conns) > 0})
}

// joinProxies determines the policy's trusted_proxies, which are the same for all locations. Where
// locations differ, only proxies that all of them trust remain: with any other, clients that reach a
// location directly could choose the address that they are limited by.
func (c *converter) joinProxies() {
	all := slices.Clone(c.trusting)
	if slices.ContainsFunc(all, func(t trusting) bool { return t.limited }) {
		all = slices.DeleteFunc(all, func(t trusting) bool { return !t.limited })
	}
	if len(all) == 0 {
		return // the proxies of http
	}
	c.proxies = all[0].proxies
	p := &c.proxies
	p.trusted, p.from = slices.Clone(p.trusted), slices.Clone(p.from)
	for _, t := range all[1:] {
		if t.same(&all[0].proxies) {
			continue
		}
		const text = "set_real_ip_from, real_ip_header or real_ip_recursive differ from line %d: a policy has one list of trusted_proxies, and this one holds the proxies that are trusted in both places"
		if t.limited {
			c.critical(t.at, text, all[0].at.Line)
		} else {
			c.note(t.at, text, all[0].at.Line)
		}
		if p.header == "" {
			p.header = t.header
		}
		for i := 0; i < len(p.trusted); i++ {
			if !slices.Contains(t.trusted, p.trusted[i]) {
				p.trusted, p.from = slices.Delete(p.trusted, i, i+1), slices.Delete(p.from, i, i+1)
				i--
			}
		}
	}
}

// checkProxies notes where the addresses of clients come from elsewhere than in nginx.
func (c *converter) checkProxies() {
	p := &c.proxies
	behind := slices.IndexFunc(c.addresses, func(a address) bool { return a.proxy })
	switch byProtocol := strings.EqualFold(p.header, "proxy_protocol"); {
	case byProtocol && behind < 0:
		c.note(first(p.from), "real_ip_header proxy_protocol is left out: no address has proxy_protocol")
	case !byProtocol && behind >= 0:
		c.critical(c.addresses[behind].from, "listen ... proxy_protocol: clients are limited by the address that the balancer tells; in nginx by the balancer's, as real_ip_header is not proxy_protocol")
	}
	if len(p.trusted) > 0 && !p.recursive && p.clientHeader() == "" && !strings.EqualFold(p.header, "proxy_protocol") {
		text := "real_ip_recursive is off: nginx takes the last address of %s, and Weir the last that is not one of trusted_proxies"
		if slices.ContainsFunc(c.trusting, func(t trusting) bool { return t.limited }) {
			c.critical(p.from[0], text+", so that clients in %s can choose theirs", p.header, strings.Join(p.trusted, ", "))
		} else {
			c.note(p.from[0], text, p.header)
		}
	}
}
