package fleet

import (
	"bufio"
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/weirflow/weir/proof/servers"
)

// keyLine is an entry of a file with API keys.
func keyLine(customer, plan, key string) string {
	h := hmac.New(sha256.New, []byte(planSecret))
	h.Write([]byte(key))
	return fmt.Sprintf("- { customer: %s, plan: %s, hmac_sha256: %q }\n", customer, plan, hex.EncodeToString(h.Sum(nil)))
}

// exported is a line of the export.
type exported struct {
	Limit     string
	Key       []string
	Allowed   int64
	Used      int64
	Unlimited bool
	Error     string
}

// export returns the lines of an export, by limit and key. No key comes twice.
func (g *gateway) export(t *testing.T) map[string]exported {
	t.Helper()
	client := http.Client{Timeout: servers.Patience}
	resp, err := client.Get("http://" + g.Admin + "/v1/usage/export?format=jsonl")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	all := map[string]exported{}
	lines := bufio.NewScanner(resp.Body)
	for lines.Scan() {
		var u exported
		if err := json.Unmarshal(lines.Bytes(), &u); err != nil {
			t.Fatalf("%v: %s", err, lines.Text())
		}
		name := u.Limit + " " + strings.Join(u.Key, ",")
		if _, twice := all[name]; twice {
			t.Errorf("%s comes twice", name)
		}
		all[name] = u
	}
	return all
}

// TestExportOfStores: the export lists what all keys have used of quotas in Redis, on one server and on a
// Cluster, each under the parameters of its plan. While Redis does not respond, it says so.
func TestExportOfStores(t *testing.T) {
	for name, start := range map[string]func(t *testing.T) (url string, pause func() error, resume func()){
		"one server": func(t *testing.T) (string, func() error, func()) {
			s := servers.StartRedis(t, servers.RedisOptions{Config: []string{aUser}})
			return strings.Replace(s.URL(), "redis://", "redis://weir:s3cret@", 1), s.Pause, s.Resume
		},
		"a cluster": func(t *testing.T) (string, func() error, func()) {
			ctx, cancel := context.WithTimeout(t.Context(), 2*servers.Patience)
			defer cancel()
			cluster, err := servers.Cluster(ctx, servers.ClusterOptions{})
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() {
				if err := cluster.Stop(); err != nil {
					t.Error(err)
				}
			})
			return "redis+cluster://" + strings.Join(cluster.Addrs(), ","), nil, nil
		},
	} {
		t.Run(name, func(t *testing.T) {
			url, pause, resume := start(t)
			dir := t.TempDir()
			secret, keys := filepath.Join(dir, "secret"), filepath.Join(dir, "keys.yaml")
			if err := os.WriteFile(secret, []byte(planSecret), 0o600); err != nil {
				t.Fatal(err)
			}
			lines := ""
			for _, plan := range []string{"free", "pro", "enterprise"} {
				lines += keyLine("of-"+plan, plan, plan+"-key")
			}
			if err := os.WriteFile(keys, []byte(lines), 0o600); err != nil {
				t.Fatal(err)
			}
			g := startWeir(t, strings.NewReplacer("STORE", url, "KEYS", keys, "SECRET", secret).Replace(`
stores: { shared: { url: "STORE", on_failure: allow, deadline: 5s } }
plans: { from: api_key, api_keys: KEYS, hash_secret_file: SECRET, default: free, unknown: default }
limits:
  monthly: { key: customer, store: shared, fixed_window: { limit: 5, align: year }, plans: { pro: { limit: 100 }, enterprise: unlimited } }
  teams: { key: header.x-team, store: shared, on_missing: skip, token_bucket: { rate: 10/d, burst: 10 } }
  tea: { key: header.x-team, store: shared, on_missing: skip, fixed_window: { limit: 3, window: 1h } }
routes:
  - { match: /plan, limits: [monthly], respond: { status: 200 } }
  - { match: /, limits: [teams, tea], respond: { status: 200 } }
`))
			get := func(path, field, value string, n int) {
				for range n {
					r, err := http.NewRequestWithContext(t.Context(), "GET", "http://"+g.Gateway+path, nil)
					if err != nil {
						t.Error(err)
						return
					}
					r.Header.Set(field, value)
					resp, err := http.DefaultClient.Do(r)
					if err != nil {
						t.Error(err)
						return
					}
					resp.Body.Close()
				}
			}
			get("/plan", "X-Api-Key", "free-key", 3)
			get("/plan", "X-Api-Key", "pro-key", 20)
			get("/plan", "X-Api-Key", "enterprise-key", 17)
			const teams = 700
			odd := []string{"a{b}c", "~", "%7E", "a:b", "teams", "*", "[x]", "ä"}
			var clients sync.WaitGroup
			for c := range 20 {
				clients.Go(func() {
					for i := c; i < teams; i += 20 {
						get("/", "X-Team", fmt.Sprint("team", i), 1)
					}
				})
			}
			clients.Wait()
			for _, team := range odd {
				get("/", "X-Team", team, 2)
			}
			var all map[string]exported
			servers.Poll(t, "what is counted in the background", func() bool {
				all = g.export(t)
				return all["monthly of-enterprise"].Used == 17
			})
			for _, want := range []exported{
				{"monthly", []string{"of-free"}, 5, 3, false, ""}, {"monthly", []string{"of-pro"}, 100, 20, false, ""}, {"monthly", []string{"of-enterprise"}, 0, 17, true, ""},
			} {
				if got := all["monthly "+want.Key[0]]; fmt.Sprint(got) != fmt.Sprint(want) {
					t.Errorf("%+v, want %+v", got, want)
				}
			}
			for i := range teams {
				if got := all[fmt.Sprint("teams team", i)]; got.Used != 1 || got.Error != "" {
					t.Errorf("team%d: %+v", i, got)
				}
			}
			for _, team := range odd {
				if a, b := all["teams "+team], all["tea "+team]; a.Used != 2 || b.Used != 2 {
					t.Errorf("%q: %+v, %+v", team, a, b)
				}
			}
			if len(all) != 3+2*(teams+len(odd)) {
				t.Errorf("%d lines", len(all))
			}
			if pause == nil {
				return
			}
			if err := pause(); err != nil {
				t.Fatal(err)
			}
			defer resume()
			if got := g.export(t); len(got) != 3 || got["teams "].Error == "" || got["tea "].Error == "" || got["monthly "].Error == "" {
				t.Errorf("while the store does not respond: %+v", got)
			}
		})
	}
}
