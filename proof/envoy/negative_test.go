package envoy

import (
	"os"
	"path/filepath"
	"sync"
	"testing"

	ratelimit "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	pb "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/weirflow/weir/proof/servers"
)

// TestNegativeHits: two nodes over one Redis count requests in flight, as Envoy does with negative hits
// when a stream is done. Nothing is lost and nothing is given back twice, whoever calls at once.
func TestNegativeHits(t *testing.T) {
	rules := filepath.Join(t.TempDir(), "rules.yaml")
	if err := os.WriteFile(rules, []byte("domain: d\ndescriptors: [{ key: k, rate_limit: { unit: year, requests_per_unit: 1000000 } }]\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	redis := servers.StartRedis(t, servers.RedisOptions{})
	policy := "listen: { rls: { address: \"127.0.0.1:0\", envoy: " + rules + ", store: main } }\nstores: { main: { url: \"redis://" + redis.Addr + "\", deadline: 1m, on_failure: deny } }\n"
	clients := []pb.RateLimitServiceClient{pb.NewRateLimitServiceClient(dial(t, serve(t, policy))), pb.NewRateLimitServiceClient(dial(t, serve(t, policy)))}
	used := func(client pb.RateLimitServiceClient, hits uint64, back bool) uint32 {
		r, err := client.ShouldRateLimit(t.Context(), &pb.RateLimitRequest{Domain: "d", Descriptors: []*ratelimit.RateLimitDescriptor{{
			Entries: []*ratelimit.RateLimitDescriptor_Entry{{Key: "k", Value: "a"}}, HitsAddend: wrapperspb.UInt64(hits), IsNegativeHits: back,
		}}})
		if err != nil || r.OverallCode != pb.RateLimitResponse_OK {
			t.Errorf("%d hits: %v, %v", hits, r, err)
			return 0
		}
		return 1000000 - r.Statuses[0].LimitRemaining
	}
	used(clients[0], 7, false)
	var callers sync.WaitGroup
	for i := range 16 {
		callers.Go(func() {
			for range 25 {
				used(clients[i%2], 3, false)
				used(clients[(i+1)%2], 3, true) // what this caller counted, so that the floor is never reached
			}
		})
	}
	callers.Wait()
	if n := used(clients[1], 0, false); n != 7 {
		t.Errorf("%d hits are counted, not 7", n)
	}
	if n := used(clients[1], 8, true); n != 0 {
		t.Errorf("%d hits are counted below the floor", n)
	}
}
