package policyfile

import (
	"cmp"
	"fmt"
	"net"
	"slices"
	"strconv"
	"strings"

	"github.com/weirflow/weir/policy"
)

// listen reads where a server listens, and the bounds for its clients.
func (d *decoder) listen(n *node) policy.Listen {
	l := policy.Listen{
		Gateway: d.listeners(n.get("gateway")),
		Bounds:  d.bounds(n.get("bounds")),
		Admin:   d.address(text(n.get("admin")), []string{"listen", "admin"}),
	}
	for _, f := range fields(n) {
		if f.name != "gateway" && f.name != "bounds" && f.name != "admin" {
			l.Others = append(l.Others, d.endpoint(f.name, f.value))
		}
	}
	return l
}

// endpoint reads where a face listens: an address, or a map with it.
func (d *decoder) endpoint(face string, n *node) policy.Endpoint {
	path := []string{"listen", face}
	at := func(names ...string) []string { return append(slices.Clone(path), names...) }
	if n.shape == scalar {
		return policy.Endpoint{Face: face, Address: text(n)}
	}
	e := policy.Endpoint{
		Face:           face,
		Address:        text(n.get("address")),
		Tokens:         text(n.get("tokens")),
		Users:          text(n.get("users")),
		Insecure:       truth(n.get("insecure")),
		MaxConnections: d.count(n.get("max_connections"), 0, at("max_connections")...),
	}
	switch face {
	case "rls":
		e.RLS = d.rls(n)
	case "http":
		if c := n.get("client_limits"); c != nil {
			e.HTTP.ClientLimits = policy.ClientLimits{
				On:       true,
				Store:    text(c.get("store")),
				MaxKeys:  d.count(c.get("max_keys"), 0, at("client_limits", "max_keys")...),
				WhenFull: text(c.get("when_full")),
			}
		}
	case "resp":
		e.RESP = policy.RESP{
			Store:    text(n.get("store")),
			MaxKeys:  d.count(n.get("max_keys"), 0, at("max_keys")...),
			WhenFull: text(n.get("when_full")),
		}
	}
	if t := n.get("tls"); t != nil {
		e.TLS = d.tls(t, at("tls"))
		if len(e.TLS.Certificates) == 0 && t.get("certificates") == nil {
			d.wrong("there is no certificate", "add cert: FILE, key: FILE", at("tls")...)
		}
	}
	return e
}

// rls reads the settings of Envoy's rate limit service.
func (d *decoder) rls(n *node) policy.RLS {
	at := func(name string) []string { return []string{"listen", "rls", name} }
	r := policy.RLS{
		Envoy:            text(n.get("envoy")),
		MergeDomains:     truth(n.get("merge_domains")),
		Store:            text(n.get("store")),
		MaxKeys:          d.count(n.get("max_keys"), 0, at("max_keys")...),
		ShadowMode:       truth(n.get("shadow_mode")),
		QuotaMode:        truth(n.get("quota_mode")),
		DynamicMetadata:  truth(n.get("dynamic_metadata")),
		HTTP:             text(n.get("http")),
		MaxConnectionAge: d.duration(n.get("max_connection_age"), "24h", at("max_connection_age")...),
	}
	if h := n.get("response_headers"); h != nil && (h.shape == mapping || truth(h)) {
		r.HeaderLimit = cmp.Or(text(h.get("limit")), "RateLimit-Limit")
		r.HeaderRemaining = cmp.Or(text(h.get("remaining")), "RateLimit-Remaining")
		r.HeaderReset = cmp.Or(text(h.get("reset")), "RateLimit-Reset")
	}
	for _, name := range []string{"merge_domains", "store", "max_keys", "shadow_mode", "quota_mode", "dynamic_metadata"} {
		if n.get(name) != nil && r.Envoy == "" {
			d.wrong(name+" is about the rules of Envoy's files, and there are none", "add envoy: FILE, or take "+name+" out", at(name)...)
		}
	}
	return r
}

