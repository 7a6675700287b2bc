package weirhttp_test

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httptrace"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirflow/weir"
	"github.com/weirflow/weir/weirhttp"
	"github.com/weirflow/weir/weirtest"
)

// TestRetriesReturnTheLastResponse: when no retry is left, the caller gets the server's response with
// its body, and not an error of ours. hashicorp/go-retryablehttp drops it.
func TestRetriesReturnTheLastResponse(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := 0
		rt := weirhttp.NewTransport(roundTrip(func(*http.Request) (*http.Response, error) {
			n++
			return response(503, "because "+strconv.Itoa(n), "Retry-After", "1"), nil
		}), weirhttp.Retries(2))
		resp, err := get(t, rt, "http://a.test/")
		if text := read(t, resp, err); resp.StatusCode != 503 || text != "because 3" {
			t.Errorf("%d %q", resp.StatusCode, text)
		}
	})
}

// TestRetriesOnlyWhatMayBeRepeated: a POST is sent once, unless its sender says that it may be
// repeated and its body can be read again.
func TestRetriesOnlyWhatMayBeRepeated(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		once := func() io.Reader { return struct{ io.Reader }{strings.NewReader("x")} } // http.NewRequest knows no GetBody for it
		for _, c := range []struct {
			name   string
			method string
			body   io.Reader
			field  string
			option weirhttp.TransportOption
			want   int
		}{
			{"GET", "GET", nil, "", nil, 4},
			{"HEAD", "HEAD", nil, "", nil, 4},
			{"PUT", "PUT", strings.NewReader("x"), "", nil, 4},
			{"DELETE", "DELETE", nil, "", nil, 4},
			{"POST", "POST", strings.NewReader("x"), "", nil, 1},
			{"POST without a body", "POST", nil, "", nil, 1},
			{"PATCH", "PATCH", strings.NewReader("x"), "", nil, 1},
			{"a method of one's own", "PURGE", nil, "", nil, 1},
			{"PUT with a body that is read once", "PUT", once(), "", nil, 1},
			{"POST with a key", "POST", strings.NewReader("x"), "Idempotency-Key", nil, 4},
			{"POST with another key", "POST", strings.NewReader("x"), "X-Idempotency-Key", nil, 4},
			{"POST by an option", "POST", strings.NewReader("x"), "", weirhttp.Repeatable(func(*http.Request) bool { return true }), 4},
			{"POST by an option, read once", "POST", once(), "", weirhttp.Repeatable(func(*http.Request) bool { return true }), 1},
			{"GET by an option", "GET", nil, "", weirhttp.Repeatable(func(*http.Request) bool { return false }), 1},
			{"without retries", "GET", nil, "", weirhttp.Retries(0), 1},
			{"without a budget", "GET", nil, "", weirhttp.RetryBudget(0, 0), 1},
		} {
			for _, status := range []int{429, 503, 529, 502, 504, 0} {
				n := 0
				options := []weirhttp.TransportOption{}
				if c.option != nil {
					options = append(options, c.option)
				}
				rt := weirhttp.NewTransport(roundTrip(func(r *http.Request) (*http.Response, error) {
					if n++; r.Body != nil {
						if b, _ := io.ReadAll(r.Body); string(b) != "x" {
							t.Errorf("%s: the body is %q", c.name, b)
						}
					}
					if status == 0 {
						return nil, &net.OpError{Op: "read", Err: errors.New("connection reset")}
					}
					return response(status, ""), nil
				}), options...)
				if s, ok := c.body.(*strings.Reader); ok {
					_, _ = s.Seek(0, io.SeekStart)
				} else if c.body != nil {
					c.body = once()
				}
				r, _ := http.NewRequestWithContext(t.Context(), c.method, "http://a.test/", c.body)
				if c.field != "" {
					r.Header.Set(c.field, "1")
				}
				resp, err := rt.RoundTrip(r)
				if err == nil {
					resp.Body.Close()
				}
				if n != c.want || (err != nil) != (status == 0) {
					t.Errorf("%s, %d: sent %d times, want %d (%v)", c.name, status, n, c.want, err)
				}
			}
		}
	})
}

