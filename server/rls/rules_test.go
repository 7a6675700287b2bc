package rls

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	ratelimit "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	pb "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	typev3 "github.com/envoyproxy/go-control-plane/envoy/type/v3"
	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/weirflow/weir/server/active"
	"github.com/weirflow/weir/server/policyfile"
)

const shop = `
domain: shop
descriptors:
  - key: path
    value: /cart
    rate_limit: { unit: year, requests_per_unit: 3 }
    descriptors:
      - key: user
        rate_limit: { unit: year, requests_per_unit: 1 }
  - key: path
    value: /c*
    rate_limit: { unit: year, requests_per_unit: 20 }
  - key: path
    value: /*
    share_threshold: true
    rate_limit: { unit: year, requests_per_unit: 30 }
  - key: path
    rate_limit: { unit: year, requests_per_unit: 40 }
  - key: file
    value: a*b*c
    rate_limit: { unit: MONTH, requests_per_unit: 9 }
  - key: never
    rate_limit: { unit: week, requests_per_unit: 0 }
  - key: free
    rate_limit: { unlimited: true, replaces: [{ name: base }] }
  - key: base
    rate_limit: { name: base, unit: year, requests_per_unit: 5 }
  - key: vip
    rate_limit: { name: vip, unit: year, requests_per_unit: 50, replaces: [{ name: base }] }
  - key: shadow
    shadow_mode: true
    rate_limit: { unit: year, requests_per_unit: 1 }
  - key: quota
    quota_mode: true
    rate_limit: { unit: year, requests_per_unit: 1 }
  - { key: a_b, rate_limit: { unit: year, requests_per_unit: 1 } }
  - { key: a, rate_limit: { unit: year, requests_per_unit: 1 } }
`

// TestRules: which rule decides, as in envoyproxy/ratelimit.
func TestRules(t *testing.T) {
	s := serve(t, shop, "")
	for _, c := range []struct {
		descriptors, want string
	}{
		{"path=/cart", "OK: OK 2/3"},                                             // the value itself
		{"path=/cap", "OK: OK 19/20"},                                            // the first wildcard of the file
		{"path=/cap2", "OK: OK 19/20"},                                           // each value has a counter of its own
		{"path=/x", "OK: OK 29/30"},                                              // the second wildcard
		{"path=/y", "OK: OK 28/30"},                                              // with a counter for all values
		{"path=z", "OK: OK 39/40"},                                               // no wildcard matches
		{"path=", "OK: OK 39/40"},                                                // the empty value is a value
		{"file=a-b-c", "OK: OK 8/9"},                                             // stars in the middle
		{"file=abc", "OK: OK 8/9"},                                               // a star stands for nothing, too
		{"file=ab", "OK: OK"},                                                    // and not for an end
		{"path=/cart,user=ann", "OK: OK 0/1"},                                    // one deeper
		{"path=/cart,user=ann,x=y", "OK: OK"},                                    // too deep
		{"path=/cap,user=ann", "OK: OK"},                                         // too deep
		{"user=ann", "OK: OK"},                                                   // not deep enough
		{"unknown=1", "OK: OK"},                                                  // no rule
		{"never=1", "OVER_LIMIT: OVER_LIMIT 0/0"},                                // 0 requests
		{"free=1", "OK: OK unlimited"},                                           // no counter
		{"base=1;vip=1", "OK: OK, OK 49/50"},                                     // replaced
		{"base=1;free=1", "OK: OK, OK unlimited"},                                // replaced
		{"base=1", "OK: OK 4/5"},                                                 // and not charged for it
		{"shadow=1;shadow=1", "OK: OK 0/1, OK 0/1"},                              // over, and OK
		{"quota=1;quota=1", "OK: OK 0/1, OK 0/1"},                                // over, and OK
		{"path=/cart,user=ann;path=/cart", "OVER_LIMIT: OVER_LIMIT 0/1, OK 1/3"}, // each one is charged
		{"path=/cart", "OK: OK 0/3"},
		{"path=/cart", "OVER_LIMIT: OVER_LIMIT 0/3"},
		{"a_b=c", "OK: OK 0/1"},
		{"a=b_c", "OK: OK 0/1"}, // which is the same text, joined by _
		{"a_b=c;a=b_c", "OVER_LIMIT: OVER_LIMIT 0/1, OVER_LIMIT 0/1"},
	} {
		s.expect(c.want, requestOf("shop", strings.Split(c.descriptors, ";")...))
	}
	s.expect("OK: OK", requestOf("other", "path=/cart"))
}

