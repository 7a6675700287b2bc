package policy

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/weirflow/weir/internal/httpsyntax"
)

// A pattern is the match of a route: [METHOD] [HOST]/PATH. A host may begin with *., for all names
// below it. In the path, {x} is one segment. A final / or {x...} matches everything below. A final
// * matches every path that begins with the text before it. A final /{$} matches only the path that
// ends there.
type pattern struct {
	method    string   // empty: any
	host      string   // empty: any; with a leading dot, all names that end with it
	addresses []string // addresses of the gateway, as in listen; empty: any
	paths     Paths    // which paths are one for the upstream
	guards    bool     // its route has limits or a waiting room
	segments  []segment
	tail      tail
	rest      string // the name of {x...}
	begins    string // the text before the *
}

// tail says what of a path may follow the segments of a pattern.
type tail uint8

const (
	tailNone   tail = iota
	tailBelow       // a slash, and anything
	tailSlash       // a slash, and nothing
	tailPrefix      // a slash, and anything that begins with the pattern's begins
)

// segment is a literal, or a variable if name is set.
type segment struct{ text, name string }

// parsePattern parses a match.
func parsePattern(text string) (pattern, error) {
	var p pattern
	fields := strings.Fields(text)
	switch len(fields) {
	case 1:
	case 2:
		p.method = fields[0]
		if strings.HasPrefix(fields[0], "~") || fields[0] == "^~" {
			return p, fmt.Errorf("%q is written like a location of nginx, and a match has no regular expressions", text)
		}
		if p.method != strings.ToUpper(p.method) || !httpsyntax.IsToken(p.method) {
			return p, fmt.Errorf("%q is not a method: write it like GET, or leave it out for any", p.method)
		}
		fields = fields[1:]
	default:
		return p, fmt.Errorf("%q is not [METHOD] [HOST]/PATH", text)
	}
	host, path, found := strings.Cut(fields[0], "/")
	if !found {
		return p, fmt.Errorf("%q has no path: begin it with /", fields[0])
	}
	if name, wild := strings.CutPrefix(host, "*"); wild && len(name) > 1 && name[0] == '.' {
		host = name
	} else if strings.HasPrefix(host, ".") {
		return p, fmt.Errorf("the host %q is not a name: write *%s for all names below it", host, host)
	}
	p.host = normalHost(host)
	if strings.ContainsAny(host, `^$\|()+?`) {
		return p, fmt.Errorf("%q is not a host: a match has no regular expressions", host)
	}
	if strings.ContainsAny(host, "{}*") {
		return p, fmt.Errorf("the host %q is not a plain name: a * may stand in front alone, like *.example.com", host)
	}
	return p, p.parsePath(path)
}

func (p *pattern) parsePath(path string) error {
	parts := strings.Split(path, "/")
	names := map[string]bool{}
	for i, text := range parts {
		last := i == len(parts)-1
		switch {
		case text == "" && last:
			p.tail = tailBelow
		case text == "{$}" && last:
			p.tail = tailSlash
		case last && strings.HasSuffix(text, "*") && !strings.ContainsAny(text[:len(text)-1], "{}*"):
			p.tail, p.begins = tailPrefix, unescape(text[:len(text)-1], false)
		case text == "" || text == "." || text == "..":
			return fmt.Errorf("the path has a segment %q, which no normalised path has", text)
		case text[0] == '{' && text[len(text)-1] == '}':
			name, rest := strings.CutSuffix(text[1:len(text)-1], "...")
			if !isVariable(name) {
				return fmt.Errorf("%q is not a variable: write {name}, or {name...} at the end", text)
			}
			if names[name] {
				return fmt.Errorf("the variable {%s} is there twice", name)
			}
			names[name] = true
			switch {
			case rest && !last:
				return fmt.Errorf("%q stands for everything below: it must be the last segment", text)
			case rest:
				p.tail, p.rest = tailBelow, name
			default:
				p.segments = append(p.segments, segment{name: name})
			}
		case strings.ContainsAny(text, "{}*"):
			return fmt.Errorf("%q is neither a plain segment nor a variable: a {name} is a whole segment, and a * stands at the end", text)
		default:
			p.segments = append(p.segments, segment{text: unescape(text, false)})
		}
	}
	return nil
}

func isVariable(name string) bool {
	for i := range len(name) {
		if c := name[i]; c != '_' && c != '-' && (c < '0' || c > '9') && (c < 'a' || c > 'z') && (c < 'A' || c > 'Z') {
			return false
		}
	}
	return name != ""
}

