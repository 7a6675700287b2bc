package httpsyntax

import (
	"net/netip"
	"strings"
)

// longestHost is the longest name of DNS, with a final dot.
const longestHost = 254

// IsHost reports whether a text is a host with an optional port, as in the field Host: a name, an
// IPv4 address, or an IPv6 address in brackets. An empty text is none.
func IsHost(s string) bool {
	if s == "" || len(s) > longestHost+len(":65535") {
		return false
	}
	if s[0] == '[' {
		end := strings.IndexByte(s, ']')
		if end < 0 {
			return false
		}
		addr, err := netip.ParseAddr(s[1:end])
		return err == nil && addr.Is6() && addr.Zone() == "" && isPort(s[end+1:])
	}
	name, port := s, ""
	if i := strings.IndexByte(s, ':'); i >= 0 {
		name, port = s[:i], s[i:]
	}
	return isName(name) && isPort(port)
}

// isName reports whether a text consists of labels between single dots. A final dot is allowed.
func isName(s string) bool {
	if s == "" || len(s) > longestHost || s[0] == '.' {
		return false
	}
	for i := range len(s) {
		if classes[s[i]]&inName == 0 || s[i] == '.' && i > 0 && s[i-1] == '.' {
			return false
		}
	}
	return true
}

// isPort reports whether a text is empty, or a colon and a port.
func isPort(s string) bool {
	if s == "" {
		return true
	}
	if len(s) < 2 || len(s) > len(":65535") || s[0] != ':' {
		return false
	}
	n := 0
	for _, c := range []byte(s[1:]) {
		if c < '0' || c > '9' {
			return false
		}
		n = n*10 + int(c-'0')
	}
	return n <= 65535
}
