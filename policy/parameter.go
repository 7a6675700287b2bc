package policy

import "strings"

// How the upstream of a route reads the names of query parameters.
const (
	ParametersStrict = "strict" // as they are; a name that some upstream reads as another one counts as that one, too
	ParametersPHP    = "php"    // as PHP does: sku.id is sku_id
)

var parameterReadings = []string{ParametersStrict, ParametersPHP}

// queryValue finds a parameter in a raw query. A parameter that occurs more than once is present,
// repeated, and has no value. Nobody knows which of its values the upstream uses, and if one were picked
// here, a client could choose its limit by adding another. For the same reason, an alias counts as
// an occurrence: a parameter that some upstream takes for this one. With php, only those count that
// PHP takes for it, and one of them alone is the parameter.
func queryValue(query, name string, php bool) (value string, present, repeated bool) {
	for pair := range strings.SplitSeq(query, "&") {
		k, v, _ := strings.Cut(pair, "=")
		switch {
		case php:
			is, isArray := phpName(k, name)
			if isArray || is && present {
				return "", true, true
			}
			if is {
				value, present = unescapeQuery(v), true
			}
			continue
		case k == name || unescapeQuery(k) == name:
			if present || strings.IndexByte(v, ';') >= 0 { // which separates parameters for some
				return "", true, true
			}
			value, present = unescapeQuery(v), true
			continue
		case isAlias(k, name), strings.IndexByte(pair, ';') >= 0 && hidesParameter(pair, name):
			return "", true, true
		}
	}
	return value, present, false
}

// hidesParameter reports whether a parameter stands behind a semicolon, which once separated
// parameters as & does.
func hidesParameter(pair, name string) bool {
	for part := range strings.SplitSeq(pair, ";") {
		k, _, _ := strings.Cut(part, "=")
		if unescapeQuery(k) == name || isAlias(k, name) {
			return true
		}
	}
	return false
}

// isAlias reports whether some upstream takes a raw name, which is another, for the name of a
// parameter: without regard to case (ASP.NET), with dots, spaces and brackets for underscores, cut at
// a NUL (PHP), with spaces around it, or as an array or an object with one element (PHP, Rails, qs).
func isAlias(raw, name string) bool {
	if len(raw) < len(name) {
		return false // what upstreams do makes no name longer
	}
	if !strings.ContainsAny(raw, "%+.[ \t") && !strings.ContainsAny(name, ".[ ") {
		return strings.EqualFold(raw, name)
	}
	decoded, _, _ := strings.Cut(unescapeQuery(raw), "\x00")
	decoded, want := strings.TrimSpace(decoded), mangle(name)
	if mangle(decoded) == want {
		return true
	}
	if inner, is := strings.CutPrefix(decoded, "["); is {
		inner, _, _ = strings.Cut(inner, "]")
		return mangle(inner) == want
	}
	base, _, is := strings.Cut(decoded, "[")
	return is && mangle(base) == want
}

// mangle returns a name in lower case, with the characters as underscores that PHP has no names with.
func mangle(name string) string {
	return strings.Map(func(c rune) rune {
		switch c {
		case '.', ' ', '[':
			return '_'
		}
		return c
	}, strings.ToLower(name))
}

// phpName reports whether PHP reads a raw name as that of a parameter, or as an array of that name.
// PHP drops leading spaces, ends a name at a NUL, and turns spaces, dots and a bracket that is not
// closed into underscores.
func phpName(raw, name string) (is, isArray bool) {
	if raw == name || unescapeQuery(raw) == name {
		return true, false
	}
	if len(raw) < len(name) {
		return false, false
	}
	decoded, _, _ := strings.Cut(unescapeQuery(raw), "\x00")
	decoded = strings.TrimLeft(decoded, " ")
	base, index, bracket := strings.Cut(decoded, "[")
	base = underscores(base)
	switch want := strings.ReplaceAll(underscores(name), "[", "_"); {
	case bracket && strings.IndexByte(index, ']') >= 0:
		return false, base == want
	case bracket:
		return base+"_"+underscores(index) == want, false
	default:
		return base == want, false
	}
}

func underscores(s string) string { return strings.NewReplacer(".", "_", " ", "_").Replace(s) }

// CookieValue finds a cookie for a key, in all values of the header field Cookie. Like a parameter, a
// cookie that occurs more than once is present, repeated, and has no value, and so is one with an
// alias: a name that differs only in case, quoting or encoding, or that stands behind a comma or a
// space, which separate cookies for some upstreams. Quotes around a value are no part of it, and
// percent-encoding in it is decoded.
func CookieValue(fields []string, name string) (value string, present, repeated bool) {
	for _, field := range fields {
		for pair := range strings.SplitSeq(field, ";") {
			pair = strings.TrimLeft(pair, " \t")
			k, v, ok := strings.Cut(pair, "=")
			switch {
			case ok && k == name:
				if present {
					return "", true, true
				}
				if value, ok = cookieText(v); !ok || hidesCookie(v, name) {
					return "", true, true
				}
				present = true
			case isCookieAlias(k, name) || hidesCookie(pair, name):
				return "", true, true
			}
		}
	}
	return value, present, false
}

// cookieText returns the text of a raw value. ok is false if upstreams may read several, or none:
// with quotes or a tab inside of it, or escapes.
func cookieText(raw string) (text string, ok bool) {
	text = strings.Trim(raw, " \t")
	if len(text) >= 2 && text[0] == '"' && text[len(text)-1] == '"' {
		text = text[1 : len(text)-1]
	}
	return unescape(text, false), !strings.ContainsAny(text, "\"\\\t")
}

// hidesCookie reports whether a cookie of that name stands behind a comma or a space.
func hidesCookie(pair, name string) bool {
	if !strings.ContainsAny(pair, ", \t") {
		return false
	}
	before := "" // the part before, which is a name if the next one begins with =
	for part := range strings.FieldsFuncSeq(pair, func(c rune) bool { return c == ',' || c == ' ' || c == '\t' }) {
		k, _, ok := strings.Cut(part, "=")
		if ok && k == "" {
			k = before
		}
		if ok && k != "" && before != "" && (k == name || isCookieAlias(k, name)) {
			return true
		}
		before = part
	}
	return false
}

// isCookieAlias reports whether some upstream takes a raw name, which is another, for that of a
// cookie.
func isCookieAlias(raw, name string) bool {
	return isAlias(strings.Trim(raw, "\" \t"), name)
}
