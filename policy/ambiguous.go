package policy

import (
	"math/bits"
	"slices"
	"strings"
)

// A reading is a way in which an upstream may read a path other than the gateway, which decodes it,
// takes %2F for a slash, and resolves the segments . and .. after that. Its bits are the
// differences.
type reading uint16

const (
	keepsSlashes   reading = 1 << iota // %2F does not separate segments (Express, net/http)
	keepsDots                          // . and .. are names like others (Express)
	keepsEscapes                       // letters and digits are not decoded before routing (Express)
	dropsParams                        // a segment ends at a semicolon (Tomcat, Jetty, Spring)
	takesBackslash                     // \ and %5C separate segments (IIS)
	dropsTails                         // dots and spaces at the end of a segment are dropped (Windows), or what follows a NUL
	decodesTwice                       // as a proxy and a server one after the other do
	keepsDoubles                       // doubled slashes are not one (Express, WSGI, new URL of Node)
	takesHost                          // what follows // at the beginning is a host (new URL of Node)
)

// Bounds of the time that a path takes, as its readings double with each difference. No plain client
// sends a path with more of them.
const (
	mostDifferences = 4
	mostBytes       = 32 << 10 // of all readings together
)

// ambiguous reports whether some upstream could read a request as one for a route that protects more
// than the one that matches it: then the request would pass limits. Such requests are refused, as
// Spring's StrictHttpFirewall does, unless that route allows them.
func (e *Engine) ambiguous(m *Match) bool {
	if !e.uneven || m.Route < 0 {
		return false
	}
	possible := differences(m.request.Path)
	if possible == 0 {
		return false
	}
	if n := bits.OnesCount16(uint16(possible)); n > mostDifferences || len(m.request.Path)<<n > mostBytes {
		return slices.ContainsFunc(e.routes, func(r route) bool { return r.pattern.paths.Ambiguous != AmbiguousAllow })
	}
	for way := possible; way != 0; way = (way - 1) & possible {
		path := way.path(m.request.Path)
		plain := possible&keepsDots == 0 || way&keepsDots != 0
		if e.passes(m, way, path, plain) || way&keepsDoubles != 0 && !plain && e.passes(m, way, withoutDoubles(path), false) {
			return true
		}
	}
	return false
}

// passes reports whether a request, read as one for another path, would be for a route that protects
// more. plain means that no dots are resolved: plain clients send doubled slashes, but no segments of
// dots beside them. Plain ones are refused only if no limit at all would apply, or if what seems to be
// a host hides the route.
func (e *Engine) passes(m *Match, way reading, path string, plain bool) bool {
	other := m.request
	other.normal, other.bare = path, path
	i := e.find(&other)
	if i < 0 || i == m.Route || !e.policy.lacks(m.Route, i, true) {
		return false
	}
	to := &e.routes[i].pattern
	if plain && way&(keepsDoubles|takesHost) != 0 && !e.policy.isFree(m.Route) && (way&takesHost == 0 || to.matches(&m.request)) {
		return false
	}
	return to.paths.Ambiguous != AmbiguousAllow && (way&dropsParams == 0 || to.paths.IgnoreSemicolons != No)
}

// withoutDoubles makes doubled slashes one, as Envoy does after it has resolved dots.
func withoutDoubles(path string) string {
	for strings.Contains(path, "//") {
		path = strings.ReplaceAll(path, "//", "/")
	}
	return path
}

// lacks reports whether requests of one route would pass what protects another one: a limit, its
// waiting room, or a refusal by respond. With enforced, limits that refuse nothing do not matter.
func (p *Policy) lacks(route, other int, enforced bool) bool {
	r, o := &p.Routes[route], &p.Routes[other]
	if r.Respond.IsSet() { // nothing reaches an upstream
		return false
	}
	if o.Respond.IsSet() && o.Respond.StatusCode() >= 400 || o.Room != "" && o.Room != r.Room {
		return true
	}
	return slices.ContainsFunc(o.Limits, func(name string) bool {
		l := p.limit(name)
		return l != nil && !(enforced && l.Shadow) && !slices.Contains(r.Limits, name)
	})
}

// isFree reports whether nothing is enforced on a route. Plain clients send doubled slashes, so that
// these are refused only where no limit at all would apply.
func (p *Policy) isFree(route int) bool {
	r := &p.Routes[route]
	return r.Room == "" && !slices.ContainsFunc(r.Limits, func(name string) bool {
		l := p.limit(name)
		return l != nil && !l.Shadow
	})
}

// isUneven reports whether some route may protect more than another.
func (p *Policy) isUneven() bool {
	for i := range p.Routes {
		r, first := &p.Routes[i], &p.Routes[0]
		if !slices.Equal(r.Limits, first.Limits) || r.Room != first.Room || r.Respond.IsSet() != first.Respond.IsSet() {
			return true
		}
	}
	return false
}

