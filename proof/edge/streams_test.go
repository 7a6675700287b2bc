package edge

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
)

// stream is what a client sends on one connection of HTTP/1: messages one behind the other, with what
// a grammar of mistakes has made of them.
type stream struct {
	id       string
	messages []draft
	cuts     int // into how many writes it is cut; 0 is one for each byte of the first 400
}

// draft is a message before it is bytes. Every part can be wrong.
type draft struct {
	canary  string // in the target and the user agent
	line    string // the request line with its end
	fields  []string
	blank   string // the empty line
	body    string
	mistake string // what was done to it; empty: nothing
}

func (d draft) String() string {
	return d.line + strings.Join(d.fields, "") + d.blank + d.body
}

func (s stream) String() string {
	var b strings.Builder
	for _, d := range s.messages {
		b.WriteString(d.String())
	}
	return b.String()
}

// drawer draws streams.
type drawer struct {
	*rand.Rand
	host string
}

func (g drawer) one(of ...string) string { return of[g.IntN(len(of))] }

func (g drawer) chance(n int) bool { return g.IntN(n) == 0 }

// stream draws a stream. The last messages ask for the end of the connection, and are enough to
// complete a body that an earlier one has left open.
func (g drawer) stream(id string) stream {
	s := stream{id: id, cuts: g.IntN(5)}
	for i := range 1 + g.IntN(5) {
		d := g.message(fmt.Sprintf("%s-%d", id, i))
		if !g.chance(3) {
			g.spoil(&d)
			if g.chance(3) {
				g.spoil(&d)
			}
		}
		s.messages = append(s.messages, d)
	}
	for i := range 4 {
		last := g.get(fmt.Sprintf("%s-last%d", id, i))
		last.fields = append(last.fields, "Connection: close\r\n")
		s.messages = append(s.messages, last)
	}
	return s
}

func (g drawer) get(canary string) draft {
	return draft{canary: canary, line: "GET /" + canary + " HTTP/1.1\r\n", fields: []string{"Host: " + g.host + "\r\n", "User-Agent: " + canary + "\r\n"}, blank: "\r\n"}
}

// message draws a message without a mistake.
func (g drawer) message(canary string) draft {
	d := g.get(canary)
	switch g.IntN(5) {
	case 0, 1:
		d.line = strings.Replace(d.line, "GET", g.one("GET", "HEAD", "OPTIONS", "DELETE"), 1)
	case 2:
		body := g.text(canary)
		d.line = strings.Replace(d.line, "GET", g.one("POST", "PUT", "PATCH"), 1)
		d.fields = append(d.fields, fmt.Sprintf("Content-Length: %d\r\n", len(body)))
		d.body = body
	default:
		d.line = strings.Replace(d.line, "GET", g.one("POST", "PUT", "PATCH"), 1)
		d.fields = append(d.fields, g.one("Transfer-Encoding: chunked\r\n", "transfer-encoding: Chunked\r\n"))
		d.body = g.chunks(g.text(canary))
	}
	return d
}

// text draws a body: at times it is a request itself.
func (g drawer) text(canary string) string {
	switch g.IntN(3) {
	case 0:
		return strings.Repeat("hello", 1+g.IntN(20))
	case 1:
		return "0\r\n\r\n" + g.get(canary+"evil").String()
	default:
		return g.get(canary + "evil").String()
	}
}

// chunks writes a body in chunks, right ones.
func (g drawer) chunks(body string) string {
	var b strings.Builder
	for body != "" {
		n := 1 + g.IntN(len(body))
		fmt.Fprintf(&b, g.one("%x", "%X", "0%x", "%x;a=b", "%x;a=\"b c\""), n)
		b.WriteString("\r\n" + body[:n] + "\r\n")
		body = body[n:]
	}
	return b.String() + g.one("0\r\n\r\n", "00\r\n\r\n", "0\r\nX-Sum: 1\r\n\r\n")
}

