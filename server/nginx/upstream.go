package nginx

import (
	"fmt"
	"net/url"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// group is an upstream block.
type group struct {
	d         Directive
	servers   []Directive
	keepalive int // idle connections; 0 if it is not there
}

// upstream is an upstream of the policy.
type upstream struct {
	name string
	text string // its text in the policy
	from []Position
}

func (c *converter) upstream(d Directive) error {
	if len(d.Args) != 1 || !d.Opens {
		return wrong(d, "write upstream NAME { server ADDRESS; }", "it has no name, or no block")
	}
	g := group{d: d}
	for _, s := range d.Block {
		switch s.Name {
		case "server":
			if len(s.Args) > 0 {
				g.servers = append(g.servers, s)
			}
		case "ip_hash", "hash", "sticky", "random":
			c.note(s.Position, "%s is left out: a request goes to the target with the fewest requests in flight", s.Name)
		case "least_conn": // so does the gateway
		case "keepalive":
			if n, err := strconv.Atoi(first(s.Args)); err == nil && n > 0 && n < 1<<31 {
				g.keepalive = n
				continue
			}
			c.leave(s, "upstream")
		default:
			c.leave(s, "upstream")
		}
	}
	c.groups[d.Args[0]] = g
	return nil
}

// proxied determines where the requests of a location go. at is the location that says so: this
// one, or the one that a try_files names.
func (c *converter) proxied(r *route, d, at Directive, l level) {
	for _, in := range at.Block {
		switch {
		case (in.Name == "proxy_pass" || in.Name == "grpc_pass") && len(in.Args) == 1:
			c.pass(r, in, l)
			return
		case strings.HasSuffix(in.Name, "_pass"):
			c.critical(in.Position, "%s is left out: a gateway passes requests on by HTTP; they get 502 until an HTTP server stands there", in.Name)
			r.respond = &response{from: in.Position, status: 502}
			return
		}
	}
	c.note(d.Position, "location %s has no proxy_pass: the gateway serves no files, and responds 404", strings.Join(d.Args, " "))
	r.respond = &response{from: d.Position, status: 404}
}

// pass returns the upstream of a proxy_pass.
func (c *converter) pass(r *route, d Directive, l level) {
	out := func(why string) {
		c.critical(d.Position, "%s %s is left out: %s; its requests get 502", d.Name, d.Args[0], why)
		r.respond = &response{from: d.Position, status: 502}
	}
	to := d.Args[0]
	for name, value := range l.values { // set $backend http://...
		to = strings.ReplaceAll(strings.ReplaceAll(to, "${"+name+"}", value), "$"+name, value)
	}
	if d.Name == "grpc_pass" && !strings.Contains(to, "://") {
		to = "grpc://" + to
	}
	u, err := url.Parse(to)
	grpc := map[string]string{"grpc": "http", "grpcs": "https"}
	switch {
	case strings.Contains(to, "$"):
		out("an upstream is a fixed URL")
		return
	case err == nil && grpc[u.Scheme] != "" && d.Name == "grpc_pass":
	case err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" || strings.HasPrefix(u.Host, "unix:") || u.User != nil:
		out("an upstream is a URL like http://127.0.0.1:9000")
		return
	}
	if path := u.Path; path != "" && d.Name == "proxy_pass" && to == d.Args[0] && path != strings.TrimRight(r.match, "*") {
		if r.exact && strings.HasSuffix(r.match, "{$}") && path == strings.TrimSuffix(r.match, "{$}") {
			path = ""
		}
		if strings.ContainsAny(path, "%?#") {
			c.note(d.Position, "proxy_pass %s: its path is left out", d.Args[0])
			path = ""
		}
		r.path = path
	}
	scheme, protocol := u.Scheme, ""
	if g, ok := grpc[scheme]; ok {
		scheme, protocol = g, map[string]string{"http": "h2c", "https": "h2"}[g]
	}
	targets, from := c.targets(u.Host, scheme, false)
	backups, backupsFrom := c.targets(u.Host, scheme, true)
	if targets == "" { // nginx then always uses the backup servers
		targets, from, backups = backups, backupsFrom, ""
	}
	if targets == "" {
		out("its upstream has no server that a gateway can reach")
		return
	}
	r.upstream = c.reach(slug(u.Host), targets+c.settings(scheme, protocol, l), append(from, d.Position))
	if backups != "" {
		r.backup = c.reach(slug(u.Host)+"-backup", backups+c.settings(scheme, protocol, l), append(backupsFrom, d.Position))
		c.note(c.groups[u.Host].d.Position, "upstream %s: its backup servers become failed: { upstream: %s } of the routes. While the other servers are down, "+
			"each request is tried there first, and requests with a body get 502", u.Host, r.backup)
	}
	r.streams = l.streams && d.Name == "proxy_pass"
	c.sent(d, u.Host, l)
}

// targets returns the url or the targets of an upstream in the policy's notation, or its backup
// servers; empty if none can be reached.
func (c *converter) targets(host, scheme string, backups bool) (text string, from []Position) {
	g, known := c.groups[host]
	c.used["upstream "+host] = true
	switch {
	case !known && backups:
		return "", nil
	case !known:
		return "url: " + quote(scheme+"://"+host), nil
	}
	all := len(g.servers)
	g.servers = slices.DeleteFunc(slices.Clone(g.servers), func(s Directive) bool { return slices.Contains(s.Args[1:], "backup") != backups })
	var plain, weighted []string
	weights := false
	for _, s := range g.servers {
		weight, skip := "", ""
		for _, arg := range s.Args[1:] {
			switch name, value, _ := strings.Cut(arg, "="); name {
			case "weight":
				weight, weights = value, weights || value != "1"
			case "down":
				skip = "it is down"
			case "backup", "max_fails", "fail_timeout", "max_conns": // passive and mostAtOnce look at them
			default:
				c.note(s.Position, "%s of server %s is left out: a target has no such setting", arg, s.Args[0])
			}
		}
		if strings.HasPrefix(s.Args[0], "unix:") {
			skip = "a target has a host and a port"
		}
		at := scheme + "://" + s.Args[0]
		if u, err := url.Parse(at); err != nil || u.Host != s.Args[0] || u.Path != "" || strings.ContainsAny(at, "$ ") {
			skip = "a target has a host and a port"
		}
		if skip != "" {
			if skip != "it is down" {
				c.note(s.Position, "server %s is left out: %s", strings.Join(s.Args, " "), skip)
			}
			continue
		}
		if slices.Contains(plain, quote(at)) {
			c.note(s.Position, "server %s is there twice: give it a larger weight", s.Args[0])
			continue
		}
		plain = append(plain, quote(at))
		if weight == "" {
			weight = "1"
		}
		weighted = append(weighted, fmt.Sprintf("{ url: %s, weight: %s }", quote(at), weight))
	}
	switch {
	case len(plain) == 0:
		return "", nil
	case len(plain) == 1:
		text = "url: " + plain[0]
	case weights:
		text = "targets: [" + strings.Join(weighted, ", ") + "]"
	default:
		text = "targets: [" + strings.Join(plain, ", ") + "]"
	}
	if g.keepalive > 0 {
		text += fmt.Sprintf(", max_idle: %d", g.keepalive)
	}
	return text + c.mostAtOnce(&g) + c.passive(&g, len(plain), all > 1), []Position{g.d.Position}
}

// mostAtOnce returns the setting for max_conns, which a policy has for each target of an upstream.
func (c *converter) mostAtOnce(g *group) string {
	var all []string
	for _, s := range g.servers {
		most := "0" // nginx's default: no bound
		for _, arg := range s.Args[1:] {
			if value, ok := strings.CutPrefix(arg, "max_conns="); ok {
				most = value
			}
		}
		if !slices.Contains(s.Args[1:], "down") && !slices.Contains(all, most) {
			all = append(all, most)
		}
	}
	n, err := strconv.Atoi(first(all))
	switch {
	case len(all) == 1 && err == nil && n == 0:
		return ""
	case len(all) > 1 || err != nil || n < 0 || n >= 1<<31:
		c.critical(g.d.Position, "upstream %s: max_conns is left out: it differs between the servers, and max_requests is the same for all targets", g.d.Args[0])
		return ""
	}
	c.note(g.d.Position, "upstream %s: max_conns=%d becomes max_requests of the whole gateway, with 503 beyond it: nginx responds 502, and without a zone in the upstream each worker counts for itself", g.d.Args[0], n)
	return fmt.Sprintf(", max_requests: %d", n)
}

// passive returns the health settings for max_fails and fail_timeout, which a policy has for all
// targets of an upstream together. nginx ignores them where there is a single server without others,
// such as backup servers, to go to.
func (c *converter) passive(g *group, targets int, others bool) string {
	type setting struct{ fails, timeout string }
	var all []setting
	written := false
	for _, s := range g.servers {
		one := setting{"1", "10s"} // nginx's defaults
		for _, arg := range s.Args[1:] {
			switch name, value, _ := strings.Cut(arg, "="); name {
			case "max_fails":
				one.fails, written = value, true
			case "fail_timeout":
				one.timeout, written = value, true
			}
		}
		if !slices.Contains(s.Args[1:], "down") && !slices.Contains(all, one) {
			all = append(all, one)
		}
	}
	switch {
	case !written: // the policy's defaults
		return ""
	case targets == 1 && others:
		c.note(g.d.Position, "upstream %s: max_fails and fail_timeout are left out: a single target is tried for each request", g.d.Args[0])
		return ""
	case targets == 1:
		c.note(g.d.Position, "upstream %s: max_fails and fail_timeout are left out: nginx ignores them for a single server", g.d.Args[0])
		return ""
	case len(all) > 1:
		c.note(g.d.Position, "upstream %s: max_fails and fail_timeout are left out: they differ between its servers, and health: { failures, down_for } is for all targets", g.d.Args[0])
		return ""
	}
	var parts []string
	if n, err := strconv.Atoi(all[0].fails); err == nil && n >= 0 && n < 1<<31 {
		parts = append(parts, fmt.Sprintf("failures: %d", n))
	} else if all[0].fails != "" {
		c.note(g.d.Position, "upstream %s: max_fails=%s is left out: it is not a number", g.d.Args[0], clip(all[0].fails))
	}
	if t, ok := parseTime(all[0].timeout); ok {
		parts = append(parts, "down_for: "+t)
	} else if all[0].timeout != "" {
		c.note(g.d.Position, "upstream %s: fail_timeout=%s is left out: write down_for", g.d.Args[0], clip(all[0].timeout))
	}
	if len(parts) == 0 {
		return ""
	}
	if parts[0] == "failures: 0" {
		return ", health: { failures: 0 }" // no request takes a target down, for however long
	}
	c.note(g.d.Position, "upstream %s: health.failures counts failed requests in a row, max_fails those within fail_timeout; and a target that fails again is down for longer each time", g.d.Args[0])
	return ", health: { " + strings.Join(parts, ", ") + " }"
}

// settings returns the settings of an upstream besides its targets.
func (c *converter) settings(scheme, protocol string, l level) (text string) {
	if protocol != "" {
		text += ", protocol: " + protocol
	}
	var times []string
	if t, ok := parseTime(l.timeouts.connect); ok {
		times = append(times, "connect: "+t)
	}
	if t, ok := parseTime(l.timeouts.read); ok {
		times = append(times, "response: "+t, "idle: "+t, "upgraded: "+t)
	}
	if len(times) > 0 {
		text += ", timeouts: { " + strings.Join(times, ", ") + " }"
	}
	if scheme != "https" {
		return text
	}
	if l.tls["proxy_ssl_verify"] != "on" {
		// nginx does not verify upstreams by default; weir check warns of it
		return text + ", tls: { insecure: true }"
	}
	var tls []string
	if ca := l.tls["proxy_ssl_trusted_certificate"]; ca != "" {
		tls = append(tls, "ca: "+quote(ca))
	}
	if name := l.tls["proxy_ssl_name"]; name != "" && !strings.Contains(name, "$") {
		tls = append(tls, "server_name: "+quote(name))
	}
	if len(tls) > 0 {
		text += ", tls: { " + strings.Join(tls, ", ") + " }"
	}
	return text
}

// sent adds a note if the upstream gets other header fields than from nginx.
func (c *converter) sent(d Directive, host string, l level) {
	keeps := false
	for _, in := range l.sets {
		if len(in.Args) != 2 {
			continue
		}
		name, value := strings.ToLower(in.Args[0]), in.Args[1]
		switch name {
		case "host":
			if keeps = value == "$host" || value == "$http_host"; !keeps {
				c.note(in.Position, "proxy_set_header Host %s is left out: the upstream gets the Host of the request", value)
			}
			keeps = true
		case "x-forwarded-for", "x-forwarded-proto", "x-forwarded-host", "connection", "upgrade":
		default:
			c.note(in.Position, "proxy_set_header %s %s is left out: the upstream gets X-Forwarded-For, -Host and -Proto, and the fields of the request", in.Args[0], value)
		}
	}
	if !keeps {
		c.hosts[host] = append(c.hosts[host], d.Position)
	}
}

// noteHosts names the upstreams that get another Host than from nginx, with all places of each.
func (c *converter) noteHosts() {
	for host, places := range c.hosts {
		also := ""
		for _, p := range places[1:] {
			if at := fmt.Sprintf("%s:%d", filepath.Base(p.File), p.Line); !strings.HasSuffix(also, at) {
				also += ", " + at
			}
		}
		if also != "" {
			also = "; the same in " + also[2:]
		}
		c.note(places[0], "the upstream gets the Host of the request; from nginx it gets %s%s", host, also)
	}
}

// reach returns the name of the upstream with these settings.
func (c *converter) reach(name, text string, from []Position) string {
	for i := range c.upstreams {
		if u := &c.upstreams[i]; u.text == text {
			for _, p := range from {
				if !slices.Contains(u.from, p) {
					u.from = append(u.from, p)
				}
			}
			return u.name
		}
	}
	name = c.free(name, func(n string) bool {
		return slices.ContainsFunc(c.upstreams, func(u upstream) bool { return u.name == n })
	})
	c.upstreams = append(c.upstreams, upstream{name: name, text: text, from: from})
	return name
}
