package redis

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/weirflow/weir"
	"github.com/weirflow/weir/failover"
	"github.com/weirflow/weir/proof/servers"
	"github.com/weirflow/weir/weirredis"
	"github.com/weirflow/weir/weirrueidis"
)

// TestServersThatRefuseAsASlotIsNotServed: a cluster with its default, cluster-require-full-coverage
// yes, refuses all charges while one slot has no master. The fallback decides about all keys, with
// CLUSTERDOWN as the reason, and the store decides again by itself as soon as all slots are served,
// or the setting is no. What was used is still used.
func TestServersThatRefuseAsASlotIsNotServed(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(t.Context(), 4*patience)
	defer cancel()
	c, err := servers.Cluster(ctx, servers.ClusterOptions{NodeTimeout: shardDeadline})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := c.Stop(); err != nil {
			t.Error(err)
		}
	})
	at := func(s *servers.RedisServer, args ...string) {
		t.Helper()
		if _, err := s.Do(ctx, args...); err != nil {
			t.Fatalf("%v: %v", args, err)
		}
	}
	number, err := c.Slot(ctx, "{unserved}")
	if err != nil {
		t.Fatal(err)
	}
	owner, err := c.Owner(ctx, number)
	if err != nil {
		t.Fatal(err)
	}
	slot := fmt.Sprint(number)
	inner, err := weirrueidis.Open("redis+cluster://"+strings.Join(c.Addrs(), ","), patiently(weirredis.Options{}))
	if err != nil {
		t.Fatal(err)
	}
	defer inner.Close()
	if err := inner.Warm(ctx, []weir.Limit{plentyOf}); err != nil {
		t.Fatal(err)
	}
	store, err := failover.New(inner, failover.Options{OnFailure: failover.Deny, Deadline: 200 * time.Millisecond, Direct: true})
	if err != nil {
		t.Fatal(err)
	}
	defer store.Close()
	keys := keysOf(ctx, t, c, "of", 1)
	decided := func(by weir.Source) bool {
		out := make([]weir.Decision, 1)
		for _, of := range keys {
			if err := store.Do(ctx, []weir.Charge{{Name: "api", Key: of[0], Limit: plentyOf, Cost: 1}}, out); err != nil {
				t.Fatalf("a caller got an error: %v", err)
			}
			if out[0].Source != by {
				return false
			}
		}
		return true
	}
	for _, repair := range []struct {
		name string
		do   func()
	}{
		{"all slots are served", func() { at(owner, "CLUSTER", "ADDSLOTS", slot) }},
		{"the setting is no", func() {
			for _, s := range c.Nodes() {
				at(s, "CONFIG", "SET", "cluster-require-full-coverage", "no")
			}
		}},
	} {
		until(t, "the store decides about all keys", func() bool { return decided(weir.SourceStore) })
		at(owner, "CLUSTER", "DELSLOTS", slot)
		until(t, "the other masters know that nobody serves the slot", func() bool {
			for _, s := range c.Nodes() {
				if s != owner {
					_, _ = s.Do(ctx, "CLUSTER", "DELSLOTS", slot) // an error if it knows already
				}
				if info, err := s.Do(ctx, "CLUSTER", "INFO"); err != nil || !strings.Contains(info.(string), "cluster_state:fail") {
					return false
				}
			}
			return true
		})
		until(t, "the fallback decides about all keys, and all breakers are open", func() bool {
			return decided(weir.SourceDeny) && len(store.Stats().Down) == 3
		})
		before := store.Stats()
		for i, cause := range before.Causes {
			if cause == nil || !strings.Contains(cause.Error(), "CLUSTERDOWN") {
				t.Errorf("the reason of %s is %v", before.Down[i], cause)
			}
		}
		until(t, "it is probed further", func() bool { return store.Stats().Probed >= before.Probed+6 })
		if after := store.Stats(); after.Returned != before.Returned {
			t.Errorf("a probe took the cluster for a good one: %+v", after)
		}
		repair.do()
		until(t, repair.name+", and the store decides about all keys", func() bool { return decided(weir.SourceStore) })
		for _, of := range keys {
			until(t, "the store has not forgotten what was used", func() bool {
				out := make([]weir.Decision, 1)
				err := store.Do(ctx, []weir.Charge{{Name: "api", Key: of[0], Limit: plentyOf, Op: weir.OpPeek}}, out)
				if err != nil || out[0].Source == weir.SourceStore && out[0].Limit-out[0].Remaining < 2 {
					t.Fatalf("%+v, %v: what was used is forgotten", out[0], err)
				}
				return out[0].Source == weir.SourceStore
			})
		}
	}
}
