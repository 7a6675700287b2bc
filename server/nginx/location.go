package nginx

import (
	"fmt"
	"net/url"
	"slices"
	"strings"
)

// locations goes through the locations of a block, those inside others too.
func (c *converter) locations(s *server, block []Directive, inherited level) error {
	for _, d := range block {
		if d.Name != "location" {
			continue
		}
		here := inherited
		if err := c.level(&here, d.Block); err != nil {
			return err
		}
		r, ok := c.matches(d)
		if err := c.locations(s, d.Block, here); err != nil {
			return err
		}
		if !ok {
			continue
		}
		for _, in := range d.Block {
			if in.Name != "location" {
				c.leave(in)
			}
		}
		if r.upstream = c.proxied(d); r.upstream == "" {
			continue
		}
		c.limited(&r, s, here)
		s.routes = append(s.routes, r)
	}
	return nil
}

// matches turns what a location stands for into paths. It reports false for one that is left out.
func (c *converter) matches(d Directive) (r route, ok bool) {
	r.from = d.Position
	modifier, path := "", ""
	switch len(d.Args) {
	case 1:
		path = d.Args[0]
		if i := strings.IndexAny(path, "/@"); i > 0 { // written together, as in =/x
			modifier, path = path[:i], path[i:]
		}
	case 2:
		modifier, path = d.Args[0], d.Args[1]
	}
	out := func(why string) (route, bool) {
		c.note(d.Position, "location %s is left out, with its limits: %s", strings.Join(d.Args, " "), why)
		return r, false
	}
	r.length = len(path)
	switch {
	case modifier == "~" || modifier == "~*" || strings.HasPrefix(modifier, "~"):
		return out("a route matches by prefixes, not by regular expressions")
	case strings.HasPrefix(path, "@"):
		return out("only nginx sends requests there")
	case modifier != "" && modifier != "=" && modifier != "^~":
		return out(fmt.Sprintf("%q is not known", modifier))
	case !strings.HasPrefix(path, "/"):
		return out("its path does not begin with /")
	case strings.ContainsAny(path, "{}* \t%") || strings.Contains(path, "//") || strings.Contains(path, "/./") || strings.Contains(path, "/../"):
		return out("a route cannot be written for such a path")
	case modifier == "=" && strings.HasSuffix(path, "/"):
		return out("a match that ends in / is a prefix")
	case modifier == "=":
		r.exact, r.paths = true, []string{path}
	case strings.HasSuffix(path, "/"):
		r.paths = []string{path}
	default:
		r.paths = []string{path, path + "/"}
		c.note(d.Position, "location %s is for %s and what is below it: in nginx also for %s... with more letters", path, path, path)
	}
	return r, true
}

// proxied is the upstream of a location; empty for one that passes nothing on.
func (c *converter) proxied(d Directive) string {
	for _, in := range d.Block {
		if in.Name == "proxy_pass" && len(in.Args) == 1 {
			return c.pass(in, d)
		}
	}
	c.note(d.Position, "location %s is left out, with its limits: it has no proxy_pass, and a gateway passes everything on", strings.Join(d.Args, " "))
	return ""
}

// pass is the upstream that a proxy_pass names.
func (c *converter) pass(d, location Directive) string {
	out := func(why string) string {
		c.note(d.Position, "proxy_pass %s is left out, with the limits of its location: %s", d.Args[0], why)
		return ""
	}
	u, err := url.Parse(d.Args[0])
	switch {
	case strings.Contains(d.Args[0], "$"):
		return out("an upstream is a fixed URL")
	case err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" || strings.HasPrefix(u.Host, "unix:"):
		return out("an upstream is a URL like http://127.0.0.1:9000")
	}
	if path := u.EscapedPath(); path != "" && path != location.Args[len(location.Args)-1] {
		c.note(d.Position, "proxy_pass %s: its path %s is left out: requests are passed on with their own", d.Args[0], path)
	}
	g, known := c.groups[u.Host]
	name, host := u.Host, u.Host
	if known {
		if host = c.address(g); host == "" {
			return out("its upstream has no server that a gateway can reach")
		}
	}
	return c.reach(slug(name), u.Scheme+"://"+host, d, g)
}

