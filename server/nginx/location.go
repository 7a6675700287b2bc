package nginx

import (
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/weirflow/weir/internal/httpsyntax"
)

// route is one match of a location.
type route struct {
	from     Position
	match    string // the path
	rank     int    // exact first, then regular expressions, then prefixes
	length   int    // of nginx's prefix
	exact    bool
	upstream string
	path     string // upstream_path
	backup   string // the upstream with the backup servers; empty for none
	streams  bool   // request bodies are not buffered
	respond  *response
	limits   []used
	status   int
	fields   []field
	body     size
	// the path without the final slash, which nginx redirects to a location that passes requests on;
	// otherwise empty
	slash string
	// the location is for requests of nginx itself alone
	internal bool
	// paths of the route
	ignoreCase, ignoreSlash bool
}

// used is a limit of a route, by its position in the policy, and the methods that it applies to;
// without methods, all.
type used struct {
	limit   int
	methods []string
}

// field is an add_header.
type field struct {
	name, value string
	always      bool
}

// Ranks of the routes of a server.
const (
	rankExact = iota
	rankFirst
	rankPrefix
)

// locations converts the locations of a block, including nested ones.
func (c *converter) locations(s *server, block []Directive, inherited level, all []Directive) error {
	for _, d := range block {
		if d.Name != "location" {
			continue
		}
		here := inherited
		if err := c.level(&here, d.Block); err != nil {
			return err
		}
		if err := c.locations(s, d.Block, here, all); err != nil {
			return err
		}
		c.errorPages(d.Block, all)
		r, ok := c.matches(s, d)
		if !ok {
			if strings.HasPrefix(first(d.Args), "@") {
				for _, in := range d.Block {
					c.leave(in, "location")
				}
			}
			continue
		}
		r.body = here.body
		for _, in := range d.Block {
			if in.Name != "rewrite" { // answer looks at it
				c.leave(in, "location")
			}
		}
		if !passesOn(d) {
			r.slash = ""
		}
		if err := c.content(&r, s, d, &here, all); err != nil {
			return err
		}
		c.fieldsOf(&r, here)
		s.routes = append(s.routes, r)
	}
	return nil
}

// passesOn reports whether a location has a directive like proxy_pass.
func passesOn(d Directive) bool {
	return slices.ContainsFunc(d.Block, func(in Directive) bool { return strings.HasSuffix(in.Name, "_pass") })
}

// content determines where a location's requests go, and which limits apply to them. nginx evaluates
// limits in its preaccess phase: after internal, return and rewrite, whose responses are charged to
// no limit, and before allow, deny and auth_..., whose responses are.
func (c *converter) content(r *route, s *server, d Directive, l *level, all []Directive) error {
	if i := slices.IndexFunc(d.Block, func(in Directive) bool { return in.Name == "internal" }); i >= 0 {
		r.internal, r.respond = true, &response{from: d.Block[i].Position, status: 404}
		c.accelerated(d, all)
		return nil
	}
	if answer, ok := c.answer(s, d, *l); ok {
		r.respond = &answer
		return nil
	}
	c.trusts(l, d.Position)
	if why, status := refusesAll(l.refuses); status != 0 {
		r.respond = &response{from: d.Position, status: status}
		if why != "" {
			c.critical(d.Position, "location %s: the gateway cannot look at %s, and refuses all requests with %d", strings.Join(d.Args, " "), why, status)
		}
		c.limited(r, s, *l)
		return nil
	}
	for _, in := range l.refuses {
		if in.Name == "deny" {
			c.critical(in.Position, "deny %s is left out: the gateway lets them in; a ban at the admin address refuses them (weir ban)", first(in.Args))
		}
	}
	for _, in := range d.Block {
		if in.Name == "try_files" && fallback(d) == "" {
			c.triesFiles(in, all)
		}
	}
	at, from := d, *l
	if name := fallback(d); name != "" {
		if i := slices.IndexFunc(all, func(o Directive) bool { return o.Name == "location" && slices.Equal(o.Args, []string{name}) }); i >= 0 {
			c.note(d.Position, "location %s: try_files serves no files here, and everything goes to %s", strings.Join(d.Args, " "), name)
			at = all[i]
			if err := c.level(&from, at.Block); err != nil {
				return err
			}
			if len(l.requests) > 0 { // nginx evaluates limits once, before it looks for files
				from.requests = l.requests
			}
			if len(l.conns) > 0 {
				from.conns = l.conns
			}
		}
	}
	if fallback(d) != "" {
		if c.endsThere(r, s, d, at, l, &from) {
			return nil
		}
	}
	c.proxied(r, d, at, from)
	c.limited(r, s, from)
	return nil
}

