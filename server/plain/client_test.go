package plain

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"slices"
	"strings"
	"testing"
	"time"
)

// passing is a proxy over a Client, which responds to errors as httputil.ReverseProxy does.
func passing(c *Client, addr string) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !Takes(r) {
			w.WriteHeader(http.StatusTeapot)
			return
		}
		progress, err := c.Pass(w, r, addr, []Field{{"X-Forwarded-For", "someone"}}, nil)
		switch {
		case err == nil:
		case progress == Answered:
			panic(http.ErrAbortHandler)
		default:
			w.WriteHeader(http.StatusBadGateway)
		}
	})
}

// TestPassLikeReverseProxy: clients get the same through a Client as through httputil.ReverseProxy,
// with either server in front.
func TestPassLikeReverseProxy(t *testing.T) {
	addr, _ := rawServer(t)
	c := &Client{}
	t.Cleanup(c.Close)
	_, front := serve(t, passing(c, addr))
	behind := serveNetHTTP(t, passing(c, addr))
	theirs := serveNetHTTP(t, &httputil.ReverseProxy{ // with a new connection for each request, so that no bytes are left for the next
		Rewrite:   func(p *httputil.ProxyRequest) { p.SetURL(&url.URL{Scheme: "http", Host: addr}) },
		ErrorLog:  slog.NewLogLogger(slog.DiscardHandler, slog.LevelDebug),
		Transport: &http.Transport{DisableCompression: true, DisableKeepAlives: true, MaxResponseHeaderBytes: maxAnswerHead},
	})
	for name := range answers {
		for _, method := range []string{"GET", "HEAD"} {
			if name == "short" || name == "continue" {
				continue // 103 is passed on, and 100 is not
			}
			path := "/" + strings.ReplaceAll(name, " ", "%20")
			want := fetched(t, theirs, method, path)
			for what, addr := range map[string]string{"plain": front, "net/http": behind} {
				for range 2 {
					if got := fetched(t, addr, method, path); got != want {
						t.Errorf("%s %s, %s:\ngot\n%s\nwant\n%s", method, path, what, got, want)
					}
				}
			}
		}
	}
}

// fetched is what a client gets over a connection of its own.
func fetched(t *testing.T, addr, method, path string) string {
	t.Helper()
	c := dial(t, addr)
	defer c.Close()
	fmt.Fprintf(c, "%s %s HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n", method, path)
	in := bufio.NewReader(c)
	var b strings.Builder
	for {
		resp, err := http.ReadResponse(in, &http.Request{Method: method})
		if err != nil {
			fmt.Fprintln(&b, "end:", err)
			return b.String()
		}
		body, err := io.ReadAll(resp.Body)
		resp.Header.Del("Date")
		if len(resp.TransferEncoding) > 0 || resp.ContentLength == int64(len(body)) {
			resp.Header.Del("Content-Length") // both forms are correct
			resp.TransferEncoding, resp.ContentLength = nil, 0
		}
		resp.Header.Del("Content-Type") // net/http guesses it
		fmt.Fprintln(&b, resp.Status, resp.TransferEncoding, resp.ContentLength, err, len(body), string(body[:min(len(body), 100)]))
		for _, name := range slices.Sorted(maps.Keys(resp.Header)) {
			fmt.Fprintf(&b, "%s: %.100s\n", name, fmt.Sprintf("%q", resp.Header[name]))
		}
		fmt.Fprintln(&b, resp.Trailer)
	}
}

