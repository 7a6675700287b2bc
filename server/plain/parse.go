package plain

import (
	"net/http"
	"net/textproto"
	"net/url"
	"strings"

	"github.com/weirflow/weir/internal/httpsyntax"
)

// Limits of a plain request. A request beyond them is not refused here: net/http serves it.
const (
	maxHead   = 8 << 10 // bytes of the request line and the header fields
	maxFields = 64
)

// parse reads the head of a request, from the request line to the empty line. It reports
// false for every request that is not plain. Each request that it accepts, http.ReadRequest accepts
// too, with the same result. With bodies, a POST that says how long its body is can be plain, too.
func (x *exchanged) parse(head string, bodies bool) bool {
	r := &x.request
	line, rest, ok := httpsyntax.CutLine(head)
	if !ok || !x.parseLine(line) || r.Method == http.MethodPost && !bodies {
		return false
	}
	if r.Header == nil {
		r.Header = make(http.Header, fewFields)
	}
	values := x.values[:0]
	for n := 0; ; n++ {
		var name, value string
		if name, value, rest, ok = cutField(rest); !ok || n > maxFields {
			return false
		}
		switch name {
		case "":
			return rest == "" && r.Host != "" && (r.Method == http.MethodPost) == (r.Header["Content-Length"] != nil)
		case "Host":
			if r.Host != "" || value == "" || !httpsyntax.IsHost(value) {
				return false
			}
			r.Host = value
			continue // net/http, too, moves it out of the header
		case "Connection":
			switch {
			case strings.EqualFold(value, "close"):
				r.Close = true
			case !strings.EqualFold(value, "keep-alive"):
				return false
			}
			if len(r.Header["Connection"]) > 0 {
				return false
			}
		case "Content-Length":
			if r.ContentLength, ok = length(value); !ok || r.Header["Content-Length"] != nil {
				return false
			}
		case "Transfer-Encoding", "Upgrade", "Expect", "Trailer", "Te", "Http2-Settings", "Keep-Alive", "Proxy-Connection", "Pragma":
			return false // bodies, other protocols, and fields that an intermediary has to change
		}
		if old := r.Header[name]; old != nil {
			r.Header[name] = append(old, value)
			continue
		}
		if len(values) == cap(values) {
			values = make([]string, 0, fewFields)
		}
		values = append(values, value)
		r.Header[name] = values[len(values)-1 : len(values) : len(values)]
	}
}

// parseLine parses the request line.
func (x *exchanged) parseLine(line string) bool {
	method, line, ok := strings.Cut(line, " ")
	if !ok {
		return false
	}
	switch method { // methods that need no body, and one that has one
	case http.MethodGet, http.MethodHead, http.MethodDelete, http.MethodOptions, http.MethodPost:
	default:
		return false
	}
	target, ok := strings.CutSuffix(line, " HTTP/1.1")
	if !ok || target == "" || target[0] != '/' || !isCanonical(target) {
		return false
	}
	u := &x.url
	if path, query, asks := strings.Cut(target, "?"); isUnreserved(path) && asks == (query != "") {
		u.Path, u.RawQuery = path, query
	} else {
		var err error
		if u, err = url.ParseRequestURI(target); err != nil {
			return false
		}
	}
	x.request.Method, x.request.RequestURI, x.request.URL = method, target, u
	return true
}

// isUnreserved reports whether a path has only bytes that need no decoding: url.ParseRequestURI takes it as it is.
func isUnreserved(path string) bool {
	for _, c := range []byte(path) {
		if (c < 'a' || c > 'z') && (c < 'A' || c > 'Z') && (c < '-' || c > '9') && c != '_' { // - . / and digits
			return false
		}
	}
	return true
}

// length reads the length of a short body.
func length(text string) (n int64, ok bool) {
	if text == "" || len(text) > 4 {
		return 0, false
	}
	for _, c := range []byte(text) {
		if c < '0' || c > '9' {
			return 0, false
		}
		n = 10*n + int64(c-'0')
	}
	return n, true
}

// cutField cuts off the first field, and returns its name in canonical form. At the empty line
// after the last field, the name is empty.
func cutField(s string) (name, value, rest string, ok bool) {
	line, rest, ok := httpsyntax.CutLine(s)
	if !ok || line == "" {
		return "", "", rest, ok
	}
	colon := strings.IndexByte(line, ':')
	if colon <= 0 || !httpsyntax.IsToken(line[:colon]) {
		return "", "", rest, false
	}
	value = trim(line[colon+1:])
	return textproto.CanonicalMIMEHeaderKey(line[:colon]), value, rest, isValue(value)
}

// trim removes spaces and tabs from both ends. It is faster than strings.Trim.
func trim(s string) string {
	for s != "" && (s[0] == ' ' || s[0] == '\t') {
		s = s[1:]
	}
	for s != "" && (s[len(s)-1] == ' ' || s[len(s)-1] == '\t') {
		s = s[:len(s)-1]
	}
	return s
}

// isBare reports whether a line ends in LF without CR. The head may then end in an empty line of
// that kind, which the search for CRLF CRLF misses.
func isBare(read []byte) bool {
	for i, b := range read {
		if b == '\n' && (i == 0 || read[i-1] != '\r') {
			return true
		}
	}
	return false
}

// isCanonical reports whether a target can be sent on as it is.
func isCanonical(s string) bool {
	return httpsyntax.IsTarget(s) && len(httpsyntax.CanonicalTarget(s)) == len(s)
}

// isValue reports whether a text may be the value of a field.
func isValue(s string) bool {
	for i := range len(s) {
		if c := s[i]; c < ' ' && c != '\t' || c == 0x7f {
			return false
		}
	}
	return true
}
