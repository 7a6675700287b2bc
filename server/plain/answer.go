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

// An answer is the head of a plain answer: one whose body has a length that was said, or that has none.
type answer struct {
	status int
	header http.Header
	length int64    // of the body that comes
	said   []string // Content-Length as it was said; nil where it was not
	close  bool     // the connection ends with it
}

// parseAnswer reads the head of an answer, up to its empty line, into the header, which may have fields already. It reports false for all
// that is not plain, and then the header is to be thrown away.
func parseAnswer(head, method string, a *answer) bool {
	line, rest, ok := httpsyntax.CutLine(head)
	if !ok || len(line) < len("HTTP/1.1 200") || line[:9] != "HTTP/1.1 " || len(line) > 12 && line[12] != ' ' || !isValue(line) {
		return false
	}
	if a.status, ok = number3(line[9:12]); !ok || a.status < 200 {
		return false
	}
	values := make([]string, 0, 8)
	a.length = -1
	for n := 0; ; n++ {
		var name, value string
		if name, value, rest, ok = cutField(rest); !ok || n > maxFields {
			return false
		}
		if name == "" {
			break
		}
		switch name {
		case "Content-Length":
			length, err := strconv.ParseUint(value, 10, 63)
			if err != nil || a.length >= 0 || value[0] == '+' {
				return false
			}
			a.length, a.said = int64(length), []string{value} //nolint:gosec // it has 63 bits
			continue
		case "Connection":
			switch {
			case strings.EqualFold(value, "close"):
				a.close = true
			case !strings.EqualFold(value, "keep-alive"):
				return false
			}
			continue
		case "Transfer-Encoding", "Trailer", "Upgrade":
			return false
		case "Keep-Alive", "Proxy-Connection", "Proxy-Authenticate", "Te":
			continue // they are for this connection
		}
		if old := a.header[name]; old != nil {
			a.header[name] = append(old[:len(old):len(old)], value)
			continue
		}
		values = append(values, value)
		a.header[name] = values[len(values)-1 : len(values) : len(values)]
	}
	switch {
	case method == http.MethodHead || a.status == http.StatusNoContent || a.status == http.StatusNotModified:
		a.length = 0
	case a.length < 0:
		return false // it goes to the end of the connection
	}
	return rest == ""
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

// head reads the head of an answer. It reports false for one that is not plain.
func (x *exchange) head(a *answer) (whole bool, err error) {
	u := x.conn
	for scanned := 0; ; {
		if i := bytes.Index(u.buf[scanned:u.n], emptyLine); i >= 0 {
			end := scanned + i + len(emptyLine)
			a.header = make(http.Header, 8)
			if !parseAnswer(string(u.buf[:end]), x.r.Method, a) {
				return false, nil
			}
			u.at = end
			return true, nil
		}
		if u.n == len(u.buf) || isBare(u.buf[:u.n]) {
			return false, nil
		}
		scanned = max(u.n-len(emptyLine)+1, 0)
		if err := x.more(); err != nil {
			return false, unended(err)
		}
	}
}

// unended is an error in the middle of an answer.
func unended(err error) error {
	if errors.Is(err, io.EOF) {
		return io.ErrUnexpectedEOF
	}
	return err
}

// pass passes a plain answer on.
func (x *exchange) pass(a *answer) (keep bool, err error) {
	u, h := x.conn, x.w.Header()
	for name, values := range a.header {
		if old := h[name]; old != nil {
			values = append(old[:len(old):len(old)], values...)
		}
		h[name] = values
	}
	if a.said != nil && a.status != http.StatusNoContent {
		h["Content-Length"] = a.said
	}
	x.begin(a.status)
	for left := a.length; ; {
		part := u.buf[u.at:u.n]
		if int64(len(part)) > left {
			part, a.close = part[:left], true // what follows nobody has asked for
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

// flush sends the client what there is, as more may be long in coming.
func (x *exchange) flush() {
	http.NewResponseController(x.w).Flush() //nolint:errcheck // the next write meets it
}

// maxAnswerHead is how large the head of an answer may be.
const maxAnswerHead = 256 << 10

// maxInformational is how many informational answers may come before the one that counts.
const maxInformational = 16

// slow passes an answer on that is not plain, with net/http's reader.
func (x *exchange) slow() (keep bool, err error) {
	bounded := &boundedReader{x: x, left: maxAnswerHead}
	in := bufio.NewReader(bounded)
	for range maxInformational {
		resp, err := http.ReadResponse(in, x.r)
		if err != nil {
			return false, unended(err)
		}
		if resp.StatusCode == http.StatusSwitchingProtocols {
			return false, errors.New("the server switches protocols, which nobody has asked for")
		}
		if resp.StatusCode < 200 {
			x.inform(resp)
			continue
		}
		bounded.left = -1
		ended, err := x.stream(resp)
		return ended && !resp.Close && in.Buffered() == 0 && bounded.x.conn.at == bounded.x.conn.n, err
	}
	return false, errors.New("the server sends informational answers and nothing else")
}

// inform passes an informational answer on, but for 100: nobody waits for that.
func (x *exchange) inform(resp *http.Response) {
	if resp.StatusCode == http.StatusContinue {
		return
	}
	h := x.w.Header()
	before := h.Clone()
	copyFields(h, resp.Header)
	x.w.WriteHeader(resp.StatusCode) // there may be another status after it, also one that says what went wrong
	clear(h)
	copyFields(h, before)
}

// stream passes an answer on part by part. It reports whether it came to its end.
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
	x.flush() // the body may be long in coming
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

// copyFields adds the fields that are not for a connection.
func copyFields(to, from http.Header) {
	for name, values := range from {
		if name == "Content-Length" || !dropped(name) {
			to[name] = append(to[name][:len(to[name]):len(to[name])], values...)
		}
	}
}

// A boundedReader reads an answer from its first byte on, and no more of its head than may be.
type boundedReader struct {
	x    *exchange
	left int // of the head; less than 0 is no bound
}

var errLongHead = errors.New("the head of the answer is too long")

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
			return 0, errLongHead // and again: who looks ahead passes over an error
		}
		b.left -= n
	}
	u.at += n
	return n, nil
}
