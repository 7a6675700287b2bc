package weirhttp

import (
	"net/http"
	"net/netip"
	"slices"
	"strings"

	"github.com/weirflow/weir/policy"
)

// maxHops bounds how many addresses of X-Forwarded-For are read.
const maxHops = 64

// ClientIP returns the address of the client. This is the address of the connection, unless that is
// in a trusted prefix. Then X-Forwarded-For is read from the right: the first address that is not
// trusted is the client's. Addresses left of it are ignored, because a client can send any. If all
// are trusted, the result is the leftmost; if an entry is not an address, the last address before
// it. The result is invalid if the connection has no address.
func ClientIP(r *http.Request, trusted []netip.Prefix) netip.Addr {
	return ClientIPFrom(r, trusted, "X-Forwarded-For")
}

// ClientIPFrom is ClientIP for trusted proxies that write the client's address to another header
// field, like X-Real-Ip. The name is in canonical form.
func ClientIPFrom(r *http.Request, trusted []netip.Prefix, field string) netip.Addr {
	client, _ := clientOf(r, trusted, field)
	return client
}

// ClientKeyFrom is ClientIPFrom. It also returns what policy.ClientKey makes of the address, without an
// allocation for IPv4.
func ClientKeyFrom(r *http.Request, trusted []netip.Prefix, field string) (client netip.Addr, key string) {
	client, text := clientOf(r, trusted, field)
	if client.Is4() && strings.IndexByte(text, ':') < 0 {
		return client, text // IPv4 has one form
	}
	return client, policy.ClientKey(client)
}

// clientOf is ClientIPFrom. It also returns the text that holds the address: for an IPv4 address
// without a colon in it, this is the address alone.
func clientOf(r *http.Request, trusted []netip.Prefix, field string) (client netip.Addr, text string) {
	client, text = peerOf(r)
	if len(trusted) == 0 || !client.IsValid() {
		return client, text
	}
	fields := r.Header[field]
	hops := 0
	for i := len(fields) - 1; i >= 0; i-- {
		rest := fields[i]
		for rest != "" {
			if !slices.ContainsFunc(trusted, func(p netip.Prefix) bool { return p.Contains(client) }) || hops == maxHops {
				return client, text
			}
			hops++
			hop := rest
			if j := strings.LastIndexByte(rest, ','); j >= 0 {
				hop, rest = rest[j+1:], rest[:j]
			} else {
				rest = ""
			}
			hop = strings.TrimSpace(hop)
			addr, bare, ok := parseHop(hop)
			if !ok {
				return client, text
			}
			client, text = addr, detached(bare, fields[i])
		}
	}
	return client, text
}

// longField is how long a header field may be that a key keeps in memory.
const longField = 256

// detached returns a part of a header field for a key. A table that stores its keys would otherwise
// keep the whole field in memory, which a client can make as long as a header may be.
func detached(part, field string) string {
	if len(field) > longField {
		return strings.Clone(part)
	}
	return part
}

// peerOf returns the address of the connection, and the text that holds it. The text may lack the
// port: some routers replace it by an address alone.
func peerOf(r *http.Request) (peer netip.Addr, text string) {
	if at, err := netip.ParseAddrPort(r.RemoteAddr); err == nil {
		return at.Addr().Unmap().WithZone(""), r.RemoteAddr[:strings.LastIndexByte(r.RemoteAddr, ':')]
	}
	addr, err := netip.ParseAddr(r.RemoteAddr)
	if err != nil {
		return netip.Addr{}, ""
	}
	return addr.Unmap().WithZone(""), r.RemoteAddr
}

// Trusted reports whether a request's connection comes from a trusted prefix.
func Trusted(r *http.Request, trusted []netip.Prefix) bool {
	if len(trusted) == 0 {
		return false
	}
	peer, _ := peerOf(r)
	return peer.IsValid() && slices.ContainsFunc(trusted, func(p netip.Prefix) bool { return p.Contains(peer) })
}

// parseHop parses an address. Some proxies write brackets around it, or add a port. bare is the text
// without the brackets: an address must not have several keys.
func parseHop(s string) (addr netip.Addr, bare string, ok bool) {
	bare = s
	if strings.HasPrefix(s, "[") && strings.HasSuffix(s, "]") {
		bare = s[1 : len(s)-1]
	}
	if addr, err := netip.ParseAddr(bare); err == nil {
		return addr.Unmap().WithZone(""), bare, true
	}
	if ap, err := netip.ParseAddrPort(s); err == nil {
		return ap.Addr().Unmap().WithZone(""), s, true
	}
	return netip.Addr{}, "", false
}
