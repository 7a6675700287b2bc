package rls

import (
	"strings"
	"testing"

	ratelimit "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	pb "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/weirflow/weir/policy"
)

const limits = `
limits:
  per-user: { key: header.user, token_bucket: { rate: 1/h, burst: 3 } }
  per-pair: { key: [client.ip, path], fixed_window: { limit: 5, window: 1d } }
  everyone: { fixed_window: { limit: 1000, align: month } }
  shadow: { key: header.user, shadow: true, token_bucket: { rate: 1/h, burst: 1 } }
  counter: { key: header.user, sliding_counter: { limit: 3, window: 2h } }
`

// withLimits serves limits of a policy, with files of Envoy or without.
func withLimits(t *testing.T, rules string) *service {
	s := &service{t: t, folder: t.TempDir(), registry: prometheus.NewRegistry()}
	envoy := ""
	if rules != "" {
		s.write(rules)
		envoy = ", envoy: rules.yaml"
	}
	s.open("listen: { rls: { address: \"127.0.0.1:0\"" + envoy + " } }" + limits)
	return s
}

// TestOwnLimits: the first entry names a limit of the policy, the others are its key. Limits are charged
// together or not at all, and the count is that of the engine, which all faces share.
func TestOwnLimits(t *testing.T) {
	s := withLimits(t, "")
	for _, c := range []struct{ descriptors, want string }{
		{"limit=per-user,user=ann", "OK: OK 2/3"},
		{"generic_key=per-user,x=ann", "OK: OK 1/3"},
		{"limit=per-user,user=bob;limit=per-pair,a=10.0.0.1,p=/x", "OK: OK 2/3, OK 4/5"},
		{"limit=everyone", "OK: OK 999/1000"},
		{"limit=none,user=ann", "OK: OK"},     // no such limit
		{"user=ann,limit=per-user", "OK: OK"}, // the first entry names none
		{"limit=per-user", "InvalidArgument"}, // no key
		{"limit=per-pair,a=1", "InvalidArgument"},
		{"limit=per-pair,a=no address,p=/x", "InvalidArgument"},
		{"limit=per-user,user=ann;limit=everyone", "OK: OK 0/3, OK 998/1000"},
		{"limit=shadow,user=ann", "OK: OK"}, // which enforces nothing
		{"limit=shadow,user=ann;limit=shadow,user=ann", "OK: OK, OK"},
	} {
		s.expect(c.want, requestOf("any", strings.Split(c.descriptors, ";")...))
	}
	// ann is refused, and nobody else is charged
	if got := s.ask(requestOf("any", "limit=everyone", "limit=per-user,user=ann")); !strings.HasPrefix(got, "OVER_LIMIT: OK") || !strings.HasSuffix(got, "OVER_LIMIT 0/3") {
		t.Error(got)
	}
	s.expect("OK: OK 997/1000", requestOf("any", "limit=everyone"))
	out, err := s.RateLimitServiceClient.ShouldRateLimit(t.Context(), requestOf("any", "limit=per-user,user=ann"))
	if err != nil || len(out.ResponseHeadersToAdd) != 1 || out.ResponseHeadersToAdd[0].Key != "retry-after" || out.Statuses[0].DurationUntilReset.AsDuration().Minutes() < 58 {
		t.Errorf("%v, %v", out, err)
	}
	peek := requestOf("any", "limit=per-user,user=new")
	peek.Descriptors[0].HitsAddend = wrapperspb.UInt64(0)
	s.expect("OK: OK 3/3", peek)
	s.expect("OK: OK 3/3", peek)
	many := requestOf("any", "limit=per-user,user=new")
	many.HitsAddend = 4
	s.expect("OVER_LIMIT: OVER_LIMIT 0/3", many)
	many.HitsAddend = 2
	s.expect("OK: OK 1/3", many)
	a, err := s.policy.Engine().Peek(t.Context(), []policy.Ask{{Limit: "per-user", Key: []string{"new"}, Cost: 1}})
	if err != nil || a.Decision.Remaining != 1 {
		t.Errorf("the engine: %+v, %v", a, err)
	}
	brings := requestOf("any", "limit=per-user,user=new")
	brings.Descriptors[0].Limit = &ratelimit.RateLimitDescriptor_RateLimitOverride{RequestsPerUnit: 1, Unit: 1}
	s.expect("InvalidArgument", brings)
	if n := s.metrics.unnamed.Load(); n != 2 {
		t.Errorf("%d descriptors without a limit are counted", n)
	}
}

