package policy

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
)

// locate determines the key or the prefix that an override applies to.
func (r *activeOverride) locate(l *limit) (key string, err error) {
	if len(r.Key) != len(l.parts) {
		return "", fmt.Errorf("its key has %s (%s), and %d were given", countedParts(len(l.parts)), strings.Join(l.Limit.Key, ", "), len(r.Key))
	}
	parts, size := slices.Clone(r.Key), 0
	for i, p := range l.parts {
		if size += len(parts[i]); size > maxParts {
			return "", fmt.Errorf("the key is longer than %d bytes", maxParts)
		}
		switch p.kind {
		case partConst:
			if parts[i] != p.name {
				return "", fmt.Errorf("part %d of its key is always %q", i+1, p.name)
			}
		case partHeader:
			parts[i] = canonicalHeader(p.name, parts[i])
		case partClientIP:
			if err := r.client(parts, i, 64, ClientKeyOf); err != nil {
				return "", err
			}
		case partFullIP:
			full := func(text string) string {
				value, _ := fullAddressOf(text)
				return value
			}
			if err := r.client(parts, i, 128, full); err != nil {
				return "", err
			}
		}
	}
	r.Key = parts
	return EncodeKey(parts...), nil
}

// countedParts returns a number of parts in words.
func countedParts(n int) string {
	if n == 1 {
		return "1 part"
	}
	return fmt.Sprintf("%d parts", n)
}

// client parses a part that is an address or a prefix. A client of IPv6 has so many bits, and keyOf is
// the key of an address.
func (r *activeOverride) client(parts []string, i, ipv6 int, keyOf func(string) string) error {
	prefix, err := netip.ParsePrefix(parts[i])
	if err != nil {
		if strings.Contains(parts[i], "/") {
			return fmt.Errorf("%q is neither an address nor a prefix", parts[i])
		}
		if _, err := netip.ParseAddr(parts[i]); err != nil {
			return fmt.Errorf("%q is no IP address, and part %d of its key is client.ip: write an address like 192.0.2.7 or a prefix like 192.0.2.0/24", parts[i], i+1)
		}
		parts[i] = keyOf(parts[i])
		return nil
	}
	bits := prefix.Bits()
	addr := prefix.Addr()
	if addr.Is4In6() {
		addr, bits = addr.Unmap(), bits-96
	}
	single := 32
	if addr.Is6() {
		single = ipv6
	}
	switch {
	case bits < 0:
		return fmt.Errorf("%q is neither of IPv4 nor of IPv6: write it as one of them", parts[i])
	case bits > single:
		return fmt.Errorf("%q is a part of a client: IPv6 counts by /64", parts[i])
	case bits == single:
		parts[i] = keyOf(addr.String())
	case r.part >= 0:
		return errors.New("one part may be a prefix")
	default:
		r.prefix, r.part = netip.PrefixFrom(addr, bits).Masked(), i
		parts[i] = r.prefix.String()
	}
	return nil
}
