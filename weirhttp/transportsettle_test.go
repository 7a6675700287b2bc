package weirhttp_test

import (
	"io"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirflow/weir"
	"github.com/weirflow/weir/keyed"
	"github.com/weirflow/weir/weirhttp"
	"github.com/weirflow/weir/weirtest"
)

// TestTransportSettles: the actual cost replaces the estimate when the body ends, and a refusal by the
// server costs no tokens.
func TestTransportSettles(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		next := response(200, "")
		rt := func(tokens weirhttp.Limiter, options ...weirhttp.Option) http.RoundTripper {
			options = append(options, weirhttp.Cost(func(*http.Request) int64 { return 100 }))
			return weirhttp.NewTransport(roundTrip(func(*http.Request) (*http.Response, error) { return next, nil }),
				weirhttp.Retries(0), weirhttp.Pace(tokens, weirhttp.Global(), options...))
		}
		byHeader := weirhttp.Actual(func(r *http.Response) (int64, bool) {
			n, err := strconv.ParseInt(r.Header.Get("X-Cost"), 10, 64)
			return n, err == nil
		})
		const usage = `{"choices":[{}],"usage":{"prompt_tokens":10,"completion_tokens":20,"total_tokens":30}}`
		for _, c := range []struct {
			name   string
			option weirhttp.Option
			resp   *http.Response
			unread bool
			want   int64
		}{
			{"less", byHeader, response(200, "x", "X-Cost", "7"), false, 7},
			{"more", byHeader, response(200, "x", "X-Cost", "700"), false, 700},
			{"nothing", byHeader, response(200, "x", "X-Cost", "0"), false, 0},
			{"unknown", byHeader, response(200, "x"), false, 100},
			{"negative", byHeader, response(200, "x", "X-Cost", "-5"), false, 100},
			{"refused", byHeader, response(429, "x", "X-Cost", "9"), false, 0},
			{"without a body", byHeader, &http.Response{StatusCode: 204, Header: http.Header{"X-Cost": {"8"}}, Body: http.NoBody}, false, 8},
			{"from the body", weirhttp.ActualFrom("openai"), response(200, usage, "Content-Type", "application/json"), false, 30},
			{"a body that is not read", weirhttp.ActualFrom("openai"), response(200, usage, "Content-Type", "application/json"), true, 100},
			{"a body without usage", weirhttp.ActualFrom("openai"), response(200, "{}", "Content-Type", "application/json"), false, 100},
			{"a stream", weirhttp.ActualFrom("openai"), response(200, "data: {\"choices\":[]}\n\ndata: "+usage+"\n\ndata: [DONE]\n\n", "Content-Type", "text/event-stream"), false, 30},
		} {
			const capacity = 1000
			bucket := weir.TokenBucket{Rate: weir.PerHour(1), Burst: capacity}
			l := limiter(t, bucket)
			k, _ := keyed.New[string](bucket, keyed.Options{})
			store := weirtest.NewStore(func() int64 { return time.Now().UnixNano() })
			s, _ := weir.NewShared(bucket, store, weir.Named("tokens"))
			for kind, limit := range map[string]weirhttp.Limiter{"one": weirhttp.One(l), "keyed": weirhttp.Keyed(k), "shared": s} {
				copied := *c.resp
				text, _ := io.ReadAll(c.resp.Body)
				c.resp.Body = io.NopCloser(strings.NewReader(string(text)))
				if copied.Body != http.NoBody {
					copied.Body = io.NopCloser(strings.NewReader(string(text)))
				}
				next = &copied
				resp, err := get(t, rt(limit, c.option), "http://a.test/")
				if err != nil {
					t.Fatal(err)
				}
				charged := func() int64 {
					d, err := limit.Take(t.Context(), "", 0)
					if err != nil {
						t.Fatal(err)
					}
					return capacity - d.Remaining
				}
				if copied.Body != http.NoBody && charged() != 100 && copied.StatusCode == 200 {
					t.Errorf("%s, %s: settled before the body ended", c.name, kind)
				}
				if !c.unread {
					_, _ = io.ReadAll(resp.Body)
				}
				resp.Body.Close()
				if n := charged(); n != c.want {
					t.Errorf("%s, %s: %d tokens are charged, want %d", c.name, kind, n, c.want)
				}
				if cost, known := weirhttp.CostFrom(resp); known != (c.name == "from the body" || c.name == "a stream") || known && cost != 30 {
					t.Errorf("%s, %s: CostFrom is %d, %v", c.name, kind, cost, known)
				}
			}
			k.Close()
			store.Close()
		}
	})
}

// TestCachedFields: what a cache's copy of a response says remains is of another time.
func TestCachedFields(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rt := weirhttp.NewTransport(roundTrip(func(*http.Request) (*http.Response, error) {
			return response(200, "", "RateLimit", `"a";r=0;t=60`, "Age", "30"), nil
		}))
		began := time.Now()
		for range 2 {
			resp, err := get(t, rt, "http://a.test/")
			read(t, resp, err)
		}
		if d := time.Since(began); d != 0 {
			t.Errorf("waited %v", d)
		}
	})
}

// TestCostFromAClientWithATimeout: CostFrom knew no cost where another package had wrapped the body of the
// response: http.Client does so with a Timeout, and clients of language models replace it.
func TestCostFromAClientWithATimeout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const usage = `{"usage":{"prompt_tokens":10,"completion_tokens":20,"total_tokens":30}}`
		tokens := limiter(t, weir.TokenBucket{Rate: weir.PerHour(1), Burst: 1000})
		client := &http.Client{Timeout: time.Minute, Transport: weirhttp.NewTransport(roundTrip(func(*http.Request) (*http.Response, error) {
			return response(200, usage, "Content-Type", "application/json"), nil
		}), weirhttp.Pace(weirhttp.One(tokens), weirhttp.Global(), weirhttp.ActualFrom("openai")))}
		resp, err := client.Get("http://a.test/")
		if err != nil {
			t.Fatal(err)
		}
		if _, known := weirhttp.CostFrom(resp); known {
			t.Error("the cost is known before the body has been read")
		}
		read(t, resp, nil)
		resp.Body = io.NopCloser(strings.NewReader(usage))
		if cost, known := weirhttp.CostFrom(resp); cost != 30 || !known || tokens.Peek(0).Remaining != 970 {
			t.Errorf("CostFrom is %d, %v; %d tokens remain", cost, known, tokens.Peek(0).Remaining)
		}
	})
}
