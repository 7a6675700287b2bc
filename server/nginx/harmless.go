package nginx

import "strings"

// leave notes a directive that is left out of a policy, where it changes what a client gets.
func (c *converter) leave(d Directive) {
	switch {
	case matters[d.Name]:
		c.note(d.Position, "%s is left out: a policy has no word for it", strings.TrimSpace(d.Name+" "+clip(strings.Join(d.Args, " "))))
	case strings.HasPrefix(d.Name, "limit_") && !known[d.Name]:
		c.note(d.Position, "%s is left out: it does not limit requests or connections", d.Name)
	case strings.HasSuffix(d.Name, "_pass") && d.Name != "proxy_pass":
		c.note(d.Position, "%s is left out: a gateway passes requests on by HTTP", d.Name)
	case strings.Contains(d.Name, "_by_lua"):
		c.note(d.Position, "%s is left out: a policy runs no code", d.Name)
	}
}

// known are the directives about limits that are turned into a policy.
var known = set("limit_req_zone limit_req limit_req_status limit_req_log_level limit_req_dry_run " +
	"limit_conn_zone limit_conn limit_conn_status limit_conn_log_level limit_conn_dry_run")

// matters are the directives, beside those about limits, that change what a client gets. What is about logs, buffers and timeouts is passed over
// in silence.
var matters = set("map geo split_clients if rewrite return try_files root alias auth_basic auth_request satisfy allow deny internal error_page " +
	"add_header proxy_set_header proxy_redirect proxy_cache proxy_method mirror limit_except set set_real_ip_from real_ip_header " +
	"real_ip_recursive ssl_certificate gzip sub_filter client_max_body_size expires")

func set(names string) map[string]bool {
	all := map[string]bool{}
	for name := range strings.FieldsSeq(names) {
		all[name] = true
	}
	return all
}