// differences returns the differences that matter for a path.
func differences(path string) (all reading) {
	if !strings.ContainsAny(path, `%;\`) && !strings.Contains(path, "/.") && !strings.Contains(path, "./") && !strings.Contains(path, "//") && !strings.HasSuffix(path, ".") {
		return 0
	}
	decoded := unescape(path, false)
	all = marks(path) | marksOfSegments(decoded)
	if len(path) > 1 && strings.TrimLeft(path[:2], `/\`) == "" {
		all |= takesHost
	}
	if again := unescape(decoded, false); again != decoded {
		all |= decodesTwice | marks(decoded) | marksOfSegments(again)
	}
	return all
}

// marks returns the differences for which the characters of a path give reason.
func marks(path string) (all reading) {
	for i := range len(path) {
		switch c, ok := escapedAt(path, i); {
		case path[i] == ';':
			all |= dropsParams
		case ok && c == ';': // for a server that gets the path decoded by a proxy
			all |= dropsParams | decodesTwice
		case ok && (c == '?' || c == '#'):
			all |= decodesTwice
		case path[i] == '\\' || ok && c == '\\':
			all |= takesBackslash
		case ok && c == '/':
			all |= keepsSlashes
		case ok && isAlphanumeric(c):
			all |= keepsEscapes
		}
	}
	return all
}

// marksOfSegments returns the differences for which the segments of a decoded path give reason.
func marksOfSegments(decoded string) (all reading) {
	if strings.Contains(strings.ReplaceAll(decoded, `\`, "/"), "//") {
		all |= keepsDoubles
	}
	for segment := range strings.FieldsFuncSeq(decoded, func(c rune) bool { return c == '/' || c == '\\' }) {
		name, _, _ := strings.Cut(segment, ";")
		bare := withoutTail(name)
		if bare == "." || bare == ".." {
			all |= keepsDots
		}
		if bare != name {
			all |= dropsTails
		}
	}
	return all
}

// path returns a path in normal form, as an upstream with these differences reads it.
func (way reading) path(path string) string {
	if way&takesHost != 0 {
		path = strings.TrimLeft(path, `/\`)
		path = path[max(0, strings.IndexAny(path+"/", `/\`)):]
	}
	if way&takesBackslash != 0 {
		path = strings.ReplaceAll(path, `\`, "/")
	}
	for i := range 1 + bits.OnesCount16(uint16(way&decodesTwice)) {
		if cut := strings.IndexAny(path, "?#"); i > 0 && cut >= 0 { // for the second server, the path ends here
			path = path[:cut]
		}
		if way&dropsParams != 0 {
			path = withoutSemicolons(path)
		}
		path = way.decode(path)
		if way&takesBackslash != 0 {
			path = strings.ReplaceAll(path, `\`, "/")
		}
	}
	var kept []string
	segments := strings.Split(path, "/")
	for i, s := range segments {
		if way&dropsTails != 0 {
			s = withoutTail(s)
		}
		resolves := way&keepsDots == 0
		switch {
		case s == "" && i > 0 && i < len(segments)-1 && way&keepsDoubles != 0:
			kept = append(kept, "")
			continue
		case s == "" || s == "." && resolves:
		case s == ".." && resolves:
			kept = kept[:max(len(kept)-1, 0)]
		default:
			kept = append(kept, s)
			continue
		}
		if i == len(segments)-1 {
			kept = append(kept, "")
		}
	}
	return "/" + strings.Join(kept, "/")
}

// decode decodes percent-encoding once, but for what the reading keeps.
func (way reading) decode(path string) string {
	b := make([]byte, 0, len(path))
	for i := 0; i < len(path); i++ {
		c, ok := escapedAt(path, i)
		switch {
		case !ok:
			b = append(b, path[i])
			continue
		case c == '/' && way&keepsSlashes != 0, isAlphanumeric(c) && way&keepsEscapes != 0:
			b = append(b, path[i:i+3]...)
		default:
			b = append(b, c)
		}
		i += 2
	}
	return string(b)
}

// escapedAt returns the byte that is percent-encoded at a place of a text.
func escapedAt(text string, i int) (c byte, ok bool) {
	if text[i] != '%' || i+2 >= len(text) || hex(text[i+1]) < 0 || hex(text[i+2]) < 0 {
		return 0, false
	}
	return byte(hex(text[i+1])<<4 | hex(text[i+2])), true
}

func isAlphanumeric(c byte) bool {
	return c >= '0' && c <= '9' || c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z'
}

// withoutTail returns a segment without what follows a NUL, and without dots, spaces and control
// characters at its end. The segments . and .. stay.
func withoutTail(segment string) string {
	segment, _, _ = strings.Cut(segment, "\x00")
	spaceless := strings.TrimRightFunc(segment, func(c rune) bool { return c <= ' ' || c == 0x7f })
	if spaceless == "." || spaceless == ".." {
		return spaceless
	}
	return strings.TrimRightFunc(segment, func(c rune) bool { return c <= ' ' || c == 0x7f || c == '.' })
}
