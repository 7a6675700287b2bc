package listen

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirflow/weir/policy"
)

// pipes is a listener whose connections are in memory, for tests in virtual time.
type pipes chan net.Conn

func (p pipes) Accept() (net.Conn, error) {
	if c, ok := <-p; ok {
		return c, nil
	}
	return nil, net.ErrClosed
}
func (p pipes) Close() error   { return nil }
func (p pipes) Addr() net.Addr { return &net.TCPAddr{} }

// dial returns the client's side of a new connection.
func (p pipes) dial() net.Conn {
	client, server := net.Pipe()
	p <- peerConn{server}
	return client
}

type peerConn struct{ net.Conn }

func (peerConn) RemoteAddr() net.Addr { return &net.TCPAddr{IP: net.IPv4(192, 0, 2, 1), Port: 1} }

// guarded gives net/http what package plain hands over to it.
type guarded struct{ *Listener }

func (g guarded) Accept() (net.Conn, error) {
	c, err := g.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return g.Guard(c, false), nil
}

// inVirtualTime runs a test in a bubble. serve begins to serve a handler on a new port.
func inVirtualTime(t *testing.T, test func(t *testing.T, serve func(http.HandlerFunc) (p *Port, dial func() net.Conn))) {
	synctest.Test(t, func(t *testing.T) {
		in := make(pipes)
		var p *Port
		test(t, func(h http.HandlerFunc) (*Port, func() net.Conn) {
			p = NewPort(policy.Bounds{}, nil)
			l := p.Listen(in, Options{H2C: true})
			s := p.behind(h, slog.DiscardHandler)
			go s.Serve(guarded{l})
			t.Cleanup(func() { l.Close(); close(in); s.Close() })
			return p, in.dial
		})
	})
}

// TestDrainBodies: once a port drains, a client that stalls in the middle of a body has 5 s, over HTTP/1
// and HTTP/2. It had 30 s, and the shutdown took as long. Uploads that keep coming, or wait for the
// upstream, are not cut.
func TestDrainBodies(t *testing.T) {
	nothing := func(io.Writer) {}
	send := func(n int) func(io.Writer) {
		return func(w io.Writer) { io.WriteString(w, strings.Repeat("a", n)) }
	}
	every := func(pause time.Duration, n, times int) func(io.Writer) {
		return func(w io.Writer) {
			for range times {
				<-time.After(pause)
				send(n)(w)
			}
		}
	}
	for _, c := range []struct {
		name   string
		first  func(io.Writer) // 10 s before the drain
		then   func(io.Writer) // from then on
		late   bool            // the request begins during the drain
		reads  time.Duration   // how long the handler waits before it reads
		stalls bool
		left   time.Duration // from the drain to the end of the body
	}{
		{name: "a stall", first: send(1), then: nothing, stalls: true, left: 5 * time.Second},
		{name: "a stall after fast bytes", first: send(1 << 20), then: nothing, stalls: true, left: 5 * time.Second},
		{name: "a byte now and then", first: send(1), then: every(time.Second, 1, 100), stalls: true, left: 5*time.Second + 10*time.Millisecond},
		{name: "a stall after fast bytes of the drain", first: send(1), then: send(1 << 20), stalls: true, left: 5 * time.Second},
		{name: "a request of the drain that stalls", late: true, first: send(1), then: nothing, stalls: true, left: 5 * time.Second},
		{name: "pauses of 4 s", first: send(1), then: every(4*time.Second, 4000, 20), left: 80 * time.Second},
		{name: "600 bytes a second", first: send(1), then: every(time.Second, 600, 20), left: 20 * time.Second},
		{name: "an upstream that reads late", first: nothing, then: send(100), reads: 5 * time.Minute, left: 290 * time.Second},
	} {
		for _, protocol := range []string{"HTTP/1.1", "HTTP/2.0"} {
			t.Run(c.name+"/"+protocol, func(t *testing.T) {
				inVirtualTime(t, func(t *testing.T, serve func(http.HandlerFunc) (*Port, func() net.Conn)) {
					ended := make(chan error, 1)
					p, dial := serve(func(w http.ResponseWriter, r *http.Request) {
						<-time.After(c.reads)
						_, err := io.Copy(io.Discard, r.Body)
						ended <- err
					})
					transport := &http.Transport{
						DialContext: func(context.Context, string, string) (net.Conn, error) { return dial(), nil },
						Protocols:   new(http.Protocols),
					}
					transport.Protocols.SetHTTP1(protocol == "HTTP/1.1")
					transport.Protocols.SetUnencryptedHTTP2(protocol == "HTTP/2.0")
					if c.late {
						p.Drain()
					}
					read, write := io.Pipe()
					go func() {
						resp, err := transport.RoundTrip(&http.Request{Method: "POST", URL: target, Body: read, Header: http.Header{}})
						if err == nil {
							resp.Body.Close()
						}
						read.Close()
					}()
					sent := make(chan struct{})
					go func() {
						defer close(sent)
						c.first(write)
						if !c.late {
							<-time.After(10 * time.Second)
						}
						if c.then(write); !c.stalls {
							write.Close()
						}
					}()
					if !c.late {
						<-time.After(10 * time.Second)
						p.Drain()
					}
					began := time.Now()
					err := <-ended
					if errors.Is(err, ErrBodySlow) != c.stalls || err != nil && !c.stalls || time.Since(began) != c.left {
						t.Errorf("%v after %v, want %v", err, time.Since(began), c.left)
					}
					write.Close()
					<-sent
					transport.CloseIdleConnections()
				})
			})
		}
	}
}