// variables returns the names of the pattern's variables.
func (p *pattern) variables() (names []string) {
	for _, s := range p.segments {
		if s.name != "" {
			names = append(names, s.name)
		}
	}
	if p.rest != "" {
		names = append(names, p.rest)
	}
	return names
}

// matches reports whether the pattern matches a request. GET also matches HEAD, as is usual. Methods
// match in any case, as some upstreams read them so (Symfony, Laravel).
func (p *pattern) matches(r *request) bool {
	if p.method != "" && p.method != r.Method && !strings.EqualFold(p.method, r.Method) && (p.method != "GET" || !strings.EqualFold(r.Method, "HEAD")) {
		return false
	}
	if p.host != "" && !hostFits(p.host, r.host()) {
		return false
	}
	if len(p.addresses) > 0 && r.Listener != "" && !slices.Contains(p.addresses, r.Listener) {
		return false
	}
	if p.tail == tailBelow && len(p.segments) == 0 {
		return strings.HasPrefix(r.Path, "/") || r.Path == ""
	}
	return p.walk(r.pathFor(p), nil)
}

// walk matches a normalised path and calls bind for each variable.
func (p *pattern) walk(path string, bind func(name, value string)) bool {
	if path == "" || path[0] != '/' {
		return false
	}
	rest := path[1:]
	for i, s := range p.segments {
		text, after, more := strings.Cut(rest, "/")
		last := i == len(p.segments)-1
		ends := !more || after == "" && p.paths.IgnoreTrailingSlash == Yes
		if text == "" || s.name == "" && !p.sameText(text, s.text) && !(last && ends && p.mayExtend() && p.isLast(text, s.text)) {
			return false
		}
		if s.name != "" && bind != nil {
			if last && ends && p.paths.IgnoreExtension == Yes {
				text = withoutExtension(text)
			}
			bind(s.name, text)
		}
		switch {
		case !more && !last:
			return false
		case !more:
			// The path ends here, so the pattern must end here too, with a slash only if it is ignored.
			if p.rest != "" && bind != nil {
				bind(p.rest, "")
			}
			extended := s.name == "" && !p.sameText(text, s.text)
			return p.tail == tailNone || (extended || p.paths.IgnoreTrailingSlash == Yes) && p.begins == ""
		case last && p.tail == tailNone:
			return ends
		}
		rest = after
	}
	switch p.tail {
	case tailPrefix:
		return p.begin(rest) >= 0
	case tailNone, tailSlash:
		return rest == ""
	}
	if p.rest != "" && bind != nil {
		if p.paths.IgnoreTrailingSlash == Yes {
			rest = strings.TrimSuffix(rest, "/")
		}
		bind(p.rest, rest)
	}
	return true
}

// after returns what of a normalised path follows the literal part of a pattern.
func (p *pattern) after(path string) string {
	rest := path
	for i, s := range p.segments {
		text, _, _ := strings.Cut(rest[1:], "/")
		if i == len(p.segments)-1 && !p.sameText(text, s.text) {
			for n := range len(text) { // an extension
				if text[n] == '.' && p.sameText(text[:n], s.text) {
					text = text[:n]
					break
				}
			}
		}
		rest = rest[1+len(text):]
	}
	if p.tail == tailNone || rest == "" || rest[0] != '/' {
		return rest
	}
	return rest[1+max(p.begin(rest[1:]), 0):]
}

// hostFits reports whether a host equals the one of a pattern, or is below it.
func hostFits(pattern, host string) bool {
	if pattern[0] != '.' {
		return host == pattern
	}
	return len(host) > len(pattern) && strings.HasSuffix(host, pattern)
}

// literal returns the literal part of a pattern's path, which the upstream_path of a route
// replaces. ok is false for a pattern with variables.
func (p *pattern) literal() (text string, ok bool) {
	for _, s := range p.segments {
		if s.name != "" {
			return "", false
		}
		text += "/" + s.text
	}
	if p.tail != tailNone {
		text += "/" + p.begins
	}
	return text, true
}