// TestRetriesOfOtherResponses: what is no refusal and no failure of a gateway is not repeated, and
// neither is an error that stays.
func TestRetriesOfOtherResponses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, status := range []int{200, 202, 301, 400, 401, 403, 404, 408, 500, 501, 505} {
			n := 0
			rt := weirhttp.NewTransport(roundTrip(func(*http.Request) (*http.Response, error) { n++; return response(status, "", "Location", "/"), nil }))
			resp, err := get(t, rt, "http://a.test/")
			if read(t, resp, err); n != 1 {
				t.Errorf("%d: sent %d times", status, n)
			}
		}
		for _, bad := range []error{errors.New("unsupported protocol scheme"), &tls.CertificateVerificationError{Err: &net.OpError{Err: io.EOF}}, context.Canceled} {
			n := 0
			rt := weirhttp.NewTransport(roundTrip(func(*http.Request) (*http.Response, error) { n++; return nil, bad }))
			if _, err := get(t, rt, "http://a.test/"); !errors.Is(err, bad) || n != 1 {
				t.Errorf("%v: sent %d times", err, n)
			}
		}
	})
}

// TestRetryBudget: while a server fails, it gets hardly more requests than without retries.
func TestRetryBudget(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var sent atomic.Int64
		rt := weirhttp.NewTransport(roundTrip(func(*http.Request) (*http.Response, error) {
			sent.Add(1)
			return response(502, ""), nil
		}), weirhttp.Retries(5), weirhttp.RetryBudget(10, 20))
		var all sync.WaitGroup
		for range 50 {
			all.Go(func() {
				for range 20 {
					resp, err := get(t, rt, "http://a.test/")
					read(t, resp, err)
				}
			})
		}
		if all.Wait(); sent.Load() < 1110 || sent.Load() > 1120 {
			t.Errorf("1000 requests were sent %d times, want 1120 at most", sent.Load())
		}
	})
}

// TestPauseIsShared: a refusal of one goroutine's request holds back those of all others, and of one
// host only. After it, one request goes first. Libraries that sleep in each call send all of them
// against a server that has just said no.
func TestPauseIsShared(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		var refused, other, early atomic.Int64
		var inFlight, most atomic.Int64
		rt := weirhttp.NewTransport(roundTrip(func(r *http.Request) (*http.Response, error) {
			if r.URL.Host == "b.test" {
				other.Add(1)
				return fine(r)
			}
			if time.Since(began) < time.Second {
				refused.Add(1)
				return response(429, "", "Retry-After", "20"), nil
			}
			if time.Since(began) < 20*time.Second {
				early.Add(1)
			}
			if now := inFlight.Add(1); time.Since(began) < 22*time.Second-100*time.Millisecond {
				most.Store(max(most.Load(), now))
			}
			after(100 * time.Millisecond)
			inFlight.Add(-1)
			return fine(r)
		}))
		resp, err := send(t.Context(), rt, "http://a.test/")
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		if d := time.Since(began); d < 20*time.Second || d > 22*time.Second {
			t.Fatalf("the retry came after %v", d)
		}
		began = time.Now()
		var all sync.WaitGroup
		for i := range 100 {
			all.Go(func() {
				if i > 0 {
					after(time.Millisecond) // after the first was refused
				}
				resp, err := get(t, rt, "http://a.test/")
				read(t, resp, err)
			})
			all.Go(func() {
				after(time.Millisecond)
				resp, err := get(t, rt, "http://b.test/")
				read(t, resp, err)
			})
		}
		after(2 * time.Second)
		if other.Load() != 100 {
			t.Errorf("%d of another host were sent", other.Load())
		}
		all.Wait()
		if refused.Load() != 2 || early.Load() != 0 {
			t.Errorf("%d were refused and %d sent during the pause", refused.Load(), early.Load())
		}
	})
}

