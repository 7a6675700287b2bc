package policy

import (
	"slices"
	"strconv"
)

// A PathsFix is a line with settings of paths that repairs routes.
type PathsFix struct {
	At   []string // where it belongs in a policy file: paths, or routes, N, paths
	Line string   // like paths: { ignore_case: true }
}

// FixPaths returns the lines by which routes get settings that they lack. needs has these settings by
// the index of the route. A line keeps the settings that are there already.
//
// Routes without paths of their own share the line at the top level, if there is one. Several lines
// can be pasted in any order, as all routes that share one have the same line.
func (p *Policy) FixPaths(needs map[int]Paths) map[int]PathsFix {
	top := p.Paths
	for route, need := range needs {
		if p.Routes[route].Paths == (Paths{}) {
			top = top.with(need)
		}
	}
	shared := p.Paths != (Paths{}) && p.oneUpstream() && p.sameRoutesWith(top)
	all := map[int]PathsFix{}
	for route, need := range needs {
		if own := p.Routes[route].Paths; own != (Paths{}) || !shared {
			all[route] = PathsFix{[]string{"routes", strconv.Itoa(route), "paths"}, "paths: " + own.with(need).Text()}
			continue
		}
		all[route] = PathsFix{[]string{"paths"}, "paths: " + top.Text()}
	}
	return all
}

// with returns the settings with those of others that are set.
func (p Paths) with(others Paths) Paths {
	for _, c := range []struct {
		to   *Choice
		from Choice
	}{
		{&p.IgnoreCase, others.IgnoreCase}, {&p.IgnoreTrailingSlash, others.IgnoreTrailingSlash},
		{&p.IgnoreExtension, others.IgnoreExtension}, {&p.IgnoreSemicolons, others.IgnoreSemicolons},
	} {
		if c.from != Unset {
			*c.to = c.from
		}
	}
	if others.Ambiguous != "" {
		p.Ambiguous = others.Ambiguous
	}
	return p
}

// oneUpstream reports whether all routes that pass requests on lead to the same upstream. What is
// true for one upstream may be false for another.
func (p *Policy) oneUpstream() bool {
	var names []string
	for i := range p.Routes {
		if r := &p.Routes[i]; !r.Respond.IsSet() && !slices.Contains(names, r.Upstream) {
			names = append(names, r.Upstream)
		}
	}
	return len(names) < 2
}

// sameRoutesWith reports whether each route still takes its own requests with other settings at the
// top level. With ignore_case, a route for /pay takes those of a route for /PAY below it.
func (p *Policy) sameRoutesWith(top Paths) bool {
	changed := *p
	changed.Paths = top
	was, is := p.patterns(), changed.patterns()
	taker := func(all []*pattern, r *request) int {
		return slices.IndexFunc(all, func(p *pattern) bool { return p != nil && p.matches(r) })
	}
	for i, to := range was {
		if to == nil {
			continue
		}
		path := to.sample()
		if taker(was, to.sampleRequest(path)) != taker(is, to.sampleRequest(path)) {
			return false
		}
		for j := range i {
			if was[j] != nil && is[j].covers(is[i]) && !was[j].covers(to) {
				return false
			}
		}
	}
	return true
}

// patterns returns the patterns of all routes; nil for a match that is wrong.
func (p *Policy) patterns() []*pattern {
	all := make([]*pattern, len(p.Routes))
	for i := range p.Routes {
		r := &p.Routes[i]
		if c, err := parsePattern(r.Match); err == nil {
			c.addresses, c.paths, c.guards = r.Address, p.paths(r), r.guards()
			all[i] = &c
		}
	}
	return all
}
