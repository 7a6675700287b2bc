package edge

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"

	"github.com/weirflow/weir/proof/servers"
)

// addresses returns all addresses of the gateway.
func (g *gateway) addresses(t *testing.T) []string {
	t.Helper()
	for line := range strings.Lines(g.Output()) {
		var l struct {
			Msg    string
			Listen map[string][]string
		}
		if json.Unmarshal([]byte(line), &l) == nil && l.Msg == "serving" {
			return l.Listen["gateway"]
		}
	}
	t.Fatal(g.Output())
	return nil
}

// h2 is a client of HTTP/2 that sends given frames.
type h2 struct {
	net.Conn
	*http2.Framer
	next uint32
}

func dialH2(t *testing.T, addr string) *h2 {
	t.Helper()
	conn, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	return overH2(conn)
}

// request sends a header: alternating names and values.
func (c *h2) request(end bool, fields ...string) (stream uint32) {
	var block bytes.Buffer
	enc := hpack.NewEncoder(&block)
	for i := 0; i < len(fields); i += 2 {
		enc.WriteField(hpack.HeaderField{Name: fields[i], Value: fields[i+1]})
	}
	stream, c.next = c.next, c.next+2
	c.WriteHeaders(http2.HeadersFrameParam{StreamID: stream, BlockFragment: block.Bytes(), EndHeaders: true, EndStream: end})
	return stream
}

// trailers sends fields after a body: alternating names and values.
func (c *h2) trailers(stream uint32, fields ...string) {
	var block bytes.Buffer
	enc := hpack.NewEncoder(&block)
	for i := 0; i < len(fields); i += 2 {
		enc.WriteField(hpack.HeaderField{Name: fields[i], Value: fields[i+1]})
	}
	c.WriteHeaders(http2.HeadersFrameParam{StreamID: stream, BlockFragment: block.Bytes(), EndHeaders: true, EndStream: true})
}

// whole returns the status and the body of a stream's response; status 0 if there is none.
func (c *h2) whole(stream uint32) (status int, body string) {
	for {
		f, err := c.ReadFrame()
		if err != nil {
			return 0, ""
		}
		switch f := f.(type) {
		case *http2.MetaHeadersFrame:
			if f.StreamID == stream {
				status, _ = strconv.Atoi(f.PseudoValue("status"))
			}
		case *http2.DataFrame:
			body += string(f.Data())
		case *http2.RSTStreamFrame:
			return 0, ""
		case *http2.GoAwayFrame:
			if f.ErrCode != http2.ErrCodeNo {
				return 0, ""
			}
		case *http2.SettingsFrame:
			if !f.IsAck() {
				c.WriteSettingsAck()
			}
		}
		if f.Header().StreamID == stream && f.Header().Flags.Has(http2.FlagDataEndStream) {
			return status, body
		}
	}
}

// answer returns the status of a stream's response; "reset" if the stream was reset, "gone" if the
// connection was closed.
func (c *h2) answer(stream uint32) string {
	for {
		f, err := c.ReadFrame()
		if err != nil {
			return "gone"
		}
		switch f := f.(type) {
		case *http2.MetaHeadersFrame:
			if f.StreamID == stream {
				return f.PseudoValue("status")
			}
		case *http2.RSTStreamFrame:
			if f.StreamID == stream {
				return "reset"
			}
		case *http2.GoAwayFrame:
			if f.ErrCode != http2.ErrCodeNo {
				return "gone"
			}
		case *http2.SettingsFrame:
			if !f.IsAck() {
				c.WriteSettingsAck()
			}
		}
	}
}

