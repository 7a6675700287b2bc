package nginx

import (
	"cmp"
	"fmt"
	"net"
	"slices"
	"strconv"
	"strings"
)

// Options are how a configuration is turned into a policy.
type Options struct {
	Gateway    string // where the gateway is to listen; empty is where the first server does
	Admin      string // where the admin pages are to be; empty is nowhere
	Arithmetic bool   // limits count as nginx does, in thousandths of a request and milliseconds, and not exactly
}

// A Note is something in a configuration that is not in the policy, or not quite, and why.
type Note struct {
	Position
	Text string
}

// String has the form FILE:LINE:COL: TEXT.
func (n Note) String() string { return n.Position.String() + ": " + n.Text }

// A Result is what became of a configuration.
type Result struct {
	Policy []byte // YAML
	Notes  []Note // what is left out of it, and what differs, in the order of the configuration
}

// Import turns the limiting parts of a configuration into a policy file. What nginx would refuse is an *Error.
func Import(files Files, name string, o Options) (*Result, error) {
	all, err := Parse(files, name)
	if err != nil {
		return nil, err
	}
	c := &converter{Options: o, zones: map[string]*zone{}, groups: map[string]group{}, name: name, noted: map[string]bool{}}
	for _, d := range all {
		switch {
		case d.Name == "http" && d.Opens:
			err = c.http(d)
		case d.Opens && d.Name != "events":
			c.note(d.Position, "%s is left out: only what is in http is turned into a policy", d.Name)
		}
		if err != nil {
			return nil, err
		}
	}
	if c.Gateway != "" {
		c.listen = listen{address: c.Gateway}
	}
	policy := c.yaml() // which may have notes of its own
	slices.SortStableFunc(c.notes, func(a, b Note) int {
		return cmp.Or(cmp.Compare(a.File, b.File), cmp.Compare(a.Line, b.Line), cmp.Compare(a.Col, b.Col))
	})
	return &Result{policy, c.notes}, nil
}

// converter turns directives into the parts of a policy.
type converter struct {
	Options
	name   string
	zones  map[string]*zone
	groups map[string]group // upstream blocks
	notes  []Note
	noted  map[string]bool // what is told once

	limits    []limit
	upstreams []upstream
	servers   []server
	listen    listen
}

// group is an upstream block.
type group struct {
	d       Directive
	servers []Directive
}

// limit is one of the policy, made of a zone and of how it is used.
type limit struct {
	use
	name   string
	key    key
	shadow bool
	log    string
	status int // 0 is the route's
}

// upstream is one of the policy.
type upstream struct {
	name, url string
	from      []Position
}

type listen struct {
	address string
	from    Position
}

// server is a server block with its routes.
type server struct {
	d      Directive
	label  string   // $server_name
	names  []string // those that a route can have
	routes []route
	listen []string
	first  bool // it answers where no name fits
}

// route is a location, for one or two matches.
type route struct {
	from     Position
	paths    []string
	exact    bool
	length   int // of nginx's prefix
	upstream string
	limits   []string
	status   int
}

// level is what is inherited from http to server to location: limits only by one that has none of its own, the others one by one.
type level struct {
	requests, conns []use
	reqStatus       int
	connStatus      int
	reqLog, connLog string
	reqDry, connDry bool
}

func (c *converter) note(at Position, format string, args ...any) {
	text := fmt.Sprintf(format, args...)
	if key := at.String() + text; !c.noted[key] {
		c.noted[key] = true
		c.notes = append(c.notes, Note{at, text})
	}
}

// http goes through the http block: zones and upstreams may stand after what uses them.
func (c *converter) http(d Directive) error {
	for _, in := range d.Block {
		switch in.Name {
		case "limit_req_zone", "limit_conn_zone":
			z, err := parseZone(in)
			if err != nil {
				return err
			}
			if known := c.zones[z.name]; known != nil {
				return wrong(in, "give each zone a name of its own", "the zone %q is there already, in %v", z.name, known.d.Position)
			}
			c.zones[z.name] = z
		case "upstream":
			if err := c.upstream(in); err != nil {
				return err
			}
		}
	}
	top := level{reqStatus: 503, connStatus: 503, reqLog: "error", connLog: "error"}
	if err := c.level(&top, d.Block); err != nil {
		return err
	}
	for _, in := range d.Block {
		if in.Name == "server" && in.Opens {
			if err := c.server(in, top); err != nil {
				return err
			}
			continue
		}
		c.leave(in)
	}
	return nil
}

