package sim

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"math/big"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// An Entry is one request of an access log.
type Entry struct {
	Time   int64  // Unix time in nanoseconds
	Client string // the first field, as it stands
	Method string
	Target string // the path, with the query
	Host   string // where the log has it
	Length int64  // of the request's body; -1 where the log does not have it
	Header http.Header
}

// ParseLine reads a line of an access log: in Common or Combined Log Format, or a JSON object. The header fields of the Combined format
// are Referer and User-Agent. What follows a readable request does not matter: a line that was cut off in its User-Agent is still a
// request. The error says what is wrong with the line, without repeating it.
func ParseLine(line string) (Entry, error) {
	if strings.HasPrefix(strings.TrimLeft(line, " \t"), "{") {
		return parseJSON(line)
	}
	return parseCommon(line)
}

// lineTime finds the time of a line alone, which is all that sorting needs.
func lineTime(line []byte, last *timeCache) (int64, error) {
	if trimmed := bytes.TrimLeft(line, " \t"); len(trimmed) > 0 && trimmed[0] == '{' {
		e, err := parseJSON(string(line))
		return e.Time, err
	}
	clock, ok := clockOf(line)
	if !ok {
		return 0, errNoTime
	}
	return last.parse(clock)
}

const clockText = "02/Jan/2006:15:04:05 -0700"

var errNoTime = errors.New("there is no [day/Mon/year:hour:minute:second zone]")

// clockOf returns what stands in the brackets of a line in the Common format: the first after the first field.
func clockOf[T string | []byte](line T) (clock T, ok bool) {
	i := 0
	for i < len(line) && line[i] != ' ' {
		i++
	}
	for ; i+1 < len(line); i++ {
		if line[i] == ' ' && line[i+1] == '[' {
			end := i + 2 + len(clockText)
			return line[min(i+2, len(line)):min(end, len(line))], end < len(line) && line[end] == ']'
		}
	}
	return clock, false
}

// timeCache remembers the last time that was read: most lines of a log repeat it.
type timeCache struct {
	text [len(clockText)]byte
	at   int64
}

func (c *timeCache) parse(text []byte) (int64, error) {
	if string(text) == string(c.text[:]) {
		return c.at, nil
	}
	at, err := parseClock(string(text))
	if err == nil {
		copy(c.text[:], text)
		c.at = at
	}
	return at, err
}

// nanoseconds is a time on the virtual clock.
func nanoseconds(t time.Time) (int64, error) {
	if t.Year() < 1678 || t.Year() > 2261 {
		return 0, fmt.Errorf("the year %d cannot be counted in nanoseconds", t.Year())
	}
	return t.UnixNano(), nil
}

// parseCommon reads HOST IDENT USER [TIME] "REQUEST" STATUS BYTES, and "REFERER" "USER-AGENT" where they follow.
func parseCommon(line string) (e Entry, err error) {
	e.Length = -1
	client, rest, found := strings.Cut(line, " ")
	if !found || client == "" {
		return e, errors.New("there is no first field")
	}
	e.Client = client
	clock, ok := clockOf(line)
	if !ok {
		return e, errNoTime
	}
	if e.Time, err = parseClock(clock); err != nil {
		return e, err
	}
	_, rest, _ = strings.Cut(rest, clock+"]")
	request, rest, ok := quoted(rest)
	if !ok {
		return e, errors.New("there is no \"REQUEST\" after the time")
	}
	if err := e.request(request); err != nil {
		return e, err
	}
	status, rest, _ := strings.Cut(strings.TrimPrefix(rest, " "), " ")
	if len(status) != 3 || strings.Trim(status, "0123456789") != "" {
		return e, errors.New("there is no status after the request")
	}
	_, rest, _ = strings.Cut(rest, " ") // bytes of the answer
	referer, rest, ok := quoted(" " + rest)
	if ok {
		agent, _, _ := quoted(rest)
		e.Header = http.Header{"Referer": {referer}, "User-Agent": {agent}}
	}
	return e, nil
}

// quoted cuts off a "..." after a space, in which \" does not end it. One that does not end is cut where the line is.
func quoted(s string) (inside, rest string, ok bool) {
	s, ok = strings.CutPrefix(s, ` "`)
	if !ok {
		return "", s, false
	}
	for i := 0; i < len(s); i++ {
		switch s[i] {
		case '\\':
			i++
		case '"':
			return s[:i], s[i+1:], true
		}
	}
	return s, "", true
}

