package nginx

import (
	"fmt"
	"net/netip"
	"regexp"
	"slices"
	"strings"
)

// variable is a variable that a map or a geo defines.
type variable struct {
	d      Directive
	geo    bool
	source string // what it depends on, as in the configuration
	cases  []mapping
	def    string // the default
	flags  []string
	why    string // why a policy cannot express it; otherwise empty
}

// mapping is one line of a map or a geo.
type mapping struct{ from, to string }

// variable adds a map or a geo.
func (c *converter) variable(d Directive) {
	v := variable{d: d, geo: d.Name == "geo"}
	switch {
	case len(d.Args) == 2:
		v.source = d.Args[0]
	case len(d.Args) == 1 && v.geo:
		v.source = "$remote_addr"
	default:
		return
	}
	for _, in := range d.Block {
		switch {
		case in.Name == "default":
			v.def = first(in.Args)
		case in.Name == "hostnames" || in.Name == "volatile" || in.Name == "delete":
			v.flags = append(v.flags, in.Name)
		case v.geo && (in.Name == "ranges" || in.Name == "proxy" || in.Name == "proxy_recursive"):
			v.why = fmt.Sprintf("its geo has %s", in.Name)
		default:
			name := strings.TrimPrefix(in.Name, `\`) // in front of a value that is a keyword of map
			v.cases = append(v.cases, mapping{name, first(in.Args)})
		}
	}
	c.maps[strings.TrimPrefix(d.Args[len(d.Args)-1], "$")] = v
}

// allow is a key that a map or a geo decides about. It is the same for all requests, except for
// those without a key, which are not limited.
type allow struct {
	key     string   // as in the configuration
	exempt  []string // in the policy's notation
	methods []string // the only methods that are limited; empty: all
	headers bool     // a header exempts some requests
	folds   bool     // nginx exempts more, as it ignores case
	why     string   // why a policy cannot express it
}

// allowed resolves the key of a zone that is a variable of a map or a geo. It reports false for
// other keys.
func (c *converter) allowed(text string) (a allow, ok bool) {
	names, isText, why := pieces(text)
	if why != "" || len(names) == 0 {
		return a, false
	}
	for i, name := range names {
		v, known := c.maps[name]
		if isText[i] || !known {
			continue
		}
		if len(names) > 1 {
			return allow{why: fmt.Sprintf("its key has $%s of a %s beside others", name, v.d.Name)}, true
		}
		c.used[name] = true
		a = c.choose(v, func(s string) string { return s }, 0)
		if a.why != "" {
			a.why = fmt.Sprintf("a policy cannot say its key, $%s in %v: %s", name, v.d.Position, a.why)
		}
		return a, true
	}
	return a, false
}

// maxMaps limits how many maps may depend on each other.
const maxMaps = 8

// choose resolves a variable. then is applied to its values.
func (c *converter) choose(v variable, then func(string) string, depth int) allow {
	switch {
	case v.why != "":
		return allow{why: v.why}
	case depth > maxMaps:
		return allow{why: "there are too many maps behind one another"}
	}
	source := strings.Trim(strings.TrimPrefix(v.source, "$"), "{}")
	if inner, ok := c.maps[source]; ok && strings.HasPrefix(v.source, "$") {
		c.used[source] = true
		return c.choose(inner, func(s string) string { return then(v.lookUp(s)) }, depth+1)
	}
	if !strings.HasPrefix(v.source, "$") {
		return allow{why: fmt.Sprintf("it depends on %q", v.source)}
	}
	switch {
	case source == "remote_addr" || source == "binary_remote_addr":
		return v.byAddress(then)
	case v.geo:
		return allow{why: "its geo depends on " + v.source}
	case !v.geo && variableName(then(v.def)) == source:
		return v.byKey(then)
	case source == "request_method":
		return v.byMethod(then)
	case strings.HasPrefix(source, "http_"):
		return v.byHeader(strings.ReplaceAll(strings.TrimPrefix(source, "http_"), "_", "-"), then)
	}
	return allow{why: "it depends on " + v.source}
}

// lookUp returns the value of a map for an input.
func (v *variable) lookUp(value string) string {
	for _, m := range v.cases {
		if !strings.HasPrefix(m.from, "~") && strings.EqualFold(m.from, value) {
			return m.to
		}
	}
	for _, m := range v.cases {
		expression, ok := strings.CutPrefix(m.from, "~")
		if !ok {
			continue
		}
		if insensitive, ok := strings.CutPrefix(expression, "*"); ok {
			expression = "(?i)" + insensitive
		}
		if r, err := regexp.Compile(expression); err == nil && r.MatchString(value) {
			return m.to
		}
	}
	return v.def
}

// take records the key of one case. It reports false if another case has a different key.
func (a *allow) take(key string) bool {
	if key == "" || key == a.key {
		return true
	}
	if a.key != "" {
		a.why = fmt.Sprintf("it is %q for some requests, and %q for others", a.key, key)
		return false
	}
	a.key = key
	return true
}

// byMethod resolves a map that depends on the method.
func (v *variable) byMethod(then func(string) string) (a allow) {
	def := then(v.def)
	if !a.take(def) {
		return a
	}
	for _, m := range v.cases {
		to := then(m.to)
		switch {
		case strings.HasPrefix(m.from, "~") || m.from != strings.ToUpper(m.from) || m.from == "":
			return allow{why: fmt.Sprintf("%q is not a method", m.from)}
		case !a.take(to):
			return a
		case to == "" && def != "":
			a.exempt = append(a.exempt, "method."+m.from)
		case to != "" && def == "":
			a.methods = append(a.methods, m.from)
		}
	}
	return a
}

// variableName returns the variable that a key consists of, or "".
func variableName(text string) string {
	names, isText, why := pieces(text)
	if why != "" || len(names) != 1 || isText[0] {
		return ""
	}
	return names[0]
}

// byKey resolves a map from the key itself to the key, or to nothing: values that are not limited.
// nginx ignores case in these values, and an exemption does not. An empty value is not limited
// anyway.
func (v *variable) byKey(then func(string) string) (a allow) {
	a.key = then(v.def)
	for _, m := range v.cases {
		switch to := then(m.to); {
		case !a.take(to):
			return a
		case to != "" || m.from == "":
		case strings.HasPrefix(m.from, "~"):
			return allow{why: fmt.Sprintf("exempt by a key names a value, and %q is none", m.from)}
		case strings.Contains(m.from, ","):
			return allow{why: fmt.Sprintf("an exempt key cannot contain a comma, as %q does", m.from)}
		default:
			a.exempt = append(a.exempt, "key."+m.from)
			a.folds = a.folds || strings.ToLower(m.from) != strings.ToUpper(m.from)
		}
	}
	if slices.ContainsFunc(v.flags, func(f string) bool { return f == "hostnames" }) && len(a.exempt) > 0 {
		return allow{why: "its map has hostnames"}
	}
	return a
}

// byHeader resolves a map that depends on a header field.
func (v *variable) byHeader(name string, then func(string) string) (a allow) {
	def := then(v.def)
	if def == "" {
		return allow{why: "it limits only requests with some values of " + v.source}
	}
	a.take(def)
	for _, m := range v.cases {
		to := then(m.to)
		switch {
		case !a.take(to):
			return a
		case to != "":
		case strings.HasPrefix(m.from, "~") || m.from == "":
			return allow{why: fmt.Sprintf("exempt by a header names a value, and %q is none", m.from)}
		default:
			a.exempt, a.headers = append(a.exempt, "header."+name+"="+m.from), true
		}
	}
	return a
}

// maxPrefixes limits the prefixes in an exempt.
const maxPrefixes = 2000

// byAddress resolves a geo or a map that depends on the client's address: the longest prefix
// decides. Addresses without a key are exempt.
func (v *variable) byAddress(then func(string) string) (a allow) {
	type prefixed struct {
		prefix netip.Prefix
		exempt bool
	}
	all := []prefixed{{netip.MustParsePrefix("0.0.0.0/0"), then(v.def) == ""}, {netip.MustParsePrefix("::/0"), then(v.def) == ""}}
	if !a.take(then(v.def)) {
		return a
	}
	for _, m := range v.cases {
		p, err := netip.ParsePrefix(m.from)
		if addr, addrErr := netip.ParseAddr(m.from); addrErr == nil {
			p, err = netip.PrefixFrom(addr, addr.BitLen()), nil
		}
		if err != nil {
			return allow{why: fmt.Sprintf("%q is neither an address nor a prefix", m.from)}
		}
		to := then(m.to)
		if !a.take(to) {
			return a
		}
		p = p.Masked()
		all = slices.DeleteFunc(all, func(o prefixed) bool { return o.prefix == p })
		all = append(all, prefixed{p, to == ""})
	}
	for _, p := range all {
		if !p.exempt {
			continue
		}
		var holes []netip.Prefix
		for _, o := range all {
			if o.prefix != p.prefix && o.prefix.Bits() > p.prefix.Bits() && p.prefix.Contains(o.prefix.Addr()) {
				holes = append(holes, o.prefix)
			}
		}
		for _, piece := range without(p.prefix, holes) {
			a.exempt = append(a.exempt, piece.String())
		}
		if len(a.exempt) > maxPrefixes {
			return allow{why: fmt.Sprintf("it takes more than %d prefixes", maxPrefixes)}
		}
	}
	for i, text := range a.exempt { // a single address is written without a length
		if p, err := netip.ParsePrefix(text); err == nil && p.IsSingleIP() {
			a.exempt[i] = p.Addr().String()
		}
	}
	return a
}

// without returns the prefixes that remain of p without the holes.
func without(p netip.Prefix, holes []netip.Prefix) []netip.Prefix {
	inside := slices.ContainsFunc(holes, func(h netip.Prefix) bool { return p.Contains(h.Addr()) && h.Bits() >= p.Bits() })
	switch {
	case slices.ContainsFunc(holes, func(h netip.Prefix) bool { return h.Contains(p.Addr()) && h.Bits() <= p.Bits() }):
		return nil
	case !inside:
		return []netip.Prefix{p}
	}
	low := netip.PrefixFrom(p.Addr(), p.Bits()+1)
	bytes := p.Addr().AsSlice()
	bytes[p.Bits()/8] |= 0x80 >> (p.Bits() % 8)
	addr, _ := netip.AddrFromSlice(bytes)
	return append(without(low, holes), without(netip.PrefixFrom(addr, p.Bits()+1), holes)...)
}
