package gateway_test

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/weirflow/weir/internal/rawserver"
	"github.com/weirflow/weir/server/gateway"
)

// rawUpstream is a server that handles each connection as the test says.
func rawUpstream(t testing.TB, talk func(net.Conn, *bufio.Reader)) string {
	t.Helper()
	return "http://" + rawserver.Start(t, talk)
}

// says returns a handler that reads a request, writes a text, and closes the connection.
func says(t testing.TB, text string) string {
	return rawUpstream(t, func(conn net.Conn, in *bufio.Reader) {
		if r, err := http.ReadRequest(in); err == nil {
			io.Copy(io.Discard, r.Body)
			io.WriteString(conn, text)
		}
	})
}

// front serves a policy in front of an existing upstream, as the server does, also with HTTP/2
// without TLS.
func front(t testing.TB, text, upstream string) (served, *httptest.Server) {
	t.Helper()
	log := new(bytes.Buffer)
	g := openGateway(t, parse(t, text, upstream), slog.New(slog.DiscardHandler))
	s := httptest.NewUnstartedServer(g)
	s.Config.ConnContext = gateway.WithConn
	s.Config.ErrorLog = slog.NewLogLogger(slog.NewTextHandler(&lockedWriter{w: log}, nil), slog.LevelError)
	s.Config.Protocols = new(http.Protocols)
	s.Config.Protocols.SetHTTP1(true)
	s.Config.Protocols.SetUnencryptedHTTP2(true)
	s.Start()
	t.Cleanup(func() {
		s.Close()
		g.Close()
		if text := log.String(); strings.Contains(text, "panic") {
			t.Errorf("%s", text)
		}
	})
	return g, s
}

const open = `
upstreams: { up: { url: "URL", timeouts: { response: 30s }, buffer_request: off } }
routes: [{ match: /, upstream: up }]
`

