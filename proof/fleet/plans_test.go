package fleet

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/weirflow/weir/proof/servers"
)

// contracts are two gateways with one store, and the file with the key of one customer.
type contracts struct {
	gateways []*gateway
	keys     string // path of the file
}

const planSecret = "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"

// startContracts starts gateways whose limit is 10 for free, and 30 for pro. of is the other settings of
// the store.
func startContracts(t *testing.T, s *servers.RedisServer, rate, of string) *contracts {
	t.Helper()
	dir := t.TempDir()
	c := &contracts{keys: filepath.Join(dir, "keys.yaml")}
	secret := filepath.Join(dir, "secret")
	if err := os.WriteFile(secret, []byte(planSecret+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	c.plan(t, "free")
	policy := strings.NewReplacer("STORE", s.URL(), "UP", newUpstream(t).URL, "KEYS", c.keys, "SECRET", secret, "RATE", rate, "OF", of).Replace(`
stores: { shared: { url: "STORE", OF } }
plans: { from: api_key, api_keys: KEYS, hash_secret_file: SECRET, default: free }
limits:
  requests:
    key: customer
    store: shared
    token_bucket: { rate: RATE, burst: 10 }
    plans: { pro: { burst: 30 } }
upstreams: { up: { url: "UP" } }
routes: [{ match: /, upstream: up, limits: [requests] }]
`)
	c.gateways = []*gateway{startWeir(t, policy), startWeir(t, policy)}
	return c
}

// plan gives the customer another plan. Files are replaced, as docs/plans.md advises.
func (c *contracts) plan(t *testing.T, plan string) {
	t.Helper()
	h := hmac.New(sha256.New, []byte(planSecret))
	h.Write([]byte("the-key"))
	line := fmt.Sprintf("- { customer: acme, plan: %s, hmac_sha256: %s }\n", plan, hex.EncodeToString(h.Sum(nil)))
	if err := os.WriteFile(c.keys+".new", []byte(line), 0o600); err != nil {
		t.Fatal(err)
	}
	reloads := make([]string, len(c.gateways))
	for i, g := range c.gateways {
		reloads[i] = g.value(t, `weir_api_keys_reloads_total{result="ok"}`)
	}
	if err := os.Rename(c.keys+".new", c.keys); err != nil {
		t.Fatal(err)
	}
	for i, g := range c.gateways {
		servers.Poll(t, "the reload of the keys", func() bool { return g.value(t, `weir_api_keys_reloads_total{result="ok"}`) != reloads[i] })
	}
}

// ask sends n requests to each gateway, side by side, and returns how many were admitted.
func (c *contracts) ask(t *testing.T, n int) (admitted int64) {
	t.Helper()
	var ok atomic.Int64
	var all sync.WaitGroup
	for i := range n * len(c.gateways) {
		all.Go(func() {
			r, err := http.NewRequestWithContext(t.Context(), "GET", "http://"+c.gateways[i%len(c.gateways)].Gateway, nil)
			if err != nil {
				t.Error(err)
				return
			}
			r.Header.Set("X-Api-Key", "the-key")
			resp, err := http.DefaultClient.Do(r)
			if err != nil {
				t.Error(err)
				return
			}
			resp.Body.Close()
			switch resp.StatusCode {
			case http.StatusOK:
				ok.Add(1)
			case http.StatusTooManyRequests:
			default:
				t.Errorf("status %d", resp.StatusCode)
			}
		})
	}
	all.Wait()
	return ok.Load()
}

// TestPlansInRedis: a customer of two gateways has one limit. A change of plan keeps what was used, in
// both directions, with leases too.
func TestPlansInRedis(t *testing.T) {
	for name, lease := range map[string]string{"each in the store": "false", "leased": "{ lifetime: 100ms }"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := startContracts(t, servers.StartRedis(t, servers.RedisOptions{}), "1/d", "on_failure: deny, deadline: 10s, lease: "+lease)
			exact := lease == "false"
			was := func(when string, sum, want int64) {
				if sum > want || exact && sum != want || sum < want/2 {
					t.Errorf("%s: %d admitted, want %d", when, sum, want)
				}
			}
			used := c.ask(t, 3)
			was("free", used, 6)
			c.plan(t, "pro")
			used += c.ask(t, 40)
			was("pro", used, 30)
			c.plan(t, "free")
			if n := c.ask(t, 20); n != 0 {
				t.Errorf("free again: %d admitted after %d", n, used)
			}
		})
	}
}

// TestPlansInAnOutage: while the store does not respond, two gateways admit no more than the rate of the
// plan together, as local shares start empty; also if the plan changes in the middle. What was used in
// the store before is used afterwards.
func TestPlansInAnOutage(t *testing.T) {
	t.Parallel()
	s := servers.StartRedis(t, servers.RedisOptions{})
	c := startContracts(t, s, "1/s", "on_failure: local, nodes: 2, deadline: 500ms")
	began := time.Now()
	used := c.ask(t, 3)
	if err := s.Pause(); err != nil {
		t.Fatal(err)
	}
	out := time.Now()
	var local int64
	for _, plan := range []string{"", "pro"} {
		if plan != "" {
			c.plan(t, plan)
		}
		before := local
		servers.Poll(t, "an admission by a local share", func() bool { local += c.ask(t, 1); return local > before })
	}
	local += c.ask(t, 40)
	if most := int64(time.Since(out)/time.Second) + 2; local > most {
		t.Errorf("%d admitted in an outage of %v, want at most %d", local, time.Since(out), most)
	}
	s.Resume()
	for _, g := range c.gateways {
		servers.Poll(t, "the store to be back", func() bool { return g.has(t, `weir_store_up{store="shared"} 1`) })
	}
	servers.Poll(t, "all that the plan has", func() bool { used += c.ask(t, 20); return used >= 30 })
	if most := 30 + int64(time.Since(began)/time.Second) + 1; used > most {
		t.Errorf("the store has admitted %d in %v, want at most %d", used, time.Since(began), most)
	}
}
