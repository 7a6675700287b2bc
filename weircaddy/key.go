package weircaddy

import (
	"fmt"
	"net/http"
	"net/netip"
	"strconv"
	"strings"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp"

	"github.com/weirflow/weir/internal/httpsyntax"
	"github.com/weirflow/weir/policy"
)

// keyParts returns the parts of a key as a policy has them, for words of a policy and for texts with
// placeholders of Caddy. Each placeholder is a part of its own, so that no two requests have one key
// because their values are alike when joined. Other text around placeholders is the same for all
// requests, and adds nothing.
func keyParts(texts []string) (parts []string, err error) {
	for _, text := range texts {
		names, err := placeholders(text)
		if err != nil {
			return nil, err
		}
		if len(names) == 0 {
			parts = append(parts, text) // a word of a policy, which is checked there
		}
		for _, name := range names {
			parts = append(parts, partOf(name))
		}
	}
	return parts, nil
}

// partOf returns the part of a key for a placeholder. Where a policy has a word for it, the policy's
// word is used: it also finds the requests whose parts upstreams may read in another way, such as a
// header field that is sent twice. A client could otherwise have a new counter for each of them.
func partOf(name string) string {
	switch name {
	case "http.vars.client_ip":
		return "client.ip"
	case "http.request.remote.host":
		return addressPart(name, 32, 64)
	case "http.request.host", "http.request.header.Host":
		return "host"
	case "http.request.method":
		return "method"
	case "http.request.uri":
		return "uri"
	case "http.request.uri.path":
		return "path"
	}
	for prefix, source := range map[string]string{
		"http.request.header.": "header.", "http.request.cookie.": "cookie.", "http.request.uri.query.": "query.",
	} {
		if field, ok := strings.CutPrefix(name, prefix); ok && field != "" && (source == "query." || httpsyntax.IsToken(field)) {
			return source + field
		}
	}
	return "value." + name
}

// addressPart returns the part for a placeholder with an address, which is cut to a prefix.
func addressPart(name string, v4, v6 int) string {
	return fmt.Sprintf("value.%s|%d/%d", name, v4, v6)
}

// values are a request's placeholders, as policy.Values.
type values struct{ *caddy.Replacer }

// Value returns the value of a placeholder. NAME|24/64 is an address, cut to 24 bits, or to 64 bits
// for IPv6; a value that is no address stays as it is.
func (v values) Value(name string) (string, bool) {
	name, bits, cut := strings.Cut(name, "|")
	value, ok := v.Get(name)
	text := caddy.ToString(value)
	if cut {
		text = prefixOf(text, bits)
	}
	return text, ok && text != ""
}

// prefixOf cuts an address: bits is like "24/64".
func prefixOf(text, bits string) string {
	addr, err := netip.ParseAddr(text)
	if err != nil {
		return text
	}
	addr = addr.Unmap().WithZone("")
	v4, v6, _ := strings.Cut(bits, "/")
	n, all := v6, 128
	if addr.Is4() {
		n, all = v4, 32
	}
	length, err := strconv.Atoi(n)
	if err != nil || length >= all {
		return addr.String()
	}
	prefix, err := addr.Prefix(length)
	if err != nil {
		return addr.String()
	}
	return prefix.String()
}

// valuesOf returns the values of a request.
func valuesOf(r *http.Request) policy.Values {
	replacer, _ := r.Context().Value(caddy.ReplacerCtxKey).(*caddy.Replacer)
	if replacer == nil {
		replacer = caddy.NewReplacer()
	}
	return values{replacer}
}

// clientOf returns the client's address as Caddy knows it, by the trusted_proxies of its server, and
// whether one of them sent the request.
func clientOf(r *http.Request) (client netip.Addr, trusted bool) {
	text, _ := caddyhttp.GetVar(r.Context(), caddyhttp.ClientIPVarKey).(string)
	client, _ = netip.ParseAddr(text)
	trusted, _ = caddyhttp.GetVar(r.Context(), caddyhttp.TrustedProxyVarKey).(bool)
	return client.Unmap().WithZone(""), trusted
}
