package policy

import (
	"fmt"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"unicode"
)

// A Variant is a way to write a path that some upstreams serve as they serve the path itself.
type Variant struct {
	Path string // escaped
	What string // the difference, as in "with a final slash"
	Who  string // upstreams that serve it alike
	// the setting of Paths by which the route matches the variant too; empty for none
	Setting string
	// if Setting is empty, a match that a route for the variant could have; empty if no request with
	// this variant passes limits
	Match string
}

// Settings of Paths, as in policy files.
const (
	ignoreCase       = "ignore_case"
	ignoreSlash      = "ignore_trailing_slash"
	ignoreExtension  = "ignore_extension"
	ignoreSemicolons = "ignore_semicolons"
)

// Variants returns the ways to write a path.
func Variants(path string) (all []Variant) {
	first, rest := path, "" // the first segment with its slash, and what follows
	if i := strings.IndexByte(path[1:], '/'); i >= 0 {
		first, rest = path[:i+1], path[i+1:]
	}
	bare := strings.TrimSuffix(path, "/")
	add := func(path, what, who, setting, match string) {
		all = append(all, Variant{path, what, who, setting, match})
	}
	switch {
	case bare == "":
		return nil
	case bare == path:
		add(path+"/", "with a final slash", "Express, Spring, Rails, Laravel, ASP.NET", ignoreSlash, "")
	default:
		add(bare, "without the final slash", "Express, Spring, Rails, Laravel, ASP.NET", ignoreSlash, "")
	}
	if other := otherCase(path); other != path {
		add(other, "in other letters", "Express, ASP.NET, Windows", ignoreCase, "")
	}
	if bare == path {
		for _, extension := range []string{".json", ".html", ".php"} {
			add(path+extension, "with an extension", "Rails, Spring", ignoreExtension, "")
		}
		add(path+"/x", "with a path below it", "PHP (PATH_INFO)", "", bare+"/")
	} else {
		add(bare+".json", "with an extension", "Rails", ignoreExtension, "")
	}
	add(bare+";x=1"+path[len(bare):], "with a parameter after a semicolon", "Tomcat, Jetty, Spring", ignoreSemicolons, "")
	add("/index.php"+path, "below index.php", "PHP frameworks without URL rewriting", "", "/index.php"+path)
	for _, v := range []struct{ path, what, who string }{
		{"/" + path, "with a doubled slash", "nginx, Spring, gunicorn"},
		{bare + "//..", "with a doubled slash before the segment ..", "nginx with merge_slashes off, new URL of Node, Envoy"},
		{"//x" + path, "with a host in front", "new URL of Node"},
		{"/." + path, "with the segment .", "nginx, PHP"},
		{"/x/.." + path, "with the segment ..", "nginx, PHP"},
		{"/x/..;" + path, "with the segment ..;", "Tomcat"},
		{"/x/..%2f" + path[1:], "with the segment .. before an encoded slash", "nginx, gunicorn"},
		{"/%2e" + path, "with an encoded dot", "nginx, PHP"},
		{"/" + encoded(path[1]) + path[2:], "with an encoded letter", "nginx, gunicorn, Rails"},
		{"/%25" + encoded(path[1])[1:] + path[2:], "encoded twice", "a proxy before a server"},
		{"/%2f" + path[1:], "with an encoded slash", "nginx, gunicorn"},
		{`/%5c` + path[1:], "with an encoded backslash", "IIS"},
		{bare + "." + path[len(bare):], "with a dot at the end", "Windows"},
		{bare + "%20" + path[len(bare):], "with a space at the end", "Windows"},
		{bare + "%00" + path[len(bare):], "with a NUL at the end", "servers in C"},
		{bare + "%5c", "with a backslash at the end", "IIS"},
		{bare + "%2f", "with an encoded slash at the end", "gunicorn"},
	} {
		add(v.path, v.what, v.who, "", "")
	}
	if len(rest) > 1 {
		add(first+"%2f"+rest[1:], "with an encoded slash", "nginx, gunicorn", "", "")
		add(first+"/"+rest, "with a doubled slash", "nginx, gunicorn", "", "")
		add(first+"//.."+rest, "with a doubled slash before the segment ..", "nginx with merge_slashes off, new URL of Node, Envoy", "", "")
	}
	return all
}

