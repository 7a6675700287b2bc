package weirhttp_test

import (
	"context"
	"net/http"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirflow/weir/weirhttp"
)

// TestNoPlaceAfterAPauseIsNoDeadline: for a second after a pause, requests with a deadline below a second
// failed at once ("the turn comes in 902ms"), though their turns come with the responses of those in flight. So
// did requests beyond what the server said remains, while others were in flight.
func TestNoPlaceAfterAPauseIsNoDeadline(t *testing.T) {
	for _, fields := range [][]string{nil, {"RateLimit", `"a";r=1;t=60`}} {
		synctest.Test(t, func(t *testing.T) {
			refuse := true
			rt := weirhttp.NewTransport(roundTrip(func(*http.Request) (*http.Response, error) {
				if refuse {
					return response(429, "", "Retry-After", "1"), nil
				}
				after(10 * time.Millisecond)
				return response(200, "", fields...), nil
			}), weirhttp.Retries(0))
			resp, err := get(t, rt, "http://a.test/")
			read(t, resp, err)
			refuse = false
			after(1100 * time.Millisecond)
			var all sync.WaitGroup
			for range 5 {
				all.Go(func() {
					ctx, cancel := context.WithTimeout(t.Context(), 500*time.Millisecond)
					defer cancel()
					resp, err := send(ctx, rt, "http://a.test/")
					if err != nil {
						t.Error(err)
						return
					}
					resp.Body.Close()
				})
			}
			all.Wait()
		})
	}
}
