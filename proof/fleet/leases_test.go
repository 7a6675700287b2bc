package fleet

import (
	"fmt"
	"strings"
	"testing"

	"github.com/weirflow/weir/proof/servers"
)

// TestALeavingGatewayGivesBack: a gateway that shuts down returns its unused leased tokens, and the
// next one can use them.
func TestALeavingGatewayGivesBack(t *testing.T) {
	s := servers.StartRedis(t, servers.RedisOptions{})
	up := newUpstream(t)
	policy := func(lease string) string {
		return strings.NewReplacer("STORE", s.URL(), "UP", up.URL, "LEASE", lease).Replace(`
stores: { shared: { url: "STORE", on_failure: deny, deadline: 10s, lease: LEASE } }
limits: { hot: { token_bucket: { rate: 1/d, burst: 4000 }, store: shared } }
upstreams: { up: { url: "UP" } }
routes: [{ match: /, upstream: up, limits: [hot] }]
`)
	}
	first := startWeir(t, policy("{ lifetime: 1m }"))
	used := 0
	ask := func(g *gateway) string {
		status, h := g.get(t, "/")
		if status != 200 {
			t.Fatalf("status %d", status)
		}
		used++
		return h.Get("RateLimit")
	}
	for range 300 {
		ask(first)
	}
	if first.has(t, `weir_store_lease_tokens_total{event="taken",store="shared"} 0`) {
		t.Fatal("nothing was taken ahead")
	}
	if err := first.Stop(); err != nil {
		t.Fatal(err)
	}
	next := startWeir(t, policy("false"))
	if got, want := ask(next), fmt.Sprintf("r=%d;", 4000-used); !strings.Contains(got+";", want) {
		t.Errorf("%q, want %s: the first gateway kept some", got, want)
	}
}
