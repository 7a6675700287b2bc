package sim

import (
	"encoding/json"
	"errors"
	"fmt"
	"math/big"
	"net/http"
	"net/netip"
	"strconv"
	"strings"
	"time"
)

// An Entry is one request of an access log.
type Entry struct {
	Time   int64  // Unix time in nanoseconds
	Client string // the first field, unchanged
	Method string
	Target string // the path, with the query
	Host   string // empty if the log does not have it
	Length int64  // of the request's body; -1 if the log does not have it
	Header http.Header

	Response Response
}

// ParseLine parses a line of an access log: in Common or Combined Log Format, or a JSON object. The
// header fields of the Combined format are Referer and User-Agent. The rest of a line after a
// readable request may be damaged: a line cut off in its User-Agent is still a request. Errors do
// not repeat the line, because it may contain client data.
func ParseLine(line string) (Entry, error) {
	p := parser{headers: true, responses: true}
	var it item
	err := p.parse(line, &it)
	return it.entry(), err
}

// An item is one request between reading and deciding. Its strings are substrings of its line.
type item struct {
	at       int64
	place    int64 // in its input: the number of its block, and in the last lineBits that of its line there, from 1
	input    int32
	status   int32 // 0: not known
	client   string
	method   string
	target   string // the path, with the query
	host     string
	referer  string
	agent    string
	length   int64
	combined bool        // referer and agent are all its header fields; otherwise header has them
	header   http.Header // also nil where the parser need not keep it
	response *Response   // nil where the parser need not read it
}

const lineBits = 32

// entry returns an item as an Entry.
func (it *item) entry() Entry {
	e := Entry{Time: it.at, Client: it.client, Method: it.method, Target: it.target, Host: it.host, Length: it.length, Header: it.header, Response: unknownResponse}
	if it.combined {
		e.Header = http.Header{"Referer": {it.referer}, "User-Agent": {it.agent}}
	}
	if it.response != nil {
		e.Response = *it.response
	}
	return e
}

// A parser parses the lines of a log.
type parser struct {
	format    *Format // nil: the Common and Combined formats, and JSON
	headers   bool    // keep header fields
	agents    bool    // keep User-Agent
	responses bool    // read what lines say of responses and costs
	estimate  string
	cost      string // the fields of JSON lines with estimates and true costs
	clock     clockCache
}

// parse parses a line. What it leaves in an item after an error has no meaning.
func (p *parser) parse(line string, it *item) error {
	*it = item{length: -1}
	if p.responses {
		it.response = new(Response)
		*it.response = unknownResponse
	}
	if p.format != nil && p.format.parse != nil {
		return p.format.parse(p, line, it)
	}
	return p.parseUsual(line, it)
}

// parseUsual parses the Common and Combined formats and JSON, which a line tells apart.
func (p *parser) parseUsual(line string, it *item) error {
	if line != "" && (line[0] == '{' || line[0] == ' ' || line[0] == '\t') && strings.HasPrefix(strings.TrimLeft(line, " \t"), "{") {
		return p.parseJSON(line, it)
	}
	return p.parseCommon(line, it)
}

const clockText = "02/Jan/2006:15:04:05 -0700"

var errNoTime = errors.New("no valid time: want [day/Mon/year:hour:minute:second zone]")

// cutClock cuts a line in the Common format after its time, the first brackets after the first
// field.
func cutClock(line string) (clock, rest string, ok bool) {
	i := 4
	if !strings.HasPrefix(line, " - - [") { // nearly all lines have no ident and no user
		i = strings.Index(line, " [")
	}
	end := i + 2 + len(clockText)
	if i < 0 || end >= len(line) || line[end] != ']' {
		return "", "", false
	}
	return line[i+2 : end], line[end+1:], true
}

// clockCache remembers the last parsed time and its day: most lines of a log repeat the time, and
// nearly all the day.
type clockCache struct {
	text [len(clockText)]byte // a copy: the memory of lines is used again
	at   int64

	day      [len("02/Jan/2006")]byte // as written in the log
	midnight int64                    // Unix time of its start in UTC, in seconds
}

func (c *clockCache) parse(text string) (int64, error) {
	if text == string(c.text[:]) {
		return c.at, nil
	}
	at, err := c.parseClock(text)
	if err == nil {
		copy(c.text[:], text)
		c.at = at
	}
	return at, err
}

// The years 1678 to 2261 in seconds: all their times fit an int64 in nanoseconds.
const (
	firstSecond = -9214560000
	lastSecond  = 9214646399
)