// spoil makes a mistake in a message, or something unusual.
func (g drawer) spoil(d *draft) {
	all := []struct {
		name string
		do   func(*draft)
	}{
		{"length", g.length}, {"coding", g.coding}, {"framing twice", g.framingTwice}, {"framing name", g.framingName},
		{"line end", g.lineEnd}, {"fold", g.fold}, {"odd field", g.oddField}, {"request line", g.requestLine}, {"target", g.target},
		{"version", g.version}, {"host", g.otherHost}, {"chunks", g.wrongChunks}, {"length of the body", g.otherBody},
		{"connection", g.connection}, {"between", g.between}, {"trailers", g.announced},
	}
	s := all[g.IntN(len(all))]
	s.do(d)
	d.mistake = strings.TrimPrefix(d.mistake+", "+s.name, ", ")
}

// field adds a field at any place.
func (d *draft) field(g drawer, line string) {
	at := g.IntN(len(d.fields) + 1)
	d.fields = append(d.fields[:at:at], append([]string{line}, d.fields[at:]...)...)
}

// framing is where the field stands that says how long the body is; -1 if none does.
func (d *draft) framing() int {
	for i, f := range d.fields {
		if name := strings.ToLower(f); strings.HasPrefix(name, "content-length") || strings.HasPrefix(name, "transfer-encoding") {
			return i
		}
	}
	return -1
}

// length writes a Content-Length in some way.
func (g drawer) length(d *draft) {
	n := fmt.Sprint(g.IntN(60))
	value := g.one("+", "-", " ", "\t", "0", "00", "0x", "0o", "'", `"`, "", "", "\x0b", "\x00", "\xa0", "1_", "1,", "1, ", "1 ", "1e") + n +
		g.one("", "", " ", "\t", ", "+n, ","+n, " "+n, ";", ";q=1", ".0", "e1", "_0", "\x0b", "\x00", "\x85", "\r", "h", "L", strings.Repeat("0", 17), `"`, "'")
	value = g.one(value, value, value, value, "", " ", "18446744073709551615", "18446744073709551621", "4294967301", "-1", "0", "\xef\xbc\x95", "999999999999999999")
	d.replaceFraming("Content-Length: " + value + "\r\n")
}

// coding writes a Transfer-Encoding in some way.
func (g drawer) coding(d *draft) {
	value := g.one("", "", " ", "\t", "\x0b", "\x0c", "\x00", "\xa0", ",", ", ", "x, ", "gzip, ", "identity, ", "chunked, ", `"`, "'", ";", "\r\n ", "\n ", "x") +
		g.one("chunked", "chunked", "Chunked", "CHUNKED", "chunke", "chunkedd", "identity", "gzip", "c%68unked", "ch\xc5\xabnked", "chun\u212aed", "") +
		g.one("", "", " ", "\t", "\x0b", "\x00", ",", ", ", ", identity", ", chunked", ";", ";q=1", `"`, "'", "\r", "\xa0", " x", "\r\n x")
	d.replaceFraming("Transfer-Encoding: " + value + "\r\n")
}

func (d *draft) replaceFraming(line string) {
	if at := d.framing(); at >= 0 {
		d.fields[at] = line
		return
	}
	d.fields = append(d.fields, line)
}

// framingTwice adds a second field that frames the message.
func (g drawer) framingTwice(d *draft) {
	d.field(g, g.one("Content-Length: 0\r\n", fmt.Sprintf("Content-Length: %d\r\n", len(d.body)), "Content-Length: 3\r\n", "Transfer-Encoding: chunked\r\n", "Transfer-Encoding: identity\r\n", "transfer-encoding: x\r\n", "Transfer-Encoding:\r\n"))
}

// framingName writes the name of a field that frames the message in another way.
func (g drawer) framingName(d *draft) {
	name := g.one("Content-Length", "Transfer-Encoding", "Host")
	name = g.one(strings.ReplaceAll(name, "-", "_"), " "+name, name+" ", name+"\t", name+"\x0b", name+"\x00", "\x00"+name, "\xa0"+name, name+"\r", "X\r\n"+name, "X: y\n"+name, "X: y\r"+name, strings.ReplaceAll(name, "-", "\xe2\x80\x90"), strings.ReplaceAll(name, "n", "%6e"), name+":", `"`+name+`"`, strings.ReplaceAll(name, "-", ""), strings.ReplaceAll(name, "-", "--"), strings.ReplaceAll(name, "-", " "))
	d.field(g, name+": "+g.one("0", "5", "chunked", "h", "999")+"\r\n")
}

