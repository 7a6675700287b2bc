package redis

import (
	"testing"

	"github.com/weirflow/weir"
	"github.com/weirflow/weir/proof/regions"
	"github.com/weirflow/weir/proof/servers"
	"github.com/weirflow/weir/weirredis"
	"github.com/weirflow/weir/weirrueidis"
)

// TestRegions: limits are divided between regions by counts in Redis.
func TestRegions(t *testing.T) {
	client := connect(t, servers.StartRedis(t, servers.RedisOptions{}).Addr)
	regions.Check(t, func(t *testing.T, name string) weir.Store {
		s, err := weirredis.New(weirrueidis.Evaler(client), weirredis.Options{Prefix: name + ":"})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { s.Close() })
		return s
	})
}
