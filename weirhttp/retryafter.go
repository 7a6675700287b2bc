package weirhttp

import (
	"errors"
	"math"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/weirflow/weir/internal/pacing"
)

// overloaded is a status that means too much load, as of Anthropic; it has no name in net/http.
const overloaded = 529

// reportOf reads what a response says about the limits of its server.
func reportOf(resp *http.Response) pacing.Report {
	h := resp.Header
	now := time.Now()
	if date, err := http.ParseTime(h.Get("Date")); err == nil {
		now = date // the server's clock: ours may be wrong
	}
	var r pacing.Report
	if age := h.Get("Age"); age == "" || age == "0" { // a cache's copy says what remained at another time
		r.Quotas = quotasOf(h, now)
	}
	switch resp.StatusCode {
	case http.StatusTooManyRequests, http.StatusServiceUnavailable, overloaded:
		r.Refused, r.Limit = true, resp.StatusCode == http.StatusTooManyRequests
	case http.StatusForbidden:
		r.Refused = limitedBy403(resp)
	}
	if r.Refused {
		r.Pause = retryAfter(h, now)
	}
	return r
}

// limitedBy403 reports whether a response refuses a request because of a limit as GitHub does: with 403
// and fields that tell of it.
func limitedBy403(resp *http.Response) bool {
	return resp.StatusCode == http.StatusForbidden && (resp.Header.Get("Retry-After") != "" || resp.Header.Get("X-RateLimit-Remaining") == "0")
}

// retryAfter reads Retry-After, which has seconds or a date, and the field with milliseconds of
// OpenAI and Azure. It returns 0 if there is none, or none that can be read.
func retryAfter(h http.Header, now time.Time) time.Duration {
	for _, name := range []string{"Retry-After-Ms", "X-Ms-Retry-After-Ms"} {
		if ms, err := strconv.ParseFloat(h.Get(name), 64); err == nil && ms > 0 {
			return spanOf(ms / 1000)
		}
	}
	d, _ := resetOf(h.Get("Retry-After"), now)
	return d
}

// resetOf reads a time to wait in any of the forms in use: seconds from now, seconds or milliseconds
// since 1970, durations like 6m0s, RFC 3339, and HTTP dates. A time in the past is 0.
func resetOf(text string, now time.Time) (d time.Duration, ok bool) {
	text = strings.TrimSpace(text)
	if n, err := strconv.ParseFloat(text, 64); err == nil || errors.Is(err, strconv.ErrRange) {
		const in1985, in1985ms = 5e8, 5e11 // so many seconds from now would be 15 years
		switch unix := float64(now.Unix()); {
		case math.IsInf(n, 0):
		case n >= in1985ms:
			n = n/1000 - unix
		case n >= in1985:
			n -= unix
		}
		return spanOf(n), !math.IsNaN(n)
	}
	if d, err := time.ParseDuration(text); err == nil {
		return max(d, 0), true
	}
	if at, err := time.Parse(time.RFC3339, text); err == nil {
		return max(at.Sub(now), 0), true
	}
	if at, err := http.ParseTime(text); err == nil {
		return max(at.Sub(now), 0), true
	}
	return 0, false
}

// spanOf is a number of seconds, at least 0 and at most 100 years.
func spanOf(seconds float64) time.Duration {
	const most = 100 * 365 * 24 * 60 * 60
	if !(seconds > 0) { // NaN is not either
		return 0
	}
	return time.Duration(min(seconds, most) * float64(time.Second))
}

// A triple is three fields that tell of one limit.
type triple struct {
	limit, remaining, reset string
	tokens                  bool // the limit counts tokens
	gradual                 bool // reset is when all is back, and it comes back evenly
}

// triples are the fields in use, by their canonical names.
var triples = [...]triple{
	{limit: "Ratelimit-Limit", remaining: "Ratelimit-Remaining", reset: "Ratelimit-Reset"},
	{limit: "X-Ratelimit-Limit", remaining: "X-Ratelimit-Remaining", reset: "X-Ratelimit-Reset"},
	{limit: "X-Rate-Limit-Limit", remaining: "X-Rate-Limit-Remaining", reset: "X-Rate-Limit-Reset"},
	{limit: "X-Ratelimit-Limit-Requests", remaining: "X-Ratelimit-Remaining-Requests", reset: "X-Ratelimit-Reset-Requests", gradual: true},
	{limit: "X-Ratelimit-Limit-Tokens", remaining: "X-Ratelimit-Remaining-Tokens", reset: "X-Ratelimit-Reset-Tokens", tokens: true, gradual: true},
	{limit: "Anthropic-Ratelimit-Requests-Limit", remaining: "Anthropic-Ratelimit-Requests-Remaining", reset: "Anthropic-Ratelimit-Requests-Reset", gradual: true},
	{limit: "Anthropic-Ratelimit-Tokens-Limit", remaining: "Anthropic-Ratelimit-Tokens-Remaining", reset: "Anthropic-Ratelimit-Tokens-Reset", tokens: true, gradual: true},
	{limit: "Anthropic-Ratelimit-Input-Tokens-Limit", remaining: "Anthropic-Ratelimit-Input-Tokens-Remaining", reset: "Anthropic-Ratelimit-Input-Tokens-Reset", tokens: true, gradual: true},
	{limit: "Anthropic-Ratelimit-Output-Tokens-Limit", remaining: "Anthropic-Ratelimit-Output-Tokens-Remaining", reset: "Anthropic-Ratelimit-Output-Tokens-Reset", tokens: true, gradual: true},
}