// TestHits: hits of the request and of descriptors, 0 as a peek, refused hits that count, and numbers
// that no counter holds.
func TestHits(t *testing.T) {
	s := serve(t, "domain: d\ndescriptors:\n  - { key: k, rate_limit: { unit: year, requests_per_unit: 10 } }\n  - { key: most, rate_limit: { unit: year, requests_per_unit: 4294967295 } }\n", "")
	ask := func(want string, request uint32, own ...uint64) {
		t.Helper()
		r := requestOf("d", "k=1")
		r.HitsAddend = request
		for _, n := range own {
			r.Descriptors[0].HitsAddend = wrapperspb.UInt64(n)
		}
		s.expect(want, r)
	}
	ask("OK: OK 10/10", 0, 0)
	ask("OK: OK 9/10", 0)
	ask("OK: OK 6/10", 3)
	ask("OK: OK 4/10", 3, 2)
	ask("OK: OK 4/10", 3, 0)
	ask("OVER_LIMIT: OVER_LIMIT 0/10", 5)
	ask("OVER_LIMIT: OVER_LIMIT 0/10", 0, 0) // 11 were counted
	ask("OVER_LIMIT: OVER_LIMIT 0/10", 1)
	for _, n := range []uint64{1 << 31, 1 << 32, 1 << 63, 1<<64 - 1} {
		r := requestOf("d", fmt.Sprintf("k=%d", n))
		r.Descriptors[0].HitsAddend = wrapperspb.UInt64(n)
		s.expect("OVER_LIMIT: OVER_LIMIT 0/10", r)
		s.expect("OVER_LIMIT: OVER_LIMIT 0/10", r)
		s.expect("OVER_LIMIT: OVER_LIMIT 0/10", requestOf("d", fmt.Sprintf("k=%d", n)))
	}
	most := requestOf("d", "most=1")
	most.Descriptors[0].HitsAddend = wrapperspb.UInt64(1<<32 - 1)
	s.expect("OK: OK 0/4294967295", most)
	s.expect("OVER_LIMIT: OVER_LIMIT 0/4294967295", requestOf("d", "most=1"))
}

// TestLimitsOfRequests: a descriptor may bring its limit. A unit that nobody knows is an error of that
// request alone: it ended the process of envoyproxy/ratelimit.
func TestLimitsOfRequests(t *testing.T) {
	s := serve(t, "domain: d\ndescriptors:\n  - { key: k, shadow_mode: true, rate_limit: { unit: year, requests_per_unit: 1 } }\n", "")
	with := func(domain string, requests uint32, unit typev3.RateLimitUnit) *pb.RateLimitRequest {
		r := requestOf(domain, "k=1")
		r.Descriptors[0].Limit = &ratelimit.RateLimitDescriptor_RateLimitOverride{RequestsPerUnit: requests, Unit: unit}
		return r
	}
	s.expect("OK: OK 1/2", with("d", 2, typev3.RateLimitUnit_YEAR))
	s.expect("OK: OK 0/1", requestOf("d", "k=1")) // the same counter, over and in shadow_mode
	s.expect("OVER_LIMIT: OVER_LIMIT 0/2", with("d", 2, typev3.RateLimitUnit_YEAR))
	s.expect("OK: OK 1/2", with("d", 2, typev3.RateLimitUnit_DAY)) // another unit, another counter
	s.expect("OK: OK", with("unknown", 0, typev3.RateLimitUnit_YEAR))
	for _, unit := range []typev3.RateLimitUnit{0, 8, -1, 1 << 30} {
		s.expect("InvalidArgument", with("d", 2, unit))
	}
}

// TestInvalidRequests: requests that no Envoy sends are refused, and the service lives on.
func TestInvalidRequests(t *testing.T) {
	s := serve(t, shop, "")
	many := make([]string, maxDescriptors+1)
	for i := range many {
		many[i] = "path=/cart"
	}
	s.expect("InvalidArgument", requestOf("", "path=/cart"))
	s.expect("InvalidArgument", requestOf("shop"))
	s.expect("InvalidArgument", requestOf("shop", many...))
	s.expect("InvalidArgument", requestOf("shop", strings.Repeat("a=b,", maxEntries)+"a=b"))
	s.expect("ResourceExhausted", requestOf("shop", "path="+strings.Repeat("x", maxMessage)))
	s.expect("OK: OK", &pb.RateLimitRequest{Domain: "shop", Descriptors: []*ratelimit.RateLimitDescriptor{{}}})
	s.expect("OK: OK 39/40", requestOf("shop", "path="+strings.Repeat("x", maxMessage-100)))
	if n := s.metrics.failed.Load(); n != 4 { // gRPC itself refuses the message that is too large
		t.Errorf("%d failures are counted", n)
	}
}