// endsThere looks for what ends a request in the named location of a try_files, before it is passed on. Its
// return and rewrite come after the limits of the first location, and before its own.
func (c *converter) endsThere(r *route, s *server, d, at Directive, first, l *level) bool {
	if answer, ok := c.answer(s, at, *l); ok {
		r.respond = &answer
		c.limited(r, s, *first)
		return true
	}
	why, status := refusesAll(l.refuses)
	if status == 0 {
		return false
	}
	r.respond = &response{from: at.Position, status: status}
	if why != "" {
		c.critical(at.Position, "location %s: the gateway cannot look at %s, and refuses all requests with %d", strings.Join(d.Args, " "), why, status)
	}
	c.limited(r, s, *l)
	return true
}

// answer returns the response of a location with a return, or with a rewrite that redirects.
func (c *converter) answer(s *server, d Directive, l level) (response, bool) {
	for _, in := range d.Block {
		switch in.Name {
		case "rewrite":
			if r, ok := c.rewritten(s, in, l); ok {
				return r, true
			}
		case "return":
			if r, ok := c.returned(s, in, l); ok {
				return r, true
			}
			return response{from: in.Position, status: 404}, true
		}
	}
	return response{}, false
}

// refusesAll says why the gateway has to refuse all requests, and with which status; 0 if it need
// not. A plain deny all is no problem.
func refusesAll(refuses []Directive) (why string, status int) {
	denies := slices.ContainsFunc(refuses, func(in Directive) bool { return in.Name == "deny" && first(in.Args) == "all" })
	for i, in := range refuses {
		arg := first(in.Args)
		switch {
		case in.Name == "deny" && arg == "all" && i == 0:
			return "", 403
		case strings.HasPrefix(in.Name, "auth_") && arg != "off":
			return in.Name, 403
		case denies && (in.Name == "deny" || in.Name == "allow" && arg != "all"):
			return "allow and deny", 403
		case in.Name == "allow":
			return "", 0
		}
	}
	return "", 0
}

// fallback returns the named location of a try_files.
func fallback(d Directive) string {
	for _, in := range d.Block {
		if in.Name == "try_files" && len(in.Args) > 0 {
			if last := in.Args[len(in.Args)-1]; strings.HasPrefix(last, "@") {
				return last
			}
		}
	}
	return ""
}

// literal matches regular expressions that stand for a plain text: the beginning of a path, a whole
// path, one with or without a final slash, or one and everything below it.
var literal = regexp.MustCompile(`^\^(/(?:[A-Za-z0-9_/-]|\\\.)*?)(|\$|/\?\$|\((?:\?:)?/\|\$\))$`)

