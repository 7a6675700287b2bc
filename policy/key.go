package policy

import (
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"net/netip"
	"net/textproto"
	"strings"

	"github.com/weirflow/weir/internal/httpsyntax"
)

// partKind says where a part of a key comes from.
type partKind uint8

const (
	partClientIP partKind = iota
	partHeader
	partQuery
	partCookie
	partHost
	partMethod
	partPath
	partURI
	partVariable // a {x} in the route's match
	partConst
	partCustomer // the customer of the API key or the token
	partClaim    // a claim of the token
	partBody     // a field of the request's body, which is a JSON object
	partFullIP   // the client's full address, also of IPv6
	partValue    // what the program knows of a request beyond HTTP: Request.Values
)

// part is one part of a key.
type part struct {
	kind partKind
	// the name of the header (in canonical form), parameter, cookie or variable; the text of a
	// const; the name of the claim or of the value
	name string
}

// String returns the part in its normal form.
func (p part) String() string {
	text := partForms[p.kind]
	if source, name, _ := strings.Cut(text, "."); name == "NAME" || name == "TEXT" || name == "FIELD" {
		return source + "." + p.name
	}
	return text
}

// partForms lists the ways to write a part, for messages.
var partForms = [...]string{"client.ip", "header.NAME", "query.NAME", "cookie.NAME", "host", "method", "path", "uri", "path.NAME", "const.TEXT", "customer", "jwt.NAME", "body.FIELD", "client.ip/128", "value.NAME"}

// parsePart parses a part as a policy file has it.
func parsePart(text string) (part, error) {
	switch text {
	case "client.ip":
		return part{kind: partClientIP}, nil
	case "client.ip/128":
		return part{kind: partFullIP}, nil
	case "host":
		return part{kind: partHost}, nil
	case "method":
		return part{kind: partMethod}, nil
	case "path":
		return part{kind: partPath}, nil
	case "uri":
		return part{kind: partURI}, nil
	case "customer":
		return part{kind: partCustomer}, nil
	}
	source, name, found := strings.Cut(text, ".")
	bad := func() (part, error) {
		return part{}, fmt.Errorf("%q is not a part of a key: write %s", text, strings.Join(partForms[:partValue], ", ")) // no server gives values
	}
	if !found {
		return bad()
	}
	if name == "" {
		return part{}, fmt.Errorf("%q names nothing: write %s.NAME", text, source)
	}
	switch source {
	case "header":
		if !httpsyntax.IsToken(name) {
			return part{}, fmt.Errorf("%q is not the name of a header field", name)
		}
		if strings.EqualFold(name, "Host") {
			return part{}, fmt.Errorf("header.host is where the request goes: write host")
		}
		return part{partHeader, textproto.CanonicalMIMEHeaderKey(name)}, nil
	case "cookie":
		if !httpsyntax.IsToken(name) {
			return part{}, fmt.Errorf("%q is not the name of a cookie", name)
		}
		return part{partCookie, name}, nil
	case "query":
		return part{partQuery, name}, nil
	case "path":
		return part{partVariable, name}, nil
	case "const":
		return part{partConst, name}, nil
	case "jwt":
		return part{partClaim, name}, nil
	case "body":
		return part{partBody, name}, checkBodyField(name)
	case "value":
		return part{partValue, name}, nil
	}
	return bad()
}

// value returns the part's value in a request. present is false if the request does not have the
// part. repeated is true if the part occurs more than once: its value is then empty, but a client
// that repeats a part must not count as one that sends none.
func (p part) value(r *request) (value string, present, repeated bool) {
	switch p.kind {
	case partClientIP:
		return r.Client, r.Client != "", false
	case partFullIP:
		value = r.fullAddress()
		return value, value != "", false
	case partHeader:
		value, present, repeated = HeaderValue(r.Header[p.name])
		return canonicalHeader(p.name, value), present, repeated
	case partQuery:
		return queryValue(r.Query, p.name, r.php)
	case partCookie:
		return CookieValue(r.Header["Cookie"], p.name)
	case partHost:
		return r.host(), true, false
	case partMethod:
		return r.Method, true, false
	case partPath:
		return r.onePath(), true, false
	case partURI:
		return r.uri(), true, false
	case partBody:
		return bodyValue(r.body.field(p.name))
	case partVariable:
		value, present = r.variable(p.name)
		return value, present, false
	case partValue:
		value, present = r.value(p.name)
		return value, present, false
	case partCustomer:
		return r.who.customer, r.who.customer != "", false
	case partClaim:
		value, present = r.who.claims[p.name]
		return value, present, present && value == ""
	}
	return p.name, true, false // a const
}

