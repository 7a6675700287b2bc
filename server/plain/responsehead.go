package plain

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"github.com/weirflow/weir/internal/httpsyntax"
)

// A responseHead is the head of a plain response: a response with a Content-Length, or without a body.
type responseHead struct {
	status int
	fields []Field // those that are forwarded, in the order in which they were received
	length int64   // of the body that follows
	close  bool    // the connection ends after this response
}

// usualFields is room for the fields of a response. More of them cost an allocation.
const usualFields = 16

// parseResponseHead reads the head of a response, including its empty line. It appends the fields to
// room. plain is false for every response that is not plain.
func parseResponseHead(head, method string, room []Field) (a responseHead, plain bool) {
	line, rest, ok := httpsyntax.CutLine(head)
	if !ok || len(line) < len("HTTP/1.1 200") || line[:9] != "HTTP/1.1 " || len(line) > 12 && line[12] != ' ' || !isValue(line) {
		return a, false
	}
	if a.status, ok = number3(line[9:12]); !ok || a.status < 200 {
		return a, false
	}
	a.fields, a.length = room, -1
	for n := 0; ; n++ {
		var name, value string
		if name, value, rest, ok = cutField(rest); !ok || n > maxFields {
			return a, false
		}
		if name == "" {
			break
		}
		switch name {
		case "Content-Length":
			length, err := strconv.ParseUint(value, 10, 63)
			if err != nil || a.length >= 0 || value[0] == '+' {
				return a, false
			}
			a.length = int64(length) //nolint:gosec // it has 63 bits
		case "Connection":
			switch {
			case strings.EqualFold(value, "close"):
				a.close = true
			case !strings.EqualFold(value, "keep-alive"):
				return a, false
			}
			continue
		case "Transfer-Encoding", "Trailer", "Upgrade":
			return a, false
		case "Keep-Alive", "Proxy-Connection", "Proxy-Authenticate", "Te":
			continue // hop-by-hop fields
		}
		a.fields = append(a.fields, Field{name, value})
	}
	switch {
	case bodiless(method, a.status):
		if a.length > 0 {
			a.close = true // see Stray
		}
		a.length = 0
	case a.length < 0:
		return a, false // the body ends with the connection
	}
	return a, rest == ""
}

// addTo adds the fields of a response to those that h has already. A Content-Length replaces another
// one.
func (a *responseHead) addTo(h http.Header) {
	values := make([]string, 0, len(a.fields)) // of all fields, in one allocation
	for _, f := range a.fields {
		isLength := f.Name == "Content-Length"
		if isLength && a.status == http.StatusNoContent {
			continue
		}
		if old := h[f.Name]; old != nil && !isLength {
			h[f.Name] = append(old[:len(old):len(old)], f.Value)
			continue
		}
		values = append(values, f.Value)
		h[f.Name] = values[len(values)-1 : len(values) : len(values)]
	}
}

// bodiless reports whether a response has no body, whatever its header declares.
func bodiless(method string, status int) bool {
	return method == http.MethodHead || bodilessStatus(status)
}

func bodilessStatus(status int) bool {
	return status == http.StatusNoContent || status == http.StatusNotModified
}

// Stray reports whether bytes may follow a response that belong to no response. Some servers send
// the body that the header declares although there must be none, for example gunicorn if the
// application returns one to HEAD. The next request on the connection would get those bytes as its
// response, and a client may have chosen them. They may arrive late, so nothing that was received
// shows that none will: the connection must not be reused.
func Stray(method string, resp *http.Response) bool {
	length := resp.Header.Get("Content-Length")
	return bodiless(method, resp.StatusCode) && (length != "" && length != "0" || len(resp.TransferEncoding) > 0)
}

func number3(s string) (n int, ok bool) {
	for i := range len(s) {
		if s[i] < '0' || s[i] > '9' {
			return 0, false
		}
		n = 10*n + int(s[i]-'0')
	}
	return n, true
}

// head reads the head of a response. plain is false if the response is not plain.
func (x *exchange) head(room []Field) (a responseHead, plain bool, err error) {
	u := x.conn
	for scanned := 0; ; {
		if i := bytes.Index(u.buf[scanned:u.n], emptyLine); i >= 0 {
			end := scanned + i + len(emptyLine)
			if a, plain = parseResponseHead(string(u.buf[:end]), x.r.Method, room); plain {
				u.at = end
			}
			return a, plain, nil
		}
		if u.n == len(u.buf) || isBare(u.buf[:u.n]) {
			return a, false, nil
		}
		scanned = max(u.n-len(emptyLine)+1, 0)
		if err := x.more(); err != nil {
			return a, false, unended(err)
		}
	}
}

// unended turns an end of the connection in the middle of a response into io.ErrUnexpectedEOF.
func unended(err error) error {
	if errors.Is(err, io.EOF) {
		return io.ErrUnexpectedEOF
	}
	return err
}

