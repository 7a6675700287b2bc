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
	w := &writer{}
	w.line("# Made by weir import nginx from %s. After each part stands the line that it came from.", filepath.Base(c.name))
	if c.listen.address != "" || c.Admin != "" {
		w.line("listen:")
		if c.listen.address != "" {
			w.from(fmt.Sprintf("  gateway: %s", quote(c.listen.address)), c.listen.from)
		}
		if c.Admin != "" {
			w.line("  admin: %s", quote(c.Admin))
		}
	}
	if len(c.limits) > 0 {
		w.line("limits:")
		for i := range c.limits {
			c.writeLimit(w, &c.limits[i])
		}
	}
	if len(c.upstreams) > 0 {
		w.line("upstreams:")
		for _, u := range c.upstreams {
			w.from(fmt.Sprintf("  %s: { url: %s }", quote(u.name), quote(u.url)), u.from...)
		}
	}
	c.writeRoutes(w)
	return w.Bytes()
}

func (c *converter) writeLimit(w *writer, l *limit) {
	w.from(fmt.Sprintf("  %s:", quote(l.name)), l.zone.d.Position)
	if len(l.key.parts) == 1 {
		w.line("    key: %s", quote(l.key.parts[0]))
	} else {
		w.line("    key: [%s]", quotes(l.key.parts))
	}
	if l.key.mayEmpty {
		w.line("    on_missing: skip_empty")
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
}

// writeRoutes writes the servers with names, and then those that answer where no name fits. Of a server nginx takes the exact location, and
// else the longest prefix.
func (c *converter) writeRoutes(w *writer) {
	named, other := []string{}, []string{}
	seen := map[string]bool{}
	for i := range c.servers {
		s := &c.servers[i]
		slices.SortStableFunc(s.routes, func(a, b route) int {
			switch {
			case a.exact != b.exact && a.exact:
				return -1
			case a.exact != b.exact:
				return 1
			}
			return b.length - a.length
		})
		var hosts []string
		if !s.first {
			hosts = s.names
		}
		for _, host := range hosts {
			named = append(named, c.routesOf(s, host, seen)...)
			if !slices.ContainsFunc(s.routes, func(r route) bool { return slices.Contains(r.paths, "/") }) {
				c.note(s.d.Position, "server %s passes on no location /: its other requests go to the routes without a host", host)
			}
		}
		switch {
		case s.first:
			other = append(other, c.routesOf(s, "", seen)...)
		case len(hosts) == 0 && len(s.routes) > 0:
			c.note(s.d.Position, "the server is left out, with its limits: it has no name that a route could have")
		}
	}
	if len(named)+len(other) == 0 {
		w.line("routes: []")
		return
	}
	w.line("routes:")
	for _, line := range append(named, other...) {
		w.line("%s", line)
	}
}

// routesOf are the lines of the routes of a server for one host. A match that was there before is never reached.
func (c *converter) routesOf(s *server, host string, seen map[string]bool) (lines []string) {
	for _, r := range s.routes {
		for _, path := range r.paths {
			match := host + path
			if seen[match] {
				continue
			}
			seen[match] = true
			one := &writer{}
			one.from("  - match: "+quote(match), r.from)
			one.line("    upstream: %s", quote(r.upstream))
			if len(r.limits) > 0 {
				one.line("    limits: [%s]", quotes(r.limits))
			}
			if r.status != 0 {
				one.line("    refused: { status: %d }", r.status)
			}
			lines = append(lines, strings.TrimSuffix(one.String(), "\n"))
		}
	}
	return lines
}

// writer writes lines.
type writer struct{ bytes.Buffer }

func (w *writer) line(format string, args ...any) { fmt.Fprintf(w, format+"\n", args...) }

// from writes a line with where it came from.
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

// plain are the texts that need no quotes in YAML.
var plain = regexp.MustCompile(`^[A-Za-z/][A-Za-z0-9._/-]*$`)

// words are those that YAML takes for something else.
var words = regexp.MustCompile(`^(?i:true|false|yes|no|on|off|null|y|n)$`)

// quotes writes the items of a list.
func quotes(texts []string) string {
	var all []string
	for _, t := range texts {
		all = append(all, quote(t))
	}
	return strings.Join(all, ", ")
}

// quote writes a text so that YAML reads it as one. JSON's texts are YAML's.
func quote(text string) string {
	if plain.MatchString(text) && !words.MatchString(text) {
		return text
	}
	quoted, err := json.Marshal(text)
	if err != nil {
		return `""` // it cannot fail: it is a text
	}
	return string(quoted)
}