// TestHTTP2Refused has requests of HTTP/2 that would become other requests in HTTP/1. None reaches
// the upstream as two requests, or with the injected part.
func TestHTTP2Refused(t *testing.T) {
	up := newRawUpstream(t)
	g := startWeir(t, t.TempDir(), "  gateway: { address: \"127.0.0.1:0\", h2c: true }\n", up.addr, routes)
	get := func(more ...string) []string {
		return append([]string{":method", "GET", ":scheme", "http", ":authority", "h", ":path", "/"}, more...)
	}
	if c := dialH2(t, g.Gateway); c.answer(c.request(true, get()...)) != "200" {
		t.Fatal("a plain request is not answered")
	}
	for name, fields := range map[string][]string{
		"a line break in a value":         get("x-a", "b\r\nX-Evil: 1"),
		"an LF in a value":                get("x-a", "b\nX-Evil: 1"),
		"a NUL in a value":                get("x-a", "b\x00c"),
		"a line break in a name":          get("x-a\r\nx-evil", "1"),
		"a colon in a name":               get("x-a:b", "1"),
		"a capital in a name":             get("X-A", "1"),
		"an empty name":                   get("", "1"),
		"a line break in the path":        {":method", "GET", ":scheme", "http", ":authority", "h", ":path", "/ HTTP/1.1\r\nX-Evil: 1\r\n\r\nGET /smuggled"},
		"a line break in the method":      {":method", "GET /smuggled HTTP/1.1\r\nHost: h\r\n\r\nGET", ":scheme", "http", ":authority", "h", ":path", "/"},
		"a space in the method":           {":method", "GET /smuggled", ":scheme", "http", ":authority", "h", ":path", "/"},
		"a line break in the authority":   {":method", "GET", ":scheme", "http", ":authority", "h\r\nX-Evil: 1", ":path", "/"},
		"a path in the authority":         {":method", "GET", ":scheme", "http", ":authority", "h/x", ":path", "/"},
		"a user in the authority":         {":method", "GET", ":scheme", "http", ":authority", "a@h", ":path", "/"},
		"another Host":                    get("host", "i"),
		"two Hosts":                       get("host", "h", "host", "h"),
		"a path that is none":             {":method", "GET", ":scheme", "http", ":authority", "h", ":path", "x"},
		"an empty path":                   {":method", "GET", ":scheme", "http", ":authority", "h", ":path", ""},
		"no path":                         {":method", "GET", ":scheme", "http", ":authority", "h"},
		"no method":                       {":scheme", "http", ":authority", "h", ":path", "/"},
		"two paths":                       get(":path", "/b"),
		"two methods":                     get(":method", "POST"),
		"a pseudo-header after the rest":  {":method", "GET", ":scheme", "http", ":authority", "h", "x-a", "b", ":path", "/"},
		"a pseudo-header that is unknown": get(":evil", "1"),
		"a backslash":                     {":method", "GET", ":scheme", "http", ":authority", "h", ":path", "/a\\b"},
		"a fragment":                      {":method", "GET", ":scheme", "http", ":authority", "h", ":path", "/a#b"},
		"a length without a body":         get("content-length", "5"),
		"two lengths":                     get("content-length", "0", "content-length", "5"),
	} {
		up.take()
		c := dialH2(t, g.Gateway)
		if got := c.answer(c.request(true, fields...)); got == "200" {
			t.Errorf("%s: %s", name, got)
		}
		if arrived := up.take(); arrived != "" {
			t.Errorf("%s: the upstream got %q", name, arrived)
		}
	}
	// Connection-specific fields of HTTP/1 are invalid in HTTP/2, and do not get through.
	for _, field := range []string{"transfer-encoding", "connection", "upgrade", "keep-alive", "proxy-connection", "http2-settings", "te"} {
		up.take()
		c := dialH2(t, g.Gateway)
		got := c.answer(c.request(true, get(field, "chunked")...))
		if arrived := up.take(); strings.Contains(strings.ToLower(arrived), field+":") || strings.Contains(arrived, "chunked") {
			t.Errorf("%s: %s, and the upstream got %q", field, got, arrived)
		}
	}
	// A body with another length than announced.
	for _, body := range []string{"1234", "123456"} {
		up.take()
		c := dialH2(t, g.Gateway)
		id := c.request(false, ":method", "POST", ":scheme", "http", ":authority", "h", ":path", "/", "content-length", "5")
		c.WriteData(id, true, []byte(body))
		if got := c.answer(id); got == "200" {
			t.Errorf("%d bytes of 5: %s", len(body), got)
		}
		if arrived := up.take(); strings.Contains(arrived, "123456") {
			t.Errorf("%d bytes of 5: the upstream got %q", len(body), arrived)
		}
	}
}

