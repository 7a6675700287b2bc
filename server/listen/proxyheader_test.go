package listen

import (
	"encoding/hex"
	"errors"
	"net/netip"
	"strings"
	"testing"
)

func block(hexadecimal string) string {
	b, err := hex.DecodeString(strings.ReplaceAll(hexadecimal, " ", ""))
	if err != nil {
		panic(err)
	}
	return string(signature) + string(b)
}

func TestProxyHeader(t *testing.T) {
	for _, c := range []struct {
		name, header, want string // empty: refused; "-": it has no address
	}{
		{"IPv4", "PROXY TCP4 192.0.2.1 198.51.100.1 56324 443\r\n", "192.0.2.1:56324"},
		{"IPv6", "PROXY TCP6 2001:db8::1 2001:db8::2 1 65535\r\n", "[2001:db8::1]:1"},
		{"unknown", "PROXY UNKNOWN\r\n", "-"},
		{"unknown, with more", "PROXY UNKNOWN ffff:f...f:ffff ffff:f...f:ffff 65535 65535\r\n", "-"},
		{"the longest", "PROXY UNKNOWN " + strings.Repeat("x", 107-16) + "\r\n", "-"},
		{"too long", "PROXY UNKNOWN " + strings.Repeat("x", 107-15) + "\r\n", ""},
		{"no CR", "PROXY TCP4 192.0.2.1 198.51.100.1 56324 443\n", ""},
		{"a family that is not the address's", "PROXY TCP4 ::1 ::1 1 2\r\n", ""},
		{"a mapped address", "PROXY TCP4 ::ffff:1.2.3.4 1.2.3.4 1 2\r\n", ""},
		{"a zone", "PROXY TCP6 fe80::1%eth0 ::1 1 2\r\n", ""},
		{"a port too large", "PROXY TCP4 192.0.2.1 198.51.100.1 65536 443\r\n", ""},
		{"a port with a zero before", "PROXY TCP4 192.0.2.1 198.51.100.1 0443 443\r\n", ""},
		{"two spaces", "PROXY TCP4  192.0.2.1 198.51.100.1 1 443\r\n", ""},
		{"a field too many", "PROXY TCP4 192.0.2.1 198.51.100.1 1 443 5\r\n", ""},
		{"another protocol", "PROXY UDP4 192.0.2.1 198.51.100.1 1 443\r\n", ""},
		{"small letters", "proxy TCP4 192.0.2.1 198.51.100.1 1 443\r\n", ""},
		{"no header", "GET / HTTP/1.1\r\n", ""},
		{"TLS", "\x16\x03\x01\x02\x00", ""},
		{"POST, which begins like it", "POST / HTTP/1.1\r\n", ""},
		{"block, IPv4", block("21 11 000c c0000201 c6336401 dc04 01bb"), "192.0.2.1:56324"},
		{"block, IPv6", block("21 21 0024 20010db8000000000000000000000001 20010db8000000000000000000000002 0001 01bb"), "[2001:db8::1]:1"},
		{"block, IPv4 inside IPv6", block("21 21 0024 00000000000000000000ffffc0000201 20010db8000000000000000000000002 0001 01bb"), "192.0.2.1:1"},
		{"block with extensions", block("21 11 0010 c0000201 c6336401 dc04 01bb 04 0001 00"), "192.0.2.1:56324"},
		{"block, local", block("20 00 0000"), "-"},
		{"block, local, with an address", block("20 11 000c c0000201 c6336401 dc04 01bb"), "-"},
		{"block, not said", block("21 00 0000"), "-"},
		{"block, too short for its family", block("21 11 0004 c0000201"), ""},
		{"block, IPv6 too short", block("21 21 000c c0000201 c6336401 dc04 01bb"), ""},
		{"block, datagrams", block("21 12 000c c0000201 c6336401 dc04 01bb"), ""},
		{"block, a Unix socket", block("21 31 00d8" + strings.Repeat("00", 216)), ""},
		{"block, another command", block("22 11 000c c0000201 c6336401 dc04 01bb"), ""},
		{"block, another version", block("11 11 000c c0000201 c6336401 dc04 01bb"), ""},
		{"block, too large", block("21 11 ffff"), ""},
	} {
		header := []byte(c.header + "GET / HTTP/1.1\r\n")
		client, n, err := parseProxyHeader(header)
		got := client.String()
		switch {
		case err != nil:
			got = ""
		case !client.IsValid():
			got = "-"
		}
		if got != c.want || err == nil && n != len(c.header) {
			t.Errorf("%s: %q after %d of %d bytes, %v", c.name, got, n, len(c.header), err)
		}
		if c.want == "" {
			continue
		}
		for i := range len(c.header) { // byte by byte
			if _, _, err := parseProxyHeader(header[:i]); err != errHeaderShort {
				t.Errorf("%s: the first %d bytes: %v", c.name, i, err)
			}
		}
	}
}

// FuzzProxyHeader: a header ends in the same place however it is cut, reads no more than the
// largest header, and never gives an invalid address.
func FuzzProxyHeader(f *testing.F) {
	f.Add([]byte("PROXY TCP4 192.0.2.1 198.51.100.1 56324 443\r\nx"))
	f.Add([]byte("PROXY UNKNOWN\r\n"))
	f.Add([]byte(block("21 11 000c c0000201 c6336401 dc04 01bb")))
	f.Add([]byte(block("21 21 0024 20010db8000000000000000000000001 20010db8000000000000000000000002 0001 01bb")))
	f.Fuzz(func(t *testing.T, b []byte) {
		client, n, err := parseProxyHeader(b)
		switch {
		case errors.Is(err, errHeaderShort):
			if len(b) > longestBlock {
				t.Fatalf("%d bytes are not enough", len(b))
			}
		case err == nil:
			if n < 8 || n > len(b) || client.IsValid() && client.Addr().Is4In6() {
				t.Fatalf("%v after %d bytes", client, n)
			}
			for i := range n {
				if _, _, err := parseProxyHeader(b[:i]); err != errHeaderShort {
					t.Fatalf("%d of %d bytes: %v", i, n, err)
				}
			}
			if again, m, err := parseProxyHeader(b[:n]); again != client || m != n || err != nil {
				t.Fatalf("without what follows: %v, %d, %v", again, m, err)
			}
		case client != netip.AddrPort{}:
			t.Fatalf("%v and %v", client, err)
		}
	})
}
