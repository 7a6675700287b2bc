package nginx

import (
	"regexp"
	"slices"
	"strings"
)

// nginx passes a request on from one location to another: by error_page, by try_files and by
// rewrite. A policy has no such setting, so these notes say what becomes of the requests.

// passesAll reports whether every request of a server reaches a location that passes it on.
func passesAll(block []Directive) bool {
	var all []Directive
	var collect func(block []Directive)
	collect = func(block []Directive) {
		for _, d := range block {
			if d.Name == "location" {
				all = append(all, d)
				collect(d.Block)
			}
		}
	}
	collect(block)
	root := slices.ContainsFunc(all, func(d Directive) bool { return slices.Contains(d.Args, "/") && !slices.Contains(d.Args, "=") })
	return root && !slices.ContainsFunc(all, func(d Directive) bool { return !passesOn(d) || contains(d, "internal") || contains(d, "try_files") })
}

// contains reports whether a block has a directive of this name.
func contains(d Directive, name string) bool {
	return slices.ContainsFunc(d.Block, func(in Directive) bool { return in.Name == name })
}

// leadsOn reports whether a path, or a name like @fallback, belongs to a location of the server that
// passes requests on. A path with variables may belong to any location.
func leadsOn(to string, block []Directive) bool {
	path, _, _ := strings.Cut(to, "?")
	var found *Directive
	longest, exact, pattern := -1, false, false
	variable := strings.Contains(path, "$")
	passes := false // whether any location passes requests on
	var look func(block []Directive)
	look = func(block []Directive) {
		for i := range block {
			d := &block[i]
			if d.Name != "location" {
				continue
			}
			look(d.Block)
			passes = passes || passesOn(*d)
			modifier, at := "", d.Args[len(d.Args)-1]
			if len(d.Args) > 1 {
				modifier = d.Args[0]
			}
			switch {
			case strings.HasPrefix(to, "@") || modifier == "=":
				if at == path {
					found, exact = d, true
				}
			case modifier == "~" || modifier == "~*":
				if modifier == "~*" {
					at = "(?i)" + at
				}
				if re, err := regexp.Compile(at); err != nil || re.MatchString(path) {
					pattern = pattern || passesOn(*d)
				}
			case strings.HasPrefix(path, at) && len(at) > longest && !exact:
				found, longest = d, len(at)
			}
		}
	}
	look(block)
	if variable {
		return passes
	}
	return found != nil && passesOn(*found) || !exact && pattern
}

// errorPages notes the error_page directives of a block. all is the block of the server.
func (c *converter) errorPages(block, all []Directive) {
	for _, d := range block {
		if d.Name != "error_page" || len(d.Args) < 2 {
			continue
		}
		to, codes := d.Args[len(d.Args)-1], d.Args[:len(d.Args)-1]
		switch {
		case (strings.HasPrefix(to, "/") || strings.HasPrefix(to, "@") || strings.HasPrefix(to, "$")) && leadsOn(to, all) && mayArise(codes, all):
			c.critical(d.Position, "error_page %s is left out: nginx passes requests with such a status on to the location of %s, and the gateway responds with the status; "+
				"failed: { upstream: NAME } of a route names an upstream for requests whose own upstream has failed", clip(strings.Join(d.Args, " ")), clip(to))
		case pagesForRefused(d):
			c.note(d.Position, "error_page %s is left out: the response to refused requests is refused: { file: ... } of a route", strings.Join(d.Args, " "))
		default:
			c.note(d.Position, "error_page %s is left out: the gateway responds to errors itself", clip(strings.Join(d.Args, " ")))
		}
	}
}

// mayArise reports whether nginx gives requests one of the statuses. It gives 404 only for files, by
// return or for internal locations; and that of an upstream counts only if errors are intercepted.
func mayArise(codes []string, all []Directive) bool {
	only404 := !slices.ContainsFunc(codes, func(code string) bool { return code != "404" && !strings.HasPrefix(code, "=") })
	return !only404 || !passesAll(all) || intercepts(all)
}

