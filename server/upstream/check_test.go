package upstream

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirflow/weir/policy"
)

// pipes dials servers in memory: answer returns what each writes to a request, and empty for a
// refused connection.
func pipes(asked *atomic.Int64, answer func(addr string, r *http.Request) string) func(context.Context, string, string) (net.Conn, error) {
	return func(ctx context.Context, _, addr string) (net.Conn, error) {
		if answer(addr, nil) == "" {
			return nil, errors.New("connection refused")
		}
		here, there := net.Pipe()
		go func() {
			defer there.Close()
			in := bufio.NewReader(there)
			for {
				r, err := http.ReadRequest(in)
				if err != nil {
					return
				}
				io.Copy(io.Discard, r.Body)
				asked.Add(1)
				text := answer(addr, r)
				if text == "silence" {
					io.Copy(io.Discard, in) // until the other side closes
					return
				}
				if _, err := io.WriteString(there, text); err != nil || text == "" {
					return
				}
			}
		}()
		return here, nil
	}
}

const good = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"

// TestChecks: a target is down after a number of failed checks in a row, and up after a number of
// good ones.
func TestChecks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var says atomic.Value
		says.Store(good)
		var asked atomic.Int64
		var host atomic.Value
		log := new(bytes.Buffer)
		set := NewSet(Options{Log: slog.New(slog.NewTextHandler(log, nil)), Dial: pipes(&asked, func(addr string, r *http.Request) string {
			if addr == "b:80" {
				return good
			}
			if r != nil {
				host.Store(r.Host + r.URL.Path + " " + r.UserAgent())
			}
			return says.Load().(string)
		})})
		u := policy.Upstream{Name: "up", Targets: targets(1, 1), Health: policy.Health{Path: "/healthz", Host: "shop.example", Every: 10 * time.Second, DownAfter: 3, UpAfter: 2}}
		c, err := set.Prepare([]Spec{{Upstream: u}})
		if err != nil {
			t.Fatal(err)
		}
		c.Commit()
		up := func() bool { return set.Stats()[0].Targets[0].Up }
		after := func(d time.Duration) {
			<-time.After(d)
			synctest.Wait()
		}
		synctest.Wait() // the first checks come at once
		if asked.Load() != 2 || !up() || host.Load() != "shop.example/healthz weir-health" {
			t.Fatal(asked.Load(), up(), host.Load())
		}
		for _, bad := range []string{"HTTP/1.1 503 No\r\nContent-Length: 0\r\n\r\n", "", "silence", "HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nok", "nonsense\r\n\r\n"} {
			says.Store(bad)
			after(25 * time.Second) // two failures, and one in time without a response
			if !up() {
				t.Errorf("%q: out too early", bad)
			}
			after(10 * time.Second)
			if up() {
				t.Errorf("%q: not out", bad)
			}
			for range 4 {
				if e, err := set.Get("up").Pick(); err != nil || e.Target.URL().Host != "b" {
					t.Errorf("%q: a request went to a target that is out", bad)
				} else {
					e.Done(Answered, "")
				}
			}
			says.Store(good)
			after(13 * time.Second)
			if up() {
				t.Errorf("%q: back too early", bad)
			}
			after(12 * time.Second)
			if !up() {
				t.Errorf("%q: not back", bad)
			}
		}
		// A change of something else does not affect the checks. One that removes the path ends
		// them, and no target stays down by them.
		says.Store("")
		after(40 * time.Second)
		before := asked.Load()
		u.MaxRequests = 7
		c, _ = set.Prepare([]Spec{{Upstream: u}})
		c.Commit()
		synctest.Wait()
		if up() || asked.Load() != before {
			t.Error("a change began the checks anew")
		}
		u.Health = policy.Health{}
		c, _ = set.Prepare([]Spec{{Upstream: u}})
		c.Commit()
		after(time.Minute)
		if !up() || asked.Load() != before {
			t.Error("the checks go on")
		}
		set.Close()
		if text := log.String(); strings.Count(text, "is down") != 6 || strings.Count(text, "is up") != 5 || !strings.Contains(text, "its health check: status 503") ||
			!strings.Contains(text, "no response in time") || !strings.Contains(text, "connection refused") {
			t.Error(text)
		}
	})
}

// TestCloseEndsChecks: the bubble fails if a goroutine is left.
func TestCloseEndsChecks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var asked atomic.Int64
		set := NewSet(Options{Log: slog.New(slog.DiscardHandler), Dial: pipes(&asked, func(string, *http.Request) string { return "silence" })})
		c, err := set.Prepare([]Spec{{Upstream: policy.Upstream{Name: "up", URL: "http://a", Health: policy.Health{Path: "/"}}}})
		if err != nil {
			t.Fatal(err)
		}
		c.Commit()
		synctest.Wait()
		set.Close() // while a check waits for its response
	})
}
