package plain

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// echo responds with the request that it got.
var echo = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
	typed(w)
	body, err := io.ReadAll(r.Body)
	fmt.Fprintf(w, "%s %s %q %v", r.Method, r.RequestURI, body, err)
})

// ask sends bytes and reads one response, whose status it returns.
func ask(t testing.TB, c net.Conn, in *bufio.Reader, request string) int {
	t.Helper()
	if _, err := io.WriteString(c, request); err != nil {
		t.Fatal(err)
	}
	resp, err := http.ReadResponse(in, nil)
	if err != nil {
		t.Fatalf("%q: %v", request, err)
	}
	if _, err := io.Copy(io.Discard, resp.Body); err != nil {
		t.Fatalf("%q: %v", request, err)
	}
	return resp.StatusCode
}

// TestRestIsHandedOver: plain requests, and then others, on one connection, each handled whole,
// however they are cut into packets.
func TestRestIsHandedOver(t *testing.T) {
	for _, bodies := range []bool{false, true} {
		restIsHandedOver(t, bodies)
	}
}

func restIsHandedOver(t *testing.T, bodies bool) {
	t.Helper()
	_, addr := serveBodies(t, echo, bodies)
	requests := []struct{ bytes, want string }{
		{"GET /1 HTTP/1.1\r\nHost: h\r\n\r\n", `GET /1 "" <nil>`},
		{"DELETE /2 HTTP/1.1\r\nHost: h\r\n\r\n", `DELETE /2 "" <nil>`},
		{"POST /3 HTTP/1.1\r\nHost: h\r\nContent-Length: 3\r\n\r\nabc", `POST /3 "abc" <nil>`},
		{"GET /4 HTTP/1.1\r\nHost: h\r\n\r\n", `GET /4 "" <nil>`},
		{"POST /4 HTTP/1.1\r\nHost: h\r\nContent-Length: 0\r\n\r\n", `POST /4 "" <nil>`},
		{"POST /4 HTTP/1.1\r\nHost: h\r\nContent-Length: 8\r\n\r\n{\n\r\n\r\n}\n", `POST /4 "{\n\r\n\r\n}\n" <nil>`},
		{"POST /4 HTTP/1.1\r\nHost: h\r\nContent-Length: 9000\r\n\r\n" + strings.Repeat("x", 9000), `POST /4 "` + strings.Repeat("x", 9000) + `" <nil>`},
		{"PUT /5 HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nde\r\n0\r\n\r\n", `PUT /5 "de" <nil>`},
	}
	for _, size := range []int{1, 2, 3, 7, 40, 1000} {
		c := dial(t, addr)
		in := bufio.NewReader(c)
		go func() {
			var all strings.Builder
			for _, r := range requests {
				all.WriteString(r.bytes)
			}
			for s := all.String(); s != ""; {
				n := min(size, len(s))
				if _, err := io.WriteString(c, s[:n]); err != nil {
					return
				}
				s = s[n:]
			}
		}()
		for _, r := range requests {
			resp, err := http.ReadResponse(in, nil)
			if err != nil {
				t.Fatal(err)
			}
			if body, err := io.ReadAll(resp.Body); err != nil || string(body) != r.want {
				t.Errorf("%d bytes at a time: %.60q, %v; want %.60q", size, body, err, r.want)
			}
		}
	}
}

// TestRequestsThatAreNotPlainAreServedByNetHTTP: invalid requests get net/http's responses.
func TestRequestsThatAreNotPlainAreServedByNetHTTP(t *testing.T) {
	_, addr := serve(t, echo)
	for request, want := range map[string]int{
		"GET / HTTP/1.1\r\n\r\n":                                                     400,
		"GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n":                               400,
		"GET / HTTP/1.1\r\nHost: a\r\nX : b\r\n\r\n":                                 400,
		"GET / HTTP/1.1\nHost: a\n\n":                                                200,
		"GET / HTTP/1.1\r\nHost: a\r\n\n":                                            200,
		"GET / HTTP/1.0\r\n\r\n":                                                     200,
		"GET / HTTP/9.9\r\nHost: a\r\n\r\n":                                          505,
		"\x16\x03\x01\x00\r\n\r\n":                                                   400,
		"GET /" + strings.Repeat("x", 2*maxHead) + " HTTP/1.1\r\nHost: h\r\n\r\n":    200,
		"GET / HTTP/1.1\r\nHost: h\r\nX: " + strings.Repeat("x", 2<<20) + "\r\n\r\n": 431,
	} {
		c := dial(t, addr)
		go io.WriteString(c, request)
		resp, err := http.ReadResponse(bufio.NewReader(c), nil)
		if err != nil || resp.StatusCode != want {
			t.Errorf("%.60q: %v %v, want %d", request, resp, err, want)
		}
	}
}

