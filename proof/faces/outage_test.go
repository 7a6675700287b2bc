package faces

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/weirflow/weir/proof/servers"
)

// TestOutage: while the store hangs under load, each service answers by on_failure, and soon: within the
// store's deadline of 20 ms, or at once when the circuit breaker is open. On a busy machine, a request
// that asks nothing says how much of that time is not ours. When the store is back, it decides again.
func TestOutage(t *testing.T) {
	for onFailure, source := range map[string]string{"allow": "allow", "deny": "deny", "local": "share"} {
		t.Run(onFailure, func(t *testing.T) {
			store := servers.StartRedis(t, servers.RedisOptions{})
			w := start(t, "rate: 200/s, burst: 100", store.Addr, ", nodes: 2, on_failure: "+onFailure)
			ctx, stop := context.WithCancel(t.Context())
			defer stop()
			var hangs atomic.Bool
			var callers sync.WaitGroup
			var mu sync.Mutex
			took := map[string][]time.Duration{}
			admitted := map[string]int64{} // by each process
			call := func(name, process string, ask func() (bool, error)) {
				callers.Go(func() {
					for ctx.Err() == nil {
						before, began := hangs.Load(), time.Now()
						ok, err := ask()
						d := time.Since(began)
						if err != nil {
							t.Errorf("%s: %v", name, err)
							return
						}
						if !before || !hangs.Load() {
							continue
						}
						if source != "share" && name != "nothing" && ok != (source == "allow") {
							t.Errorf("%s answered %v in the outage", name, ok)
							return
						}
						mu.Lock()
						if ok && name != "nothing" {
							admitted[process]++
						}
						took[name] = append(took[name], d)
						mu.Unlock()
						pause(ctx)
					}
				})
			}
			for i, s := range w.services {
				for n := range 2 {
					key := "all" // the share of one key; otherwise each caller has its own
					if source != "share" {
						key = fmt.Sprint("user", i, n)
					}
					call(s.name, s.process, func() (bool, error) { return s.take(t.Context(), key, 1) })
				}
			}
			call("nothing", "serve", func() (bool, error) {
				resp, err := w.client.Get("http://" + w.ByFace["http"][0] + "/healthz")
				if err == nil {
					resp.Body.Close()
				}
				return err == nil && resp.StatusCode == http.StatusOK, err
			})
			enough := func() bool { // answers of each service in the outage
				mu.Lock()
				defer mu.Unlock()
				return t.Failed() || len(took) == len(w.services)+1 && !slices.ContainsFunc(w.services, func(s service) bool { return len(took[s.name]) < 100 })
			}
			servers.Poll(t, "the store decides", func() bool { return w.source("first") == "store" })
			if err := store.Pause(); err != nil {
				t.Fatal(err)
			}
			began := time.Now()
			hangs.Store(true)
			servers.Poll(t, "on_failure decides", func() bool { return w.source("second") == source })
			servers.Poll(t, "each service answers", enough)
			hangs.Store(false)
			lasted := time.Since(began)
			store.Resume()
			servers.Poll(t, "the store decides again", func() bool { return w.source("third") == "store" })
			stop()
			callers.Wait()
			w.judge(took)
			// a node has half of the rate and of the burst; its share starts empty
			most := int64(lasted.Seconds()*100) + 50 + 1
			for process, n := range admitted {
				if source == "share" && n > most {
					t.Errorf("%s: %d were admitted by shares in %v: at most %d", process, n, lasted, most)
				}
			}
		})
	}
}

// source is where the limit is decided now.
func (w *world) source(key string) string {
	a, err := w.post(w.t.Context(), "take", map[string]any{"limit": "api", "key": []string{key}})
	if err != nil {
		w.t.Fatal(err)
	}
	return a.Limits[0].Source
}

// judge prints how long answers took, and compares with the time of a request that asks nothing. If the
// machine stands still, each caller's call is late once, which the slowest tenth has room for.
func (w *world) judge(took map[string][]time.Duration) {
	half := func(name string) (p50, p90 time.Duration) {
		all := took[name]
		slices.Sort(all)
		return all[len(all)/2], all[len(all)*9/10]
	}
	nothing, slow := half("nothing")
	w.t.Logf("nothing: p50 %v, p90 %v", nothing, slow)
	for _, s := range w.services {
		p50, p90 := half(s.name)
		w.t.Logf("%s: %d answers, p50 %v, p90 %v", s.name, len(took[s.name]), p50, p90)
		if p50 > 20*time.Millisecond+5*nothing || p90 > 250*time.Millisecond+5*slow {
			w.t.Errorf("%s took too long", s.name)
		}
	}
}