// TestHTTP2AfterARequest: a connection on which requests of HTTP/1 were answered does not turn to
// HTTP/2, whichever part of the gateway answered them. A proxy in front that passes on the preface as
// a request would lose track of what follows.
func TestHTTP2AfterARequest(t *testing.T) {
	up := newRawUpstream(t)
	g := startWeir(t, t.TempDir(), "  gateway: { address: \"127.0.0.1:0\", h2c: true }\n", up.addr, routes)
	for _, first := range []string{"GET / HTTP/1.1\r\nHost: h\r\n\r\n", "POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 1\r\n\r\nx"} {
		answer := send(t, g.Gateway, first+http2.ClientPreface+"\x00\x00\x00\x04\x00\x00\x00\x00\x00")
		if got := statuses(answer); len(got) != 2 || got[0] != "200" || got[1] != "400" {
			t.Errorf("%.4s: %q", first, answer)
		}
	}
}

// TestRapidReset opens streams and resets them at once, by the thousand. At most max_streams of
// them are at the upstream at a time, the connection is closed for it, and other clients are
// served.
func TestRapidReset(t *testing.T) {
	var now, most atomic.Int64
	up := httpUpstream(t, func(w http.ResponseWriter, r *http.Request) {
		n := now.Add(1)
		defer now.Add(-1)
		for m := most.Load(); n > m && !most.CompareAndSwap(m, n); m = most.Load() {
		}
		if r.URL.Path == "/held" {
			<-r.Context().Done()
		}
	})
	g := startWeir(t, t.TempDir(), "  gateway: { address: \"127.0.0.1:0\", h2c: true }\n  bounds: { max_streams: 10 }\n", up, routes)
	c := dialH2(t, g.Gateway)
	ended := make(chan error, 1)
	go func() {
		for {
			if f, err := c.ReadFrame(); err != nil {
				ended <- err
				return
			} else if g, ok := f.(*http2.GoAwayFrame); ok && g.ErrCode != http2.ErrCodeNo {
				ended <- errors.New(g.ErrCode.String())
				return
			}
		}
	}()
	sent := 0
	for ; sent < 100_000; sent++ {
		id := c.request(true, ":method", "GET", ":scheme", "http", ":authority", "h", ":path", "/held")
		if err := c.WriteRSTStream(id, http2.ErrCodeCancel); err != nil {
			break
		}
	}
	t.Logf("it ended after some %d streams: %v", sent, <-ended)
	if got := statuses(send(t, g.Gateway, last)); len(got) != 1 || got[0] != "200" {
		t.Errorf("another client: %v", got)
	}
	servers.Poll(t, "the upstream is rid of them", func() bool { return now.Load() == 0 })
	t.Logf("at most %d were at the upstream at once", most.Load())
}

// TestWebSocketPasses: after the upgrade bytes pass unchanged, although they are no HTTP.
func TestWebSocketPasses(t *testing.T) {
	up := newRawUpstream(t)
	dir := t.TempDir()
	g := startWeir(t, dir, "  gateway: 127.0.0.1:0\n", up.addr, "access_log: access.log\n"+routes)
	conn, err := net.Dial("tcp", g.Gateway)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	conn.SetDeadline(time.Now().Add(servers.Patience))
	io.WriteString(conn, "GET /chat HTTP/1.1\r\nHost: h\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n")
	answer := make([]byte, 0, 1000)
	for !bytes.HasSuffix(answer, []byte("\r\n\r\n")) {
		n, err := conn.Read(answer[len(answer) : len(answer)+1])
		if err != nil {
			t.Fatalf("%q, %v", answer, err)
		}
		answer = answer[:len(answer)+n]
	}
	if !bytes.HasPrefix(answer, []byte("HTTP/1.1 101 ")) {
		t.Fatalf("%q", answer)
	}
	frames := "\x81\x05hello\n\nGET / HTTP/1.1\r\n\r\n\x00\xff"
	io.WriteString(conn, frames)
	back := make([]byte, len(frames))
	if _, err := io.ReadFull(conn, back); err != nil || string(back) != frames {
		t.Errorf("%q, %v", back, err)
	}
}
