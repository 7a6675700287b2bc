package fleet

import (
	"context"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/weirflow/weir/proof/servers"
)

// aUser has the rights that docs/stores.md says a user needs, and no others.
const aUser = "user weir on >s3cret ~weir:* resetchannels -@all +@read +@write +@scripting -@dangerous +time +ping +select +client|setname"

// TestGatewaysShareALimit: two gateways, as a user with few rights and over TLS, together admit
// what one limit does. After a reload of one of them with a higher limit, the used tokens are still
// used.
func TestGatewaysShareALimit(t *testing.T) {
	s := servers.StartRedis(t, servers.RedisOptions{TLS: true, Config: []string{aUser}})
	secret := filepath.Join(t.TempDir(), "secret")
	if err := os.WriteFile(secret, []byte("s3cret\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	up := newUpstream(t)
	store := "rediss://weir@" + s.TLS.Addr + "?ca_file=" + url.QueryEscape(s.TLS.CAFile) + "&password_file=" + url.QueryEscape(secret)
	policy := func(burst string) string {
		return strings.NewReplacer("STORE", store, "UP", up.URL, "BURST", burst).Replace(`
stores: { shared: { url: "STORE", on_failure: deny, deadline: 10s } }
limits: { per-sku: { key: query.sku, token_bucket: { rate: 1/d, burst: BURST }, store: shared } }
upstreams: { up: { url: "UP" } }
routes: [{ match: /, upstream: up, limits: [per-sku] }]
`)
	}
	gateways := []*gateway{startWeir(t, policy("30")), startWeir(t, policy("30"))}
	var admitted, refused atomic.Int64
	ask := func(n int) {
		var all sync.WaitGroup
		for i := range n {
			all.Go(func() {
				switch status, _ := gateways[i%2].get(t, "/?sku=7"); status {
				case 200:
					admitted.Add(1)
				case 429:
					refused.Add(1)
				default:
					t.Errorf("status %d", status)
				}
			})
		}
		all.Wait()
	}
	if ask(80); admitted.Load() != 30 || refused.Load() != 50 {
		t.Fatalf("%d admitted and %d refused of 80 by a limit of 30", admitted.Load(), refused.Load())
	}
	if _, h := gateways[1].get(t, "/?sku=8"); h.Get("RateLimit-Policy") == "" || !strings.Contains(h.Get("RateLimit"), "r=29") {
		t.Errorf("%v", h)
	}
	for _, g := range gateways {
		g.write(t, policy("40"))
		servers.Poll(t, "the reload", func() bool { return strings.Contains(g.Output(), "policy reloaded") })
		if g.has(t, `weir_limit_decisions_total{limit="per-sku",source="store"} 0`) || strings.Count(g.Output(), "store connected") != 1 {
			t.Errorf("the store was opened again, or decided nothing:\n%s", g.Output())
		}
	}
	if ask(80); admitted.Load() != 40 {
		t.Errorf("%d admitted after a reload that raised 30 to 40", admitted.Load())
	}
	for _, g := range gateways {
		if strings.Contains(g.Output(), "s3cret") {
			t.Error("the log has the password")
		}
	}
}

// TestQueueKeepsItsPace: requests that two gateways release from one queue come at the queue's
// rate.
func TestQueueKeepsItsPace(t *testing.T) {
	s := servers.StartRedis(t, servers.RedisOptions{})
	up := newUpstream(t)
	policy := strings.NewReplacer("STORE", s.URL(), "UP", up.URL).Replace(`
stores: { shared: { url: "STORE", on_failure: deny, deadline: 10s } }
limits: { door: { leaky_bucket: { rate: 20/s, queue: 19 }, store: shared } }
upstreams: { up: { url: "UP" } }
routes: [{ match: /, upstream: up, limits: [door] }]
`)
	gateways := []*gateway{startWeir(t, policy), startWeir(t, policy)}
	const n, spacing = 20, 50 * time.Millisecond
	start := time.Now()
	var all sync.WaitGroup
	for i := range n {
		all.Go(func() {
			if status, _ := gateways[i%2].get(t, "/"); status != 200 {
				t.Errorf("status %d", status)
			}
		})
	}
	all.Wait()
	up.mu.Lock()
	defer up.mu.Unlock()
	if len(up.came) != n {
		t.Fatalf("%d of %d came", len(up.came), n)
	}
	for i, at := range up.came { // the i-th may be late on a busy machine, and is never early
		if after := at.Sub(start); after < time.Duration(i)*spacing {
			t.Errorf("request %d came after %v, before its turn", i, after)
		}
	}
	for _, g := range gateways {
		if g.has(t, `weir_limit_requests_total{limit="door",outcome="delayed"} 0`) {
			t.Error("one of them has delayed nothing")
		}
	}
}

// TestStoreGoesDownAndUp: while Redis is killed or stopped, the gateway decides by on_failure, and
// returns to the store by itself. No request fails or is delayed.
func TestStoreGoesDownAndUp(t *testing.T) {
	s := servers.StartRedis(t, servers.RedisOptions{Persist: true})
	up := newUpstream(t)
	g := startWeir(t, strings.NewReplacer("STORE", s.URL(), "UP", up.URL).Replace(`
stores: { shared: { url: "STORE", on_failure: deny, deadline: 100ms } }
limits:
  strict: { token_bucket: { rate: 1000000/s, burst: 1000000 }, store: shared }
  lenient: { token_bucket: { rate: 1/d, burst: 1 }, store: shared, on_failure: allow }
upstreams: { up: { url: "UP" } }
routes:
  - { match: /lenient, upstream: up, limits: [lenient] }
  - { match: /, upstream: up, limits: [strict] }
`))
	// asked makes a request that must be fast, whatever happens to Redis.
	asked := func(path string) int {
		t.Helper()
		began := time.Now()
		status, _ := g.get(t, path)
		if took := time.Since(began); took > 30*time.Second {
			t.Errorf("%s took %v", path, took)
		}
		return status
	}
	servers.Poll(t, "the first answer of Redis", func() bool { return asked("/") == 200 })
	servers.Poll(t, "the lenient limit to be used up", func() bool { return asked("/lenient") == 429 })
	for _, outage := range []struct {
		name      string
		out, back func()
	}{
		{"killed", s.Kill, func() {
			if err := s.Start(t.Context()); err != nil {
				t.Fatal(err)
			}
		}},
		{"stopped", func() {
			if err := s.Pause(); err != nil {
				t.Fatal(err)
			}
		}, func() { s.Resume() }},
	} {
		outage.out()
		for range 20 {
			if strict, lenient := asked("/"), asked("/lenient"); strict != 429 || lenient != 200 {
				t.Errorf("%s: %d and %d, want 429 and 200", outage.name, strict, lenient)
			}
		}
		if !g.has(t, `weir_store_up{store="shared"} 0`) {
			t.Errorf("%s: the metrics do not say that it is out", outage.name)
		}
		outage.back()
		servers.Poll(t, outage.name+": the return", func() bool { return g.has(t, `weir_store_up{store="shared"} 1`) })
		servers.Poll(t, outage.name+": its decisions", func() bool { return asked("/") == 200 })
		servers.Poll(t, outage.name+": what it knew before", func() bool { return asked("/lenient") == 429 })
	}
	for _, want := range []string{"store unavailable", "store is back"} {
		if n := strings.Count(g.Output(), want); n < 2 {
			t.Errorf("%q is in the log %d times", want, n)
		}
	}
}

// TestStartBeforeTheStore: a gateway that starts without Redis serves requests, and uses Redis when
// it is there.
func TestStartBeforeTheStore(t *testing.T) {
	s := servers.StartRedis(t, servers.RedisOptions{})
	s.Kill()
	up := newUpstream(t)
	g := startWeir(t, strings.NewReplacer("STORE", s.URL(), "UP", up.URL).Replace(`
stores: { shared: { url: "STORE", on_failure: allow, deadline: 100ms } }
limits: { few: { token_bucket: { rate: 1/d, burst: 2 }, store: shared } }
upstreams: { up: { url: "UP" } }
routes: [{ match: /, upstream: up, limits: [few] }]
`))
	for range 10 {
		if status, _ := g.get(t, "/"); status != 200 {
			t.Errorf("without the store: %d", status)
		}
	}
	ctx, cancel := context.WithTimeout(t.Context(), servers.Patience)
	defer cancel()
	if err := s.Start(ctx); err != nil {
		t.Fatal(err)
	}
	servers.Poll(t, "the store to decide", func() bool { status, _ := g.get(t, "/"); return status == 429 })
	if !strings.Contains(g.Output(), "store cannot be reached") {
		t.Errorf("%s", g.Output())
	}
}

// TestLeasedGateways: with leases, two gateways admit as much as the limit does, in the end all of
// it, and most of it without a round trip.
func TestLeasedGateways(t *testing.T) {
	s := servers.StartRedis(t, servers.RedisOptions{})
	up := newUpstream(t)
	const burst = 400
	policy := strings.NewReplacer("STORE", s.URL(), "UP", up.URL).Replace(`
stores: { shared: { url: "STORE", on_failure: deny, deadline: 10s, lease: { lifetime: 500ms } } }
limits: { hot: { token_bucket: { rate: 1/d, burst: 400 }, store: shared } }
upstreams: { up: { url: "UP" } }
routes: [{ match: /, upstream: up, limits: [hot] }]
`)
	gateways := []*gateway{startWeir(t, policy), startWeir(t, policy)}
	admitted := 0
	servers.Poll(t, "all that the limit has", func() bool {
		for _, g := range gateways {
			for range 10 {
				if status, _ := g.get(t, "/"); status == 200 {
					admitted++
				}
			}
		}
		return admitted >= burst
	})
	for range 20 {
		if status, _ := gateways[0].get(t, "/"); status != 429 {
			t.Errorf("status %d", status)
		}
	}
	if admitted != burst {
		t.Errorf("%d were admitted by a limit of %d", admitted, burst)
	}
	for _, g := range gateways {
		if g.has(t, `weir_limit_decisions_total{limit="hot",source="lease"} 0`) {
			t.Error("a gateway has leased nothing")
		}
		if g.has(t, `weir_store_lease_tokens_total{event="taken",store="shared"} 0`) || g.has(t, `weir_store_lease_round_trips_total{store="shared"} 0`) {
			t.Error("a gateway does not tell what it has leased")
		}
	}
}