// listeners reads one address, one listener, or a list of either.
func (d *decoder) listeners(n *node) (all []policy.Listener) {
	path := []string{"listen", "gateway"}
	switch {
	case n == nil:
		return nil
	case n.shape == list:
		for i, item := range n.items {
			all = append(all, d.listener(item, append(slices.Clone(path), strconv.Itoa(i))))
		}
	default:
		all = []policy.Listener{d.listener(n, path)}
	}
	d.together(n, all)
	return all
}

// together checks the listeners against each other.
func (d *decoder) together(n *node, all []policy.Listener) {
	secure := slices.ContainsFunc(all, func(l policy.Listener) bool { return l.TLS != nil })
	seen := map[string]bool{}
	for i, l := range all {
		path := []string{"listen", "gateway"}
		if n.shape == list {
			path = append(path, strconv.Itoa(i))
		}
		if l.RedirectHTTPS && !secure {
			d.wrong("there is no address with tls that requests could be sent to", "add one with tls, or take redirect_https out", append(path, "redirect_https")...)
		}
		if seen[l.Address] && l.Address != "" && !strings.HasSuffix(l.Address, ":0") {
			d.wrong(fmt.Sprintf("%s is there twice", l.Address), "take one of them out", path...)
		}
		seen[l.Address] = true
	}
}

func (d *decoder) listener(n *node, path []string) policy.Listener {
	at := func(name string) []string { return append(slices.Clone(path), name) }
	if n.shape == scalar {
		return policy.Listener{Address: d.address(text(n), path)}
	}
	l := policy.Listener{
		Address:       d.address(text(n.get("address")), at("address")),
		H2C:           truth(n.get("h2c")),
		RedirectHTTPS: truth(n.get("redirect_https")),
	}
	if r := n.get("redirect_https"); r != nil && r.shape != scalar {
		l.RedirectHTTPS, l.RedirectHosts = true, texts(r)
		for i, host := range l.RedirectHosts {
			if err := policy.ParseHost(host); err != nil {
				d.wrong(err.Error(), "write it like shop.example, or *.shop.example for all hosts below it", append(at("redirect_https"), strconv.Itoa(i))...)
			}
		}
		if len(l.RedirectHosts) == 0 {
			d.wrong("no host would be redirected", "name the hosts, or write true for all", at("redirect_https")...)
		}
	}
	if peers := n.get("proxy_protocol"); peers != nil {
		l.ProxyProtocol = d.prefixes(peers, at("proxy_protocol")...)
		if len(texts(peers)) == 0 {
			d.wrong("proxy_protocol without addresses accepts no connection", "name the load balancers that send the header, like 10.0.0.0/8, or take proxy_protocol out", at("proxy_protocol")...)
		}
	}
	if t := n.get("tls"); t != nil {
		l.TLS = d.tls(t, at("tls"))
		if l.H2C {
			d.wrong("h2c is HTTP/2 without TLS, and this address has tls", "take h2c out: HTTP/2 is there with TLS", at("h2c")...)
		}
		if l.RedirectHTTPS {
			d.wrong("this address has tls itself", "put redirect_https to an address without", at("redirect_https")...)
		}
	}
	return l
}

// address checks HOST:PORT more strictly than the schema, which only looks at the end of the text.
func (d *decoder) address(written string, path []string) string {
	if written == "" {
		return "" // already reported, or missing
	}
	if _, port, err := net.SplitHostPort(written); err != nil || !isPort(port) {
		d.wrong(fmt.Sprintf("%q is not an address", written), "write HOST:PORT, like 127.0.0.1:8080, or [::1]:8080 for IPv6", path...)
	}
	return written
}

func isPort(text string) bool {
	_, err := strconv.ParseUint(text, 10, 16)
	return err == nil
}

func (d *decoder) tls(n *node, path []string) *policy.TLS {
	t := &policy.TLS{ClientCA: text(n.get("client_ca")), ClientAuth: text(n.get("client_auth")), MinVersion: text(n.get("min_version"))}
	certificates := n.get("certificates")
	if cert, key := text(n.get("cert")), text(n.get("key")); cert != "" && key != "" {
		t.Certificates = append(t.Certificates, policy.Certificate{Cert: cert, Key: key})
	} else if cert != key {
		d.wrong("cert and key belong together", "write cert: FILE, key: FILE", path...)
	}
	for _, c := range items(certificates) {
		t.Certificates = append(t.Certificates, policy.Certificate{Cert: text(c.get("cert")), Key: text(c.get("key"))})
	}
	if certificates != nil && certificates.shape == list && len(certificates.items) == 0 {
		d.wrong("there is no certificate", "add one: { cert: FILE, key: FILE }", append(slices.Clone(path), "certificates")...)
	}
	if t.ClientAuth != "" && t.ClientCA == "" {
		d.wrong("client_auth needs to know whose certificates are good", "add client_ca: FILE", append(slices.Clone(path), "client_auth")...)
	}
	return t
}

