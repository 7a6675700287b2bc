package policy

import (
	"bytes"
	"fmt"
	"net/http"
	"net/netip"
	"net/textproto"
	"slices"
	"strings"

	"github.com/weirflow/weir/internal/httpsyntax"
	"github.com/weirflow/weir/internal/nearest"
)

// exemption is the compiled list of the requests that a limit does not apply to.
type exemption struct {
	prefixes  []netip.Prefix
	fields    []headerIs
	keys      [][]byte // encoded by EncodeKey
	methods   []string
	preflight bool // CORS preflight requests
}

// headerIs exempts requests whose header field has this value.
type headerIs struct{ name, value string }

// exemptForms lists the ways to write an exemption, for messages.
const exemptForms = "an address or a prefix like 10.0.0.0/8, header.NAME=VALUE, key.VALUE, method.NAME, or preflight"

// add parses one exemption, as a policy file has it, of a limit with that key.
func (x *exemption) add(text string, key []string) error {
	if prefix, ok := parsePrefix(text); ok {
		x.prefixes = append(x.prefixes, prefix)
		return nil
	}
	source, rest, found := strings.Cut(text, ".")
	switch {
	case text == "preflight":
		x.preflight = true
	case !found || rest == "":
		return fmt.Errorf("%q is not an exemption: write %s", text, exemptForms)
	case source == "header":
		name, value, ok := strings.Cut(rest, "=")
		if !ok || !httpsyntax.IsToken(name) || value == "" {
			return fmt.Errorf("%q is not an exemption by a header: write header.NAME=VALUE", text)
		}
		x.fields = append(x.fields, headerIs{textproto.CanonicalMIMEHeaderKey(name), value})
	case source == "key":
		values := strings.Split(rest, ",")
		if len(values) != len(key) {
			return fmt.Errorf("%q has %d values, and the key of the limit has %d parts: write one for each, separated by commas", text, len(values), len(key))
		}
		for i := range values {
			if p, err := parsePart(key[i]); err == nil && p.kind == partHeader {
				values[i] = canonicalHeader(p.name, values[i])
			}
		}
		x.keys = append(x.keys, []byte(EncodeKey(values...)))
	case source == "method":
		if !httpsyntax.IsToken(rest) || rest != strings.ToUpper(rest) {
			return fmt.Errorf("%q is not an exemption by method: write it like method.OPTIONS", text)
		}
		x.methods = append(x.methods, rest)
	default:
		return fmt.Errorf("%q is not an exemption: write %s", text, exemptForms)
	}
	return nil
}

// parsePrefix parses an address or a prefix. It turns IPv4 inside IPv6 into IPv4.
func parsePrefix(text string) (netip.Prefix, bool) {
	if addr, err := netip.ParseAddr(text); err == nil && addr.Zone() == "" {
		addr = addr.Unmap()
		return netip.PrefixFrom(addr, addr.BitLen()), true
	}
	p, err := netip.ParsePrefix(text)
	if err != nil {
		return p, false
	}
	if p.Addr().Is4In6() && p.Bits() >= 96 {
		p = netip.PrefixFrom(p.Addr().Unmap(), p.Bits()-96)
	}
	return p.Masked(), true
}

// newExemption compiles the exemptions of a limit, which were already checked. It returns nil for
// none.
func newExemption(l *Limit) *exemption {
	if len(l.Exempt) == 0 {
		return nil
	}
	x := &exemption{}
	for _, text := range l.Exempt {
		_ = x.add(text, l.Key)
	}
	return x
}

// has reports whether a request is exempt from a limit. key is the limit's key for the request. A key
// of which a part is repeated is none of the exempt ones, even if these have an empty part.
func (x *exemption) has(key []byte, repeated bool, r *request) bool {
	if x == nil {
		return false
	}
	if len(x.prefixes) > 0 {
		addr := r.address()
		for _, p := range x.prefixes {
			if p.Contains(addr) {
				return true
			}
		}
	}
	if r.Trusted {
		for _, f := range x.fields {
			if value, _, _ := HeaderValue(r.Header[f.name]); value == f.value {
				return true
			}
		}
	}
	for _, k := range x.keys {
		if !repeated && bytes.Equal(k, key) {
			return true
		}
	}
	for _, m := range x.methods {
		if r.Method == m {
			return true
		}
	}
	return x.preflight && isPreflight(r.Method, r.Header)
}

// isPreflight reports whether the request is a CORS preflight. Such a request carries no
// credentials.
func isPreflight(method string, h http.Header) bool {
	return method == http.MethodOptions && len(h["Origin"]) > 0 && len(h["Access-Control-Request-Method"]) > 0
}

// address returns the client's full address if the caller of the engine set it.
func (r *request) address() netip.Addr {
	if r.Addr.IsValid() {
		return r.Addr.Unmap().WithZone("")
	}
	return addressOf(r.Client)
}

// AsksHop reports whether a limit exempts requests by a header field, or plans or priorities come from one. The
// caller must then say whether a request came from a trusted proxy.
func (p *Policy) AsksHop() bool {
	for i := range p.Limits {
		if x := newExemption(&p.Limits[i]); x != nil && len(x.fields) > 0 {
			return true
		}
	}
	return p.Priorities.Header != "" || slices.ContainsFunc(p.Plans.From, func(s string) bool { return strings.HasPrefix(s, "header.") })
}

// exempt checks the exemptions of a limit.
func (c *checker) exempt(l *Limit) {
	x := &exemption{}
	for i, text := range l.Exempt {
		if err := x.add(text, l.Key); err != nil {
			fix := ""
			if source, rest, found := strings.Cut(text, "."); found {
				if near := nearest.To(source, []string{"header", "key", "method"}); near != "" && near != source {
					fix = fmt.Sprintf("did you mean %q?", near+"."+rest)
				}
			}
			c.wrong(err.Error(), fix, "limits", l.Name, "exempt", fmt.Sprint(i))
		}
	}
	if len(x.fields) > 0 && len(c.TrustedProxies) == 0 {
		c.warn("a header exempts no request: it is believed only from trusted_proxies, and there are none",
			"add trusted_proxies with the proxies in front that set or remove the header", "limits", l.Name, "exempt")
	}
}
