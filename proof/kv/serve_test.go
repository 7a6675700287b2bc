package kv

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/weirflow/weir/proof/servers"
)

// TestServe: two gateways with a policy over each product share its limits: together they admit what the
// limits allow, singly and in groups.
func TestServe(t *testing.T) {
	shop := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "shop") }))
	defer shop.Close()
	each(t, func(t *testing.T, p *product) {
		policy := servers.FreePorts + fmt.Sprintf(`
stores:
  shared: { url: %q, nodes: 2, deadline: 1m, on_failure: deny }
limits:
  client: { key: header.client, token_bucket: { rate: 1/h, burst: 10 }, store: shared }
  all: { fixed_window: { limit: 35, window: 24h }, store: shared }
upstreams: { shop: { url: %q } }
routes: [{ match: /, upstream: shop, limits: [client, all] }]
`, p.url, shop.URL)
		var admitted [5]atomic.Int64
		var wg sync.WaitGroup
		for range 2 {
			g := servers.PolicyIn(t, t.TempDir(), policy).Start(t, binary)
			for client := range admitted {
				for range 4 {
					wg.Go(func() {
						for range 4 {
							r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+g.Gateway+"/", nil)
							if err != nil {
								t.Error(err)
								return
							}
							r.Header.Set("Client", fmt.Sprint(client))
							got, err := http.DefaultClient.Do(r)
							if err != nil {
								t.Error(err)
								return
							}
							_ = got.Body.Close()
							switch got.StatusCode {
							case http.StatusOK:
								admitted[client].Add(1)
							case http.StatusTooManyRequests:
							default:
								t.Errorf("status %d", got.StatusCode)
							}
						}
					})
				}
			}
		}
		wg.Wait()
		sum := int64(0)
		for client := range admitted {
			n := admitted[client].Load()
			if sum += n; n > 10 {
				t.Errorf("client %d: %d admitted, limit 10", client, n)
			}
		}
		// A group that is given back may have made another one be refused, which nobody repeats.
		if sum > 35 || sum < 30 {
			t.Errorf("%d admitted in all, limit 35", sum)
		}
	})
}
