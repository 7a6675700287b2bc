package sim

import (
	"errors"
	"fmt"
	"strings"
)

// A Format says how the lines of a log are read. NewFormat makes it; nil means that Replay finds it
// out for each log.
type Format struct {
	name  string
	parse func(p *parser, line string, it *item) error // nil: the Common and Combined formats, and JSON
}

// String returns the format's name.
func (f *Format) String() string { return f.name }

// allFormats returns the formats with a name. Those of nginx and Caddy are what these servers write by default.
func allFormats() []*Format {
	return []*Format{
		{name: "common"}, {name: "combined"}, {name: "nginx"}, {name: "json"}, {name: "caddy"}, {name: "cloudflare"},
		{name: "haproxy", parse: (*parser).parseHAProxy},
		{name: "envoy", parse: template(envoyTemplate).parse},
		{name: "istio", parse: template(istioTemplate).parse},
		{name: "alb", parse: template(albTemplate).parse},
	}
}

// NewFormat returns the format with a name, or that of a text with $NAME for each field, as nginx's
// log_format has it. It returns nil for auto.
func NewFormat(text string) (*Format, error) {
	if text == "auto" || text == "" {
		return nil, nil
	}
	if strings.Contains(text, "$") {
		return newTemplate(text)
	}
	names := []string{"auto"}
	for _, f := range allFormats() {
		if f.name == text {
			return f, nil
		}
		names = append(names, f.name)
	}
	return nil, fmt.Errorf("%q is no format: write one of %s, or the fields of a line, like '$remote_addr [$time_local] \"$request\" $status'", text, strings.Join(names, ", "))
}

// detect returns the format that reads most of some lines. If none reads any, it is the Common format.
func detect(lines []string) *Format {
	best, most := allFormats()[0], 0
	for _, f := range allFormats() {
		switch f.name {
		case "combined", "nginx", "json", "caddy", "cloudflare":
			continue // read by the first
		}
		p := parser{format: f, agents: true}
		n, json, combined := 0, 0, 0
		for _, line := range lines {
			var it item
			if p.parse(line, &it) != nil {
				continue
			}
			n++
			if it.header != nil {
				json++
			}
			if it.combined {
				combined++
			}
		}
		if n <= most {
			continue
		}
		best, most = f, n
		if f.parse == nil && json > n/2 {
			best = formatNamed(jsonKind(lines))
		} else if f.parse == nil && combined > n/2 {
			best = formatNamed("combined")
		}
	}
	return best
}

func formatNamed(name string) *Format {
	for _, f := range allFormats() {
		if f.name == name {
			return f
		}
	}
	return allFormats()[0]
}

// jsonKind tells the JSON of some servers apart. All are read in the same way.
func jsonKind(lines []string) string {
	for _, line := range lines {
		switch {
		case strings.Contains(line, `"ClientRequestMethod"`):
			return "cloudflare"
		case strings.Contains(line, `"http.log.access`):
			return "caddy"
		}
	}
	return "json"
}

// parseHAProxy parses a line of HAProxy's "option httplog" or "httpslog", with or without what syslog
// writes before it: CLIENT:PORT [TIME] FRONTEND BACKEND/SERVER TIMERS STATUS BYTES ... "REQUEST". Its times have no
// zone, and are read as UTC.
func (p *parser) parseHAProxy(line string, it *item) error {
	const form = "[02/Jan/2006:15:04:05.000]"
	at := strings.Index(line, " [")
	for at >= 0 { // syslog may write PROGRAM[PID]:, but no space before it
		if rest := line[at+1:]; len(rest) > len(form) && rest[len(form)-1] == ']' && rest[3] == '/' && rest[len(form)-5] == '.' {
			break
		}
		next := strings.Index(line[at+1:], " [")
		if next < 0 {
			at = -1
			break
		}
		at += 1 + next
	}
	if at < 0 {
		return errors.New("no valid time: want [day/Mon/year:hour:minute:second.milliseconds]")
	}
	client := line[strings.LastIndexByte(line[:at], ' ')+1 : at]
	if i := strings.LastIndexByte(client, ':'); i > 0 {
		client = client[:i]
	}
	if client == "" {
		return errors.New("no client before the time: want ADDRESS:PORT")
	}
	it.client = strings.Trim(client, "[]")
	clock := line[at+2 : at+1+len(form)-1]
	second, err := p.clock.parse(clock[:len(clock)-4] + " +0000")
	milliseconds := twoDigits(clock[len(clock)-3:])
	last := int(clock[len(clock)-1]) - '0'
	if err != nil || milliseconds < 0 || last < 0 || last > 9 {
		return errNoTime
	}
	it.at = second + int64(milliseconds*10+last)*1e6
	fields := strings.SplitN(line[at+1+len(form):], " ", 7) // "", frontend, server, timers, status, bytes, rest
	if len(fields) < 7 {
		return errors.New("too few fields after the time: want FRONTEND BACKEND/SERVER TIMERS STATUS BYTES and more")
	}
	if err := it.setStatus(fields[4]); err != nil {
		return err
	}
	if p.responses {
		it.response.Status = int(it.status)
		timers := strings.Split(fields[3], "/")
		it.response.setBytes(fields[5])
		it.response.setDuration(strings.TrimPrefix(timers[len(timers)-1], "+"), "ms")
	}
	start := strings.Index(fields[6], ` "`)
	if start < 0 {
		return errors.New("no \"REQUEST\" at the end")
	}
	request, _ := cutQuoted(fields[6][start+2:])
	return it.request(request)
}
