package upstream

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/weirflow/weir/internal/rawserver"
	"github.com/weirflow/weir/policy"
)

// raw is a server that reads requests and writes exactly the given texts. An empty text closes the
// connection, and so does one that ends with "!".
type raw struct {
	url   string
	asked atomic.Int64
	mu    sync.Mutex
	got   []string // methods and bodies
}

func serve(t *testing.T, say string) *raw {
	t.Helper()
	s := &raw{}
	s.url = "http://" + rawserver.Start(t, func(conn net.Conn, in *bufio.Reader) { s.talk(conn, in, say) })
	return s
}

func (s *raw) talk(conn net.Conn, in *bufio.Reader, say string) {
	for {
		r, err := http.ReadRequest(in)
		if err != nil {
			return
		}
		s.asked.Add(1)
		if say == "unread" {
			return
		}
		body, _ := io.ReadAll(r.Body)
		s.mu.Lock()
		s.got = append(s.got, r.Method+" "+string(body))
		s.mu.Unlock()
		text, ends := strings.CutSuffix(say, "!")
		io.WriteString(conn, text)
		if text == "" || ends {
			return
		}
	}
}

// nobody is a port without a listener.
func nobody(t *testing.T) *raw {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return &raw{url: "http://" + l.Addr().String()}
}

// over makes an upstream of these servers. The first one gets the first request.
func over(t *testing.T, u policy.Upstream, servers ...*raw) *Upstream {
	t.Helper()
	u.Name = "up"
	for _, s := range servers {
		u.Targets = append(u.Targets, policy.Target{URL: s.url, Weight: 1})
	}
	set := NewSet(Options{Log: slog.New(slog.DiscardHandler)})
	c, err := set.Prepare([]Spec{{Upstream: u}})
	if err != nil {
		t.Fatal(err)
	}
	c.Commit()
	t.Cleanup(set.Close)
	return set.Get("up")
}

// ask sends a request and returns the response in one line.
func (u *Upstream) ask(t *testing.T, method string, body io.Reader) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, method, "http://shop.example/x", body)
	if err != nil {
		t.Fatal(err)
	}
	r.GetBody = nil // as a server's request has none
	resp, err := u.RoundTrip(r)
	if err != nil {
		return "error"
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		return fmt.Sprintf("%d %s, error", resp.StatusCode, text)
	}
	return fmt.Sprintf("%d %s", resp.StatusCode, text)
}

