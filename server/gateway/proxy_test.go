package gateway_test

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"
	"time"
)

// raw sends bytes unchanged and returns what comes back.
func raw(t testing.TB, front *httptest.Server, request string) *http.Response {
	t.Helper()
	conn, err := net.Dial("tcp", front.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	conn.SetDeadline(time.Now().Add(time.Minute))
	if _, err := io.WriteString(conn, request); err != nil {
		t.Fatal(err)
	}
	resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		t.Fatal(err)
	}
	return resp
}

// TestRequestsGoThroughUnchanged: matching uses a normalised copy, the upstream gets what the
// client sent, and the gateway never redirects it.
func TestRequestsGoThroughUnchanged(t *testing.T) {
	_, front, _ := start(t, flashSale, echo)
	for _, target := range []string{
		"/free/a", "/free//a/./b/../c", "/free/a%2Fb%20c", "//free/x", "/free/?a=1&a=2;b&%zz&=", "/free/%C3%A9?", "/x/../free/y", "/free/a+b%2B",
	} {
		resp := raw(t, front, "GET "+target+" HTTP/1.1\r\nHost: Shop.Example:81\r\n\r\n")
		if want := fmt.Sprintf(`GET Shop.Example:81 %s ""`, target); resp.StatusCode != 200 || resp.Header.Get("X-Seen") != want {
			t.Errorf("%s: %d, the upstream saw %s", target, resp.StatusCode, resp.Header.Get("X-Seen"))
		}
		if resp.Header.Get("X-In-User-Agent") != "" || resp.Header.Get("X-In-Accept-Encoding") != "" {
			t.Errorf("%s: fields were added: %v", target, resp.Header)
		}
	}
	resp := raw(t, front, "POST /free/p HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n")
	if got := resp.Header.Get("X-Seen"); got != `POST h /free/p "hello"` {
		t.Errorf("%s", got)
	}
	for request, want := range map[string]int{
		"CONNECT elsewhere:443 HTTP/1.1\r\nHost: elsewhere:443\r\n\r\n":                          405,
		"GET http://h/free/abs HTTP/1.1\r\nHost: h\r\n\r\n":                                      200,
		"OPTIONS * HTTP/1.1\r\nHost: h\r\n\r\n":                                                  200, // net/http's own response
		"GET / HTTP/1.1\r\n\r\n":                                                                 400,
		"GET /free/ HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n":                                      400,
		"POST /free/ HTTP/1.1\r\nHost: h\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\nhello": 400,
		"POST /free/ HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: x\r\n\r\nhello":                   501,
		"GET /free/ HTTP/1.1\r\nHost: h\r\nA: " + strings.Repeat("x", 1<<21) + "\r\n\r\n":        431,
		"GET /free/" + strings.Repeat("x", 1<<21) + " HTTP/1.1\r\nHost: h\r\n\r\n":               431,
		"nonsense\r\n\r\n": 400,
	} {
		if resp := raw(t, front, request); resp.StatusCode != want {
			t.Errorf("%.80q: %d, want %d", request, resp.StatusCode, want)
		}
	}
}

func TestForwardedFields(t *testing.T) {
	seen := func(text string, fields ...string) http.Header {
		_, front, _ := start(t, text, echo)
		resp, _ := get(t, front.URL+"/free/", fields...)
		return resp.Header
	}
	claims := []string{"X-Forwarded-For", "1.1.1.1", "X-Forwarded-Host", "evil", "X-Forwarded-Proto", "https", "Forwarded", "for=1.1.1.1"}
	h := seen(flashSale, claims...)
	if h.Get("X-In-X-Forwarded-For") != "127.0.0.1" || strings.Contains(fmt.Sprint(h), "evil") || h.Get("X-In-X-Forwarded-Proto") != "http" || h.Get("X-In-Forwarded") != "" {
		t.Errorf("believed a stranger: %v", h)
	}
	h = seen("trusted_proxies: [127.0.0.1]\n"+flashSale, claims...)
	if h.Get("X-In-X-Forwarded-For") != "1.1.1.1, 127.0.0.1" || h.Get("X-In-X-Forwarded-Host") != "evil" || h.Get("X-In-X-Forwarded-Proto") != "https" || h.Get("X-In-Forwarded") == "" {
		t.Errorf("did not believe a trusted proxy: %v", h)
	}
}

func TestTrustedProxiesNameTheClient(t *testing.T) {
	const text = `
limits: { per-ip: { key: client.ip, token_bucket: { rate: 1/h, burst: 1 } } }
upstreams: { up: { url: "URL" } }
routes: [{ match: /, upstream: up, limits: [per-ip] }]
`
	_, front, _ := start(t, text, echo)
	_, behind, _ := start(t, "trusted_proxies: [127.0.0.0/8]\n"+text, echo)
	for i, want := range []struct{ stranger, trusted int }{{200, 200}, {429, 200}, {429, 200}} {
		from := fmt.Sprintf("192.0.2.%d", i)
		if resp, _ := get(t, front.URL, "X-Forwarded-For", from); resp.StatusCode != want.stranger {
			t.Errorf("from %s: %d", from, resp.StatusCode)
		}
		if resp, _ := get(t, behind.URL, "X-Forwarded-For", "6.6.6.6, "+from); resp.StatusCode != want.trusted {
			t.Errorf("from %s through a trusted proxy: %d", from, resp.StatusCode)
		}
	}
	if resp, _ := get(t, behind.URL, "X-Forwarded-For", "192.0.2.0"); resp.StatusCode != 429 {
		t.Errorf("again through a trusted proxy: %d", resp.StatusCode)
	}
}

