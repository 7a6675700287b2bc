package fleet

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/Shopify/toxiproxy/v2"
	"github.com/rs/zerolog"

	"github.com/weirflow/weir/proof/servers"
)

// slowLink is an address from which it takes so many milliseconds to a server, and as many back.
func slowLink(t *testing.T, addr string, ms int) string {
	t.Helper()
	proxies := toxiproxy.NewServer(toxiproxy.NewMetricsContainer(nil), zerolog.Nop())
	proxy := toxiproxy.NewProxy(proxies, "redis", "127.0.0.1:0", addr)
	if err := proxy.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(proxy.Stop)
	for _, stream := range []string{"upstream", "downstream"} {
		text := fmt.Sprintf(`{"name":%q,"type":"latency","stream":%q,"toxicity":1,"attributes":{"latency":%d}}`, stream, stream, ms)
		if _, err := proxy.Toxics.AddToxicJson(strings.NewReader(text)); err != nil {
			t.Fatal(err)
		}
	}
	return proxy.Listen
}

// TestFirstRequest: over a way that takes nearly all of the deadline, a store decides about the first request already: the gateway has brought the
// scripts and asked for the clock before it is ready. That would be three trips of 16 ms each, where there are 20 ms. A busy machine may be late
// by itself: of several gateways, one that is in time shows it.
func TestFirstRequest(t *testing.T) {
	s := redis(t, servers.RedisOptions{})
	up := newUpstream(t)
	policy := strings.NewReplacer("STORE", slowLink(t, s.Addr, 8), "UP", up.URL).Replace(`
stores: { shared: { url: "redis://STORE", on_failure: allow } }
limits:
  per-sku: { key: query.sku, token_bucket: { rate: 1/d, burst: 30 }, store: shared }
  a-day: { fixed_window: { limit: 1000, align: "day:Europe/Berlin" }, store: shared }
upstreams: { up: { url: "UP" } }
routes: [{ match: /, upstream: up, limits: [per-sku, a-day] }]
`)
	const most = 20
	for n := 1; n <= most; n++ {
		if _, err := s.Do(t.Context(), "SCRIPT", "FLUSH"); err != nil {
			t.Fatal(err)
		}
		g := startWeir(t, policy)
		if status, _ := g.get(t, "/?sku=7"); status != 200 {
			t.Fatalf("status %d", status)
		}
		in := g.has(t, `weir_limit_decisions_total{limit="per-sku",source="store"} 1`) && g.has(t, `weir_limit_decisions_total{limit="a-day",source="store"} 1`)
		if err := g.Stop(); err != nil {
			t.Error(err)
		}
		if in {
			t.Logf("the store decided about the first request of gateway %d", n)
			return
		}
	}
	t.Errorf("the store decided about the first request of none of %d gateways", most)
}

// TestFirstRequestAfterARestart: so it is when the server was restarted, and has no scripts: the gateway brings them before it asks it again.
func TestFirstRequestAfterARestart(t *testing.T) {
	s := redis(t, servers.RedisOptions{})
	up := newUpstream(t)
	g := startWeir(t, strings.NewReplacer("STORE", slowLink(t, s.Addr, 8), "UP", up.URL).Replace(`
stores: { shared: { url: "redis://STORE", on_failure: allow } }
limits: { per-sku: { key: query.sku, sliding_log: { limit: 100, window: 1d }, store: shared } }
upstreams: { up: { url: "UP" } }
routes: [{ match: /, upstream: up, limits: [per-sku] }]
`))
	const most = 20
	for n := 1; n <= most; n++ {
		s.Kill()
		poll(t, "the outage", func() bool {
			g.get(t, "/?sku=7")
			return g.has(t, `weir_store_up{store="shared"} 0`)
		})
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		err := s.Start(ctx)
		cancel()
		if err != nil {
			t.Fatal(err)
		}
		poll(t, "the return", func() bool { return g.has(t, `weir_store_up{store="shared"} 1`) })
		const decided = `weir_limit_decisions_total{limit="per-sku",source="store"}`
		before := g.value(t, decided)
		if status, _ := g.get(t, "/?sku=7"); status == 200 && g.value(t, decided) != before {
			t.Logf("the store decided about the first request after restart %d", n)
			return
		}
	}
	t.Errorf("the store decided about the first request after none of %d restarts", most)
}
