package nginx

import (
	"bytes"
	endian "encoding/binary"
	"net"
	"strings"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
)

var h2LimitReq = sourceFile{
	name:   "h2_limit_req.t",
	listen: " http2",
	zones:  "limit_req_zone $binary_remote_addr zone=req:1m rate=1r/s;",
	locations: `location / { PASS }
		location /limit_req { limit_req zone=req burst=2; PASS }
		location /proxy_limit_req/ { limit_req zone=req burst=2; PASS }`,
	assertions: []string{
		"request body - limit req", "request body - limit req - limited", "request body - limit req - empty", "request body - limit req 2",
		"discard body - limit req - limited", "discard body - limit req - next", "discard body - limit req - eof",
	},
	play: func(s *play) {
		const path, delay = "/proxy_limit_req/", 1100 * time.Millisecond
		body := func(name string, c *h2conn, id uint32, want string) {
			status, got := c.response(id)
			s.check(name, status == "200" && got == want, "%s with %q (%v)", status, got, c.err)
			c.Close()
		}
		c := s.h2()
		id := c.open(path, false)
		c.data(id, "TEST")
		body("request body - limit req", c, id, "TEST")

		c = s.h2()
		id = c.open(path, false)
		s.wait(delay)
		c.data(id, "TEST")
		body("request body - limit req - limited", c, id, "TEST")

		c = s.h2()
		id = c.open(path, false)
		c.data(id, "")
		s.wait(delay)
		body("request body - limit req - empty", c, id, "")

		c = s.h2()
		id = c.open(path, false)
		c.data(id, "TEST2")
		s.wait(delay)
		body("request body - limit req 2", c, id, "TEST2")

		c = s.h2()
		id = c.open("/limit_req", false)
		c.parted(id, "TEST", delay, s)
		status, _ := c.response(id)
		s.check("discard body - limit req - limited", status == "200", "%s", status)
		id = c.open("/", true)
		status, _ = c.response(id)
		s.check("discard body - limit req - next", status == "200", "%s", status)
		c.Close()

		c = s.h2()
		id = c.open("/limit_req", false)
		c.parted(id, "TEST", -1, s)
		s.wait(delay)
		c.Close()
		c = s.h2()
		status, _ = c.response(c.open("/", true))
		s.check("discard body - limit req - eof", status == "200", "the next connection: %s (%v)", status, c.err)
		c.Close()
	},
}

var h2LimitConn = sourceFile{
	name:       "h2_limit_conn.t",
	listen:     " http2",
	zones:      "limit_conn_zone $binary_remote_addr zone=conn:1m;",
	locations:  "location /t.html { limit_conn conn 1; PASS }",
	assertions: []string{"limit_conn first stream", "limit_conn rejected", "RST_STREAM 1", "RST_STREAM 2"},
	play: func(s *play) {
		c := s.h2()
		c.window(1) // the response stays in flight after its first byte
		first := c.open("/t.html", true)
		s.check("limit_conn first stream", c.begins(first, 1) == "200", "%s", c.status[first])
		second := c.open("/t.html", true)
		s.check("limit_conn rejected", c.begins(second, 0) == "503", "%s", c.status[second])
		c.window(1 << 16)
		c.response(first)
		c.response(second)
		c.Close()
		s.eventually2("/t.html")

		c = s.h2()
		c.window(1)
		first = c.open("/t.html", true)
		s.check("RST_STREAM 1", c.begins(first, 1) == "200", "%s", c.status[first])
		c.do(func() error { return c.WriteRSTStream(first, http2.ErrCodeStreamClosed) })
		second = c.open("/t.html", true)
		s.check("RST_STREAM 2", c.begins(second, 0) == "200", "%s", c.status[second])
		c.Close()
	},
}

// eventually2 sends requests on further connections until a place is free again: a server may notice
// the end of a connection a little later.
func (s *play) eventually2(path string) {
	s.until(func() bool {
		c := s.h2()
		defer c.Close()
		status, _ := c.response(c.open(path, true))
		return status == "200"
	})
}

// h2conn is an HTTP/2 connection whose frames the test writes and reads one by one.
type h2conn struct {
	net.Conn
	*http2.Framer
	err    error
	next   uint32
	status map[uint32]string
	bodies map[uint32]int
	echoed map[uint32]string
	ended  map[uint32]bool
}

