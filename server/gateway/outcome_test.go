package gateway_test

import (
	"bufio"
	"context"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/weirflow/weir"
)

// TestOutcomesOfConcurrency: a concurrency limit learns how its requests ended, with both clients for
// upstreams.
func TestOutcomesOfConcurrency(t *testing.T) {
	entered := make(chan struct{})
	up := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/missing":
			w.WriteHeader(http.StatusNotFound)
		case "/overloaded":
			w.WriteHeader(http.StatusServiceUnavailable)
		case "/slow":
			<-r.Context().Done()
		case "/left":
			entered <- struct{}{}
			<-r.Context().Done()
		case "/broken": // half of a response
			w.Header().Set("Content-Length", "10")
			io.WriteString(w, "half")
			http.NewResponseController(w).Flush()
			panic(http.ErrAbortHandler)
		case "/dropped": // no response at all
			panic(http.ErrAbortHandler)
		case "/upload":
			io.Copy(io.Discard, r.Body)
		}
	})
	const text = `
limits: { open: { concurrency: { limit: 10 } } }
upstreams: { up: { url: "URL", timeouts: { response: RESPONSE }, health: { failures: 0 } } }
routes: [{ match: /, upstream: up, limits: [open]STALE }]
`
	ask := func(method, path string) func(t *testing.T, front *httptest.Server) {
		return func(t *testing.T, front *httptest.Server) {
			r, err := http.NewRequest(method, front.URL+path, nil)
			if err != nil {
				t.Fatal(err)
			}
			if resp, err := http.DefaultClient.Do(r); err == nil {
				io.Copy(io.Discard, resp.Body)
				resp.Body.Close()
			}
		}
	}
	for name, c := range map[string]struct {
		do   func(t *testing.T, front *httptest.Server)
		want weir.Outcomes
	}{
		"answered":          {ask("GET", "/"), weir.Outcomes{OK: 1}},
		"not found":         {ask("GET", "/missing"), weir.Outcomes{OK: 1}},
		"overloaded":        {ask("GET", "/overloaded"), weir.Outcomes{Dropped: 1}},
		"too slow":          {ask("GET", "/slow"), weir.Outcomes{Dropped: 1}},
		"an answer in part": {ask("GET", "/broken"), weir.Outcomes{Dropped: 1}},
		"no answer":         {ask("POST", "/dropped"), weir.Outcomes{Dropped: 1}},
		"the client leaves": {leaveWaiting(entered), weir.Outcomes{Ignored: 1}},
		"a body in part":    {halfABody, weir.Outcomes{Ignored: 1}},
	} {
		for way, stale := range map[string]string{"direct": "", "by ReverseProxy": ", failed: { stale: 1s }"} {
			t.Run(name+", "+way, func(t *testing.T) {
				response := "5m" // the others must not time out, on a busy machine either
				if name == "too slow" {
					response = "200ms"
				}
				g, front, _ := start(t, strings.NewReplacer("STALE", stale, "RESPONSE", response).Replace(text), up)
				c.do(t, front)
				wantOutcomes(t, g, c.want)
			})
		}
	}
}

// wantOutcomes waits until the given number of requests have ended, and compares how.
func wantOutcomes(t *testing.T, g served, want weir.Outcomes) {
	t.Helper()
	ended := func(o weir.Outcomes) uint64 { return o.OK + o.Ignored + o.Dropped + o.Expired }
	late := time.After(30 * time.Second)
	for {
		got := g.Engine().Counts()[0].Outcomes
		if ended(got) >= ended(want) {
			if got != want {
				t.Errorf("%+v, want %+v", got, want)
			}
			return
		}
		select {
		case <-late:
			t.Fatalf("%+v, want %+v", got, want)
		case <-time.After(time.Millisecond):
		}
	}
}

// leaveWaiting sends a slow request, and leaves when the upstream has it.
func leaveWaiting(entered <-chan struct{}) func(t *testing.T, front *httptest.Server) {
	return func(t *testing.T, front *httptest.Server) {
		ctx, leave := context.WithCancel(t.Context())
		r, err := http.NewRequestWithContext(ctx, "GET", front.URL+"/left", nil)
		if err != nil {
			t.Fatal(err)
		}
		done := make(chan struct{})
		go func() {
			defer close(done)
			http.DefaultClient.Do(r)
		}()
		<-entered
		leave()
		<-done
	}
}

// halfABody announces a body and leaves after a part of it.
func halfABody(t *testing.T, front *httptest.Server) {
	conn, err := net.Dial("tcp", front.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	w := bufio.NewWriter(conn)
	w.WriteString("POST /upload HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\nhalf")
	if err := w.Flush(); err != nil {
		t.Fatal(err)
	}
}
