package upstream

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/weirflow/weir/policy"
)

// askDirect sends a plain request and returns the response in one line, as ask does.
func (u *Upstream) askDirect(t *testing.T, method string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	r := httptest.NewRequestWithContext(ctx, method, "/x", nil)
	d, ok := u.Direct(r)
	if !ok {
		t.Fatal("there is no direct way")
	}
	w := httptest.NewRecorder()
	switch answered, err := d.Pass(w, r, nil); {
	case err != nil && answered:
		return fmt.Sprintf("%d %s, error", w.Code, w.Body)
	case err != nil:
		return "error"
	}
	return fmt.Sprintf("%d %s", w.Code, w.Body)
}

// TestRetriesDirect: the same requests are sent again as by RoundTrip, and the same is counted.
func TestRetriesDirect(t *testing.T) {
	for _, c := range []struct {
		name, first, method, want string
		asked                     int64 // requests of the second server
		fine                      bool  // the first server has no failure
	}{
		{name: "nobody there", first: "nobody", method: "GET", want: "200 ok", asked: 1},
		{name: "no answer", first: "", method: "GET", want: "200 ok", asked: 1},
		{name: "no answer to a HEAD", first: "", method: "HEAD", want: "200 ", asked: 1},
		{name: "no answer to a DELETE", first: "", method: "DELETE", want: "200 ok", asked: 1},
		{name: "a byte of an answer", first: "H!", method: "GET", want: "error"},
		{name: "half a header", first: "HTTP/1.1 200 OK\r\nContent-Le!", method: "GET", want: "error"},
		{name: "only an early hint", first: "HTTP/1.1 103 Early Hints\r\n\r\n!", method: "GET", want: "error"},
		{name: "nonsense", first: "nonsense\r\n\r\n!", method: "GET", want: "error"},
		{name: "half a body", first: "HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nhalf!", method: "GET", want: "200 half, error"},
		{name: "half of chunks", first: "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n4\r\nhalf\r\n!", method: "GET", want: "200 half, error"},
		{name: "an error of its own", first: "HTTP/1.1 503 No\r\nContent-Length: 2\r\n\r\nno", method: "GET", want: "503 no", fine: true},
	} {
		t.Run(c.name, func(t *testing.T) {
			first, second := nobody(t), serve(t, good)
			if c.first != "nobody" {
				first = serve(t, c.first)
			}
			u := over(t, policy.Upstream{}, first, second)
			if got := u.askDirect(t, c.method); got != c.want || second.asked.Load() != c.asked {
				t.Errorf("%s, and the second server was asked %d times", got, second.asked.Load())
			}
			st := u.stats()
			failed := uint64(1)
			if c.fine {
				failed = 0
			}
			if st.Targets[0].InFlight != 0 || st.Targets[1].InFlight != 0 || st.Retries != uint64(c.asked) || st.Targets[0].Failures != failed || st.Targets[1].Failures != 0 {
				t.Errorf("%+v", st)
			}
		})
	}
}

// TestRetriesDirectAreBounded: by the same number per request, and the same budget.
func TestRetriesDirectAreBounded(t *testing.T) {
	a, b, c := serve(t, ""), serve(t, ""), serve(t, "")
	all := func() int64 { return a.asked.Load() + b.asked.Load() + c.asked.Load() }
	for _, max := range []int{-1, 0, 9} {
		before := all()
		want := map[int]int64{-1: 1, 0: 2, 9: 3}[max]
		if got := over(t, policy.Upstream{Retries: policy.Retries{Max: max}}, a, b, c).askDirect(t, "GET"); got != "error" || all()-before != want {
			t.Errorf("%d: %s after %d", max, got, all()-before)
		}
	}
	u := over(t, policy.Upstream{Retries: policy.Retries{Max: 2, Budget: 10}, Health: policy.Health{Failures: -1}}, a, b, c)
	before := all()
	const n = 300
	for range n {
		u.askDirect(t, "GET")
	}
	if got := all() - before; got > n+burst+n/10 || got < n+burst {
		t.Errorf("%d requests became %d: %+v", n, got, u.stats())
	}
}

// TestNoResponseInTimeDirect: the request is not retried, and counts as the target's failure.
func TestNoResponseInTimeDirect(t *testing.T) {
	for _, silent := range []string{" ", "HTTP/1.1 200 OK\r\nA: b\r\n"} { // nothing useful, half a header
		slow, second := serve(t, silent), serve(t, good)
		u := over(t, policy.Upstream{Timeouts: policy.Timeouts{Response: 50 * time.Millisecond}}, slow, second)
		r := httptest.NewRequestWithContext(t.Context(), "GET", "/", nil)
		d, _ := u.Direct(r)
		answered, err := d.Pass(httptest.NewRecorder(), r, nil)
		var timeout net.Error
		if answered || !errors.As(err, &timeout) || !timeout.Timeout() || second.asked.Load() != 0 {
			t.Errorf("%v %v, and the second was asked %d times", answered, err, second.asked.Load())
		}
		if st := u.stats().Targets[0]; st.Failures != 1 || st.InFlight != 0 {
			t.Errorf("%+v", st)
		}
	}
}

// TestClientGoneDirect: a client that leaves is no failure of the target.
func TestClientGoneDirect(t *testing.T) {
	silent := serve(t, " ")
	u := over(t, policy.Upstream{}, silent)
	ctx, cancel := context.WithCancel(t.Context())
	time.AfterFunc(10*time.Millisecond, cancel)
	r := httptest.NewRequestWithContext(ctx, "GET", "/", nil)
	d, _ := u.Direct(r)
	if answered, err := d.Pass(httptest.NewRecorder(), r, nil); answered || !errors.Is(err, context.Canceled) {
		t.Errorf("%v %v", answered, err)
	}
	if st := u.stats().Targets[0]; st.Failures != 0 || st.InFlight != 0 {
		t.Errorf("%+v", st)
	}
}

// TestDirectOutlivesAChange: a request goes on as it began, also if after a change the next one
// could not be sent directly.
func TestDirectOutlivesAChange(t *testing.T) {
	s := serve(t, good)
	b := newBench(t, policy.Upstream{Targets: []policy.Target{{URL: s.url, Weight: 1}}})
	r := httptest.NewRequestWithContext(t.Context(), "GET", "/", nil)
	d, ok := b.Direct(r)
	if !ok {
		t.Fatal("there is no direct way")
	}
	b.change(policy.Upstream{Targets: []policy.Target{{URL: s.url, Weight: 1}}, Protocol: "h2c"})
	w := httptest.NewRecorder()
	if answered, err := d.Pass(w, r, nil); !answered || err != nil || w.Body.String() != "ok" {
		t.Errorf("%v %v %q", answered, err, w.Body)
	}
	if _, ok := b.Direct(r); ok {
		t.Error("there is a direct way to what speaks HTTP/2")
	}
	if _, ok := over(t, policy.Upstream{}, &raw{url: "https://127.0.0.1:1"}).Direct(r); ok {
		t.Error("there is a direct way to what speaks TLS")
	}
	if _, ok := over(t, policy.Upstream{}, s).Direct(httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/", nil)); ok {
		t.Error("there is a direct way for a POST")
	}
}
