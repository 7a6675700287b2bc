package envoy

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	ratelimit "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	pb "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"

	"github.com/weirflow/weir/proof/servers"
)

// TestOutage: without Redis, requests are answered by the store's on_failure, and none gets an error.
// With local, this node admits its share of the rule in this window.
func TestOutage(t *testing.T) {
	rules := filepath.Join(t.TempDir(), "rules.yaml")
	if err := os.WriteFile(rules, []byte("domain: d\ndescriptors: [{ key: k, rate_limit: { unit: year, requests_per_unit: 10 } }]\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	redis := servers.StartRedis(t, servers.RedisOptions{})
	clients := map[string]pb.RateLimitServiceClient{}
	for _, choice := range []string{"allow", "deny", "local"} {
		clients[choice] = pb.NewRateLimitServiceClient(dial(t, serve(t, fmt.Sprintf(`
listen: { rls: { address: "127.0.0.1:0", envoy: %s, store: main } }
stores: { main: { url: "redis://%s", nodes: 2, on_failure: %s } }
`, rules, redis.Addr, choice))))
	}
	ask := func(choice, key string) pb.RateLimitResponse_Code {
		t.Helper()
		r, err := clients[choice].ShouldRateLimit(t.Context(), &pb.RateLimitRequest{Domain: "d", Descriptors: []*ratelimit.RateLimitDescriptor{{
			Entries: []*ratelimit.RateLimitDescriptor_Entry{{Key: "k", Value: key}},
		}}})
		if err != nil {
			t.Fatalf("%s: %v", choice, err)
		}
		return r.OverallCode
	}
	redis.Kill()
	admitted := map[string]int{}
	for range 40 {
		for choice := range clients {
			if ask(choice, "a") == pb.RateLimitResponse_OK {
				admitted[choice]++
			}
		}
	}
	if admitted["allow"] != 40 || admitted["deny"] != 0 || admitted["local"] != 5 {
		t.Errorf("admitted of 40 by on_failure: %v", admitted)
	}
}
