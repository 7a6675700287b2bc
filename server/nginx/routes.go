package nginx

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

// place is a group of addresses with the same servers.
type place struct {
	addresses []string
	servers   []*server
	first     *server // the default server, used when no name fits
}

// places groups the addresses that have the same servers.
func (c *converter) places() (all []place) {
	for _, a := range c.addresses {
		p := place{addresses: []string{a.text}}
		for _, s := range c.servers {
			i := slices.IndexFunc(s.bounds, func(b bound) bool { return b.address == a.text })
			if i < 0 {
				continue
			}
			if p.first == nil || s.bounds[i].first {
				p.first = s
			}
			p.servers = append(p.servers, s)
		}
		if p.first == nil {
			continue
		}
		if i := slices.IndexFunc(all, func(o place) bool { return o.first == p.first && slices.Equal(o.servers, p.servers) }); i >= 0 {
			all[i].addresses = append(all[i].addresses, a.text)
			continue
		}
		all = append(all, p)
	}
	return all
}

// routeLines returns the routes of the policy. For each place, servers with plain names come first,
// then names like *.example.com, then the default server.
func (c *converter) routeLines() (lines []string) {
	useful := false
	all := c.places()
	for _, p := range all {
		w := &routes{c: c, seen: map[string]bool{}}
		if len(all) > 1 {
			w.addresses = p.addresses
		}
		wild := slices.ContainsFunc(p.servers, func(s *server) bool { return len(s.wild) > 0 })
		for _, s := range p.servers {
			for _, host := range s.order {
				r := s.hosts[host]
				w.add(host, "/", route{from: r.from, respond: &r})
			}
			if s == p.first && !wild {
				continue
			}
			for _, host := range s.names {
				w.server(s, host)
			}
		}
		w.wild(p)
		w.server(p.first, "")
		lines = append(lines, w.lines...)
		for _, s := range p.servers {
			useful = useful || s.always != nil || len(s.hosts) > 0 || slices.ContainsFunc(s.routes, func(r route) bool { return r.upstream != "" })
			if s != p.first && len(s.names)+len(s.wild)+len(s.hosts) == 0 {
				c.critical(s.d.Position, "the server is left out, with its limits: it has no name, and is not the first at its address")
			}
		}
	}
	if !useful {
		c.critical(Position{c.name, 1, 1}, "there is no route to an upstream: nothing is passed on")
	}
	return lines
}

// routes collects the lines of routes.
type routes struct {
	c         *converter
	addresses []string        // the addresses that they apply to; empty: all
	seen      map[string]bool // matches so far: of two equal ones, the first applies
	lines     []string
}

// wild adds the servers with names like *.example.com, the longest name first.
func (w *routes) wild(p place) {
	type named struct {
		host string
		of   *server
	}
	var all []named
	for _, s := range p.servers {
		for _, host := range s.wild {
			all = append(all, named{host, s})
		}
	}
	slices.SortStableFunc(all, func(a, b named) int { return cmp.Compare(len(b.host), len(a.host)) })
	for _, n := range all {
		w.server(n.of, n.host)
	}
}

// server adds the routes of a server for one host. nginx chooses the exact location, otherwise the
// first regular expression, otherwise the longest prefix.
func (w *routes) server(s *server, host string) {
	if s.always != nil {
		w.add(host, "/", route{from: s.always.from, respond: s.always})
		return
	}
	all := slices.Clone(s.routes)
	slices.SortStableFunc(all, func(a, b route) int {
		if a.rank != b.rank || a.rank != rankPrefix {
			return cmp.Compare(a.rank, b.rank)
		}
		return cmp.Compare(b.length, a.length)
	})
	// a location of its own, = /x or /x, comes before the redirect from /x to /x/
	own := func(path string) bool {
		return slices.ContainsFunc(all, func(r route) bool { return r.match == path || r.match == path+"*" })
	}
	for _, r := range all {
		if r.slash != "" && !own(r.slash) {
			to := &response{status: 301, redirect: r.slash + "/{?query}"}
			if r.internal {
				to = r.respond
			}
			w.add(host, r.slash, route{from: r.from, respond: to})
		}
		w.methods(host, r)
	}
}

// methods adds a route for each method that has limits of its own, and a route for all others.
func (w *routes) methods(host string, r route) {
	var methods []string
	for _, u := range r.limits {
		for _, m := range u.methods {
			if !slices.Contains(methods, m) {
				methods = append(methods, m)
			}
		}
	}
	for _, m := range append(methods, "") {
		one := r
		one.limits = nil
		for _, u := range r.limits {
			if len(u.methods) == 0 || slices.Contains(u.methods, m) {
				one.limits = append(one.limits, u)
			}
		}
		if m == "" {
			w.add(host, r.match, one)
			continue
		}
		w.add(m+" "+host, r.match, one)
	}
}

// add writes a route. It leaves out a match that occurred before, which would never be reached.
func (w *routes) add(host, path string, r route) {
	match := host + path
	ignores := pathsText(r)
	if w.seen[match+ignores] {
		return
	}
	w.seen[match+ignores] = true
	one := &writer{}
	one.from("  - match: "+quote(match), r.from)
	if len(w.addresses) == 1 {
		one.line("    address: %s", quote(w.addresses[0]))
	} else if len(w.addresses) > 1 {
		one.line("    address: [%s]", quotes(w.addresses))
	}
	if ignores != "" {
		one.line("    paths: %s", ignores)
	}
	if r.respond != nil {
		one.line("    respond: %s", *r.respond)
	} else {
		one.line("    upstream: %s", quote(r.upstream))
		if r.path != "" {
			one.line("    upstream_path: %s", quote(r.path))
		}
		if r.backup != "" {
			one.line("    failed: { upstream: %s }", quote(r.backup))
		}
		if r.streams {
			one.line("    buffer_request: off")
		}
	}
	var names []string
	for _, u := range r.limits {
		names = append(names, w.c.limits[u.limit].name)
	}
	if len(names) > 0 {
		one.line("    limits: [%s]", quotes(names))
		if r.status != 0 {
			one.line("    refused: { status: %d }", r.status)
		}
	}
	if top := w.c.maxBody; r.respond == nil && top != nil && r.body.bytes != top.bytes {
		if r.body.bytes == 0 {
			one.from("    max_body: none", r.body.from)
		} else {
			one.from("    max_body: "+bytesText(r.body.bytes), r.body.from)
		}
	}
	if len(r.fields) > 0 {
		one.line("    add_headers: { %s }", fieldsText(r.fields))
	}
	w.lines = append(w.lines, strings.TrimSuffix(one.String(), "\n"))
}

// pathsText returns which paths a location takes for one; empty if none.
func pathsText(r route) string {
	var all []string
	if r.ignoreCase {
		all = append(all, "ignore_case: true")
	}
	if r.ignoreSlash {
		all = append(all, "ignore_trailing_slash: true")
	}
	if len(all) == 0 {
		return ""
	}
	return "{ " + strings.Join(all, ", ") + " }"
}

func fieldsText(fields []field) string {
	var all []string
	seen := map[string]bool{}
	for _, f := range fields {
		if seen[f.name] {
			continue
		}
		seen[f.name] = true
		value := quote(f.value)
		if f.always {
			value = fmt.Sprintf("{ value: %s, always: true }", value)
		}
		all = append(all, quote(f.name)+": "+value)
	}
	return strings.Join(all, ", ")
}
