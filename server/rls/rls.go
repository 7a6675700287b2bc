// Package rls is Envoy's rate limit service, version 3, as a face: gRPC, with health checks and
// reflection, and the HTTP pages of envoyproxy/ratelimit.
package rls

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"net"
	"sync"
	"sync/atomic"
	"time"

	auth "github.com/envoyproxy/go-control-plane/envoy/service/auth/v3"
	pb "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/health"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/reflection"

	"github.com/weirflow/weir/policy"
	"github.com/weirflow/weir/server/active"
	"github.com/weirflow/weir/server/endpoint"
	"github.com/weirflow/weir/server/face"
	"github.com/weirflow/weir/server/hook"
)

// name is the word of this face below listen.
const name = "rls"

// Bounds of connections and requests.
const (
	maxMessage    = 256 << 10 // bytes of a request
	maxStreams    = 1000      // requests in flight on one connection
	maxHeaderList = 16 << 10  // bytes of the headers of a request
	pingEvery     = time.Minute
	pingTimeout   = 20 * time.Second
	minPing       = 10 * time.Second // clients that send pings more often are disconnected
	handshake     = 10 * time.Second
	workers       = 256       // goroutines that take requests in turn; beyond them, each request has one of its own
	ageGrace      = time.Hour // for the requests of a connection that is too old
	defaultAge    = 24 * time.Hour
)

// serviceName is the name of the service for health checks, beside the empty one.
const serviceName = "ratelimit"

// Kind is Envoy's rate limit service as a face.
func Kind() face.Kind { return face.Kind{Name: name, Open: open, Check: Check, Complete: Complete} }

// A Face answers Envoy's requests. It is a part of the active policy, which names the files with its
// rules.
type Face struct {
	pb.UnimplementedRateLimitServiceServer

	policy   *active.Policy
	log      *slog.Logger
	endpoint *endpoint.Endpoint
	server   *grpc.Server
	accepted *handshakes
	calls    calls
	hook     *hook.Decider // of ext_authz
	health   *health.Server
	pages    *face.HTTP // nil without listen.rls.http
	metrics  *metrics
	counters counters

	rules atomic.Pointer[rules]
	mu    sync.Mutex // held while the files of rules are read again

	leave   sync.Once
	drained chan struct{} // closed when all requests have ended after Leave
}

func open(ctx context.Context, h face.Host) (face.Face, error) {
	o, _ := h.Policy.File().Policy.Listen.Endpoint(name)
	f := &Face{policy: h.Policy, log: h.Log, hook: hook.NewDecider(h.Log, waitTime), health: health.NewServer(), metrics: newMetrics(), drained: make(chan struct{})}
	if err := f.counters.open(o.RLS.MaxKeys); err != nil {
		return nil, err
	}
	if err := h.Policy.Join(ctx, f); err != nil {
		return nil, err
	}
	var err error
	if f.endpoint, err = endpoint.Open(ctx, h, name); err != nil {
		return nil, err
	}
	if err := f.openPages(h, o.RLS.HTTP); err != nil {
		return nil, errors.Join(err, f.endpoint.Listener().Close())
	}
	f.accepted = newHandshakes(f.endpoint.Listener())
	f.server = newServer(f.endpoint, o.RLS, grpc.UnaryInterceptor(f.calls.unary))
	pb.RegisterRateLimitServiceServer(f.server, f)
	auth.RegisterAuthorizationServer(f.server, authorization{face: f})
	healthpb.RegisterHealthServer(f.server, f.health)
	reflection.Register(f.server)
	f.health.SetServingStatus(serviceName, healthpb.HealthCheckResponse_SERVING)
	return f, errors.Join(h.Metrics.Register(f.metrics), h.Metrics.Register(f.metrics.checks))
}

// newServer returns a gRPC server with bounds.
func newServer(e *endpoint.Endpoint, o policy.RLS, more ...grpc.ServerOption) *grpc.Server {
	age := o.MaxConnectionAge
	if age == 0 {
		age = defaultAge
	}
	options := []grpc.ServerOption{
		grpc.MaxRecvMsgSize(maxMessage), grpc.MaxConcurrentStreams(maxStreams), grpc.MaxHeaderListSize(maxHeaderList), grpc.ConnectionTimeout(handshake),
		grpc.KeepaliveParams(keepalive.ServerParameters{MaxConnectionAge: age, MaxConnectionAgeGrace: ageGrace, Time: pingEvery, Timeout: pingTimeout}),
		// a goroutine of a request alone grows its stack several times while it decodes and decides, which took a
		// tenth of the CPU
		grpc.NumStreamWorkers(workers),
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: minPing, PermitWithoutStream: true}),
	}
	if config := e.TLS("h2"); config != nil {
		options = append(options, grpc.Creds(credentials.NewTLS(config)))
	}
	return grpc.NewServer(append(options, more...)...)
}

// Addresses returns where the service listens, and its HTTP pages.
func (f *Face) Addresses() []string {
	all := []string{f.endpoint.Address()}
	if f.pages != nil {
		all = append(all, f.pages.Addresses()...)
	}
	return all
}

// Serve serves until the face is shut down.
func (f *Face) Serve() error {
	failed := make(chan error, 2)
	n := 1
	go func() { failed <- f.server.Serve(f.accepted) }()
	if f.pages != nil {
		n++
		go func() { failed <- f.pages.Serve() }()
	}
	var first error
	for range n {
		if err := <-failed; err != nil && !errors.Is(err, grpc.ErrServerStopped) && first == nil {
			first = err
			f.Close()
		}
	}
	return first
}

// Leave says in health checks that the service ends, and sends GOAWAY on every connection: clients
// connect elsewhere, and their requests in flight end here.
func (f *Face) Leave(replaced bool) {
	f.leave.Do(func() {
		f.health.Shutdown()
		f.accepted.leave()
		go func() {
			defer close(f.drained)
			f.server.GracefulStop()
		}()
	})
	if f.pages != nil {
		f.pages.Leave(replaced)
	}
}

// Draining returns how many connections are open.
func (f *Face) Draining() int { return f.endpoint.Open() }

// Shutdown lets requests in flight end. Clients that have not sent theirs in full by then, and those that
// watch the health, are disconnected.
func (f *Face) Shutdown(ctx context.Context) error {
	f.Leave(false)
	pages := make(chan error, 1)
	go func() {
		if f.pages == nil {
			pages <- nil
			return
		}
		pages <- f.pages.Shutdown(ctx)
	}()
	err := f.calls.await(ctx, f.drained)
	if err == nil {
		f.server.Stop() // what is open now has no request: streams of health checks, and clients that have stopped
	}
	return errors.Join(err, <-pages)
}

// Close ends all at once.
func (f *Face) Close() error {
	f.server.Stop()
	var err error
	if f.pages != nil {
		err = f.pages.Close()
	}
	if closed := f.endpoint.Listener().Close(); !errors.Is(closed, net.ErrClosed) {
		err = errors.Join(err, closed)
	}
	return errors.Join(err, f.counters.close())
}

// Tick reads certificates and rules again whose files have changed.
func (f *Face) Tick() {
	f.endpoint.Tick()
	f.reread()
}

// openPages opens the address of the HTTP pages, if the policy has one.
func (f *Face) openPages(h face.Host, address string) error {
	if address == "" {
		return nil
	}
	l, err := h.Listen(address)
	if err != nil {
		return fmt.Errorf("listen.rls.http: %w", err)
	}
	f.pages = face.NewHTTP(endpoint.Bounded(l), f.pagesAt(address), h.Log)
	return nil
}

// unlimited is what remains of no limit.
const unlimited = math.MaxUint32