// TestLyingServers: whatever a server says, requests wait no longer than MaxPause, and go on after it.
func TestLyingServers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		date := func(d time.Duration) string { return time.Now().Add(d).UTC().Format(http.TimeFormat) }
		for _, c := range []struct {
			name        string
			fields      func() []string
			least, most time.Duration
		}{
			{"seconds", func() []string { return []string{"Retry-After", "7"} }, 7 * time.Second, 8 * time.Second},
			{"a date", func() []string { return []string{"Retry-After", date(7 * time.Second)} }, 6 * time.Second, 8 * time.Second},
			{"a date, of a clock that is a day ahead", func() []string {
				return []string{"Retry-After", date(24*time.Hour + 7*time.Second), "Date", date(24 * time.Hour)}
			}, 7 * time.Second, 8 * time.Second},
			{"a date, of a clock that is a day behind", func() []string {
				return []string{"Retry-After", date(-24*time.Hour + 7*time.Second), "Date", date(-24 * time.Hour)}
			}, 7 * time.Second, 8 * time.Second},
			{"ten years", func() []string { return []string{"Retry-After", "315360000"} }, time.Minute, time.Minute},
			{"a date in ten years", func() []string { return []string{"Retry-After", date(10 * 365 * 24 * time.Hour)} }, time.Minute, time.Minute},
			{"more than an integer", func() []string { return []string{"Retry-After", strings.Repeat("9", 400)} }, time.Minute, time.Minute},
			{"below 0", func() []string { return []string{"Retry-After", "-5"} }, 0, time.Second},
			{"0", func() []string { return []string{"Retry-After", "0"} }, 0, time.Second},
			{"a date in the past", func() []string { return []string{"Retry-After", date(-time.Hour)} }, 0, time.Second},
			{"garbage", func() []string { return []string{"Retry-After", "soon"} }, 0, time.Second},
			{"NaN", func() []string { return []string{"Retry-After", "NaN"} }, 0, time.Second},
			{"nothing", func() []string { return nil }, 0, time.Second},
			{"milliseconds", func() []string { return []string{"Retry-After-Ms", "2500", "Retry-After", "9"} }, 2500 * time.Millisecond, 3 * time.Second},
			{"a reset and no Retry-After", func() []string {
				return []string{"X-RateLimit-Remaining", "0", "X-RateLimit-Reset", strconv.FormatInt(time.Now().Add(9*time.Second).Unix(), 10), "Date", date(0)}
			}, 9 * time.Second, 10 * time.Second},
			{"a reset that has passed", func() []string { return []string{"X-RateLimit-Remaining", "0", "X-RateLimit-Reset", "946684700"} }, 0, time.Second},
			{"a reset beyond time", func() []string {
				return []string{"X-RateLimit-Remaining", "0", "X-RateLimit-Reset", "99999999999999999999999999"}
			}, time.Minute, time.Minute},
		} {
			n := 0
			rt := weirhttp.NewTransport(roundTrip(func(r *http.Request) (*http.Response, error) {
				if n++; n == 1 {
					return response(429, "", c.fields()...), nil
				}
				return fine(r)
			}), weirhttp.MaxPause(time.Minute))
			began := time.Now()
			resp, err := get(t, rt, "http://a.test/")
			read(t, resp, err)
			if d := time.Since(began); d < c.least || d > c.most {
				t.Errorf("%s: a pause of %v, want %v to %v", c.name, d, c.least, c.most)
			}
		}
	})
}

