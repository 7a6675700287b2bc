package plain

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/weirflow/weir/server/eventloop"
)

// patience is how long a test waits for what must happen.
const patience = 30 * time.Second

// inLoops is set while tests run again for connections in loops, allLater while all that handlers do is done
// Later, and allReused while all requests are.
var inLoops, allLater, allReused bool

func handlerOf(h http.Handler) http.Handler {
	later, reused := allLater, allReused
	serve := func(w http.ResponseWriter, r *http.Request) {
		if reused {
			Reuse(r.Context())
		}
		h.ServeHTTP(w, r)
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !later || !Later(r.Context(), func() { serve(w, r) }) {
			serve(w, r)
		}
	})
}

// listens returns a listener for a Server.
func listens() (net.Listener, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil || !inLoops {
		return l, err
	}
	return eventloop.Listener(l), nil
}

// serve starts a server with a handler, and ends it with the test.
func serve(t testing.TB, h http.Handler) (*Server, string) {
	t.Helper()
	return serveBodies(t, h, false)
}

// serveBodies does so with a server that has Bodies, or has not.
func serveBodies(t testing.TB, h http.Handler, bodies bool) (*Server, string) {
	t.Helper()
	s := &Server{Bodies: bodies, HTTP: &http.Server{Handler: handlerOf(h), ErrorLog: slog.NewLogLogger(slog.DiscardHandler, slog.LevelDebug)}}
	l, err := listens()
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- s.Serve(l) }()
	t.Cleanup(func() {
		s.Close()
		if err := <-ended; !errors.Is(err, http.ErrServerClosed) {
			t.Error(err)
		}
		s.open.Wait()
	})
	return s, l.Addr().String()
}

// serveNetHTTP does so with net/http's server.
func serveNetHTTP(t testing.TB, h http.Handler) string {
	t.Helper()
	s := &http.Server{Handler: h, ErrorLog: slog.NewLogLogger(slog.DiscardHandler, slog.LevelDebug)}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	go s.Serve(l)
	t.Cleanup(func() { s.Close() })
	return l.Addr().String()
}

// dial connects, and gives up reading after a while.
func dial(t testing.TB, addr string) net.Conn {
	t.Helper()
	c, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	c.SetDeadline(time.Now().Add(patience))
	return c
}

// handlers are kinds of handlers; each responds in the same way on both servers.
var handlers = map[string]http.HandlerFunc{
	"nothing": func(http.ResponseWriter, *http.Request) {},
	"short":   func(w http.ResponseWriter, _ *http.Request) { typed(w); io.WriteString(w, "hello") },
	"length": func(w http.ResponseWriter, _ *http.Request) {
		typed(w)
		w.Header().Set("Content-Length", "5")
		w.WriteHeader(429)
		io.WriteString(w, "hello")
	},
	"long": func(w http.ResponseWriter, _ *http.Request) {
		typed(w)
		io.WriteString(w, strings.Repeat("x", 100_000))
	},
	"many parts": func(w http.ResponseWriter, _ *http.Request) { typed(w); parts(w, 10_000, 17) },
	"long, announced": func(w http.ResponseWriter, _ *http.Request) {
		typed(w)
		w.Header().Set("Content-Length", "170000")
		parts(w, 10_000, 17)
	},
	"large parts": func(w http.ResponseWriter, _ *http.Request) {
		typed(w)
		for _, n := range []int{0, 1, outSize - chunkRoom, outSize, 3 * outSize, 5} {
			parts(w, 1, n)
		}
	},
	"flushed": func(w http.ResponseWriter, _ *http.Request) {
		typed(w)
		for range 3 {
			io.WriteString(w, "part")
			w.(http.Flusher).Flush()
		}
		w.(http.Flusher).Flush()
	},
	"flushed before": func(w http.ResponseWriter, _ *http.Request) {
		typed(w)
		w.(http.Flusher).Flush()
		io.WriteString(w, "x")
	},
	"status":     func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(503) },
	"no content": func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(204) },
	"no content, body": func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(204)
		if _, err := io.WriteString(w, "x"); !errors.Is(err, http.ErrBodyNotAllowed) {
			panic(fmt.Sprint("written: ", err))
		}
	},
	"not modified": func(w http.ResponseWriter, _ *http.Request) { w.Header().Set("Etag", `"x"`); w.WriteHeader(304) },
	"twice":        func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(404); w.WriteHeader(200) },
	"too much": func(w http.ResponseWriter, _ *http.Request) {
		typed(w)
		w.Header().Set("Content-Length", "3")
		io.WriteString(w, "abc")
		if _, err := io.WriteString(w, "d"); !errors.Is(err, http.ErrContentLength) {
			panic(fmt.Sprint("written: ", err))
		}
	},
	"too little": func(w http.ResponseWriter, _ *http.Request) {
		typed(w)
		w.Header().Set("Content-Length", "9")
		io.WriteString(w, "abc")
	},
	"trailers": func(w http.ResponseWriter, _ *http.Request) {
		typed(w)
		w.Header().Set("Trailer", "X-Sum, x-more")
		io.WriteString(w, "abc")
		w.Header().Set("X-Sum", "1")
		w.Header().Set("X-More", "2")
	},
	"trailers, unannounced": func(w http.ResponseWriter, _ *http.Request) {
		typed(w)
		io.WriteString(w, "abc")
		w.(http.Flusher).Flush()
		w.Header().Set(http.TrailerPrefix+"X-Sum", "1")
	},
	"close": func(w http.ResponseWriter, _ *http.Request) {
		typed(w)
		w.Header().Set("Connection", "close")
		io.WriteString(w, "bye")
	},
	"early hints": func(w http.ResponseWriter, _ *http.Request) {
		typed(w)
		w.Header().Set("Link", "</x>")
		w.WriteHeader(103)
		io.WriteString(w, "x")
	},
	"own date": func(w http.ResponseWriter, _ *http.Request) { typed(w); w.Header().Set("Date", "long ago") },
	"split": func(w http.ResponseWriter, _ *http.Request) {
		typed(w)
		w.Header().Set("X", "a\r\nSet-Cookie: b=c")
		w.Header()["Bad Name"] = []string{"x"}
	},
	"many fields": func(w http.ResponseWriter, _ *http.Request) { typed(w); manyFields(w.Header(), 60) },
	"large fields": func(w http.ResponseWriter, _ *http.Request) {
		typed(w)
		w.Header().Set("X", strings.Repeat("y", 3*outSize))
		w.Header().Set("Content-Length", "3")
		io.WriteString(w, "abc")
	},
	"several values": func(w http.ResponseWriter, _ *http.Request) {
		typed(w)
		w.Header()["Set-Cookie"] = []string{"a=b", "c=d"}
	},
	"abort": func(w http.ResponseWriter, _ *http.Request) { panic(http.ErrAbortHandler) },
	"abort midway": func(w http.ResponseWriter, _ *http.Request) {
		typed(w)
		io.WriteString(w, "abc")
		w.(http.Flusher).Flush()
		panic(http.ErrAbortHandler)
	},
	"panic": func(w http.ResponseWriter, _ *http.Request) { panic("oh") },
	"request": func(w http.ResponseWriter, r *http.Request) {
		typed(w)
		n, err := io.Copy(io.Discard, r.Body)
		addr, _ := r.Context().Value(http.LocalAddrContextKey).(net.Addr)
		fmt.Fprintln(w, r.Method, r.URL, r.RequestURI, r.Proto, r.Host, r.Header, n, err, r.ContentLength, addr != nil, r.Context().Value(http.ServerContextKey) != nil)
	},
	"done after": func(w http.ResponseWriter, r *http.Request) {
		typed(w)
		ctx, cancel := context.WithTimeout(r.Context(), time.Hour)
		defer cancel()
		io.WriteString(w, fmt.Sprint(ctx.Err(), r.Context().Err()))
	},
}

