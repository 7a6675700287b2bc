package policy_test

import (
	"net/http"
	"sync"
	"testing"
	"time"

	"github.com/weirflow/weir"
	"github.com/weirflow/weir/policy"
)

// TestRefusedByAPlaceIsAsIfNeverCome: callers side by side, of whom the place of a concurrency limit refuses most, are charged for those that were
// admitted, and for no others. Their charges overlapped, and some stayed.
func TestRefusedByAPlaceIsAsIfNeverCome(t *testing.T) {
	const burst = 1000
	e, err := policy.New(policy.Policy{
		Limits: []policy.Limit{
			{Name: "rate", Limit: weir.TokenBucket{Rate: weir.Rate{N: 1, Per: 800 * time.Hour}, Burst: burst}},
			{Name: "places", Limit: weir.Concurrency{Limit: 1}},
		},
		Routes: []policy.Route{{Match: "/look", Limits: []string{"rate"}}, {Match: "/", Limits: []string{"rate", "places"}}},
	}, policy.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer e.Close()
	var mu sync.Mutex
	admitted, refused := int64(0), 0
	var callers sync.WaitGroup
	for range 8 {
		callers.Go(func() {
			for range 50 {
				v := e.DecideContext(t.Context(), policy.Request{Method: "GET", Path: "/", Header: http.Header{}})
				err := v.Enter(t.Context())
				time.Sleep(10 * time.Microsecond) // so that some find the place taken
				v.Done(weir.OK)
				mu.Lock()
				if err == nil && v.Outcome == policy.Allow {
					admitted++
				} else {
					refused++
				}
				mu.Unlock()
			}
		})
	}
	callers.Wait()
	v := e.Decide(policy.Request{Method: "GET", Path: "/look", Header: http.Header{}})
	if got, want := v.Decision.Remaining, burst-admitted-1; got != want {
		t.Errorf("%d remain, want %d: %d were admitted", got, want, admitted)
	}
	if refused == 0 {
		t.Error("nobody was refused")
	}
}
