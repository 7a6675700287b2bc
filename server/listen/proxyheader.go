package listen

import (
	"bytes"
	"encoding/binary"
	"errors"
	"net"
	"net/netip"
	"strconv"
	"strings"
)

// The PROXY protocol, by HAProxy's specification: a proxy sends the client's address first, in a
// line (version 1) or a binary block (version 2).

const (
	longestLine = 107 // bytes of a header of version 1
	// bytes of a header of version 2; the addresses of two Unix sockets take 216, and the rest is
	// for extensions
	longestBlock = 4 << 10
)

var signature = []byte("\r\n\r\n\x00\r\nQUIT\n")

var (
	errHeaderShort = errors.New("listen: more of the PROXY header is to come")
	errHeader      = errors.New("listen: it does not begin with a PROXY header")
)

// parseProxyHeader parses the header at the start of b, and returns its length. The address is
// invalid if the header names none: then the connection is the proxy's own, as for a health check.
// errHeaderShort asks for more bytes; every other error is final.
func parseProxyHeader(b []byte) (client netip.AddrPort, n int, err error) {
	switch {
	case len(b) == 0:
		return client, 0, errHeaderShort
	case b[0] == 'P':
		return parseLine(b)
	default:
		return parseBlock(b)
	}
}

// parseLine reads version 1: PROXY TCP4 192.0.2.1 198.51.100.1 56324 443.
func parseLine(b []byte) (client netip.AddrPort, n int, err error) {
	const begin = "PROXY "
	if !bytes.HasPrefix(b, []byte(begin)[:min(len(b), len(begin))]) {
		return client, 0, errHeader
	}
	end := bytes.IndexByte(b[:min(len(b), longestLine)], '\n')
	switch {
	case end < 0 && len(b) >= longestLine:
		return client, 0, errHeader
	case end < 0:
		return client, 0, errHeaderShort
	case end < len(begin) || b[end-1] != '\r':
		return client, 0, errHeader
	}
	line := string(b[len(begin) : end-1])
	if line == "UNKNOWN" || strings.HasPrefix(line, "UNKNOWN ") {
		return client, end + 1, nil
	}
	fields := strings.Split(line, " ")
	if len(fields) != 5 || fields[0] != "TCP4" && fields[0] != "TCP6" {
		return client, 0, errHeader
	}
	from, errFrom := parseEndpoint(fields[1], fields[3], fields[0] == "TCP4")
	_, errTo := parseEndpoint(fields[2], fields[4], fields[0] == "TCP4")
	if errFrom != nil || errTo != nil {
		return client, 0, errHeader
	}
	return from, end + 1, nil
}

func parseEndpoint(addr, port string, is4 bool) (netip.AddrPort, error) {
	a, err := netip.ParseAddr(addr)
	if err != nil || a.Is4() != is4 || a.Zone() != "" {
		return netip.AddrPort{}, errHeader
	}
	p, err := strconv.ParseUint(port, 10, 16)
	if err != nil || len(port) > 1 && port[0] == '0' {
		return netip.AddrPort{}, errHeader
	}
	return netip.AddrPortFrom(a.Unmap(), uint16(p)), nil
}

// parseBlock reads version 2.
func parseBlock(b []byte) (client netip.AddrPort, n int, err error) {
	const fixed = 16 // the signature, a version and command, a family, a length
	if !bytes.HasPrefix(b, signature[:min(len(b), len(signature))]) {
		return client, 0, errHeader
	}
	if len(b) < fixed {
		return client, 0, errHeaderShort
	}
	command, family := b[12], b[13]
	n = fixed + int(binary.BigEndian.Uint16(b[14:fixed]))
	switch {
	case n > longestBlock || command != 0x20 && command != 0x21:
		return client, 0, errHeader
	case len(b) < n:
		return client, 0, errHeaderShort
	case command == 0x20: // LOCAL
		return client, n, nil
	}
	body := b[fixed:n]
	switch family {
	case 0x11: // TCP over IPv4
		if len(body) < 12 {
			return client, 0, errHeader
		}
		client = netip.AddrPortFrom(netip.AddrFrom4([4]byte(body[:4])), binary.BigEndian.Uint16(body[8:10]))
	case 0x21: // TCP over IPv6
		if len(body) < 36 {
			return client, 0, errHeader
		}
		client = netip.AddrPortFrom(netip.AddrFrom16([16]byte(body[:16])).Unmap(), binary.BigEndian.Uint16(body[32:34]))
	case 0x00: // unspecified
	default: // datagrams, Unix sockets, and what does not exist
		return client, 0, errHeader
	}
	return client, n, nil
}

// readProxyHeader reads the header from a connection. It returns the bytes that were read beyond
// it.
func readProxyHeader(conn net.Conn) (client netip.AddrPort, rest []byte, err error) {
	b := make([]byte, 0, 256)
	for {
		n, err := conn.Read(b[len(b):cap(b)])
		b = b[:len(b)+n]
		client, used, parseErr := parseProxyHeader(b)
		switch {
		case parseErr == nil:
			return client, bytes.Clone(b[used:]), nil
		case parseErr != errHeaderShort:
			return client, nil, parseErr
		case err != nil:
			return client, nil, err
		}
		if len(b) == cap(b) {
			// a header is refused before this is full
			b = append(make([]byte, 0, longestBlock), b...)
		}
	}
}
