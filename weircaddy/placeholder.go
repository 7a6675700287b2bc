package weircaddy

import (
	"fmt"
	"slices"
	"strings"

	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"
	"github.com/caddyserver/caddy/v2/caddyconfig/httpcaddyfile"

	"github.com/weirflow/weir/internal/nearest"
)

// placeholders returns the names of the placeholders in a text.
func placeholders(text string) (names []string, err error) {
	for rest := text; ; {
		i := strings.IndexByte(rest, '{')
		if i < 0 {
			return names, nil
		}
		j := strings.IndexByte(rest[i:], '}')
		if i > 0 && rest[i-1] == '\\' || j <= 1 {
			return nil, fmt.Errorf("%q is no placeholder: write it like {http.request.host}", text)
		}
		names = append(names, rest[i+1:i+j])
		rest = rest[i+j+1:]
	}
}

// Placeholders that Caddy has by itself.
var (
	// shortNames and shortPrefixes are short forms of a Caddyfile.
	shortNames = []string{
		"client_ip", "remote_host", "remote_port", "remote", "host", "hostport", "port", "method", "uri", "path", "query", "dir", "file",
		"scheme", "uuid", "orig_method", "orig_uri", "orig_path", "orig_query", "tls_client_fingerprint", "tls_client_subject", "tls_client_serial",
	}
	shortPrefixes = []string{"header", "cookie", "query", "vars", "labels", "path", "file", "re", "rp", "resp", "err", "file_match"}

	// namespaces hold names that only Caddy's modules know.
	namespaces = []string{"http", "env", "system", "time", "file", "tls"}

	// ofRequest are the names of http.request, to the next dot.
	ofRequest = []string{
		"method", "scheme", "proto", "proto_name", "host", "port", "hostport", "local", "remote", "uri", "uri_escaped", "header", "cookie",
		"duration", "duration_ms", "uuid", "body", "body_base64", "orig_method", "orig_uri", "tls",
	}
)

// checkPlaceholders checks the placeholders of a text. One that is never set counts as missing in each
// request, so that all clients would share one counter. The error is about names that are misspelt; the
// warning is about names that Caddy does not have, but which map or a module may set.
func checkPlaceholders(text string) (warning string, err error) {
	names, _ := placeholders(text)
	for _, name := range names {
		known, instead := lookUp(name)
		switch {
		case instead != "":
			return "", fmt.Errorf("no placeholder of Caddy is named {%s}: write {%s} (if map or a module sets it: give it a name like {my.%s})", name, instead, name)
		case !known:
			warning = fmt.Sprintf("{%s} is no placeholder of Caddy: where neither map nor a module sets it, it is missing, and all clients share one counter", name)
		}
	}
	return warning, nil
}

// lookUp reports whether Caddy, or one of its modules, may set a placeholder. instead is the one that was
// probably meant.
func lookUp(name string) (known bool, instead string) {
	if long := expand("{" + name + "}"); long != "{"+name+"}" {
		return false, strings.Trim(long, "{}") // short forms are replaced in a Caddyfile, and not in JSON
	}
	first, rest, dotted := strings.Cut(name, ".")
	if !dotted {
		return false, nearest.To(name, shortNames)
	}
	if field, ok := strings.CutPrefix(name, "http.request."); ok {
		word := field[:len(field)-len(strings.TrimLeft(field, "abcdefghijklmnopqrstuvwxyz_0123456789"))]
		if slices.Contains(ofRequest, word) {
			return true, ""
		}
		if near := nearest.To(word, ofRequest); near != "" {
			return false, "http.request." + near + field[len(word):]
		}
		return false, ""
	}
	if slices.Contains(namespaces, first) {
		return true, ""
	}
	if near := nearest.To(first, append([]string{"http"}, shortPrefixes...)); near != "" && near != first {
		return false, near + "." + rest
	}
	return false, ""
}

// expand replaces Caddy's short placeholders by their names.
func expand(text string) string {
	segment := caddyfile.Segment{{Text: text}}
	httpcaddyfile.NewShorthandReplacer().ApplyToSegment(&segment)
	return segment[0].Text
}

// longForms returns the tokens of a global option with short placeholders replaced. Caddy does so only in
// sites.
func longForms(d *caddyfile.Dispenser) *caddyfile.Dispenser {
	segment := d.NextSegment()
	httpcaddyfile.NewShorthandReplacer().ApplyToSegment(&segment)
	return caddyfile.NewDispenser(segment)
}
