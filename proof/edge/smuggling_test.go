package edge

import (
	"fmt"
	"strings"
	"testing"
)

// last is a request that asks for the end of the connection, so that tests need not wait for it.
const last = "GET /last HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n"

// TestRefused has messages that two parsers could read in two ways. Each is refused, the response
// ends its connection, and nothing of it, or of what follows it, reaches the upstream.
func TestRefused(t *testing.T) {
	up := newRawUpstream(t)
	g := startWeir(t, t.TempDir(), "  gateway: 127.0.0.1:0\n", up.addr, routes)
	post := "POST / HTTP/1.1\r\nHost: h\r\n"
	for name, raw := range map[string]string{
		"CL and TE":                         post + "Content-Length: 6\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\nG",
		"TE and CL":                         post + "Transfer-Encoding: chunked\r\nContent-Length: 4\r\n\r\n5c\r\nGPOST / HTTP/1.1\r\n\r\n0\r\n\r\n",
		"two CL":                            post + "Content-Length: 0\r\nContent-Length: 5\r\n\r\nhello",
		"two CL, the same":                  post + "Content-Length: 5\r\nContent-Length: 5\r\n\r\nhello",
		"CL with a sign":                    post + "Content-Length: +5\r\n\r\nhello",
		"CL with a minus":                   post + "Content-Length: -1\r\n\r\n",
		"CL with a space in it":             post + "Content-Length: 1 5\r\n\r\nhello",
		"CL with a comma":                   post + "Content-Length: 5, 5\r\n\r\nhello",
		"CL in hexadecimal":                 post + "Content-Length: 0x5\r\n\r\nhello",
		"CL with an underscore":             post + "Content-Length: 1_0\r\n\r\nhellohello",
		"CL without a number":               post + "Content-Length:\r\n\r\nhello",
		"CL beyond 64 bits":                 post + "Content-Length: 18446744073709551621\r\n\r\nhello",
		"TE with identity":                  post + "Transfer-Encoding: chunked, identity\r\n\r\n0\r\n\r\n",
		"TE identity alone":                 post + "Transfer-Encoding: identity\r\nContent-Length: 5\r\n\r\nhello",
		"TE gzip before chunked":            post + "Transfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n",
		"TE xchunked":                       post + "Transfer-Encoding: xchunked\r\n\r\n0\r\n\r\n",
		"TE with a tab":                     post + "Transfer-Encoding:\tchunked\r\n\r\n0\r\n\r\n",
		"TE with a vertical tab":            post + "Transfer-Encoding: \x0bchunked\r\n\r\n0\r\n\r\n",
		"TE quoted":                         post + "Transfer-Encoding: \"chunked\"\r\n\r\n0\r\n\r\n",
		"TE folded":                         post + "Transfer-Encoding:\r\n chunked\r\n\r\n0\r\n\r\n",
		"TE twice":                          post + "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
		"TE twice, one other":               post + "Transfer-Encoding: chunked\r\nTransfer-Encoding: x\r\n\r\n0\r\n\r\n",
		"TE with HTTP/1.0":                  "POST / HTTP/1.0\r\nHost: h\r\nConnection: keep-alive\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
		"TE with a space before the colon":  post + "Transfer-Encoding : chunked\r\n\r\n0\r\n\r\n",
		"CL with a space before the colon":  post + "Content-Length : 5\r\n\r\nhello",
		"a field that begins with a space":  "GET / HTTP/1.1\r\n Host: h\r\n\r\n",
		"a field that is folded":            "GET / HTTP/1.1\r\nHost: h\r\nX-A: b\r\n\tc\r\n\r\n",
		"a field without a colon":           "GET / HTTP/1.1\r\nHost: h\r\nX-A\r\n\r\n",
		"a field without a name":            "GET / HTTP/1.1\r\nHost: h\r\n: x\r\n\r\n",
		"a name with a NUL":                 "GET / HTTP/1.1\r\nHost: h\r\nX\x00A: b\r\n\r\n",
		"a value with a NUL":                "GET / HTTP/1.1\r\nHost: h\r\nX-A: b\x00c\r\n\r\n",
		"a value with a CR":                 "GET / HTTP/1.1\r\nHost: h\r\nX-A: b\rc\r\n\r\n",
		"a CR before the end of the line":   "GET / HTTP/1.1\r\nHost: h\r\nX-A: b\r\r\n\r\n",
		"a bare LF after the request line":  "GET / HTTP/1.1\nHost: h\r\n\r\n",
		"a bare LF in the fields":           "GET / HTTP/1.1\r\nHost: h\r\nX-A: b\nX-B: c\r\n\r\n",
		"bare LFs alone":                    "GET / HTTP/1.1\nHost: h\n\n",
		"a bare LF at the end":              "GET / HTTP/1.1\r\nHost: h\r\n\n",
		"HTTP/0.9":                          "GET /\r\n",
		"HTTP/0.9 with fields":              "GET /\r\nHost: h\r\n\r\n",
		"a version that is none":            "GET / HTTP/1.1x\r\nHost: h\r\n\r\n",
		"version 1.2":                       "GET / HTTP/1.2\r\nHost: h\r\n\r\n",
		"version 2.0 on HTTP/1":             "GET / HTTP/2.0\r\nHost: h\r\n\r\n",
		"HTTP/2 that was not asked for":     "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
		"two spaces in the request line":    "GET  / HTTP/1.1\r\nHost: h\r\n\r\n",
		"a tab in the request line":         "GET\t/ HTTP/1.1\r\nHost: h\r\n\r\n",
		"a space in the target":             "GET /a b HTTP/1.1\r\nHost: h\r\n\r\n",
		"a backslash in the target":         "GET /a\\..\\b HTTP/1.1\r\nHost: h\r\n\r\n",
		"a fragment":                        "GET /a#b HTTP/1.1\r\nHost: h\r\n\r\n",
		"a NUL in the target":               "GET /a\x00b HTTP/1.1\r\nHost: h\r\n\r\n",
		"a method that is no token":         "G(T / HTTP/1.1\r\nHost: h\r\n\r\n",
		"no Host":                           "GET / HTTP/1.1\r\n\r\n",
		"two Hosts":                         "GET / HTTP/1.1\r\nHost: h\r\nHost: i\r\n\r\n",
		"two Hosts, the same":               "GET / HTTP/1.1\r\nHost: h\r\nHost: h\r\n\r\n",
		"a Host with a space":               "GET / HTTP/1.1\r\nHost: h i\r\n\r\n",
		"a Host with a path":                "GET / HTTP/1.1\r\nHost: h/x\r\n\r\n",
		"a Host with a user":                "GET / HTTP/1.1\r\nHost: a@h\r\n\r\n",
		"a Host with a comma":               "GET / HTTP/1.1\r\nHost: h,i\r\n\r\n",
		"an absolute form for another host": "GET http://i/ HTTP/1.1\r\nHost: h\r\n\r\n",
		"an absolute form with a user":      "GET http://a:b@h/ HTTP/1.1\r\nHost: h\r\n\r\n",
		"an absolute form with both users":  "GET http://a:b@h/ HTTP/1.1\r\nHost: a:b@h\r\n\r\n",
		"an absolute form of a file":        "GET file:///etc/passwd HTTP/1.1\r\nHost: h\r\n\r\n",
		"a target without a slash":          "GET a HTTP/1.1\r\nHost: h\r\n\r\n",
		"a target with a scheme alone":      "GET http:x HTTP/1.1\r\nHost: h\r\n\r\n",
		"a star with GET":                   "GET * HTTP/1.1\r\nHost: h\r\n\r\n",
	} {
		for _, before := range []string{"", "GET /first HTTP/1.1\r\nHost: h\r\n\r\n"} {
			up.take()
			answer := send(t, g.Gateway, before+raw+last)
			got := statuses(answer)
			if before != "" {
				if len(got) == 0 || got[0] != "200" {
					t.Errorf("%s: the request before it: %v", name, got)
					continue
				}
				got = got[1:]
			}
			if len(got) != 1 || got[0][0] != '4' && got[0] != "505" && got[0] != "501" {
				t.Errorf("%s, after %.10q: %q", name, before, answer)
			}
			arrived := up.take()
			if n := strings.Count(arrived, "HTTP/1.1\r\n"); n != len(before)/len("GET /first HTTP/1.1\r\nHost: h\r\n\r\n") || strings.Contains(arrived, "/last") {
				t.Errorf("%s, after %.10q: the upstream got %q, and the client %q", name, before, arrived, answer)
			}
		}
	}
	// In the middle of a body the upstream may have got a part of it, never anything else, and
	// never its end.
	up.take()
	bodies := map[string]string{
		"a size with a sign":               "+5\r\nhello\r\n0\r\n\r\n",
		"a size with 0x":                   "0x5\r\nhello\r\n0\r\n\r\n",
		"a size with an underscore":        "1_0\r\nhello\r\n0\r\n\r\n",
		"a size with a space":              "5 \r\nhello\r\n0\r\n\r\n",
		"no size":                          "\r\nhello\r\n0\r\n\r\n",
		"a size beyond 64 bits":            "10000000000000005\r\nhello\r\n0\r\n\r\n",
		"a size that ends in LF":           "5\nhello\r\n0\r\n\r\n",
		"a size that ends in CR":           "5\rhello\r\n0\r\n\r\n",
		"an extension that ends in LF":     "5;x\nhello\r\n0\r\n\r\n",
		"an extension with a CR":           "5;a\rb\r\nhello\r\n0\r\n\r\n",
		"an extension that is long":        "5;" + strings.Repeat("x", 300) + "\r\nhello\r\n0\r\n\r\n",
		"a chunk that is longer":           "5\r\nhello!\r\n0\r\n\r\n",
		"a chunk that ends in LF":          "5\r\nhello\n0\r\n\r\n",
		"a chunk that ends in nothing":     "5\r\nhello0\r\n\r\n",
		"a last chunk that ends in LF":     "5\r\nhello\r\n0\n\n",
		"trailers that end in LF":          "5\r\nhello\r\n0\r\nX: y\n\r\n",
		"trailers with a space before":     "5\r\nhello\r\n0\r\n X: y\r\n\r\n",
		"trailers without end":             "5\r\nhello\r\n0\r\n" + strings.Repeat("X: y\r\n", 2000) + "\r\n",
		"a size of the fullwidth digit":    "\xef\xbc\x95\r\nhello\r\n0\r\n\r\n",
		"a size and the request behind it": "0\r\nGET /smuggled HTTP/1.1\r\nHost: h\r\n\r\n\n",
	}
	for name, chunks := range bodies {
		answer := send(t, g.Gateway, post+"Transfer-Encoding: chunked\r\n\r\n"+chunks+last)
		if got := statuses(answer); len(got) > 1 || len(got) == 1 && got[0] != "400" {
			t.Errorf("chunks, %s: %q", name, answer)
		}
	}
	arrived := up.take() // also later: a refusal is sent before the upstream has got everything that came until then
	if strings.Contains(arrived, "GET ") || strings.Count(arrived, "HTTP/1.1\r\n") > len(bodies) || strings.Contains(arrived, "\r\n0\r\n") {
		t.Errorf("chunks: the upstream got %q", arrived)
	}
}

