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

// slowLink returns an address through which a server is reached with the given latency in each
// direction.
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

// TestFirstRequest: with a latency of nearly the whole deadline, the store already decides about
// the first request, because the gateway sends the scripts and learns the clock before it is ready.
// Otherwise these would be three round trips of 16 ms, with a deadline of 20 ms. A busy machine may
// be late by itself, so one of several gateways has to be in time.
func TestFirstRequest(t *testing.T) {
	s := servers.StartRedis(t, servers.RedisOptions{})
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

// TestFirstRequestAfterARestart: the same after the server was restarted without scripts. The
// gateway sends them before it uses the store again.
func TestFirstRequestAfterARestart(t *testing.T) {
	s := servers.StartRedis(t, servers.RedisOptions{})
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
		servers.Poll(t, "the outage", func() bool {
			g.get(t, "/?sku=7")
			return g.has(t, `weir_store_up{store="shared"} 0`)
		})
		ctx, cancel := context.WithTimeout(t.Context(), servers.Patience)
		err := s.Start(ctx)
		cancel()
		if err != nil {
			t.Fatal(err)
		}
		servers.Poll(t, "the return", func() bool { return g.has(t, `weir_store_up{store="shared"} 1`) })
		const decided = `weir_limit_decisions_total{limit="per-sku",source="store"}`
		before := g.value(t, decided)
		if status, _ := g.get(t, "/?sku=7"); status == 200 && g.value(t, decided) != before {
			t.Logf("the store decided about the first request after restart %d", n)
			return
		}
	}
	t.Errorf("the store decided about the first request after none of %d restarts", most)
}