// appendKey appends one part to a key, with its length in front. The length makes keys unique:
// different lists of parts have different keys.
func appendKey(key []byte, value string) []byte {
	key = binary.AppendUvarint(key, uint64(len(value)))
	return append(key, value...)
}

// maxKey is the longest key, in bytes, that is kept as it is. A longer key is replaced by its
// SHA-256. Otherwise, a client could choose by long header fields how much memory its state takes.
const maxKey = 128

// hashed is the first byte of a key that was replaced by its hash. No encoded list of parts that
// short begins with it.
const hashed = 0xff

// seal limits the length of an encoded key, in place.
func seal(key []byte) []byte {
	if len(key) <= maxKey {
		return key
	}
	sum := sha256.Sum256(key)
	return append(append(key[:0], hashed), sum[:]...)
}

// SealKey limits the length of a key that is a text of its own, and no list of parts: a long key is
// replaced by its SHA-256. Different texts have different keys.
func SealKey(text string) string {
	if len(text) <= maxKey && (text == "" || text[0] != hashed) {
		return text
	}
	sum := sha256.Sum256([]byte(text))
	return string(append([]byte{hashed}, sum[:]...))
}

// EncodeKey returns the key of a list of parts, under which a limit keeps their state. Different
// lists have different keys.
func EncodeKey(parts ...string) string {
	var key []byte
	for _, p := range parts {
		key = appendKey(key, p)
	}
	return string(seal(key))
}

// DecodeKey returns the parts that were passed to EncodeKey. It fails for a key that was replaced
// by its hash.
func DecodeKey(key string) ([]string, error) {
	var parts []string
	for b := []byte(key); len(b) > 0; {
		n, size := binary.Uvarint(b)
		if size <= 0 || n > uint64(len(b)-size) {
			return nil, fmt.Errorf("weir: %q is not a key that EncodeKey made", key)
		}
		parts = append(parts, string(b[size:size+int(n)]))
		b = b[size+int(n):]
	}
	return parts, nil
}

// HeaderValue returns the value of a header field for a key, from all values of the field. Like a
// query parameter, a field that occurs more than once is present, repeated, and has no value.
func HeaderValue(values []string) (value string, present, repeated bool) {
	if len(values) == 1 {
		return values[0], true, false
	}
	return "", len(values) > 0, len(values) > 0
}

// unescapeQuery decodes a part of a query leniently, as some upstreams do: an invalid escape stays
// as it is.
func unescapeQuery(s string) string {
	if !strings.ContainsAny(s, "%+") {
		return s
	}
	return unescape(s, true)
}

// unescape decodes percent-encoding. With plus, it also decodes + to a space.
func unescape(s string, plus bool) string {
	b := make([]byte, 0, len(s))
	for i := 0; i < len(s); i++ {
		switch {
		case s[i] == '%' && i+2 < len(s) && hex(s[i+1]) >= 0 && hex(s[i+2]) >= 0:
			b = append(b, byte(hex(s[i+1])<<4|hex(s[i+2])))
			i += 2
		case s[i] == '+' && plus:
			b = append(b, ' ')
		default:
			b = append(b, s[i])
		}
	}
	return string(b)
}

func hex(c byte) int {
	switch {
	case '0' <= c && c <= '9':
		return int(c - '0')
	case 'a' <= c && c <= 'f':
		return int(c-'a') + 10
	case 'A' <= c && c <= 'F':
		return int(c-'A') + 10
	}
	return -1
}

// ClientKey returns the value of the key part client.ip for an address: an IPv4 address, or the /64
// of an IPv6 address, since one client usually gets a whole /64. It drops zones, and turns IPv4
// inside IPv6 into IPv4.
func ClientKey(addr netip.Addr) string {
	addr = addr.Unmap().WithZone("")
	if !addr.IsValid() {
		return ""
	}
	if addr.Is4() {
		return addr.String()
	}
	prefix, err := addr.Prefix(64)
	if err != nil {
		return addr.String()
	}
	var buf [48]byte // one allocation, where String has two
	return string(prefix.AppendTo(buf[:0]))
}

// fullAddress returns the value of the key part client.ip/128.
func (r *request) fullAddress() string {
	if addr := r.address(); addr.Is6() {
		return addr.String()
	}
	return r.Client // an IPv4 address, or a text that is no address
}

// fullAddressOf is fullAddress for a text.
func fullAddressOf(text string) (value string, ok bool) {
	addr, err := netip.ParseAddr(text)
	return addr.Unmap().WithZone("").String(), err == nil
}

// ClientKeyOf is like ClientKey for a text. A text that is no address stays unchanged.
func ClientKeyOf(text string) string {
	addr, err := netip.ParseAddr(text)
	if err != nil || addr.Is4() { // already in the only form
		return text
	}
	return ClientKey(addr)
}
