package httpsyntax

import "strings"

// IsTarget reports whether a request target can be sent on. It cannot with a space, a control
// character, a fragment, or a backslash, which some upstreams take for a slash.
func IsTarget[T Text](s T) bool { return len(s) > 0 && all(s, inTarget) }

// CanonicalTarget returns a path, with its query if there is one, as it is sent on. Bytes that RFC
// 3986 does not allow in a path are percent-encoded, and so are bytes beyond ASCII in a query. What
// is encoded already stays as it is. The text must be a target, and begin with a slash.
func CanonicalTarget(s string) string {
	query := false
	for i := range len(s) {
		if c := s[i]; c == '?' {
			query = true
		} else if mustEncode(c, query) {
			return encode(s, i, query)
		}
	}
	return s
}

func mustEncode(c byte, query bool) bool {
	return c >= 0x80 || !query && classes[c]&inPath == 0
}

// encode encodes a target from a byte on that must be encoded.
func encode(s string, from int, query bool) string {
	const digits = "0123456789ABCDEF"
	var b strings.Builder
	b.WriteString(s[:from])
	for i := from; i < len(s); i++ {
		c := s[i]
		switch query = query || c == '?'; {
		case c != '?' && mustEncode(c, query):
			b.Write([]byte{'%', digits[c>>4], digits[c&15]})
		default:
			b.WriteByte(c)
		}
	}
	return b.String()
}