// matches converts the path of a location to the match of a route. It reports false for a location
// that is left out.
func (c *converter) matches(s *server, d Directive) (r route, ok bool) {
	r.from = d.Position
	modifier, path := "", ""
	switch len(d.Args) {
	case 1:
		path = d.Args[0]
		if i := strings.IndexAny(path, "/@"); i > 0 { // without a space, as in =/x
			modifier, path = path[:i], path[i:]
		}
	case 2:
		modifier, path = d.Args[0], d.Args[1]
	}
	out := func(why string) (route, bool) {
		switch {
		case !s.limits && passesOn(d) && !passesAll(s.d.Block):
			c.critical(d.Position, "location %s is left out: %s; its requests do not reach its upstream", strings.Join(d.Args, " "), why)
		case s.limits:
			c.critical(d.Position, "location %s is left out: %s; its requests meet the limits of another location, or none", strings.Join(d.Args, " "), why)
		default:
			c.note(d.Position, "location %s is left out: %s", strings.Join(d.Args, " "), why)
		}
		return r, false
	}
	if found := literal.FindStringSubmatch(path); strings.HasPrefix(modifier, "~") && found != nil {
		r.ignoreCase = modifier == "~*"
		modifier, path = "^~", strings.ReplaceAll(found[1], `\.`, ".")
		switch found[2] {
		case "":
		case "$":
			modifier = "="
		case "/?$":
			modifier, r.ignoreSlash = "=", true
		default:
			path, r.ignoreSlash = path+"/", true
		}
		r.rank = rankFirst
	} else {
		// also with ^~: the longest prefix applies, and it comes before regular expressions
		r.rank = rankPrefix
		if modifier == "=" {
			r.rank = rankExact
		}
	}
	r.length = len(path)
	switch {
	case strings.HasPrefix(modifier, "~"):
		return out("a match has no regular expressions")
	case strings.HasPrefix(path, "@"):
		return r, false // only nginx sends requests there: content looks at it
	case modifier != "" && modifier != "=" && modifier != "^~":
		return out(fmt.Sprintf("%q is not known", modifier))
	case !strings.HasPrefix(path, "/"):
		return out("its path does not begin with /")
	case strings.ContainsAny(path, "{}* \t%") || strings.Contains(path, "//") || strings.Contains(path, "/./") || strings.Contains(path, "/../"):
		return out("a match cannot be written for such a path")
	}
	switch below := strings.HasSuffix(path, "/"); {
	case modifier == "=" && below:
		r.match, r.exact = path+"{$}", true
		if r.rank == rankExact {
			r.slash = strings.TrimSuffix(path, "/")
		}
	case modifier == "=":
		r.match, r.exact = path, true
	case below:
		r.match = path
		if r.rank == rankPrefix { // nginx redirects to no regular expression
			r.slash = strings.TrimSuffix(path, "/")
		}
	default:
		r.match = path + "*"
	}
	return r, true
}

// limited adds the limits of a location.
func (c *converter) limited(r *route, s *server, l level) {
	add := func(u use, shadow bool, log string, status int) {
		k := c.keyOf(u.zone, s.label)
		c.used["zone "+u.zone.name] = true
		switch {
		case k.why != "":
			c.critical(u.zone.d.Position, "the zone %s is left out: %s", u.zone.name, k.why)
			c.critical(u.d.Position, "%s of the zone %s is left out: it limits no request", u.d.Name, u.zone.name)
			return
		case k.empty:
			c.note(u.d.Position, "%s of the zone %s is left out: its key is empty here, so that nothing is limited", u.d.Name, u.zone.name)
			return
		}
		r.limits = append(r.limits, used{c.limit(limit{use: u, key: k, shadow: shadow, log: log, status: status}), k.methods})
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

// fieldsOf adds the add_header directives of a level.
func (c *converter) fieldsOf(r *route, l level) {
	for _, d := range l.fields {
		switch {
		case len(d.Args) < 2 || d.Args[1] == "":
		case strings.Contains(d.Args[1], "$"):
			why := "its value has variables in it"
			if strings.Contains(d.Args[1], "$limit_") {
				why = "the RateLimit fields say what limits did"
			}
			c.note(d.Position, "add_header %s is left out: %s", strings.Join(d.Args, " "), why)
		case !httpsyntax.IsToken(d.Args[0]) || strings.ContainsAny(d.Args[1], "\r\n\x00"):
			c.note(d.Position, "add_header %s is left out: it is not a header field", clip(strings.Join(d.Args, " ")))
		default:
			r.fields = append(r.fields, field{d.Args[0], d.Args[1], len(d.Args) > 2 && d.Args[2] == "always"})
		}
	}
}