// TestCostsKnownAfterwards: a cost of work that is done is charged whatever is left, and what comes later
// waits for it.
func TestCostsKnownAfterwards(t *testing.T) {
	s := withLimits(t, "")
	done := requestOf("any", "settle=per-user,user=ann")
	done.HitsAddend = 2
	s.expect("OK: OK 1/3", done)
	s.expect("OK: OK 0/3", requestOf("any", "limit=per-user,user=ann"))
	done.HitsAddend = 100
	settled, err := s.RateLimitServiceClient.ShouldRateLimit(t.Context(), done)
	if err != nil || settled.OverallCode != pb.RateLimitResponse_OK || settled.Statuses[0].LimitRemaining != 0 || settled.Statuses[0].DurationUntilReset.AsDuration().Hours() < 102 {
		t.Errorf("the status says what is left after the cost: %v, %v", settled, err)
	}
	out, err := s.RateLimitServiceClient.ShouldRateLimit(t.Context(), requestOf("any", "limit=per-user,user=ann"))
	if err != nil || out.OverallCode != pb.RateLimitResponse_OVER_LIMIT || out.Statuses[0].DurationUntilReset.AsDuration().Hours() < 99 {
		t.Errorf("%v, %v", out, err)
	}
	s.expect("InvalidArgument", requestOf("any", "settle=per-user"))
	// a counter that is full, which promises no times
	many := requestOf("any", "limit=counter,user=ann")
	many.HitsAddend = 3
	s.expect("OK: OK 0/3", many)
	s.expect("OK: OK 0/3", requestOf("any", "settle=counter,user=ann"))
	done = requestOf("any", "settle=counter,user=ann")
	done.HitsAddend = 100
	s.expect("OK: OK 0/3", done)
	out, err = s.RateLimitServiceClient.ShouldRateLimit(t.Context(), requestOf("any", "limit=counter,user=ann"))
	if err != nil || out.OverallCode != pb.RateLimitResponse_OVER_LIMIT || out.Statuses[0].DurationUntilReset.AsDuration().Minutes() < 55 {
		t.Errorf("%v, %v", out, err)
	}
}

// TestAnErrorChargesNothing: one descriptor that is wrong makes the request an error, and the others are
// charged nothing, whether they charge, look or settle.
func TestAnErrorChargesNothing(t *testing.T) {
	s := withLimits(t, "")
	right := map[string]string{"charged": "limit=per-user,user=ann", "settled": "settle=per-user,user=ann"}
	wrong := map[string]func(*pb.RateLimitRequest){
		"limit=per-user": func(*pb.RateLimitRequest) {}, "settle=per-user": func(*pb.RateLimitRequest) {}, "limit=per-pair,a=1,p=/": func(*pb.RateLimitRequest) {},
		"limit=everyone,x=y": func(r *pb.RateLimitRequest) {
			for _, d := range r.Descriptors {
				if d.Entries[0].Value == "everyone" {
					d.HitsAddend = wrapperspb.UInt64(0) // only looked at
				}
			}
		},
	}
	for name, first := range right {
		for second, change := range wrong {
			for _, both := range [][]string{{first, second}, {second, first}} {
				req := requestOf("any", both...)
				change(req)
				s.expect("InvalidArgument", req)
			}
		}
		look := requestOf("any", "limit=per-user,user=ann")
		look.Descriptors[0].HitsAddend = wrapperspb.UInt64(0)
		if got := s.ask(look); got != "OK: OK 3/3" {
			t.Errorf("%s: %s", name, got)
		}
	}
}