func (c *converter) upstream(d Directive) error {
	if len(d.Args) != 1 || !d.Opens {
		return wrong(d, "write upstream NAME { server ADDRESS; }", "it has no name, or no block")
	}
	g := group{d: d}
	for _, s := range d.Block {
		if s.Name == "server" && len(s.Args) > 0 {
			g.servers = append(g.servers, s)
		}
	}
	c.groups[d.Args[0]] = g
	return nil
}

// level takes in the limits of one level. What is inherited is in l already.
func (c *converter) level(l *level, block []Directive) error {
	var requests, conns []use
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
		default:
			if err := l.set(d); err != nil {
				return err
			}
		}
	}
	if requests != nil {
		l.requests = requests
	}
	if conns != nil {
		l.conns = conns
	}
	return nil
}

// set takes in a directive about limits that is inherited by itself.
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
	}
	return err
}

// server goes through a server block.
func (c *converter) server(d Directive, inherited level) error {
	s := server{d: d}
	if err := c.level(&inherited, d.Block); err != nil {
		return err
	}
	for _, in := range d.Block {
		switch {
		case in.Name == "listen":
			c.listens(&s, in)
		case in.Name == "server_name":
			for _, name := range in.Args {
				c.named(&s, in, name)
			}
			if s.label == "" && len(in.Args) > 0 {
				s.label = in.Args[0]
			}
		case in.Name == "location":
		default:
			c.leave(in)
		}
	}
	if len(s.listen) == 0 {
		s.listen = []string{"0.0.0.0:80"}
		if c.listen.address == "" {
			c.listen = listen{s.listen[0], d.Position}
		}
	}
	c.first(&s)
	if err := c.locations(&s, d.Block, inherited); err != nil {
		return err
	}
	c.servers = append(c.servers, s)
	return nil
}

// first says whether a server answers where no name fits: nginx's default server, of those at the gateway's address.
func (c *converter) first(s *server) {
	if !slices.Contains(s.listen, c.listen.address) {
		c.note(s.d.Position, "the server listens on %s, and a gateway on one address alone: its routes are at %s", s.listen[0], c.listen.address)
		s.first = false
		return
	}
	s.first = s.first || !slices.ContainsFunc(c.servers, func(o server) bool { return o.first })
	for i := range c.servers {
		c.servers[i].first = c.servers[i].first && !s.first
	}
}

// listens takes in an address.
func (c *converter) listens(s *server, d Directive) {
	if len(d.Args) == 0 {
		return
	}
	address := d.Args[0]
	if strings.HasPrefix(address, "unix:") {
		c.note(d.Position, "listen %s is left out: a gateway listens on TCP", address)
		return
	}
	if _, err := strconv.Atoi(address); err == nil {
		address = "0.0.0.0:" + address
	} else if host, port, err := net.SplitHostPort(address); err != nil || port == "" {
		address = net.JoinHostPort(strings.Trim(address, "[]"), "80")
	} else if host == "*" {
		address = "0.0.0.0:" + port
	}
	for _, arg := range d.Args[1:] {
		switch arg {
		case "default_server", "default":
			s.first = true
		case "ssl", "http2", "quic", "proxy_protocol":
			c.note(d.Position, "listen ... %s is left out", arg)
		}
	}
	s.listen = append(s.listen, address)
	if c.listen.address == "" {
		c.listen = listen{address, d.Position}
	}
	if len(s.listen) > 1 && s.listen[0] != address {
		c.note(d.Position, "listen %s is left out: a gateway listens on one address", address)
	}
}

// named takes in a name of a server.
func (c *converter) named(s *server, d Directive, name string) {
	switch {
	case name == "" || name == "_": // of no request
	case strings.HasPrefix(name, "~") || strings.ContainsAny(name, "*") || strings.HasPrefix(name, "."):
		c.note(d.Position, "server_name %s is left out: the host of a route is a plain name", name)
	default:
		s.names = append(s.names, strings.ToLower(name))
	}
}
