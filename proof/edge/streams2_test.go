package edge

import (
	"bytes"
	"fmt"
	"net"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"

	"github.com/weirflow/weir/proof/servers"
)

// draft2 is a request of HTTP/2 before it is frames. Every part can be wrong.
type draft2 struct {
	canary   string
	fields   []string // names and values in turn, pseudo-headers among them
	body     []string // one DATA frame each; nil for none
	trailers []string // names and values in turn; nil for none
	mistake  string
}

func (d draft2) String() string {
	return fmt.Sprintf("%q, body %q, trailers %q (%s)", d.fields, d.body, d.trailers, d.mistake)
}

func (g drawer) draft2(canary string) draft2 {
	d := draft2{canary: canary, fields: []string{":method", g.one("GET", "HEAD", "DELETE", "OPTIONS"), ":scheme", "http", ":authority", g.host, ":path", "/" + canary, "user-agent", canary}}
	if g.chance(2) {
		d.fields[1] = g.one("POST", "PUT", "PATCH")
		body := g.text(canary)
		for body != "" {
			n := 1 + g.IntN(len(body))
			d.body, body = append(d.body, body[:n]), body[n:]
		}
		if g.chance(2) {
			d.fields = append(d.fields, "content-length", strconv.Itoa(len(strings.Join(d.body, ""))))
		}
	}
	if !g.chance(3) {
		g.spoil2(&d)
		if g.chance(3) {
			g.spoil2(&d)
		}
	}
	return d
}

func (g drawer) spoil2(d *draft2) {
	all := []struct {
		name string
		do   func(*draft2)
	}{
		{"pseudo-header", g.pseudo}, {"target", g.target2}, {"order", g.order2}, {"field", g.field2}, {"forbidden field", g.forbidden2}, {"body", g.body2}, {"trailers", g.trailers2}, {"cookies", g.cookies2},
	}
	s := all[g.IntN(len(all))]
	s.do(d)
	d.mistake = strings.TrimPrefix(d.mistake+", "+s.name, ", ")
}

func (d *draft2) set(name, value string) {
	for i := 0; i < len(d.fields); i += 2 {
		if d.fields[i] == name {
			d.fields[i+1] = value
			return
		}
	}
	d.fields = append([]string{name, value}, d.fields...)
}

// pseudo changes, drops or repeats a pseudo-header, or adds one.
func (g drawer) pseudo(d *draft2) {
	switch g.IntN(7) {
	case 0:
		d.set(":method", g.one("", "GET ", " GET", "G ET", "GET /evil HTTP/1.1\r\nX-Evil: 1\r\n\r\nGET", "GET\n", "GET\x00", "get", "PRI", "CONNECT", "TRACE", "G(T", "PROPFIND", "GE\xc9", "GET\t"))
	case 1:
		d.set(":scheme", g.one("", "https", "ftp", "HTTP", "http\r\nX-Evil: 1", "http://other", "h ttp", "javascript"))
	case 2:
		d.set(":authority", g.one("", g.host+":80", g.host+":", g.host+":99999", strings.ToUpper(g.host), g.host+"\r\nX-Evil: 1", g.host+" ", " "+g.host, g.host+"/x", g.host+"?x", "a@"+g.host, "[evil", "[::1]", "other", g.host+",other", g.host+"\x00", "é", g.host+"#", "..", g.host+"."))
	case 3:
		if i := slices.Index(d.fields, g.one(":method", ":scheme", ":authority", ":path")); i >= 0 {
			d.fields = slices.Delete(d.fields, i, i+2)
		}
	case 4:
		d.fields = slices.Insert(d.fields, 2*g.IntN(3), g.one(":path", ":method", ":authority", ":scheme"), g.one("/evil", "POST", "other", "https", "/"+d.canary, g.host))
	case 5:
		d.fields = slices.Insert(d.fields, 2*g.IntN(3), g.one(":evil", ":status", ":protocol", ":", ":path ", ":Path", ":host"), g.one("websocket", "200", "/evil", ""))
	default:
		d.fields = append(d.fields, "host", g.one(g.host, "other", "", strings.ToUpper(g.host), g.host+":80", g.host+"\r\nX-Evil: 1"))
		if g.chance(2) {
			d.set(":authority", "")
		}
	}
}

