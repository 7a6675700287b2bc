package redis

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/redis/rueidis"

	"github.com/weirflow/weir"
	"github.com/weirflow/weir/proof/servers"
	"github.com/weirflow/weir/weirredis"
	"github.com/weirflow/weir/weirrueidis"
)

// TestHoldsOnCluster: holds of keys in many slots are extended, and the keys of each named limit
// are in one slot.
func TestHoldsOnCluster(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	cluster, err := servers.Cluster(ctx, servers.ClusterOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer cluster.Stop()
	client, err := rueidis.NewClient(rueidis.ClientOption{InitAddress: cluster.Addrs(), DisableCache: true})
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	store, err := weirrueidis.New(client, patiently(weirredis.Options{}))
	if err != nil {
		t.Fatal(err)
	}
	defer store.Close()
	c, err := weirredis.NewConcurrency(store, weir.Concurrency{Limit: 1, MaxHold: longHold}, "gate")
	if err != nil {
		t.Fatal(err)
	}
	var all sync.WaitGroup
	for i := range 50 {
		all.Go(func() {
			h, err := c.Enter(ctx, fmt.Sprint("key-", i))
			if err != nil {
				t.Error(err)
				return
			}
			defer h.Done(weir.OK)
			end := time.NewTimer(longHold + longHold/8)
			defer end.Stop()
			select {
			case <-end.C:
			case <-h.Lost():
				t.Errorf("the hold of key-%d is lost", i)
			}
		})
	}
	all.Wait()
	n := weirredis.NewNamed(store)
	for i := range 10 {
		name := fmt.Sprint("limit-", i)
		if _, err := n.Init(ctx, name, weir.TokenBucket{Rate: weir.PerDay(1), Burst: 3}, weirredis.PerClient); err != nil {
			t.Fatal(err)
		}
		takes(t, n, name, "alice", 2, 1, true, 0)
		if err := n.Delete(ctx, name); err != nil {
			t.Error(err)
		}
	}
}