// lineEnd ends a line in another way.
func (g drawer) lineEnd(d *draft) {
	end := g.one("\n", "\r", "\r\r\n", "\n\r", "\r\n\r", "\n\n", "\x00\r\n", "\x0b\r\n", "\x85\r\n", " \r\n", "\t\r\n", "\r \n", "")
	switch i := g.IntN(len(d.fields) + 2); {
	case i < len(d.fields):
		d.fields[i] = strings.TrimSuffix(d.fields[i], "\r\n") + end
	case i == len(d.fields):
		d.line = strings.TrimSuffix(d.line, "\r\n") + end
	default:
		d.blank = end
	}
}

// fold continues a field on the next line, or begins with a line that continues none.
func (g drawer) fold(d *draft) {
	line := g.one(" ", "\t", "\x0b", "  ") + g.one("x", "chunked", "Content-Length: 5", "Transfer-Encoding: chunked", "", "0") + "\r\n"
	if g.chance(3) {
		d.fields = append([]string{line}, d.fields...)
		return
	}
	d.field(g, g.one("X-A: b", "Transfer-Encoding:", "Content-Length:", "X-A:")+g.one("\r\n", "\n", "\r")+line)
}

// oddField adds a field that is none, or a strange one.
func (g drawer) oddField(d *draft) {
	d.field(g, g.one(
		"X-A\r\n", ": x\r\n", ":\r\n", "X-A:b\r\n", "X A: b\r\n", "X-A : b\r\n", "X\x00A: b\r\n", "X-A: b\x00c\r\n", "X-A: b\x01c\r\n", "X-A: b\x7fc\r\n", "X-A: b\xffc\r\n", "X\xe9: b\r\n", "X(A): b\r\n",
		"X-A: b\rX-Evil: 1\r\n", "X-A: b\nX-Evil: 1\r\n", "X-A: b\r\r\nX-Evil: 1\r\n", "X-A: \r\n", "X-A:\r\n", "X-Long: "+strings.Repeat("a", 5000)+"\r\n", "X_Forwarded_For: 6.6.6.6\r\n", "GET / HTTP/1.1\r\n",
		"X-HTTP-Method-Override: DELETE\r\n", "Range: bytes=0-0\r\n", "If-None-Match: *\r\n", "Max-Forwards: 0\r\n", "Expect: 100-continue\r\n", "Expect: 200-ok\r\n", "Expect: 100-continue, x\r\n", "Content-Encoding: gzip\r\n",
	))
}

// requestLine changes the spaces or the method of the request line.
func (g drawer) requestLine(d *draft) {
	method, rest, _ := strings.Cut(d.line, " ")
	switch g.IntN(6) {
	case 0:
		d.line = g.one(" ", "\t", "\x00", "\xef\xbb\xbf", "\r", "\n", "\r\n", "\r\n\r\n", "\r\r\n", "x", "\x0b") + d.line
	case 1:
		d.line = method + g.one("  ", "\t", "\x0b", "\x00", "\xa0", "") + rest
	case 2:
		d.line = strings.Replace(d.line, " HTTP/", g.one("  HTTP/", "\tHTTP/", " x HTTP/", "\x0b HTTP/", "\r HTTP/", "%20HTTP/", "\xc2\xa0HTTP/", "HTTP/"), 1)
	case 3:
		d.line = g.one("get", "G\x00T", "G(T", "G:T", "GET\x0b", "PRI", "CONNECT", "TRACE", "PROPFIND", "M-SEARCH", "A"+strings.Repeat("B", 40), "", "GE\xc9", "\"GET\"") + " " + rest
	case 4:
		d.line = strings.Replace(d.line, " HTTP/1.1", "", 1) // HTTP/0.9
	default:
		d.line = strings.Replace(d.line, "\r\n", g.one(" \r\n", "x\r\n", "\x00\r\n", " Host: x\r\n", " HTTP/1.1\r\n"), 1)
	}
}

