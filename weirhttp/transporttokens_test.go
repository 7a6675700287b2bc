package weirhttp_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirflow/weir"
	"github.com/weirflow/weir/internal/seeds"
	"github.com/weirflow/weir/weirhttp"
)

// TestTokensPerMinute: the client of docs/go.md is never refused by a server with limits of requests and of
// tokens per minute, as OpenAI's has them, and uses nearly all of the one that is used up first. Responses
// come as a whole and as streams, from many goroutines at once.
func TestTokensPerMinute(t *testing.T) {
	const most = 1000 // tokens of a response
	for _, c := range []struct {
		name   string
		tokens int64 // of a response, on average
	}{{"tokens are used up first", 600}, {"requests are used up first", 60}} {
		synctest.Test(t, func(t *testing.T) {
			rng := seeds.Of(t.Name() + c.name)
			hiddenRequests := limiter(t, weir.TokenBucket{Rate: weir.PerMinute(500), Burst: 500})
			hiddenTokens := limiter(t, weir.TokenBucket{Rate: weir.PerMinute(100_000), Burst: 100_000})
			var refused, spent, answered atomic.Int64
			server := roundTrip(func(r *http.Request) (*http.Response, error) {
				body, err := io.ReadAll(r.Body)
				if err != nil {
					return nil, err
				}
				var asked struct {
					Stream bool `json:"stream"`
				}
				if err := json.Unmarshal(body, &asked); err != nil {
					return nil, err
				}
				// the server reserves what a response can have at most, and settles
				prompt := int64(len(body) / 4)
				reserved, ok := hiddenTokens.Reserve(prompt+most, 0)
				if !ok || !hiddenRequests.Allow() {
					refused.Add(1)
					return response(429, "", "Retry-After", "1"), nil
				}
				completion := 1 + rng.Int64N(2*c.tokens-1)
				completion = min(completion, most)
				after(time.Duration(completion) * 10 * time.Millisecond)
				reserved.Settle(prompt + completion)
				spent.Add(prompt + completion)
				answered.Add(1)
				usage := fmt.Sprintf(`{"choices":[],"usage":{"prompt_tokens":%d,"completion_tokens":%d,"total_tokens":%d}}`, prompt, completion, prompt+completion)
				if asked.Stream {
					return response(200, "data: {\"choices\":[{}]}\n\ndata: "+usage+"\n\ndata: [DONE]\n\n", "Content-Type", "text/event-stream"), nil
				}
				return response(200, usage, "Content-Type", "application/json"), nil
			})
			requests := limiter(t, weir.TokenBucket{Rate: weir.PerMinute(500), Burst: 20})
			tokens := limiter(t, weir.TokenBucket{Rate: weir.PerMinute(100_000), Burst: 20_000})
			estimate := func(r *http.Request) int64 { return r.ContentLength/4 + most }
			client := &http.Client{Transport: weirhttp.NewTransport(server,
				weirhttp.Pace(weirhttp.One(requests), weirhttp.Global()),
				weirhttp.Pace(weirhttp.One(tokens), weirhttp.Global(), weirhttp.Cost(estimate), weirhttp.ActualFrom("openai")))}
			const lasts = 5 * time.Minute
			began := time.Now()
			var all sync.WaitGroup
			for i := range 50 {
				all.Go(func() {
					for time.Since(began) < lasts {
						body := fmt.Appendf(nil, `{"model":"gpt","stream":%v,"messages":[{"role":"user","content":"%0100d"}]}`, i%2 == 0, i)
						resp, err := client.Post("http://a.test/v1/chat/completions", "application/json", bytes.NewReader(body))
						if err != nil {
							t.Error(err)
							return
						}
						_, err = io.Copy(io.Discard, resp.Body)
						if resp.Body.Close(); err != nil || resp.StatusCode != 200 {
							t.Errorf("%d, %v", resp.StatusCode, err)
							return
						}
						if cost, known := weirhttp.CostFrom(resp); !known || cost < 2 {
							t.Errorf("a cost of %d, known %v", cost, known)
						}
					}
				})
			}
			after(lasts)
			usedTokens, usedRequests := float64(spent.Load())/(100_000*lasts.Minutes()), float64(answered.Load())/(500*lasts.Minutes())
			all.Wait()
			t.Logf("%s: %.3f of the tokens, %.3f of the requests, %d refused", c.name, usedTokens, usedRequests, refused.Load())
			if refused.Load() > 0 {
				t.Errorf("%s: %d requests are refused", c.name, refused.Load())
			}
			if max(usedTokens, usedRequests) < 0.95 {
				t.Errorf("%s: %.3f of the tokens and %.3f of the requests are used", c.name, usedTokens, usedRequests)
			}
		})
	}
}
