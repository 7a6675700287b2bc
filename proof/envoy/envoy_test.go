// Package envoy compares Envoy's rate limit service of Weir with envoyproxy/ratelimit itself: both get
// the same files, the same requests and the same Redis.
package envoy

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	ratelimit "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	pb "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	typev3 "github.com/envoyproxy/go-control-plane/envoy/type/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/weirflow/weir/internal/seeds"
	"github.com/weirflow/weir/proof/servers"
	"github.com/weirflow/weir/server"
)

const patience = 2 * time.Minute

// build builds a program of this module's tools, and returns its path.
func build(t *testing.T, dir, pkg string) string {
	t.Helper()
	path, err := servers.BuildTool(t.Context(), dir, pkg)
	if err != nil {
		t.Fatal(err)
	}
	return path
}

// serve runs weir serve with a policy, and returns where its service listens.
func serve(t *testing.T, policy string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "policy.yaml")
	if err := os.WriteFile(path, []byte(policy), 0o600); err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	ended, ready := make(chan error, 1), make(chan server.Addresses, 1)
	go func() {
		ended <- server.Serve(ctx, server.Options{Path: path, Log: slog.New(slog.DiscardHandler), Ready: func(a server.Addresses) { ready <- a }})
	}()
	select {
	case a := <-ready:
		t.Cleanup(func() {
			stop()
			if err := <-ended; err != nil {
				t.Errorf("weir serve: %v", err)
			}
		})
		return a.ByFace["rls"][0]
	case err := <-ended:
		stop()
		t.Fatalf("weir serve: %v", err)
	}
	return ""
}

// startPeer runs envoyproxy/ratelimit with the rules in a folder and the counters in a Redis, and
// returns where it listens.
func startPeer(t *testing.T, program, rules, redis string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	r, err := servers.StartRatelimit(ctx, program, rules, redis, "LIMIT_RESPONSE_HEADERS_ENABLED=true", "RESPONSE_DYNAMIC_METADATA=true", "CACHE_KEY_PREFIX=peer:")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		r.Kill()
		r.Stop()
	})
	return r.GRPC
}