// TestWhatIsSent: the upstream gets the client's request without hop-by-hop fields, and with the
// proxy's own fields.
func TestWhatIsSent(t *testing.T) {
	got := make(chan string, 1)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	go func() {
		c, err := l.Accept()
		if err != nil {
			return
		}
		defer c.Close()
		b := make([]byte, 4096)
		n, _ := c.Read(b)
		got <- string(b[:n])
		io.WriteString(c, "HTTP/1.1 204 No Content\r\n\r\n")
	}()
	r := httptest.NewRequestWithContext(t.Context(), "GET", "/a//b/../c?d=%20e;f", nil)
	r.Host = "shop.example:8080"
	r.Header = http.Header{
		"Connection": {"keep-alive"}, "Keep-Alive": {"x"}, "Proxy-Authorization": {"secret"}, "Proxy-Connection": {"x"}, "Content-Length": {"0"},
		"X-Forwarded-For": {"forged"}, "Forwarded": {"for=forged"}, "Accept": {"a/b", "c/d"},
	}
	c := &Client{}
	defer c.Close()
	if _, err := c.Pass(httptest.NewRecorder(), r, l.Addr().String(), []Field{{"X-Forwarded-For", "192.0.2.1"}, {"Forwarded", ""}}, nil); err != nil {
		t.Fatal(err)
	}
	if want := "GET /a//b/../c?d=%20e;f HTTP/1.1\r\nHost: shop.example:8080\r\nAccept: a/b\r\nAccept: c/d\r\nX-Forwarded-For: 192.0.2.1\r\n\r\n"; <-got != want {
		t.Error("another request was sent")
	}
}

func TestTakes(t *testing.T) {
	plain := func() *http.Request {
		r := httptest.NewRequestWithContext(t.Context(), "GET", "/x", nil)
		r.Body = http.NoBody
		return r
	}
	if !Takes(plain()) {
		t.Error("not a plain one")
	}
	for name, change := range map[string]func(*http.Request){
		"method":     func(r *http.Request) { r.Method = "POST" },
		"body":       func(r *http.Request) { r.Body = io.NopCloser(bytes.NewReader(nil)) },
		"length":     func(r *http.Request) { r.ContentLength = -1 },
		"chunked":    func(r *http.Request) { r.TransferEncoding = []string{"chunked"} },
		"trailer":    func(r *http.Request) { r.Trailer = http.Header{"X": nil} },
		"absolute":   func(r *http.Request) { r.RequestURI = "http://a/" },
		"no URI":     func(r *http.Request) { r.RequestURI = "" },
		"space":      func(r *http.Request) { r.RequestURI = "/a b" },
		"newline":    func(r *http.Request) { r.RequestURI = "/a\r\nX: y" },
		"host":       func(r *http.Request) { r.Host = "a\r\nX: y" },
		"upgrade":    func(r *http.Request) { r.Header.Set("Upgrade", "websocket") },
		"te":         func(r *http.Request) { r.Header.Set("TE", "trailers") },
		"connection": func(r *http.Request) { r.Header.Set("Connection", "X-Secret") },
	} {
		r := plain()
		if change(r); Takes(r) {
			t.Errorf("%s: taken", name)
		}
	}
}

// TestServerThatDoesNotReply: the wait ends at the timeout, or when the client leaves.
func TestServerThatDoesNotReply(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	c := &Client{Answer: 2 * unwatched}
	defer c.Close()
	request := func(ctx context.Context) *http.Request { return httptest.NewRequestWithContext(ctx, "GET", "/", nil) }
	var timeout net.Error
	if progress, err := c.Pass(httptest.NewRecorder(), request(t.Context()), l.Addr().String(), nil, nil); progress != Sent || !errors.As(err, &timeout) || !timeout.Timeout() {
		t.Errorf("%v %v", progress, err)
	}
	c.Answer = time.Hour
	for _, after := range []time.Duration{0, unwatched / 2, 2 * unwatched} {
		ctx, cancel := context.WithCancel(t.Context())
		time.AfterFunc(after, cancel)
		if progress, err := c.Pass(httptest.NewRecorder(), request(ctx), l.Addr().String(), nil, nil); progress > Sent || !errors.Is(err, context.Canceled) {
			t.Errorf("%v: %v %v", after, progress, err)
		}
	}
}

