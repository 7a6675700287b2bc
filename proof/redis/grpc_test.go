package redis

import (
	"context"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/health"
	"google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"

	"github.com/weirflow/weir"
	"github.com/weirflow/weir/failover"
	"github.com/weirflow/weir/proof/servers"
	"github.com/weirflow/weir/weirgrpc"
)

// grpcNode is a gRPC server whose calls are limited over a store, with a client of it.
type grpcNode struct {
	grpc_health_v1.HealthClient
	stored atomic.Int64 // decisions of the store
}

// startGRPC starts a server that has a store of its own. half is this node's share in an outage.
func startGRPC(t *testing.T, url string, l weir.Limit, half failover.Options) *grpcNode {
	t.Helper()
	shared, err := weir.NewShared(l, openURL(t, url), weir.Named("calls"))
	if err != nil {
		t.Fatal(err)
	}
	n := &grpcNode{}
	limits := weirgrpc.Limits{weirgrpc.Shared(shared, weirgrpc.Global(), weirgrpc.Fallback(half))}
	server := grpc.NewServer(grpc.UnaryInterceptor(weirgrpc.UnaryServer(limits, weirgrpc.Observe(func(r weirgrpc.Response) {
		if r.Decision.Source == weir.SourceStore {
			n.stored.Add(1)
		}
	}))))
	grpc_health_v1.RegisterHealthServer(server, health.NewServer())
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- server.Serve(listener) }()
	cc, err := grpc.NewClient(listener.Addr().String(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		cc.Close()
		server.Stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	n.HealthClient = grpc_health_v1.NewHealthClient(cc)
	return n
}

// admits makes calls side by side, and returns how many were admitted. Any other error than a refusal
// fails the test.
func (n *grpcNode) admits(t *testing.T, calls int) int64 {
	t.Helper()
	var admitted atomic.Int64
	var all sync.WaitGroup
	for range calls {
		all.Go(func() {
			ctx, cancel := context.WithTimeout(t.Context(), patience)
			defer cancel()
			switch _, err := n.Check(ctx, &grpc_health_v1.HealthCheckRequest{}); status.Code(err) {
			case codes.OK:
				admitted.Add(1)
			case codes.ResourceExhausted:
			default:
				t.Error(err)
			}
		})
	}
	all.Wait()
	return admitted.Load()
}

// TestGRPCShares: two gRPC servers admit together what the limit admits. While the server is down each
// admits its share, and no call fails; once it is up again, they share what was left.
func TestGRPCShares(t *testing.T) {
	t.Parallel() // a deadline goes by, which is longer than a machine stands still
	s := servers.StartRedis(t, servers.RedisOptions{Persist: true})
	const burst = 40
	half := failover.Options{OnFailure: failover.Local, Nodes: 2, StartFull: true, Deadline: 9 * time.Second, Probe: 10 * time.Millisecond}
	limit := weir.FixedWindow{Limit: burst, Window: 24 * time.Hour, Align: "first"}
	one, two := startGRPC(t, s.URL(), limit, half), startGRPC(t, s.URL(), limit, half)
	admit := func(calls int) (by [2]int64) {
		var both sync.WaitGroup
		for i, n := range []*grpcNode{one, two} {
			both.Go(func() { by[i] = n.admits(t, calls) })
		}
		both.Wait()
		return by
	}
	const before = 15 // of each
	if by := admit(before); by != [2]int64{before, before} || one.stored.Load() != before {
		t.Errorf("%d were admitted, %d of them by the store", by, one.stored.Load())
	}
	if err := s.Process.Stop(); err != nil {
		t.Fatal(err)
	}
	if by := admit(2 * burst); by != [2]int64{burst / 2, burst / 2} {
		t.Errorf("%d were admitted without a store, want %d of each", by, burst/2)
	}
	if err := s.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	left := int64(burst - 2*before)
	for _, n := range []*grpcNode{one, two} {
		for before := n.stored.Load(); n.stored.Load() == before; {
			if ctx.Err() != nil {
				t.Fatal("the store is not used again")
			}
			left -= n.admits(t, 1) // by the node's share, which is used up, or by the store
		}
	}
	if more := one.admits(t, burst) + two.admits(t, burst); more != left {
		t.Errorf("%d were admitted after the restart, and %d were left", more, left)
	}
}
