package weirhttp_test

import (
	"context"
	"crypto/subtle"
	"errors"
	"fmt"
	"log"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/weirflow/weir"
	"github.com/weirflow/weir/failover"
	"github.com/weirflow/weir/keyed"
	"github.com/weirflow/weir/weirhttp"
	"github.com/weirflow/weir/weirtest"
)

// The code of docs/go.md is that of these examples: see TestGoPageShowsTheExamples.

var handler = http.NewServeMux()

func ExampleLimit() {
	perClient, err := keyed.New[string](weir.TokenBucket{Rate: weir.PerSecond(10), Burst: 20}, keyed.Options{Name: "per-client"})
	if err != nil {
		log.Fatal(err)
	}
	limited := weirhttp.Limit(weirhttp.Keyed(perClient), weirhttp.ByIP())(handler)
	//
	show(limited)
	// Output:
	// 404, RateLimit: "per-client";r=19;t=1, Retry-After:
}

func ExampleByIP() {
	proxies := []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8"), netip.MustParsePrefix("2001:db8:5::/48")}
	limit := weirhttp.Limit(weirhttp.Keyed(newLimiter()), weirhttp.ByIP(proxies...))
	//
	show(limit(handler))
	// Output:
	// 404, RateLimit: "per-client";r=19;t=1, Retry-After:
}

func ExampleJoin() {
	perUser := weirhttp.Join(weirhttp.ByHeader("X-Tenant"), weirhttp.ByCookie("session"))
	limit := weirhttp.Limit(weirhttp.Keyed(newLimiter()), perUser, weirhttp.OnMissing(weirhttp.MissingRefuse))
	//
	show(limit(handler))
	// Output:
	// 429, RateLimit: , Retry-After:
}

func ExampleByJWT() {
	verify := func(_ context.Context, token string) (map[string]any, error) {
		claims, err := parseAndVerify(token) // with the JWT library of your choice
		return claims, err
	}
	limit := weirhttp.Limit(weirhttp.Keyed(newLimiter()), weirhttp.ByJWT("sub", verify))
	//
	show(limit(handler))
	// Output:
	// 404, RateLimit: "per-client";r=19;t=1, Retry-After:
}

func ExampleRefused() {
	busy := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		refused, _ := weirhttp.ResponseFrom(r.Context())
		w.WriteHeader(http.StatusServiceUnavailable)
		fmt.Fprintf(w, "Too busy (%s). Come back in %v.\n", refused.Limit, refused.Decision.RetryAfter)
	})
	limit := weirhttp.Limit(weirhttp.Keyed(newLimiter()), weirhttp.ByIP(), weirhttp.Refused(busy))
	//
	show(limit(handler))
	// Output:
	// 404, RateLimit: "per-client";r=19;t=1, Retry-After:
}

func ExampleWait() {
	queue, err := keyed.New[string](weir.LeakyBucket{Rate: weir.PerSecond(5), Queue: 10}, keyed.Options{Name: "per-client"})
	if err != nil {
		log.Fatal(err)
	}
	limit := weirhttp.Limit(weirhttp.Keyed(queue), weirhttp.ByIP(), weirhttp.Wait(3*time.Second))
	//
	show(limit(handler))
	// Output:
	// 404, RateLimit: "per-client";r=0;t=1, Retry-After:
}

func ExampleInFlight() {
	places, err := keyed.NewConcurrency[string](weir.Concurrency{Limit: 100, Queue: 50}, keyed.Options{Name: "in-flight"})
	if err != nil {
		log.Fatal(err)
	}
	limit := weirhttp.Limit(weirhttp.InFlight(places), weirhttp.Global(), weirhttp.Status(http.StatusServiceUnavailable))
	//
	show(limit(handler))
	// Output:
	// 404, RateLimit: , Retry-After:
}

func ExampleFallback() {
	store := openStore() // such as weirrueidis.Open
	perKey, err := weir.NewShared(weir.TokenBucket{Rate: weir.PerSecond(100), Burst: 200}, store, weir.Named("per-key"))
	if err != nil {
		log.Fatal(err)
	}
	limit := weirhttp.Limit(perKey, weirhttp.ByHeader("X-Api-Key"),
		weirhttp.Fallback(failover.Options{OnFailure: failover.Local, Nodes: 4}))
	//
	show(limit(handler))
	// Output:
	// 404, RateLimit: "per-key";r=199;t=1, Retry-After:
}

