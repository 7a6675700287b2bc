package listen

import (
	"bufio"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirflow/weir/policy"
)

// TestRefusedUploadIsReadToItsEnd: a client that is refused before it has sent its body can send all
// of it, and then closes the connection. Without that, its writes fail, and the response can be lost.
func TestRefusedUploadIsReadToItsEnd(t *testing.T) {
	dir := t.TempDir()
	issue(t, dir, "a.test", nil)
	certificates, err := LoadCertificates(names("a.test"), in(dir))
	if err != nil {
		t.Fatal(err)
	}
	for name, o := range map[string]Options{"plain": {}, "TLS": {Certificates: certificates}} {
		for _, c := range []struct{ name, fields string }{
			{"length", "Content-Length: 33554432"},
			{"length, close", "Connection: close\r\nContent-Length: 33554432"},
			{"chunked", "Transfer-Encoding: chunked\r\n\r\n2000000"},
		} {
			t.Run(name+", "+c.name, func(t *testing.T) {
				t.Parallel()
				uploadRefused(t, o, c.fields)
			})
		}
	}
}

// uploadRefused has a body of 32 MiB, more than the buffers of two sockets hold, refused. One without
// a length is refused once 1 MiB was read.
func uploadRefused(t *testing.T, o Options, fields string) {
	s := serve(t, policy.Bounds{}, nil, o, func(w http.ResponseWriter, r *http.Request) {
		if r.ContentLength < 0 {
			io.Copy(io.Discard, http.MaxBytesReader(w, r.Body, 1<<20))
		}
		w.Header().Set("Connection", "close")
		w.WriteHeader(http.StatusRequestEntityTooLarge)
	})
	var c net.Conn = s.dial(t)
	if o.Certificates != nil {
		c = tls.Client(c, &tls.Config{InsecureSkipVerify: true})
	}
	mib := strings.Repeat("x", 1<<20)
	io.WriteString(c, "POST / HTTP/1.1\r\nHost: h\r\n"+fields+"\r\n")
	if strings.HasPrefix(fields, "Transfer") {
		io.WriteString(c, mib+"x")
	} else {
		io.WriteString(c, "\r\n")
	}
	resp, err := http.ReadResponse(bufio.NewReader(c), nil)
	if err != nil || resp.StatusCode != http.StatusRequestEntityTooLarge {
		t.Fatal(resp, err)
	}
	for i := range 30 {
		if _, err := io.WriteString(c, mib); err != nil {
			t.Fatalf("%v after %d MiB", err, i)
		}
	}
	if s.Counts().Open != 1 {
		t.Errorf("%d connections are open, want the one that lingers", s.Counts().Open)
	}
	c.Close()
	until(t, "its place is free", func() bool { return s.Counts().Open == 0 })
}

// TestLingeringEndsWithTheListener: a client that neither sends nor closes holds up no shutdown.
func TestLingeringEndsWithTheListener(t *testing.T) {
	s := serve(t, policy.Bounds{}, nil, Options{}, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Connection", "close")
		w.WriteHeader(http.StatusTooManyRequests)
	})
	c := s.dial(t)
	io.WriteString(c, "POST / HTTP/1.1\r\nHost: h\r\nConnection: close\r\nContent-Length: 100\r\n\r\n")
	if _, err := http.ReadResponse(bufio.NewReader(c), nil); err != nil {
		t.Fatal(err)
	}
	lingers := func() bool {
		s.l.mu.Lock()
		defer s.l.mu.Unlock()
		return len(s.l.apart) == 1
	}
	until(t, "the connection lingers", lingers)
	s.srv.Close()
	s.l.Close() // returns when nothing lingers
	if lingers() || s.Counts().Open != 0 {
		t.Errorf("%d connections are open", s.Counts().Open)
	}
}