func (d *decoder) bounds(n *node) policy.Bounds {
	path := func(name string) []string { return []string{"listen", "bounds", name} }
	return policy.Bounds{
		MaxHeader:            d.size(n.get("max_header"), 1<<10, path("max_header")...),
		MaxFields:            d.count(n.get("max_fields"), 0, path("max_fields")...),
		MaxBody:              d.size(n.get("max_body"), 1, path("max_body")...),
		MinBodyRate:          d.size(n.get("min_body_rate"), 1, path("min_body_rate")...),
		MaxConnections:       d.count(n.get("max_connections"), 0, path("max_connections")...),
		MaxClientConnections: d.count(n.get("max_client_connections"), 0, path("max_client_connections")...),
		MaxStreams:           d.count(n.get("max_streams"), 0, path("max_streams")...),
		MaxRequests:          d.count(n.get("max_requests"), 0, path("max_requests")...),
		HeaderTimeout:        d.duration(n.get("header_timeout"), "10s", path("header_timeout")...),
		BodyTimeout:          d.duration(n.get("body_timeout"), "30s", path("body_timeout")...),
		WriteTimeout:         d.duration(n.get("write_timeout"), "1m", path("write_timeout")...),
		IdleTimeout:          d.duration(n.get("idle_timeout"), "2m", path("idle_timeout")...),
	}
}

// routeBodies reads the max_body of each route.
func (d *decoder) routeBodies(n *node, routes []policy.Route) {
	for i, r := range items(n) {
		if m := r.get("max_body"); text(m) == "none" {
			routes[i].MaxBody = -1
		} else {
			routes[i].MaxBody = d.size(m, 1, "routes", strconv.Itoa(i), "max_body")
		}
	}
}

// accessLog reads where requests are logged. A single text is the file.
func (d *decoder) accessLog(n *node) policy.AccessLog {
	if n == nil {
		return policy.AccessLog{}
	}
	if n.shape == scalar {
		return policy.AccessLog{File: text(n)}
	}
	return policy.AccessLog{File: text(n.get("file")), Format: text(n.get("format"))}
}

// decisionLog reads which decisions are logged.
func (d *decoder) decisionLog(n *node) (l policy.DecisionLog) {
	if n == nil {
		return l
	}
	l = policy.DecisionLog{On: true, Decisions: texts(n.get("decisions")), Keys: text(n.get("keys")), SecretFile: text(n.get("secret_file"))}
	if per := text(n.get("per_second")); per != "" {
		l.PerSecond, _ = strconv.Atoi(per) // the schema has its bounds
	}
	return l
}

// size reads bytes: a number, or a number with KiB, MiB or GiB.
func (d *decoder) size(n *node, least int64, path ...string) int64 {
	written := text(n)
	if written == "" {
		return 0
	}
	digits, unit := written, int64(1)
	for _, u := range []struct {
		name  string
		bytes int64
	}{{"KiB", 1 << 10}, {"MiB", 1 << 20}, {"GiB", 1 << 30}} {
		if before, ok := strings.CutSuffix(written, u.name); ok {
			digits, unit = strings.TrimSuffix(before, " "), u.bytes
		}
	}
	v, err := strconv.ParseInt(digits, 10, 64)
	if err != nil || v < 0 || v > (1<<53)/unit {
		d.wrong(fmt.Sprintf("%q is not a number of bytes", written), "write one like 65536, 64KiB, 10MiB or 2GiB", path...)
		return 0
	}
	if v *= unit; v < least {
		d.wrong(fmt.Sprintf("%q is too small", written), fmt.Sprintf("write at least %d", least), path...)
		return 0
	}
	return v
}
