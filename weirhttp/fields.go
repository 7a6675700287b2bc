package weirhttp

import (
	"net/http"
	"slices"
	"strconv"
	"time"

	"github.com/weirflow/weir"
	"github.com/weirflow/weir/policy"
)

// maxInteger is the largest integer of a structured field (RFC 9651).
const maxInteger = 999_999_999_999_999

// SetHeaders returns a function that sets the header fields about limits with the given names, as in
// policy.Policy.Headers. Without any, the function sets nothing.
func SetHeaders(names ...string) func(http.Header, []policy.Evaluated) {
	both := [2]bool{slices.Contains(names, policy.HeaderRateLimit), slices.Contains(names, policy.HeaderXRateLimit)}
	return func(h http.Header, asked []policy.Evaluated) {
		if both[0] {
			SetRateLimit(h, asked)
		}
		if both[1] {
			SetXRateLimit(h, asked)
		}
	}
}

// SetRateLimit adds RateLimit and RateLimit-Policy, as in draft-ietf-httpapi-ratelimit-headers-11,
// with an item for each evaluated limit. r is Decision.Remaining. t is the seconds until the limit
// is back at full capacity, or for a refused request until it may be retried. q is Decision.Limit,
// and w the seconds in which it comes back.
func SetRateLimit(h http.Header, asked []policy.Evaluated) {
	if len(asked) == 0 {
		return
	}
	buf := make([]byte, 0, 128)
	for i := range asked {
		buf = appendRateLimit(buf, i > 0, &asked[i])
	}
	end := len(buf)
	for i := range asked {
		buf = appendRateLimitPolicy(buf, i > 0, &asked[i])
	}
	v := freeFieldValues.Get().(*fieldValues)
	text := v.newText(buf)
	both := v.newPair(text[:end], text[end:])
	freeFieldValues.Put(v)
	addRateLimit(h, both)
}

// addRateLimit adds the values of both fields.
func addRateLimit(h http.Header, both []string) {
	if len(h) == 0 { // two searches less
		h["Ratelimit"], h["Ratelimit-Policy"] = both[:1:1], both[1:]
		return
	}
	addValues(h, "Ratelimit", both[:1:1])
	addValues(h, "Ratelimit-Policy", both[1:])
}

// appendRateLimit appends an item of RateLimit, after others with a comma.
func appendRateLimit(buf []byte, after bool, a *policy.Evaluated) []byte {
	if after {
		buf = append(buf, ", "...)
	}
	return appendLeft(appendName(buf, a.Name), &a.Decision)
}

// appendName appends an item of RateLimit up to what is left.
func appendName(buf []byte, name string) []byte { return append(appendString(buf, name), ";r="...) }

// appendLeft appends the rest of the item.
func appendLeft(buf []byte, d *weir.Decision) []byte {
	buf = appendInteger(buf, d.Remaining)
	if reset, ok := window(d); ok {
		buf = appendInteger(append(buf, ";t="...), seconds(reset))
	}
	return buf
}

// appendRateLimitPolicy appends an item of RateLimit-Policy, after others with a comma.
func appendRateLimitPolicy(buf []byte, after bool, a *policy.Evaluated) []byte {
	if after {
		buf = append(buf, ", "...)
	}
	buf = appendInteger(append(appendString(buf, a.Name), ";q="...), a.Limit)
	if a.Window > 0 {
		buf = appendInteger(append(buf, ";w="...), max(seconds(a.Window), 1))
	}
	return buf
}

// addValues adds values to a header field, whose name is canonical. The header keeps the slice, which
// has no room for more.
func addValues(h http.Header, name string, values []string) {
	if before := h[name]; len(before) > 0 {
		values = append(before, values...)
	}
	h[name] = values
}

