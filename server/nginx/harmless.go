package nginx

import (
	"slices"
	"strings"
)

// leave notes a directive that the policy leaves out, if it changes what a client gets.
func (c *converter) leave(d Directive) {
	switch {
	case d.Name == "access_log":
		if file := first(d.Args); file != "off" && file != "" {
			c.note(d.Position, "access_log %s is left out: write access_log: { file: PATH, format: combined }, with a file that nginx does not write", strings.Join(d.Args, " "))
		}
	case d.Name == "limit_except" || d.Name == "if" || d.Name == "satisfy":
		c.critical(d.Position, "%s is left out: a policy has no such setting", strings.TrimSpace(d.Name+" "+clip(strings.Join(d.Args, " "))))
	case d.Name == "error_page" && !d.Opens && pagesForRefused(d):
		c.note(d.Position, "error_page %s is left out: the response to refused requests is refused: { file: ... } of a route", strings.Join(d.Args, " "))
	case matters[d.Name]:
		c.note(d.Position, "%s is left out: a policy has no such setting", strings.TrimSpace(d.Name+" "+clip(strings.Join(d.Args, " "))))
	case strings.HasPrefix(d.Name, "limit_") && !known[d.Name]:
		c.note(d.Position, "%s is left out: it does not limit requests or connections", d.Name)
	case strings.Contains(d.Name, "_by_lua"):
		c.note(d.Position, "%s is left out: a policy runs no code", d.Name)
	}
}

// known lists the directives about limits that are converted.
var known = set("limit_req_zone limit_req limit_req_status limit_req_log_level limit_req_dry_run " +
	"limit_conn_zone limit_conn limit_conn_status limit_conn_log_level limit_conn_dry_run")

// matters lists the other directives that change what a client gets. Directives about logs, buffers
// and timeouts are left out without a note.
var matters = set("split_clients rewrite root alias proxy_redirect proxy_cache proxy_method proxy_set_body mirror gzip sub_filter expires " +
	"proxy_next_upstream proxy_bind secure_link valid_referers dav_methods autoindex stub_status js_content perl ssi addition_types")

// pagesForRefused reports whether an error_page is for a status of refused requests.
func pagesForRefused(d Directive) bool {
	return slices.ContainsFunc(d.Args, func(a string) bool { return a == "429" || a == "503" })
}

func set(names string) map[string]bool {
	all := map[string]bool{}
	for name := range strings.FieldsSeq(names) {
		all[name] = true
	}
	return all
}
