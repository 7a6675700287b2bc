package plain

import (
	"bufio"
	"bytes"
	"io"
	"maps"
	"net/http"
	"net/textproto"
	"slices"
	"strings"
	"testing"
)

// parsed are requests, and the expected result of each.
var parsed = []struct {
	head  string
	plain bool
}{
	{"GET / HTTP/1.1\r\nHost: a\r\n\r\n", true},
	{"HEAD /x?y=%20z HTTP/1.1\r\nhost: a.example:8080\r\nAccept: */*\r\naccept:  text/html\t\r\nX-Empty:\r\n\r\n", true},
	{"DELETE /x HTTP/1.1\r\nHost: [::1]:80\r\nConnection: close\r\n\r\n", true},
	{"OPTIONS /x HTTP/1.1\r\nConnection: Keep-Alive\r\nHost: a\r\nCookie: a=b; c=\"d\"\r\n\r\n", true},
	{"GET //x/../y;z@w:1 HTTP/1.1\r\nHost: a\r\n\r\n", true},
	{"GET / HTTP/1.1\r\nHost: a\r\nX: \xff\xfe caf\xc3\xa9\r\n\r\n", true},

	{"GET / HTTP/1.0\r\nHost: a\r\n\r\n", false},
	{"GET / HTTP/1.1\r\n\r\n", false},
	{"GET / HTTP/1.1\r\nHost:\r\n\r\n", false},
	{"GET / HTTP/1.1\r\nHost: a\r\nHost: a\r\n\r\n", false},
	{"GET / HTTP/1.1\r\nHost: a b\r\n\r\n", false},
	{"GET / HTTP/1.1\r\nHost: a/b\r\n\r\n", false},
	{"GET / HTTP/1.1\nHost: a\n\n", false},
	{"GET / HTTP/1.1\r\nHost: a\n\r\n", false},
	{"GET / HTTP/1.1\r\nHost: a\r\nX: b\r\n c\r\n\r\n", false},
	{"GET / HTTP/1.1\r\n Host: a\r\n\r\n", false},
	{"GET / HTTP/1.1\r\nHost : a\r\n\r\n", false},
	{"GET / HTTP/1.1\r\nHost: a\r\n: b\r\n\r\n", false},
	{"GET / HTTP/1.1\r\nHost: a\r\nX\r\n\r\n", false},
	{"GET / HTTP/1.1\r\nHost: a\r\nX: \x00\r\n\r\n", false},
	{"GET / HTTP/1.1\r\nHost: a\r\nX: a\rb\r\n\r\n", false},
	{"GET / HTTP/1.1\r\nHost: a\r\nX\x80: a\r\n\r\n", false},
	{"GET / HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\n\r\n", false},
	{"GET / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n", false},
	{"GET / HTTP/1.1\r\nHost: a\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\r\n", false},
	{"GET / HTTP/1.1\r\nHost: a\r\nConnection: close, X-Forwarded-For\r\n\r\n", false},
	{"GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\nConnection: close\r\n\r\n", false},
	{"GET / HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\n\r\n", false},
	{"GET http://a/ HTTP/1.1\r\nHost: a\r\n\r\n", false},
	{"OPTIONS * HTTP/1.1\r\nHost: a\r\n\r\n", false},
	{"POST / HTTP/1.1\r\nHost: a\r\n\r\n", false},
	{"CONNECT a:1 HTTP/1.1\r\nHost: a\r\n\r\n", false},
	{"get / HTTP/1.1\r\nHost: a\r\n\r\n", false},
	{"GET  / HTTP/1.1\r\nHost: a\r\n\r\n", false},
	{"GET / x HTTP/1.1\r\nHost: a\r\n\r\n", false},
	{"GET /\t HTTP/1.1\r\nHost: a\r\n\r\n", false},
	{"GET /a#b HTTP/1.1\r\nHost: a\r\n\r\n", false},
	{"GET /%zz HTTP/1.1\r\nHost: a\r\n\r\n", false},
	{"GET /\\a HTTP/1.1\r\nHost: a\r\n\r\n", false},
	{"GET /\xff HTTP/1.1\r\nHost: a\r\n\r\n", false},
	{"GET / HTTP/1.1 \r\nHost: a\r\n\r\n", false},
	{"GET / HTTP/1.1\r\nHost: a\r\n" + strings.Repeat("X: y\r\n", maxFields+1) + "\r\n", false},
	{"\r\nGET / HTTP/1.1\r\nHost: a\r\n\r\n", false},
	{"PRI * HTTP/2.0\r\n\r\n", false},
	{"", false},
}