// target writes the target in some way.
func (g drawer) target(d *draft) {
	path := "/" + d.canary
	next := g.one(
		"http://"+g.host+path, "HTTP://"+strings.ToUpper(g.host)+path, "https://"+g.host+path, "http://other"+path, "http://"+g.host+":80"+path, "http://a@"+g.host+path, "http://"+g.host+"@other"+path, "//other"+path, "http:/"+path, "http:"+path,
		"ftp://"+g.host+path, "http://"+g.host, "http://"+g.host+"?"+d.canary, "*", g.host+":80", strings.TrimPrefix(path, "/"), path+"#x", path+"\\x", path+"?a=b c", path+"\x00", path+"%00", path+"\xff", path+"/é", path+"?\"<>`{|}^", path+"%", path+"%zz",
		path+"?a=b&a=c;d", "/.."+path, "/./"+path[1:], path+"/../x", "/%2e%2e"+path, path+"\x7f", path+";a=b", path+"%0d%0aX-Evil:%201", path+"%20HTTP/1.1%0d%0a", "/?"+d.canary, path+"?"+strings.Repeat("a", 3000), path+"%c0%af", "/[::1]"+path, path+"\r", path+"\n",
	)
	d.line = strings.Replace(d.line, path, next, 1)
}

// version writes the version in some way.
func (g drawer) version(d *draft) {
	d.line = strings.Replace(d.line, "HTTP/1.1", g.one("HTTP/1.0", "HTTP/1.0", "HTTP/1.0", "HTTP/1.2", "HTTP/2.0", "HTTP/0.9", "HTTP/1.10", "HTTP/01.1", "HTTP/1.01", "HTTP/1", "HTTP/1.", "HTTP/.1", "HTTP/+1.1", "HTTP/1.1.1", "http/1.1", "HTTP /1.1", "HTTP/1,1", "HTTPS/1.1", "ICAP/1.0", "HTTP/1.\xc2\xb9", "HTTP/11"), 1)
	if strings.Contains(d.line, "HTTP/1.0") && !g.chance(3) {
		d.field(g, g.one("Connection: keep-alive\r\n", "Connection: Keep-Alive\r\n", "Keep-Alive: 5\r\n", "Connection: keep-alive, close\r\n"))
	}
}

// otherHost writes Host in some way.
func (g drawer) otherHost(d *draft) {
	line := "Host: " + g.one("", g.host+":80", g.host+":", g.host+":99999", strings.ToUpper(g.host), g.host+".", g.host+" ", "\t"+g.host, "a@"+g.host, g.host+"/x", g.host+"?x", g.host+"#x", g.host+",other", g.host+" other", "[::1]", "[evil", "[::1%25x]", "é", g.host+"\x00", "..", "-", "other", strings.Repeat("a", 300)) + "\r\n"
	at := slices.IndexFunc(d.fields, func(f string) bool { return strings.HasPrefix(f, "Host:") })
	switch choice := g.IntN(4); {
	case at < 0 || choice == 0:
		d.field(g, line) // a second one
	case choice == 1:
		d.fields = slices.Delete(d.fields, at, at+1)
	default:
		d.fields[at] = line
	}
}

