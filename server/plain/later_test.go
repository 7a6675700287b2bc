package plain

import (
	"bufio"
	"io"
	"net/http"
	"runtime/debug"
	"strings"
	"sync/atomic"
	"testing"
)

// TestLater: the rest of a handler runs after the handler has returned, with its request and its writer, while other
// connections are served; requests that the client has sent ahead wait for it. There is no later rest of a rest.
func TestLater(t *testing.T) {
	loops(t)
	release := make(chan struct{})
	var returned, waiting atomic.Int32
	s, addr := serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/wait" {
			io.WriteString(w, "now")
			return
		}
		if Later(r.Context(), func() {
			if Later(r.Context(), func() { t.Error("the rest of a rest") }) {
				t.Error("Later reports true in the rest")
			}
			waiting.Add(1)
			select {
			case <-release:
			case <-r.Context().Done():
				t.Error("the context ends before the rest")
			}
			w.Header().Set("X-Query", r.URL.RawQuery)
			io.WriteString(w, "later")
		}) {
			returned.Add(1)
			return
		}
		t.Error("Later reports false in a loop")
	}))
	const n = 50
	all := make([]*bufio.Reader, n)
	for i := range all {
		c := dial(t, addr)
		all[i] = bufio.NewReader(c)
		io.WriteString(c, "GET /wait?1 HTTP/1.1\r\nHost: h\r\n\r\nGET / HTTP/1.1\r\nHost: h\r\n\r\n")
	}
	until(t, "all wait", func() bool { return waiting.Load() == n })
	if got := returned.Load(); got != n {
		t.Errorf("%d of %d handlers have returned", got, n)
	}
	other := dial(t, addr)
	if got := ask(t, other, bufio.NewReader(other), "GET / HTTP/1.1\r\nHost: h\r\n\r\n"); got != 200 {
		t.Errorf("another connection: %d", got)
	}
	ended := make(chan error, 1)
	go func() { ended <- s.Shutdown(t.Context()) }()
	until(t, "Shutdown has begun", s.closing.Load)
	select {
	case err := <-ended:
		t.Fatalf("Shutdown returns %v before requests have ended", err)
	default:
	}
	close(release)
	for i, in := range all {
		resp, err := http.ReadResponse(in, nil)
		if err != nil {
			t.Fatal(i, err)
		}
		body, err := io.ReadAll(resp.Body)
		if err != nil || string(body) != "later" || resp.Header.Get("X-Query") != "1" {
			t.Fatalf("%q, %v, %v", body, resp.Header, err)
		}
	}
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

// TestLaterEnds: a rest ends with its client, also one that has sent more, and with the server; one that panics
// closes its connection alone.
func TestLaterEnds(t *testing.T) {
	loops(t)
	began, ended := make(chan struct{}, 1), make(chan struct{}, 1)
	s, addr := serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		Later(r.Context(), func() {
			if r.URL.Path == "/panic" {
				panic("as it is meant")
			}
			if !NoticesHangup(r.Context()) {
				t.Error("a hangup goes unnoticed")
			}
			began <- struct{}{}
			<-r.Context().Done()
			ended <- struct{}{}
		})
	}))
	c := dial(t, addr)
	io.WriteString(c, "GET /panic HTTP/1.1\r\nHost: h\r\n\r\n")
	if got, err := io.ReadAll(c); err != nil || len(got) > 0 {
		t.Errorf("%q, %v", got, err)
	}
	for _, more := range []string{"", strings.Repeat("GET / HTTP/1.1\r\nHost: h\r\n\r\n", 100)} {
		c := dial(t, addr)
		io.WriteString(c, "GET / HTTP/1.1\r\nHost: h\r\n\r\n"+more)
		<-began
		c.Close()
		<-ended
	}
	c = dial(t, addr)
	io.WriteString(c, "GET / HTTP/1.1\r\nHost: h\r\n\r\n")
	<-began
	s.Close()
	<-ended
}

// TestLaterElsewhere: a connection with a goroutine of its own needs no other, and net/http has none.
func TestLaterElsewhere(t *testing.T) {
	_, addr := serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if Later(r.Context(), func() { t.Error("called") }) {
			t.Error("Later reports true")
		}
	}))
	for _, text := range []string{"GET / HTTP/1.1\r\nHost: h\r\n\r\n", "GET / HTTP/1.0\r\n\r\n"} {
		c := dial(t, addr)
		if got := ask(t, c, bufio.NewReader(c), text); got != 200 {
			t.Errorf("%q: %d", text, got)
		}
	}
	if Later(t.Context(), nil) || NoticesHangup(t.Context()) {
		t.Error("a context of no request")
	}
}

// TestStackOfLater: what waits Later has a goroutine without the handler's frames, which began with a small stack.
func TestStackOfLater(t *testing.T) {
	loops(t)
	stack := make(chan string, 1)
	_, addr := serve(t, http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		Later(r.Context(), func() { stack <- string(debug.Stack()) })
	}))
	c := dial(t, addr)
	if got := ask(t, c, bufio.NewReader(c), "GET / HTTP/1.1\r\nHost: h\r\n\r\n"); got != 200 {
		t.Error(got)
	}
	text := <-stack
	if strings.Contains(text, "ServeHTTP(") || strings.Contains(text, "eventloop.") || !strings.Contains(text, "goOnLater") {
		t.Error(text)
	}
}