func typed(w http.ResponseWriter) { w.Header().Set("Content-Type", "text/plain") }

func parts(w io.Writer, n, size int) {
	for i := range n {
		io.WriteString(w, strings.Repeat(string(rune('a'+i%26)), size))
	}
}

func manyFields(h http.Header, n int) {
	for i := range n {
		h.Set(fmt.Sprintf("X-%d", i), "y")
	}
}

// TestLikeNetHTTP: clients get the same responses as from net/http, one by one on one connection.
func TestLikeNetHTTP(t *testing.T) {
	mux := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if name, _ := strings.CutPrefix(r.URL.Path, "/"); handlers[name] != nil {
			handlers[name](w, r)
		}
	})
	_, ours := serveBodies(t, mux, true)
	theirs := serveNetHTTP(t, mux)
	for name := range handlers {
		for _, method := range []string{"GET", "HEAD", "DELETE", "POST"} {
			for _, field := range []string{"", "Connection: close\r\n", "Cookie: a=b\r\nConnection: keep-alive\r\n"} {
				text := ""
				if method == "POST" {
					text = "a=b&c=d"
					field += "Content-Length: 7\r\n"
				}
				request := fmt.Sprintf("%s /%s HTTP/1.1\r\nHost: h\r\n%s\r\n%s", method, strings.ReplaceAll(name, " ", "%20"), field, text)
				got, want := responsesOf(t, ours, request), responsesOf(t, theirs, request)
				if got != want {
					t.Errorf("%q:\ngot\n%s\nwant\n%s", request, got, want)
				}
			}
		}
	}
}

// responsesOf returns the responses of a server to a request that is sent twice and followed by another,
// all at once.
func responsesOf(t *testing.T, addr, request string) string {
	t.Helper()
	c := dial(t, addr)
	method, _, _ := strings.Cut(request, " ")
	last := method + " /nothing HTTP/1.1\r\nHost: h\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
	if _, err := io.WriteString(c, request+request+last); err != nil {
		t.Fatal(err)
	}
	var b strings.Builder
	in := bufio.NewReader(c)
	for {
		resp, err := http.ReadResponse(in, &http.Request{Method: method})
		if err != nil {
			fmt.Fprintln(&b, "end:", err)
			return b.String()
		}
		body, err := io.ReadAll(resp.Body)
		if date := resp.Header.Get("Date"); date != "long ago" {
			if _, err := http.ParseTime(date); err != nil && resp.StatusCode >= 200 {
				t.Errorf("%q: Date: %q", request, date)
			}
			resp.Header.Del("Date")
		}
		fmt.Fprintln(&b, resp.Proto, resp.Status, resp.TransferEncoding, resp.ContentLength, resp.Close, err, len(body), string(body[:min(len(body), 300)]))
		for _, name := range slices.Sorted(maps.Keys(resp.Header)) {
			fmt.Fprintf(&b, "%s: %.200q\n", name, resp.Header[name])
		}
		fmt.Fprintln(&b, resp.Trailer)
	}
}
