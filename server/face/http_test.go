package face

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// pipes is a listener whose connections are in memory.
type pipes struct {
	accepted chan net.Conn
	once     sync.Once
	closed   chan struct{}
}

func (p *pipes) Accept() (net.Conn, error) {
	select {
	case c := <-p.accepted:
		return c, nil
	case <-p.closed:
		return nil, net.ErrClosed
	}
}

func (p *pipes) Close() error { p.once.Do(func() { close(p.closed) }); return nil }

func (p *pipes) Addr() net.Addr { return &net.TCPAddr{} }

// visit opens a connection and sends a text, and returns when the server has ended the connection, with
// what it has sent if the client reads.
func (p *pipes) visit(text string, reads bool) (ended time.Duration, got string) {
	began := time.Now()
	mine, server := net.Pipe()
	p.accepted <- server
	defer mine.Close()
	if text != "" { // a pipe passes on that nothing was written, which no socket does
		_, _ = io.WriteString(mine, text)
	}
	if !reads {
		// the write of one more byte fails when the server has closed its end
		for {
			_ = mine.SetWriteDeadline(time.Now().Add(time.Millisecond))
			if _, err := io.WriteString(mine, "x"); err == io.ErrClosedPipe {
				return time.Since(began), ""
			}
		}
	}
	all, _ := io.ReadAll(mine)
	return time.Since(began), string(all)
}

// serving runs a face with a handler that reads what it is sent and then takes the time of the path, as a
// duration, and returns its listener.
func serving(t *testing.T, open func(net.Listener, http.Handler, *slog.Logger) *HTTP) (*HTTP, *pipes) {
	p := &pipes{accepted: make(chan net.Conn), closed: make(chan struct{})}
	f := open(p, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		name := strings.TrimPrefix(r.URL.Path, "/")
		if !strings.HasPrefix(name, "unread") {
			if _, err := io.ReadAll(r.Body); errors.Is(err, os.ErrDeadlineExceeded) {
				http.Error(w, "the body did not come", http.StatusRequestTimeout)
				return
			} else if err != nil {
				http.Error(w, err.Error(), http.StatusBadRequest)
				return
			}
		}
		if d, err := time.ParseDuration(name); err == nil {
			select {
			case <-time.After(d):
			case <-r.Context().Done():
				http.Error(w, "cancelled", http.StatusServiceUnavailable)
				return
			}
		}
		w.Header().Set("Connection", "close")
		_, _ = w.Write(make([]byte, 1<<20))
	}), slog.New(slog.DiscardHandler))
	served := make(chan error, 1)
	go func() { served <- f.Serve() }()
	t.Cleanup(func() {
		f.Close()
		if err := <-served; err != nil {
			t.Error(err)
		}
	})
	return f, p
}

const rest = " HTTP/1.1\r\nHost: x\r\nContent-Length: 4\r\n\r\n"

// TestSlowClients: a client has its time for the header, the body, and reading the response; a handler
// takes its own time, and is not cancelled when that of the client is over.
func TestSlowClients(t *testing.T) {
	t.Run("net/http", func(t *testing.T) { slowClients(t, NewHTTP, 0, "400 Bad Request") })
	// package plain closes a connection without a complete header, and has net/http wait for a slow body
	t.Run("plain", func(t *testing.T) { slowClients(t, NewPlainHTTP, time.Second, "") })
}