// nanoseconds is a Unix time on the virtual clock.
func nanoseconds(second int64) (int64, error) {
	if second < firstSecond || second > lastSecond {
		return 0, fmt.Errorf("the year %d is out of range: 1678 to 2261", time.Unix(second, 0).UTC().Year())
	}
	return second * 1e9, nil
}

// parseCommon reads HOST IDENT USER [TIME] "REQUEST" STATUS BYTES, and "REFERER" "USER-AGENT" where
// they follow; also after a virtual host.
func (p *parser) parseCommon(line string, it *item) (err error) {
	first := strings.IndexByte(line, ' ')
	if first <= 0 {
		return errors.New("no first field: want HOST IDENT USER [TIME] and a request")
	}
	it.client = line[:first]
	if !strings.HasPrefix(line[first:], " - ") { // nearly all lines have no ident
		if host, rest, ok := cutVirtualHost(line[:first], line[first+1:]); ok {
			it.host, line = host, rest
			first = strings.IndexByte(line, ' ')
			it.client = line[:first]
		}
	}
	clock, rest, ok := cutClock(line[first:])
	if !ok {
		return errNoTime
	}
	if it.at, err = p.clock.parse(clock); err != nil {
		return err
	}
	request, rest, ok := quoted(rest)
	if !ok {
		return errors.New("no \"REQUEST\" after the time")
	}
	if err := it.request(request); err != nil {
		return err
	}
	if len(rest) < 4 || rest[0] != ' ' || twoDigits(rest[1:3]) < 0 || rest[3] < '0' || rest[3] > '9' || len(rest) > 4 && rest[4] != ' ' {
		return errors.New("no status after the request")
	}
	status := rest[1:4]
	it.status = int32(twoDigits(status)*10 + int(status[2]-'0'))
	if !p.headers && !p.agents && !p.responses {
		return nil
	}
	size, rest, _ := strings.Cut(strings.TrimPrefix(rest[4:], " "), " ")
	if p.responses {
		it.response.common(status, size)
	}
	if strings.HasPrefix(rest, `"`) {
		it.referer, rest = cutQuoted(rest[1:])
		it.agent, _, _ = quoted(rest)
		it.combined = true
	}
	return nil
}

// cutVirtualHost cuts off the virtual host that Apache's vhost_combined writes before the client: HOST:PORT, or
// HOST before an address, which is no ident.
func cutVirtualHost(first, rest string) (host, line string, ok bool) {
	second, more, _ := strings.Cut(rest, " ")
	if clock := strings.IndexByte(more, '['); clock < 0 || strings.Count(more[:clock], " ") < 2 || second == "" {
		return "", "", false
	}
	name, port, _ := strings.Cut(first, ":")
	if _, err := strconv.ParseUint(port, 10, 16); err == nil && name != "" {
		return first, rest, true
	}
	_, err := netip.ParseAddr(second)
	return first, rest, err == nil
}

// quoted cuts off a "..." after a space, in which \" does not end it. An unterminated one ends with
// the line.
func quoted(s string) (inside, rest string, ok bool) {
	if len(s) < 2 || s[0] != ' ' || s[1] != '"' {
		return "", s, false
	}
	inside, rest = cutQuoted(s[2:])
	return inside, rest, true
}

// cutQuoted is quoted after the first quotation mark.
func cutQuoted(s string) (inside, rest string) {
	if end := strings.IndexByte(s, '"'); end >= 0 && strings.IndexByte(s[:end], '\\') < 0 {
		return s[:end], s[end+1:]
	}
	for i := 0; i < len(s); i++ {
		switch s[i] {
		case '\\':
			i++
		case '"':
			return s[:i], s[i+1:]
		}
	}
	return s, ""
}

// request parses METHOD TARGET [VERSION].
func (it *item) request(text string) error {
	method, rest, ok := strings.Cut(text, " ")
	if !ok || !isMethod(method) {
		return errors.New("the request is not METHOD TARGET VERSION")
	}
	target, version, _ := strings.Cut(rest, " ") // empty for HTTP/0.9
	if strings.IndexByte(version, ' ') >= 0 {
		if i := strings.LastIndex(rest, " HTTP/"); i >= 0 {
			target = rest[:i] // a target may contain spaces in a log
		}
	}
	if target == "" {
		return errors.New("the request has no target")
	}
	it.method = method
	it.setTarget(target)
	return nil
}

// isMethod reports whether a string can be a method.
func isMethod(s string) bool {
	for i := range len(s) {
		if c := s[i]; (c < 'A' || c > 'Z') && (c < 'a' || c > 'z') && c != '-' && c != '_' {
			return false
		}
	}
	return s != "" && s[0] != '-'
}

