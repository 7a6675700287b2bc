package edge

import (
	"crypto/tls"
	"errors"
	"io"
	"net"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
)

// TestHTTP2Trickles: whatever a client of HTTP/2 begins has to be complete within header_timeout,
// however it is cut and whatever keeps the connection busy. What is complete, and bodies, are not
// bound by it.
func TestHTTP2Trickles(t *testing.T) {
	t.Parallel()
	up := newRawUpstream(t)
	dir := t.TempDir()
	selfSigned(t, dir)
	g := startWeir(t, dir, `  gateway: [{ address: "127.0.0.1:0", h2c: true }, { address: "127.0.0.1:0", tls: { certificates: [{ cert: a.crt, key: a.key }] } }]
  bounds: { header_timeout: 2s }
`, up.addr, routes)
	addrs := g.addresses(t)
	dial := map[string]func() (net.Conn, error){
		"in clear": func() (net.Conn, error) { return net.Dial("tcp", addrs[0]) },
		"over TLS": func() (net.Conn, error) {
			return tls.Dial("tcp", addrs[1], &tls.Config{InsecureSkipVerify: true, NextProtos: []string{"h2"}})
		},
	}
	const settings = "\x00\x00\x00\x04\x00\x00\x00\x00\x00"
	hello := http2.ClientPreface + settings
	block := func(fields ...string) string {
		var b strings.Builder
		enc := hpack.NewEncoder(&b)
		for i := 0; i < len(fields); i += 2 {
			enc.WriteField(hpack.HeaderField{Name: fields[i], Value: fields[i+1]})
		}
		return b.String()
	}
	get := block(":method", "POST", ":scheme", "http", ":authority", "h", ":path", "/")
	frame := func(kind, flags byte, stream byte, payload string) string {
		n := len(payload)
		return string([]byte{byte(n >> 16), byte(n >> 8), byte(n), kind, flags, 0, 0, 0, stream}) + payload
	}
	const headers, data, continuation, ping, endHeaders, endStream = 1, 0, 9, 6, 4, 1
	whole := frame(headers, endHeaders, 1, get)
	started := frame(headers, endStream, 1, get[:3])
	empty := frame(continuation, 0, 1, "")
	var wg sync.WaitGroup
	for name, c := range map[string]struct {
		first, again string // again is sent all the time
		stays        bool
	}{
		"half a preface":                       {hello[:10], "", false},
		"a preface, and half of the settings":  {hello[:len(hello)-2], "", false},
		"no end of the header":                 {hello + started, "", false},
		"empty frames of the header":           {hello + started, empty, false},
		"frames of one byte of the header":     {hello + started, frame(continuation, 0, 1, "\x82"), false},
		"half a frame of the header":           {hello + whole[:len(whole)-1], "", false},
		"half the header of a frame":           {hello + whole[:5], "", false},
		"a frame of the header, byte by byte":  {hello + frame(headers, endHeaders, 1, strings.Repeat("\x82", 1000))[:9], "\x82", false},
		"half a ping":                          {hello + frame(ping, 0, 0, "12345678")[:12], "", false},
		"trailers without an end":              {hello + whole + frame(data, 0, 1, "x") + frame(headers, endStream, 1, ""), empty, false},
		"half the header of a frame of DATA":   {hello + whole + frame(data, 0, 1, "x")[:8], "", false},
		"HTTP/1":                               {"GET / HTTP/1.1\r\nHost: h\r\n", "", false},
		"pings":                                {hello, frame(ping, 0, 0, "12345678"), true},
		"a body":                               {hello + whole + frame(data, 0, 1, strings.Repeat("x", 9000))[:9], "x", true},
		"an empty connection":                  {hello, "", true},
		"a header in several frames, and then": {hello + started + frame(continuation, endHeaders, 1, get[3:]), "", true},
	} {
		for way, dial := range dial {
			wg.Go(func() {
				conn, err := dial()
				if err != nil {
					t.Error(err)
					return
				}
				defer conn.Close()
				lasted, err := trickle(conn, c.first, c.again, 6*time.Second)
				stays := errors.Is(err, os.ErrDeadlineExceeded)
				if stays != c.stays {
					t.Errorf("%s, %s: ended after %v: %v", name, way, lasted, err)
				}
			})
		}
	}
	wg.Wait()
}

// trickle sends a text, and then another one again and again, until the connection ends or for a
// time. It returns when and how it ended.
func trickle(conn net.Conn, first, again string, most time.Duration) (time.Duration, error) {
	began := time.Now()
	conn.SetReadDeadline(began.Add(most))
	ended := make(chan struct{})
	var wg sync.WaitGroup
	defer wg.Wait()
	wg.Go(func() {
		io.WriteString(conn, first)
		ticker := time.NewTicker(50 * time.Millisecond)
		defer ticker.Stop()
		for {
			select {
			case <-ticker.C:
				io.WriteString(conn, again)
			case <-ended:
				return
			}
		}
	})
	defer close(ended)
	_, err := io.Copy(io.Discard, conn)
	if err == nil {
		err = io.EOF
	}
	return time.Since(began), err
}
