package nginx

import (
	"slices"
	"strconv"
	"strings"
)

// level holds the settings that http passes on to server and server to location. A level with
// limits or added header fields of its own inherits none of them. All other settings are inherited
// one by one.
type level struct {
	requests, conns []use
	reqStatus       int
	connStatus      int
	reqLog, connLog string
	reqDry, connDry bool

	proxies  proxies
	fields   []Directive // add_header
	sets     []Directive // proxy_set_header
	body     size        // client_max_body_size
	timeouts timeouts
	streams  bool   // proxy_request_buffering off
	kind     string // default_type
	tls      map[string]string
	values   map[string]string // of set, if fixed
	refuses  []Directive       // allow, deny, auth_...
}

// size is a number of bytes in nginx's notation; 0 means no limit.
type size struct {
	bytes int64
	from  Position
}

// timeouts are the proxy timeouts in nginx's notation; empty if not set.
type timeouts struct{ connect, read string }

// defaultBody is nginx's default of client_max_body_size.
const defaultBody = 1 << 20

func newLevel() level {
	return level{
		reqStatus: 503, connStatus: 503, reqLog: "error", connLog: "error", body: size{bytes: defaultBody}, kind: "text/plain",
		tls: map[string]string{}, values: map[string]string{},
	}
}

// level adds the directives of one level to l, which already holds the inherited settings.
func (c *converter) level(l *level, block []Directive) error {
	var requests, conns []use
	var fields, sets, refuses []Directive
	l.tls, l.values = clone(l.tls), clone(l.values)
	for _, d := range block {
		switch d.Name {
		case "limit_req", "limit_conn":
			u, err := parseUse(d, c.zones)
			if err != nil {
				return err
			}
			of := &requests
			if u.zone.conns {
				of = &conns
			}
			if slices.ContainsFunc(*of, func(o use) bool { return o.zone == u.zone }) {
				return wrong(d, "take one of them out", "the zone %q is there twice", u.zone.name)
			}
			*of = append(*of, u)
		case "add_header":
			fields = append(fields, d)
		case "proxy_set_header":
			sets = append(sets, d)
		case "allow", "deny", "auth_basic", "auth_request", "auth_jwt":
			refuses = append(refuses, d)
		case "set_real_ip_from", "real_ip_header", "real_ip_recursive": // proxies.add looks at them
		default:
			if err := l.set(d); err != nil {
				return err
			}
		}
	}
	l.requests, l.conns = own(requests, l.requests), own(conns, l.conns)
	l.fields, l.sets = own(fields, l.fields), own(sets, l.sets)
	l.refuses = own(refuses, l.refuses)
	l.proxies.add(c, block)
	return nil
}

// own returns the level's own settings if there are any, otherwise the inherited ones.
func own[T any](said, inherited []T) []T {
	if said != nil {
		return said
	}
	return inherited
}

func clone(m map[string]string) map[string]string {
	next := map[string]string{}
	for k, v := range m {
		next[k] = v
	}
	return next
}

// set adds a directive that is inherited one by one.
func (l *level) set(d Directive) (err error) {
	one := func(known ...string) string {
		if len(d.Args) == 1 && slices.Contains(known, d.Args[0]) {
			return d.Args[0]
		}
		err = wrong(d, "write "+strings.Join(known, ", "), "%q is not known", strings.Join(d.Args, " "))
		return ""
	}
	status := func() int {
		if len(d.Args) == 1 {
			if n, e := strconv.Atoi(d.Args[0]); e == nil && n >= 400 && n <= 599 {
				return n
			}
		}
		err = wrong(d, "write one from 400 to 599", "%q is not a status", strings.Join(d.Args, " "))
		return 0
	}
	switch d.Name {
	case "limit_req_status":
		l.reqStatus = status()
	case "limit_conn_status":
		l.connStatus = status()
	case "limit_req_log_level":
		l.reqLog = one("error", "warn", "notice", "info")
	case "limit_conn_log_level":
		l.connLog = one("error", "warn", "notice", "info")
	case "limit_req_dry_run":
		l.reqDry = one("on", "off") == "on"
	case "limit_conn_dry_run":
		l.connDry = one("on", "off") == "on"
	case "client_max_body_size":
		bytes, ok := parseSize(first(d.Args))
		if !ok {
			return wrong(d, "write it like 10m, or 0 for no bound", "%q is not a size", strings.Join(d.Args, " "))
		}
		l.body = size{bytes, d.Position}
	case "proxy_connect_timeout":
		l.timeouts.connect = first(d.Args)
	case "proxy_read_timeout":
		l.timeouts.read = first(d.Args)
	case "proxy_request_buffering":
		l.streams = one("on", "off") == "off"
	case "default_type":
		l.kind = first(d.Args)
	case "set":
		if len(d.Args) == 2 && !strings.Contains(d.Args[1], "$") {
			l.values[strings.TrimPrefix(d.Args[0], "$")] = d.Args[1]
		}
	default:
		if strings.HasPrefix(d.Name, "ssl_") || strings.HasPrefix(d.Name, "proxy_ssl_") {
			l.tls[d.Name] = strings.Join(d.Args, " ")
		}
	}
	return err
}

// parseSize parses bytes in nginx's notation: 8000, 10k, 10m, 1g.
func parseSize(text string) (int64, bool) {
	unit := int64(1)
	if n := len(text); n > 0 {
		switch text[n-1] | 0x20 {
		case 'k':
			unit = 1 << 10
		case 'm':
			unit = 1 << 20
		case 'g':
			unit = 1 << 30
		}
		if unit > 1 {
			text = text[:n-1]
		}
	}
	v, err := strconv.ParseInt(text, 10, 64)
	return v * unit, err == nil && v >= 0 && v <= (1<<53)/unit
}

// parseTime converts a time from nginx's notation to that of a policy: 30 and 30s become 30s, 500ms
// stays. It reports false for a time that a policy cannot express.
func parseTime(text string) (string, bool) {
	digits := strings.TrimRight(text, "msh")
	if n, err := strconv.Atoi(digits); err != nil || n < 1 {
		return "", false
	}
	switch unit := text[len(digits):]; unit {
	case "":
		return digits + "s", true
	case "s", "ms", "m", "h":
		return text, true
	}
	return "", false
}