// TestClientLeaves: a handler that waits for Done learns that the client has left. For other
// handlers nothing watches.
func TestClientLeaves(t *testing.T) {
	left := make(chan error, 1)
	arrived := make(chan struct{})
	_, addr := serve(t, http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		ctx, cancel := context.WithTimeout(r.Context(), time.Hour)
		defer cancel()
		done := ctx.Done()
		close(arrived)
		<-done
		left <- r.Context().Err()
	}))
	c := dial(t, addr)
	io.WriteString(c, "GET / HTTP/1.1\r\nHost: h\r\n\r\n")
	<-arrived
	c.Close()
	if err := <-left; !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
}

// TestNextRequestWhileWatched: the bytes of the next requests that come while a connection is watched are not lost.
func TestNextRequestWhileWatched(t *testing.T) {
	release := make(chan struct{})
	_, addr := serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		typed(w)
		select {
		case <-release:
		case <-r.Context().Done():
			t.Error("gone")
		}
		io.WriteString(w, r.RequestURI)
	}))
	c := dial(t, addr)
	in := bufio.NewReader(c)
	const n = 20
	for i := range n {
		fmt.Fprintf(c, "GET /%d HTTP/1.1\r\nHost: h\r\n\r\n", i)
	}
	go func() {
		for range n {
			release <- struct{}{}
		}
	}()
	for i := range n {
		resp, err := http.ReadResponse(in, nil)
		if err != nil {
			t.Fatal(err)
		}
		if body, err := io.ReadAll(resp.Body); err != nil || string(body) != fmt.Sprintf("/%d", i) {
			t.Fatalf("%d: %q %v", i, body, err)
		}
	}
}

// TestContextEnds: a request's context ends with the request, whether its Done was called before or
// not; those of other requests do not.
func TestContextEnds(t *testing.T) {
	contexts := make(chan context.Context, 4)
	_, addr := serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.RequestURI == "/asked" {
			r.Context().Done()
		}
		if err := r.Context().Err(); err != nil {
			t.Error(err)
		}
		contexts <- r.Context()
	}))
	c := dial(t, addr)
	in := bufio.NewReader(c)
	for _, path := range []string{"/", "/asked", "/", "/asked"} {
		if status := ask(t, c, in, "GET "+path+" HTTP/1.1\r\nHost: h\r\n\r\n"); status != 200 {
			t.Error(status)
		}
	}
	for range 4 {
		ctx := <-contexts
		select {
		case <-ctx.Done():
		case <-time.After(patience):
			t.Error("it has not ended")
		}
		if !errors.Is(ctx.Err(), context.Canceled) {
			t.Error(ctx.Err())
		}
	}
}

// TestShutdown: requests in flight get their responses, idle connections are closed, and no more
// are accepted.
func TestShutdown(t *testing.T) {
	arrived, release := make(chan struct{}), make(chan struct{})
	s, addr := serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.RequestURI == "/slow" {
			close(arrived)
			<-release
		}
		echo(w, r)
	}))
	idle, fresh, busy := dial(t, addr), dial(t, addr), dial(t, addr)
	inIdle := bufio.NewReader(idle)
	ask(t, idle, inIdle, "GET / HTTP/1.1\r\nHost: h\r\n\r\n")
	io.WriteString(busy, "GET /slow HTTP/1.1\r\nHost: h\r\n\r\n")
	<-arrived
	var ended atomic.Bool
	var wg sync.WaitGroup
	wg.Go(func() {
		if err := s.Shutdown(t.Context()); err != nil {
			t.Error(err)
		}
		ended.Store(true)
	})
	for _, c := range []net.Conn{idle, fresh} {
		if n, err := c.Read(make([]byte, 1)); n > 0 || !errors.Is(err, io.EOF) {
			t.Errorf("idle: %d %v", n, err)
		}
	}
	if ended.Load() {
		t.Error("it did not wait for the request in flight")
	}
	close(release)
	resp, err := http.ReadResponse(bufio.NewReader(busy), nil)
	if err != nil || resp.StatusCode != 200 || !resp.Close {
		t.Errorf("%+v %v", resp, err)
	}
	wg.Wait()
	if c, err := net.Dial("tcp", addr); err == nil {
		defer c.Close()
		if _, err := c.Read(make([]byte, 1)); err == nil {
			t.Error("it still serves")
		}
	}
}

