package gateway_test

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"
)

// echoing is an upstream that upgrades, and echoes each line until its client sends no more. Then
// it says goodbye.
func echoing(t testing.TB) string {
	return rawUpstream(t, func(conn net.Conn, in *bufio.Reader) {
		r, err := http.ReadRequest(in)
		if err != nil {
			return
		}
		if r.Header.Get("Upgrade") == "" {
			io.WriteString(conn, "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nplain")
			return
		}
		io.WriteString(conn, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: "+r.Header.Get("Upgrade")+"\r\nSec-Websocket-Accept: x\r\n\r\nwelcome\n")
		for {
			line, err := in.ReadString('\n')
			if err != nil {
				io.WriteString(conn, "goodbye\n")
				return
			}
			io.WriteString(conn, "you said "+line)
		}
	})
}

const limited = `
limits: { places: { concurrency: { limit: 1 } } }
upstreams: { up: { url: "URL", timeouts: { idle: 200ms } } }
routes: [{ match: /, upstream: up, limits: [places] }]
`

// TestUpgrade: both directions work, also for bytes sent ahead; each side may end alone; and the
// place is held as long as the connection lasts, however silent it is.
func TestUpgrade(t *testing.T) {
	g, s := front(t, limited, echoing(t))
	conn, err := net.Dial("tcp", s.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	conn.SetDeadline(time.Now().Add(30 * time.Second))
	io.WriteString(conn, "GET /ws HTTP/1.1\r\nHost: h\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\nahead\n")
	in := bufio.NewReader(conn)
	resp, err := http.ReadResponse(in, nil)
	if err != nil || resp.StatusCode != 101 || resp.Header.Get("Upgrade") != "websocket" || resp.Header.Get("Sec-Websocket-Accept") != "x" {
		t.Fatal(resp, err)
	}
	expect := func(want string) {
		t.Helper()
		if line, err := in.ReadString('\n'); line != want {
			t.Fatalf("%q %v, want %q", line, err, want)
		}
	}
	expect("welcome\n")
	expect("you said ahead\n")
	<-time.After(500 * time.Millisecond) // real time, which is tested: longer than a body may stall
	io.WriteString(conn, "hello\n")
	expect("you said hello\n")
	if resp, _ := get(t, s.URL); resp.StatusCode != 429 {
		t.Errorf("the place is not held: %d", resp.StatusCode)
	}
	conn.(*net.TCPConn).CloseWrite()
	expect("goodbye\n")
	if rest, err := io.ReadAll(in); len(rest) != 0 || err != nil {
		t.Errorf("%q %v", rest, err)
	}
	until(t, func() bool { resp, _ := get(t, s.URL); return resp.StatusCode == 200 })
	until(t, func() bool { return g.Upstreams()[0].Targets[0].InFlight == 0 })
	if got := g.Upstreams()[0].Targets[0]; got.Failures != 0 {
		t.Errorf("%+v", got)
	}
}

// TestUpgradeEnds: if either side disconnects, the place is free.
func TestUpgradeEnds(t *testing.T) {
	_, s := front(t, limited, echoing(t))
	conn, err := net.Dial("tcp", s.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	conn.SetDeadline(time.Now().Add(30 * time.Second))
	io.WriteString(conn, "GET /ws HTTP/1.1\r\nHost: h\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n")
	if resp, err := http.ReadResponse(bufio.NewReader(conn), nil); err != nil || resp.StatusCode != 101 {
		t.Fatal(resp, err)
	}
	conn.Close()
	until(t, func() bool { resp, _ := get(t, s.URL); return resp.StatusCode == 200 })
}

// TestUpgradeCosts: a WebSocket costs the bytes of both directions after the handshake, also those sent
// ahead, however it ends.
func TestUpgradeCosts(t *testing.T) {
	for _, end := range []string{"client leaves", "both end"} {
		g, s := front(t, `
limits:
  bytes: { token_bucket: { rate: 1/d, burst: 10000 }, cost: { before: 500, after: bytes } }
  tokens: { token_bucket: { rate: 1/d, burst: 10000 }, cost: { before: 500, after: openai } }
upstreams: { up: { url: "URL" } }
routes: [{ match: /, upstream: up, limits: [bytes, tokens] }]
`, echoing(t))
		conn, err := net.Dial("tcp", s.Listener.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		conn.SetDeadline(time.Now().Add(30 * time.Second))
		io.WriteString(conn, "GET /ws HTTP/1.1\r\nHost: h\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\nahead\n")
		in := bufio.NewReader(conn)
		if resp, err := http.ReadResponse(in, nil); err != nil || resp.StatusCode != 101 {
			t.Fatal(resp, err)
		}
		want := uint64(len("ahead\nwelcome\nyou said ahead\n"))
		for _, line := range []string{"welcome\n", "you said ahead\n"} {
			if got, err := in.ReadString('\n'); got != line {
				t.Fatalf("%q %v", got, err)
			}
		}
		long := strings.Repeat("x", 2000) + "\n"
		io.WriteString(conn, long)
		if got, err := in.ReadString('\n'); got != "you said "+long {
			t.Fatalf("%q %v", got, err)
		}
		want += uint64(2*len(long) + len("you said "))
		if end == "both end" {
			conn.(*net.TCPConn).CloseWrite()
			io.ReadAll(in)
			want += uint64(len("goodbye\n"))
		} else {
			conn.(*net.TCPConn).SetLinger(0) // nobody can say goodbye to this client
			conn.Close()
		}
		until(t, func() bool { return g.Engine().Counts()[1].Actual > 0 })
		c, unread := g.Engine().Counts()[0], g.Engine().Counts()[1]
		if left := c.Actual - want; end == "both end" && left != 0 || left != 0 && left != uint64(len("goodbye\n")) || c.Unknown != 0 {
			t.Errorf("%s: %+v, want %d", end, c, want)
		}
		if unread.Actual != 500 || unread.Unknown != 1 {
			t.Errorf("%s: tokens: %+v", end, unread)
		}
	}
}

// TestNoUpgradeToHTTP: inside such a connection, requests would bypass the limits.
func TestNoUpgradeToHTTP(t *testing.T) {
	_, s := front(t, open, echoing(t))
	for _, protocol := range []string{"h2c", "H2C", "h2c, websocket", "websocket, h2c", "HTTP/2.0", "TLS/1.0", " h2"} {
		got := exchange(t, s, "GET /x HTTP/1.1\r\nHost: h\r\nConnection: Upgrade, close, HTTP2-Settings\r\nHTTP2-Settings: AAMAAABkAARAAAAAAAIAAAAA\r\nUpgrade: "+protocol+"\r\n\r\n")
		if !strings.HasPrefix(got, "HTTP/1.1 200 ") || !strings.HasSuffix(got, "plain") {
			t.Errorf("%s: %q", protocol, got)
		}
	}
	got := exchange(t, s, "GET /x HTTP/1.1\r\nHost: h\r\nConnection: Upgrade, close\r\nUpgrade: websocket\r\nUpgrade: h2c\r\n\r\n")
	if !strings.HasPrefix(got, "HTTP/1.1 200 ") {
		t.Errorf("%q", got)
	}
}

// h2c returns a client of HTTP/2 without TLS.
func h2c(t testing.TB) *http.Client {
	tr := &http.Transport{Protocols: new(http.Protocols)}
	tr.Protocols.SetUnencryptedHTTP2(true)
	t.Cleanup(tr.CloseIdleConnections)
	return &http.Client{Transport: tr}
}

// TestGRPC: messages both ways over HTTP/2 without TLS, one at a time, with trailers, and the place
// held meanwhile. Errors that have only trailers are passed on, too.
func TestGRPC(t *testing.T) {
	up := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/grpc")
		if r.URL.Path == "/only" {
			w.Header().Set("Grpc-Status", "5")
			return
		}
		w.Header().Set("X-Seen", fmt.Sprint(r.Proto, r.Header.Get("Te"), r.Host))
		w.Header().Set("Trailer", "Grpc-Status")
		rc := http.NewResponseController(w)
		rc.Flush()
		in := bufio.NewReader(r.Body)
		for {
			line, err := in.ReadString('\n')
			if err != nil {
				break
			}
			io.WriteString(w, "you said "+line)
			rc.Flush()
		}
		w.Header().Set("Grpc-Status", "0")
		w.Header().Set(http.TrailerPrefix+"Grpc-Message", "fine")
	}))
	up.Config.Protocols = new(http.Protocols)
	up.Config.Protocols.SetUnencryptedHTTP2(true)
	up.Start()
	defer up.Close()
	_, s := front(t, strings.Replace(limited, "timeouts: { idle: 200ms }", "protocol: h2c", 1), up.URL)
	client := h2c(t)
	body, w := io.Pipe()
	r, err := http.NewRequestWithContext(t.Context(), "POST", s.URL+"/svc/Method", body)
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Te", "trailers")
	resp, err := client.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if want := "HTTP/2.0 trailers " + r.Host; resp.Proto != "HTTP/2.0" || strings.Join(strings.Fields(resp.Header.Get("X-Seen")), " ") != want && resp.Header.Get("X-Seen") != "HTTP/2.0trailers"+r.Host {
		t.Errorf("%s %q", resp.Proto, resp.Header.Get("X-Seen"))
	}
	in := bufio.NewReader(resp.Body)
	for i := range 20 {
		fmt.Fprintf(w, "%02d\n", i)
		if line, err := in.ReadString('\n'); line != fmt.Sprintf("you said %02d\n", i) {
			t.Fatal(line, err)
		}
	}
	if resp, err := client.Get(s.URL + "/only"); err != nil || resp.StatusCode != 429 {
		t.Errorf("the place of a stream is not held: %v %v", resp, err)
	} else {
		resp.Body.Close()
	}
	w.Close()
	if rest, err := io.ReadAll(in); len(rest) != 0 || err != nil || resp.Trailer.Get("Grpc-Status") != "0" || resp.Trailer.Get("Grpc-Message") != "fine" {
		t.Errorf("%q %v %v", rest, err, resp.Trailer)
	}
	until(t, func() bool {
		resp, err := client.Get(s.URL + "/only")
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		return resp.StatusCode == 200 && resp.Header.Get("Grpc-Status") == "5"
	})
}

// TestStalledBodies: upstreams that stop in the middle of a response, and clients that stop sending
// or reading, are disconnected.
func TestStalledBodies(t *testing.T) {
	up := rawUpstream(t, func(conn net.Conn, in *bufio.Reader) {
		r, err := http.ReadRequest(in)
		if err != nil {
			return
		}
		switch r.URL.Path {
		case "/half":
			io.WriteString(conn, "HTTP/1.1 200 OK\r\nContent-Length: 10000\r\n\r\n"+strings.Repeat("x", 5000))
			io.Copy(io.Discard, in)
		case "/much":
			io.WriteString(conn, "HTTP/1.1 200 OK\r\n\r\n")
			for {
				if _, err := io.WriteString(conn, strings.Repeat("x", 1<<16)); err != nil {
					return
				}
			}
		default:
			io.Copy(io.Discard, r.Body)
		}
	})
	g, s := front(t, limited, up)
	free := func() bool { return g.Upstreams()[0].Targets[0].InFlight == 0 }
	if got := exchange(t, s, "GET /half HTTP/1.1\r\nHost: h\r\n\r\n"); !strings.HasPrefix(got, "HTTP/1.1 200 ") || len(got) > 9999 {
		t.Errorf("%.100q", got)
	}
	until(t, free)
	if got := exchange(t, s, "POST /upload HTTP/1.1\r\nHost: h\r\nContent-Length: 1000\r\n\r\na little"); !strings.HasPrefix(got, "HTTP/1.1 408 ") || !strings.Contains(got, "Connection: close") {
		t.Errorf("%q", got)
	}
	until(t, free)
	conn, err := net.Dial("tcp", s.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	io.WriteString(conn, "GET /much HTTP/1.1\r\nHost: h\r\n\r\n") // and no byte of it is read
	until(t, func() bool { return !free() })
	until(t, free)
	until(t, func() bool { resp, _ := get(t, s.URL+"/upload"); return resp.StatusCode != 429 })
	if got := g.Upstreams()[0].Targets[0]; got.Failures < 1 {
		t.Errorf("%+v", got)
	}
}
