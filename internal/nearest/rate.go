package nearest

import "strings"

// Rate returns the rate that was probably meant, like 10/s for 10, 10rps or "10 per second", or ""
// if that is unclear.
func Rate(text string) string {
	text = strings.ToLower(strings.TrimSpace(text))
	digits := len(text) - len(strings.TrimLeft(text, "0123456789"))
	if digits == 0 || digits > 18 || strings.Trim(text[:digits], "0") == "" {
		return ""
	}
	count, rest := text[:digits], strings.TrimSpace(text[digits:])
	for _, word := range []string{"requests", "request", "req", "r"} {
		if after, ok := strings.CutPrefix(rest, word); ok && (after == "" || strings.ContainsAny(after[:1], "/p ")) {
			rest = strings.TrimSpace(after)
			break
		}
	}
	for _, word := range []string{"per", "/", "p", "a"} {
		if after, ok := strings.CutPrefix(rest, word); ok {
			rest = strings.TrimSpace(after)
			break
		}
	}
	switch rest {
	case "", "s", "sec", "second", "seconds", "rps", "qps", "hz", "tps":
		return count + "/s"
	case "m", "min", "minute", "minutes", "rpm", "qpm":
		return count + "/m"
	case "h", "hr", "hour", "hours", "rph":
		return count + "/h"
	case "d", "day", "days", "rpd":
		return count + "/d"
	}
	return ""
}
