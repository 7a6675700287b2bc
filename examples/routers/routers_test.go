package routers

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/weirflow/weir"
	"github.com/weirflow/weir/keyed"
	"github.com/weirflow/weir/weirhttp"
)

// twice is a limit of two requests for each API key.
func twice(t *testing.T, options ...weirhttp.Option) Middleware {
	t.Helper()
	l, err := keyed.New[string](weir.TokenBucket{Rate: weir.PerHour(1), Burst: 2}, keyed.Options{Name: "per-key"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	return weirhttp.Limit(weirhttp.Keyed(l), weirhttp.ByHeader("X-Api-Key"), options...)
}

// TestRouters: with every router, two requests pass, the third gets the whole refusal and never
// reaches the handler, and another key and another route are not limited.
func TestRouters(t *testing.T) {
	serve := func(h http.Handler) func(*http.Request) *http.Response {
		return func(r *http.Request) *http.Response {
			rec := httptest.NewRecorder()
			h.ServeHTTP(rec, r)
			return rec.Result()
		}
	}
	fiber := Fiber(twice(t))
	for name, do := range map[string]func(*http.Request) *http.Response{
		"net/http": serve(NetHTTP(twice(t))), "chi": serve(Chi(twice(t))), "gin": serve(Gin(twice(t))), "echo": serve(Echo(twice(t, weirhttp.InContext()))),
		"fiber": func(r *http.Request) *http.Response {
			resp, err := fiber.Test(r, -1)
			if err != nil {
				t.Fatal(err)
			}
			return resp
		},
	} {
		for i, c := range []struct {
			path, key string
			status    int
		}{{"/limited", "a", 200}, {"/limited", "a", 200}, {"/limited", "a", 429}, {"/limited", "b", 200}, {"/free", "a", 200}, {"/limited", "a", 429}} {
			r := httptest.NewRequest("GET", c.path, nil)
			r.Header.Set("X-Api-Key", c.key)
			r.Header.Set("Accept", "application/json")
			resp := do(r)
			body, err := io.ReadAll(resp.Body)
			resp.Body.Close()
			if err != nil || resp.StatusCode != c.status || strings.Count(string(body), "hello") != map[int]int{200: 1}[c.status] {
				t.Errorf("%s, %d: %d, %s, %v", name, i, resp.StatusCode, body, err)
			}
			if c.status == 429 && (resp.Header.Get("Retry-After") == "" || resp.Header.Get("Content-Type") != "application/problem+json") {
				t.Errorf("%s, %d: %v", name, i, resp.Header)
			}
			if (resp.Header.Get("RateLimit") != "") != (c.path == "/limited") {
				t.Errorf("%s, %d: RateLimit: %q", name, i, resp.Header.Get("RateLimit"))
			}
		}
	}
}

// TestConnect: a client of connect learns from the code that it was refused, and from Retry-After
// when to come back.
func TestConnect(t *testing.T) {
	server := httptest.NewServer(Connect(twice(t)))
	defer server.Close()
	client := connect.NewClient[wrapperspb.StringValue, wrapperspb.StringValue](server.Client(), server.URL+"/limited")
	for i := range 3 {
		resp, err := client.CallUnary(t.Context(), connect.NewRequest(wrapperspb.String("")))
		switch {
		case i < 2 && (err != nil || resp.Msg.Value != "hello"):
			t.Errorf("%d: %v", i, err)
		case i == 2 && connect.CodeOf(err) != connect.CodeUnavailable:
			t.Errorf("%d: %v", i, err)
		}
	}
}