// TestEventsArriveAtOnce: what a server sends is passed on at once, however the response is framed.
func TestEventsArriveAtOnce(t *testing.T) {
	for _, framing := range []string{"", "Content-Length: 30\r\n"} {
		next := make(chan struct{})
		up := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			if framing != "" {
				w.Header().Set("Content-Length", "30")
			}
			for range 3 {
				io.WriteString(w, "data: 8901")
				http.NewResponseController(w).Flush()
				<-next
			}
		}))
		c := &Client{}
		_, front := serve(t, passing(c, up.Listener.Addr().String()))
		conn := dial(t, front)
		io.WriteString(conn, "GET / HTTP/1.1\r\nHost: h\r\n\r\n")
		resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
		if err != nil {
			t.Fatal(err)
		}
		for range 3 {
			if _, err := io.ReadFull(resp.Body, make([]byte, 10)); err != nil {
				t.Fatal(err)
			}
			next <- struct{}{}
		}
		if n, err := resp.Body.Read(make([]byte, 1)); n != 0 || !errors.Is(err, io.EOF) {
			t.Error(n, err)
		}
		c.Close()
		up.Close()
	}
}

// TestClientLeavesMidway: if the client disconnects, the upstream's connection is closed.
func TestClientLeavesMidway(t *testing.T) {
	gone := make(chan struct{})
	up := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		io.WriteString(w, "first")
		http.NewResponseController(w).Flush()
		<-r.Context().Done()
		close(gone)
	}))
	defer up.Close()
	c := &Client{}
	defer c.Close()
	_, front := serve(t, passing(c, up.Listener.Addr().String()))
	conn := dial(t, front)
	io.WriteString(conn, "GET / HTTP/1.1\r\nHost: h\r\n\r\n")
	if _, err := conn.Read(make([]byte, 1)); err != nil {
		t.Fatal(err)
	}
	conn.Close()
	select {
	case <-gone:
	case <-time.After(patience):
		t.Error("the server goes on")
	}
}

// TestSlowResponseHead: a head that comes byte by byte has the same timeout as any other.
func TestSlowResponseHead(t *testing.T) {
	up := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		conn, _, err := w.(http.Hijacker).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		defer conn.Close()
		ticker := time.NewTicker(5 * time.Millisecond)
		defer ticker.Stop()
		for _, err := io.WriteString(conn, "HTTP/1.1 200 OK\r\nX: "); err == nil; _, err = io.WriteString(conn, "y") {
			<-ticker.C
		}
	}))
	defer up.Close()
	for answer := 400 * time.Millisecond; ; answer *= 2 {
		c := &Client{Answer: answer}
		r := httptest.NewRequestWithContext(t.Context(), "GET", "/", nil)
		progress, err := c.Pass(httptest.NewRecorder(), r, up.Listener.Addr().String(), nil, nil)
		c.Close()
		if !errors.Is(err, os.ErrDeadlineExceeded) || answer > patience {
			t.Fatalf("%v %v", progress, err)
		}
		if progress == Heard { // otherwise the machine stood still until the timeout
			return
		}
	}
}

// TestClientThatDoesNotReadTheResponse: a client that reads nothing of its response is
// disconnected, also when net/http serves it.
func TestClientThatDoesNotReadTheResponse(t *testing.T) {
	up := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		for r.Context().Err() == nil {
			if _, err := w.Write(make([]byte, 1<<20)); err != nil {
				return
			}
		}
	}))
	defer up.Close()
	c := &Client{Stall: 100 * time.Millisecond}
	defer c.Close()
	ended := make(chan error, 1)
	front := serveNetHTTP(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, err := c.Pass(w, r, up.Listener.Addr().String(), nil, nil)
		ended <- err
	}))
	io.WriteString(dial(t, front), "GET / HTTP/1.1\r\nHost: h\r\n\r\n")
	select {
	case err := <-ended:
		var client *ClientError
		if !errors.As(err, &client) {
			t.Error(err)
		}
	case <-time.After(patience):
		t.Error("it still writes")
	}
}
