package gateway_test

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"
)

// onePlace is a policy with one place for all requests.
const onePlace = `
upstreams: { app: { url: "URL", adaptive: { knee: { initial: 1, max: 1 } } } }
routes: [{ match: /, upstream: app, adaptive: { knee: { initial: 1, max: 1 } } }]
`

// rawRequest sends a text to a server.
func rawRequest(t *testing.T, url, text string) net.Conn {
	t.Helper()
	conn, err := net.Dial("tcp", strings.TrimPrefix(url, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	if _, err := io.WriteString(conn, text); err != nil {
		t.Fatal(err)
	}
	return conn
}

// TestSlowUploadKeepsNoPlace: a few clients that sent the bodies of their requests slowly kept all places of
// adaptive limits, and all other clients got 503. The upstream had not heard of them.
func TestSlowUploadKeepsNoPlace(t *testing.T) {
	for name, header := range map[string]string{"length": "Content-Length: 10\r\n\r\nhello", "chunked": "Transfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n"} {
		t.Run(name, func(t *testing.T) {
			g, front, _ := start(t, onePlace, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				body, _ := io.ReadAll(r.Body)
				time.Sleep(300 * time.Millisecond) // much longer than what a busy machine takes to write a response
				w.Write(body)
			}))
			conn := rawRequest(t, front.URL, "POST / HTTP/1.1\r\nHost: x\r\n"+header)
			until(t, func() bool { return g.Buffers().Memory > 0 })
			if got := told(t, front.URL); got != "200" {
				t.Fatalf("beside a slow upload: %s", got)
			}
			until(t, func() bool {
				return targetsOf(g)[0].Adaptive.InFlight == 0 && g.Engine().AdaptiveCounts()[0].InFlight == 0
			})
			rest := "world"
			if name == "chunked" {
				rest = "5\r\nworld\r\n0\r\n\r\n"
			}
			io.WriteString(conn, rest)
			resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
			if err != nil {
				t.Fatal(err)
			}
			defer resp.Body.Close()
			if body, err := io.ReadAll(resp.Body); err != nil || string(body) != "helloworld" || resp.Close {
				t.Errorf("the slow upload: %q %v, closes %v", body, err, resp.Close)
			}
			// its duration is that of the upstream, so it counts
			if got := settled(t, g); got != "{2 0 0 0}" {
				t.Errorf("ok, ignored, dropped, refused: %s", got)
			}
			until(t, func() bool { return g.Buffers().Memory == 0 })
		})
	}
}

// TestUploadThatFindsNoPlace: a body that has come before its request finds no place is freed, and the
// connection goes on. A body that does not come takes no place.
func TestUploadThatFindsNoPlace(t *testing.T) {
	entered, leave := make(chan bool), make(chan bool)
	g, front, _ := start(t, onePlace, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/slow" {
			entered <- true
			<-leave
		}
	}))
	conn := rawRequest(t, front.URL, "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 10\r\n\r\nhello")
	until(t, func() bool { return g.Buffers().Memory > 0 })
	slow := make(chan string, 1)
	go func() { slow <- told(t, front.URL+"/slow") }()
	select {
	case <-entered:
	case got := <-slow:
		t.Fatalf("beside a slow upload: %s", got)
	}
	io.WriteString(conn, "worldGET /slow HTTP/1.1\r\nHost: x\r\n\r\n")
	read := bufio.NewReader(conn)
	for range 2 {
		resp, err := http.ReadResponse(read, nil)
		if err != nil {
			t.Fatal(err)
		}
		io.Copy(io.Discard, resp.Body)
		resp.Body.Close()
		if resp.StatusCode != http.StatusServiceUnavailable {
			t.Errorf("without a place: %d", resp.StatusCode)
		}
	}
	leave <- true
	<-slow
	until(t, func() bool { return g.Buffers().Memory == 0 })
	left := rawRequest(t, front.URL, "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 10\r\n\r\nhello")
	until(t, func() bool { return g.Buffers().Memory > 0 })
	left.Close()
	until(t, func() bool { return g.Buffers().Memory == 0 && g.Counts().Canceled == 1 })
	if a := g.Engine().AdaptiveCounts()[0]; a.InFlight != 0 || a.Outcomes.Ignored != 0 {
		t.Errorf("a body that does not come: %+v", a)
	}
}

// TestSlowDownloadKeepsNoPlace: a client that does not take its response kept a place for as long as it liked.
func TestSlowDownloadKeepsNoPlace(t *testing.T) {
	g, front, _ := start(t, onePlace, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/large" {
			for range 64 {
				if _, err := w.Write(make([]byte, 1<<20)); err != nil {
					return
				}
			}
		}
	}))
	conn := rawRequest(t, front.URL, "GET /large HTTP/1.1\r\nHost: x\r\n\r\n")
	until(t, func() bool { return fmt.Sprint(targetsOf(g)[0].Adaptive.Outcomes) == "{0 1 0 0}" })
	if got := told(t, front.URL); got != "200" {
		t.Errorf("beside a slow download: %s", got)
	}
	until(t, func() bool { a := targetsOf(g)[0]; return a.InFlight == 1 && a.Adaptive.InFlight == 0 })
	resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if n, err := io.Copy(io.Discard, resp.Body); err != nil || n != 64<<20 {
		t.Errorf("the slow download: %d bytes, %v", n, err)
	}
}
