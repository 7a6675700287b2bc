package redis

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/rueidis"

	"github.com/weirflow/weir"
	"github.com/weirflow/weir/proof/servers"
	"github.com/weirflow/weir/weirredis"
)

// TestANodeThatDoesNotRespondDelaysNoOther: while one node of a cluster is stopped, callers of the
// other nodes get their decisions.
func TestANodeThatDoesNotRespondDelaysNoOther(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	c, err := servers.Cluster(ctx, servers.ClusterOptions{NodeTimeout: patience, Config: []string{"cluster-require-full-coverage no"}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := c.Stop(); err != nil {
			t.Error(err)
		}
	})
	client, err := rueidis.NewClient(rueidis.ClientOption{InitAddress: c.Addrs(), DisableCache: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(client.Close)
	store := open(t, client, weirredis.Options{})
	take := func(key string, within time.Duration) error {
		ctx, cancel := context.WithTimeout(ctx, within)
		defer cancel()
		return store.Do(ctx, []weir.Charge{{Name: "api", Key: key, Limit: slow(plenty), Cost: 1}}, make([]weir.Decision, 1))
	}
	sick := map[string]bool{}
	const many = 64
	for n := range many {
		key := fmt.Sprint("k", n)
		slot, err := c.Slot(ctx, "{"+key+"}")
		if err != nil {
			t.Fatal(err)
		}
		owner, err := c.Owner(ctx, slot)
		if err != nil {
			t.Fatal(err)
		}
		sick[key] = owner == c.Masters[0]
		if err := take(key, patience); err != nil {
			t.Fatal(err)
		}
	}
	if err := c.Masters[0].Pause(); err != nil {
		t.Fatal(err)
	}
	defer c.Masters[0].Resume()
	var wg sync.WaitGroup
	var answered, not atomic.Int64
	for n := range many {
		wg.Go(func() {
			for key := fmt.Sprint("k", n); answered.Load() < 100*many && ctx.Err() == nil; {
				switch err := take(key, time.Second); {
				case sick[key]:
				case err == nil:
					answered.Add(1)
				default:
					not.Add(1)
				}
			}
		})
	}
	wg.Wait()
	t.Logf("keys of the other nodes: %d calls were answered, %d not", answered.Load(), not.Load())
	if answered.Load() < 4*not.Load() {
		t.Error("it is an outage of all")
	}
}