// TestFullAddressOfClients: client.ip/128 tells the IPv6 clients of one /64 apart, which client.ip does not.
func TestFullAddressOfClients(t *testing.T) {
	for part, second := range map[string]int{"client.ip": 429, "client.ip/128": 200} {
		_, behind, _ := start(t, `
trusted_proxies: [127.0.0.0/8]
limits: { per-ip: { key: `+part+`, token_bucket: { rate: 1/h, burst: 1 } } }
upstreams: { up: { url: "URL" } }
routes: [{ match: /, upstream: up, limits: [per-ip] }]
`, echo)
		for i, c := range []struct {
			from string
			want int
		}{{"2001:db8::1", 200}, {"2001:db8::2", second}, {"2001:DB8:0::1", 429}, {"2001:db8:0:1::1", 200}} {
			if resp, _ := get(t, behind.URL, "X-Forwarded-For", c.from); resp.StatusCode != c.want {
				t.Errorf("%s: request %d, from %s: %d, want %d", part, i, c.from, resp.StatusCode, c.want)
			}
		}
	}
}

func TestUpstreamDown(t *testing.T) {
	const dead = "http://127.0.0.1:1"
	g, front, log := start(t, strings.ReplaceAll(flashSale, "URL", dead), echo)
	for range 30 {
		if resp, body := get(t, front.URL+"/free/", "X-Secret", "s3cret"); resp.StatusCode != 502 || !strings.Contains(body, "cannot be reached") {
			t.Fatalf("%d %q", resp.StatusCode, body)
		}
	}
	if n := strings.Count(log.String(), "upstream failed"); n < 10 || n > 12 || !strings.Contains(log.String(), "connection refused") || strings.Contains(log.String(), "s3cret") {
		t.Errorf("%d lines in the log:\n%s", n, log)
	}
	if got := g.Counts().UpstreamFailed; got != 30 {
		t.Errorf("%d counted", got)
	}
}

// TestInformationalResponses: 100 and 103 responses of an upstream do not change the final
// response.
func TestInformationalResponses(t *testing.T) {
	_, front, _ := start(t, flashSale, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Link", "</style.css>; rel=preload")
		w.WriteHeader(http.StatusEarlyHints)
		io.Copy(w, r.Body) // reads the body, which sends a 100 if the client waits for one
	}))
	r, err := http.NewRequestWithContext(t.Context(), "GET", front.URL+"/ratelimit/sku?sku_id=1", strings.NewReader("body"))
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Expect", "100-continue")
	resp, body := do(t, r)
	if resp.StatusCode != 200 || body != "body" || fmt.Sprint(resp.Header["Ratelimit"]) != `["per-sku";r=0;t=10]` || resp.Header.Get("X-RateLimit-Limit") != "1" {
		t.Errorf("%d %q %v", resp.StatusCode, body, resp.Header)
	}
}

// upgrade returns a connection to /free/ws after its upgrade.
func upgrade(t *testing.T, front *httptest.Server) (net.Conn, *bufio.Reader) {
	t.Helper()
	conn, err := net.Dial("tcp", front.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	conn.SetDeadline(time.Now().Add(time.Minute))
	io.WriteString(conn, "GET /free/ws HTTP/1.1\r\nHost: h\r\nConnection: Upgrade\r\nUpgrade: echo\r\n\r\n")
	r := bufio.NewReader(conn)
	resp, err := http.ReadResponse(r, nil)
	if err != nil || resp.StatusCode != 101 {
		t.Fatal(resp, err)
	}
	return conn, r
}

// TestSilentWebSocketEnds: an upgraded connection that is silent in both directions is closed at both
// ends after `timeouts.upgraded`.
func TestSilentWebSocketEnds(t *testing.T) {
	ended := make(chan error, 1)
	policy := strings.Replace(flashSale, `shop: { url: "URL" }`, `shop: { url: "URL", timeouts: { upgraded: 20ms } }`, 1)
	_, front, _ := start(t, policy, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		conn, rw, err := w.(http.Hijacker).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		defer conn.Close()
		io.WriteString(conn, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: echo\r\n\r\n")
		_, err = io.Copy(io.Discard, rw)
		ended <- err
	}))
	_, r := upgrade(t, front)
	if _, err := r.ReadByte(); err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("the client's side is open: %v", err)
	}
	select {
	case <-ended:
	case <-time.After(time.Minute):
		t.Error("the upstream's side is open")
	}
}

// TestWebSocket: an upgraded connection works in both directions.
func TestWebSocket(t *testing.T) {
	_, front, _ := start(t, flashSale, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		conn, rw, err := w.(http.Hijacker).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		defer conn.Close()
		rw.WriteString("HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: echo\r\n\r\n")
		rw.Flush()
		line, _ := rw.ReadString('\n')
		rw.WriteString("you said " + line)
		rw.Flush()
	}))
	conn, r := upgrade(t, front)
	io.WriteString(conn, "hello\n")
	if line, _ := r.ReadString('\n'); line != "you said hello\n" {
		t.Errorf("%q", line)
	}
}
