package redis

import (
	"context"
	"fmt"
	"testing"

	goredis "github.com/redis/go-redis/v9"

	"github.com/weirflow/weir/proof/servers"
	"github.com/weirflow/weir/weirgoredis"
	"github.com/weirflow/weir/weirredis"
)

// TestGoRedis: the other client, with one server, and with a cluster whose slots move.
func TestGoRedis(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	single := goredis.NewClient(&goredis.Options{Addr: servers.StartRedis(t, servers.RedisOptions{}).Addr, ContextTimeoutEnabled: true})
	defer single.Close()
	s, err := weirgoredis.New(single, patiently(weirredis.Options{}))
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	spends(t, s, "key")

	nodes, err := servers.Cluster(ctx, servers.ClusterOptions{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { nodes.Stop() })
	cluster := goredis.NewClusterClient(&goredis.ClusterOptions{Addrs: nodes.Addrs(), ContextTimeoutEnabled: true})
	defer cluster.Close()
	if s, err = weirgoredis.New(cluster, patiently(weirredis.Options{})); err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	for i := range 10 {
		spends(t, s, fmt.Sprint("before", i))
	}
	if err := nodes.MoveSlots(ctx, 0, 2000, nodes.Masters[1]); err != nil { // to where the client does not look for them
		t.Fatal(err)
	}
	for i := range 40 {
		spends(t, s, fmt.Sprint("after", i))
	}
}