// exchange sends bytes to the gateway and returns everything that comes back.
func exchange(t testing.TB, s *httptest.Server, request string) string {
	t.Helper()
	conn, err := net.Dial("tcp", s.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	conn.SetDeadline(time.Now().Add(30 * time.Second))
	io.WriteString(conn, request)
	all, err := io.ReadAll(conn)
	if ne, ok := err.(net.Error); ok && ne.Timeout() {
		t.Fatalf("no end after %q", all)
	}
	return string(all)
}

const once = " /x HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n"

// TestInvalidResponses: an invalid response of an upstream never reaches a client as one that
// looks complete.
func TestInvalidResponses(t *testing.T) {
	for _, c := range []struct{ name, answer, status, body string }{
		{"nothing", "", "502", ""},
		{"no HTTP", "hello\r\n\r\n", "502", ""},
		{"half a status line", "HTTP/1.1 20", "502", ""},
		{"half a header", "HTTP/1.1 200 OK\r\nContent-Type: a", "502", ""},
		{"a field without a colon", "HTTP/1.1 200 OK\r\nnonsense\r\n\r\n", "502", ""},
		{"a space before the colon", "HTTP/1.1 200 OK\r\nContent-Length : 1\r\n\r\nok", "200", "ok"}, // a field with another name, which is removed
		{"two lengths", "HTTP/1.1 200 OK\r\nContent-Length: 2\r\nContent-Length: 3\r\n\r\nok", "502", ""},
		{"the same length twice", "HTTP/1.1 200 OK\r\nContent-Length: 2\r\nContent-Length: 2\r\n\r\nok", "200", "ok"},
		{"a length below 0", "HTTP/1.1 200 OK\r\nContent-Length: -2\r\n\r\nok", "502", ""},
		{"a length with a sign", "HTTP/1.1 200 OK\r\nContent-Length: +2\r\n\r\nok", "502", ""},
		{"an unknown coding", "HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip, chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n", "502", ""},
		{"a length and chunks", "HTTP/1.1 200 OK\r\nContent-Length: 99\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n", "200", "ok"},
		{"a body that ends early", "HTTP/1.1 200 OK\r\nContent-Length: 99\r\n\r\nok", "200", "cut"},
		{"chunks that end early", "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n", "200", "cut"},
		{"a chunk that is none", "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\nxyz\r\nok\r\n0\r\n\r\n", "200", "cut"},
		{"a chunk longer than it says", "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nokok\r\n0\r\n\r\n", "200", "cut"},
		{"chunks without an end", "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n", "200", "cut"},
		{"a body that ends with its connection", "HTTP/1.1 200 OK\r\n\r\nok", "200", "ok"},
		{"HTTP/1.0", "HTTP/1.0 200 OK\r\n\r\nok", "200", "ok"},
		{"more than it says", "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nokHTTP/1.1 200 OK\r\n\r\nsmuggled", "200", "ok"},
		{"an endless header", "HTTP/1.1 200 OK\r\nA: " + strings.Repeat("x", 1<<20) + "\r\n\r\n", "502", ""},
		{"endless fields", "HTTP/1.1 200 OK\r\n" + strings.Repeat("A: b\r\n", 1<<16) + "\r\n", "502", ""},
		{"too few early answers", "HTTP/1.1 103 Early Hints\r\nLink: a\r\n\r\n", "103", ""},
		{"an upgrade that nobody asked for", "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\nhello", "502", ""},
		{"204 with a body", "HTTP/1.1 204 No Content\r\nContent-Length: 2\r\n\r\nok", "204", ""},
		{"304 with a length", "HTTP/1.1 304 Not Modified\r\nContent-Length: 2\r\nEtag: \"a\"\r\n\r\n", "304", ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, s := front(t, open, says(t, c.answer))
			got := exchange(t, s, "GET"+once)
			if c.body == "cut" && got == "" {
				return // the connection ended before anything was sent
			}
			if !strings.HasPrefix(got, "HTTP/1.1 "+c.status+" ") || strings.Contains(got, " :") {
				t.Fatalf("%q", got)
			}
			if c.status == "103" {
				if _, rest, _ := strings.Cut(got, "\r\n\r\n"); !strings.HasPrefix(rest, "HTTP/1.1 502 ") {
					t.Errorf("%q", got)
				}
				return
			}
			resp, err := http.ReadResponse(bufio.NewReader(strings.NewReader(got)), nil)
			if err != nil {
				t.Fatal(err)
			}
			body, err := io.ReadAll(resp.Body)
			switch {
			case c.body == "cut":
				if err == nil {
					t.Errorf("it looks whole: %q", got)
				}
			case c.status == "502":
				if string(body) != "the upstream cannot be reached\n" || err != nil {
					t.Errorf("%q", got)
				}
			case string(body) != c.body || err != nil || strings.Contains(got, "smuggled"):
				t.Errorf("%q, %v", got, err)
			}
			if resp.ContentLength >= 0 && len(resp.TransferEncoding) > 0 || len(resp.Header["Content-Length"]) > 1 {
				t.Errorf("two lengths: %q", got)
			}
		})
	}
}

// TestResets: if a connection is reset, at any point, nothing waits for it.
func TestResets(t *testing.T) {
	for _, said := range []string{"", "HTTP/1.1 2", "HTTP/1.1 200 OK\r\nContent-Length: 10\r\n", "HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhalf"} {
		for _, read := range []bool{false, true} {
			up := rawUpstream(t, func(conn net.Conn, in *bufio.Reader) {
				if read {
					http.ReadRequest(in)
				}
				io.WriteString(conn, said)
				conn.(*net.TCPConn).SetLinger(0)
				conn.Close()
			})
			_, s := front(t, open, up)
			got := exchange(t, s, "POST /x HTTP/1.1\r\nHost: h\r\nConnection: close\r\nContent-Length: 2\r\n\r\nhi")
			if !strings.HasPrefix(got, "HTTP/1.1 502 ") && (!strings.HasSuffix(said, "half") || len(got) > 0 && !strings.HasSuffix(got, "half")) {
				t.Errorf("%q, read %t: %q", said, read, got)
			}
		}
	}
}