// request reads METHOD TARGET [VERSION].
func (e *Entry) request(text string) error {
	method, rest, ok := strings.Cut(text, " ")
	if !ok || method == "" || strings.Trim(method, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz-_") != "" {
		return errors.New("the request is not METHOD TARGET VERSION")
	}
	target, _, _ := strings.Cut(rest, " ") // nothing, for HTTP/0.9, or the version
	if i := strings.LastIndex(rest, " HTTP/"); i >= 0 {
		target = rest[:i] // with whatever spaces a client put into it
	}
	if target == "" {
		return errors.New("the request has no target")
	}
	e.Method = method
	e.target(target)
	return nil
}

// target takes a request's target, which may be a whole URL.
func (e *Entry) target(target string) {
	if i := strings.Index(target, "://"); i > 0 && target[0] != '/' {
		host, path, _ := strings.Cut(target[i+3:], "/")
		e.Host, target = host, "/"+path
	}
	target, _, _ = strings.Cut(target, "#")
	e.Target = target
}

// parseClock is time.Parse of the one layout, without its generality.
func parseClock(s string) (int64, error) {
	digits := func(i, n int) (v int) {
		for _, c := range []byte(s[i : i+n]) {
			if c < '0' || c > '9' {
				return -1 << 20
			}
			v = v*10 + int(c-'0')
		}
		return v
	}
	month := strings.Index("JanFebMarAprMayJunJulAugSepOctNovDec", s[3:6])
	day, year, hour, minute, second := digits(0, 2), digits(7, 4), digits(12, 2), digits(15, 2), digits(18, 2)
	zone := digits(22, 2)*60 + digits(24, 2)
	if month < 0 || month%3 != 0 || s[2] != '/' || s[6] != '/' || s[11] != ':' || s[14] != ':' || s[17] != ':' || s[20] != ' ' || zone < 0 || year < 0 ||
		day < 1 || day > 31 || hour < 0 || hour > 23 || minute < 0 || minute > 59 || second < 0 || second > 60 || zone > 24*60 {
		return 0, errNoTime
	}
	if s[21] == '-' {
		zone = -zone
	} else if s[21] != '+' {
		return 0, errNoTime
	}
	midnight := time.Date(year, time.Month(month/3+1), day, 0, 0, 0, 0, time.UTC)
	if midnight.Day() != day {
		return 0, errNoTime
	}
	return nanoseconds(midnight.Add(time.Duration(hour)*time.Hour + time.Duration(minute-zone)*time.Minute + time.Duration(second)*time.Second))
}

// Names that fields have in the JSON logs of nginx, Caddy, Traefik, Apache and others, the first that is there counts.
var (
	timeNames   = []string{"time", "timestamp", "@timestamp", "ts", "time_iso8601", "time_local", "date", "StartUTC", "msec"}
	clientNames = []string{"client", "client_ip", "remote_addr", "remote_ip", "clientip", "ip", "remote_host", "ClientHost"}
	methodNames = []string{"method", "request_method", "RequestMethod", "verb"}
	targetNames = []string{"target", "uri", "request_uri", "url", "path", "RequestPath"}
	queryNames  = []string{"query", "args", "query_string"}
	hostNames   = []string{"host", "http_host", "RequestHost", "server_name", "vhost"}
	lengthNames = []string{"content_length", "request_length", "bytes_in", "bytes_read"}
)

// parseJSON reads a line that is a JSON object. Caddy puts most of it into an object "request"; others have there what the Common
// format has.
func parseJSON(line string) (e Entry, err error) {
	e.Length = -1
	var outer map[string]any
	dec := json.NewDecoder(strings.NewReader(line))
	dec.UseNumber()
	if err := dec.Decode(&outer); err != nil {
		return e, errors.New("it begins like JSON and is not")
	}
	if e.Time, err = jsonTime(first(outer, timeNames)); err != nil {
		return e, err
	}
	fields := []map[string]any{outer}
	switch inner := outer["request"].(type) {
	case map[string]any:
		fields = append(fields, inner)
	case string:
		if err := e.request(inner); err != nil {
			return e, err
		}
	}
	e.Header = http.Header{}
	for _, f := range fields {
		e.fill(f)
	}
	switch {
	case e.Client == "":
		return e, fmt.Errorf("there is no client: none of %s", strings.Join(clientNames, ", "))
	case e.Method == "":
		return e, fmt.Errorf("there is no method: none of %s", strings.Join(methodNames, ", "))
	case e.Target == "":
		return e, fmt.Errorf("there is no target: none of %s", strings.Join(targetNames, ", "))
	}
	return e, nil
}