// TestPassed has messages that are unusual and valid. For each the upstream gets one request, in
// one form.
func TestPassed(t *testing.T) {
	up := newRawUpstream(t)
	g := startWeir(t, t.TempDir(), "  gateway: 127.0.0.1:0\n", up.addr, routes)
	for name, c := range map[string]struct {
		raw      string
		has, not []string // of what arrives
	}{
		"chunks":                      {"POST /a HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n", []string{"POST /a HTTP/1.1\r\n", "Content-Length: 5\r\n", "\r\n\r\nhello"}, []string{"ransfer-"}},
		"chunks, in capitals":         {"POST /a HTTP/1.1\r\nHost: h\r\ntransfer-ENCODING: Chunked\r\n\r\nA\r\nhellohello\r\n0\r\n\r\n", []string{"Content-Length: 10\r\n", "\r\n\r\nhellohello"}, []string{"ransfer-"}},
		"an extension is not sent on": {"POST /a HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n5;a=b\r\nhello\r\n0\r\n\r\n", []string{"hello"}, []string{"a=b"}},
		"zeros before a size":         {"POST /a HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n0005\r\nhello\r\n00\r\n\r\n", []string{"hello"}, nil},
		"a length":                    {"POST /a HTTP/1.1\r\nHost: h\r\nContent-Length: 5\r\n\r\nhello", []string{"Content-Length: 5\r\n", "hello"}, []string{"Transfer-Encoding"}},
		"a body with GET":             {"GET /a HTTP/1.1\r\nHost: h\r\nContent-Length: 44\r\n\r\nGET /smuggled HTTP/1.1\r\nHost: h\r\nX: 1234\r\n\r\n", []string{"GET /a HTTP/1.1\r\n", "Content-Length: 44\r\n"}, nil},
		"an absolute form":            {"GET http://h/a?b HTTP/1.1\r\nHost: h\r\n\r\n", []string{"GET /a?b HTTP/1.1\r\nHost: h\r\n"}, []string{"http://"}},
		"HTTP/1.0":                    {"GET /a HTTP/1.0\r\nConnection: keep-alive\r\n\r\n", []string{"GET /a HTTP/1.1\r\n"}, nil},
		"fields of the gateway":       {"GET /a HTTP/1.1\r\nHost: h\r\nX-Forwarded-For: 6.6.6.6\r\nX_Forwarded_For: 6.6.6.6\r\nx-forwarded_proto: https\r\nForwarded: for=6.6.6.6\r\n\r\n", []string{"X-Forwarded-For: 127.0.0.1\r\n", "X-Forwarded-Proto: http\r\n"}, []string{"6.6.6.6", "https", "_"}},
		"Connection names fields":     {"GET /a HTTP/1.1\r\nHost: h\r\nConnection: X-Forwarded-For, X-Forwarded-Proto, X-A\r\nX-A: 1\r\n\r\n", []string{"X-Forwarded-For: 127.0.0.1\r\n", "X-Forwarded-Proto: http\r\n"}, []string{"X-A", "Connection"}},
		"hop by hop":                  {"GET /a HTTP/1.1\r\nHost: h\r\nKeep-Alive: 1\r\nProxy-Authorization: x\r\nTE: gzip\r\nProxy-Connection: close\r\n\r\n", nil, []string{"Keep-Alive", "Proxy", "TE:", "Te:"}},
		"h2c":                         {"GET /a HTTP/1.1\r\nHost: h\r\nConnection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABkAARAAAAAAAIAAAAA\r\n\r\n", []string{"GET /a"}, []string{"pgrade", "HTTP2", "Http2"}},
		"h2c without Connection":      {"GET /a HTTP/1.1\r\nHost: h\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABk\r\n\r\n", []string{"GET /a"}, []string{"pgrade", "HTTP2", "Http2"}},
		"another protocol":            {"GET /a HTTP/1.1\r\nHost: h\r\nConnection: Upgrade\r\nUpgrade: tcp\r\n\r\n", []string{"GET /a"}, []string{"pgrade"}},
		"several protocols":           {"GET /a HTTP/1.1\r\nHost: h\r\nConnection: Upgrade\r\nUpgrade: websocket, h2c\r\n\r\n", []string{"GET /a"}, []string{"pgrade"}},
		"paths as they are":           {"GET //a/./b/%2e%2e/c%2Fd;e?f=%00 HTTP/1.1\r\nHost: h\r\n\r\n", []string{"GET //a/./b/%2e%2e/c%2Fd;e?f=%00 HTTP/1.1\r\n"}, nil},
		"bytes beyond ASCII":          {"GET /\xc3\xa4 HTTP/1.1\r\nHost: h\r\n\r\n", []string{"GET /%C3%A4 HTTP/1.1\r\n"}, nil},
		"an empty line before":        {"POST /a HTTP/1.1\r\nHost: h\r\nContent-Length: 1\r\n\r\nx\r\nGET /b HTTP/1.1\r\nHost: h\r\n\r\n", []string{"POST /a", "GET /b"}, nil},
	} {
		up.take()
		answer := send(t, g.Gateway, c.raw+last)
		got := statuses(answer)
		requests := strings.Count(c.raw+last, "Host: h\r\n") - strings.Count(c.raw, "/smuggled")
		if name == "HTTP/1.0" {
			requests = 2
		}
		if len(got) != requests {
			t.Errorf("%s: %d answers, not %d: %q", name, len(got), requests, answer)
		}
		arrived := up.take()
		for _, want := range c.has {
			if !strings.Contains(arrived, want) {
				t.Errorf("%s: no %q in %q", name, want, arrived)
			}
		}
		for _, not := range c.not {
			if before, _, _ := strings.Cut(arrived, "/last"); strings.Contains(before, not) {
				t.Errorf("%s: %q in %q", name, not, arrived)
			}
		}
	}
}

