package nginx

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"
)

// leave notes a directive that the policy leaves out. in is the block that it stands in.
func (c *converter) leave(d Directive, in string) {
	switch {
	case d.Name == "access_log":
		if file := first(d.Args); file != "off" && file != "" {
			c.note(d.Position, "access_log %s is left out: write access_log: { file: PATH, format: combined }, with a file that nginx does not write", strings.Join(d.Args, " "))
		}
	case d.Name == "limit_except" || d.Name == "if" || d.Name == "satisfy":
		c.critical(d.Position, "%s is left out: a policy has no such setting", strings.TrimSpace(d.Name+" "+clip(strings.Join(d.Args, " "))))
	case matters[d.Name]:
		c.note(d.Position, "%s is left out: a policy has no such setting", strings.TrimSpace(d.Name+" "+clip(strings.Join(d.Args, " "))))
	case strings.HasPrefix(d.Name, "limit_") && !known[d.Name]:
		c.note(d.Position, "%s is left out: it does not limit requests or connections", d.Name)
	case strings.HasPrefix(d.Name, "access_by_lua"), strings.HasPrefix(d.Name, "rewrite_by_lua"), strings.HasPrefix(d.Name, "server_rewrite_by_lua"), strings.HasPrefix(d.Name, "js_access"), d.Name == "modsecurity" && first(d.Args) == "on":
		c.critical(d.Position, "%s is left out: a policy runs no code, and requests that it refuses or sends elsewhere are let in", d.Name)
	case strings.Contains(d.Name, "_by_lua"):
		c.note(d.Position, "%s is left out: a policy runs no code", d.Name)
	case !converted["everywhere"][d.Name] && !converted[in][d.Name] || in == "upstream":
		c.others = append(c.others, d)
	case d.Name == "set" && (len(d.Args) != 2 || strings.Contains(d.Args[1], "$")):
		c.others = append(c.others, d)
	case d.Name == "map" || d.Name == "geo" || d.Name == "upstream" || strings.HasSuffix(d.Name, "_zone"):
		c.others = append(c.others, d) // noteOthers knows later whether it was used
	case d.Name == "log_format" && !strings.Contains(strings.Join(d.Args, " "), "$limit_"):
		c.others = append(c.others, d) // define has noted the others
	}
}

// unused reports whether a directive is not converted after all: a map, an upstream or a zone that no
// other directive names.
func (c *converter) unused(d Directive) bool {
	switch name := first(d.Args); d.Name {
	case "map", "geo":
		return len(d.Args) == 0 || !c.used[strings.TrimPrefix(d.Args[len(d.Args)-1], "$")]
	case "upstream":
		return !c.used["upstream "+name]
	case "limit_req_zone", "limit_conn_zone":
		z, err := parseZone(d)
		return err != nil || c.zones[z.name] == nil || !c.used["zone "+z.name]
	}
	return true
}

// noteOthers names the directives that are left out and concern no limit and no route, in one note:
// most configurations have dozens of them, and other notes matter more.
func (c *converter) noteOthers() {
	var names []string
	first := map[string]Position{}
	var at Position
	for _, d := range c.others {
		if !c.unused(d) {
			continue
		}
		name := d.Name
		if d.Opens && name != "types" || strings.HasPrefix(name, "limit_") {
			name = strings.TrimSpace(name + " " + clip(strings.Join(d.Args, " ")))
		}
		if _, again := first[name]; again {
			continue
		}
		if first[name] = d.Position; len(names) == 0 {
			at = d.Position
		}
		names = append(names, fmt.Sprintf("%s (%s:%d)", name, filepath.Base(d.File), d.Line))
	}
	if len(names) > 0 {
		c.note(at, "left out, as no limit and no route depends on them: %s", strings.Join(names, ", "))
	}
}

// known lists the directives about limits that are converted.
var known = set("limit_req_zone limit_req limit_req_status limit_req_log_level limit_req_dry_run " +
	"limit_conn_zone limit_conn limit_conn_status limit_conn_log_level limit_conn_dry_run")

// converted lists the other directives that are converted, or have notes of their own, by the block
// that they stand in.
var converted = map[string]map[string]bool{
	"http":     set("limit_req_zone limit_conn_zone upstream map geo log_format server ssl_certificate ssl_certificate_key ssl_protocols ssl_verify_client ssl_client_certificate ssl_reject_handshake"),
	"server":   set("listen server_name location return rewrite if ssl_certificate ssl_certificate_key ssl_protocols ssl_verify_client ssl_client_certificate ssl_reject_handshake"),
	"location": set("location return rewrite try_files proxy_pass grpc_pass fastcgi_pass uwsgi_pass scgi_pass memcached_pass internal"),
	"everywhere": set("error_page limit_req limit_req_status limit_req_log_level limit_req_dry_run limit_conn limit_conn_status limit_conn_log_level limit_conn_dry_run " +
		"set_real_ip_from real_ip_header real_ip_recursive add_header proxy_set_header allow deny auth_basic auth_request auth_jwt " +
		"client_max_body_size proxy_request_buffering proxy_connect_timeout proxy_read_timeout default_type set proxy_ssl_verify proxy_ssl_trusted_certificate proxy_ssl_name"),
}

// matters lists the other directives that change what a client gets.
var matters = set("split_clients root alias proxy_redirect proxy_cache proxy_method proxy_set_body mirror gzip sub_filter expires " +
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