// TestRetries: which requests are sent again, and which never are.
func TestRetries(t *testing.T) {
	small, large := strings.Repeat("s", 1000), strings.Repeat("l", maxReplay+1)
	for _, c := range []struct {
		name, first, method, body string
		unknown                   bool // the length of the body
		want                      string
		asked                     int64 // requests of the second server
	}{
		{name: "nobody there", first: "nobody", method: "GET", want: "200 ok", asked: 1},
		{name: "nobody there, for what is not idempotent", first: "nobody", method: "POST", want: "200 ok", asked: 1},
		{name: "nobody there, with a body", first: "nobody", method: "POST", body: large, want: "200 ok", asked: 1},
		{name: "nobody there, with a body of unknown length", first: "nobody", method: "PATCH", body: small, unknown: true, want: "200 ok", asked: 1},
		{name: "no answer", first: "", method: "GET", want: "200 ok", asked: 1},
		{name: "no answer to a HEAD", first: "", method: "HEAD", want: "200 ", asked: 1},
		{name: "no answer to a DELETE", first: "", method: "DELETE", want: "200 ok", asked: 1},
		{name: "no answer to a small PUT", first: "", method: "PUT", body: small, want: "200 ok", asked: 1},
		{name: "no answer to a small PUT that was not read", first: "unread", method: "PUT", body: small, want: "200 ok", asked: 1},
		{name: "no answer to a large PUT", first: "", method: "PUT", body: large, want: "error"},
		{name: "no answer to a PUT of unknown length", first: "", method: "PUT", body: small, unknown: true, want: "error"},
		{name: "no answer to a POST", first: "", method: "POST", want: "error"},
		{name: "no answer to a POST with a body", first: "", method: "POST", body: small, want: "error"},
		{name: "no answer to a method that nobody knows", first: "", method: "PURGE", want: "error"},
		{name: "a byte of an answer", first: "H!", method: "GET", want: "error"},
		{name: "half a header", first: "HTTP/1.1 200 OK\r\nContent-Le!", method: "GET", want: "error"},
		{name: "only an early hint", first: "HTTP/1.1 103 Early Hints\r\n\r\n!", method: "GET", want: "error"},
		{name: "nonsense", first: "nonsense\r\n\r\n!", method: "GET", want: "error"},
		{name: "half a body", first: "HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nhalf!", method: "GET", want: "200 half, error"},
		{name: "an error of its own", first: "HTTP/1.1 503 No\r\nContent-Length: 2\r\n\r\nno", method: "GET", want: "503 no"},
	} {
		t.Run(c.name, func(t *testing.T) {
			first, second := nobody(t), serve(t, good)
			if c.first != "nobody" {
				first = serve(t, c.first)
			}
			u := over(t, policy.Upstream{BufferRequest: policy.Buffer{Off: true}}, first, second)
			var body io.Reader
			if c.body != "" {
				body = strings.NewReader(c.body)
			}
			if c.unknown {
				body = io.MultiReader(body)
			}
			if got := u.ask(t, c.method, body); got != c.want || second.asked.Load() != c.asked {
				t.Errorf("%s, and the second server was asked %d times", got, second.asked.Load())
			}
			if c.asked > 0 && second.got[0] != c.method+" "+c.body {
				t.Errorf("the second server got %.40q...", second.got[0])
			}
			st := u.stats()
			if st.Targets[0].InFlight != 0 || st.Targets[1].InFlight != 0 || st.Retries != uint64(c.asked) {
				t.Errorf("%+v", st)
			}
			failed := uint64(1)
			if strings.HasPrefix(c.want, "503") {
				failed = 0
			}
			if st.Targets[0].Failures != failed || st.Targets[1].Failures != 0 {
				t.Errorf("%+v", st)
			}
		})
	}
}

// TestRetriesAreBounded: for each request by a number, and for all by the budget, so that an outage
// is not multiplied.
func TestRetriesAreBounded(t *testing.T) {
	a, b, c := serve(t, ""), serve(t, ""), serve(t, "")
	all := func() int64 { return a.asked.Load() + b.asked.Load() + c.asked.Load() }
	if got := over(t, policy.Upstream{}, a, b, c).ask(t, "GET", nil); got != "error" || all() != 2 {
		t.Errorf("%s after %d", got, all())
	}
	if got := over(t, policy.Upstream{Retries: policy.Retries{Max: 9}}, a, b, c).ask(t, "GET", nil); got != "error" || all() != 2+3 {
		t.Errorf("%s after %d: each target once", got, all())
	}
	if got := over(t, policy.Upstream{Retries: policy.Retries{Max: -1}}, a, b, c).ask(t, "GET", nil); got != "error" || all() != 5+1 {
		t.Errorf("%s after %d", got, all())
	}
	u := over(t, policy.Upstream{Retries: policy.Retries{Max: 2, Budget: 10}, Health: policy.Health{Failures: -1}}, a, b, c)
	before := all()
	const n = 300
	for range n {
		u.ask(t, "GET", nil)
	}
	if got := all() - before; got > n+burst+n/10 || got < n+burst {
		t.Errorf("%d requests became %d", n, got)
	}
	if st := u.stats(); st.Retries != uint64(all()-before-n) || st.Spared == 0 {
		t.Errorf("%+v", st)
	}
}

