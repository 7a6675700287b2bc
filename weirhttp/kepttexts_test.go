package weirhttp_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"reflect"
	"testing"
	"time"

	"github.com/weirflow/weir"
	"github.com/weirflow/weir/internal/seeds"
	"github.com/weirflow/weir/policy"
	"github.com/weirflow/weir/weirhttp"
)

// decides is a Limiter that decides as it is told.
type decides struct{ d *weir.Decision }

func (f decides) Take(context.Context, string, int64) (weir.Decision, error) { return *f.d, nil }

// TestKeptTexts: the fields of responses for which texts are kept are those that are written anew, whatever
// the responses before said, of this limit and of others.
func TestKeptTexts(t *testing.T) {
	rnd := seeds.Of(t.Name())
	var d weir.Decision
	var handlers []http.Handler
	names := []string{"one", "two"}
	for _, name := range names {
		limit := weirhttp.Limit(decides{&d}, weirhttp.Global(), weirhttp.Name(name), weirhttp.Headers(policy.HeaderRateLimit, policy.HeaderXRateLimit))
		handlers = append(handlers, limit(ok))
	}
	resets := []time.Duration{weir.Never, 0, 1, time.Second, time.Second + 1, 63 * time.Second, 64 * time.Second, 1 << 62}
	for i := range 20_000 {
		which := rnd.IntN(2)
		d = weir.Decision{Allowed: rnd.IntN(2) == 0, Limit: 100 + rnd.Int64N(2), Remaining: rnd.Int64N(3) * 64, RetryAfter: resets[rnd.IntN(len(resets))], ResetAfter: resets[1+rnd.IntN(len(resets)-1)]}
		got, want := httptest.NewRecorder(), http.Header{}
		handlers[which].ServeHTTP(got, from("192.0.2.1:1"))
		all := []policy.Evaluated{{Name: names[which], Limit: d.Limit, Decision: d}}
		weirhttp.SetRateLimit(want, all)
		weirhttp.SetXRateLimit(want, all)
		for _, name := range []string{"Ratelimit", "Ratelimit-Policy", "X-Ratelimit-Limit", "X-Ratelimit-Remaining", "X-Ratelimit-Reset"} {
			if !reflect.DeepEqual(got.Header()[name], want[name]) {
				t.Fatalf("request %d: %s: %q, want %q (%+v)", i, name, got.Header()[name], want[name], d)
			}
		}
	}
}
