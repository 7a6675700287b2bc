package nginx

import (
	"fmt"
	"slices"
	"strings"
)

// key is the key of an nginx zone, as the parts of a policy's key.
type key struct {
	parts     []string
	mayEmpty  bool   // empty for some requests, which are then not limited
	empty     bool   // empty for all requests
	always    bool   // it contains a variable that every request has
	perServer bool   // it contains $server_name
	why       string // why a policy cannot express it; otherwise empty

	exempt  []string // requests that are not limited, in the policy's notation
	methods []string // the only methods that are limited; empty: all
}

// keyOf returns the key of a zone, after resolving a map or a geo.
func (c *converter) keyOf(z *zone, serverName string) key {
	a, ok := c.allowed(z.key)
	switch {
	case !ok:
		return parseKey(z.key, serverName)
	case a.why != "":
		return key{why: a.why}
	case a.key == "":
		return key{empty: true}
	}
	k := parseKey(a.key, serverName)
	k.exempt, k.methods = a.exempt, a.methods
	if a.folds && c.caseMatters(a.key) {
		c.critical(z.d.Position, "the zone %s exempts some values of its key, and nginx ignores case in them: here other spellings are limited, each by itself", z.name)
	}
	if a.headers {
		c.critical(z.d.Position, "the zone %s exempts clients by a header, which nginx believes from everyone; a policy believes it only from trusted_proxies", z.name)
	}
	return k
}

// caseMatters reports whether values of a key can differ in case alone.
func (c *converter) caseMatters(key string) bool {
	name := variableName(key)
	return name != "host" && name != "http_host" && name != "request_method" && name != "binary_remote_addr" && name != "remote_addr"
}

// parseKey parses a key. serverName is the name of the server that uses it. Fixed text beside a
// variable that every request has is left out, because it distinguishes no requests.
func parseKey(text, serverName string) (k key) {
	names, literal, why := pieces(text)
	if why != "" {
		return key{why: why}
	}
	k.mayEmpty = true
	var texts []int // which parts are fixed text
	for i, name := range names {
		part, fixed := "const."+name, true
		if literal[i] {
			texts = append(texts, len(k.parts))
		} else if part, fixed, why = partOf(name, serverName); why != "" {
			return key{why: why}
		}
		k.perServer = k.perServer || name == "server_name" && !literal[i]
		k.mayEmpty = k.mayEmpty && !fixed
		k.always = k.always || fixed && !literal[i]
		if part != "" {
			k.parts = append(k.parts, part)
		}
	}
	for i := range texts {
		if k.always {
			at := texts[i] - i
			k.parts = slices.Delete(k.parts, at, at+1)
		}
	}
	k.empty = len(k.parts) == 0
	return k
}

// pieces splits a key into fixed texts and names of variables.
func pieces(text string) (names []string, literal []bool, why string) {
	fixed := ""
	flush := func() {
		if fixed != "" {
			names, literal, fixed = append(names, fixed), append(literal, true), ""
		}
	}
	for i := 0; i < len(text); {
		if text[i] != '$' {
			fixed += text[i : i+1]
			i++
			continue
		}
		rest := text[i+1:]
		name, length := rest[:wordLength(rest)], wordLength(rest)
		if strings.HasPrefix(rest, "{") {
			end := strings.IndexByte(rest, '}')
			if end < 0 {
				return nil, nil, fmt.Sprintf("%q has a ${ without its }", clip(text))
			}
			name, length = rest[1:end], end+1
		}
		if name == "" || wordLength(name) != len(name) {
			return nil, nil, fmt.Sprintf("%q has a $ without a variable", clip(text))
		}
		flush()
		names, literal = append(names, name), append(literal, false)
		i += 1 + length
	}
	flush()
	return names, literal, ""
}

// wordLength returns how many bytes of a text belong to a variable's name.
func wordLength(s string) (n int) {
	for n < len(s) && (s[n] == '_' || s[n] >= '0' && s[n] <= '9' || s[n]|0x20 >= 'a' && s[n]|0x20 <= 'z') {
		n++
	}
	return n
}

// partOf returns the key part for a variable, or "" if the variable has no value here. fixed
// reports whether every request has it.
func partOf(name, serverName string) (part string, fixed bool, why string) {
	switch name {
	case "binary_remote_addr", "remote_addr":
		return "client.ip", true, ""
	case "server_name":
		if serverName == "" {
			return "", false, ""
		}
		return "const." + serverName, true, ""
	case "host", "http_host":
		return "host", true, ""
	case "uri", "document_uri":
		return "path", true, ""
	case "request_uri":
		return "uri", true, ""
	case "request_method":
		return "method", true, ""
	}
	for prefix, source := range map[string]string{"http_": "header", "arg_": "query", "cookie_": "cookie"} {
		rest, ok := strings.CutPrefix(name, prefix)
		if !ok || rest == "" {
			continue
		}
		if source == "header" {
			rest = strings.ReplaceAll(rest, "_", "-")
		}
		return source + "." + rest, false, ""
	}
	return "", false, fmt.Sprintf("a key cannot be $%s: it can be $binary_remote_addr, $server_name, $host, $uri, $request_uri, $request_method, "+
		"$http_NAME, $arg_NAME, $cookie_NAME and fixed text", name)
}