// TestQuotaFields: requests keep to what each of the fields in use says remains.
func TestQuotaFields(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		unix := func(d time.Duration) string { return strconv.FormatInt(time.Now().Add(d).Unix(), 10) }
		stamp := func(d time.Duration) string { return time.Now().Add(d).UTC().Format(time.RFC3339) }
		for _, c := range []struct {
			name        string
			fields      func() []string
			least, most time.Duration // until the next request, after one that left nothing
		}{
			{"RateLimit", func() []string {
				return []string{"RateLimit", `"default";r=0;t=30`, "RateLimit-Policy", `"default";q=100;w=60`}
			}, 30 * time.Second, 30 * time.Second},
			{"RateLimit of several limits", func() []string { return []string{"RateLimit", `"a";r=5;t=90, "b";r=0;t=30;pk=:Zm9v:, "c";r=1;t=1`} }, 30 * time.Second, 30 * time.Second},
			{"RateLimit of bytes", func() []string {
				return []string{"RateLimit", `"a";r=0;t=90`, "RateLimit-Policy", `"a";q=100;qu="content-bytes"`}
			}, 0, 0},
			{"RateLimit with a comma in the name", func() []string { return []string{"RateLimit", `"a,\";r=9";r=0;t=30`} }, 30 * time.Second, 30 * time.Second},
			{"RateLimit of drafts 4 to 7", func() []string { return []string{"RateLimit", "limit=100, remaining=0, reset=30"} }, 30 * time.Second, 30 * time.Second},
			{"RateLimit-*", func() []string {
				return []string{"RateLimit-Limit", "100, 100;w=60", "RateLimit-Remaining", "0", "RateLimit-Reset", "30"}
			}, 30 * time.Second, 30 * time.Second},
			{"GitHub", func() []string {
				return []string{"X-RateLimit-Limit", "60", "X-RateLimit-Remaining", "0", "X-RateLimit-Reset", unix(30 * time.Second)}
			}, 29 * time.Second, 31 * time.Second},
			{"seconds", func() []string {
				return []string{"X-RateLimit-Limit", "60", "X-RateLimit-Remaining", "0", "X-RateLimit-Reset", "30"}
			}, 30 * time.Second, 30 * time.Second},
			{"parts of seconds", func() []string { return []string{"X-RateLimit-Remaining", "0", "X-RateLimit-Reset", "0.25"} }, 250 * time.Millisecond, 250 * time.Millisecond},
			{"OpenAI", func() []string {
				return []string{"x-ratelimit-limit-requests", "60", "x-ratelimit-remaining-requests", "0", "x-ratelimit-reset-requests", "1m0s"}
			}, time.Second, time.Second},
			{"OpenAI, 20ms", func() []string {
				return []string{"x-ratelimit-limit-requests", "1", "x-ratelimit-remaining-requests", "0", "x-ratelimit-reset-requests", "20ms"}
			}, 20 * time.Millisecond, 20 * time.Millisecond},
			{"OpenAI, tokens", func() []string {
				return []string{"x-ratelimit-limit-tokens", "60000", "x-ratelimit-remaining-tokens", "0", "x-ratelimit-reset-tokens", "1m0s"}
			}, time.Millisecond, time.Millisecond},
			{"Anthropic", func() []string {
				return []string{"anthropic-ratelimit-requests-limit", "50", "anthropic-ratelimit-requests-remaining", "0", "anthropic-ratelimit-requests-reset", stamp(50 * time.Second)}
			}, 900 * time.Millisecond, 1100 * time.Millisecond},
			{"a remaining below 0", func() []string { return []string{"X-RateLimit-Remaining", "-7", "X-RateLimit-Reset", "30"} }, 30 * time.Second, 30 * time.Second},
			{"no reset", func() []string { return []string{"X-RateLimit-Remaining", "0"} }, 0, 0},
			{"garbage", func() []string {
				return []string{"RateLimit", `;;=,"`, "X-RateLimit-Remaining", "many", "X-RateLimit-Reset", "soon"}
			}, 0, 0},
		} {
			rt := weirhttp.NewTransport(roundTrip(func(*http.Request) (*http.Response, error) { return response(200, "", c.fields()...), nil }))
			resp, err := get(t, rt, "http://a.test/")
			read(t, resp, err)
			began := time.Now()
			resp, err = get(t, rt, "http://a.test/")
			read(t, resp, err)
			if d := time.Since(began); d < c.least || d > c.most {
				t.Errorf("%s: the next request after %v, want %v to %v", c.name, d, c.least, c.most)
			}
		}
	})
}

// TestGitHubRefusesWith403: a 403 that tells of a limit holds back others, and no other 403 does.
func TestGitHubRefusesWith403(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, c := range []struct {
			fields []string
			sent   int
		}{
			{[]string{"Retry-After", "60"}, 2},
			{[]string{"X-RateLimit-Remaining", "0", "X-RateLimit-Reset", "60"}, 2},
			{[]string{"X-RateLimit-Remaining", "12", "X-RateLimit-Reset", "60"}, 1},
			{nil, 1},
		} {
			n := 0
			rt := weirhttp.NewTransport(roundTrip(func(r *http.Request) (*http.Response, error) {
				if n++; n > 1 {
					return fine(r)
				}
				return response(403, "", c.fields...), nil
			}))
			resp, err := get(t, rt, "http://a.test/")
			if read(t, resp, err); n != c.sent {
				t.Errorf("%v: sent %d times, want %d", c.fields, n, c.sent)
			}
		}
	})
}

