package plain

import (
	"bufio"
	"io"
	"maps"
	"net/http"
	"slices"
	"strings"
	"testing"
)

// FuzzParseResponseHead: net/http reads each plain response as the same one, with the same end.
func FuzzParseResponseHead(f *testing.F) {
	for _, a := range answers {
		if len(a.bytes) < 1000 {
			f.Add(a.bytes, false)
			f.Add(a.bytes, true)
		}
	}
	f.Add("HTTP/1.1 200 OK\r\nContent-Length: 00\r\nX:  y \r\nx: z\r\n\r\n", false)
	f.Fuzz(func(t *testing.T, text string, toHead bool) {
		i := strings.Index(text, "\r\n\r\n")
		if i < 0 {
			return
		}
		head := text[:i+4]
		method := http.MethodGet
		if toHead {
			method = http.MethodHead
		}
		a, plain := parseResponseHead(head, method, nil)
		if !plain || a.length > 1<<20 {
			return
		}
		const behind = "what follows"
		in := bufio.NewReader(strings.NewReader(head + strings.Repeat("x", int(a.length)) + behind))
		resp, err := http.ReadResponse(in, &http.Request{Method: method})
		if err != nil {
			t.Fatalf("%q: net/http: %v", head, err)
		}
		body, err := io.ReadAll(resp.Body)
		if err != nil || int64(len(body)) != a.length {
			t.Fatalf("%q: net/http has a body of %d, %v, and not of %d", head, len(body), err, a.length)
		}
		if rest, err := io.ReadAll(in); err != nil || string(rest) != behind {
			t.Fatalf("%q: net/http goes on at %q", head, rest)
		}
		for _, name := range []string{"Content-Length", "Connection", "Keep-Alive", "Proxy-Connection", "Proxy-Authenticate", "Te"} {
			resp.Header.Del(name)
		}
		header := http.Header{}
		a.addTo(header)
		header.Del("Content-Length")
		if resp.StatusCode != a.status || resp.Close && !a.close || !maps.EqualFunc(header, resp.Header, func(x, y []string) bool { return slices.Equal(x, y) }) {
			t.Fatalf("%q:\n%+v\n%+v", head, a, resp)
		}
	})
}