// TestCloseEndsAConnection: nothing is served behind a request that says close, whatever it says beside it.
func TestCloseEndsAConnection(t *testing.T) {
	up := newRawUpstream(t)
	g := startWeir(t, t.TempDir(), "  gateway: 127.0.0.1:0\n", up.addr, routes)
	for _, version := range []string{"1.0", "1.1"} {
		for _, fields := range []string{"Connection: close\r\n", "Connection: keep-alive, close\r\n", "Connection: close, keep-alive\r\n", "Connection: keep-alive\r\nConnection: Close\r\n", "Connection: x ,close\r\n"} {
			answer := send(t, g.Gateway, "GET /a HTTP/"+version+"\r\nHost: h\r\n"+fields+"\r\n"+last)
			if got := statuses(answer); len(got) != 1 || got[0] != "200" {
				t.Errorf("HTTP/%s, %q: %q", version, fields, answer)
			}
		}
	}
}

// TestPassedUnbuffered: without buffering of requests, chunks are sent on as chunks.
func TestPassedUnbuffered(t *testing.T) {
	up := newRawUpstream(t)
	g := servePolicy(t, binary, fmt.Sprintf(
		"listen: { admin: \"127.0.0.1:0\", gateway: \"127.0.0.1:0\" }\nupstreams: { up: { url: \"http://%s\", buffer_request: off } }\n%s", up.addr, routes))
	for _, coding := range []string{"Transfer-Encoding: chunked", "transfer-ENCODING: Chunked"} {
		up.take()
		answer := send(t, g.Gateway, "POST /a HTTP/1.1\r\nHost: h\r\n"+coding+"\r\n\r\n0005;a=b\r\nhello\r\n00\r\n\r\n"+last)
		arrived := up.take()
		if len(statuses(answer)) != 2 || !strings.Contains(arrived, "\r\nTransfer-Encoding: chunked\r\n") ||
			!strings.Contains(arrived, "\r\n\r\n5\r\nhello\r\n0\r\n\r\n") || strings.Contains(arrived, "Content-Length") {
			t.Errorf("%s: %q, %q arrived", coding, answer, arrived)
		}
	}
}