func encoded(c byte) string { return fmt.Sprintf("%%%02x", c) }

// otherCase returns a path with its letters in the other case. Percent-encoding stays.
func otherCase(path string) string {
	swap := func(c rune) rune {
		if unicode.IsUpper(c) {
			return unicode.ToLower(c)
		}
		return unicode.ToUpper(c)
	}
	parts := strings.Split(path, "%")
	for i, part := range parts {
		n := 0
		if i > 0 {
			n = min(2, len(part))
		}
		parts[i] = part[:n] + strings.Map(swap, part[n:])
	}
	return strings.Join(parts, "%")
}

// A Fate is what becomes of a request for a variant of the path of a route.
type Fate uint8

// The fates.
const (
	FateCounted Fate = iota // a route takes it that protects as much
	FateRefused             // it is ambiguous
	FateNoRoute             // no route takes it, or one that passes nothing on
	FatePasses              // a route takes it that protects less, and passes it on
)

// String returns the fate in words.
func (f Fate) String() string {
	return [...]string{"is counted", "is refused as ambiguous", "reaches no upstream", "PASSES"}[f]
}

// Fate returns what becomes of a request that the upstream serves like one for a route, and the route
// that takes it.
func (e *Engine) Fate(route int, req Request) (Fate, int) {
	m := e.Match(req)
	switch {
	case m.Route == route:
		return FateCounted, route
	case m.Ambiguous:
		return FateRefused, m.Route
	case m.Route < 0 || e.policy.Routes[m.Route].Respond.IsSet():
		return FateNoRoute, m.Route
	case e.policy.lacks(m.Route, route, false):
		return FatePasses, m.Route
	}
	return FateCounted, m.Route
}

// Sample returns a request for a route.
func (e *Engine) Sample(route int) Request {
	p := &e.routes[route].pattern
	return p.sampleRequest(p.sample()).Request
}

// LastLiteral returns which segment of the match of a route is the last that is no variable, counted
// from 1; 0 if there is none.
func (e *Engine) LastLiteral(route int) int {
	all := e.routes[route].pattern.segments
	for i := len(all); i > 0; i-- {
		if all[i-1].name == "" {
			return i
		}
	}
	return 0
}

// Protects reports whether a route passes requests on, and something applies to them: a limit or a
// waiting room.
func (e *Engine) Protects(route int) bool {
	r := &e.policy.Routes[route]
	return !r.Respond.IsSet() && r.guards()
}

// Repair adds the settings by which a route matches a variant too, or by which the gateway refuses it.
// so are those that are added until now. ok is false if no setting does that.
func (v Variant) Repair(so Paths, p *Policy, route int) (repaired Paths, ok bool) {
	now := p.paths(&p.Routes[route])
	switch {
	case v.Setting == ignoreCase:
		so.IgnoreCase = Yes
	case v.Setting == ignoreSlash:
		so.IgnoreTrailingSlash = Yes
	case v.Setting == ignoreExtension:
		so.IgnoreExtension = Yes
	case v.Setting == ignoreSemicolons:
		so.IgnoreSemicolons = Yes
	case v.Match == "" && now.Ambiguous == AmbiguousAllow:
		so.Ambiguous = AmbiguousRefuse
	case v.Match == "" && now.IgnoreTrailingSlash != Yes: // an encoded slash at the end, or ..
		so.IgnoreTrailingSlash = Yes
	default:
		return so, false
	}
	return so, true
}

// sample returns a path that a pattern matches, escaped.
func (p *pattern) sample() string {
	var b strings.Builder
	for _, s := range p.segments {
		b.WriteString("/")
		if s.name != "" {
			b.WriteString("1")
		} else {
			b.WriteString(url.PathEscape(s.text))
		}
	}
	if p.tail != tailNone || len(p.segments) == 0 {
		b.WriteString("/" + url.PathEscape(p.begins))
	}
	return b.String()
}