// fill takes what an object has and is not known yet.
func (e *Entry) fill(f map[string]any) {
	set := func(to *string, names []string) {
		if text, ok := first(f, names).(string); ok && *to == "" {
			*to = text
		}
	}
	set(&e.Client, clientNames)
	set(&e.Method, methodNames)
	set(&e.Host, hostNames)
	if target, ok := first(f, targetNames).(string); ok && e.Target == "" && target != "" {
		e.target(target)
		if query, ok := first(f, queryNames).(string); ok && query != "" && query != "-" && !strings.Contains(e.Target, "?") {
			e.Target += "?" + strings.TrimPrefix(query, "?")
		}
	}
	if n, ok := whole(first(f, lengthNames)); ok && e.Length < 0 && n >= 0 {
		e.Length = n
	}
	for name, value := range f {
		if field, ok := strings.CutPrefix(name, "http_"); ok {
			if text, ok := value.(string); ok && text != "-" {
				e.Header.Add(strings.ReplaceAll(field, "_", "-"), text)
			}
		}
	}
	headers, _ := f["headers"].(map[string]any)
	for name, value := range headers {
		switch v := value.(type) {
		case string:
			e.Header.Add(name, v)
		case []any:
			for _, item := range v {
				if text, ok := item.(string); ok {
					e.Header.Add(name, text)
				}
			}
		}
	}
}

// first returns the first of the names that is there.
func first(f map[string]any, names []string) any {
	for _, name := range names {
		if v, ok := f[name]; ok && v != nil && v != "" {
			return v
		}
	}
	return nil
}

func whole(v any) (int64, bool) {
	switch v := v.(type) {
	case json.Number:
		n, err := v.Int64()
		return n, err == nil
	case string:
		n, err := strconv.ParseInt(v, 10, 64)
		return n, err == nil
	}
	return 0, false
}

// jsonTime reads a time: RFC 3339, that of the Common format, or a number since 1970 whose size tells its unit.
func jsonTime(v any) (int64, error) {
	switch v := v.(type) {
	case string:
		if len(v) == len(clockText) && v[2] == '/' {
			return parseClock(v)
		}
		for _, layout := range []string{time.RFC3339Nano, "2006-01-02T15:04:05.999999999Z0700", "2006-01-02 15:04:05.999999999Z07:00"} {
			if t, err := time.Parse(layout, v); err == nil {
				return nanoseconds(t)
			}
		}
		return numberTime(v)
	case json.Number:
		return numberTime(v.String())
	}
	return 0, fmt.Errorf("there is no time: none of %s", strings.Join(timeNames, ", "))
}

// numberTime reads the number exactly: a float64 does not hold today's nanoseconds.
func numberTime(text string) (int64, error) {
	v, ok := new(big.Rat).SetString(text)
	if len(text) > 40 || !ok || strings.ContainsAny(text, "/eE_xXoOpP") {
		return 0, fmt.Errorf("the time %.40q is neither RFC 3339 nor a number", text)
	}
	whole := new(big.Int).Abs(new(big.Int).Quo(v.Num(), v.Denom()))
	scale := int64(1e9)
	for _, unit := range []int64{1e11, 1e14, 1e17} { // seconds, milliseconds, microseconds, nanoseconds
		if whole.Cmp(big.NewInt(unit)) >= 0 {
			scale /= 1000
		}
	}
	v.Mul(v, new(big.Rat).SetInt64(scale))
	at := new(big.Int).Quo(v.Num(), v.Denom())
	if !at.IsInt64() {
		return 0, fmt.Errorf("the time %.40q is too far away", text)
	}
	return at.Int64(), nil
}
