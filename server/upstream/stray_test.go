package upstream

import (
	"bufio"
	"context"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/weirflow/weir/internal/rawserver"
	"github.com/weirflow/weir/policy"
)

// strayServer sends bytes after a response without a body, once the next request has come on the
// connection: they look like the response to it.
func strayServer(t *testing.T, head string) string {
	t.Helper()
	return "http://" + rawserver.Start(t, func(conn net.Conn, in *bufio.Reader) {
		for {
			r, err := http.ReadRequest(in)
			if err != nil {
				return
			}
			if r.URL.Path != "/bodiless" {
				io.WriteString(conn, "HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\ngood")
				continue
			}
			io.WriteString(conn, head)
			if _, err := http.ReadRequest(in); err != nil {
				return
			}
			io.WriteString(conn, "HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\npoison")
		}
	})
}

// TestStrayBodies: a server that sends a body where there must be none does not choose the response
// to the next request, however late the body comes.
func TestStrayBodies(t *testing.T) {
	for name, c := range map[string]struct{ method, head string }{
		"HEAD":         {"HEAD", "HTTP/1.1 200 OK\r\nContent-Length: 44\r\n\r\n"},
		"HEAD chunked": {"HEAD", "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"},
		"304":          {"GET", "HTTP/1.1 304 Not Modified\r\nContent-Length: 44\r\n\r\n"},
		"204":          {"GET", "HTTP/1.1 204 No Content\r\nContent-Length: 44\r\n\r\n"},
	} {
		for way, send := range map[string]func(u *Upstream, r *http.Request) (string, error){
			"direct": func(u *Upstream, r *http.Request) (string, error) {
				d, ok := u.Direct(r)
				if !ok {
					t.Fatal("the request is not plain")
				}
				rec := httptest.NewRecorder()
				_, err := d.Pass(rec, r, nil)
				return rec.Body.String(), err
			},
			"net/http": func(u *Upstream, r *http.Request) (string, error) {
				resp, err := u.RoundTrip(r)
				if err != nil {
					return "", err
				}
				defer resp.Body.Close()
				b, err := io.ReadAll(resp.Body)
				return string(b), err
			},
		} {
			t.Run(name+"/"+way, func(t *testing.T) {
				ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
				defer cancel()
				u := over(t, policy.Upstream{}, &raw{url: strayServer(t, c.head)})
				for range 3 {
					for _, step := range []struct{ method, path, want string }{{"GET", "/good", "good"}, {c.method, "/bodiless", ""}, {"GET", "/good", "good"}} {
						r := httptest.NewRequestWithContext(ctx, step.method, step.path, nil)
						r.Body = http.NoBody
						if got, err := send(u, r); err != nil || got != step.want {
							t.Fatalf("%s %s: %q, %v", step.method, step.path, got, err)
						}
					}
				}
			})
		}
	}
}

// TestConnectionsAreReused: after responses that declare no body, and over HTTP/2 after all.
func TestConnectionsAreReused(t *testing.T) {
	for name, c := range map[string]struct {
		protocol string
		http2    bool
	}{"HTTP/1": {"", false}, "h2c": {"h2c", true}} {
		t.Run(name, func(t *testing.T) {
			var mu sync.Mutex
			peers := map[string]bool{}
			s := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				mu.Lock()
				defer mu.Unlock()
				peers[r.RemoteAddr] = true
				if strings.HasPrefix(r.URL.Path, "/304") {
					w.WriteHeader(http.StatusNotModified)
				}
			}))
			s.Config.Protocols = new(http.Protocols)
			s.Config.Protocols.SetHTTP1(true)
			s.Config.Protocols.SetUnencryptedHTTP2(true)
			s.Start()
			t.Cleanup(s.Close)
			u := over(t, policy.Upstream{Protocol: c.protocol}, &raw{url: s.URL})
			for range 5 {
				for _, method := range []string{"GET", "HEAD"} {
					if method == "HEAD" && !c.http2 {
						continue
					}
					r := httptest.NewRequestWithContext(t.Context(), method, "/304", nil)
					resp, err := u.RoundTrip(r)
					if err != nil {
						t.Fatal(err)
					}
					resp.Body.Close()
				}
			}
			if len(peers) != 1 {
				t.Errorf("%d connections", len(peers))
			}
		})
	}
}

// TestNoRequestBetweenAResponseAndItsCheck: net/http keeps a connection after 304 before it returns the
// response. A request that gets the connection in between waits, and then uses another one: it got
// what the server had sent after the 304.
func TestNoRequestBetweenAResponseAndItsCheck(t *testing.T) {
	url, base := strayServer(t, "HTTP/1.1 304 Not Modified\r\nContent-Length: 44\r\n\r\n"), &http.Transport{}
	defer base.CloseIdleConnections()
	var guard strayGuard
	kept, goOn := make(chan struct{}), make(chan struct{})
	slow := roundTripper(func(r *http.Request) (*http.Response, error) {
		resp, err := base.RoundTrip(r)
		close(kept)
		<-goOn
		return resp, err
	})
	send := func(by http.RoundTripper, path string) string {
		r, err := http.NewRequestWithContext(t.Context(), "GET", url+path, nil)
		if err != nil {
			t.Error(err)
			return ""
		}
		resp, err := guard.roundTrip(by, r, true)
		if err != nil {
			t.Error(err)
			return ""
		}
		defer resp.Body.Close()
		b, _ := io.ReadAll(resp.Body)
		return string(b)
	}
	var wg sync.WaitGroup
	wg.Go(func() { send(slow, "/bodiless") })
	<-kept
	next := make(chan string, 1)
	wg.Go(func() { next <- send(base, "/good") })
	for guard.waiting.Load() == 0 && len(next) == 0 {
		runtime.Gosched()
	}
	close(goOn)
	wg.Wait()
	if got := <-next; got != "good" {
		t.Errorf("the next request got %q", got)
	}
	if len(guard.exchanges) != 0 {
		t.Errorf("%d exchanges are left", len(guard.exchanges))
	}
}