// address is that of the first server of an upstream.
func (c *converter) address(g group) (host string) {
	for _, s := range g.servers {
		switch {
		case strings.HasPrefix(s.Args[0], "unix:") || slices.Contains(s.Args, "down") || slices.Contains(s.Args, "backup"):
			c.note(s.Position, "server %s is left out", strings.Join(s.Args, " "))
		case host == "":
			host = s.Args[0]
		default:
			c.note(s.Position, "server %s is left out: an upstream has one address", s.Args[0])
		}
	}
	return host
}

// reach is the upstream of a URL, of which there may be several with the name that it would have.
func (c *converter) reach(name, url string, d Directive, g group) string {
	for i := range c.upstreams {
		if u := &c.upstreams[i]; u.url == url {
			u.from = append(u.from, d.Position)
			return u.name
		}
	}
	name = c.free(name, func(n string) bool {
		return slices.ContainsFunc(c.upstreams, func(u upstream) bool { return u.name == n })
	})
	from := []Position{d.Position}
	if g.d.Name != "" {
		from = append([]Position{g.d.Position}, from...)
	}
	c.upstreams = append(c.upstreams, upstream{name, url, from})
	return name
}

// free is a name that is not taken.
func (c *converter) free(name string, taken func(string) bool) string {
	free := name
	for i := 2; taken(free); i++ {
		free = fmt.Sprintf("%s-%d", name, i)
	}
	return free
}

// slug is a text as a name in a policy.
func slug(text string) string {
	var b strings.Builder
	for _, r := range strings.ToLower(text) {
		if r >= 'a' && r <= 'z' || r >= '0' && r <= '9' || b.Len() > 0 && (r == '.' || r == '_' || r == '-') {
			b.WriteRune(r)
		} else if b.Len() > 0 {
			b.WriteByte('-')
		}
	}
	if s := b.String(); s != "" {
		return s[:min(len(s), 80)]
	}
	return "unnamed"
}

// limited adds the limits of a location.
func (c *converter) limited(r *route, s *server, l level) {
	add := func(u use, shadow bool, log string, status int) {
		k := parseKey(u.zone.key, s.label)
		switch {
		case k.why != "":
			c.note(u.zone.d.Position, "the zone %s is left out: %s", u.zone.name, k.why)
			c.note(u.d.Position, "%s of the zone %s is left out with it", u.d.Name, u.zone.name)
			return
		case k.empty:
			c.note(u.d.Position, "%s of the zone %s is left out: its key is empty here, so that nothing is limited", u.d.Name, u.zone.name)
			return
		}
		r.limits = append(r.limits, c.limit(limit{use: u, key: k, shadow: shadow, log: log, status: status}))
	}
	for _, u := range l.requests {
		add(u, l.reqDry, l.reqLog, 0)
	}
	switch {
	case len(r.limits) > 0 && !l.reqDry:
		r.status = l.reqStatus
	case len(l.conns) > 0 && !l.connDry:
		r.status = l.connStatus
	}
	for _, u := range l.conns {
		status := 0
		if l.connStatus != r.status && !l.connDry {
			status = l.connStatus
		}
		add(u, l.connDry, l.connLog, status)
	}
}

// limit returns the name of a limit of the policy: one for each way in which a zone is used, as the numbers are the limit's.
func (c *converter) limit(l limit) string {
	var sameZone []limit
	for _, known := range c.limits {
		if known.zone != l.zone || !slices.Equal(known.key.parts, l.key.parts) {
			continue
		}
		if known.burst == l.burst && known.delayAfter() == l.delayAfter() && known.most == l.most && known.shadow == l.shadow &&
			known.log == l.log && known.status == l.status {
			return known.name
		}
		sameZone = append(sameZone, known)
	}
	if len(sameZone) > 0 {
		c.note(l.d.Position, "the zone %s is used in %d ways: nginx counts them together, and the policy apart (another is in %v)",
			l.zone.name, len(sameZone)+1, sameZone[0].d.Position)
	}
	if most := int64(50_000_000); l.burst > most { // which takes a limit of one a minute 95 years to serve
		c.note(l.d.Position, "the burst is cut to %d", most)
		l.burst = most
	}
	l.name = c.free(slug(l.zone.name), func(n string) bool {
		return slices.ContainsFunc(c.limits, func(o limit) bool { return o.name == n })
	})
	c.limits = append(c.limits, l)
	return l.name
}