// TestPipelinedRequestLosesNoResponse: a client that has sent its next request, when the connection
// ends with the response to the last one, gets all of that response.
func TestPipelinedRequestLosesNoResponse(t *testing.T) {
	const size = 4 << 20
	dir := t.TempDir()
	issue(t, dir, "a.test", nil)
	certificates, err := LoadCertificates(names("a.test"), in(dir))
	if err != nil {
		t.Fatal(err)
	}
	for name, o := range map[string]Options{"plain": {}, "TLS": {Certificates: certificates}} {
		for _, request := range []string{"GET / HTTP/1.1\r\nHost: h\r\n\r\n", "POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 1\r\n\r\nx"} {
			t.Run(name+" "+request[:4], func(t *testing.T) {
				t.Parallel()
				sent := make(chan struct{})
				s := serve(t, policy.Bounds{MaxRequests: 1}, nil, o, func(w http.ResponseWriter, r *http.Request) {
					io.Copy(io.Discard, r.Body)
					w.Header().Set("Content-Length", fmt.Sprint(size))
					w.(http.Flusher).Flush()
					<-sent
					w.Write(make([]byte, size))
				})
				c := s.dial(t)
				c.(*net.TCPConn).SetReadBuffer(64 << 10) // so that the server still has a part when it ends
				if o.Certificates != nil {
					c = tls.Client(c, &tls.Config{InsecureSkipVerify: true})
				}
				io.WriteString(c, request)
				in := bufio.NewReader(c)
				resp, err := http.ReadResponse(in, nil)
				if err != nil {
					t.Fatal(err)
				}
				io.WriteString(c, strings.Repeat(request, 1000)) // more than the server reads ahead
				close(sent)
				if n, err := io.Copy(io.Discard, resp.Body); n != size || err != nil {
					t.Errorf("%d bytes of %d, %v", n, size, err)
				}
				c.Close()
				until(t, "its place is free", func() bool { return s.Counts().Open == 0 })
			})
		}
	}
}

// TestLingeringIsBounded, in virtual time: a client that sends nothing has 5 s, and one that goes on
// sending has 30 s.
func TestLingeringIsBounded(t *testing.T) {
	for every, want := range map[time.Duration]time.Duration{time.Hour: lingerIdle, time.Second: lingerMost, lingerIdle - 1: lingerMost} {
		synctest.Test(t, func(t *testing.T) {
			client, server := net.Pipe()
			defer client.Close()
			began := time.Now()
			ended := make(chan struct{})
			go func() {
				ticker := time.NewTicker(every)
				defer ticker.Stop()
				for {
					select {
					case <-ticker.C:
						client.Write([]byte("x"))
					case <-ended:
						return
					}
				}
			}()
			discard(server)
			server.Close()
			close(ended)
			if d := time.Since(began); d != want {
				t.Errorf("a byte every %v: it took %v, want %v", every, d, want)
			}
		})
	}
}

// TestUnreadResponseIsDropped: the connection of a client that reads nothing is reset, so that the
// system keeps nothing for it.
func TestUnreadResponseIsDropped(t *testing.T) {
	s := serve(t, policy.Bounds{WriteTimeout: 100 * time.Millisecond}, nil, Options{}, func(w http.ResponseWriter, r *http.Request) {
		io.Copy(w, strings.NewReader(strings.Repeat("x", 32<<20)))
	})
	c := s.dial(t)
	io.WriteString(c, get)
	until(t, "the connection is closed", func() bool { c := s.Counts(); return c.Accepted == 1 && c.Open == 0 })
	if n, err := io.Copy(io.Discard, c); !errors.Is(err, syscall.ECONNRESET) {
		t.Errorf("%v after %d bytes, want a reset", err, n)
	}
}

// TestLingersAfterATimeout: net/http gives up reading the rest of a body after a while.
func TestLingersAfterATimeout(t *testing.T) {
	p := NewPort(policy.Bounds{}, nil)
	inner, err := Open("test", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	l := p.Listen(inner, Options{})
	defer l.Close()
	client, err := net.Dial("tcp", inner.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	conn, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	g := l.Guard(conn, false)
	request := "POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nx\r\n"
	io.WriteString(client, request)
	if _, err := io.ReadFull(g, make([]byte, len(request))); err != nil {
		t.Fatal(err)
	}
	g.SetReadDeadline(time.Now().Add(-time.Second))
	if _, err := g.Read(make([]byte, 1)); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Fatal(err)
	}
	g.Close()
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.apart) != 1 {
		t.Error("the connection was closed")
	}
}