// TestPathsMeetTheirLimits: every form of a path that an upstream may read as /admin is charged to
// the limit of /admin.
func TestPathsMeetTheirLimits(t *testing.T) {
	up := newRawUpstream(t)
	g := startWeir(t, t.TempDir(), "  gateway: 127.0.0.1:0\n", up.addr, `
limits: { admin: { token_bucket: { rate: 1/h, burst: 1 } } }
routes:
  - { match: /admin, upstream: up, limits: [admin] }
  - { match: /admin/, upstream: up, limits: [admin] }
  - { match: /, upstream: up }
`)
	get := func(path string) string {
		return strings.Join(statuses(send(t, g.Gateway, "GET "+path+" HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n")), " ")
	}
	if got := get("/admin"); got != "200" {
		t.Fatal(got)
	}
	for _, path := range []string{
		"/admin", "//admin", "/./admin", "/x/../admin", "/%61dmin", "/x/%2e%2e/admin", "/x/.%2E/admin", "/x%2f..%2fadmin", "/%2fadmin", "/../admin", "/admin?x",
		"/admin/", "/admin//", "/admin/.", "/admin/x/..", "/admin%2fx", "http://h/admin",
	} {
		if got := get(path); got != "429" {
			t.Errorf("%s: %s", path, got)
		}
	}
	if got := get("/\\admin"); got != "400" {
		t.Errorf("a backslash: %s", got)
	}
	if got := get("/adminx"); got != "200" {
		t.Errorf("another path: %s", got)
	}
}
