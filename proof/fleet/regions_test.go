package fleet

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/weirflow/weir/internal/pause"
	"github.com/weirflow/weir/proof/servers"
)

// road is the way from a region to the home, which can be cut.
type road struct {
	listener net.Listener
	to       string
	mu       sync.Mutex
	cut      bool
	open     map[net.Conn]bool
}

func newRoad(t *testing.T, to string) *road {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	r := &road{listener: l, to: to, open: map[net.Conn]bool{}}
	var all sync.WaitGroup
	all.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			all.Go(func() { r.relay(c) })
		}
	})
	t.Cleanup(func() {
		_ = l.Close()
		r.set(true)
		all.Wait()
	})
	return r
}

func (r *road) relay(c net.Conn) {
	defer c.Close()
	to, err := net.Dial("tcp", r.to)
	if err != nil {
		return
	}
	defer to.Close()
	r.mu.Lock()
	r.open[c], r.open[to] = true, true
	cut := r.cut
	r.mu.Unlock()
	if cut {
		return
	}
	var both sync.WaitGroup
	for _, way := range [][2]net.Conn{{c, to}, {to, c}} {
		both.Go(func() {
			_, _ = io.Copy(way[0], way[1])
			_, _ = c.Close(), to.Close()
		})
	}
	both.Wait()
	r.mu.Lock()
	delete(r.open, c)
	delete(r.open, to)
	r.mu.Unlock()
}

func (r *road) set(cut bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.cut = cut; cut {
		for c := range r.open {
			_ = c.Close()
		}
	}
}

// TestRegions: two gateways in two regions, each with a Redis of its own, divide a limit by the Redis of the first
// one. The shares follow demand. The region that is cut off from the home keeps its guaranteed part, the other one
// gets the rest, and the sum stays within the limit all the while.
func TestRegions(t *testing.T) {
	const rate, burst = 100, 20
	shop := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "shop") }))
	defer shop.Close()
	home, other := servers.StartRedis(t, servers.RedisOptions{}), servers.StartRedis(t, servers.RedisOptions{})
	to := newRoad(t, home.Addr)
	gateway := func(here, url, global string) *servers.Weir {
		return servers.PolicyIn(t, t.TempDir(), servers.FreePorts+fmt.Sprintf(`
stores:
  here:
    url: %q
    deadline: 250ms
    on_failure: deny
    regions: { here: %s, home: global, guaranteed: { eu: 10, us: 10 }, term: 2s }
  global: { url: %q }
limits:
  api: { token_bucket: { rate: %d/s, burst: %d }, store: here }
upstreams: { shop: { url: %q } }
routes: [{ match: /, upstream: shop, limits: [api] }]
`, url, here, global, rate, burst, shop.URL)).Start(t, binary).Weir
	}
	regions := []*servers.Weir{gateway("eu", home.URL(), home.URL()), gateway("us", other.URL(), "redis://"+to.listener.Addr().String())}

	var mu sync.Mutex
	var admitted [][2]time.Time
	var busy atomic.Int32
	ctx, end := context.WithCancel(t.Context())
	defer end()
	var callers sync.WaitGroup
	defer callers.Wait()
	defer end()
	for i, g := range regions {
		callers.Go(func() {
			for {
				every := 200 * time.Millisecond
				if int(busy.Load()) == i {
					every = 5 * time.Millisecond
				}
				if pause.For(ctx, every) != nil {
					return
				}
				began := time.Now()
				r, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+g.Gateway+"/", nil)
				if err != nil {
					t.Error(err)
					return
				}
				got, err := http.DefaultClient.Do(r)
				if err != nil {
					continue
				}
				_ = got.Body.Close()
				if got.StatusCode == http.StatusOK {
					mu.Lock()
					admitted = append(admitted, [2]time.Time{began, time.Now()})
					mu.Unlock()
				}
			}
		})
	}
	share := func(i int) float64 { return regions[i].Samples(t)[`weir_region_share{limit="api"}`] }
	up := func(i int) float64 { return regions[i].Samples(t)[`weir_region_home_up{store="here"}`] }
	servers.Poll(t, "the first region has the share", func() bool { return share(0) > 0.8 && share(1) < 0.2 })
	busy.Store(1)
	servers.Poll(t, "the second region has the share", func() bool { return share(1) > 0.8 && share(0) < 0.2 })
	to.set(true)
	servers.Poll(t, "a region that is cut off has its guaranteed part, and the other one the rest", func() bool { return up(1) == 0 && up(0) == 1 && share(1) == 0.1 && share(0) > 0.8 })
	to.set(false)
	servers.Poll(t, "the region is back, and has its share", func() bool { return up(1) == 1 && share(1) > 0.8 })
	end()
	callers.Wait()

	slices.SortFunc(admitted, func(a, b [2]time.Time) int { return a[0].Compare(b[0]) })
	for i := range admitted {
		latest := admitted[i][1]
		for j := i; j < len(admitted); j++ {
			if e := admitted[j][1]; e.After(latest) {
				latest = e
			}
			if bound := burst + rate*(latest.Sub(admitted[i][0])+10*time.Millisecond).Seconds(); float64(j-i+1) > bound {
				t.Fatalf("%d admitted in %v, and at most %.0f may be", j-i+1, latest.Sub(admitted[i][0]), bound)
			}
		}
	}
	t.Logf("%d admitted", len(admitted))
}
