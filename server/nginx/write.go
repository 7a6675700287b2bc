package nginx

import (
	"bytes"
	"encoding/json"
	"fmt"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// yaml writes the policy file.
func (c *converter) yaml() []byte {
	c.share()
	routes := c.routeLines()
	w := &writer{}
	w.line("# Made by weir import nginx from %s. After each part stands the line that it came from.", filepath.Base(c.name))
	c.writeListen(w)
	if len(c.limits) > 0 {
		w.line("limits:")
		for i := range c.limits {
			c.writeLimit(w, &c.limits[i])
		}
	}
	if len(c.upstreams) > 0 {
		w.line("upstreams:")
		for _, u := range c.upstreams {
			w.from(fmt.Sprintf("  %s: { %s }", quote(u.name), u.text), u.from...)
		}
	}
	if len(routes) == 0 {
		w.line("routes: []")
		return w.Bytes()
	}
	w.line("routes:")
	for _, line := range routes {
		w.line("%s", line)
	}
	return w.Bytes()
}

// withNotes puts the critical notes at the top of the policy, where they are seen when the file is
// opened.
func (c *converter) withNotes(policy []byte) []byte {
	w := &writer{}
	for _, n := range c.notes {
		if n.Critical {
			w.line("# %s", strings.ReplaceAll(n.String(), "\n", " "))
		}
	}
	w.Write(policy)
	return w.Bytes()
}

// writeListen writes where the gateway listens, and which proxies it trusts.
func (c *converter) writeListen(w *writer) {
	trusted, byProtocol := c.proxies.trusted, strings.EqualFold(c.proxies.header, "proxy_protocol")
	body := ""
	if c.maxBody != nil && c.maxBody.bytes > 0 {
		body = bytesText(c.maxBody.bytes)
	}
	if len(c.addresses) > 0 || c.Admin != "" || body != "" {
		w.line("listen:")
	}
	switch {
	case len(c.addresses) == 1:
		w.from("  gateway: "+c.addresses[0].String(trusted), c.addresses[0].from)
	case len(c.addresses) > 1:
		w.line("  gateway:")
		for _, a := range c.addresses {
			w.from("    - "+a.String(trusted), a.from)
		}
	}
	if c.Admin != "" {
		w.line("  admin: %s", quote(c.Admin))
	}
	if body != "" {
		at := "nginx's default"
		if c.maxBody.from.File != "" {
			at = fmt.Sprintf("%s:%d", filepath.Base(c.maxBody.from.File), c.maxBody.from.Line)
		}
		w.line("  bounds: { max_body: %s }   # %s", body, at)
	}
	if len(trusted) > 0 && !byProtocol {
		w.from("trusted_proxies: ["+quotes(trusted)+"]", c.proxies.from...)
		if h := c.proxies.clientHeader(); h != "" {
			w.line("client_header: %s", quote(h))
		}
	}
}

func (c *converter) writeLimit(w *writer, l *limit) {
	w.from(fmt.Sprintf("  %s:", quote(l.name)), l.zone.d.Position)
	parts := c.fullAddresses(l.key.parts)
	if len(parts) == 1 {
		w.line("    key: %s", quote(parts[0]))
	} else {
		w.line("    key: [%s]", quotes(parts))
	}
	if len(l.key.exempt) > 0 {
		w.line("    exempt: [%s]", quotes(l.key.exempt))
	}
	if l.key.mayEmpty {
		w.line("    on_missing: skip_empty")
	}
	if l.shared != "" {
		w.line("    zone: %s", quote(l.shared))
	}
	numbers := fmt.Sprintf("concurrency: { limit: %d }", l.most)
	if !l.zone.conns {
		kind := "leaky_bucket"
		if c.Arithmetic {
			kind = "nginx_bucket"
		}
		numbers = fmt.Sprintf("%s: { rate: %s", kind, l.zone.rate)
		if l.burst > 0 {
			numbers += fmt.Sprintf(", queue: %d", l.burst)
		}
		if n := l.delayAfter(); n > 0 {
			numbers += fmt.Sprintf(", delay_after: %d", n)
		}
		numbers += " }"
	}
	w.from("    "+numbers, l.d.Position)
	w.line("    log: %s", l.log)
	if l.status != 0 {
		w.line("    status: %d", l.status)
	}
	if l.shadow {
		w.line("    shadow: true")
	}
	if slices.Contains(parts, fullAddress) {
		c.note(l.zone.d.Position, "the zone %s counts IPv6 clients by their full addresses (client.ip/128), as nginx does: "+
			"a client often has a whole /64 of them, which client.ip counts as one", l.zone.name)
	}
}

// fullAddress is the part of a key by which nginx counts clients.
const fullAddress = "client.ip/128"

// fullAddresses returns the parts of a key as nginx counts by them, if clients may have IPv6 addresses:
// by their connections, or by what proxies say.
func (c *converter) fullAddresses(parts []string) []string {
	if !c.ipv6 && len(c.proxies.trusted) == 0 {
		return parts
	}
	parts = slices.Clone(parts)
	for i, p := range parts {
		if p == "client.ip" {
			parts[i] = fullAddress
		}
	}
	return parts
}

// bytesText returns a size in the policy's notation.
func bytesText(n int64) string {
	switch {
	case n%(1<<30) == 0:
		return fmt.Sprintf("%dGiB", n>>30)
	case n%(1<<20) == 0:
		return fmt.Sprintf("%dMiB", n>>20)
	case n%(1<<10) == 0:
		return fmt.Sprintf("%dKiB", n>>10)
	}
	return fmt.Sprint(n)
}

type writer struct{ bytes.Buffer }

func (w *writer) line(format string, args ...any) { fmt.Fprintf(w, format+"\n", args...) }

// from writes a line with a comment that names its origin.
func (w *writer) from(text string, at ...Position) {
	var lines []string
	for _, p := range at {
		if p.File != "" {
			lines = append(lines, fmt.Sprintf("%s:%d", filepath.Base(p.File), p.Line))
		}
	}
	if len(lines) > 0 {
		text += "   # " + strings.ReplaceAll(strings.Join(lines[:min(len(lines), 4)], ", "), "\n", " ")
	}
	w.line("%s", text)
}

// plain matches texts that need no quotes in YAML.
var plain = regexp.MustCompile(`^[A-Za-z/][A-Za-z0-9._/-]*$`)

// words matches words with a special meaning in YAML.
var words = regexp.MustCompile(`^(?i:true|false|yes|no|on|off|null|y|n)$`)

// quotes writes the items of a list.
func quotes(texts []string) string {
	var all []string
	for _, t := range texts {
		all = append(all, quote(t))
	}
	return strings.Join(all, ", ")
}

// quote quotes a text for YAML, which accepts JSON's texts.
func quote(text string) string {
	if plain.MatchString(text) && !words.MatchString(text) {
		return text
	}
	quoted, err := json.Marshal(text)
	if err != nil {
		return `""` // encoding a string cannot fail
	}
	return string(quoted)
}