var target = mustRequest("http://h/").URL

func mustRequest(url string) *http.Request {
	r, err := http.NewRequest("GET", url, nil)
	if err != nil {
		panic(err)
	}
	return r
}

// TestDrainRests: net/http reads the rest of a body whose handler has returned. It has 5 s for it once the
// port drains, and requests that follow on the connection are not cut.
func TestDrainRests(t *testing.T) {
	handler := func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/slow":
			select {
			case <-time.After(time.Minute):
			case <-r.Context().Done():
				fmt.Fprint(w, "cut")
			}
		case "/closes":
			r.Body.Close() // reads the rest
			select {
			case <-time.After(time.Minute):
			case <-r.Context().Done():
				fmt.Fprint(w, "cut")
			}
		}
	}
	half := func(path string) string {
		return "POST " + path + " HTTP/1.1\r\nHost: h\r\nContent-Length: 10\r\n\r\n12345"
	}
	whole := func(path string) string { return half(path) + "67890" }
	const drain = "drain"
	for _, c := range []struct {
		name  string
		steps []string // texts to send, and when to drain
		want  []string // the bodies of the responses
		left  time.Duration
		// left is until the end of the connection, which lingers for 5 s after the response: no shutdown
		// waits for that
		ends bool
	}{
		{"a rest before the drain", []string{half("/"), drain}, []string{""}, 10 * time.Second, true},
		{"a rest during the drain", []string{drain, half("/")}, []string{""}, 10 * time.Second, true},
		{"a refused request", []string{strings.Replace(half("/"), "POST", "post", 1), drain}, []string{"Bad Request\n"}, 10 * time.Second, true},
		{"a request after a rest", []string{whole("/"), "GET /slow HTTP/1.1\r\nHost: h\r\n\r\n", drain}, []string{"", ""}, time.Minute, false},
		{"a request after a body that was closed", []string{whole("/closes"), drain}, []string{""}, time.Minute, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			inVirtualTime(t, func(t *testing.T, serve func(http.HandlerFunc) (*Port, func() net.Conn)) {
				p, dial := serve(handler)
				conn := dial()
				defer conn.Close()
				for _, step := range c.steps {
					if step == drain {
						synctest.Wait()
						p.Drain()
						continue
					}
					go io.WriteString(conn, step)
					synctest.Wait()
				}
				began := time.Now()
				in := bufio.NewReader(conn)
				for _, want := range c.want {
					got := "none"
					if resp, err := http.ReadResponse(in, nil); err == nil {
						body, _ := io.ReadAll(resp.Body)
						got = string(body)
					}
					if got != want {
						t.Errorf("%q, want %q", got, want)
					}
				}
				if c.ends {
					io.Copy(io.Discard, in)
				}
				if left := time.Since(began); left != c.left {
					t.Errorf("ended after %v, want %v", left, c.left)
				}
			})
		})
	}
}

// TestDrainForgets: what was received, or whose client has left, is not kept for a drain.
func TestDrainForgets(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, serve func(http.HandlerFunc) (*Port, func() net.Conn)) {
		p, dial := serve(func(_ http.ResponseWriter, r *http.Request) {
			if r.URL.Path == "/reads" {
				io.Copy(io.Discard, r.Body)
			}
		})
		conns := []net.Conn{dial(), dial(), dial(), dial()}
		head := "POST /%s HTTP/1.1\r\nHost: h\r\nContent-Length: 2\r\n\r\n%s"
		for i, text := range []string{fmt.Sprintf(head, "", "ab"), fmt.Sprintf(head, "", "a"), fmt.Sprintf(head, "reads", "ab"), fmt.Sprintf(head, "reads", "a")} {
			go io.WriteString(conns[i], text)
			go io.Copy(io.Discard, conns[i])
		}
		kept := func() int {
			synctest.Wait()
			p.incoming.mu.Lock()
			defer p.incoming.mu.Unlock()
			return len(p.incoming.all)
		}
		if n := kept(); n != 3 { // one rest was read by net/http, and ends with the next request
			t.Errorf("%d are kept", n)
		}
		for _, c := range conns {
			c.Close()
		}
		if n := kept(); n != 0 {
			t.Errorf("%d are kept after their clients have left", n)
		}
	})
}