// TestModes: shadow_mode and quota_mode of the service, response headers and dynamic metadata.
func TestModes(t *testing.T) {
	rules := "domain: d\ndescriptors:\n  - { key: k, rate_limit: { unit: year, requests_per_unit: 1 } }\n  - { key: m, rate_limit: { unit: year, requests_per_unit: 7 } }\n"
	s := serve(t, rules, ", shadow_mode: true, response_headers: { limit: X-Limit }")
	s.expect("OK: OK 0/1", requestOf("d", "k=1"))
	s.expect("OK: OVER_LIMIT 0/1", requestOf("d", "k=1"))
	out, err := s.RateLimitServiceClient.ShouldRateLimit(t.Context(), requestOf("d", "m=1", "k=1", "x=1"))
	if err != nil || len(out.ResponseHeadersToAdd) != 3 || out.DynamicMetadata != nil {
		t.Fatalf("%v, %v", out, err)
	}
	if h := out.ResponseHeadersToAdd; h[0].Key != "X-Limit" || h[0].Value != "1" || h[1].Key != "RateLimit-Remaining" || h[1].Value != "0" || h[2].Key != "RateLimit-Reset" || h[2].Value == "0" {
		t.Errorf("%v", h)
	}
	s = serve(t, rules, ", quota_mode: true, dynamic_metadata: true")
	s.expect("OK: OK 0/1", requestOf("d", "k=1"))
	s.expect("OK: OK 0/1", requestOf("d", "k=1"))
	out, err = s.RateLimitServiceClient.ShouldRateLimit(t.Context(), requestOf("d", "m=1", "k=1"))
	if err != nil || len(out.ResponseHeadersToAdd) != 0 {
		t.Fatalf("%v, %v", out, err)
	}
	m := out.DynamicMetadata.AsMap()
	if got := fmt.Sprint(m); got != "map[descriptors:[map[entries:[m=1]] map[entries:[k=1]]] domain:d quotaModeEnabled:false quotaModeViolations:[1]]" {
		t.Error(got)
	}
}

// TestLimitsOfRules: a rule whose limit the policy does not have, or whose open values are no key of it, is an
// error with its place in Envoy's file: in a check, when the rules change, and when the policy does. Each
// request would be an error, and Envoy admits those by default.
func TestLimitsOfRules(t *testing.T) {
	const right = "domain: d\ndescriptors:\n  - key: acc\n    descriptors:\n      - { key: path, value: /a*, limit: two }\n      - { key: fixed, value: f, limit: one }\n  - { key: all, value: x, settle: none }\n"
	limits := func(two string) string {
		return "listen: { rls: { address: \"127.0.0.1:0\", envoy: rules.yaml } }\nlimits:\n  two: { key: [" + two + "], token_bucket: { rate: 1/h, burst: 2 } }\n" +
			"  one: { key: header.a, token_bucket: { rate: 1/h, burst: 2 } }\n  none: { token_bucket: { rate: 1/h, burst: 2 } }\n  places: { concurrency: { limit: 3 } }\n"
	}
	s := &service{t: t, folder: t.TempDir(), registry: prometheus.NewRegistry()}
	s.write(right)
	s.open(limits("header.a, header.b"))
	s.expect("OK: OK 1/2", requestOf("d", "acc=1,path=/ab"))
	s.expect("OK: OK 1/2", requestOf("d", "acc=1,fixed=f"))
	loaded := s.rules.Load()
	for _, c := range [][3]string{
		{"limit: two", "limit: none", `rules.yaml:5:41: error: the key of "none" has no part, and d.acc.path_/a* leaves 2 values (acc, path) open`},
		{"limit: one", "limit: two", `rules.yaml:6:40: error: the key of "two" has 2 parts (header.a, header.b), and d.acc.fixed_f leaves 1 value (acc) open`},
		{"settle: none", "settle: one", `rules.yaml:7:35: error: the key of "one" has 1 part (header.a), and d.all_x leaves no value open`},
		{"settle: none", "limit: nobody", `rules.yaml:7:34: error: the policy has no limit "nobody"`},
		{"settle: none", "limit: places", `rules.yaml:7:34: error: "places" is a concurrency`},
	} {
		s.write(strings.Replace(right, c[0], c[1], 1))
		file, err := policyfile.Parse(filepath.Join(s.folder, "policy.yaml"), []byte(limits("header.a, header.b")))
		if err != nil {
			t.Fatal(err)
		}
		if wrong := Check(file); len(wrong) != 1 || !strings.Contains(wrong[0].String(), c[2]) || wrong[0].Fix == "" {
			t.Errorf("%s: %v", c[1], wrong)
		}
		if s.reread(); s.rules.Load() != loaded {
			t.Errorf("%s: these rules were loaded", c[1])
		}
	}
	s.write(right)
	file, err := policyfile.Parse(filepath.Join(s.folder, "policy.yaml"), []byte(limits("header.a")))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.Prepare(t.Context(), nil, active.Candidate{File: file}); err == nil || !strings.Contains(err.Error(), "has 1 part") {
		t.Errorf("a policy with another key: %v", err)
	}
}
