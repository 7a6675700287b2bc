package fleet

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/weirflow/weir/failover"
	"github.com/weirflow/weir/policy"
	"github.com/weirflow/weir/proof/servers"
)

// TestOneShardIsDown: while one master of a cluster is stopped, a gateway goes on with the keys of
// the others, whether they are charged, leased or entered, and refuses those of that master alone.
// Logs, metrics and pages say so. The deadline is longer than a machine may stand still, also twice in
// a row: the live masters miss none.
func TestOneShardIsDown(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(t.Context(), 2*servers.Patience)
	defer cancel()
	cluster, err := servers.Cluster(ctx, servers.ClusterOptions{NodeTimeout: 12 * time.Second, Config: []string{"cluster-require-full-coverage no", "cluster-allow-reads-when-down yes"}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := cluster.Stop(); err != nil {
			t.Error(err)
		}
	})
	down := cluster.Masters[1]
	var live, dead []string
	for n := 0; len(live) < 6 || len(dead) < 3; n++ {
		user := fmt.Sprint("user", n)
		slot, err := cluster.Slot(ctx, policy.EncodeKey(user))
		if err != nil {
			t.Fatal(err)
		}
		if owner, err := cluster.Owner(ctx, slot); err != nil {
			t.Fatal(err)
		} else if owner == down {
			dead = append(dead, user)
		} else {
			live = append(live, user)
		}
	}
	up := newUpstream(t)
	g := startWeir(t, strings.NewReplacer("STORE", "redis+cluster://"+strings.Join(cluster.Addrs(), ","), "UP", up.URL).Replace(`
stores:
  plain: { url: "STORE", on_failure: deny, deadline: 12s }
  leased: { url: "STORE", on_failure: deny, deadline: 12s, lease: true }
limits:
  plain: { key: query.user, token_bucket: { rate: 100000/s, burst: 100000 }, store: plain }
  leased: { key: query.user, token_bucket: { rate: 100000/s, burst: 100000 }, store: leased }
  places: { key: query.user, concurrency: { limit: 100 }, store: plain }
upstreams: { up: { url: "UP" } }
routes:
  - { match: /plain, upstream: up, limits: [plain] }
  - { match: /leased, upstream: up, limits: [leased] }
  - { match: /places, upstream: up, limits: [places] }
`))
	paths := []string{"/plain", "/leased", "/places"}
	ask := func(path, user string) int {
		t.Helper()
		status, _ := g.get(t, path+"?user="+user)
		return status
	}
	for _, path := range paths {
		for _, user := range slices.Concat(live, dead) {
			servers.Poll(t, "the first answer", func() bool { return ask(path, user) == 200 })
		}
	}
	if err := down.Pause(); err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() { // until the breakers are open, calls wait
		defer close(done)
		servers.Poll(t, "both breakers", func() bool {
			var asking sync.WaitGroup
			for i := range 2 * failover.DefaultFailures * len(paths) { // enough for both breakers, side by side
				asking.Go(func() {
					if status := ask(paths[i%len(paths)], dead[0]); status != 200 && status != 429 {
						t.Errorf("%s of a master that is stopped: %d", paths[i%len(paths)], status)
					}
				})
			}
			asking.Wait()
			return g.has(t, `weir_store_shards{state="down",store="plain"} 1`) && g.has(t, `weir_store_shards{state="down",store="leased"} 1`)
		})
	}()
	for open := false; !open; {
		select {
		case <-done:
			open = true
		default:
		}
		for _, path := range paths {
			for _, user := range live {
				if status := ask(path, user); status != 200 {
					t.Errorf("%s?user=%s of a master that answers: %d", path, user, status)
				}
			}
		}
	}
	for _, path := range paths {
		for _, user := range dead {
			if status := ask(path, user); status != 429 {
				t.Errorf("%s?user=%s of a master that is stopped: %d", path, user, status)
			}
		}
	}
	for page, want := range map[string]string{
		"/readyz":    "store plain: 1 of 3 shards unavailable\n",
		"/v1/status": fmt.Sprintf("\"shard\": %q,", down.Addr), // its error follows
		"/metrics":   "weir_store_up{store=\"plain\"} 0\n",
	} {
		resp, err := http.Get("http://" + g.Admin + page)
		if err != nil {
			t.Fatal(err)
		}
		text, err := io.ReadAll(resp.Body)
		resp.Body.Close()
		if err != nil || resp.StatusCode != 200 || !strings.Contains(string(text), want) {
			t.Errorf("%s: %d %v, no %q in\n%.400s", page, resp.StatusCode, err, want, text)
		}
	}
	down.Resume()
	for _, store := range []string{"plain", "leased"} {
		servers.Poll(t, "the return", func() bool { return g.has(t, fmt.Sprintf("weir_store_up{store=%q} 1", store)) })
	}
	for _, path := range paths {
		servers.Poll(t, "its decisions", func() bool { return ask(path, dead[1]) == 200 })
	}
	for _, line := range strings.Split(g.Output(), "\n") {
		if strings.Contains(line, "store shard") && !strings.Contains(line, fmt.Sprintf(`"shard":%q`, down.Addr)) {
			t.Errorf("%s", line)
		}
	}
	if n := strings.Count(g.Output(), "store shard unavailable"); n < 2 {
		t.Errorf("%d lines about 2 stores\n%s", n, g.Output())
	}
}
