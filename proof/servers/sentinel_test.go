package servers_test

import (
	"testing"
	"time"

	"github.com/weirflow/weir/proof/servers"
)

func TestSentinel(t *testing.T) {
	ctx := within(t, 2*time.Minute)
	// Half a second would be too short for a busy machine: there would be unwanted failovers.
	g, err := servers.Sentinel(ctx, servers.SentinelOptions{Replicas: 2, Password: "secret", DownAfter: 2 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	stops(t, g)
	first, err := g.Master(ctx)
	if err != nil || first != g.Servers[0].Addr || len(g.Addrs()) != 3 {
		t.Fatal(first, g.Addrs(), err)
	}
	replicate(t, g.Server(first), 2, "a", "1")

	second, err := g.Failover(ctx)
	if err != nil || second == first {
		t.Fatal(second, err)
	}
	says(t, g.Server(second), "1", "GET", "a")

	killed, err := g.KillMaster(ctx)
	if err != nil || killed.Addr != second {
		t.Fatal(killed, err)
	}
	third, err := g.AwaitMaster(ctx, second)
	if err != nil {
		t.Fatal(err)
	}
	says(t, g.Server(third), "1", "GET", "a")

	for _, s := range []*servers.RedisServer{killed, g.Sentinels[0]} {
		s.Kill()
		if err := s.Start(ctx); err != nil {
			t.Fatal(err)
		}
	}
	if addr, err := g.AwaitMaster(ctx, second); err != nil || addr != third {
		t.Error("the old master took over:", addr, err)
	}
}
