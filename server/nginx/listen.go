package nginx

import (
	"fmt"
	"net"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// address is an address that the gateway listens on.
type address struct {
	text     string // HOST:PORT
	from     Position
	tls      bool
	h2c      bool
	proxy    bool // PROXY protocol
	certs    []certificate
	minTLS   string
	clientCA string
	optional bool // clients need no certificate
}

type certificate struct{ cert, key string }

// bound says how a server listens on an address.
type bound struct {
	address string
	first   bool // default_server: used when no name fits
}

// listens adds a listen directive.
func (c *converter) listens(s *server, d Directive) {
	if len(d.Args) == 0 {
		return
	}
	text := d.Args[0]
	if strings.HasPrefix(text, "unix:") {
		c.critical(d.Position, "listen %s is left out: a gateway listens on TCP", text)
		return
	}
	if _, err := strconv.Atoi(text); err == nil {
		text = "0.0.0.0:" + text
	} else if host, port, err := net.SplitHostPort(text); err != nil || port == "" {
		text = net.JoinHostPort(strings.Trim(text, "[]"), "80")
	} else if host == "*" {
		text = "0.0.0.0:" + port
	}
	if host, port, err := net.SplitHostPort(text); err != nil || !isPort(port) || strings.ContainsAny(host, "=/ $") {
		c.critical(d.Position, "listen %s is left out: it is not an address", clip(d.Args[0]))
		return
	}
	c.ipv6 = c.ipv6 || strings.HasPrefix(text, "[")
	at := c.address(text, d.Position)
	b := bound{address: text}
	var others []string
	for _, arg := range d.Args[1:] {
		switch arg {
		case "default_server", "default":
			b.first = true
		case "ssl":
			at.tls = true
		case "http2", "h2":
			at.h2c = true
		case "proxy_protocol":
			at.proxy = true
		case "quic":
			c.note(d.Position, "listen %s quic is left out: the gateway speaks HTTP/1.1 and HTTP/2", d.Args[0])
			return
		case "bind", "ipv6only=on", "ipv6only=off": // joinWildcards says where IPv4 comes in too
		default:
			others = append(others, arg)
		}
	}
	if len(others) > 0 {
		c.note(d.Position, "listen %s: %s is left out: an address of the gateway has no such setting", d.Args[0], clip(strings.Join(others, " ")))
	}
	s.bounds = append(s.bounds, b)
}

func isPort(text string) bool {
	_, err := strconv.ParseUint(text, 10, 16)
	return err == nil
}

func (c *converter) address(text string, from Position) *address {
	for i := range c.addresses {
		if c.addresses[i].text == text {
			return &c.addresses[i]
		}
	}
	c.addresses = append(c.addresses, address{text: text, from: from})
	return &c.addresses[len(c.addresses)-1]
}

// secure adds the certificates of a server to its addresses with TLS.
func (c *converter) secure(s *server, l level) error {
	for _, b := range s.bounds {
		at := c.address(b.address, s.d.Position)
		if !at.tls {
			continue
		}
		file := func(name string) string {
			text := l.tls[name]
			if text == "" || filepath.IsAbs(text) || strings.Contains(text, "$") {
				return text
			}
			if dir, err := filepath.Abs(filepath.Dir(c.name)); err == nil {
				// nginx resolves names relative to its configuration
				return filepath.Join(dir, text)
			}
			return text
		}
		cert := certificate{file("ssl_certificate"), file("ssl_certificate_key")}
		switch {
		case l.tls["ssl_reject_handshake"] == "on":
			c.note(s.d.Position, "ssl_reject_handshake is left out: clients without a known name get the first certificate")
		case cert.cert == "" || cert.key == "":
			return wrong(s.d, "add ssl_certificate and ssl_certificate_key", "it listens on %s with ssl, and has no certificate", b.address)
		case strings.Contains(cert.cert+cert.key, "$") || strings.HasPrefix(cert.key, "engine:") || strings.HasPrefix(cert.cert, "data:"):
			c.critical(s.d.Position, "the certificate %s is left out: the gateway reads certificates from files", cert.cert)
		case !slices.Contains(at.certs, cert):
			at.certs = append(at.certs, cert)
			if b.first { // for clients that send no server name
				at.certs = append([]certificate{cert}, at.certs[:len(at.certs)-1]...)
			}
		}
		if p := l.tls["ssl_protocols"]; p == "TLSv1.3" {
			at.minTLS = "1.3"
		} else if strings.Contains(p+" ", "TLSv1 ") || strings.Contains(p, "TLSv1.1") {
			c.note(s.d.Position, "ssl_protocols %s: clients need TLS 1.2", p)
		}
		switch verify := l.tls["ssl_verify_client"]; verify {
		case "on", "optional":
			at.clientCA, at.optional = file("ssl_client_certificate"), verify == "optional"
		case "", "off":
		default:
			c.critical(s.d.Position, "ssl_verify_client %s is left out: certificates of clients are not looked at", verify)
		}
	}
	return nil
}

// joinWildcards replaces two addresses by one if nginx listens on a port for all IPv4 and all IPv6
// addresses: the gateway's [::]:PORT covers both.
func (c *converter) joinWildcards() {
	for _, six := range slices.Clone(c.addresses) {
		port, ok := strings.CutPrefix(six.text, "[::]:")
		if !ok {
			continue
		}
		four := "0.0.0.0:" + port
		i := slices.IndexFunc(c.addresses, func(a address) bool { return a.text == four })
		if i < 0 {
			c.note(six.from, "listen %s is for IPv6 alone in nginx; the gateway takes IPv4 there too", six.text)
			continue
		}
		to := c.address(six.text, six.from)
		if c.addresses[i].tls != to.tls {
			c.critical(six.from, "listen %s and %s differ in ssl: both have it in the policy if one has", four, six.text)
			to.tls = true
		}
		to.from, to.h2c, to.proxy = c.addresses[i].from, to.h2c || c.addresses[i].h2c, to.proxy || c.addresses[i].proxy
		for _, cert := range c.addresses[i].certs {
			if !slices.Contains(to.certs, cert) {
				to.certs = append(to.certs, cert)
			}
		}
		c.addresses = slices.Delete(c.addresses, i, i+1)
		for _, s := range c.servers {
			for j, b := range s.bounds {
				if b.address == four {
					s.bounds[j].address = six.text
				}
			}
		}
	}
	for _, s := range c.servers {
		var kept []bound
		for _, b := range s.bounds {
			if j := slices.IndexFunc(kept, func(o bound) bool { return o.address == b.address }); j >= 0 {
				kept[j].first = kept[j].first || b.first
				continue
			}
			kept = append(kept, b)
		}
		s.bounds = kept
	}
}

// connect connects the addresses, the servers and the proxies, when all of them are known.
func (c *converter) connect() error {
	c.joinWildcards()
	c.joinProxies()
	c.checkProxies()
	if c.Gateway != "" {
		c.listenElsewhere()
	}
	return nil
}

// listenElsewhere replaces all addresses by the one address of a trial, which has HTTP/2 in clear if
// one of them has it.
func (c *converter) listenElsewhere() {
	busy := slices.ContainsFunc(c.servers, func(s *server) bool { return !s.onlyReturns() })
	first := map[string]bool{}
	var kept []*server
	for _, s := range c.servers {
		if busy && s.onlyReturns() {
			c.note(s.d.Position, "the server is left out of the policy for %s: it only responds itself, like one that redirects to HTTPS", c.Gateway)
			continue
		}
		isFirst := slices.ContainsFunc(s.bounds, func(b bound) bool { return b.first })
		s.bounds = []bound{{c.Gateway, isFirst && !first[c.Gateway]}}
		first[c.Gateway] = first[c.Gateway] || isFirst
		kept = append(kept, s)
	}
	if len(c.addresses) > 1 {
		c.note(c.addresses[0].from, "%d addresses become %s, without TLS: servers that differ only by address are one after another there", len(c.addresses), c.Gateway)
	}
	h2c := slices.ContainsFunc(c.addresses, func(a address) bool { return a.h2c && !a.tls })
	c.servers, c.addresses = kept, []address{{text: c.Gateway, h2c: h2c}}
}

// String returns the address for the policy's listen.
func (a *address) String(trusted []string) string {
	if !a.tls && !a.proxy && !a.h2c {
		return quote(a.text)
	}
	text := "{ address: " + quote(a.text)
	if a.tls {
		var certs []string
		for _, cert := range a.certs {
			certs = append(certs, fmt.Sprintf("{ cert: %s, key: %s }", quote(cert.cert), quote(cert.key)))
		}
		text += ", tls: { certificates: [" + strings.Join(certs, ", ") + "]"
		if a.minTLS != "" {
			text += ", min_version: " + quote(a.minTLS)
		}
		if a.clientCA != "" {
			text += ", client_ca: " + quote(a.clientCA)
			if a.optional {
				text += ", client_auth: optional"
			}
		}
		text += " }"
	} else if a.h2c {
		text += ", h2c: true"
	}
	if a.proxy {
		if len(trusted) == 0 {
			trusted = []string{"0.0.0.0/0", "::/0"}
		}
		text += ", proxy_protocol: [" + quotes(trusted) + "]"
	}
	return text + " }"
}