func ExampleLimit_severalServices() {
	perTenant, err := weir.NewShared(weir.TokenBucket{Rate: weir.PerHour(100), Burst: 20}, openStore(), weir.Named("per-tenant"))
	if err != nil {
		log.Fatal(err)
	}
	byTenant := weirhttp.ByHeader("X-Tenant")
	api := weirhttp.Limit(perTenant, byTenant)(handler)
	importer := &http.Client{Transport: weirhttp.NewTransport(nil, weirhttp.Pace(perTenant, byTenant))}
	work := func(ctx context.Context, tenant string) error {
		return perTenant.Wait(ctx, tenant, 1)
	}
	//
	if err := work(context.Background(), "acme"); err != nil {
		log.Fatal(err)
	}
	server := httptest.NewServer(handler)
	defer server.Close()
	r := httptest.NewRequest("GET", server.URL, nil)
	r.RequestURI = "" // of a client's request
	r.Header.Set("X-Tenant", "acme")
	resp, err := importer.Do(r)
	if err != nil {
		log.Fatal(err)
	}
	defer resp.Body.Close()
	w := httptest.NewRecorder()
	api.ServeHTTP(w, r)
	limit, _, _ := strings.Cut(w.Header().Get("RateLimit"), ";t=") // the time depends on the speed of the machine
	fmt.Println(limit)
	// Output:
	// "per-tenant";r=17
}

func ExampleShadow() {
	dryRun := weirhttp.Observe(func(r weirhttp.Response) {
		if !r.Decision.Allowed {
			wouldBeRefused.Add(1)
		}
	})
	limit := weirhttp.Limit(weirhttp.Keyed(newLimiter()), weirhttp.ByIP(), weirhttp.Shadow(), dryRun)
	//
	show(limit(handler))
	// Output:
	// 404, RateLimit: , Retry-After:
}

// What the examples use.

func newLimiter() *keyed.Limiter[string] {
	l, err := keyed.New[string](weir.TokenBucket{Rate: weir.PerSecond(10), Burst: 20}, keyed.Options{Name: "per-client"})
	if err != nil {
		log.Fatal(err)
	}
	return l
}

func openStore() weir.Store { return weirtest.NewStore(nil) }

var wouldBeRefused counter

type counter int

func (c *counter) Add(n int) { *c += counter(n) }

func parseAndVerify(token string) (map[string]any, error) {
	if subtle.ConstantTimeCompare([]byte(token), []byte("ann's")) == 1 {
		return map[string]any{"sub": "ann"}, nil
	}
	return nil, errors.New("the token is not valid")
}

// show prints the response to one request.
func show(h http.Handler) {
	rec := httptest.NewRecorder()
	h.ServeHTTP(rec, httptest.NewRequest("GET", "/", nil))
	fmt.Printf("%d, RateLimit: %s, Retry-After: %s\n", rec.Code, rec.Header().Get("RateLimit"), rec.Header().Get("Retry-After"))
}

func ExampleSettled() {
	export := func(w http.ResponseWriter, _ *http.Request) int64 {
		fmt.Fprint(w, "3 rows")
		return 3
	}
	newLimiter := func() *keyed.Limiter[string] {
		l, err := keyed.New[string](weir.TokenBucket{Rate: weir.PerMinute(10_000), Burst: 1500}, keyed.Options{})
		if err != nil {
			log.Fatal(err)
		}
		return l
	}

	rows := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		n := export(w, r)
		weirhttp.Settle(r.Context(), n)
	})
	estimate := weirhttp.Cost(func(*http.Request) int64 { return 1000 })
	limit := weirhttp.Limit(weirhttp.Keyed(newLimiter()), weirhttp.ByIP(), estimate, weirhttp.Settled())

	for range 3 { // two estimates would not fit
		w := httptest.NewRecorder()
		limit(rows).ServeHTTP(w, httptest.NewRequest("GET", "/", nil))
		fmt.Println(w.Code, w.Body)
	}
	// Output:
	// 200 3 rows
	// 200 3 rows
	// 200 3 rows
}

// TestGoPageShowsTheExamples: each piece of Go code of docs/go.md stands in an example, so it
// compiles and runs.
func TestGoPageShowsTheExamples(t *testing.T) {
	page, err := os.ReadFile("../docs/go.md")
	if err != nil {
		t.Fatal(err)
	}
	var source strings.Builder
	for _, file := range []string{"example_test.go", "policyexample_test.go", "migration_test.go", "transportexample_test.go", "workersexample_test.go", "../group/example_test.go", "../weirgrpc/example_test.go", "../weirgoredis/example_test.go", "../weirjwt/example_test.go"} {
		text, err := os.ReadFile(file)
		if err != nil && !os.IsNotExist(err) {
			t.Fatal(err)
		}
		source.Write(text)
	}
	pieces := strings.Split(string(page), "```go\n")[1:]
	if len(pieces) < 10 {
		t.Fatalf("the page has %d pieces of code", len(pieces))
	}
	for _, piece := range pieces {
		code, _, _ := strings.Cut(piece, "```\n")
		var indented strings.Builder
		for line := range strings.Lines(code) {
			indented.WriteString("\t" + line)
		}
		if !strings.Contains(source.String(), indented.String()) {
			t.Errorf("no example has\n%s", code)
		}
	}
}
