package postgres

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/weirflow/weir/proof/servers"
)

// binary is the weir command.
var binary string

// gateway starts weir serve with a limit of 3 a day in PostgreSQL.
func gateway(t *testing.T, url, settings string) *servers.Reloadable {
	t.Helper()
	up := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	t.Cleanup(up.Close)
	g := servers.PolicyIn(t, t.TempDir(), servers.FreePorts+strings.NewReplacer("URL", url, "SETTINGS", settings, "UP", up.URL).Replace(`
stores: { shared: { url: "URL", on_failure: deny, SETTINGS } }
limits: { per-sku: { key: query.sku, token_bucket: { rate: 3/d, burst: 3 }, store: shared } }
upstreams: { up: { url: "UP" } }
routes: [{ match: /, upstream: up, limits: [per-sku] }]
`))
	g.Start(t, binary)
	return g
}

// status makes a request.
func status(t *testing.T, g *servers.Reloadable, sku string) int {
	t.Helper()
	resp, err := http.Get("http://" + g.Gateway + "/?sku=" + sku)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if _, err := io.Copy(io.Discard, resp.Body); err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode
}

// admitted is how many requests of several are admitted.
func admitted(t *testing.T, sku string, gateways ...*servers.Reloadable) (n int) {
	t.Helper()
	for i := range 8 {
		if status(t, gateways[i%len(gateways)], sku) == http.StatusOK {
			n++
		}
	}
	return n
}

// TestServe: gateways share a limit in PostgreSQL, with and without leases, whose tables they make
// themselves. While the server is down, on_failure decides; when it is back, the counts are there again.
func TestServe(t *testing.T) {
	s := servers.StartPostgres(t, servers.PostgresOptions{Persist: true})
	url := s.URL() + "&durable=true"
	// the patient one is not asked while the server is down
	patient, leased := gateway(t, url, "deadline: 1m"), gateway(t, url, "deadline: 200ms, lease: true")
	for _, g := range []*servers.Reloadable{patient, leased} {
		servers.Poll(t, "the store is connected", func() bool { return strings.Contains(g.Metrics(t), `weir_store_up{store="shared"} 1`) })
	}
	servers.Poll(t, "the first decision", func() bool { return status(t, leased, "first") == http.StatusOK })
	if n := admitted(t, "1", patient); n != 3 {
		t.Errorf("%d admitted of 3", n)
	}
	for _, end := range []func(){s.Kill, func() {
		if err := s.Process.Stop(); err != nil {
			t.Error(err)
		}
	}} {
		end()
		for _, sku := range []string{"1", "2"} {
			if n := admitted(t, sku, leased); n != 0 {
				t.Errorf("%d admitted while the store is down", n)
			}
		}
		ctx, cancel := context.WithTimeout(t.Context(), servers.Patience)
		if err := s.Start(ctx); err != nil {
			t.Fatal(err)
		}
		cancel()
		servers.Poll(t, "the store is back", func() bool { return strings.Contains(leased.Metrics(t), `weir_store_up{store="shared"} 1`) })
		if n := admitted(t, "1", patient, leased); n != 0 {
			t.Errorf("%d admitted again after the store was back", n)
		}
	}
	if n := admitted(t, "3", patient); n != 3 {
		t.Errorf("%d admitted of 3 after the outages", n)
	}
	if n := admitted(t, "4", leased, patient); n > 3 {
		t.Errorf("%d admitted of 3 by both", n)
	}
}