// TestPausesAreSharedByProcesses: a second Transport over the same store keeps to the pause that the
// first was asked for.
func TestPausesAreSharedByProcesses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := weirtest.NewStore(func() int64 { return time.Now().UnixNano() })
		defer store.Close()
		began := time.Now()
		var early atomic.Int64
		base := roundTrip(func(r *http.Request) (*http.Response, error) {
			if time.Since(began) < 10*time.Second {
				early.Add(1)
				return response(429, "", "Retry-After", "10"), nil
			}
			return fine(r)
		})
		first := weirhttp.NewTransport(base, weirhttp.SharePauses(store, "pauses"))
		second := weirhttp.NewTransport(base, weirhttp.SharePauses(store, "pauses"))
		for i, rt := range []http.RoundTripper{first, second} {
			r, _ := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://a.test/", nil) // which is sent once
			resp, err := rt.RoundTrip(r)
			read(t, resp, err)
			if want := []int{429, 200}[i]; resp.StatusCode != want {
				t.Errorf("transport %d: %d, want %d", i, resp.StatusCode, want)
			}
		}
		if early.Load() != 1 {
			t.Errorf("%d requests were sent during the pause", early.Load())
		}
	})
}

// TestRetriesReuseConnections: the response that is not returned is read and closed, so its connection
// is used again; one that is too long or never ends is given up. Nothing is left running.
func TestRetriesReuseConnections(t *testing.T) {
	stop := make(chan struct{})
	var n atomic.Int64
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if n.Add(1)%2 == 0 {
			_, _ = io.WriteString(w, "ok")
			return
		}
		w.Header().Set("Retry-After-Ms", "1")
		w.WriteHeader(http.StatusServiceUnavailable)
		switch r.URL.Path {
		case "/short":
			_, _ = io.WriteString(w, strings.Repeat("x", 10_000))
		case "/long":
			_, _ = io.WriteString(w, strings.Repeat("x", 10_000_000))
		case "/endless":
			_, _ = io.WriteString(w, "x")
			_ = http.NewResponseController(w).Flush()
			select {
			case <-r.Context().Done():
			case <-stop:
			}
		}
	}))
	defer server.Close()
	defer close(stop)
	base := &http.Transport{}
	defer base.CloseIdleConnections()
	var attempts []weirhttp.Attempt
	rt := weirhttp.NewTransport(base, weirhttp.OnAttempt(func(a weirhttp.Attempt) { attempts = append(attempts, a) }))
	for _, c := range []struct {
		path   string
		reused []bool
	}{{"/short", []bool{false, true}}, {"/long", []bool{true, false}}, {"/endless", []bool{true, false}}} {
		var reused []bool
		ctx := httptrace.WithClientTrace(t.Context(), &httptrace.ClientTrace{GotConn: func(i httptrace.GotConnInfo) { reused = append(reused, i.Reused) }})
		resp, err := send(ctx, rt, server.URL+c.path)
		if text := read(t, resp, err); text != "ok" || !slices.Equal(reused, c.reused) {
			t.Errorf("%s: %q, connections reused: %v, want %v", c.path, text, reused, c.reused)
		}
	}
	if len(attempts) != 6 || attempts[0].Status != 503 || !attempts[0].Retried || attempts[0].Number != 0 || attempts[0].Pause <= 0 ||
		attempts[1].Status != 200 || attempts[1].Number != 1 || attempts[1].Retried || !attempts[1].Sent {
		t.Errorf("%+v", attempts)
	}
}

// TestTransportCancelled: a request whose context ends while it waits, while it is sent, or before a
// retry, ends with it, and leaves no place and no request in a line behind.
func TestTransportCancelled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := limiter(t, weir.TokenBucket{Rate: weir.PerSecond(1), Burst: 1})
		rt := weirhttp.NewTransport(roundTrip(func(r *http.Request) (*http.Response, error) {
			switch r.URL.Path {
			case "/hangs":
				<-r.Context().Done()
				return nil, r.Context().Err()
			case "/fails":
				return response(502, ""), nil
			}
			return fine(r)
		}), weirhttp.Pace(weirhttp.One(l), weirhttp.Global()))
		for _, path := range []string{"/waits", "/hangs", "/fails", "/waits"} {
			ctx, cancel := context.WithCancel(t.Context())
			time.AfterFunc(10*time.Millisecond, cancel)
			l.Take(1)
			if path != "/waits" {
				after(2 * time.Second)
			}
			resp, err := send(ctx, rt, "http://a.test"+path)
			if path == "/fails" && err == nil {
				resp.Body.Close() // the retry may come before the end
			} else if !errors.Is(err, context.Canceled) {
				t.Errorf("%s: %v", path, err)
			}
			cancel()
		}
		after(10 * time.Second)
		began := time.Now()
		resp, err := get(t, rt, "http://a.test/")
		if read(t, resp, err); time.Since(began) != 0 {
			t.Errorf("the next request waited %v", time.Since(began))
		}
	})
}
