package fleet

import (
	"context"
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

// TestATagIsOneStep: a route has two limits on a cluster, and the second refuses. Without a tag,
// another client sees the first limit's charge until it is given back. With a tag it never does.
func TestATagIsOneStep(t *testing.T) {
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
	for _, tag := range []string{"", "header.x-user", "const.one"} {
		t.Run("tag "+tag, func(t *testing.T) {
			p := policy.Policy{
				Stores: []policy.Store{{Name: "shared", URL: "redis+cluster://" + strings.Join(cluster.Addrs(), ","), Place: policy.Place{Slots: true}, Prefix: "weir:" + strings.ReplaceAll(tag, ".", "-") + ":"}},
				Limits: []policy.Limit{
					{Name: "user", Key: []string{"header.x-user"}, Limit: weir.TokenBucket{Rate: weir.PerHour(1), Burst: 100}, Tag: tag},
					{Name: "item", Key: []string{"header.x-user", "query.sku"}, Limit: weir.TokenBucket{Rate: weir.PerHour(1), Burst: 1}, Tag: tag},
				},
				Routes: []policy.Route{{Match: "/", Limits: []string{"user", "item"}}},
			}
			for i := range p.Limits {
				p.Limits[i].Store = "shared"
			}
			together := true
			for _, problem := range p.Check() {
				together = together && !strings.Contains(problem.Message, "one after the other")
			}
			if together != (tag != "") {
				t.Errorf("the check says: %v", p.Check())
			}
			seen := halves(ctx, t, p, opened(t, p), opened(t, p), tag != "")
			if t.Logf("another client saw %d charges that were given back", seen); (seen > 0) != (tag == "") {
				t.Error("that is not what the documents say")
			}
		})
	}
}

// opened opens the only store of a policy, as another client.
func opened(t *testing.T, p policy.Policy) weir.Store {
	t.Helper()
	s, err := weirrueidis.Open(p.Stores[0].URL, weirredis.Options{Prefix: p.Stores[0].Prefix, Tag: p.Tags("shared"), Timeout: servers.Patience})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

// halves counts how often an observer sees charges of refused requests: during 1000 of them, or
// until it has seen one.
func halves(ctx context.Context, t *testing.T, p policy.Policy, store, other weir.Store, all bool) (seen int) {
	e, err := policy.New(p, policy.Options{Stores: map[string]weir.Store{"shared": store}})
	if err != nil {
		t.Fatal(err)
	}
	defer e.Close()
	request := policy.Request{Method: "GET", Path: "/", Query: "sku=7", Header: http.Header{"X-User": {"ann"}}}
	if v := e.DecideContext(ctx, request); v.Outcome != policy.Allow {
		t.Fatalf("%+v", v)
	}
	over, done := context.WithCancel(ctx)
	var requests sync.WaitGroup
	requests.Go(func() {
		defer done()
		for n := 0; over.Err() == nil && (n < 1000 || !all); n++ {
			if v := e.DecideContext(ctx, request); v.Outcome != policy.Deny || v.Limit != "item" {
				t.Errorf("%+v", v)
				return
			}
		}
	})
	peek := []weir.Charge{{Name: p.Limits[0].StateName(), Key: policy.EncodeKey("ann"), Limit: p.Limits[0].Limit, Op: weir.OpPeek}}
	for out := make([]weir.Decision, 1); over.Err() == nil && (all || seen == 0); {
		if err := other.Do(ctx, peek, out); err != nil {
			t.Fatal(err)
		}
		if out[0].Remaining < 99 { // the observer's own was admitted
			seen++
		}
	}
	done()
	requests.Wait()
	return seen
}
