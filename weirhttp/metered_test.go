package weirhttp_test

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/weirflow/weir"
	"github.com/weirflow/weir/policy"
)

// TestPolicySettlesCosts: the middleware does as the gateway: it charges an estimate, and settles it
// by what the handler writes, however the handler ends.
func TestPolicySettlesCosts(t *testing.T) {
	const said = `{"usage":{"prompt_tokens":19,"completion_tokens":10}}`
	var body string
	respond := map[string]http.HandlerFunc{
		"/object": func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, said) },
		"/stream": func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Type", "text/event-stream")
			io.WriteString(w, "data: {}\n\n")
			w.(http.Flusher).Flush()
			io.WriteString(w, "data: "+said+"\n\ndata: [DONE]\n\n")
		},
		"/nothing": func(http.ResponseWriter, *http.Request) {},
		"/404":     http.NotFound,
		"/panic":   func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) },
		"/cut": func(w http.ResponseWriter, _ *http.Request) {
			io.WriteString(w, said[:20])
			panic(http.ErrAbortHandler)
		},
		"/left": func(_ http.ResponseWriter, r *http.Request) { r.Context().Value(leave{}).(func())() },
		"/left, as a proxy says it": func(w http.ResponseWriter, r *http.Request) { // httputil.ReverseProxy
			r.Context().Value(leave{}).(func())()
			http.Error(w, "context canceled", http.StatusBadGateway)
		},
		"/br": func(w http.ResponseWriter, r *http.Request) {
			if got := r.Header.Get("Accept-Encoding"); got != "gzip" {
				t.Errorf("the handler may use %q", got)
			}
			io.WriteString(w, said)
		},
	}
	limit := policy.Limit{Name: "tokens", Key: []string{"body.model"}, Limit: weir.FixedWindow{Limit: 1000, Window: time.Hour},
		Costs: policy.Costs{Before: []policy.CostTerm{{Of: "body.max_tokens"}}, After: []policy.CostTerm{{Of: "openai"}}}}
	handler := func(w http.ResponseWriter, r *http.Request) {
		all, err := io.ReadAll(r.Body)
		if string(all) != body || err != nil {
			t.Errorf("the handler reads %q, %v", all, err)
		}
		if of := respond[r.URL.Path]; of != nil {
			of(w, r)
		}
	}
	h, engine := withPolicy(t, policy.Policy{Limits: []policy.Limit{limit}, Routes: []policy.Route{{Match: "/", Limits: []string{"tokens"}}}}, http.HandlerFunc(handler))
	for path, want := range map[string]uint64{"/object": 29, "/stream": 29, "/nothing": 400, "/404": 0, "/panic": 0, "/cut": 400, "/left": 400, "/left, as a proxy says it": 400, "/br": 29} {
		before := engine.Counts()[0].Actual
		body = `{"model":"` + path + `","max_tokens":400}`
		ctx, cancel := context.WithCancel(t.Context())
		r := httptest.NewRequestWithContext(context.WithValue(ctx, leave{}, func() { cancel() }), "POST", (&url.URL{Path: path}).String(), strings.NewReader(body))
		r.Header.Set("Accept-Encoding", "br, gzip")
		w := httptest.NewRecorder()
		func() {
			defer func() { _ = recover() }()
			h.ServeHTTP(w, r)
		}()
		cancel()
		if !strings.HasPrefix(w.Header().Get("RateLimit"), `"tokens";r=600;`) {
			t.Errorf("%s: RateLimit: %s", path, w.Header().Get("RateLimit"))
		}
		if got := engine.Counts()[0].Actual - before; got != want {
			t.Errorf("%s costs %d, want %d", path, got, want)
		}
	}
	if got := engine.Counts()[0].Unknown; got != 4 {
		t.Errorf("%d costs are unknown", got)
	}
}

// leave is the key of a function by which a handler lets its client leave.
type leave struct{}