func dial(t *testing.T, address string) *grpc.ClientConn {
	t.Helper()
	c, err := grpc.NewClient(address, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

// units without seconds and minutes: no border of a window may come between two answers.
var units = []string{"hour", "day", "week", "month", "year"}

var lengths = map[string]int64{"hour": 3600, "day": 86400, "week": 604800, "month": 2592000, "year": 31536000}

// drawRules draws a file of rules with all that envoyproxy/ratelimit knows.
func drawRules(r *rand.Rand, domain string) string {
	var b strings.Builder
	fmt.Fprintf(&b, "domain: %s\ndescriptors:\n", domain)
	names := 0
	var level func(indent string, depth int)
	level = func(indent string, depth int) {
		seen := map[string]bool{}
		for range 6 + r.IntN(8) {
			key, value := pick(r, "a", "b", "c"), pick(r, "", "", "", "x", "y", "x*", "xy*", "*", "z")
			if seen[key+"="+value] {
				continue
			}
			seen[key+"="+value] = true
			fmt.Fprintf(&b, "%s- key: %s\n", indent, key)
			if value != "" {
				fmt.Fprintf(&b, "%s  value: %q\n", indent, value)
			}
			if strings.HasSuffix(value, "*") && r.IntN(3) == 0 {
				fmt.Fprintf(&b, "%s  share_threshold: true\n", indent)
			}
			for _, flag := range []string{"shadow_mode", "quota_mode", "detailed_metric", "value_to_metric"} {
				if r.IntN(8) == 0 {
					fmt.Fprintf(&b, "%s  %s: true\n", indent, flag)
				}
			}
			if r.IntN(5) > 0 {
				fmt.Fprintf(&b, "%s  rate_limit:\n", indent)
				names++
				if r.IntN(2) == 0 {
					fmt.Fprintf(&b, "%s    name: n%d\n", indent, names%5)
				}
				if r.IntN(4) == 0 {
					fmt.Fprintf(&b, "%s    replaces: [{ name: n%d }]\n", indent, (names+1+r.IntN(4))%5)
				}
				if r.IntN(8) == 0 {
					fmt.Fprintf(&b, "%s    unlimited: true\n", indent)
				} else {
					fmt.Fprintf(&b, "%s    unit: %s\n%s    requests_per_unit: %d\n", indent, pick(r, units...), indent, r.IntN(12))
				}
			}
			if depth < 3 && r.IntN(2) == 0 {
				fmt.Fprintf(&b, "%s  descriptors:\n", indent)
				level(indent+"    ", depth+1)
			}
		}
	}
	level("  ", 1)
	return b.String()
}

func pick[T any](r *rand.Rand, all ...T) T { return all[r.IntN(len(all))] }

// drawRequest draws a request. Limits that a descriptor brings are about keys that no rule has: there,
// counters of one descriptor in windows that begin together are one.
func drawRequest(r *rand.Rand) *pb.RateLimitRequest {
	out := &pb.RateLimitRequest{Domain: pick(r, "one", "one", "one", "two", "two", "two", "unknown"), HitsAddend: pick[uint32](r, 0, 0, 0, 1, 2, 5)}
	for range 1 + r.IntN(4) {
		d := &ratelimit.RateLimitDescriptor{}
		for range pick(r, 1, 1, 1, 2, 2, 3) {
			d.Entries = append(d.Entries, &ratelimit.RateLimitDescriptor_Entry{Key: pick(r, "a", "a", "a", "b", "b", "b", "c", "c", "d"), Value: pick(r, "x", "y", "xa", "xyz", "z", "q", "")})
		}
		if r.IntN(8) == 0 {
			unit := pick(r, typev3.RateLimitUnit_HOUR, typev3.RateLimitUnit_DAY, typev3.RateLimitUnit_MONTH, typev3.RateLimitUnit_YEAR)
			d.Entries[0].Key = "brings-" + unit.String()
			d.Limit = &ratelimit.RateLimitDescriptor_RateLimitOverride{RequestsPerUnit: r.Uint32N(10), Unit: unit}
		}
		if r.IntN(4) == 0 {
			d.HitsAddend = wrapperspb.UInt64(pick[uint64](r, 0, 0, 1, 3))
		}
		out.Descriptors = append(out.Descriptors, d)
	}
	return out
}

// windows are the windows of all units at one moment.
func windows() (all [5]int64) {
	now := time.Now().Unix()
	for i, u := range units {
		all[i] = now / lengths[u]
	}
	return all
}

var errBorder = errors.New("a window ended meanwhile")

// TestSameAnswers: 1,000 random requests over all that the files of envoyproxy/ratelimit can say get the
// same answers from it and from us, over the same Redis and in memory. Durations may differ by a second.
func TestSameAnswers(t *testing.T) {
	dir := t.TempDir()
	program := build(t, dir, servers.RatelimitPackage)
	redis := servers.StartRedis(t, servers.RedisOptions{})
	for round := range 4 {
		t.Run(fmt.Sprint(round), func(t *testing.T) {
			for range 3 {
				err := compare(t, program, redis.Addr, seeds.Seed()+uint64(round), 250)
				if !errors.Is(err, errBorder) {
					if err != nil {
						t.Error(err)
					}
					return
				}
				redis.Do(t.Context(), "FLUSHALL")
			}
			t.Error("a window ended in each of three attempts")
		})
		if _, err := redis.Do(t.Context(), "FLUSHALL"); err != nil {
			t.Fatal(err)
		}
	}
}

// compare plays random requests to three services with the same random rules.
func compare(t *testing.T, program, redis string, seed uint64, requests int) error {
	r := rand.New(rand.NewPCG(seed, 15))
	root := t.TempDir()
	rules := filepath.Join(root, "ratelimit", "config")
	if err := os.MkdirAll(rules, 0o700); err != nil {
		return err
	}
	for _, domain := range []string{"one", "two"} {
		if err := os.WriteFile(filepath.Join(rules, domain+".yaml"), []byte(drawRules(r, domain)), 0o600); err != nil {
			return err
		}
	}
	policy := `listen: { rls: { address: "127.0.0.1:0", envoy: ` + rules + `, response_headers: true, dynamic_metadata: true` + "%s } }\n"
	peer := pb.NewRateLimitServiceClient(dial(t, startPeer(t, program, root, redis)))
	ours := map[string]pb.RateLimitServiceClient{
		"in memory": pb.NewRateLimitServiceClient(dial(t, serve(t, fmt.Sprintf(policy, "")))),
		"in Redis":  pb.NewRateLimitServiceClient(dial(t, serve(t, fmt.Sprintf(policy, ", store: main")+"stores: { main: { url: \"redis://"+redis+"\", deadline: 1m, on_failure: deny } }\n"))),
	}
	begin := windows()
	codes, limited := map[pb.RateLimitResponse_Code]int{}, 0
	for i := range requests {
		req := drawRequest(r)
		want, err := peer.ShouldRateLimit(t.Context(), req)
		if err != nil {
			return fmt.Errorf("request %d (seed %d): envoyproxy/ratelimit: %w: %v", i, seed, err, req)
		}
		codes[want.OverallCode]++
		for _, s := range want.Statuses {
			if s.CurrentLimit != nil {
				limited++
			}
		}
		for name, client := range ours {
			got, err := client.ShouldRateLimit(t.Context(), req)
			if err != nil {
				return fmt.Errorf("request %d: %s: %w", i, name, err)
			}
			if begin != windows() {
				return errBorder
			}
			if !same(want, got) {
				show := protojson.MarshalOptions{Multiline: true}
				return fmt.Errorf("request %d, %s (seed %d):\n%s\ngot\n%s\nwant\n%s", i, name, seed, show.Format(req), show.Format(got), show.Format(want))
			}
		}
	}
	if codes[pb.RateLimitResponse_OVER_LIMIT] < requests/25 || codes[pb.RateLimitResponse_OK] < requests/25 || limited < requests/4 {
		return fmt.Errorf("the requests try too little: %v, %d with a limit (seed %d)", codes, limited, seed)
	}
	return nil
}

// same reports whether two answers are the same, but for a second.
func same(a, b *pb.RateLimitResponse) bool {
	a, b = proto.Clone(a).(*pb.RateLimitResponse), proto.Clone(b).(*pb.RateLimitResponse)
	if len(a.Statuses) != len(b.Statuses) || len(a.ResponseHeadersToAdd) != len(b.ResponseHeadersToAdd) {
		return false
	}
	for i := range a.Statuses {
		x, y := a.Statuses[i].DurationUntilReset, b.Statuses[i].DurationUntilReset
		if d := x.AsDuration() - y.AsDuration(); (x == nil) != (y == nil) || d > time.Second || d < -time.Second {
			return false
		}
		a.Statuses[i].DurationUntilReset, b.Statuses[i].DurationUntilReset = nil, nil
	}
	if len(a.ResponseHeadersToAdd) == 3 {
		var x, y int
		fmt.Sscan(a.ResponseHeadersToAdd[2].Value, &x)
		fmt.Sscan(b.ResponseHeadersToAdd[2].Value, &y)
		if x-y > 1 || y-x > 1 || x == 0 {
			return false
		}
		a.ResponseHeadersToAdd[2].Value = b.ResponseHeadersToAdd[2].Value
	}
	for _, m := range []*pb.RateLimitResponse{a, b} { // its text has spaces that vary from program to program
		for _, d := range m.DynamicMetadata.GetFields()["descriptors"].GetListValue().GetValues() {
			if l := d.GetStructValue().GetFields()["limit"]; l != nil {
				l.Kind = wrapText(strings.Join(strings.Fields(l.GetStringValue()), " "))
			}
		}
	}
	return proto.Equal(a, b)
}