// TestShutdownGivesUp: Shutdown returns although a request does not end.
func TestShutdownGivesUp(t *testing.T) {
	arrived := make(chan struct{})
	s, addr := serve(t, http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		close(arrived)
		<-r.Context().Done()
	}))
	c := dial(t, addr)
	io.WriteString(c, "GET / HTTP/1.1\r\nHost: h\r\n\r\n")
	<-arrived
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := s.Shutdown(ctx); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
}

// TestShutdownOfIdleConnections: Shutdown does not wait for idle connections, however short its
// time is.
func TestShutdownOfIdleConnections(t *testing.T) {
	s, addr := serve(t, echo)
	for range 20 {
		c := dial(t, addr)
		ask(t, c, bufio.NewReader(c), "GET / HTTP/1.1\r\nHost: h\r\n\r\n")
	}
	deadline := time.After(patience)
	for s.isBusy() { // until the goroutine of the last one is back
		select {
		case <-deadline:
			t.Fatal("still busy")
		case <-time.After(time.Millisecond):
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := s.Shutdown(ctx); err != nil {
		t.Error(err)
	}
}

// TestShutdownDuringAHead: a client that has sent half a head does not hold Shutdown up for as long as a head may
// take, also if more of it comes now and then. One that sends the rest soon gets its response.
func TestShutdownDuringAHead(t *testing.T) {
	s, addr := serve(t, echo)
	stops, trickles, soon := dial(t, addr), dial(t, addr), dial(t, addr)
	for _, c := range []net.Conn{stops, trickles, soon} {
		in := bufio.NewReader(c)
		ask(t, c, in, "GET / HTTP/1.1\r\nHost: h\r\n\r\n")
	}
	busy := func() (n int) {
		s.mu.Lock()
		defer s.mu.Unlock()
		for c := range s.conns {
			if c.busy.Load() {
				n++
			}
		}
		return n
	}
	until(t, "no request is served", func() bool { return busy() == 0 })
	for _, c := range []net.Conn{stops, trickles, soon} {
		io.WriteString(c, "GET / HTTP/1.1\r\nHo")
	}
	until(t, "the halves are read", func() bool { return busy() == 3 })
	began, ended := time.Now(), make(chan error, 1)
	go func() { ended <- s.Shutdown(t.Context()) }()
	go func() {
		for range 30 {
			time.Sleep(100 * time.Millisecond)
			if _, err := io.WriteString(trickles, "s"); err != nil {
				return
			}
		}
	}()
	until(t, "Shutdown has begun", s.closing.Load)
	io.WriteString(soon, "st: h\r\n\r\n")
	resp, err := http.ReadResponse(bufio.NewReader(soon), nil)
	if err != nil || resp.StatusCode != 200 || !resp.Close {
		t.Errorf("the rest of a head that came soon: %+v %v", resp, err)
	}
	select {
	case err := <-ended:
		if took := time.Since(began); err != nil || took > defaultHead/2 {
			t.Errorf("%v after %v", err, took)
		}
	case <-time.After(2 * defaultHead):
		t.Fatal("Shutdown waits for a client that has stopped")
	}
}

// TestShutdownOfNewConnections: a client that has connected just before Shutdown, or connects while it begins, cannot
// know that the server ends. It has a second for its request, also for one that net/http serves. A connection that
// had its request ends at once. They were closed, and the client had no response.
func TestShutdownOfNewConnections(t *testing.T) {
	for _, text := range []string{"GET / HTTP/1.1\r\nHost: h\r\n\r\n", "GET / HTTP/1.0\r\n\r\n"} {
		s, addr := serve(t, echo)
		soon, never, had := dial(t, addr), dial(t, addr), dial(t, addr)
		ask(t, had, bufio.NewReader(had), "GET / HTTP/1.1\r\nHost: h\r\n\r\n")
		began, ended := time.Now(), make(chan error, 1)
		go func() { ended <- s.Shutdown(t.Context()) }()
		until(t, "Shutdown has begun", s.closing.Load)
		if _, err := had.Read(make([]byte, 1)); err != io.EOF {
			t.Errorf("a connection that had its request: %v", err)
		}
		io.WriteString(soon, text)
		resp, err := http.ReadResponse(bufio.NewReader(soon), nil)
		if err != nil || resp.StatusCode != 200 || !resp.Close {
			t.Errorf("%q: %+v %v", text, resp, err)
		}
		select {
		case err := <-ended:
			if took := time.Since(began); err != nil || took > defaultHead/2 {
				t.Errorf("%v after %v", err, took)
			}
		case <-time.After(2 * defaultHead):
			t.Fatal("Shutdown waits for a client that sends nothing")
		}
		if _, err := never.Read(make([]byte, 1)); err == nil {
			t.Error("a response to nothing")
		}
	}
}

// TestTimes: a client that sends nothing, or never completes a head, is disconnected.
func TestTimes(t *testing.T) {
	s := &Server{HTTP: &http.Server{Handler: echo, IdleTimeout: 50 * time.Millisecond, ReadHeaderTimeout: 50 * time.Millisecond}}
	l, err := listens()
	if err != nil {
		t.Fatal(err)
	}
	go s.Serve(l)
	defer s.Close()
	for _, begin := range []string{"", "GET / HTT", "GET / HTTP/1.1\r\nHost: h\r\n"} {
		c := dial(t, l.Addr().String())
		io.WriteString(c, begin)
		if n, err := c.Read(make([]byte, 1)); n > 0 || err == nil {
			t.Errorf("%q: %d %v", begin, n, err)
		}
	}
}

// TestStates: the server reports the same states as net/http: each connection that began ends, here
// or after the handover.
func TestStates(t *testing.T) {
	var open atomic.Int64
	var began atomic.Int64
	s := &Server{HTTP: &http.Server{Handler: echo, ConnState: func(_ net.Conn, to http.ConnState) {
		switch to {
		case http.StateNew:
			open.Add(1)
			began.Add(1)
		case http.StateClosed, http.StateHijacked:
			open.Add(-1)
		}
	}}}
	l, err := listens()
	if err != nil {
		t.Fatal(err)
	}
	go s.Serve(l)
	defer s.Close()
	for i := range 10 {
		c := dial(t, l.Addr().String())
		method := "GET"
		if i%2 == 0 {
			method = "POST"
		}
		if status := ask(t, c, bufio.NewReader(c), method+" / HTTP/1.1\r\nHost: h\r\nContent-Length: 0\r\n\r\n"); status != 200 {
			t.Error(status)
		}
		c.Close()
	}
	deadline := time.After(patience)
	for open.Load() != 0 {
		select {
		case <-deadline:
			t.Fatalf("%d open of %d", open.Load(), began.Load())
		case <-time.After(time.Millisecond):
		}
	}
}

// TestIdleForAWhile: a connection that has moved to another goroutine is served as before, and ends
// with the server.
func TestIdleForAWhile(t *testing.T) {
	s, addr := serve(t, echo)
	asleep := func(want int) {
		t.Helper()
		deadline := time.After(patience)
		for n := -1; n != want; {
			select {
			case <-deadline:
				t.Fatalf("%d connections asleep, want %d", n, want)
			case <-time.After(10 * time.Millisecond):
			}
			n = strings.Count(stacks(), "/plain.(*conn).goOn in goroutine") // in a line "created by"
		}
	}
	c := dial(t, addr)
	in := bufio.NewReader(c)
	for range 2 {
		if status := ask(t, c, in, "GET / HTTP/1.1\r\nHost: h\r\n\r\n"); status != 200 {
			t.Error(status)
		}
		asleep(1)
	}
	if err := s.Shutdown(t.Context()); err != nil {
		t.Error(err)
	}
	if n, err := c.Read(make([]byte, 1)); n > 0 || !errors.Is(err, io.EOF) {
		t.Errorf("%d %v", n, err)
	}
	asleep(0)
}

// stacks returns the stacks of all goroutines.
func stacks() string {
	b := make([]byte, 1<<20)
	return string(b[:runtime.Stack(b, true)])
}

// TestSlowBodyIsHandedOver: a client that sends a short body byte by byte is served by net/http soon, whose
// bounds in time count from then on. It cannot keep its connection here by sending a byte now and then.
func TestSlowBodyIsHandedOver(t *testing.T) {
	began := make(chan struct{})
	_, addr := serveBodies(t, http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		close(began)
		<-r.Context().Done()
	}), true)
	c := dial(t, addr)
	io.WriteString(c, "POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 8000\r\n\r\n")
	ticker := time.NewTicker(10 * time.Millisecond) // 80 s for all of the body
	defer ticker.Stop()
	end := time.After(patience)
	for {
		select {
		case <-began: // without a whole body: by net/http
			return
		case <-end:
			t.Fatal("the body is still awaited")
		case <-ticker.C:
			io.WriteString(c, "x")
		}
	}
}
