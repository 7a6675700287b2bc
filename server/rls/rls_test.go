package rls

import (
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	ratelimit "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	pb "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"

	"github.com/weirflow/weir/server/active"
	"github.com/weirflow/weir/server/face"
	"github.com/weirflow/weir/server/policyfile"
)

// service is a face that serves, with a client.
type service struct {
	*Face
	t        *testing.T
	folder   string
	policy   *active.Policy
	registry *prometheus.Registry
	conn     *grpc.ClientConn
	pb.RateLimitServiceClient
}

// serve serves the rules of a file of Envoy, with more settings of listen.rls.
func serve(t *testing.T, rules, settings string) *service {
	t.Helper()
	s := &service{t: t, folder: t.TempDir(), registry: prometheus.NewRegistry()}
	s.write(rules)
	s.open("listen: { rls: { address: \"127.0.0.1:0\", envoy: rules.yaml" + settings + " } }\n")
	return s
}

// write replaces the rules.
func (s *service) write(text string) {
	s.t.Helper()
	if err := os.WriteFile(filepath.Join(s.folder, "rules.yaml"), []byte(text), 0o600); err != nil {
		s.t.Fatal(err)
	}
}

// parse reads a policy in the service's folder, as weir serve does.
func (s *service) parse(text string) *policyfile.File {
	s.t.Helper()
	file, err := policyfile.Parse(filepath.Join(s.folder, "policy.yaml"), []byte(text))
	if err != nil {
		s.t.Fatal(err)
	}
	for _, p := range Check(file) {
		s.t.Fatal(p)
	}
	return file
}

func (s *service) open(text string) {
	t := s.t
	log := slog.New(slog.DiscardHandler)
	var err error
	if s.policy, err = active.New(t.Context(), s.parse(text), active.Options{Log: log, Complete: Complete}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.policy.Close() })
	f, err := open(t.Context(), face.Host{Policy: s.policy, Log: log, Metrics: s.registry, Listen: func(a string) (net.Listener, error) { return net.Listen("tcp", a) }})
	if err != nil {
		t.Fatal(err)
	}
	s.Face = f.(*Face)
	served := make(chan error, 1)
	go func() { served <- s.Serve() }()
	t.Cleanup(func() {
		s.Close()
		if err := <-served; err != nil {
			t.Errorf("serving: %v", err)
		}
	})
	s.conn = s.dial()
	s.RateLimitServiceClient = pb.NewRateLimitServiceClient(s.conn)
}

func (s *service) dial() *grpc.ClientConn {
	c, err := grpc.NewClient(s.Addresses()[0], grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() { c.Close() })
	return c
}

// descriptorOf reads a descriptor like "path=/cart,user=ann".
func descriptorOf(text string) *ratelimit.RateLimitDescriptor {
	d := &ratelimit.RateLimitDescriptor{}
	for _, pair := range strings.Split(text, ",") {
		key, value, _ := strings.Cut(pair, "=")
		d.Entries = append(d.Entries, &ratelimit.RateLimitDescriptor_Entry{Key: key, Value: value})
	}
	return d
}

func requestOf(domain string, descriptors ...string) *pb.RateLimitRequest {
	r := &pb.RateLimitRequest{Domain: domain}
	for _, d := range descriptors {
		r.Descriptors = append(r.Descriptors, descriptorOf(d))
	}
	return r
}

// ask sends a request, and returns the response like "OVER_LIMIT: OVER_LIMIT 0/10, OK": a code and what
// remains of which limit for each descriptor.
func (s *service) ask(r *pb.RateLimitRequest) string {
	s.t.Helper()
	out, err := s.RateLimitServiceClient.ShouldRateLimit(s.t.Context(), r)
	if err != nil {
		return status.Code(err).String()
	}
	var all []string
	for i, one := range out.Statuses {
		text := one.Code.String()
		if l := one.CurrentLimit; l != nil {
			text += fmt.Sprintf(" %d/%d", one.LimitRemaining, l.RequestsPerUnit)
			length := unitOf(l.Unit).Length()
			if d := one.DurationUntilReset.AsDuration(); one.DurationUntilReset != nil && length > 0 && (d <= 0 || d > length || d%time.Second != 0) {
				s.t.Errorf("descriptor %d: the window of %v ends in %v", i, length, d)
			}
		} else if one.LimitRemaining == unlimited {
			text += " unlimited"
		}
		all = append(all, text)
	}
	return out.OverallCode.String() + ": " + strings.Join(all, ", ")
}

func (s *service) expect(want string, r *pb.RateLimitRequest) {
	s.t.Helper()
	if got := s.ask(r); got != want {
		s.t.Errorf("%v\ngot  %s\nwant %s", r, got, want)
	}
}