// setTarget sets the request's target, which may be a whole URL.
func (it *item) setTarget(target string) {
	if target != "" && target[0] != '/' {
		if i := strings.Index(target, "://"); i > 0 {
			host, path, _ := strings.Cut(target[i+3:], "/")
			it.host, target = host, "/"+path
		}
	}
	if i := strings.IndexByte(target, '#'); i >= 0 {
		target = target[:i]
	}
	it.target = target
}

// parseClock is time.Parse for this one layout, and faster.
func (c *clockCache) parseClock(s string) (int64, error) {
	if day := s[:len("02/Jan/2006")]; day != string(c.day[:]) {
		midnight, err := parseDay(day)
		if err != nil {
			return 0, err
		}
		copy(c.day[:], day)
		c.midnight = midnight
	}
	hour, minute, second := twoDigits(s[12:14]), twoDigits(s[15:17]), twoDigits(s[18:20])
	zoneHours, zoneMinutes := twoDigits(s[22:24]), twoDigits(s[24:26])
	zone := zoneHours*60 + zoneMinutes
	if s[11] != ':' || s[14] != ':' || s[17] != ':' || s[20] != ' ' || s[21] != '-' && s[21] != '+' ||
		hour < 0 || hour > 23 || minute < 0 || minute > 59 || second < 0 || second > 60 || zoneHours < 0 || zoneMinutes < 0 || zone > 24*60 {
		return 0, errNoTime
	}
	if s[21] == '-' {
		zone = -zone
	}
	return nanoseconds(c.midnight + int64(hour*3600+(minute-zone)*60+second))
}

// parseDay parses day/Mon/year and returns its start in UTC, in seconds.
func parseDay(s string) (int64, error) {
	month := strings.Index("JanFebMarAprMayJunJulAugSepOctNovDec", s[3:6])
	day, century, years := twoDigits(s[0:2]), twoDigits(s[7:9]), twoDigits(s[9:11])
	if month < 0 || month%3 != 0 || s[2] != '/' || s[6] != '/' || century < 0 || years < 0 || day < 1 || day > 31 {
		return 0, errNoTime
	}
	midnight := time.Date(century*100+years, time.Month(month/3+1), day, 0, 0, 0, 0, time.UTC)
	if midnight.Day() != day {
		return 0, errNoTime
	}
	return midnight.Unix(), nil
}

// twoDigits parses a number of two digits, or returns a number below 0.
func twoDigits(s string) int {
	_ = s[1]
	tens, ones := int(s[0])-'0', int(s[1])-'0'
	if tens < 0 || tens > 9 || ones < 0 || ones > 9 {
		return -1
	}
	return tens*10 + ones
}

// jsonTime parses a time: RFC 3339, the Common format, or a number since 1970 whose size tells its
// unit.
func jsonTime(v any) (int64, error) {
	switch v := v.(type) {
	case string:
		if len(v) == len(clockText) && v[2] == '/' {
			return new(clockCache).parseClock(v)
		}
		for _, layout := range []string{time.RFC3339Nano, "2006-01-02T15:04:05.999999999Z0700", "2006-01-02 15:04:05.999999999Z07:00"} {
			if t, err := time.Parse(layout, v); err == nil {
				at, err := nanoseconds(t.Unix())
				return at + int64(t.Nanosecond()), err
			}
		}
		return numberTime(v)
	case json.Number:
		return numberTime(v.String())
	}
	return 0, fmt.Errorf("no time: want one of %s", strings.Join(timeNames, ", "))
}

// numberTime parses the number exactly: a float64 cannot hold today's time in nanoseconds.
func numberTime(text string) (int64, error) {
	var v *big.Rat
	ok := len(text) <= 40 && !strings.ContainsAny(text, "/eE_xXoOpP") // before it is computed: 1e999999 has a million digits
	if ok {
		v, ok = new(big.Rat).SetString(text)
	}
	if !ok {
		return 0, fmt.Errorf("the time %.40q is neither RFC 3339 nor a number", text)
	}
	whole := new(big.Int).Abs(new(big.Int).Quo(v.Num(), v.Denom()))
	scale := int64(1e9)
	// seconds, milliseconds, microseconds, nanoseconds
	for _, unit := range []int64{1e11, 1e14, 1e17} {
		if whole.Cmp(big.NewInt(unit)) >= 0 {
			scale /= 1000
		}
	}
	v.Mul(v, new(big.Rat).SetInt64(scale))
	at := new(big.Int).Quo(v.Num(), v.Denom())
	if !at.IsInt64() {
		return 0, fmt.Errorf("the time %.40q is out of range", text)
	}
	return at.Int64(), nil
}