// h2 opens one.
func (s *play) h2() *h2conn {
	c := &h2conn{next: 1, status: map[uint32]string{}, bodies: map[uint32]int{}, echoed: map[uint32]string{}, ended: map[uint32]bool{}}
	if c.Conn, c.err = s.dial(s.ctx, "tcp", ""); c.err != nil {
		s.t.Errorf("%s: %v", s.server, c.err)
		c.Conn, _ = net.Pipe()
	}
	if deadline, ok := s.ctx.Deadline(); ok {
		c.do(func() error { return c.SetDeadline(deadline) })
	}
	c.Framer = http2.NewFramer(c.Conn, c.Conn)
	c.ReadMetaHeaders = hpack.NewDecoder(4096, nil)
	c.do(func() error { _, err := c.Write([]byte(http2.ClientPreface)); return err })
	c.do(func() error { return c.WriteSettings() })
	return c
}

// do keeps the first error.
func (c *h2conn) do(write func() error) {
	if c.err == nil {
		c.err = write()
	}
}

// window sets the initial window of streams.
func (c *h2conn) window(n uint32) {
	c.do(func() error { return c.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: n}) })
}

// open sends the head of a request.
func (c *h2conn) open(path string, end bool) (id uint32) {
	var block bytes.Buffer
	e := hpack.NewEncoder(&block)
	for _, f := range [][2]string{{":method", "GET"}, {":scheme", "http"}, {":path", path}, {":authority", "localhost"}} {
		c.do(func() error { return e.WriteField(hpack.HeaderField{Name: f[0], Value: f[1]}) })
	}
	id, c.next = c.next, c.next+2
	c.do(func() error {
		return c.WriteHeaders(http2.HeadersFrameParam{StreamID: id, BlockFragment: block.Bytes(), EndHeaders: true, EndStream: end})
	})
	return id
}

// data sends a DATA frame that ends the stream.
func (c *h2conn) data(id uint32, text string) {
	c.do(func() error { return c.WriteData(id, true, []byte(text)) })
}

// parted sends a DATA frame in two parts, with a pause between them; with a negative pause, only the
// first part.
func (c *h2conn) parted(id uint32, text string, pause time.Duration, s *play) {
	frame := endian.BigEndian.AppendUint32(nil, uint32(len(text))<<8|uint32(http2.FrameData))
	frame = endian.BigEndian.AppendUint32(append(frame, byte(http2.FlagDataEndStream)), id)
	frame = append(frame, text...)
	half := len(frame) - len(text)/2
	c.do(func() error { _, err := c.Write(frame[:half]); return err })
	if pause < 0 {
		return
	}
	s.wait(pause)
	c.do(func() error { _, err := c.Write(frame[half:]); return err })
}

// begins returns the status of a response when it has received this many bytes of the body.
func (c *h2conn) begins(id uint32, bytes int) string {
	c.until(func() bool { return c.status[id] != "" && c.bodies[id] >= bytes })
	return c.status[id]
}

// response returns the status of a complete response, and the upstream's text about the request's
// body.
func (c *h2conn) response(id uint32) (status, body string) {
	c.until(func() bool { return c.ended[id] })
	return c.status[id], c.echoed[id]
}

// until reads frames until a condition.
func (c *h2conn) until(done func() bool) {
	for c.err == nil && !done() {
		var f http2.Frame
		if f, c.err = c.ReadFrame(); c.err != nil {
			return
		}
		switch f := f.(type) {
		case *http2.SettingsFrame:
			if !f.IsAck() {
				c.do(c.WriteSettingsAck)
			}
		case *http2.MetaHeadersFrame:
			for _, h := range f.Fields {
				switch strings.ToLower(h.Name) {
				case ":status":
					c.status[f.StreamID] = h.Value
				case "x-body":
					c.echoed[f.StreamID] = h.Value
				}
			}
			c.ended[f.StreamID] = f.StreamEnded()
		case *http2.DataFrame:
			c.bodies[f.StreamID] += len(f.Data())
			c.ended[f.StreamID] = f.StreamEnded()
		case *http2.RSTStreamFrame:
			c.ended[f.StreamID] = true
		}
	}
}