// wrongChunks makes a mistake in a chunked body.
func (g drawer) wrongChunks(d *draft) {
	body := g.text(d.canary)
	size := fmt.Sprintf("%x", len(body))
	if g.chance(2) {
		size = g.one("+"+size, "-"+size, "0x"+size, " "+size, size+" ", "\t"+size, size+"\t", size[:1]+"_"+size[1:], strings.Repeat("0", 20)+size, "1"+strings.Repeat("0", 15)+size, "10000000"+strings.Repeat("0", 9-len(size))+size, "", size+"\x00", "\x00"+size, size+",", size+"g", "\xef\xbc\x95", "ffffffffffffffff", "ffffffff", "7fffffffffffffff", "\""+size+"\"", size+".0", "-0", "-1")
	}
	extension := g.one("", "", "", ";", ";a", ";a=b", " ;a=b", "; a=b", ";a=\"\r\n\"", ";\n", ";a\nb", ";a\rb", ";a\r\r", ";\x00", ";\x7f", ";\xff", ";"+strings.Repeat("x", 300), ",a", "=b", ";a=\"b")
	end := g.one("\r\n", "\r\n", "\r\n", "\r\n", "\n", "\r", "\r\r\n", "\n\r", "", "\r\n\r\n", " \r\n")
	after := g.one("\r\n", "\r\n", "\r\n", "\n", "\r", "", "\n\r", "x\r\n", "xx", "\r\n\r\n", "\r\r\n")
	last := g.one("0\r\n\r\n", "0\r\n\r\n", "0\r\n\r\n", "0\n\n", "0\r\n\n", "0\n\r\n", "0\r\r\n\r\n", "0 \r\n\r\n", "-0\r\n\r\n", "0x0\r\n\r\n", "00000000000000000\r\n\r\n", "0;a\r\n\r\n", "0\r\n", "\r\n0\r\n\r\n", "0\r\nX: y\n\r\n", "0\r\n X: y\r\n\r\n", "0\r\nX\r\n\r\n", "0\r\n: y\r\n\r\n", "0\r\nX: y\x00\r\n\r\n", "0\r\nX y: z\r\n\r\n", "0\r\nContent-Length: 5\r\n\r\nhello", "0\r\nTransfer-Encoding: chunked\r\n\r\n", "0\r\nHost: other\r\n\r\n", "0\r\nX-A: "+strings.Repeat("a", 5000)+"\r\n\r\n")
	d.line = strings.Replace(d.line, "GET", "POST", 1)
	d.replaceFraming("Transfer-Encoding: chunked\r\n")
	d.body = size + extension + end + body + after + last
}

// otherBody makes the body longer or shorter than was said.
func (g drawer) otherBody(d *draft) {
	switch g.IntN(4) {
	case 0:
		d.body += g.one("\r\n", "\r\n\r\n", "\n", "x", "\x00", "0\r\n\r\n", "\r", " ", g.get(d.canary+"evil").String())
	case 1:
		d.body = d.body[:len(d.body)/2]
	case 2:
		d.body = g.get(d.canary + "evil").String() // also with GET, and without a length
	default:
		d.replaceFraming(fmt.Sprintf("Content-Length: %d\r\n", len(d.body)+1+g.IntN(100)))
	}
}

// connection says something of the connection.
func (g drawer) connection(d *draft) {
	for range 1 + g.IntN(2) {
		d.field(g, g.one("Connection: close\r\n", "Connection: keep-alive\r\n", "Connection: Content-Length\r\n", "Connection: Transfer-Encoding\r\n", "Connection: Host\r\n", "Connection: X-Sum, close\r\n", "Connection: upgrade\r\n", "Connection: x,close ,y\r\n", "Connection: \"close\"\r\n", "Connection: clo\r\n se\r\n",
			"Connection: Upgrade\r\nUpgrade: websocket\r\n", "Upgrade: websocket\r\n", "Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABkAARAAAAAAAIAAAAA\r\n", "Upgrade: TLS/1.0, HTTP/1.1\r\nConnection: Upgrade\r\n", "Proxy-Connection: close\r\n", "Keep-Alive: timeout=1, max=1\r\n", "TE: trailers\r\n", "TE: chunked\r\n", "HTTP2-Settings: x\r\n"))
	}
}

// between puts something between this message and the next.
func (g drawer) between(d *draft) {
	d.body += g.one("\r\n", "\r\n\r\n", "\n", "\r", "\n\r\n", " ", "\x00", "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", "0\r\n\r\n", "\x16\x03\x01\x00\x05hello", "PROXY TCP4 1.2.3.4 1.2.3.4 1 2\r\n", "GET /"+d.canary+"evil\r\n", "HTTP/1.1 200 OK\r\n\r\n")
}

// announced adds trailers, announced or not.
func (g drawer) announced(d *draft) {
	name := g.one("X-Sum", "Content-Length", "Transfer-Encoding", "Host", "X-Forwarded-For", "X_Forwarded_For", "Trailer", "foo bar", "", "Connection", "User-Agent", "é")
	d.line = strings.Replace(d.line, "GET", "POST", 1)
	d.replaceFraming("Transfer-Encoding: chunked\r\n")
	if !g.chance(3) {
		d.field(g, "Trailer: "+name+"\r\n")
	}
	d.body = "5\r\nhello\r\n0\r\n" + name + ": " + g.one("5", "chunked", "other", d.canary+"evil") + "\r\n\r\n"
}