func (g drawer) target2(d *draft2) {
	path := "/" + d.canary
	d.set(":path", g.one("", "*", strings.TrimPrefix(path, "/"), path+" ", path+" HTTP/1.1\r\nX-Evil: 1\r\n\r\nGET /evil", path+"\x00", path+"\t", path+"\x7f", path+"\r", path+"\n", path+"#x", path+"\\x", "http://other"+path, "http://"+g.host+path, "//other"+path, path+"?a=b c", path+"?a\x0bb", path+"\xff", path+"é", path+"%00", path+"%zz", path+"?\"<>`{|}^", "?"+d.canary, path+"?", path+"%0d%0aX-Evil:%201", "/.."+path, path+";a=b", "h"+path, path+"?"+strings.Repeat("a", 3000)))
}

// order2 puts fields in another order.
func (g drawer) order2(d *draft2) {
	i := 2 * g.IntN(len(d.fields)/2)
	pair := slices.Clone(d.fields[i : i+2])
	d.fields = append(slices.Delete(d.fields, i, i+2), pair...)
}

func (g drawer) field2(d *draft2) {
	name := g.one("x-a", "x-a", "X-A", "x a", "x-a ", " x-a", "x:a", "", "x-a\r\nx-evil", "x\x00a", "x(a)", "x_forwarded_for", "é", "content_length", "transfer_encoding", "x-evil: 1\r\nx-a", "x-a:", "range", "expect", "if-none-match", "x-http-method-override")
	d.fields = append(d.fields, name, g.one("b", "", " b", "b ", "\tb", "b\r\nX-Evil: 1", "b\nX-Evil: 1", "b\rX-Evil: 1", "b\x00", "b\x01", "b\x7f", "b\xff", "é", "b\r\n\r\nGET /evil HTTP/1.1\r\nHost: h\r\nUser-Agent: evil\r\n\r\n", strings.Repeat("b", 5000), "100-continue", "chunked", "0"))
}

func (g drawer) forbidden2(d *draft2) {
	name := g.one("connection", "transfer-encoding", "upgrade", "keep-alive", "proxy-connection", "http2-settings", "te", "content-length", "content-length", "host", "trailer", "Transfer-Encoding", "Content-Length", "connection")
	n := len(strings.Join(d.body, ""))
	d.fields = append(d.fields, name, g.one("close", "chunked", "h2c", "trailers", "gzip", "identity", "0", "5", strconv.Itoa(n), strconv.Itoa(n+1), "+"+strconv.Itoa(n), "0"+strconv.Itoa(n), strconv.Itoa(n)+", "+strconv.Itoa(n), "", "-1", "18446744073709551616", "content-length", "x-sum", g.host, "keep-alive, x-a", "foo bar", "websocket"))
}

func (g drawer) body2(d *draft2) {
	switch g.IntN(4) {
	case 0:
		d.body = append(d.body, "")
	case 1:
		d.body = append(d.body, "more")
	case 2:
		d.body = []string{"0\r\n\r\nGET /" + d.canary + "evil HTTP/1.1\r\nHost: h\r\nUser-Agent: " + d.canary + "evil\r\n\r\n"}
	default:
		d.body = nil
	}
}

func (g drawer) trailers2(d *draft2) {
	name := g.one("x-sum", "x-sum", "x-forwarded-for", "x_forwarded_for", "content-length", "transfer-encoding", "host", ":path", ":status", "X-Sum", "x sum", "", "x-sum\r\nx-evil", "cookie", "user-agent", "trailer", "connection")
	if d.body == nil {
		d.body = []string{"hello"}
	}
	d.trailers = []string{name, g.one("1", "5", "", " 1", "1\r\nX-Evil: 1", "chunked", "other", "1\x00")}
	if !g.chance(3) {
		d.fields = append(d.fields, "trailer", g.one(name, name, name+", x-a", "foo bar", "content-length"))
	}
}

func (g drawer) cookies2(d *draft2) {
	for range 1 + g.IntN(3) {
		d.fields = append(d.fields, "cookie", g.one("a=b", "a=b; c=d", "", "a=b\r\nX-Evil: 1", ";", "a"))
	}
}

