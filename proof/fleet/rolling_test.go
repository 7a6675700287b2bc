package fleet

import (
	"flag"
	"fmt"
	"math"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/weirflow/weir/proof/servers"
)

var rolling = flag.Duration("rolling", 300*time.Millisecond, "how long each step of TestRollingDeploy lasts")

// TestRollingDeploy: two gateways under load change a limit in Redis to another algorithm, one
// after the other, and then back. Then the first of them alone changes back and forth. Their
// admissions together stay within the bounds of both versions, and neither version starves.
func TestRollingDeploy(t *testing.T) {
	for _, c := range []struct {
		name, old, next string
		most, least     func(d time.Duration) float64 // the bounds of the admissions in a time
	}{
		{
			"a window of an hour and a log of a minute",
			"fixed_window: { limit: 200, window: 1h, align: first }",
			"sliding_log: { limit: 50, window: 1m }",
			func(d time.Duration) float64 {
				return 200*(1+math.Ceil(d.Hours())) + 50*(1+math.Floor(d.Minutes()))
			},
			func(d time.Duration) float64 { return 50 },
		},
		{
			"a bucket and a counter of one rate",
			"token_bucket: { rate: 20/s, burst: 20 }",
			"sliding_counter: { limit: 20, window: 1s }",
			func(d time.Duration) float64 { return 2 * (20 + 20*d.Seconds()) },
			func(d time.Duration) float64 { return 0.95*20*d.Seconds() - 20 },
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			s := servers.StartRedis(t, servers.RedisOptions{})
			up := newUpstream(t)
			n := 0
			policy := func(limit string) string {
				n++ // the text differs each time: equal text is not reloaded
				return strings.NewReplacer("STORE", s.URL(), "UP", up.URL, "LIMIT", limit).Replace(fmt.Sprintf(`# %d
stores: { shared: { url: "STORE", on_failure: deny, deadline: 10s } }
limits: { api: { LIMIT, store: shared } }
upstreams: { up: { url: "UP" } }
routes: [{ match: /, upstream: up, limits: [api] }]
`, n))
			}
			gateways := []*gateway{startWeir(t, policy(c.old)), startWeir(t, policy(c.old))}
			var admitted atomic.Int64
			var stop atomic.Bool
			var mu sync.Mutex
			var idle time.Duration // times without a request, because the machine is busy
			begun := time.Now()
			last := begun
			var all sync.WaitGroup
			for i := range 8 {
				all.Go(func() {
					for !stop.Load() {
						status, _ := gateways[i%2].get(t, "/")
						switch status {
						case 200:
							admitted.Add(1)
						case 429:
						default:
							t.Errorf("status %d", status)
							return
						}
						mu.Lock()
						now := time.Now()
						if gap := now.Sub(last); gap > 50*time.Millisecond {
							idle += gap
						}
						last = now
						mu.Unlock()
					}
				})
			}
			defer all.Wait()
			defer stop.Store(true)
			change := func(g int, limit string) {
				before := strings.Count(gateways[g].Output(), "policy reloaded")
				gateways[g].write(t, policy(limit))
				servers.Poll(t, "the reload", func() bool { return strings.Count(gateways[g].Output(), "policy reloaded") > before })
				<-time.After(*rolling) // the bounds are rates: the load has to last for a real time
			}
			for _, step := range []struct {
				gateway int
				limit   string
			}{{0, c.next}, {1, c.next}, {0, c.old}, {1, c.old}, {0, c.next}, {0, c.old}} {
				change(step.gateway, step.limit)
			}
			stop.Store(true)
			all.Wait()
			took := time.Since(begun)
			n1, most, least := float64(admitted.Load()), c.most(took), c.least(took-idle)
			t.Logf("%v admitted in %v (%v of it idle): from %.0f to %.0f may be", n1, took, idle, least, most)
			if n1 > most || n1 < least {
				t.Errorf("%v admitted in %v (%v of it idle): from %.0f to %.0f may be", n1, took, idle, least, most)
			}
			if strings.Contains(gateways[0].Output()+gateways[1].Output(), "limit reset") {
				t.Error("a limit was reset")
			}
		})
	}
}