// parsedWithBodies are requests to a server with Bodies, and the expected result of each.
var parsedWithBodies = []struct {
	head  string
	plain bool
}{
	{"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\n\r\n", true},
	{"POST / HTTP/1.1\r\nHost: a\r\ncontent-length: 0012\r\nContent-Type: application/json\r\n\r\n", true},
	{"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\n\r\n", true},
	{"POST / HTTP/1.1\r\nHost: a\r\nConnection: close\r\nContent-Length: 8192\r\n\r\n", true},
	{"GET / HTTP/1.1\r\nHost: a\r\n\r\n", true},

	{"POST / HTTP/1.1\r\nHost: a\r\n\r\n", false},
	{"POST / HTTP/1.1\r\nHost: a\r\nContent-Length:\r\n\r\n", false},
	{"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\nContent-Length: 3\r\n\r\n", false},
	{"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 3, 3\r\n\r\n", false},
	{"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: +3\r\n\r\n", false},
	{"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: -3\r\n\r\n", false},
	{"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 0x3\r\n\r\n", false},
	{"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 10000\r\n\r\n", false},
	{"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n", false},
	{"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\nExpect: 100-continue\r\n\r\n", false},
	{"GET / HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\n\r\n", false},
	{"DELETE / HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\n\r\n", false},
	{"PUT / HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\n\r\n", false},
}

func TestParse(t *testing.T) {
	for _, c := range parsed {
		if got := new(exchanged).parse(c.head, false); got != c.plain {
			t.Errorf("%q: %v", c.head, got)
		}
		likeNetHTTP(t, c.head)
	}
	for _, c := range parsedWithBodies {
		if got := new(exchanged).parse(c.head, true); got != c.plain {
			t.Errorf("%q: %v", c.head, got)
		}
		if strings.HasPrefix(c.head, "POST") && new(exchanged).parse(c.head, false) {
			t.Errorf("%q is plain without Bodies", c.head)
		}
		likeNetHTTP(t, c.head)
	}
}

// FuzzParse: net/http reads each plain request as the same one, with the same end.
func FuzzParse(f *testing.F) {
	for _, c := range parsed {
		f.Add(c.head)
	}
	for _, c := range parsedWithBodies {
		f.Add(c.head)
	}
	f.Fuzz(func(t *testing.T, head string) { likeNetHTTP(t, head) })
}

// likeNetHTTP compares parse with http.ReadRequest.
func likeNetHTTP(t *testing.T, head string) {
	t.Helper()
	x := new(exchanged)
	r := &x.request
	if !x.parse(head, true) {
		return
	}
	if !strings.HasSuffix(head, "\r\n\r\n") || strings.Count(head, "\r\n\r\n") != 1 {
		t.Fatalf("%q: plain, but not one head", head)
	}
	const behind = "the next request"
	text := strings.Repeat("x", int(r.ContentLength))
	buffered := bufio.NewReader(strings.NewReader(head + text + behind))
	want, err := http.ReadRequest(buffered)
	if err != nil {
		t.Fatalf("%q: net/http: %v", head, err)
	}
	if got, err := io.ReadAll(want.Body); err != nil || string(got) != text || want.ContentLength != r.ContentLength || len(want.TransferEncoding) > 0 {
		t.Fatalf("%q: net/http sees another body: %d bytes, %v", head, len(got), err)
	}
	if rest, err := buffered.Peek(len(behind)); err != nil || string(rest) != behind {
		t.Fatalf("%q: net/http goes on at %q", head, rest)
	}
	same := func(a, b []string) bool { return slices.Equal(a, b) }
	if r.Method != want.Method || r.RequestURI != want.RequestURI || *r.URL != *want.URL || r.Host != want.Host || r.Close != want.Close ||
		!maps.EqualFunc(r.Header, want.Header, same) {
		t.Fatalf("%q:\n%+v\n%+v", head, r, want)
	}
	if !begins([]byte(head), r.Method == http.MethodPost) {
		t.Fatalf("%q does not begin as a plain request", head)
	}
}

// TestBegins: no prefix of a plain request is taken for another kind of request.
func TestBegins(t *testing.T) {
	for _, c := range parsed {
		for i := range c.head {
			if c.plain && !begins([]byte(c.head[:i]), false) {
				t.Errorf("%q", c.head[:i])
			}
		}
	}
	for _, text := range []string{"P", "POST", "PRI * HT", "\x16\x03\x01", "g", "GETS", "\r\n", "GE\x00"} {
		if begins([]byte(text), false) {
			t.Errorf("%q", text)
		}
	}
}

// TestCanonicalNames: names have net/http's form.
func TestCanonicalNames(t *testing.T) {
	x := new(exchanged)
	r := &x.request
	var head bytes.Buffer
	head.WriteString("GET / HTTP/1.1\r\nhOST: a\r\n")
	names := []string{"x-a", "X-B", "accept-encoding", "dnt", "x_y", "!#$"}
	for _, n := range names {
		head.WriteString(n + ": v\r\n")
	}
	head.WriteString(crlf)
	if !x.parse(head.String(), false) {
		t.Fatal("not plain")
	}
	for _, n := range names {
		if got := r.Header[textproto.CanonicalMIMEHeaderKey(n)]; len(got) != 1 || got[0] != "v" {
			t.Errorf("%s: %q", n, r.Header)
		}
	}
}