// pass forwards a plain response to the client.
func (x *exchange) pass(a *responseHead) (keep bool, err error) {
	u := x.conn
	a.addTo(x.w.Header())
	x.begin(a.status)
	for left := a.length; ; {
		part := u.buf[u.at:u.n]
		if int64(len(part)) > left {
			// the rest belongs to no request: the connection cannot be reused
			part, a.close = part[:left], true
		}
		left -= int64(len(part))
		if len(part) > 0 {
			if _, err := x.w.Write(part); err != nil {
				return false, &ClientError{err}
			}
		}
		if left == 0 {
			return !a.close, nil
		}
		if u.n < len(u.buf) {
			x.flush()
		}
		u.n, u.at = 0, 0
		if err := x.more(); err != nil {
			return false, unended(err)
		}
	}
}

// flush sends the buffered part of the response now, because the next part may take long.
func (x *exchange) flush() {
	http.NewResponseController(x.w).Flush() //nolint:errcheck // the next write meets it
}

// maxAnswerHead limits the bytes of a response's head.
const maxAnswerHead = 256 << 10

// maxInformational limits the 1xx responses before the final response.
const maxInformational = 16

// slow forwards a response that is not plain. It parses the response with net/http.
func (x *exchange) slow() (keep bool, err error) {
	bounded := &boundedReader{x: x, left: maxAnswerHead}
	in := bufio.NewReader(bounded)
	for range maxInformational {
		resp, err := http.ReadResponse(in, x.r)
		if err != nil {
			return false, unended(err)
		}
		if resp.StatusCode == http.StatusSwitchingProtocols {
			return false, errors.New("the server switches protocols without a request for it")
		}
		if resp.StatusCode < 200 {
			x.inform(resp)
			continue
		}
		bounded.left = -1
		ended, err := x.stream(resp)
		return ended && !resp.Close && !Stray(x.r.Method, resp) && in.Buffered() == 0 && bounded.x.conn.at == bounded.x.conn.n, err
	}
	return false, errors.New("the server sends 1xx responses and no final one")
}

// inform forwards a 1xx response. It leaves out 100 (Continue): a request without a body never
// asked for it. Like httputil.ReverseProxy, it leaves the header empty for the final response: a
// writer that has fields of its own sets them again.
func (x *exchange) inform(resp *http.Response) {
	if resp.StatusCode == http.StatusContinue {
		return
	}
	h := x.w.Header()
	copyFields(h, resp.Header)
	x.w.WriteHeader(resp.StatusCode)
	clear(h)
}

// stream forwards a response part by part. It reports whether the response was complete.
func (x *exchange) stream(resp *http.Response) (ended bool, err error) {
	h := x.w.Header()
	for _, list := range resp.Header["Connection"] {
		for name := range strings.SplitSeq(list, ",") {
			resp.Header.Del(strings.Trim(name, " \t"))
		}
	}
	copyFields(h, resp.Header)
	announced := make([]string, 0, len(resp.Trailer))
	for name := range resp.Trailer {
		announced = append(announced, name)
	}
	if len(announced) > 0 {
		h["Trailer"] = []string{strings.Join(announced, ", ")}
	}
	x.begin(resp.StatusCode)
	x.flush() // the first bytes of the body may take long
	lent := outs.Get().(*[outSize]byte)
	defer outs.Put(lent)
	for {
		n, err := resp.Body.Read(lent[:])
		if n > 0 {
			if _, err := x.w.Write(lent[:n]); err != nil {
				return false, &ClientError{err}
			}
			x.flush()
		}
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return false, err
		}
	}
	for name, values := range resp.Trailer {
		if !slices.Contains(announced, name) {
			name = http.TrailerPrefix + name
		}
		h[name] = values
	}
	return true, nil
}

// copyFields copies all fields except hop-by-hop ones.
func copyFields(to, from http.Header) {
	for name, values := range from {
		if name == "Content-Length" || !dropped(name) {
			to[name] = append(to[name][:len(to[name]):len(to[name])], values...)
		}
	}
}

// A boundedReader reads a response from its first byte. It limits the length of the head.
type boundedReader struct {
	x    *exchange
	left int // bytes of the head that may still follow; negative: no limit
}

var errLongHead = errors.New("the header of the response is too long")

func (b *boundedReader) Read(p []byte) (int, error) {
	u := b.x.conn
	if u.at == u.n {
		u.at, u.n = 0, 0
		if err := b.x.more(); err != nil {
			return 0, err
		}
	}
	n := copy(p, u.buf[u.at:u.n])
	if b.left >= 0 {
		if n > b.left {
			// bufio.Reader.Peek may hide an error, so every further read returns it again
			return 0, errLongHead
		}
		b.left -= n
	}
	u.at += n
	return n, nil
}