// sampleRequest returns a request that a pattern matches.
func (p *pattern) sampleRequest(path string) *request {
	r := &request{Request: Request{Method: p.method, Host: p.host, Path: path}}
	if r.Method == "" {
		r.Method = "GET"
	}
	if strings.HasPrefix(r.Host, ".") {
		r.Host = "www" + r.Host
	}
	if r.Host == "" {
		r.Host = "any.invalid"
	}
	if len(p.addresses) > 0 {
		r.Listener = p.addresses[0]
	}
	return r
}

// variants warns of requests that pass what protects a route by writing its path in another way: with
// or without a final slash, or in other letters. It also warns of spellings that a limit counts by
// themselves. Both warnings of a route have the same fix.
func (c *checker) variants(patterns []*pattern) {
	find := func(r *request) int { return taker(patterns, r) }
	needs, passing, takers, spelled := map[int]Paths{}, map[int][]string{}, map[int]int{}, map[int]*spelling{}
	for i, p := range patterns {
		if p == nil || find(p.sampleRequest(p.sample())) != i {
			continue
		}
		var need Paths
		for _, v := range Variants(p.sample()) {
			var to *Choice
			switch v.Setting {
			case ignoreCase:
				to = &need.IgnoreCase
			case ignoreSlash:
				to = &need.IgnoreTrailingSlash
			default:
				continue
			}
			if said := p.paths; v.Setting == ignoreCase && said.IgnoreCase != Unset || v.Setting == ignoreSlash && said.IgnoreTrailingSlash != Unset {
				continue
			}
			if j := find(p.sampleRequest(v.Path)); j >= 0 && j != i && c.lacks(j, i, false) {
				passing[i], takers[i], *to = append(passing[i], v.Path), j, Yes
			}
		}
		if spelled[i] = c.spelling(patterns, i); spelled[i] != nil {
			need = spelled[i].need.with(need)
		}
		if need != (Paths{}) {
			needs[i] = need
		}
	}
	fixes := c.FixPaths(needs)
	for i, p := range patterns {
		switch {
		case spelled[i] == nil:
		case len(passing[i]) > 0:
			c.warnOfPaths(spelled[i].String()+"; the next fix repairs this too", PathsFix{}, i)
		default:
			c.warnOfPaths(spelled[i].String(), fixes[i], i)
		}
		if len(passing[i]) > 0 {
			by := takers[i]
			c.warnOfPaths(fmt.Sprintf("requests for %s pass %s: route %d takes them, and many upstreams (Express, Rails, ASP.NET) serve them like %s; if yours does not, write false",
				strings.Join(passing[i], " and "), c.protection(by, i), by+1, p.sample()), fixes[i], i)
		}
	}
}

// warnOfPaths warns of the paths of a route.
func (c *checker) warnOfPaths(message string, fix PathsFix, route int) {
	c.problems = append(c.problems, Problem{Path: []string{"routes", strconv.Itoa(route), "match"}, Message: message, Fix: fix.Line, FixAt: fix.At, Warning: true, Follows: true})
}

// protection says what of a route does not apply to requests for another one.
func (c *checker) protection(by, route int) string {
	o := &c.Routes[route]
	for _, name := range o.Limits {
		if !slices.Contains(c.Routes[by].Limits, name) {
			return fmt.Sprintf("the limit %q", name)
		}
	}
	if o.Room != "" && o.Room != c.Routes[by].Room {
		return fmt.Sprintf("the waiting room %q", o.Room)
	}
	return "its refusal"
}

// Text returns the settings as a policy file has them.
func (p Paths) Text() string {
	var all []string
	for _, s := range []struct {
		name  string
		value string
	}{
		{ignoreCase, p.IgnoreCase.String()}, {ignoreSlash, p.IgnoreTrailingSlash.String()},
		{ignoreExtension, p.IgnoreExtension.String()}, {ignoreSemicolons, p.IgnoreSemicolons.String()}, {"ambiguous", p.Ambiguous},
	} {
		if s.value != "" {
			all = append(all, s.name+": "+s.value)
		}
	}
	return "{ " + strings.Join(all, ", ") + " }"
}
