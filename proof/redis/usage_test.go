package redis

import (
	"testing"

	"github.com/weirflow/weir/proof/servers"
	"github.com/weirflow/weir/weirredis"
	"github.com/weirflow/weir/weirtest"
)

// TestUsage: a peek says what is used, also beyond the limit.
func TestUsage(t *testing.T) {
	client := connect(t, servers.StartRedis(t, servers.RedisOptions{}).Addr)
	weirtest.Usage(t, open(t, client, weirredis.Options{Timeout: patience}), "usage")
}
