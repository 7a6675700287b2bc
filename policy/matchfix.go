package policy

import (
	"net/netip"
	"slices"
	"strings"
)

// withSlash returns the match that was probably meant by one that begins with a path without its
// slash, like api/x or index.php/x; "" for one that looks right. It takes names of hosts to have a
// dot, and to end neither like a file nor like a version.
func withSlash(match string) string {
	method, target := methodAndTarget(match)
	host, path, _ := strings.Cut(target, "/")
	if host == "" || path == "" || host == "localhost" || strings.ContainsAny(host, ":[*") || strings.Contains(host, ".") && !isFile(host) {
		return ""
	}
	return "match: " + strings.TrimSpace(method+" /"+target)
}

// isFile reports whether a name with a dot is that of a file, or ends with a version, rather than that
// of a host. No top-level domain has a digit.
func isFile(name string) bool {
	if _, err := netip.ParseAddr(name); err == nil {
		return false
	}
	last := name[strings.LastIndexByte(name, '.')+1:]
	return strings.ContainsAny(last, "0123456789") && !strings.HasPrefix(strings.ToLower(last), "xn--") ||
		slices.Contains([]string{"php", "html", "htm", "json", "xml", "txt", "css", "js", "asp", "aspx", "jsp", "cgi", "action"}, strings.ToLower(last))
}

// matchFix returns what to write instead of a match that is wrong: the match that was probably meant,
// if there is one, and otherwise how a match looks.
func matchFix(match string) string {
	method, target := methodAndTarget(match)
	if _, rest, found := strings.Cut(target, "://"); found {
		target = rest
	}
	target, _, _ = strings.Cut(target, "?")
	target = withoutDoubles(target)
	switch {
	case strings.Contains(target, "/"):
	case strings.Contains(target, ".") && !isFile(target), target == "localhost":
		target += "/"
	default:
		target = "/" + target
	}
	meant := strings.TrimSpace(strings.ToUpper(method) + " " + target)
	if _, err := parsePattern(meant); err != nil || meant == match || target == "/" {
		return "write it like GET /shop/{item}, or / for everything"
	}
	if strings.ContainsAny(meant[:1], "*{[") {
		meant = `"` + meant + `"`
	}
	return "match: " + meant
}

func methodAndTarget(match string) (method, target string) {
	method, target, found := strings.Cut(strings.TrimSpace(match), " ")
	if !found {
		return "", method
	}
	return method, strings.TrimSpace(target)
}