// TestEndlessInformationalResponses: 1xx responses are not the final response, however many come.
func TestEndlessInformationalResponses(t *testing.T) {
	up := rawUpstream(t, func(conn net.Conn, in *bufio.Reader) {
		http.ReadRequest(in)
		for {
			if _, err := io.WriteString(conn, "HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n"); err != nil {
				return
			}
		}
	})
	_, s := front(t, strings.Replace(open, "30s", "200ms", 1), up)
	if got := exchange(t, s, "GET"+once); !strings.HasPrefix(got, "HTTP/1.1 103 ") || !strings.Contains(got, "HTTP/1.1 504 ") && !strings.Contains(got, "HTTP/1.1 502 ") {
		t.Errorf("%.300q ... %.300q", got, got[max(0, len(got)-300):])
	}
}

// TestResponsesWithoutBodies: responses to HEAD, and with status 304, keep their header fields.
func TestResponsesWithoutBodies(t *testing.T) {
	_, s := front(t, open, says(t, "HTTP/1.1 200 OK\r\nContent-Length: 12345\r\nContent-Type: a/b\r\n\r\n"))
	if got := exchange(t, s, "HEAD"+once); !strings.Contains(got, "Content-Length: 12345\r\n") || !strings.HasSuffix(got, "\r\n\r\n") || strings.Contains(got, "chunked") {
		t.Errorf("%q", got)
	}
	_, s = front(t, open, says(t, "HTTP/1.1 304 Not Modified\r\nEtag: \"a\"\r\nCache-Control: max-age=5\r\n\r\n"))
	if got := exchange(t, s, "GET"+once); !strings.Contains(got, "Etag: \"a\"\r\n") || !strings.Contains(got, "max-age=5") || strings.Contains(got, "chunked") {
		t.Errorf("%q", got)
	}
}

// TestHopByHopFields: hop-by-hop fields, and those that Connection names, are not passed on in
// either direction.
func TestHopByHopFields(t *testing.T) {
	seen := make(chan string, 1)
	up := rawUpstream(t, func(conn net.Conn, in *bufio.Reader) {
		var all strings.Builder
		for {
			line, err := in.ReadString('\n')
			if err != nil {
				return
			}
			all.WriteString(line)
			if line == "\r\n" {
				break
			}
		}
		seen <- all.String()
		io.WriteString(conn, "HTTP/1.1 200 OK\r\nConnection: X-Hop\r\nX-Hop: secret\r\nKeep-Alive: timeout=5\r\nProxy-Authenticate: secret\r\nProxy-Connection: x\r\n"+
			"Upgrade: h2c\r\nVia: 1.1 other\r\nX-Kept: yes\r\nContent-Length: 2\r\n\r\nok")
	})
	_, s := front(t, open, up)
	got := exchange(t, s, "GET /x HTTP/1.1\r\nHost: h\r\nConnection: close, X-Hop , Te\r\nX-Hop: secret\r\nKeep-Alive: secret\r\nProxy-Authorization: secret\r\nProxy-Connection: secret\r\n"+
		"Te: trailers, secret\r\nUpgrade: h2c\r\nHttp2-Settings: AAMAAABk\r\nVia: 1.1 client\r\nX-Kept: yes\r\n\r\n")
	request := <-seen
	for name, text := range map[string]string{"upstream": request, "client": got} {
		for _, not := range []string{"secret", "X-Hop", "Keep-Alive", "Proxy-", "Upgrade", "Connection: X"} {
			if strings.Contains(text, not) {
				t.Errorf("the %s got %s: %q", name, not, text)
			}
		}
		if !strings.Contains(text, "X-Kept: yes\r\n") {
			t.Errorf("the %s did not get what is for it: %q", name, text)
		}
	}
	if !strings.Contains(request, "Te: trailers\r\n") || !strings.Contains(request, "Via: 1.1 client\r\n") || strings.Contains(request, "Connection: ") {
		t.Errorf("%q", request)
	}
	if !strings.Contains(got, "Via: 1.1 other\r\n") {
		t.Errorf("%q", got)
	}
}

