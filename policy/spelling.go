package policy

import (
	"fmt"
	"slices"
	"strings"
)

// A limit whose key has the path counts each spelling of a path by itself, unless Paths says which of
// them the upstream serves alike: a client could have a new counter for each request.

// spelling is what the key of a limit of a route tells apart, and the upstream perhaps does not.
type spelling struct {
	limit string
	part  string   // of its key
	path  string   // one that the route matches
	alike []string // others that it matches, with keys of their own
	need  Paths    // the settings by which they have the same key
}

// String says what is wrong.
func (s *spelling) String() string {
	return fmt.Sprintf("requests for %s have counters of their own in the limit %q, whose key has %s, and many upstreams (Express, Rails, ASP.NET, Tomcat) serve them like %s; if yours does not, write false",
		strings.Join(s.alike, " and "), s.limit, s.part, s.path)
}

// spelling looks for spellings that a limit of a route counts by themselves; nil for none.
func (c *checker) spelling(patterns []*pattern, route int) *spelling {
	p, r := patterns[route], &c.Routes[route]
	if p == nil || r.Respond.IsSet() {
		return nil
	}
	s := &spelling{path: p.deepSample()}
	key := func(part part, path string) (value string, is bool) {
		req := p.sampleRequest(path)
		if taker(patterns, req) != route {
			return "", false
		}
		req.pattern = p
		value, _, _ = part.value(req)
		return value, true
	}
	for _, name := range r.Limits {
		l := c.limit(name)
		if l == nil {
			continue
		}
		for _, text := range l.Key {
			part, err := parsePart(text)
			if err != nil || part.kind != partPath && part.kind != partVariable {
				continue
			}
			value, is := key(part, s.path)
			if !is {
				return nil // another route takes it
			}
			for _, v := range respelled(s.path) {
				with := part.kind == partPath || v.setting != ignoreCase // no setting folds the case of a variable
				if other, is := key(part, v.path); !with || !is || other == value || *p.paths.choice(v.setting) != Unset || slices.Contains(s.alike, v.path) {
					continue
				}
				s.limit, s.part, s.alike = name, text, append(s.alike, v.path)
				*s.need.choice(v.setting) = c.alikeOrNot(patterns, route, v.setting)
			}
			if len(s.alike) > 0 {
				return s
			}
		}
	}
	return nil
}

// alikeOrNot returns Yes, or No if the route would then take requests that are another route's: the
// policy itself then says that the upstream tells them apart.
func (c *checker) alikeOrNot(patterns []*pattern, route int, setting string) Choice {
	before := patterns[route]
	with := *before
	*with.paths.choice(setting) = Yes
	if c.samples == nil {
		for _, p := range patterns {
			var both []*request
			if p != nil {
				both = []*request{p.sampleRequest(p.sample()), p.sampleRequest(p.deepSample())}
			}
			c.samples = append(c.samples, both)
		}
	}
	for i, all := range c.samples[route+1:] {
		for _, r := range all {
			if with.matches(r) && !before.matches(r) && taker(patterns, r) == route+1+i {
				return No
			}
		}
	}
	return Yes
}

// taker returns the route that takes a request, or -1.
func taker(patterns []*pattern, r *request) int {
	return slices.IndexFunc(patterns, func(p *pattern) bool { return p != nil && p.matches(r) })
}

// choice returns the choice of a setting.
func (p *Paths) choice(setting string) *Choice {
	switch setting {
	case ignoreCase:
		return &p.IgnoreCase
	case ignoreSlash:
		return &p.IgnoreTrailingSlash
	case ignoreExtension:
		return &p.IgnoreExtension
	}
	return &p.IgnoreSemicolons
}

// deepSample is like sample, with a letter for what the pattern leaves open, so that its case can be
// changed.
func (p *pattern) deepSample() string {
	path := p.sample()
	for i, s := range p.segments {
		if s.name != "" {
			segments := strings.Split(path, "/")
			segments[i+1] = "a"
			path = strings.Join(segments, "/")
		}
	}
	if p.tail == tailBelow || p.tail == tailPrefix {
		path += "a"
	}
	return path
}

// respelled returns other spellings of a path, each with the setting of Paths for it. Extensions are
// left out: only few upstreams ignore them, and with ignore_extension /a.png and /a.jpg have one counter.
func respelled(path string) (all []struct{ path, setting string }) {
	add := func(path, setting string) { all = append(all, struct{ path, setting string }{path, setting}) }
	if !strings.HasSuffix(path, "/") {
		add(path+"/", ignoreSlash)
	}
	segments := strings.Split(path, "/")
	for i := len(segments) - 1; i > 0; i-- {
		with := func(segment string) string {
			return strings.Join(slices.Replace(slices.Clone(segments), i, i+1, segment), "/")
		}
		if segments[i] == "" {
			continue
		}
		if other := otherCase(segments[i]); other != segments[i] {
			add(with(other), ignoreCase)
		}
		add(with(segments[i]+";x=1"), ignoreSemicolons)
	}
	return all
}
