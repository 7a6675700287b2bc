package weirhttp_test

import (
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirflow/weir"
	"github.com/weirflow/weir/keyed"
	"github.com/weirflow/weir/weirhttp"
)

// TestTransportPanics: after a panic of the base, or of a function that was handed in, no place is
// held, and requests that wait go on.
func TestTransportPanics(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		places, _ := keyed.NewConcurrency[string](weir.Concurrency{Limit: 1}, keyed.Options{})
		bucket := limiter(t, weir.TokenBucket{Rate: weir.PerSecond(100), Burst: 100})
		in, open := "", 0
		rt := weirhttp.NewTransport(roundTrip(func(r *http.Request) (*http.Response, error) {
			switch in {
			case "base":
				panic(in)
			case "repeatable", "body":
				resp := response(502, "")
				resp.Body = countedClose{resp.Body, &open}
				open++
				return resp, nil
			}
			return response(200, "", "RateLimit", `"a";r=1;t=60`), nil
		}), weirhttp.Pace(weirhttp.InFlight(places), weirhttp.Global()),
			weirhttp.Repeatable(func(*http.Request) bool {
				if in == "repeatable" {
					panic(in)
				}
				return true
			}),
			weirhttp.Pace(weirhttp.One(bucket), weirhttp.Global(), weirhttp.Actual(func(*http.Response) (int64, bool) {
				if in == "actual" {
					panic(in)
				}
				return 1, true
			})),
			weirhttp.OnAttempt(func(weirhttp.Attempt) {
				if in == "attempt" {
					panic(in)
				}
			}))
		for _, in = range []string{"base", "actual", "attempt", "repeatable", "body"} {
			func() {
				defer func() {
					if recover() == nil {
						t.Errorf("%s: no panic", in)
					}
				}()
				r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://a.test/", nil)
				if err != nil {
					t.Fatal(err)
				}
				r.Body, r.GetBody = io.NopCloser(strings.NewReader("x")), func() (io.ReadCloser, error) { panic(in) }
				resp, err := rt.RoundTrip(r)
				read(t, resp, err)
			}()
			if places.Holding("") != 0 || open != 0 {
				t.Fatalf("%s: %d places are held, and %d bodies are open", in, places.Holding(""), open)
			}
		}
		in = ""
		began := time.Now()
		resp, err := get(t, rt, "http://a.test/")
		if read(t, resp, err); time.Since(began) != 0 {
			t.Errorf("the next request waited %v", time.Since(began))
		}
	})
}

// countedClose is a body that counts down when it is closed.
type countedClose struct {
	io.ReadCloser
	open *int
}

func (b countedClose) Close() error {
	*b.open--
	return b.ReadCloser.Close()
}
