package policy

import (
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Paths says how the upstream of a route reads paths. Upstreams serve some paths alike: for Express,
// /checkout, /checkout/ and /CHECKOUT are one. A route matches all of them only if Paths says so,
// and a limit whose key has the path then counts them as one.
type Paths struct {
	IgnoreCase          Choice // default: No, and Check warns if requests could pass limits so
	IgnoreTrailingSlash Choice // the same
	IgnoreExtension     Choice // /checkout.json is /checkout; default: No
	// /checkout;x=1 is /checkout. default: No, and such a request is ambiguous. With No, it is not.
	IgnoreSemicolons Choice
	// Ambiguous says what happens to a request that some upstreams read as one for this route, while
	// another route matches it that protects less: "refuse" or "allow"; default: refuse.
	Ambiguous string
}

// A Choice is Yes, No, or not made.
type Choice uint8

// The values of a Choice.
const (
	Unset Choice = iota
	Yes
	No
)

// String returns the choice as a policy file has it; empty for Unset.
func (c Choice) String() string { return [...]string{"", "true", "false"}[c] }

// What happens to ambiguous requests.
const (
	AmbiguousRefuse = "refuse"
	AmbiguousAllow  = "allow"
)

// paths returns the settings of a route, with those of the policy where it has none.
func (p *Policy) paths(r *Route) Paths {
	all := r.Paths
	for _, c := range []struct{ to, from *Choice }{
		{&all.IgnoreCase, &p.Paths.IgnoreCase}, {&all.IgnoreTrailingSlash, &p.Paths.IgnoreTrailingSlash},
		{&all.IgnoreExtension, &p.Paths.IgnoreExtension}, {&all.IgnoreSemicolons, &p.Paths.IgnoreSemicolons},
	} {
		if *c.to == Unset {
			*c.to = *c.from
		}
	}
	if all.Ambiguous == "" {
		all.Ambiguous = p.Paths.Ambiguous
	}
	return all
}

// guards reports whether limits or a waiting room apply to the requests of a route.
func (r *Route) guards() bool { return len(r.Limits) > 0 || r.Room != "" }

// pathSettings checks settings of paths, of the policy or of a route.
func (c *checker) pathSettings(p Paths, at ...string) {
	if p.Ambiguous != "" && p.Ambiguous != AmbiguousRefuse && p.Ambiguous != AmbiguousAllow {
		c.wrong("\""+p.Ambiguous+"\" is not what to do with an ambiguous path", suggest(p.Ambiguous, []string{AmbiguousRefuse, AmbiguousAllow}),
			append(slices.Clone(at), "paths", "ambiguous")...)
	}
}

// sameText reports whether a segment of a path is that of a pattern.
func (p *pattern) sameText(text, literal string) bool {
	return text == literal || p.paths.IgnoreCase == Yes && strings.EqualFold(text, literal)
}

// isLast reports whether the last segment of a path is that of a pattern, perhaps with an extension.
func (p *pattern) isLast(text, literal string) bool {
	if p.sameText(text, literal) || p.paths.IgnoreExtension != Yes {
		return p.sameText(text, literal)
	}
	for i := range len(text) {
		if text[i] == '.' && p.sameText(text[:i], literal) {
			return true
		}
	}
	return false
}

// mayExtend reports whether the last segment of the pattern may have an extension. For a folder that
// is the list of what is in it (Rails), which a limit on the folder is for. A folder without limits
// says nothing of it.
func (p *pattern) mayExtend() bool {
	return p.tail == tailNone || p.guards && (p.tail == tailBelow || p.tail == tailSlash)
}

// withoutExtension returns the value of a variable without its first dot and what follows, as
// one cuts a path: otherwise each further dot would make another key.
func withoutExtension(text string) string {
	if i := strings.IndexByte(text, '.'); i > 0 {
		return text[:i]
	}
	return text
}

// begin returns how many bytes of a text are the pattern's begins; -1 if it does not begin so.
func (p *pattern) begin(text string) int {
	switch {
	case strings.HasPrefix(text, p.begins):
		return len(p.begins)
	case p.paths.IgnoreCase != Yes:
		return -1
	}
	n := 0
	for range p.begins { // the same letter in another case may have another length
		_, size := utf8.DecodeRuneInString(text[n:])
		n += size
	}
	if !strings.EqualFold(text[:n], p.begins) {
		return -1
	}
	return n
}

// one returns the path of a request as a key has it, in which all paths are equal that the upstream
// serves alike.
func (p *pattern) one(r *request) string {
	path := r.pathFor(p)
	if p.paths.IgnoreTrailingSlash == Yes && len(path) > 1 {
		path = strings.TrimSuffix(path, "/")
	}
	if p.paths.IgnoreExtension == Yes {
		last := strings.LastIndexByte(path, '/') + 1
		if i := strings.IndexByte(path[last:], '.'); i > 0 {
			path = path[:last+i]
		}
	}
	if p.paths.IgnoreCase == Yes {
		path = foldCase(path)
	}
	return path
}

// foldCase returns a text that is the same for all texts that strings.EqualFold takes for equal.
func foldCase(text string) string {
	return strings.Map(func(c rune) rune {
		if 'a' <= c && c <= 'z' || c < 0x80 && (c < 'A' || c > 'Z') {
			return c
		}
		least := c
		for f := unicode.SimpleFold(c); f != c; f = unicode.SimpleFold(f) {
			least = min(least, f)
		}
		return unicode.ToLower(least)
	}, text)
}

// withoutSemicolons returns a path as Java's servers read it: in each segment, a semicolon and what
// follows it are no part of the name.
func withoutSemicolons(path string) string {
	var b strings.Builder
	for i, segment := range strings.Split(path, "/") {
		if i > 0 {
			b.WriteByte('/')
		}
		name, _, _ := strings.Cut(segment, ";")
		b.WriteString(name)
	}
	return b.String()
}

// pathFor returns the normalised path of a request as the upstream of a pattern reads it.
func (r *request) pathFor(p *pattern) string {
	if p.paths.IgnoreSemicolons != Yes || strings.IndexByte(r.Path, ';') < 0 {
		return r.path()
	}
	if r.bare == "" {
		r.bare = normalPath(withoutSemicolons(r.Path))
	}
	return r.bare
}

// onePath returns the path of a request for a key.
func (r *request) onePath() string {
	if r.pattern == nil {
		return r.path()
	}
	return r.pattern.one(r)
}
