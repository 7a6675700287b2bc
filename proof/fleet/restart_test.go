package fleet

import (
	"strings"
	"sync"
	"testing"

	"github.com/weirflow/weir/proof/servers"
)

// TestLimitsAreReset: a reload with another key, tag or prefix starts a new state, and the log says
// so. Going back finds the old counts. Requests in flight are decided by one policy or the other.
func TestLimitsAreReset(t *testing.T) {
	t.Parallel()
	s := servers.StartRedis(t, servers.RedisOptions{})
	up := newUpstream(t)
	policy := func(prefix, limit string) string {
		return strings.NewReplacer("STORE", s.URL(), "UP", up.URL, "PREFIX", prefix, "LIMIT", limit).Replace(`
stores: { shared: { url: "STORE", prefix: "PREFIX", on_failure: deny, deadline: 10s } }
limits: { per-sku: { LIMIT, token_bucket: { rate: 1/d, burst: 3 }, store: shared } }
upstreams: { up: { url: "UP" } }
routes: [{ match: /, upstream: up, limits: [per-sku] }]
`)
	}
	const key, other = "key: query.sku", "key: [query.sku, query.colour]"
	g := startWeir(t, policy("weir:", key))
	admitted := func() (n int) {
		for {
			switch status, _ := g.get(t, "/?sku=7&colour=red"); {
			case status == 429:
				return n
			case status != 200 || n > 3:
				t.Fatalf("status %d after %d", status, n)
			}
			n++
		}
	}
	if n := admitted(); n != 3 {
		t.Fatalf("%d admitted", n)
	}
	for i, c := range []struct {
		prefix, limit, why string
		admitted           int
	}{
		{"weir:", other, "its key is made of other parts", 3},
		{"weir:", key, "its key is made of other parts", 0},
		{"weir:", key + ", tag: query.sku", "its tag is another one", 3},
		{"weir:", key + ", tag: const.x", "its tag is another one", 3},
		{"weir:other:", key + ", tag: const.x", "its store has another prefix", 3},
		{"weir:", key, "its store has another prefix", 0},
		{"weir:", key + ", cost: 1", "", 0},
	} {
		var asking sync.WaitGroup
		for range 4 {
			asking.Go(func() {
				for n := range 25 {
					if status, _ := g.get(t, "/?sku=8&colour=red"); status != 200 && status != 429 {
						t.Errorf("request %d during reload %d: status %d", n, i, status)
					}
				}
			})
		}
		before := len(g.Output())
		g.write(t, policy(c.prefix, c.limit))
		servers.Poll(t, "the reload", func() bool { return strings.Contains(g.Output()[before:], "policy reloaded") })
		asking.Wait()
		if log := g.Output()[before:]; strings.Contains(log, "limit starts over") != (c.why != "") || !strings.Contains(log, c.why) {
			t.Errorf("%d: the log does not say: %s\n%s", i, c.why, log)
		}
		if n := admitted(); n != c.admitted {
			t.Errorf("%d: %d admitted after %+v", i, n, c)
		}
	}
}
