package plain

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"runtime"
	"testing"
	"time"
)

// silent accepts connections, announces each request that it gets, and never responds.
func silent(t *testing.T) (addr string, requests <-chan struct{}) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	got := make(chan struct{}, 100)
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer conn.Close()
				for buf := make([]byte, 4096); ; {
					if _, err := conn.Read(buf); err != nil {
						return
					}
					got <- struct{}{}
				}
			}()
		}
	}()
	return l.Addr().String(), got
}

// ending forwards requests, and reports when and how each ended.
func ending(t *testing.T, c *Client, addr string) (http.Handler, <-chan error) {
	t.Helper()
	ended := make(chan error, 100)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, err := c.Pass(w, r, addr, nil, nil)
		ended <- err
		panic(http.ErrAbortHandler)
	}), ended
}

// TestClientLeavesAtOnce: if a client leaves, its exchange ends long before 250 ms have passed, in
// which clients were not watched once. On a busy machine it is enough that one of many does.
func TestClientLeavesAtOnce(t *testing.T) {
	up, requests := silent(t)
	c := &Client{Answer: time.Hour}
	defer c.Close()
	h, ended := ending(t, c, up)
	_, addr := serve(t, h)
	soonest := time.Hour
	for range 50 {
		conn := dial(t, addr)
		io.WriteString(conn, "GET / HTTP/1.1\r\nHost: h\r\n\r\n")
		<-requests
		start := time.Now()
		conn.Close()
		select {
		case err := <-ended:
			if !errors.Is(err, context.Canceled) {
				t.Fatal(err)
			}
		case <-time.After(patience):
			t.Fatal("the exchange goes on")
		}
		if soonest = min(soonest, time.Since(start)); soonest < 5*time.Millisecond {
			return
		}
	}
	t.Errorf("none of 50 was noticed within 5 ms, the soonest after %v", soonest)
}

// TestClientThatPipelinedLeaves: a client that leaves after a pipelined request is noticed, also by
// a handler that waits.
func TestClientThatPipelinedLeaves(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("other systems do not report it")
	}
	const two = "GET / HTTP/1.1\r\nHost: h\r\n\r\nGET / HTTP/1.1\r\nHost: h\r\n\r\n"
	up, requests := silent(t)
	c := &Client{Answer: time.Hour}
	defer c.Close()
	forwards, ended := ending(t, c, up)
	arrived := make(chan struct{}, 1)
	waits := http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		arrived <- struct{}{}
		<-r.Context().Done()
	})
	_, addr := serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { forwards.ServeHTTP(w, r) }))
	conn := dial(t, addr)
	io.WriteString(conn, two)
	<-requests
	conn.Close()
	select {
	case err := <-ended:
		if !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
	case <-time.After(patience):
		t.Fatal("the exchange goes on")
	}

	server, addr := serve(t, waits)
	conn = dial(t, addr)
	io.WriteString(conn, two)
	<-arrived
	conn.Close()
	until(t, "its requests end", func() bool {
		server.mu.Lock()
		defer server.mu.Unlock()
		return len(server.conns) == 0
	})
	server.mu.Lock()
	h := server.hangups
	server.mu.Unlock()
	if n := h.registered(); n != 0 {
		t.Errorf("%d connections are still registered", n)
	}
}

// TestHangupsEnd: nothing is watched any more when the server has ended.
func TestHangupsEnd(t *testing.T) {
	s := &Server{HTTP: &http.Server{Handler: http.NotFoundHandler(), ReadHeaderTimeout: time.Minute}}
	l, err := listens()
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() { done <- s.Serve(l) }()
	until(t, "it serves", func() bool { s.mu.Lock(); defer s.mu.Unlock(); return s.serving != nil })
	if err := s.Close(); err != nil {
		t.Error(err)
	}
	<-done
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.hangups != nil {
		t.Error("hangups are still watched")
	}
}

// until polls a condition.
func until(t *testing.T, what string, is func() bool) {
	t.Helper()
	for end := time.Now().Add(patience); !is(); <-time.After(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("never: " + what)
		}
	}
}
