package nginx

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// server is a server block with its routes.
type server struct {
	d      Directive
	label  string   // $server_name
	names  []string // plain names
	wild   []string // *.example.com
	bounds []bound
	hosts  map[string]response // from if ($host = ...) { return ... }
	order  []string            // the order of hosts
	always *response           // from a return for all requests
	routes []route
	limits bool // some location has limits
}

// response is the response of a return, or of a rewrite that redirects.
type response struct {
	from     Position
	status   int
	body     string
	kind     string
	redirect string
}

// onlyReturns reports whether a server forwards no requests.
func (s *server) onlyReturns() bool {
	return s.always != nil || !slices.ContainsFunc(s.routes, func(r route) bool { return r.upstream != "" })
}

// server converts a server block.
func (c *converter) server(d Directive, inherited level) error {
	s := &server{d: d, hosts: map[string]response{}}
	clear2 := false // HTTP/2, also without TLS
	if err := c.level(&inherited, d.Block); err != nil {
		return err
	}
	s.limits = limits(d.Block) || len(inherited.requests)+len(inherited.conns) > 0
	for _, in := range d.Block {
		switch {
		case in.Name == "listen":
			c.listens(s, in)
		case in.Name == "server_name":
			for _, name := range in.Args {
				c.named(s, in, name)
			}
			if s.label == "" {
				s.label = first(in.Args)
			}
		case in.Name == "return" || in.Name == "rewrite":
			if r, ok := c.returned(s, in, inherited); ok && s.always == nil {
				s.always = &r
			}
		case in.Name == "if":
			c.ifHost(s, in, inherited)
		case in.Name == "location":
		case in.Name == "try_files": // for paths without a location
			c.triesFiles(in, d.Block)
		case in.Name == "http2" && first(in.Args) == "on":
			clear2 = true
		default:
			c.leave(in, "server")
		}
	}
	for _, b := range s.bounds {
		if at := c.address(b.address, d.Position); clear2 && !at.tls {
			at.h2c = true
		}
	}
	if len(s.bounds) == 0 {
		if slices.ContainsFunc(d.Block, func(in Directive) bool { return in.Name == "listen" }) {
			c.critical(d.Position, "the server is left out, with its limits: it listens on no address that a gateway can have")
			return nil
		}
		c.address("0.0.0.0:80", d.Position)
		s.bounds = []bound{{address: "0.0.0.0:80"}}
	}
	if err := c.secure(s, inherited); err != nil {
		return err
	}
	if s.always == nil {
		c.errorPages(append(slices.Clone(c.pages), d.Block...), d.Block)
		if err := c.locations(s, d.Block, inherited, d.Block); err != nil {
			return err
		}
		c.rest(s, inherited)
	}
	c.servers = append(c.servers, s)
	return nil
}

// limits reports whether a block, or a nested one, contains a limit.
func limits(block []Directive) bool {
	return slices.ContainsFunc(block, func(d Directive) bool {
		return d.Name == "limit_req" || d.Name == "limit_conn" || limits(d.Block)
	})
}

// hostName matches the hosts that a route can have.
var hostName = regexp.MustCompile(`^(?:[a-z0-9_-]+(?:\.[a-z0-9_-]+)*\.?|\[[0-9a-f:]+\])$`)

// named adds a name of a server.
func (c *converter) named(s *server, d Directive, name string) {
	name = strings.ToLower(name)
	switch {
	case name == "" || name == "_": // no request has it
	case !hostName.MatchString(strings.TrimPrefix(strings.TrimPrefix(name, "*"), ".")) && !strings.HasPrefix(name, "~") && !strings.HasSuffix(name, ".*"):
		c.critical(d.Position, "server_name %s is left out: it is not a host name", clip(name))
	case strings.HasPrefix(name, "~") || strings.HasSuffix(name, ".*"):
		c.critical(d.Position, "server_name %s is left out: a host is a name, or *.NAME; its requests go to the default server", name)
	case strings.HasPrefix(name, "*."):
		s.wild = append(s.wild, name)
	case strings.HasPrefix(name, "."):
		s.names, s.wild = append(s.names, name[1:]), append(s.wild, "*"+name)
	default:
		s.names = append(s.names, name)
	}
}

// ifHost converts if ($host = NAME) { return ...; }, which certbot writes. Every other if is left
// out.
func (c *converter) ifHost(s *server, d Directive, l level) {
	if len(d.Args) == 3 && (d.Args[0] == "($host" || d.Args[0] == "($http_host") && d.Args[1] == "=" && len(d.Block) == 1 && d.Block[0].Name == "return" {
		host := strings.ToLower(strings.TrimSuffix(d.Args[2], ")"))
		if r, ok := c.returned(s, d.Block[0], l); ok && hostName.MatchString(host) {
			if _, known := s.hosts[host]; !known {
				s.order = append(s.order, host)
			}
			s.hosts[host] = r
			return
		}
	}
	c.critical(d.Position, "if %s is left out: a policy has no conditions but match and exempt", strings.Join(d.Args, " "))
}

