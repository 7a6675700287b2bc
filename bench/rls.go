package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	ratelimit "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	pb "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/weirflow/weir/proof/servers"
)

// Subjects of rls. The floor is a gRPC server that answers without deciding.
const (
	rlsFloor  = "a gRPC server that answers without deciding"
	rlsMemory = "weir, in memory"
	rlsRedis  = "weir, Redis"
	rlsPeer   = "envoyproxy/ratelimit, the same Redis"
)

const (
	rlsCallers     = 64
	rlsConnections = 8
	rlsKeys        = 10_000
	rlsRounds      = 10 // how many times longer a round is than elsewhere
)

// rlsRules admit all calls.
const rlsRules = "domain: bench\ndescriptors:\n  - key: user\n    rate_limit: { unit: hour, requests_per_unit: 1000000000 }\n"

// rlsSubject is a server, with connections to it and what was measured.
type rlsSubject struct {
	name    string
	pid     int
	clients []pb.RateLimitServiceClient
	conns   []*grpc.ClientConn

	perSecond, p50, p99, cpu []float64 // of each round; times in microseconds, CPU for each call
}

// rlsWorld is all servers. They run at the same time, and are asked one after the other.
type rlsWorld struct {
	dir      string
	subjects []*rlsSubject
	stops    []func() error
}

// openRLS builds and starts the servers.
func openRLS() (w *rlsWorld, err error) {
	w = &rlsWorld{}
	if w.dir, err = os.MkdirTemp("", "weir-bench-*"); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute) // to build the programs
	defer cancel()
	for _, start := range []func(context.Context) error{w.startFloor, w.startWeirs} {
		if err := start(ctx); err != nil {
			return nil, errors.Join(err, w.close())
		}
	}
	return w, nil
}

func (w *rlsWorld) close() (err error) {
	for _, s := range w.subjects {
		for _, c := range s.conns {
			err = errors.Join(err, c.Close())
		}
	}
	for _, stop := range slices.Backward(w.stops) {
		err = errors.Join(err, stop())
	}
	return errors.Join(err, os.RemoveAll(w.dir))
}

// add connects to a server.
func (w *rlsWorld) add(name, address string, pid int) error {
	s := &rlsSubject{name: name, pid: pid}
	w.subjects = append(w.subjects, s)
	for range rlsConnections {
		c, err := grpc.NewClient(address, grpc.WithTransportCredentials(insecure.NewCredentials()))
		if err != nil {
			return err
		}
		s.conns, s.clients = append(s.conns, c), append(s.clients, pb.NewRateLimitServiceClient(c))
	}
	return nil
}

func (w *rlsWorld) startFloor(ctx context.Context) error {
	f, err := startFloor(ctx, w.dir, "rlsfloor")
	if err != nil {
		return err
	}
	w.stops = append(w.stops, f.stop)
	return w.add(rlsFloor, f.address, f.pid())
}

// startWeirs starts Redis, weir twice and envoyproxy/ratelimit.
func (w *rlsWorld) startWeirs(ctx context.Context) error {
	redis, err := servers.Redis(ctx, servers.RedisOptions{})
	if err != nil {
		return err
	}
	w.stops = append(w.stops, redis.Stop)
	config := filepath.Join(w.dir, "ratelimit", "config")
	if err := errors.Join(os.MkdirAll(config, 0o700), os.WriteFile(filepath.Join(config, "bench.yaml"), []byte(rlsRules), 0o600)); err != nil {
		return err
	}
	weir, err := servers.BuildWeir(ctx, w.dir)
	if err != nil {
		return err
	}
	for name, more := range map[string][2]string{
		rlsMemory: {},
		rlsRedis:  {", store: main", "stores: { main: { url: \"redis://" + redis.Addr + "\", deadline: 10s, on_failure: deny } }\n"},
	} {
		policy := filepath.Join(w.dir, strconv.Itoa(len(w.subjects))+".yaml")
		text := "listen: { admin: \"127.0.0.1:0\", rls: { address: \"127.0.0.1:0\", envoy: " + config + more[0] + " } }\n" + more[1]
		if err := os.WriteFile(policy, []byte(text), 0o600); err != nil {
			return err
		}
		p, err := servers.StartWeir(ctx, weir, policy)
		if err != nil {
			return err
		}
		w.stops = append(w.stops, p.Stop)
		if err := w.add(name, p.ByFace["rls"][0], p.Pid()); err != nil {
			return err
		}
	}
	program, err := servers.BuildTool(ctx, w.dir, servers.RatelimitPackage)
	if err != nil {
		return err
	}
	peer, err := servers.StartRatelimit(ctx, program, w.dir, redis.Addr)
	if err != nil {
		return err
	}
	w.stops = append(w.stops, peer.Stop)
	return w.add(rlsPeer, peer.GRPC, peer.Pid())
}