// intercepts reports whether a block, or a nested one, lets error_page apply to statuses of upstreams.
func intercepts(block []Directive) bool {
	return slices.ContainsFunc(block, func(d Directive) bool {
		return strings.HasSuffix(d.Name, "_intercept_errors") && first(d.Args) == "on" || d.Name == "return" || intercepts(d.Block)
	})
}

// accelerated notes an internal location that no directive leads to: an upstream does, by a field
// X-Accel-Redirect in its response. all is the block of the server.
func (c *converter) accelerated(d Directive, all []Directive) {
	path := d.Args[len(d.Args)-1]
	var named func(block []Directive) bool
	named = func(block []Directive) bool {
		return slices.ContainsFunc(block, func(in Directive) bool {
			leads := slices.Contains([]string{"error_page", "try_files", "rewrite", "auth_request", "mirror", "index", "post_action"}, in.Name)
			return leads && slices.ContainsFunc(in.Args, func(a string) bool {
				return strings.HasPrefix(a, "$") || strings.HasPrefix(a, path) || strings.HasPrefix(a, "@")
			}) || named(in.Block)
		})
	}
	if named(all) {
		return
	}
	const text = "location %s is for responses of an upstream with X-Accel-Redirect: nginx sends what is there in their place, and the gateway passes them on as they are, with that field"
	if passesOn(d) {
		c.critical(d.Position, text+"; the requests do not reach the upstream of the location", strings.Join(d.Args, " "))
		return
	}
	c.note(d.Position, text, strings.Join(d.Args, " "))
}

// triesFiles notes a try_files whose last argument is a path. nginx passes requests for which there is
// no file on to the location of that path.
func (c *converter) triesFiles(d Directive, all []Directive) {
	to := ""
	if len(d.Args) > 0 {
		to = d.Args[len(d.Args)-1]
	}
	if !strings.HasPrefix(to, "=") && leadsOn(to, all) {
		c.critical(d.Position, "try_files %s is left out: nginx passes requests on to the location of %s, and the gateway does not", clip(strings.Join(d.Args, " ")), clip(to))
		return
	}
	c.note(d.Position, "try_files %s is left out: the gateway serves no files", clip(strings.Join(d.Args, " ")))
}

// leaveRewrite notes a rewrite that the policy leaves out. l is the level that it stands in. After one
// of a server, and after one of a location without break, nginx looks for the location of the new path.
func (c *converter) leaveRewrite(s *server, d Directive, l level, flag string) {
	text := clip(strings.Join(d.Args, " "))
	ofServer := slices.ContainsFunc(s.d.Block, func(o Directive) bool { return o.Position == d.Position })
	byPath := slices.IndexFunc(append(slices.Clone(l.requests), l.conns...), func(u use) bool { return readsPath(u.zone.key) })
	switch {
	case flag == "permanent" || flag == "redirect" || len(d.Args) > 1 && (strings.HasPrefix(d.Args[1], "http") || strings.HasPrefix(d.Args[1], "$scheme")):
		if s.limits {
			c.critical(d.Position, "rewrite %s is left out: nginx redirects these requests without charging a limit, and the gateway charges them and passes them on", text)
			return
		}
	case s.limits && (ofServer || flag != "break"):
		c.critical(d.Position, "rewrite %s is left out: its requests meet the limits of the location of the path as it was sent", text)
		return
	case byPath >= 0:
		c.critical(d.Position, "rewrite %s is left out: a limit counts by the path, which is the one that was sent", text)
		return
	case (ofServer || flag != "break") && !passesAll(s.d.Block):
		c.critical(d.Position, "rewrite %s is left out: its requests do not reach the upstream of the location of the new path", text)
		return
	}
	c.note(d.Position, "rewrite %s is left out: the path is passed on as upstream_path says", text)
}

// readsPath reports whether a key has the path in it that a rewrite changes. Behind any other variable
// may be a map of it.
func readsPath(key string) bool {
	names, literal, _ := pieces(key)
	for i, name := range names {
		_, _, why := partOf(name, "")
		if !literal[i] && (name == "uri" || name == "document_uri" || why != "") {
			return true
		}
	}
	return false
}