func slowClients(t *testing.T, open func(net.Listener, http.Handler, *slog.Logger) *HTTP, more time.Duration, halfHeader string) {
	t.Helper()
	for name, c := range map[string]struct {
		text   string
		reads  bool
		within time.Duration // of the end of the connection
		want   string
	}{
		"nothing":                            {"", true, clientTime, ""},
		"half a header":                      {"GET /1s HT", true, clientTime, halfHeader},
		"half a body":                        {"POST /1s" + rest + "ab", true, clientTime + more, "408 Request Timeout"},
		"half a body that nobody reads":      {"POST /unread" + rest + "ab", true, clientTime + more, "200 OK"},
		"a response that nobody reads":       {"POST /1s" + rest + "abcd", false, time.Second + clientTime, ""},
		"a handler with a body":              {"POST /1m" + rest + "abcd", true, time.Minute, "200 OK"},
		"a handler without a body":           {"GET /1m HTTP/1.1\r\nHost: x\r\n\r\n", true, time.Minute, "200 OK"},
		"a client that reads nothing, later": {"POST /1m" + rest + "abcd", false, time.Minute + clientTime, ""},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				_, p := serving(t, open)
				took, got := p.visit(c.text, c.reads)
				// net/http lets a client read its error for half a second
				if took < c.within-time.Second || took > c.within+time.Second || !strings.Contains(got, c.want) {
					t.Errorf("%.60q after %v, want %q after %v", got, took, c.want, c.within)
				}
			})
		})
	}
}

// TestSlowClientsAtTheEnd: a shutdown gives clients that have stopped little time, and requests in flight
// as much as they need.
func TestSlowClientsAtTheEnd(t *testing.T) {
	t.Run("net/http", func(t *testing.T) { slowClientsAtTheEnd(t, NewHTTP, "the body did not come", "200 OK") })
	t.Run("plain", func(t *testing.T) { slowClientsAtTheEnd(t, NewPlainHTTP, "", "") })
}

func slowClientsAtTheEnd(t *testing.T, open func(net.Listener, http.Handler, *slog.Logger) *HTTP, halfBody, unreadBody string) {
	t.Helper()
	for name, c := range map[string]struct {
		text   string
		reads  bool
		within time.Duration // of the end of the shutdown
		want   string
	}{
		"nothing":                       {"", true, timeAtEnd, ""},
		"half a header":                 {"GET /1s HT", true, timeAtEnd, ""},
		"half a body":                   {"POST /1s" + rest + "ab", true, timeAtEnd, halfBody},
		"half a body that nobody reads": {"POST /unread" + rest + "ab", true, timeAtEnd, unreadBody},
		"a response that nobody reads":  {"POST /0s" + rest + "abcd", false, timeAtEnd, ""},
		"a request in flight":           {"POST /20s" + rest + "abcd", true, 20 * time.Second, "200 OK"},
		"one without a body":            {"GET /20s HTTP/1.1\r\nHost: x\r\n\r\n", true, 20 * time.Second, "200 OK"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f, p := serving(t, open)
				got := make(chan string, 1)
				go func() {
					_, text := p.visit(c.text, c.reads)
					got <- text
				}()
				synctest.Wait()
				began := time.Now()
				ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
				defer cancel()
				err := f.Shutdown(ctx)
				took, text := time.Since(began), <-got
				if err != nil || took > c.within+time.Second || !strings.Contains(text, c.want) {
					t.Errorf("%v and %.60q after %v, want %q within %v", err, text, took, c.want, c.within)
				}
			})
		})
	}
}

// TestRequestsAsItEnds: a client that connected just before a shutdown gets its response. net/http dropped its request,
// and package plain closed its connection.
func TestRequestsAsItEnds(t *testing.T) {
	for name, open := range map[string]func(net.Listener, http.Handler, *slog.Logger) *HTTP{"net/http": NewHTTP, "plain": NewPlainHTTP} {
		for _, text := range []string{"GET /0s HTTP/1.1\r\nHost: x\r\n\r\n", "POST /0s" + rest + "abcd", "GET /0s HTTP/1.0\r\n\r\n"} {
			t.Run(name+" "+text[:4], func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					f, p := serving(t, open)
					mine, server := net.Pipe()
					defer mine.Close()
					p.accepted <- server
					synctest.Wait()
					ended := make(chan error, 1)
					go func() { ended <- f.Shutdown(t.Context()) }()
					synctest.Wait()
					<-time.After(timeAtEnd / 2)
					if _, err := io.WriteString(mine, text); err != nil {
						t.Fatal(err)
					}
					if got, err := io.ReadAll(mine); err != nil || !strings.Contains(string(got), " 200 OK") {
						t.Errorf("%.60q, %v", got, err)
					}
					if err := <-ended; err != nil {
						t.Error(err)
					}
				})
			})
		}
	}
}
