package nginx

import (
	"fmt"
	"strconv"
	"strings"
)

// A zone is a limit_req_zone or a limit_conn_zone.
type zone struct {
	d     Directive
	name  string
	conns bool
	key   string // as in the configuration
	rate  string // of requests, in Weir's notation
}

// A use is a limit_req or a limit_conn: a zone with the parameters of this place.
type use struct {
	d           Directive
	zone        *zone
	burst, most int64 // burst of requests; most connections
	delay       int64 // -1 for nodelay
}

// wrong returns an error about a directive.
func wrong(d Directive, fix, format string, args ...any) *Error {
	return &Error{d.Position, fmt.Sprintf("%s: ", d.Name) + fmt.Sprintf(format, args...), fix}
}

// parseZone parses limit_req_zone KEY zone=NAME:SIZE rate=RATE, or limit_conn_zone KEY
// zone=NAME:SIZE.
func parseZone(d Directive) (*zone, error) {
	z := &zone{d: d, conns: d.Name == "limit_conn_zone"}
	rates, zones := 0, 0
	for i, arg := range d.Args {
		name, value, _ := strings.Cut(arg, "=")
		var err error
		switch {
		case name == "zone" && value != "":
			size := ""
			zones++
			if z.name, size, _ = strings.Cut(value, ":"); z.name == "" || size == "" {
				err = wrong(d, "write zone=NAME:SIZE, like zone=one:10m", "%q has no name or no size", arg)
			}
		case name == "rate" && !z.conns:
			rates++
			z.rate, err = parseRate(d, value)
		case arg == "sync": // of nginx Plus
		case i == 0:
			z.key = arg
		default:
			err = wrong(d, "", "there is no parameter %q", arg)
		}
		if err != nil {
			return nil, err
		}
	}
	switch {
	case len(d.Args) == 0 || z.name == "":
		return nil, wrong(d, "write zone=NAME:SIZE, like zone=one:10m", "the zone is missing")
	case zones > 1 || rates > 1:
		return nil, wrong(d, "take one of them out", "a parameter is there twice")
	case !z.conns && z.rate == "":
		return nil, wrong(d, "write rate=10r/s or rate=30r/m", "the rate is missing")
	}
	return z, nil
}

// parseRate parses 10r/s or 30r/m.
func parseRate(d Directive, text string) (string, error) {
	number, unit, _ := strings.Cut(text, "r/")
	n, err := strconv.ParseInt(number, 10, 64)
	if err != nil || n < 1 || n > 1<<40 || unit != "s" && unit != "m" {
		return "", wrong(d, "write it like rate=10r/s or rate=30r/m", "%q is not a rate", text)
	}
	return strconv.FormatInt(n, 10) + "/" + unit, nil
}

// parseUse parses limit_req zone=NAME [burst=N] [nodelay | delay=N], or limit_conn ZONE N.
func parseUse(d Directive, zones map[string]*zone) (u use, err error) {
	u.d = d
	name := ""
	if d.Name == "limit_conn" {
		if len(d.Args) != 2 {
			return u, wrong(d, "write limit_conn ZONE NUMBER", "it has %d arguments", len(d.Args))
		}
		name = d.Args[0]
		if u.most, err = strconv.ParseInt(d.Args[1], 10, 64); err != nil || u.most < 1 || u.most > 65535 {
			return u, wrong(d, "write one from 1 to 65535", "%q is not a number of connections", d.Args[1])
		}
	} else if name, err = u.parameters(); err != nil {
		return u, err
	}
	z := zones[name]
	if z == nil || z.conns != (d.Name == "limit_conn") {
		return u, wrong(d, fmt.Sprintf("add %s_zone ... zone=%s:10m to http", d.Name, name), "there is no zone %q", name)
	}
	u.zone = z
	return u, nil
}

// parameters parses the parameters of a limit_req.
func (u *use) parameters() (zone string, err error) {
	number := func(text string) (n int64) {
		if n, err = strconv.ParseInt(text, 10, 64); err != nil || n < 1 || n > 1<<31 {
			err = wrong(u.d, "write a whole number of at least 1", "%q is not a number of requests", text)
		}
		return n
	}
	if len(u.d.Args) > 3 {
		return "", wrong(u.d, "write limit_req zone=NAME [burst=N] [nodelay | delay=N]", "it has %d arguments", len(u.d.Args))
	}
	for _, arg := range u.d.Args {
		switch name, value, _ := strings.Cut(arg, "="); {
		case name == "zone" && value != "":
			zone = value
		case name == "burst":
			u.burst = number(value)
		case name == "delay":
			u.delay = number(value)
		case arg == "nodelay":
			u.delay = -1
		default:
			err = wrong(u.d, "", "there is no parameter %q", arg)
		}
		if err != nil {
			return "", err
		}
	}
	if zone == "" {
		return "", wrong(u.d, "write zone=NAME", "the zone is missing")
	}
	return zone, nil
}

// delayAfter returns how many requests of the burst are not delayed. nginx accepts more than the
// burst, which changes nothing.
func (u *use) delayAfter() int64 {
	if u.delay < 0 {
		return u.burst
	}
	return min(u.delay, u.burst)
}
