package weirhttp

import (
	"context"
	"encoding/json"
	"fmt"
	"math"
	"net/http"
	"net/netip"
	"strconv"
	"strings"

	"github.com/weirflow/weir/internal/httpsyntax"
	"github.com/weirflow/weir/policy"
)

// A KeyFunc returns the key that a request is counted under. ok is false if the request has none:
// see OnMissing. It is called once for each request, and must not read the body.
//
// Any text is a valid key. A key of more than 128 bytes is replaced by its SHA-256, so that clients
// cannot choose how much memory their keys take.
type KeyFunc func(r *http.Request) (key string, ok bool)

// Global counts all requests under one key.
func Global() KeyFunc { return func(*http.Request) (string, bool) { return "", true } }

// ByIP counts requests by the client's address: an IPv4 address, or the /64 of an IPv6 address, as
// one client usually has a whole /64.
//
// X-Forwarded-For is read only if the connection comes from one of the trusted prefixes, from the
// right, up to the first address that is not trusted: see ClientIP. Behind a proxy that is not
// listed, all clients have one key, that of the proxy. A request without an address, as over a Unix
// socket, has no key.
func ByIP(trusted ...netip.Prefix) KeyFunc { return ByIPFrom("X-Forwarded-For", trusted...) }

// ByIPFrom is ByIP for trusted proxies that write the client's address to another header field,
// like X-Real-IP.
func ByIPFrom(field string, trusted ...netip.Prefix) KeyFunc {
	field = http.CanonicalHeaderKey(checkedName("ByIPFrom", field))
	for _, p := range trusted {
		if !p.IsValid() {
			panic("weirhttp: ByIP was given a prefix that is not valid: make it with netip.MustParsePrefix(\"10.0.0.0/8\")")
		}
	}
	return func(r *http.Request) (string, bool) {
		client, key := ClientKeyFrom(r, trusted, field)
		return key, client.IsValid()
	}
}

// ByHeader counts requests by a header field, like an API key. A field that is sent more than once
// counts as empty: otherwise a client could choose which of its values counts.
//
// Clients can send any value, and a new value is a new key. Use it for values that something in
// front has verified, or together with a limit by address. Authorization counts as
// policy.CanonicalAuthorization has it: "bearer k" and "Bearer  k" are one key.
func ByHeader(name string) KeyFunc {
	name = http.CanonicalHeaderKey(checkedName("ByHeader", name))
	if name == "Host" {
		panic("weirhttp: ByHeader(\"Host\"): net/http keeps the host in Request.Host: write a KeyFunc that returns it")
	}
	return func(r *http.Request) (string, bool) {
		value, present, _ := policy.HeaderValue(r.Header[name])
		if name == "Authorization" {
			value = policy.CanonicalAuthorization(value)
		}
		return value, present
	}
}

// ByCookie counts requests by a cookie. A cookie that is sent more than once counts as empty. As
// with ByHeader, clients can send any value.
func ByCookie(name string) KeyFunc {
	name = checkedName("ByCookie", name)
	return func(r *http.Request) (string, bool) {
		value, present, _ := policy.CookieValue(r.Header["Cookie"], name)
		return value, present
	}
}

// A Verifier checks the signature, the expiry, the issuer and the audience of a token, and returns
// its claims. An error means that the token is not valid.
type Verifier func(ctx context.Context, token string) (claims map[string]any, err error)

// maxToken is the longest token that is verified, in bytes. A longer one is not valid.
const maxToken = 16 << 10

// ByJWT counts requests by a claim of the token in "Authorization: Bearer TOKEN", like sub. The
// Verifier is yours, over the library of your choice: the claims of a token that nobody has verified
// are anything that a client writes. A request without a token, with one that is not valid, or
// without the claim has no key.
//
// The claim is a text or a number. As keys, "1" and 1 are the same.
func ByJWT(claim string, verify Verifier) KeyFunc {
	if verify == nil {
		panic("weirhttp: ByJWT without a Verifier: pass one that checks the token's signature")
	}
	return func(r *http.Request) (string, bool) {
		value, _, _ := policy.HeaderValue(r.Header["Authorization"])
		scheme, token, found := strings.Cut(value, " ")
		token = strings.TrimLeft(token, " ")
		if !found || !strings.EqualFold(scheme, "Bearer") || token == "" || len(token) > maxToken {
			return "", false
		}
		claims, err := verify(r.Context(), token)
		if err != nil {
			return "", false
		}
		return claimText(claims[claim])
	}
}

// claimText returns a claim as a key.
func claimText(claim any) (text string, ok bool) {
	switch v := claim.(type) {
	case string:
		return v, v != ""
	case json.Number:
		return v.String(), v != ""
	case float64:
		return strconv.FormatFloat(v, 'f', -1, 64), !math.IsNaN(v) && !math.IsInf(v, 0)
	case int64:
		return strconv.FormatInt(v, 10), true
	case int:
		return strconv.Itoa(v), true
	}
	return "", false
}

// Join counts requests by several keys together, like a tenant and an address. The parts are joined
// with their lengths, so that two different lists of parts never have the same key; policy.DecodeKey
// takes them apart. A request without one of the parts has no key.
func Join(parts ...KeyFunc) KeyFunc {
	if len(parts) == 0 {
		panic("weirhttp: Join without keys: use Global for one key for all requests")
	}
	for _, part := range parts {
		if part == nil {
			panic("weirhttp: Join of a KeyFunc that is nil")
		}
	}
	return func(r *http.Request) (string, bool) {
		var few [4]string
		texts := few[:0]
		for _, part := range parts {
			text, ok := part(r)
			if !ok {
				return "", false
			}
			texts = append(texts, text)
		}
		return policy.EncodeKey(texts...), true
	}
}

// checkedName panics if a text cannot be the name of a header field or of a cookie.
func checkedName(of, name string) string {
	if !httpsyntax.IsToken(name) {
		panic(fmt.Sprintf("weirhttp: %s(%q): this is not a name", of, name))
	}
	return name
}