// WithWarnings returns a function that also adds X-RateLimit-Warning, with an item for each limit of
// which as much is used as its WarnAt: "monthly";used=83, in percent.
func WithWarnings(tells func(http.Header, []policy.Evaluated)) func(http.Header, []policy.Evaluated) {
	return func(h http.Header, asked []policy.Evaluated) {
		tells(h, asked)
		var buf []byte
		for _, a := range asked {
			if a.Warned == 0 {
				continue
			}
			if buf != nil {
				buf = append(buf, ", "...)
			}
			buf = appendInteger(append(appendString(buf, a.Name), ";used="...), a.Warned)
		}
		if buf != nil {
			h["X-Ratelimit-Warning"] = append(h["X-Ratelimit-Warning"], string(buf))
		}
	}
}

// window is the t of RateLimit.
func window(d *weir.Decision) (time.Duration, bool) {
	if d.Allowed {
		return d.ResetAfter, true
	}
	return d.RetryAfter, d.RetryAfter != weir.Never
}

// SetXRateLimit sets X-RateLimit-Limit, X-RateLimit-Remaining and X-RateLimit-Reset (in seconds
// from now) for the limit with the least remaining. Fields that are there already, with less
// remaining, stay: those of a limit in front of this one.
func SetXRateLimit(h http.Header, asked []policy.Evaluated) {
	if len(asked) == 0 {
		return
	}
	least := asked[0]
	for _, a := range asked[1:] {
		if a.Decision.Remaining < least.Decision.Remaining {
			least = a
		}
	}
	if saysLess(h, &least.Decision) {
		return
	}
	buf := appendInteger(make([]byte, 0, 64), least.Limit)
	first := len(buf)
	buf = appendInteger(buf, least.Decision.Remaining)
	second := len(buf)
	if reset, known := window(&least.Decision); known {
		buf = appendInteger(buf, seconds(reset))
	}
	v := freeFieldValues.Get().(*fieldValues)
	text := v.newText(buf)
	all := v.newList(text[:first], text[first:second], text[second:])
	freeFieldValues.Put(v)
	setXRateLimit(h, all)
}

// saysLess reports whether a limit in front of this one has less left.
func saysLess(h http.Header, d *weir.Decision) bool {
	before := h["X-Ratelimit-Remaining"]
	if len(before) == 0 {
		return false
	}
	n, err := strconv.ParseInt(before[0], 10, 64)
	return err == nil && n < d.Remaining
}

// setXRateLimit sets the values of the three fields; the last is empty if it is not known.
func setXRateLimit(h http.Header, all []string) {
	h["X-Ratelimit-Limit"], h["X-Ratelimit-Remaining"] = all[:1:1], all[1:2:2]
	if all[2] != "" {
		h["X-Ratelimit-Reset"] = all[2:]
	} else {
		delete(h, "X-Ratelimit-Reset")
	}
}

// SetRetryAfter sets Retry-After in whole seconds, rounded up, at least 1. If no wait helps
// (weir.Never), it sets nothing.
func SetRetryAfter(h http.Header, d weir.Decision) {
	if d.RetryAfter != weir.Never {
		var buf [24]byte
		v := freeFieldValues.Get().(*fieldValues)
		h["Retry-After"] = v.newList(v.newText(appendInteger(buf[:0], max(seconds(d.RetryAfter), 1))))
		freeFieldValues.Put(v)
	}
}

// appendString appends a string of a structured field (RFC 9651), which has printable ASCII alone.
// Other bytes become question marks.
func appendString(b []byte, s string) []byte {
	b = append(b, '"')
	for _, c := range []byte(s) {
		switch {
		case c == '"' || c == '\\':
			b = append(b, '\\', c)
		case c < ' ' || c > '~':
			b = append(b, '?')
		default:
			b = append(b, c)
		}
	}
	return append(b, '"')
}

// seconds rounds up.
func seconds(d time.Duration) int64 {
	s := int64(d / time.Second)
	if d%time.Second > 0 {
		s++
	}
	return s
}

func integer(n int64) string { return string(appendInteger(nil, n)) }

func appendInteger(b []byte, n int64) []byte {
	return strconv.AppendInt(b, min(max(n, 0), maxInteger), 10)
}
