package weirhttp_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"strings"
	"time"

	"github.com/weirflow/weir"
	"github.com/weirflow/weir/adaptive"
	"github.com/weirflow/weir/keyed"
	"github.com/weirflow/weir/weirhttp"
)

func ExampleNewTransport() {
	requests, err := weir.New(weir.TokenBucket{Rate: weir.PerSecond(10), Burst: 1}, weir.Named("requests"))
	if err != nil {
		log.Fatal(err)
	}
	client := &http.Client{
		Timeout:   30 * time.Second,
		Transport: weirhttp.NewTransport(nil, weirhttp.Pace(weirhttp.One(requests), weirhttp.Global())),
	}
	//
	fetch(client, func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "hello") })
	// Output:
	// 200 hello
}

func ExamplePace() {
	perHost, err := keyed.New[string](weir.TokenBucket{Rate: weir.PerSecond(5), Burst: 1}, keyed.Options{Name: "per-host"})
	if err != nil {
		log.Fatal(err)
	}
	places, err := keyed.NewConcurrency[string](weir.Concurrency{Limit: 4}, keyed.Options{Name: "in-flight"})
	if err != nil {
		log.Fatal(err)
	}
	transport := weirhttp.NewTransport(nil,
		weirhttp.Pace(weirhttp.Keyed(perHost), weirhttp.ByHost()),
		weirhttp.Pace(weirhttp.InFlight(places), weirhttp.ByHost()))
	//
	fetch(&http.Client{Transport: transport}, func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "hello") })
	// Output:
	// 200 hello
}

func ExampleActualFrom() {
	requests, err := weir.New(weir.TokenBucket{Rate: weir.PerMinute(500), Burst: 20}, weir.Named("requests"))
	if err != nil {
		log.Fatal(err)
	}
	tokens, err := weir.New(weir.TokenBucket{Rate: weir.PerMinute(100_000), Burst: 20_000}, weir.Named("tokens"))
	if err != nil {
		log.Fatal(err)
	}
	estimate := func(r *http.Request) int64 { return r.ContentLength/4 + 1000 }
	client := &http.Client{Transport: weirhttp.NewTransport(nil,
		weirhttp.Pace(weirhttp.One(requests), weirhttp.Global()),
		weirhttp.Pace(weirhttp.One(tokens), weirhttp.Global(), weirhttp.Cost(estimate), weirhttp.ActualFrom("openai")))}
	//
	fetch(client, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		fmt.Fprint(w, `{"usage":{"prompt_tokens":30,"completion_tokens":12,"total_tokens":42}}`)
	})
	fmt.Println("only 42 are used:", tokens.Peek(0).Remaining >= 20_000-42)
	// Output:
	// 200 {"usage":{"prompt_tokens":30,"completion_tokens":12,"total_tokens":42}}
	// only 42 are used: true
}

func ExampleSharePauses() {
	store := openStore() // such as weirrueidis.Open
	perKey, err := weir.NewShared(weir.TokenBucket{Rate: weir.PerSecond(50), Burst: 5}, store, weir.Named("partner-api"))
	if err != nil {
		log.Fatal(err)
	}
	transport := weirhttp.NewTransport(nil,
		weirhttp.Pace(perKey, weirhttp.ByHeader("Authorization")),
		weirhttp.PauseBy(weirhttp.Join(weirhttp.ByHost(), weirhttp.ByHeader("Authorization"))),
		weirhttp.SharePauses(store, "partner-api-pauses"))
	//
	fetch(&http.Client{Transport: transport}, func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "hello") })
	// Output:
	// 200 hello
}

func ExampleWithPriority() {
	all, err := weir.New(weir.TokenBucket{Rate: weir.PerSecond(100), Burst: 1}, weir.Named("all"))
	if err != nil {
		log.Fatal(err)
	}
	client := &http.Client{Transport: weirhttp.NewTransport(nil, weirhttp.Pace(weirhttp.One(all), weirhttp.Global()))}
	server := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	defer server.Close()
	url := server.URL
	//
	ctx, cancel := context.WithTimeout(weirhttp.WithPriority(context.Background(), 2), time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		log.Fatal(err)
	}
	resp, err := client.Do(req)
	if errors.Is(err, weir.ErrLimited) {
		fmt.Println("its turn would come after the deadline")
		return
	}
	//
	if err == nil {
		fmt.Println(resp.StatusCode)
		resp.Body.Close()
	}
	// Output:
	// 200
}

func ExampleThrottle() {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNoContent) }))
	defer server.Close()
	url := server.URL
	//
	client := &http.Client{Transport: weirhttp.NewTransport(nil, weirhttp.Throttle(2))}
	resp, err := client.Get(url)
	if errors.Is(err, weir.ErrLimited) {
		fmt.Println("the server has too much load")
		return
	}
	//
	if err == nil {
		fmt.Println(resp.StatusCode)
		resp.Body.Close()
	}
	// Output:
	// 204
}

func ExampleAdapt() {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNoContent) }))
	defer server.Close()
	url := server.URL
	//
	client := &http.Client{Transport: weirhttp.NewTransport(nil, weirhttp.Adapt(adaptive.Options{}))}
	ctx := weirhttp.WithPriority(context.Background(), -2) // not important: refused first
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		log.Fatal(err)
	}
	resp, err := client.Do(req)
	if errors.Is(err, weir.ErrLimited) {
		fmt.Println("as many requests are in flight as the server can bear")
		return
	}
	//
	if err == nil {
		fmt.Println(resp.StatusCode)
		resp.Body.Close()
	}
	// Output:
	// 204
}

func ExampleHedge() {
	client := &http.Client{Transport: weirhttp.NewTransport(nil, weirhttp.Hedge(weirhttp.Hedging{}))}
	//
	fetch(client, func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "hello") })
	// Output:
	// 200 hello
}

// fetch prints the response of a server.
func fetch(client *http.Client, h http.HandlerFunc) {
	server := httptest.NewServer(h)
	defer server.Close()
	resp, err := client.Post(server.URL, "application/json", strings.NewReader(`{"model":"m"}`))
	if err != nil {
		fmt.Println(err)
		return
	}
	defer resp.Body.Close()
	body, _ := io.ReadAll(resp.Body)
	fmt.Println(resp.StatusCode, string(body))
}
