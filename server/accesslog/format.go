package accesslog

import (
	"net/netip"
	"strconv"
	"time"
	"unicode/utf8"
)

// An Entry describes a request and its response.
type Entry struct {
	Time     time.Time // when the request came
	Duration time.Duration
	Client   netip.Addr
	User     string // of basic authentication, unverified
	Method   string
	Target   string // as sent
	Protocol string // HTTP/1.1
	Host     string
	Referer  string
	Agent    string
	TLS      string // "1.2" or "1.3"; empty without
	Status   int    // 0 if the client disconnected before the response
	Bytes    int64  // of the response body

	Decision     string // allow, delay, deny, left, no_route, invalid, too_large
	Limit        string // the limit that refused or delayed
	Delay        time.Duration
	Upstream     string        // empty if no upstream was used
	UpstreamTime time.Duration // until the header of its response
}

// clientGone is nginx's status for a client that disconnected before the response.
const clientGone = 499

const clock = "02/Jan/2006:15:04:05 -0700"

// appendCommon appends the Common Log Format: CLIENT - USER [TIME] "REQUEST" STATUS BYTES.
func appendCommon(b []byte, e *Entry) []byte { return append(common(b, e), '\n') }

// appendCombined appends the Combined Log Format, as nginx and Apache do: the common format,
// Referer and User-Agent.
func appendCombined(b []byte, e *Entry) []byte {
	b = append(common(b, e), ' ')
	b = append(quoted(b, e.Referer), ' ')
	return append(quoted(b, e.Agent), '\n')
}

func common(b []byte, e *Entry) []byte {
	b = append(client(b, e), " - "...)
	if e.User == "" {
		b = append(b, '-')
	} else {
		b = escaped(b, e.User, true)
	}
	b = append(b, " ["...)
	b = e.Time.AppendFormat(b, clock)
	b = append(b, `] "`...)
	b = append(escaped(b, e.Method, false), ' ')
	b = append(escaped(b, e.Target, false), ' ')
	b = append(escaped(b, e.Protocol, false), `" `...)
	b = strconv.AppendInt(b, int64(status(e)), 10)
	b = append(b, ' ')
	return strconv.AppendInt(b, e.Bytes, 10)
}

func client(b []byte, e *Entry) []byte {
	if !e.Client.IsValid() {
		return append(b, '-')
	}
	return e.Client.AppendTo(b)
}

func status(e *Entry) int {
	if e.Status == 0 {
		return clientGone
	}
	return e.Status
}

// quoted appends a string in quotes, and a dash for an empty one.
func quoted(b []byte, s string) []byte {
	if s == "" {
		return append(b, `"-"`...)
	}
	return append(escaped(append(b, '"'), s, false), '"')
}

// escaped appends a string, with everything that could end a field or a line, and everything beyond
// ASCII, as \xXX, as in nginx.
func escaped(b []byte, s string, spaces bool) []byte {
	const hex = "0123456789ABCDEF"
	for i := range len(s) {
		c := s[i]
		if c < ' ' || c >= 0x7f || c == '"' || c == '\\' || spaces && c == ' ' {
			b = append(b, '\\', 'x', hex[c>>4], hex[c&15])
			continue
		}
		b = append(b, c)
	}
	return b
}

// appendJSON appends an object. Times are in seconds.
func appendJSON(b []byte, e *Entry) []byte {
	b = append(b, `{"time":"`...)
	b = e.Time.UTC().AppendFormat(b, "2006-01-02T15:04:05.000000Z")
	b = append(b, `","client":"`...)
	b = append(client(b, e), '"')
	b = text(b, "user", e.User)
	b = text(b, "method", e.Method)
	b = text(b, "host", e.Host)
	b = text(b, "uri", e.Target)
	b = text(b, "protocol", e.Protocol)
	b = text(b, "tls", e.TLS)
	b = append(b, `,"status":`...)
	b = strconv.AppendInt(b, int64(status(e)), 10)
	b = append(b, `,"bytes":`...)
	b = strconv.AppendInt(b, e.Bytes, 10)
	b = seconds(b, "duration", e.Duration)
	b = text(b, "decision", e.Decision)
	b = text(b, "limit", e.Limit)
	if e.Delay > 0 {
		b = seconds(b, "delay", e.Delay)
	}
	if e.Upstream != "" {
		b = text(b, "upstream", e.Upstream)
		b = seconds(b, "upstream_time", e.UpstreamTime)
	}
	b = text(b, "http_referer", e.Referer)
	b = text(b, "http_user_agent", e.Agent)
	return append(b, "}\n"...)
}

// text appends a string member, unless it is empty.
func text(b []byte, name, s string) []byte {
	if s == "" {
		return b
	}
	b = append(b, ',', '"')
	b = append(b, name...)
	b = append(b, `":"`...)
	for i := 0; i < len(s); {
		c := s[i]
		if c >= utf8.RuneSelf {
			r, size := utf8.DecodeRuneInString(s[i:])
			if r == utf8.RuneError && size == 1 {
				b = utf8.AppendRune(b, utf8.RuneError)
			} else {
				b = append(b, s[i:i+size]...)
			}
			i += size
			continue
		}
		switch {
		case c == '"' || c == '\\':
			b = append(b, '\\', c)
		case c < ' ' || c == 0x7f:
			const hex = "0123456789abcdef"
			b = append(b, '\\', 'u', '0', '0', hex[c>>4], hex[c&15])
		default:
			b = append(b, c)
		}
		i++
	}
	return append(b, '"')
}

func seconds(b []byte, name string, d time.Duration) []byte {
	b = append(b, ',', '"')
	b = append(b, name...)
	b = append(b, `":`...)
	return strconv.AppendFloat(b, d.Seconds(), 'f', 6, 64)
}