// TestTrailers: trailers come after the body, whether they were announced or not.
func TestTrailers(t *testing.T) {
	_, s := front(t, open, says(t, "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nTrailer: A\r\n\r\n2\r\nok\r\n0\r\nA: 1\r\nB: 2\r\n\r\n"))
	got := exchange(t, s, "GET"+once)
	resp, err := http.ReadResponse(bufio.NewReader(strings.NewReader(got)), nil)
	if err != nil {
		t.Fatal(err)
	}
	if body, err := io.ReadAll(resp.Body); string(body) != "ok" || err != nil || resp.Trailer.Get("A") != "1" || resp.Trailer.Get("B") != "2" {
		t.Errorf("%q %v: %q", body, err, got)
	}

	// Trailers of a request.
	up := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		fmt.Fprintf(w, "%s %s", body, r.Trailer.Get("A"))
	}))
	defer up.Close()
	_, s = front(t, open, up.URL)
	if got := exchange(t, s, "POST /x HTTP/1.1\r\nHost: h\r\nConnection: close\r\nTransfer-Encoding: chunked\r\nTrailer: A\r\n\r\n2\r\nhi\r\n0\r\nA: 1\r\n\r\n"); !strings.HasSuffix(got, "hi 1") {
		t.Errorf("%q", got)
	}
}

// TestEarlyResponse: a response that comes before the request has ended goes to the client at once,
// whether the rest of the request is ever sent or not.
func TestEarlyResponse(t *testing.T) {
	up := rawUpstream(t, func(conn net.Conn, in *bufio.Reader) {
		if _, err := http.ReadRequest(in); err == nil {
			io.WriteString(conn, "HTTP/1.1 413 Content Too Large\r\nContent-Length: 3\r\nConnection: close\r\n\r\nbig")
		}
	})
	_, s := front(t, open, up)
	for _, length := range []int{100, 10 << 20} {
		conn, err := net.Dial("tcp", s.Listener.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		conn.SetDeadline(time.Now().Add(30 * time.Second))
		fmt.Fprintf(conn, "POST /x HTTP/1.1\r\nHost: h\r\nContent-Length: %d\r\n\r\nonly this", length) // and nothing after that
		in := bufio.NewReader(conn)
		resp, err := http.ReadResponse(in, nil)
		if err != nil {
			t.Fatal(err)
		}
		if body, _ := io.ReadAll(resp.Body); resp.StatusCode != 413 || string(body) != "big" || !resp.Close {
			t.Errorf("%d %q, closes %t", resp.StatusCode, body, resp.Close)
		}
		if rest, err := io.ReadAll(in); len(rest) != 0 || err != nil { // the connection ends, whatever the client does
			t.Errorf("%q %v", rest, err)
		}
		conn.Close()
	}
}

// TestStreamsBothWays: over HTTP/1.1 each line gets its response before the next one is sent.
func TestStreamsBothWays(t *testing.T) {
	up := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		rc := http.NewResponseController(w)
		rc.EnableFullDuplex()
		rc.Flush()
		in := bufio.NewReader(r.Body)
		for {
			line, err := in.ReadString('\n')
			if err != nil {
				return
			}
			io.WriteString(w, "you said "+line)
			rc.Flush()
		}
	}))
	defer up.Close()
	_, s := front(t, open, up.URL)
	conn, err := net.Dial("tcp", s.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	conn.SetDeadline(time.Now().Add(30 * time.Second))
	io.WriteString(conn, "POST /x HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n")
	in := bufio.NewReader(conn)
	resp, err := http.ReadResponse(in, nil)
	if err != nil {
		t.Fatal(err)
	}
	body := bufio.NewReader(resp.Body)
	for i := range 20 {
		fmt.Fprintf(conn, "3\r\n%02d\n\r\n", i)
		if line, err := body.ReadString('\n'); line != fmt.Sprintf("you said %02d\n", i) {
			t.Fatal(line, err)
		}
	}
	io.WriteString(conn, "0\r\n\r\n")
	if rest, err := io.ReadAll(body); len(rest) != 0 || err != nil {
		t.Errorf("%q %v", rest, err)
	}
}

