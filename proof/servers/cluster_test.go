package servers_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/weirflow/weir/proof/servers"
)

func cluster(ctx context.Context, t *testing.T, o servers.ClusterOptions) *servers.RedisCluster {
	t.Helper()
	c, err := servers.Cluster(ctx, o)
	if err != nil {
		t.Fatal(err)
	}
	stops(t, c)
	return c
}

func TestClusterMovesSlotsWithTheirKeys(t *testing.T) {
	ctx := within(t, 2*time.Minute)
	c := cluster(ctx, t, servers.ClusterOptions{Password: "p w", NodeTimeout: 15 * time.Second}) // long enough that no node fails on a busy machine
	if len(c.Addrs()) != 3 {
		t.Error(c.Addrs())
	}
	slot, err := c.Slot(ctx, "{tag}")
	if err != nil {
		t.Fatal(err)
	}
	from, err := c.Owner(ctx, slot)
	if err != nil {
		t.Fatal(err)
	}
	to := c.Masters[0]
	if from == to {
		to = c.Masters[1]
	}
	const keys = 250 // more than are moved at once
	for i := range keys {
		says(t, from, "OK", "SET", fmt.Sprintf("{tag}\x00%d", i), fmt.Sprint(i))
	}
	refuses(t, to, "MOVED", "GET", "{tag}\x007")

	if err := c.MoveSlot(ctx, slot, from, to); err != nil {
		t.Fatal(err)
	}
	for _, s := range c.Masters {
		if s != to {
			refuses(t, s, "MOVED", "GET", "{tag}\x007")
		}
	}
	says(t, to, "7", "GET", "{tag}\x007")
	says(t, to, int64(keys), "DBSIZE")
	says(t, from, int64(0), "DBSIZE")

	if err := c.MoveSlots(ctx, slot-1, slot+1, from); err != nil { // one of which has another owner
		t.Fatal(err)
	}
	says(t, from, int64(keys), "DBSIZE")
	if owner, err := c.Owner(ctx, slot); err != nil || owner != from {
		t.Error(owner, err)
	}
	if err := c.MoveSlots(ctx, slot, 16384, to); err == nil {
		t.Error("there is no slot 16384")
	}
	if err := c.MoveSlot(ctx, slot, from, from); err == nil {
		t.Error("it moved to where it was")
	}
	if err := c.AwaitHealthy(ctx); err != nil {
		t.Error(err)
	}
}

func TestAReplicaTakesOverInACluster(t *testing.T) {
	ctx := within(t, 2*time.Minute)
	c := cluster(ctx, t, servers.ClusterOptions{Replicas: 1})
	slot, err := c.Slot(ctx, "a")
	if err != nil {
		t.Fatal(err)
	}
	old, err := c.Owner(ctx, slot)
	if err != nil {
		t.Fatal(err)
	}
	replicate(t, old, 1, "a", "1")
	old.Kill()
	owner, err := c.AwaitOwner(ctx, slot, old)
	if err != nil {
		t.Fatal(err)
	}
	says(t, owner, "1", "GET", "a")
	if err := old.Start(ctx); err != nil {
		t.Fatal(err)
	}
	if err := c.AwaitHealthy(ctx); err != nil {
		t.Error(err)
	}
	refuses(t, old, "MOVED", "GET", "a")
}