// TestResponseHeadersOfLimits: response_headers are also about limits of the policy: the one that
// refused, or the one with the least left.
func TestResponseHeadersOfLimits(t *testing.T) {
	s := &service{t: t, folder: t.TempDir(), registry: prometheus.NewRegistry()}
	s.open("listen: { rls: { address: \"127.0.0.1:0\", response_headers: true } }" + limits)
	fields := func(descriptors ...string) (all string) {
		t.Helper()
		out, err := s.RateLimitServiceClient.ShouldRateLimit(t.Context(), requestOf("any", descriptors...))
		if err != nil {
			t.Fatal(err)
		}
		for _, h := range out.ResponseHeadersToAdd {
			all += h.Key + "=" + h.Value + " "
		}
		return all
	}
	for _, x := range []struct{ descriptors, want string }{
		{"limit=per-user,user=ann;limit=everyone", "RateLimit-Limit=3 RateLimit-Remaining=2 RateLimit-Reset=3600 "},
		{"limit=everyone;limit=per-user,user=ann", "RateLimit-Limit=3 RateLimit-Remaining=1 RateLimit-Reset=7200 "},
		{"limit=per-user,user=ann;limit=shadow,user=ann", "RateLimit-Limit=3 RateLimit-Remaining=0 RateLimit-Reset=10800 "},
		{"limit=everyone;limit=per-user,user=ann", "retry-after=3600 RateLimit-Limit=3 RateLimit-Remaining=0 RateLimit-Reset=3600 "},
		{"limit=shadow,user=ann", ""},
		{"limit=none,user=ann", ""},
	} {
		if got := fields(strings.Split(x.descriptors, ";")...); got != x.want {
			t.Errorf("%s: %s", x.descriptors, got)
		}
	}
}

// TestLimitInFiles: a descriptor of Envoy's files may have a limit of the policy. The entries that it
// leaves open are the key. Rules beside it are charged as ever.
func TestLimitInFiles(t *testing.T) {
	s := withLimits(t, `
domain: d
descriptors:
  - key: route
    value: search
    descriptors:
      - { key: user, limit: per-user }
      - { key: ip, descriptors: [{ key: path, value: "/a*", limit: per-pair }, { key: path, value: "/s*", share_threshold: true, limit: per-pair }] }
  - { key: user, rate_limit: { unit: year, requests_per_unit: 100 } }
`)
	ask := func(want string, descriptors ...string) { t.Helper(); s.expect(want, requestOf("d", descriptors...)) }
	ask("OK: OK 2/3", "route=search,user=ann")
	ask("OK: OK 1/3, OK 99/100", "route=search,user=ann", "user=ann")
	ask("OK: OK 4/5", "route=search,ip=10.0.0.1,path=/a1")
	ask("OK: OK 4/5", "route=search,ip=10.0.0.1,path=/a2")
	ask("OK: OK 4/5", "route=search,ip=10.0.0.1,path=/s1")
	ask("OK: OK 3/5", "route=search,ip=10.0.0.1,path=/s2")
	ask("OK: OK 0/3", "route=search,user=ann")
	ask("OVER_LIMIT: OVER_LIMIT 0/3, OK 98/100", "route=search,user=ann", "user=ann")
	ask("InvalidArgument", "route=search,ip=nowhere,path=/a1")
	s.write("domain: d\ndescriptors: [{ key: user, limit: gone }]\n")
	s.Tick()
	if n := s.metrics.badLoads.Load(); n != 1 {
		t.Errorf("a limit that the policy does not have: %d failed loads", n)
	}
	ask("OK: OK 2/3", "route=search,user=bob")
}
