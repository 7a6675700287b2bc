package fleet

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"

	"github.com/weirflow/weir"
	"github.com/weirflow/weir/policy"
	"github.com/weirflow/weir/proof/servers"
	"github.com/weirflow/weir/weirredis"
	"github.com/weirflow/weir/weirrueidis"
)

// marks counts, by user, the marks of warnings that nodes looked for, and those for which the server was too
// slow.
type marks struct {
	mu           sync.Mutex
	asked, tired map[string]int
}

// marking is a store whose marks are counted.
type marking struct {
	weir.Store
	all *marks
}

func (m *marking) Do(ctx context.Context, batch []weir.Charge, out []weir.Decision) error {
	err := m.Store.Do(ctx, batch, out)
	if strings.HasPrefix(batch[0].Name, "WARNED.") {
		user, _ := policy.DecodeKey(batch[0].Key)
		m.all.mu.Lock()
		defer m.all.mu.Unlock()
		if m.all.asked[user[0]]++; err != nil {
			m.all.tired[user[0]]++
		}
	}
	return err
}

// TestOneWarningOfAFleet: of nodes that share a limit in Redis whose costs are known only afterwards, the
// first one warns of each key, and the others find its mark, also one that starts later. A node for which
// the server is too slow warns, too.
func TestOneWarningOfAFleet(t *testing.T) {
	for _, limit := range []weir.Limit{
		weir.FixedWindow{Limit: 1000, Align: "month"},
		weir.TokenBucket{Rate: weir.PerDay(1000), Burst: 1000},
		weir.SlidingWindow{Limit: 1000, Window: 24 * 3600e9, Slots: 24},
	} {
		t.Run(fmt.Sprintf("%T", limit), func(t *testing.T) {
			s := servers.StartRedis(t, servers.RedisOptions{})
			tokens := policy.Limit{
				Name: "tokens", Key: []string{"header.x-user"}, Limit: limit, Store: "shared", WarnAt: "80%",
				Costs: policy.Costs{Before: []policy.CostTerm{{Of: "1"}}, After: []policy.CostTerm{{Of: "header.x-cost"}}},
			}
			p := policy.Policy{
				Stores: []policy.Store{{Name: "shared", URL: s.URL()}}, Limits: []policy.Limit{tokens},
				Routes: []policy.Route{{Match: "/", Limits: []string{"tokens"}}},
			}
			var mu sync.Mutex
			warned := map[string]int{}
			all := &marks{asked: map[string]int{}, tired: map[string]int{}}
			node := func() *policy.Engine {
				store, err := weirrueidis.Open(s.URL(), weirredis.Options{Timeout: servers.Patience})
				if err != nil {
					t.Fatal(err)
				}
				t.Cleanup(func() { store.Close() })
				e, err := policy.New(p, policy.Options{Stores: map[string]weir.Store{"shared": &marking{store, all}}, Warn: func(w policy.Warning) {
					mu.Lock()
					defer mu.Unlock()
					warned[w.Key[0]]++
				}})
				if err != nil {
					t.Fatal(err)
				}
				return e
			}
			users := []string{"ann", "bob", "eve", "joe", "sue"}
			serve := func(nodes ...*policy.Engine) {
				for i := range 30 { // of 50 each: 800 are used after 16
					for _, user := range users {
						v := nodes[i%len(nodes)].DecideContext(t.Context(), policy.Request{Method: "GET", Path: "/", Header: http.Header{"X-User": {user}}})
						if v.Outcome == policy.Allow {
							m := v.Meter()
							m.Header(200, http.Header{"X-Cost": {"50"}})
							m.End(policy.Ending{Complete: true})
						}
						v.Done(weir.OK)
					}
				}
				for _, e := range nodes {
					e.Close() // waits for the calls about marks
				}
			}
			serve(node(), node(), node())
			serve(node())
			sure := 0
			for _, user := range users {
				asked, tired := all.asked[user], all.tired[user]
				if n := warned[user]; n < 1 || n > 1+tired || asked != 4 {
					t.Errorf("%s: %d warnings; %d nodes looked for a mark, %d in vain", user, n, asked, tired)
				}
				if tired == 0 {
					sure++
				}
			}
			if sure == 0 {
				t.Error("the server was too slow for all marks")
			}
		})
	}
}