// meant is the one request that a draft can be taken for. It reports false where there is none.
func (d draft2) meant() (r wireRequest, ok bool) {
	found := map[string][]string{}
	for i := 0; i < len(d.fields); i += 2 {
		found[d.fields[i]] = append(found[d.fields[i]], d.fields[i+1])
	}
	if len(found[":method"]) != 1 || len(found[":path"]) != 1 || len(found[":scheme"]) != 1 || len(found[":authority"])+len(found["host"]) == 0 {
		return r, false
	}
	r.method, r.target, r.agent = found[":method"][0], found[":path"][0], d.canary
	for _, host := range append(found[":authority"], found["host"]...) {
		if r.host == "" {
			r.host = host
		}
		if host != "" && !strings.EqualFold(r.host, host) {
			return r, false
		}
	}
	r.body, r.complete = []byte(strings.Join(d.body, "")), true
	if lengths := found["content-length"]; len(lengths) == 1 {
		if n, err := strconv.Atoi(lengths[0]); err == nil && n >= 0 && n < len(r.body) {
			r.body = r.body[:n] // the rest is a mistake, which is known when this much was sent on
		}
	}
	return r, r.host != ""
}

// overH2 speaks HTTP/2 on a connection.
func overH2(conn net.Conn) *h2 {
	conn.SetDeadline(time.Now().Add(servers.Patience))
	fmt.Fprint(conn, http2.ClientPreface)
	c := &h2{Conn: conn, Framer: http2.NewFramer(conn, conn), next: 1}
	c.ReadMetaHeaders = hpack.NewDecoder(4096, nil)
	c.WriteSettings()
	return c
}

// send sends a draft. cut is after how many bytes its header goes on in the next frame; 0 for never.
func (c *h2) send(d draft2, cut int) (stream uint32) {
	var block bytes.Buffer
	enc := hpack.NewEncoder(&block)
	for i := 0; i < len(d.fields); i += 2 {
		enc.WriteField(hpack.HeaderField{Name: d.fields[i], Value: d.fields[i+1]})
	}
	stream, c.next = c.next, c.next+2
	b := block.Bytes()
	if cut = min(cut, len(b)); cut == 0 {
		cut = len(b)
	}
	cut = min(cut, 16<<10)
	c.WriteHeaders(http2.HeadersFrameParam{StreamID: stream, BlockFragment: b[:cut], EndHeaders: cut == len(b), EndStream: d.body == nil && d.trailers == nil})
	for b = b[cut:]; len(b) > 0; b = b[cut:] {
		cut = min(cut, len(b))
		c.WriteContinuation(stream, cut == len(b), b[:cut])
	}
	for i, part := range d.body {
		c.WriteData(stream, i == len(d.body)-1 && d.trailers == nil, []byte(part))
	}
	if d.trailers != nil {
		c.trailers(stream, d.trailers...)
	}
	return stream
}

// answer2 is the response on a stream; the status is 0 if there is none.
type answer2 struct {
	status int
	seen   string
}

// answers reads the responses to streams, until all have ended or the connection has.
func (c *h2) answers(streams []uint32) map[uint32]answer2 {
	all, open := map[uint32]answer2{}, map[uint32]bool{}
	for _, s := range streams {
		open[s] = true
	}
	for len(open) > 0 {
		f, err := c.ReadFrame()
		if err != nil {
			return all
		}
		switch f := f.(type) {
		case *http2.MetaHeadersFrame:
			a := all[f.StreamID]
			if n, _ := strconv.Atoi(f.PseudoValue("status")); n >= 200 {
				a.status = n
			}
			for _, field := range f.RegularFields() {
				if field.Name == "x-seen" {
					a.seen = field.Value
				}
			}
			all[f.StreamID] = a
		case *http2.RSTStreamFrame:
			delete(open, f.StreamID)
		case *http2.GoAwayFrame:
			if f.ErrCode != http2.ErrCodeNo {
				return all
			}
		case *http2.SettingsFrame:
			if !f.IsAck() {
				c.WriteSettingsAck()
			}
		}
		if f.Header().Flags.Has(http2.FlagDataEndStream) && (f.Header().Type == http2.FrameData || f.Header().Type == http2.FrameHeaders) {
			delete(open, f.Header().StreamID)
		}
	}
	return all
}