// covers reports whether p matches every request that q matches.
func (p *pattern) covers(q *pattern) bool {
	if p.method != "" && p.method != q.method && (p.method != "GET" || q.method != "HEAD") {
		return false
	}
	if p.host != "" && (q.host == "" || p.host != q.host && !hostFits(p.host, strings.TrimPrefix(q.host, "."))) {
		return false
	}
	if len(p.addresses) > 0 && (len(q.addresses) == 0 || slices.ContainsFunc(q.addresses, func(a string) bool { return !slices.Contains(p.addresses, a) })) {
		return false
	}
	if len(p.segments) == 0 && p.tail == tailBelow {
		return true
	}
	if len(p.segments) > len(q.segments) || !p.tailCovers(q) || q.paths.IgnoreCase == Yes && p.paths.IgnoreCase != Yes ||
		q.paths.IgnoreTrailingSlash == Yes && p.paths.IgnoreTrailingSlash != Yes || q.paths.IgnoreExtension == Yes && p.paths.IgnoreExtension != Yes ||
		q.paths.IgnoreSemicolons == Yes && p.paths.IgnoreSemicolons != Yes {
		return false
	}
	for i, s := range p.segments {
		if s.name == "" && (q.segments[i].name != "" || !p.sameText(q.segments[i].text, s.text)) {
			return false
		}
	}
	return true
}

// tailCovers reports whether the rest of the path that q allows is allowed by p, too.
func (p *pattern) tailCovers(q *pattern) bool {
	same, slash := len(p.segments) == len(q.segments), p.paths.IgnoreTrailingSlash == Yes
	switch p.tail {
	case tailNone, tailSlash:
		return same && (q.tail == p.tail || slash && (q.tail == tailNone || q.tail == tailSlash))
	case tailPrefix:
		if !same {
			next := q.segments[len(p.segments)]
			return p.begins == "" || next.name == "" && p.begin(next.text) >= 0
		}
		return q.tail == tailPrefix && p.begin(q.begins) >= 0 || p.begins == "" && (q.tail != tailNone || slash)
	}
	return !same || q.tail != tailNone || slash // /a/ does not match /a
}

// request is a Request with values that were derived from it, while it is decided.
type request struct {
	Request
	pattern  *pattern // of the route
	php      bool     // the upstream of the route reads parameters as PHP does
	normal   string
	bare     string // the normalised path without semicolons and what follows them
	hostName string
	who      identity
	asked    bool   // who was looked up
	lacking  *limit // needs to know more of the customer; nil for none
	// whether the API key is valid could not be found out
	unverified bool
	banned     time.Duration // how long the ban that applies to the request still lasts
	body       *requestBody  // nil if it has none, or was not read
	unread     bool          // the limits are evaluated before the body is read, and count no grants
	upstreams  Upstreams     // knows whether the upstream of the route has a place; nil if nobody does
	named      *namedAsks    // the limits that were asked for by name, with their keys; nil for a request to a route
}

// path returns the normalised path.
func (r *request) path() string {
	if r.normal == "" {
		r.normal = normalPath(r.Path)
	}
	return r.normal
}

// uri returns the path and the query as the client sent them.
func (r *request) uri() string {
	if r.Query == "" {
		return r.Path
	}
	return r.Path + "?" + r.Query
}

// host returns the host in lower case, without a port.
func (r *request) host() string {
	if r.hostName == "" {
		r.hostName = normalHost(r.Host)
	}
	return r.hostName
}

// variable returns the value of a variable of the route's match.
func (r *request) variable(name string) (value string, present bool) {
	if r.pattern == nil {
		return "", false
	}
	r.pattern.walk(r.pathFor(r.pattern), func(n, v string) {
		if n == name {
			value, present = v, true
		}
	})
	return value, present
}

// normalPath decodes a path, and removes doubled slashes and the segments . and .. as most upstreams
// do. Otherwise, /a/%2e%2e/b could bypass a limit on /b. Engine.ambiguous looks at the upstreams that
// read such paths in another way.
func normalPath(path string) string {
	if isNormal(path) {
		return path
	}
	return reading(0).path(path)
}

// isNormal reports that normalPath would change nothing. It may report false for a path that is
// normal.
func isNormal(path string) bool {
	if path == "" || path[0] != '/' {
		return false
	}
	for i := range len(path) {
		switch path[i] {
		case '%':
			return false
		case '/':
			if i+1 < len(path) && (path[i+1] == '/' || path[i+1] == '.') {
				return false
			}
		}
	}
	return true
}

// normalHost returns a host in lower case, without a port and a final dot.
func normalHost(host string) string {
	if i := strings.LastIndexByte(host, ':'); i >= 0 && strings.IndexByte(host[i:], ']') < 0 && (host[0] == '[' || strings.IndexByte(host, ':') == i) {
		host = host[:i]
	}
	return strings.ToLower(strings.TrimSuffix(host, "."))
}