// returned converts a return or a rewrite. If a route cannot express it, returned adds a note and
// reports false.
func (c *converter) returned(s *server, d Directive, l level) (r response, ok bool) {
	r.from = d.Position
	if d.Name == "rewrite" {
		return c.rewritten(s, d, l)
	}
	text := first(d.Args)
	status, err := strconv.Atoi(text)
	if err != nil { // return URL;
		status = 302
	} else if text = ""; len(d.Args) > 1 {
		text = d.Args[1]
	}
	switch {
	case status == 444:
		c.note(d.Position, "return 444 becomes 400: a gateway does not end connections without a response")
		r.status = 400
	case status >= 300 && status < 400 && status != 304 && text != "":
		r.status = status
		if r.redirect, ok = c.template(s, text); !ok {
			c.critical(d.Position, "return %s is left out: a redirect has no variables but $scheme, $host, $request_uri, $uri and $args", text)
			return r, false
		}
	case status < 200 || status > 599:
		c.critical(d.Position, "return %s is left out", strings.Join(d.Args, " "))
		return r, false
	case strings.Contains(text, "$"):
		c.note(d.Position, "return %d: its text is left out, as there are variables in it", status)
		r.status = status
	default:
		r.status, r.body, r.kind = status, text, l.kind
	}
	return r, true
}

// rewritten converts a rewrite that redirects every request.
func (c *converter) rewritten(s *server, d Directive, l level) (r response, ok bool) {
	r.from = d.Position
	flag := ""
	if len(d.Args) == 3 {
		flag = d.Args[2]
	}
	if len(d.Args) >= 2 {
		to := strings.TrimSuffix(d.Args[1], "?")
		switch d.Args[0] {
		case "^(.*)$", "^(.*)", "(.*)":
			to = strings.ReplaceAll(to, "$1", "$request_uri")
		case "^/(.*)$", "^/(.*)":
			to = strings.ReplaceAll(to, "/$1", "$request_uri")
		}
		whole := []string{"^", "^(.*)$", "^(.*)", "(.*)", "^/(.*)$", "^/(.*)", ".*", "^.*$", "^/"}
		if slices.Contains(whole, d.Args[0]) && (flag == "permanent" || flag == "redirect" || strings.HasPrefix(to, "http")) {
			r.status = map[string]int{"permanent": 301}[flag]
			if r.status == 0 {
				r.status = 302
			}
			if r.redirect, ok = c.template(s, to); ok {
				if !strings.Contains(d.Args[1], "?") && !strings.Contains(to, "$request_uri") {
					r.redirect += "{?query}" // nginx appends it
				}
				return r, true
			}
		}
	}
	c.leaveRewrite(s, d, l, flag)
	return r, false
}

// template converts a text with variables to the notation of a policy's redirect.
func (c *converter) template(s *server, text string) (string, bool) {
	names, literal, why := pieces(text)
	if why != "" {
		return "", false
	}
	scheme := "http"
	if slices.ContainsFunc(s.bounds, func(b bound) bool { return c.address(b.address, s.d.Position).tls }) {
		scheme = "https"
	}
	known := map[string]string{
		"host": "{host}", "http_host": "{host}", "request_uri": "{uri}", "uri": "{path}", "document_uri": "{path}", "args": "{query}", "query_string": "{query}",
		"scheme": scheme, "server_name": s.label,
	}
	out := ""
	for i, name := range names {
		value, ok := known[name]
		switch {
		case literal[i] && strings.ContainsAny(name, "{}"):
			return "", false
		case literal[i]:
			value = name
		case name == "is_args" && i+1 < len(names) && names[i+1] == "args":
			names[i+1], literal[i+1], value = "", true, "{?query}"
		case !ok || value == "":
			return "", false
		}
		out += value
	}
	return out, true
}

// rest handles requests of a server that match no location. nginx would look for files.
func (c *converter) rest(s *server, l level) {
	for _, r := range s.routes {
		if r.match == "/" {
			return
		}
	}
	r := route{from: s.d.Position, match: "/", rank: rankPrefix, respond: &response{from: s.d.Position, status: 404}, body: l.body}
	c.limited(&r, s, l)
	c.trusts(&l, s.d.Position)
	s.routes = append(s.routes, r)
}

// String returns a response for the policy's respond.
func (r response) String() string {
	text := fmt.Sprintf("{ status: %d", r.status)
	if r.redirect != "" {
		text += ", redirect: " + quote(r.redirect)
	}
	if r.body != "" {
		text += ", body: " + quote(r.body)
		if r.kind != "" && r.kind != "text/plain" {
			text += ", type: " + quote(r.kind)
		}
	}
	return text + " }"
}