// round asks a server with all callers for some time.
func (s *rlsSubject) round(length time.Duration) error {
	before, err := cpuTime(s.pid)
	if err != nil {
		return err
	}
	var wg sync.WaitGroup
	times, errs := make([][]time.Duration, rlsCallers), make([]error, rlsCallers)
	began := time.Now()
	for i := range rlsCallers {
		wg.Go(func() { times[i], errs[i] = s.call(i, began.Add(length)) })
	}
	wg.Wait()
	elapsed := time.Since(began)
	after, err := cpuTime(s.pid)
	if err = errors.Join(append(errs, err)...); err != nil {
		return fmt.Errorf("%s: %w", s.name, err)
	}
	all := slices.Concat(times...)
	slices.Sort(all)
	micro := func(d time.Duration) float64 { return float64(d) / float64(time.Microsecond) }
	s.perSecond = append(s.perSecond, float64(len(all))/elapsed.Seconds())
	s.p50 = append(s.p50, micro(all[len(all)/2]))
	s.p99 = append(s.p99, micro(all[len(all)*99/100]))
	s.cpu = append(s.cpu, micro(after-before)/float64(len(all)))
	return nil
}

// call is one caller: one request after the other, for keys in turn. Each must be admitted.
func (s *rlsSubject) call(caller int, end time.Time) (times []time.Duration, err error) {
	client := s.clients[caller%len(s.clients)]
	for n := caller; ; n += rlsCallers {
		req := &pb.RateLimitRequest{Domain: "bench", Descriptors: []*ratelimit.RateLimitDescriptor{{
			Entries: []*ratelimit.RateLimitDescriptor_Entry{{Key: "user", Value: strconv.Itoa(n % rlsKeys)}},
		}}}
		began := time.Now()
		r, err := client.ShouldRateLimit(context.Background(), req)
		now := time.Now()
		switch {
		case err != nil:
			return nil, err
		case r.OverallCode != pb.RateLimitResponse_OK || len(r.Statuses) != 1 || r.Statuses[0].CurrentLimit == nil:
			return nil, fmt.Errorf("a request got %v", r)
		}
		if times = append(times, now.Sub(began)); now.After(end) {
			return times, nil
		}
	}
}

// rls measures Envoy's rate limit service, beside a server that decides nothing, and
// envoyproxy/ratelimit.
func rls(r *report) error {
	w, err := openRLS()
	if err != nil {
		return err
	}
	for i := range r.rounds + 1 {
		for _, s := range w.subjects {
			if err := s.round(r.round * rlsRounds); err != nil {
				return errors.Join(err, w.close())
			}
			if i == 0 { // to warm up
				s.perSecond, s.p50, s.p99, s.cpu = nil, nil, nil, nil
			}
		}
	}
	if err := w.close(); err != nil {
		return err
	}
	r.add(rlsTable(w.subjects))
	return nil
}

func rlsTable(subjects []*rlsSubject) table {
	t := table{
		Title:   fmt.Sprintf("Envoy's rate limit service, %d callers on %d connections, %d keys", rlsCallers, rlsConnections, rlsKeys),
		Notes:   []string{"medians of the rounds; the client runs on the same cores", "CPU is the server's own, without that of Redis"},
		Columns: []column{{"calls/s", 0}, {"p50 µs", 0}, {"p99 µs", 0}, {"CPU µs/call", 1}},
	}
	byName := map[string][]float64{}
	for _, s := range subjects {
		byName[s.name] = []float64{median(s.perSecond), median(s.p50), median(s.p99), median(s.cpu)}
	}
	for _, name := range []string{rlsFloor, rlsMemory, rlsRedis, rlsPeer} {
		t.Rows = append(t.Rows, row{Name: name, Values: byName[name]})
	}
	floor, memory, redis, peer := byName[rlsFloor], byName[rlsMemory], byName[rlsRedis], byName[rlsPeer]
	target := func(i int, all ...string) { t.Rows[i].Target = strings.Join(all, "; ") }
	least := func(i int, found, want float64, of string) string {
		text, missed := atLeast(found, want, of)
		t.Rows[i].Missed = t.Rows[i].Missed || missed
		return text
	}
	most := func(i int, found, want float64, of string) string {
		text, missed := atMost(found, want, of)
		t.Rows[i].Missed = t.Rows[i].Missed || missed
		return text
	}
	target(1, least(1, memory[0]/floor[0], 0.9, "the floor's calls/s"))
	target(2, least(2, redis[0]/peer[0], 2.5, "the peer's calls/s"), most(2, redis[3]/peer[3], 0.4, "its CPU"), most(2, redis[2]/peer[2], 1, "its p99"))
	return t
}
