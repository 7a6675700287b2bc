package envoy

import (
	"context"
	"flag"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	ratelimit "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	pb "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc/codes"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"

	"github.com/weirflow/weir/proof/servers"
)

var connections = flag.Int("connections", 200, "how many hostile clients TestManyConnections has")

const yearly = "domain: d\ndescriptors: [{ key: user, rate_limit: { unit: year, requests_per_unit: 1000000 } }]\n"

func askFor(user string) *pb.RateLimitRequest {
	return &pb.RateLimitRequest{Domain: "d", Descriptors: []*ratelimit.RateLimitDescriptor{{Entries: []*ratelimit.RateLimitDescriptor_Entry{{Key: "user", Value: user}}}}}
}

// TestManyConnections: clients that send nothing, half a preface, requests without an end, a flood of
// pings, or streams that they never finish take nothing from one that calls, and those beyond
// max_connections are closed.
func TestManyConnections(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "rules.yaml"), []byte(yearly), 0o600); err != nil {
		t.Fatal(err)
	}
	most := *connections + 10
	w := servers.PolicyIn(t, dir, fmt.Sprintf("listen: { admin: \"127.0.0.1:0\", rls: { address: \"127.0.0.1:0\", envoy: rules.yaml, max_connections: %d } }\n", most)).Start(t, weir)
	address := w.ByFace["rls"][0]
	client := dial(t, address)
	call := func(n int) {
		t.Helper()
		for i := range n {
			if r, err := pb.NewRateLimitServiceClient(client).ShouldRateLimit(t.Context(), askFor("ann")); err != nil || r.OverallCode != pb.RateLimitResponse_OK {
				t.Fatalf("call %d: %v, %v", i, r, err)
			}
		}
	}
	call(1)
	preface := "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\x00\x00\x00\x04\x00\x00\x00\x00\x00"
	ping := "\x00\x00\x08\x06\x00\x00\x00\x00\x0012345678"
	var floods sync.WaitGroup
	defer floods.Wait()
	for i := range *connections {
		c, err := net.Dial("tcp", address)
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		switch i % 4 {
		case 1:
			_, _ = c.Write([]byte(preface[:11]))
		case 2:
			_, _ = c.Write([]byte(preface + "\x00\x40\x00\x01")) // the beginning of a frame
		case 3:
			if i%40 != 3 {
				continue
			}
			floods.Go(func() {
				_, err := c.Write([]byte(preface))
				for err == nil { // until the server closes the connection
					_, err = c.Write([]byte(ping))
				}
			})
		}
	}
	call(50)
	// streams that the client leaves open
	open := dial(t, address)
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	for range 300 {
		if _, err := healthpb.NewHealthClient(open).Watch(ctx, &healthpb.HealthCheckRequest{}); err != nil {
			t.Fatal(err)
		}
	}
	call(50)
	// more connections than are allowed
	closed := 0
	for range most + 50 { // some of the others were closed meanwhile
		c, err := net.Dial("tcp", address)
		if err != nil {
			closed++
			continue
		}
		defer c.Close()
		if err := c.SetReadDeadline(time.Now().Add(servers.Patience)); err != nil {
			t.Fatal(err)
		}
		if n, err := c.Read(make([]byte, 1)); n == 0 && err != nil { // a server that serves sends its settings
			closed++
		}
		if closed > 0 {
			break
		}
	}
	if closed == 0 {
		t.Error("no connection beyond max_connections was closed")
	}
	call(50)
}

// TestOutageUnderLoad: while Redis stands still, each call is answered by the store's choice, and when it
// goes on, the counts are those of Redis again. The time of the slowest calls is logged.
func TestOutageUnderLoad(t *testing.T) {
	for choice, want := range map[string]pb.RateLimitResponse_Code{"allow": pb.RateLimitResponse_OK, "deny": pb.RateLimitResponse_OVER_LIMIT} {
		t.Run(choice, func(t *testing.T) {
			dir := t.TempDir()
			if err := os.WriteFile(filepath.Join(dir, "rules.yaml"), []byte(yearly), 0o600); err != nil {
				t.Fatal(err)
			}
			redis := servers.StartRedis(t, servers.RedisOptions{})
			w := servers.PolicyIn(t, dir, fmt.Sprintf("listen: { admin: \"127.0.0.1:0\", rls: { address: \"127.0.0.1:0\", envoy: rules.yaml, store: main } }\nstores: { main: { url: \"redis://%s\", deadline: 10ms, on_failure: %s } }\n", redis.Addr, choice)).Start(t, weir)
			client := pb.NewRateLimitServiceClient(dial(t, w.ByFace["rls"][0]))
			if err := redis.Pause(); err != nil {
				t.Fatal(err)
			}
			var mu sync.Mutex
			var times []time.Duration
			var callers sync.WaitGroup
			for i := range 8 {
				callers.Go(func() {
					for range 100 {
						began := time.Now()
						r, err := client.ShouldRateLimit(t.Context(), askFor(fmt.Sprint(i)))
						took := time.Since(began)
						if err != nil || r.OverallCode != want {
							t.Errorf("%v, %v", r, err)
							return
						}
						mu.Lock()
						times = append(times, took)
						mu.Unlock()
					}
				})
			}
			callers.Wait()
			redis.Resume()
			slices.Sort(times)
			if len(times) > 0 {
				t.Logf("%d calls: half within %v, 99 %% within %v, all within %v", len(times), times[len(times)/2], times[len(times)*99/100], times[len(times)-1])
			}
			servers.Poll(t, "Redis decides again", func() bool {
				r, err := client.ShouldRateLimit(t.Context(), askFor("back"))
				if err != nil {
					t.Fatal(err)
				}
				return r.Statuses[0].CurrentLimit != nil && r.Statuses[0].LimitRemaining > 0 && r.Statuses[0].LimitRemaining < 1000000 && r.OverallCode == pb.RateLimitResponse_OK
			})
		})
	}
}

// TestFloodOfStreams: a client's calls beyond 1,000 at once on one connection wait, and none is lost. A
// call with a deadline that is over gets that as its error.
func TestFloodOfStreams(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "rules.yaml"), []byte(yearly), 0o600); err != nil {
		t.Fatal(err)
	}
	w := servers.PolicyIn(t, dir, "listen: { admin: \"127.0.0.1:0\", rls: { address: \"127.0.0.1:0\", envoy: rules.yaml } }\n").Start(t, weir)
	client := pb.NewRateLimitServiceClient(dial(t, w.ByFace["rls"][0]))
	var calls sync.WaitGroup
	for range 3000 {
		calls.Go(func() {
			if r, err := client.ShouldRateLimit(t.Context(), askFor("flood")); err != nil || r.OverallCode != pb.RateLimitResponse_OK {
				t.Errorf("%v, %v", r, err)
			}
		})
	}
	calls.Wait()
	r, err := client.ShouldRateLimit(t.Context(), askFor("flood"))
	if err != nil || r.Statuses[0].LimitRemaining != 1000000-3001 {
		t.Errorf("%v, %v", r, err)
	}
	ctx, cancel := context.WithDeadline(t.Context(), time.Now().Add(-time.Second))
	defer cancel()
	if _, err := client.ShouldRateLimit(ctx, askFor("late")); status.Code(err) != codes.DeadlineExceeded {
		t.Error(err)
	}
}