// TestKeptConnectionsDie one after another: no request ends all of them.
func TestKeptConnectionsDie(t *testing.T) {
	var deadly atomic.Bool
	var asked, waiting atomic.Int64
	together := make(chan struct{})
	addr := rawserver.Start(t, func(conn net.Conn, in *bufio.Reader) {
		for {
			if _, err := http.ReadRequest(in); err != nil {
				return
			}
			if deadly.Load() {
				asked.Add(1)
				return
			}
			if waiting.Add(1) == 20 {
				close(together)
			}
			select {
			case <-together:
			case <-t.Context().Done():
				return
			}
			io.WriteString(conn, good)
		}
	})
	u := over(t, policy.Upstream{}, &raw{url: "http://" + addr})
	var wg sync.WaitGroup
	for range 20 {
		wg.Go(func() {
			if got := u.ask(t, "GET", nil); got != "200 ok" {
				t.Error(got)
			}
		})
	}
	wg.Wait()
	deadly.Store(true)
	// After the last allowed connection the request fails at once, but it may have been written by
	// then.
	if got := u.ask(t, "GET", nil); got != "error" || asked.Load() > maxConnections+1 {
		t.Errorf("%s after %d connections", got, asked.Load())
	}
}

// TestNoResponseInTime: the request is not retried, and counts as the target's failure.
func TestNoResponseInTime(t *testing.T) {
	for _, silent := range []string{" ", "HTTP/1.1 200 OK\r\nA: b\r\n"} { // nothing useful, half a header
		slow, second := serve(t, silent), serve(t, good)
		u := over(t, policy.Upstream{Timeouts: policy.Timeouts{Response: 50 * time.Millisecond}}, slow, second)
		r, err := http.NewRequestWithContext(t.Context(), "GET", "http://h/", nil)
		if err != nil {
			t.Fatal(err)
		}
		resp, err := u.RoundTrip(r)
		if err == nil {
			resp.Body.Close()
		}
		var timeout net.Error
		if !errors.As(err, &timeout) || !timeout.Timeout() || second.asked.Load() != 0 {
			t.Errorf("%v, and the second was asked %d times", err, second.asked.Load())
		}
		if st := u.stats().Targets[0]; st.Failures != 1 || st.InFlight != 0 {
			t.Errorf("%+v", st)
		}
	}
}

// TestStalls: an exchange in which either side stalls in the middle of a body ends.
func TestStalls(t *testing.T) {
	half := serve(t, "HTTP/1.1 200 OK\r\nContent-Length: 1000000\r\n\r\nhalf")
	half2 := serve(t, "")
	short := policy.Timeouts{Idle: 100 * time.Millisecond}
	u := over(t, policy.Upstream{Timeouts: short}, half)
	if got := u.ask(t, "GET", nil); got != "200 half, error" || u.stats().Targets[0].Failures != 1 {
		t.Errorf("%s, %+v", got, u.stats())
	}

	// A client that does not read gets an error, and the target is not blamed.
	stalled := make(chan bool, 1)
	r, err := http.NewRequestWithContext(OnStalledClient(t.Context(), func(answering bool) { stalled <- answering }), "GET", "http://h/", nil)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := u.RoundTrip(r)
	if err != nil {
		t.Fatal(err)
	}
	if !<-stalled {
		t.Error("it had begun to answer")
	}
	if _, err := io.ReadAll(resp.Body); !errors.Is(err, ErrStalled) {
		t.Error(err)
	}
	resp.Body.Close()
	if st := u.stats().Targets[0]; st.Failures != 1 || st.InFlight != 0 {
		t.Errorf("%+v", st)
	}

	// A client that stops sending, with a streamed body and with a buffered one.
	for _, method := range []string{"POST", "PUT"} {
		u := over(t, policy.Upstream{Timeouts: short}, half, half2)
		body, w := io.Pipe()
		go w.Write([]byte("a little"))
		r, err = http.NewRequestWithContext(OnStalledClient(t.Context(), func(answering bool) { stalled <- answering; w.CloseWithError(errors.New("unblocked")) }), method, "http://h/", body)
		if err != nil {
			t.Fatal(err)
		}
		r.ContentLength = 100
		if resp, err = u.RoundTrip(r); err == nil {
			resp.Body.Close()
			t.Error("an answer")
		}
		if <-stalled {
			t.Error("it had not begun to answer")
		}
		if !ClientFailed(err) || !errors.Is(err, ErrStalled) {
			t.Error(err)
		}
		if st := u.stats().Targets[0]; st.Failures != 0 || st.InFlight != 0 {
			t.Errorf("%+v", st)
		}
	}
}
