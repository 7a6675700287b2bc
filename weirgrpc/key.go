package weirgrpc

import (
	"context"
	"net/http"
	"net/netip"
	"strings"

	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"

	"github.com/weirflow/weir/policy"
	"github.com/weirflow/weir/weirhttp"
)

// A Call is what keys and costs are made of.
type Call struct {
	Context context.Context
	Method  string // like "/shop.Cart/Checkout"
	// the request of a unary call, or with PerMessage and PerResponse the message of a stream; nil for
	// a stream that is opened
	Message any
	client  bool
}

// about adds to an error of a client that the call was never sent.
func (c *Call) about(text string) string {
	if c.client {
		return notSent + text
	}
	return text
}

// metadata returns what the call has sent or is to send.
func (c *Call) metadata() metadata.MD {
	if c.client {
		md, _ := metadata.FromOutgoingContext(c.Context)
		return md
	}
	md, _ := metadata.FromIncomingContext(c.Context)
	return md
}

// A KeyFunc returns the key that a call is counted under. ok is false if the call has none: see
// OnMissing.
//
// Any text is a valid key. A key of more than 128 bytes is replaced by its SHA-256, so that clients
// cannot choose how much memory their keys take.
type KeyFunc func(c *Call) (key string, ok bool)

// Global counts all calls under one key.
func Global() KeyFunc { return func(*Call) (string, bool) { return "", true } }

// ByMethod counts calls by their methods.
func ByMethod() KeyFunc { return func(c *Call) (string, bool) { return c.Method, true } }

// ByIP counts calls by the client's address: an IPv4 address, or the /64 of an IPv6 address, as one
// client usually has a whole /64.
//
// The metadata x-forwarded-for is read only if the connection comes from one of the trusted prefixes,
// from the right, up to the first address that is not trusted, as weirhttp.ClientIP does. Behind a
// proxy that is not listed, all clients have one key, that of the proxy. A call without an address,
// as over a Unix socket, has no key.
func ByIP(trusted ...netip.Prefix) KeyFunc { return ByIPFrom("x-forwarded-for", trusted...) }

// ByIPFrom is ByIP for trusted proxies that write the client's address to other metadata, like
// x-real-ip.
func ByIPFrom(name string, trusted ...netip.Prefix) KeyFunc {
	name = checkedName("ByIPFrom", name)
	for _, p := range trusted {
		if !p.IsValid() {
			panic("weirgrpc: ByIP was given a prefix that is not valid: make it with netip.MustParsePrefix(\"10.0.0.0/8\")")
		}
	}
	field := http.CanonicalHeaderKey(name)
	return func(c *Call) (string, bool) {
		p, ok := peer.FromContext(c.Context)
		if !ok || p.Addr == nil {
			return "", false
		}
		r := &http.Request{RemoteAddr: p.Addr.String()}
		if len(trusted) > 0 {
			r.Header = http.Header{field: c.metadata()[name]}
		}
		client := weirhttp.ClientIPFrom(r, trusted, field)
		if !client.IsValid() {
			return "", false
		}
		return policy.ClientKey(client), true
	}
}

// ByMetadata counts calls by a value of their metadata, like an API key. A value that is sent more
// than once counts as empty: otherwise a client could choose which of its values counts.
//
// Clients can send any value, and a new value is a new key. Use it for values that something in front
// has verified, or together with a limit by address. The value of authorization counts as
// policy.CanonicalAuthorization has it: "bearer k" and "Bearer  k" are one key.
func ByMetadata(name string) KeyFunc {
	name = checkedName("ByMetadata", name)
	return func(c *Call) (string, bool) {
		value, present, _ := policy.HeaderValue(c.metadata()[name])
		if name == "authorization" {
			value = policy.CanonicalAuthorization(value)
		}
		return value, present
	}
}

// ByJWT counts calls by a claim of the token in the metadata authorization, "Bearer TOKEN", like sub.
// The Verifier is yours, as for weirhttp.ByJWT: the claims of a token that nobody has verified are
// anything that a client writes. A call without a token, with one that is not valid, or without the
// claim has no key: see OnMissing.
func ByJWT(claim string, verify weirhttp.Verifier) KeyFunc {
	if verify == nil {
		panic("weirgrpc: ByJWT without a Verifier: pass one that checks the token's signature")
	}
	byToken := weirhttp.ByJWT(claim, verify)
	return func(c *Call) (string, bool) {
		r := &http.Request{Header: http.Header{"Authorization": c.metadata()["authorization"]}}
		return byToken(r.WithContext(c.Context))
	}
}

// Join counts calls by several keys together, like a tenant and a method. The parts are joined with
// their lengths, so that two different lists of parts never have the same key. A call without one of
// the parts has no key.
func Join(parts ...KeyFunc) KeyFunc {
	if len(parts) == 0 {
		panic("weirgrpc: Join without keys: use Global for one key for all calls")
	}
	for _, part := range parts {
		if part == nil {
			panic("weirgrpc: Join of a KeyFunc that is nil")
		}
	}
	return func(c *Call) (string, bool) {
		texts := make([]string, len(parts))
		for i, part := range parts {
			text, ok := part(c)
			if !ok {
				return "", false
			}
			texts[i] = text
		}
		return policy.EncodeKey(texts...), true
	}
}

// checkedName returns a name of metadata as gRPC sends it: in lower case.
func checkedName(of, name string) string {
	lower := strings.ToLower(name)
	for _, c := range []byte(lower) {
		if (c < 'a' || c > 'z') && (c < '0' || c > '9') && c != '-' && c != '_' && c != '.' {
			lower = ""
		}
	}
	if lower == "" {
		panic("weirgrpc: " + of + "(\"" + name + "\"): this is not a name of metadata")
	}
	return lower
}