// TestEvents: each event of a stream arrives at once.
func TestEvents(t *testing.T) {
	next := make(chan struct{})
	up := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		for i := range 3 {
			fmt.Fprintf(w, "data: %d\n\n", i)
			w.(http.Flusher).Flush()
			<-next
		}
	}))
	defer up.Close()
	_, s := front(t, open, up.URL)
	resp, err := http.Get(s.URL)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	in := bufio.NewReader(resp.Body)
	for i := range 3 {
		if line, err := in.ReadString('\n'); line != fmt.Sprintf("data: %d\n", i) {
			t.Fatal(line, err)
		}
		in.ReadString('\n')
		next <- struct{}{}
	}
}

// TestExpectContinue: the client gets one 100 (Continue), when the upstream sends one, however many
// the upstream sends.
func TestExpectContinue(t *testing.T) {
	const asks = "HTTP/1.1 100 Continue\r\n\r\n"
	for n := range 4 {
		up := rawUpstream(t, func(conn net.Conn, in *bufio.Reader) {
			r, err := http.ReadRequest(in)
			if err != nil {
				return
			}
			io.WriteString(conn, strings.Repeat(asks, n))
			body, _ := io.ReadAll(r.Body) // sent after a second where nobody asks
			fmt.Fprintf(conn, "HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: %d\r\n\r\n%s", len(body), body)
		})
		_, s := front(t, open, up)
		conn := expect(t, s)
		in := bufio.NewReader(conn)
		got := make([]byte, len(asks))
		if _, err := io.ReadFull(in, got); err != nil || string(got) != asks {
			t.Fatalf("%q, %v", got, err)
		}
		io.WriteString(conn, "body")
		resp, err := http.ReadResponse(in, nil)
		if err != nil {
			t.Fatal(err)
		}
		if body, _ := io.ReadAll(resp.Body); string(body) != "body" {
			t.Errorf("asked for %d times: %s, %q", n, resp.Status, body)
		}
	}
}

// TestExpectContinueRefused: the client gets no 100 (Continue) if the upstream responds without the
// body. The upstream has a second for that: if its response comes later, on a slow machine, the test
// tries again.
func TestExpectContinueRefused(t *testing.T) {
	const refuses = "HTTP/1.1 403 Forbidden\r\n"
	up := rawUpstream(t, func(conn net.Conn, in *bufio.Reader) {
		http.ReadRequest(in)
		io.WriteString(conn, refuses+"Content-Length: 0\r\nConnection: close\r\n\r\n")
	})
	_, s := front(t, open, up)
	line := ""
	for range 10 {
		if line, _ = bufio.NewReader(expect(t, s)).ReadString('\n'); line == refuses {
			return
		}
	}
	t.Errorf("%q", line)
}

// expect sends the header of a request that waits to be asked for its body of 4 bytes.
func expect(t *testing.T, s *httptest.Server) net.Conn {
	t.Helper()
	conn, err := net.Dial("tcp", s.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	conn.SetDeadline(time.Now().Add(30 * time.Second))
	io.WriteString(conn, "PUT / HTTP/1.1\r\nHost: h\r\nExpect: 100-continue\r\nContent-Length: 4\r\n\r\n")
	return conn
}
