package redis

import (
	"errors"
	"net/http"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/weirflow/weir"
	"github.com/weirflow/weir/internal/seeds"
	leasing "github.com/weirflow/weir/lease"
	"github.com/weirflow/weir/policy"
	"github.com/weirflow/weir/proof/servers"
	"github.com/weirflow/weir/weirredis"
	"github.com/weirflow/weir/weirrueidis"
)

// costNode is a node with a limit whose costs are known only afterwards.
type costNode struct {
	*policy.Engine
	stores []weir.Store
}

func (n costNode) close(t *testing.T) {
	t.Helper()
	err := n.Close() // waits for what is settled in the background
	for _, s := range n.stores {
		err = errors.Join(err, s.Close())
	}
	if err != nil {
		t.Error(err)
	}
}

// openCostNode opens a node. Its limit is shared by all that have the same name.
func openCostNode(t *testing.T, addr, name string, l weir.Limit, leased bool) costNode {
	t.Helper()
	store, err := weirredis.New(weirrueidis.Evaler(connect(t, addr)), weirredis.Options{Timeout: time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	n := costNode{stores: []weir.Store{store}}
	if leased {
		// tokens whose round trip has no answer in time are lost
		over, err := leasing.New(store, leasing.Options{Timeout: patience})
		if err != nil {
			t.Fatal(err)
		}
		n.stores = append([]weir.Store{over}, n.stores...)
	}
	n.Engine, err = policy.New(policy.Policy{
		Stores: []policy.Store{{Name: "shared", URL: "redis://" + addr}},
		Limits: []policy.Limit{{Name: name, Limit: l, Store: "shared", Costs: policy.Costs{
			Before: []policy.CostTerm{{Of: "header.x-estimate"}}, After: []policy.CostTerm{{Of: "header.x-cost"}},
		}}},
		Routes: []policy.Route{{Match: "/", Limits: []string{name}}},
	}, policy.Options{Stores: map[string]weir.Store{"shared": n.stores[0]}})
	if err != nil {
		t.Fatal(err)
	}
	return n
}

const costEstimate = 100

// send sends a request through a node, and reports whether it was admitted.
func (n costNode) send(t *testing.T, cost int64) (remaining int64, ok bool) {
	r := policy.Request{Method: "GET", Path: "/", Header: http.Header{"X-Estimate": {strconv.Itoa(costEstimate)}}}
	v := n.DecideContext(t.Context(), r)
	if v.Err != nil {
		t.Error(v.Err)
	}
	if v.Outcome != policy.Allow {
		return v.Decision.Remaining, false
	}
	m := v.Meter()
	m.Header(200, http.Header{"X-Cost": {strconv.FormatInt(cost, 10)}})
	m.End(policy.Ending{Complete: true})
	return v.Decision.Remaining, true
}

// TestCostsOfAFleet: 1, 2 and 4 nodes over one Redis, with and without leases: what all requests have
// cost is never over the limit, and nearly all of it is used, as what was estimated too high comes
// back. The state is exactly what the requests have cost.
func TestCostsOfAFleet(t *testing.T) {
	addr := servers.StartRedis(t, servers.RedisOptions{}).Addr
	const limit = 20_000
	for kind, l := range map[string]weir.Limit{
		"window": weir.FixedWindow{Limit: limit, Window: 24 * time.Hour, Align: weir.AlignFirst},
		"bucket": weir.TokenBucket{Rate: weir.Rate{N: 1, Per: time.Hour}, Burst: limit},
	} {
		for _, leased := range []bool{false, true} {
			for _, nodes := range []int{1, 2, 4} {
				name := kind + "-" + strconv.Itoa(nodes) + "-" + strconv.FormatBool(leased)
				var spent atomic.Int64
				var all sync.WaitGroup
				var fleet []costNode
				for i := range nodes {
					n := openCostNode(t, addr, name, l, leased)
					fleet = append(fleet, n)
					for j := range 4 {
						rnd := seeds.Of(name + strconv.Itoa(i) + strconv.Itoa(j))
						all.Go(func() {
							for {
								cost := 20 + rnd.Int64N(costEstimate-20)
								if _, ok := n.send(t, cost); !ok {
									return
								}
								spent.Add(cost)
							}
						})
					}
				}
				all.Wait()
				for _, n := range fleet {
					n.close(t)
				}
				last := openCostNode(t, addr, name, l, leased)
				for first := true; ; first = false {
					left, ok := last.send(t, costEstimate)
					if exact := limit - spent.Load(); first && ok && left+costEstimate != exact {
						t.Errorf("%s: %d remain after %d of %d were spent", name, left+costEstimate, spent.Load(), limit)
					}
					if !ok {
						break
					}
					spent.Add(costEstimate)
				}
				last.close(t)
				least := int64(limit - costEstimate + 1)
				if got := spent.Load(); got > limit || got < least {
					t.Errorf("%s: %d of %d are spent", name, got, limit)
				}
			}
		}
	}
}