// quotasOf reads all fields about limits. now is the time at which the server wrote them.
func quotasOf(h http.Header, now time.Time) []pacing.Quota {
	quotas := structured(h)
	for i := range triples {
		t := &triples[i]
		left, ok := count(first(h, t.remaining))
		if !ok {
			continue
		}
		reset, ok := resetOf(first(h, t.reset), now)
		if !ok {
			continue
		}
		limit, _ := count(first(h, t.limit))
		quotas = append(quotas, pacing.Quota{Name: t.remaining, Limit: limit, Remaining: left, Reset: reset, Tokens: t.tokens, Gradual: t.gradual})
	}
	return quotas
}

// first is the first value of a field, up to the first comma or semicolon: drafts of the RateLimit
// fields had lists there.
func first(h http.Header, name string) string {
	values := h[name]
	if len(values) == 0 {
		return ""
	}
	text := values[0]
	if strings.HasSuffix(name, "Reset") {
		return text // a date has a comma
	}
	if i := strings.IndexAny(text, ",;"); i >= 0 {
		text = text[:i]
	}
	return text
}

// count reads a number of requests or tokens. What is below 0 is 0.
func count(text string) (int64, bool) {
	n, err := strconv.ParseFloat(strings.TrimSpace(text), 64)
	if err != nil || math.IsNaN(n) {
		return 0, false
	}
	return int64(min(max(n, 0), 1<<53)), true
}

// mostFields bounds how much of the structured fields is read.
const mostFields = 16

// structured reads RateLimit and RateLimit-Policy of draft-ietf-httpapi-ratelimit-headers: the
// present form, a list of items with parameters, and that of drafts 4 to 7, limit=10, remaining=1,
// reset=5. Limits that do not count requests are left out.
func structured(h http.Header) (quotas []pacing.Quota) {
	policies := map[string]item{}
	for _, p := range items(h["Ratelimit-Policy"]) {
		policies[p.name] = p
	}
	var old pacing.Quota
	var has [2]bool
	for _, it := range items(h["Ratelimit"]) {
		switch { // of the old form
		case it.value == "":
		case it.name == "limit":
			old.Limit, _ = count(it.value)
			continue
		case it.name == "remaining":
			old.Remaining, has[0] = count(it.value)
			continue
		case it.name == "reset":
			old.Reset, has[1] = resetOf(it.value, time.Time{})
			continue
		}
		left, known := count(it.params["r"])
		reset, ends := resetOf(it.params["t"], time.Time{})
		p := policies[it.name]
		if unit := p.params["qu"]; !known || !ends || unit != "" && unit != "requests" {
			continue
		}
		limit, _ := count(p.params["q"])
		quotas = append(quotas, pacing.Quota{Name: it.name, Limit: limit, Remaining: left, Reset: reset})
	}
	if has[0] && has[1] {
		quotas = append(quotas, old)
	}
	return quotas
}

// An item is a member of a structured field: a name, with a value or with parameters.
type item struct {
	name   string
	value  string
	params map[string]string
}

// items reads lists and dictionaries of structured fields (RFC 9651). What is malformed is left out.
func items(values []string) (all []item) {
	for _, text := range values {
		for text != "" && len(all) < mostFields {
			var member string
			member, text = cut(text, ',')
			head, rest := cut(member, ';')
			name, value := cut(head, '=')
			it := item{name: unquoted(name), value: unquoted(value), params: map[string]string{}}
			for rest != "" && len(it.params) < mostFields {
				var parameter string
				parameter, rest = cut(rest, ';')
				key, value := cut(parameter, '=')
				it.params[strings.ToLower(strings.TrimSpace(key))] = unquoted(value)
			}
			if it.name != "" {
				all = append(all, it)
			}
		}
	}
	return all
}

// cut splits a text at the first separator outside of quotes.
func cut(text string, separator byte) (before, after string) {
	quoted := false
	for i := 0; i < len(text); i++ {
		switch c := text[i]; {
		case c == '\\' && quoted:
			i++
		case c == '"':
			quoted = !quoted
		case c == separator && !quoted:
			return text[:i], text[i+1:]
		}
	}
	return text, ""
}

// unquoted is the text of a string or a token.
func unquoted(text string) string {
	text = strings.TrimSpace(text)
	if len(text) < 2 || text[0] != '"' || text[len(text)-1] != '"' {
		return text
	}
	text = text[1 : len(text)-1]
	if strings.IndexByte(text, '\\') < 0 {
		return text
	}
	b := make([]byte, 0, len(text))
	for i := 0; i < len(text); i++ {
		if text[i] == '\\' && i+1 < len(text) {
			i++
		}
		b = append(b, text[i])
	}
	return string(b)
}
