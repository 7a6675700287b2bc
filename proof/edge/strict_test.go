package edge

import (
	"bytes"
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

// wireRequest is a request as it stands in bytes.
type wireRequest struct {
	method, target, host, agent string
	fields                      []string // NAME: VALUE
	body                        []byte
	chunked                     bool // the body is in chunks
	complete                    bool // false: the body has no end, or one that can be read in two ways
	close                       bool // no request may follow on the connection
}

// about is what X-Seen says of a request that has a body of that length and digest.
func (r wireRequest) about(body string) string {
	return strings.Join([]string{r.method, r.target, orDash(r.host), body, orDash(r.agent)}, " ")
}

// plainHost is a host in the form that routes and limits compare: some upstreams bring it into that
// form themselves.
func plainHost(host string) string {
	if i := strings.LastIndexByte(host, ':'); i > strings.LastIndexByte(host, ']') {
		host = host[:i]
	}
	return strings.ToLower(strings.TrimSuffix(host, "."))
}

// digested is what X-Seen says of the body.
func (r wireRequest) digested() string { return fmt.Sprintf("%d %s", len(r.body), digest(r.body)) }

func (r wireRequest) String() string { return r.about(fmt.Sprintf("with %q", r.body)) }

var (
	errAmbiguous = errors.New("the bytes can be read in two ways")

	requestLine = regexp.MustCompile("^([-!#$%&'*+.^_`|~0-9A-Z]+) ([^\\x00-\\x20\\x7f\\\\#]+) HTTP/1\\.([01])$")
	fieldLine   = regexp.MustCompile("^([-!#$%&'*+.^_`|~0-9A-Za-z]+):[ \\t]*([^\\x00-\\x08\\x0a-\\x1f\\x7f]*?)[ \\t]*$")
	chunkLine   = regexp.MustCompile("^([0-9A-Fa-f]{1,15})(;[ -~]*)?$")
	absolute    = regexp.MustCompile("^(?i:https?)://([^/?]+)(.*)$")
	digits      = regexp.MustCompile("^[0-9]{1,18}$")
)

// readStrictly reads requests, and stops at the first that two readers could read in two ways. It is
// the standard that the gateway is held to, and shares no code with it. Bytes that end early are no
// error.
func readStrictly(b []byte) (all []wireRequest, err error) {
	for {
		for bytes.HasPrefix(b, []byte("\r\n")) {
			b = b[2:]
		}
		r, length, rest, err := strictHeader(b)
		if err != nil || rest == nil {
			return all, err
		}
		if length == inChunksOf {
			r.body, b, err = strictChunks(rest)
		} else if r.body = rest[:min(length, len(rest))]; len(rest) < length {
			b = nil
		} else {
			b = rest[length:]
		}
		r.complete = b != nil && err == nil
		if all = append(all, r); !r.complete || r.close {
			return all, err
		}
	}
}

// strictLine cuts off a line. rest is nil, without an error, where the bytes end before the line.
func strictLine(b []byte) (line string, rest []byte, err error) {
	i := bytes.IndexAny(b, "\r\n")
	switch {
	case i < 0 || i == len(b)-1 && b[i] == '\r':
		return "", nil, nil
	case b[i] == '\n' || b[i+1] != '\n':
		return "", nil, errAmbiguous
	}
	return string(b[:i]), b[i+2:], nil
}

// inChunksOf is the length of a body in chunks.
const inChunksOf = -1

// strictHeader reads a header. rest is nil where the bytes end within it.
func strictHeader(b []byte) (r wireRequest, length int, rest []byte, err error) {
	line, b, err := strictLine(b)
	if err != nil || b == nil {
		return r, 0, nil, err
	}
	first := requestLine.FindStringSubmatch(line)
	if first == nil {
		return r, 0, nil, errAmbiguous
	}
	r.method, r.target = first[1], first[2]
	found := map[string][]string{}
	for {
		if line, b, err = strictLine(b); err != nil || b == nil {
			return r, 0, nil, err
		}
		if line == "" {
			break
		}
		f := fieldLine.FindStringSubmatch(line)
		if f == nil {
			return r, 0, nil, errAmbiguous
		}
		name := strings.ToLower(f[1])
		found[name] = append(found[name], f[2])
		r.fields = append(r.fields, f[1]+": "+f[2])
	}
	old := first[3] == "0"
	lengths, codings, hosts := found["content-length"], found["transfer-encoding"], found["host"]
	switch {
	case len(hosts) > 1 || len(hosts) == 0 && !old,
		len(lengths)+len(codings) > 1 || old && len(codings) > 0,
		len(lengths) == 1 && !digits.MatchString(lengths[0]),
		len(codings) == 1 && !strings.EqualFold(codings[0], "chunked"):
		return r, 0, nil, errAmbiguous
	case len(lengths) == 1:
		length, _ = strconv.Atoi(lengths[0])
	case len(codings) == 1:
		length, r.chunked = inChunksOf, true
	}
	if len(hosts) == 1 {
		r.host = hosts[0]
	}
	if a := found["user-agent"]; len(a) > 0 {
		r.agent = a[0]
	}
	options := strings.ToLower("," + strings.ReplaceAll(strings.Join(found["connection"], ","), " ", "") + ",")
	r.close = strings.Contains(options, ",close,") || old && !strings.Contains(options, ",keep-alive,")
	return r, length, b, r.atOrigin()
}

// atOrigin turns an absolute target into a path.
func (r *wireRequest) atOrigin() error {
	if r.target[0] == '/' || r.target == "*" && r.method == "OPTIONS" {
		return nil
	}
	a := absolute.FindStringSubmatch(r.target)
	if a == nil || !strings.EqualFold(a[1], r.host) {
		return errAmbiguous
	}
	if r.target = a[2]; !strings.HasPrefix(r.target, "/") {
		r.target = "/" + r.target
	}
	return nil
}

// strictChunks reads a body in chunks with its trailers. rest is nil where the bytes end within them.
func strictChunks(b []byte) (body, rest []byte, err error) {
	for {
		line, after, err := strictLine(b)
		if err != nil || after == nil {
			return body, nil, err
		}
		size := chunkLine.FindStringSubmatch(line)
		if size == nil {
			return body, nil, errAmbiguous
		}
		n, _ := strconv.ParseInt(size[1], 16, 64)
		if b = after; n == 0 {
			break
		}
		if int64(len(b)) < n {
			return append(body, b...), nil, nil
		}
		body, b = append(body, b[:n]...), b[n:]
		switch end := b[:min(2, len(b))]; {
		case !strings.HasPrefix("\r\n", string(end)):
			return body, nil, errAmbiguous
		case len(end) < 2:
			return body, nil, nil
		}
		b = b[2:]
	}
	for {
		line, after, err := strictLine(b)
		if err != nil || after == nil {
			return body, nil, err
		}
		if b = after; line == "" {
			return body, b, nil
		}
		if !fieldLine.MatchString(line) {
			return body, nil, errAmbiguous
		}
	}
}

// TestStrictReader: the standard itself, on what has been known for long.
func TestStrictReader(t *testing.T) {
	const get, post = "GET / HTTP/1.1\r\nHost: h\r\n\r\n", "POST / HTTP/1.1\r\nHost: h\r\n"
	for raw, want := range map[string]struct {
		requests int
		body     string // of the last
		err      error
	}{
		get: {1, "", nil}, get + get: {2, "", nil}, "\r\n" + get: {1, "", nil}, get[:20]: {},
		post + "Content-Length: 5\r\n\r\nhello" + get:                                      {2, "", nil},
		post + "Content-Length: 5\r\n\r\nhello":                                            {1, "hello", nil},
		post + "Content-Length: 5\r\n\r\nhel":                                              {1, "hel", nil},
		post + "Transfer-Encoding: Chunked\r\n\r\n5;a=b\r\nhello\r\n0\r\nX: y\r\n\r\n":     {1, "hello", nil},
		post + "Transfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n":                     {1, "hello", nil},
		post + "Transfer-Encoding: chunked\r\n\r\n5\r\nhello0\r\n\r\n":                     {1, "hello", errAmbiguous},
		post + "Transfer-Encoding: chunked\r\n\r\n+5\r\nhello\r\n0\r\n\r\n":                {1, "", errAmbiguous},
		post + "Transfer-Encoding: chunked\r\n\r\n5\nhello\r\n0\r\n\r\n":                   {1, "", errAmbiguous},
		post + "Transfer-Encoding: chunked\r\nContent-Length: 5\r\n\r\n0\r\n\r\n":          {0, "", errAmbiguous},
		post + "Content-Length: +5\r\n\r\nhello":                                           {0, "", errAmbiguous},
		post + "Content-Length: 5\r\nContent-Length: 5\r\n\r\nhello":                       {0, "", errAmbiguous},
		post + "Content-Length : 5\r\n\r\nhello":                                           {0, "", errAmbiguous},
		post + "X: a\r\n b\r\n\r\n":                                                        {0, "", errAmbiguous},
		post + "X: a\nY: b\r\n\r\n":                                                        {0, "", errAmbiguous},
		post + "X: a\rb\r\n\r\n":                                                           {0, "", errAmbiguous},
		get + post + "X: a\x00b\r\n\r\n":                                                   {1, "", errAmbiguous},
		"GET http://i/ HTTP/1.1\r\nHost: h\r\n\r\n":                                        {0, "", errAmbiguous},
		"GET http://h?x HTTP/1.1\r\nHost: h\r\n\r\n":                                       {1, "", nil},
		"GET / HTTP/1.1\r\n\r\n":                                                           {0, "", errAmbiguous},
		"GET / HTTP/1.0\r\n\r\n" + get:                                                     {1, "", nil},
		"GET / HTTP/1.0\r\nConnection: keep-alive\r\n\r\n" + get:                           {2, "", nil},
		"GET / HTTP/1.1\r\nHost: h\r\nConnection: x, Close\r\n\r\n" + get:                  {1, "", nil},
		"POST / HTTP/1.0\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n" + get:  {0, "", errAmbiguous},
		post + "Transfer-Encoding: xchunked\r\n\r\n0\r\n\r\n":                              {0, "", errAmbiguous},
		post + "Transfer-Encoding: chunked\r\n\r\n0\r\n X: y\r\n\r\n":                      {1, "", errAmbiguous},
		post + "Transfer-Encoding: chunked\r\n\r\n10000000000000005\r\nhello\r\n0\r\n\r\n": {1, "", errAmbiguous},
	} {
		got, err := readStrictly([]byte(raw))
		body := ""
		if len(got) > 0 {
			body = string(got[len(got)-1].body)
		}
		if len(got) != want.requests || body != want.body || !errors.Is(err, want.err) {
			t.Errorf("%q: %d requests, the last with %q, %v", raw, len(got), body, err)
		}
	}
}
