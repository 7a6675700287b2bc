package plain

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"testing"
	"time"
)

// TestConnectionsAreKept: one connection serves all requests whose responses leave it open, also if
// they are not plain.
func TestConnectionsAreKept(t *testing.T) {
	addr, connections := rawServer(t)
	for name, a := range answers {
		if name == "hints" {
			continue // the recorder takes a 1xx response for the final one
		}
		c := &Client{}
		before := connections.Load()
		for range 3 {
			rec := httptest.NewRecorder()
			c.Pass(rec, httptest.NewRequestWithContext(t.Context(), "GET", "/"+url.PathEscape(name), nil), addr, nil, nil) //nolint:errcheck // other tests check the responses
		}
		n := connections.Load() - before
		if kept := n == 1; kept == a.closes && name != "a bare newline" && name != "length twice" && name != "both" {
			t.Errorf("%s: %d connections", name, n)
		}
		c.Close()
	}
}

// TestIdleConnectionThatWasClosed: it is replaced, and the client does not notice. A connection
// that is closed at each request is an error.
func TestIdleConnectionThatWasClosed(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	accepted := make(chan net.Conn)
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			accepted <- c
		}
	}()
	c := &Client{}
	defer c.Close()
	pass := func() chan error {
		done := make(chan error, 1)
		go func() {
			rec := httptest.NewRecorder()
			_, err := c.Pass(rec, httptest.NewRequestWithContext(t.Context(), "GET", "/", nil), l.Addr().String(), nil, nil)
			if err == nil && rec.Code != 204 {
				err = fmt.Errorf("status %d", rec.Code)
			}
			done <- err
		}()
		return done
	}
	answer := func(conn net.Conn) {
		if _, err := http.ReadRequest(bufio.NewReader(conn)); err != nil {
			t.Error(err)
		}
		io.WriteString(conn, "HTTP/1.1 204 No Content\r\n\r\n")
	}
	first := pass()
	conn := <-accepted
	answer(conn)
	if err := <-first; err != nil {
		t.Fatal(err)
	}
	conn.Close()
	second := pass()
	answer(<-accepted)
	if err := <-second; err != nil {
		t.Error(err)
	}
	c.CloseIdle(l.Addr().String())
	third := pass()
	(<-accepted).Close()
	if err := <-third; err == nil {
		t.Error("no error")
	}
}

// TestIdleConnectionsEnd: idle connections are closed after their time, and their number has a
// bound.
func TestIdleConnectionsEnd(t *testing.T) {
	addr, connections := rawServer(t)
	c := &Client{Keep: 20 * time.Millisecond, MaxIdle: 2}
	defer c.Close()
	for range 5 {
		u, err := c.get(t.Context(), addr, true)
		if err != nil {
			t.Fatal(err)
		}
		defer c.put(addr, u)
	}
	if connections.Load() > 5 {
		t.Error(connections.Load())
	}
	var kept []*upConn
	for range 3 {
		u, err := c.get(t.Context(), addr, true)
		if err != nil {
			t.Fatal(err)
		}
		kept = append(kept, u)
	}
	for _, u := range kept {
		c.put(addr, u)
	}
	c.mu.Lock()
	n := len(c.idle[addr])
	c.mu.Unlock()
	if n > 2 {
		t.Errorf("%d idle", n)
	}
	deadline := time.After(patience)
	for {
		c.mu.Lock()
		n, timer := len(c.idle), c.timer
		c.mu.Unlock()
		if n == 0 && timer == nil {
			return
		}
		select {
		case <-deadline:
			t.Fatal("they stay")
		case <-time.After(time.Millisecond):
		}
	}
}

// TestUnsolicitedResponse: a response that a server sends without a request is not the response to
// the next request.
func TestUnsolicitedResponse(t *testing.T) {
	const answer, unasked = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok", "HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\nforged"
	more := make(chan struct{})
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer conn.Close()
				in := bufio.NewReader(conn)
				if _, err := http.ReadRequest(in); err != nil {
					return
				}
				io.WriteString(conn, answer)
				<-more
				io.WriteString(conn, unasked)
				more <- struct{}{}
				http.ReadRequest(in) // until the other side has closed
			}()
		}
	}()
	c := &Client{}
	defer c.Close()
	for range 3 {
		rec := httptest.NewRecorder()
		if _, err := c.Pass(rec, httptest.NewRequestWithContext(t.Context(), "GET", "/", nil), l.Addr().String(), nil, nil); err != nil || rec.Body.String() != "ok" {
			t.Fatalf("%q %v", rec.Body, err)
		}
		more <- struct{}{}
		<-more
	}
}

// TestReuseAfterAnIdleTime: a connection can be reused after an idle time in which clients are not watched
// yet.
func TestReuseAfterAnIdleTime(t *testing.T) {
	addr, connections := rawServer(t)
	c := &Client{}
	defer c.Close()
	for range 3 {
		rec := httptest.NewRecorder()
		if _, err := c.Pass(rec, httptest.NewRequestWithContext(t.Context(), "GET", "/length", nil), addr, nil, nil); err != nil || rec.Body.String() != "hello" {
			t.Fatalf("%q %v", rec.Body, err)
		}
		<-time.After(unwatched + unwatched/2)
	}
	if n := connections.Load(); n != 1 {
		t.Errorf("%d connections", n)
	}
}
