package rls

import (
	"fmt"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/protobuf/types/known/wrapperspb"
)

// TestNegativeHits: hits are given back to the counter of a rule, at most to nothing, whatever its
// modes, and such a descriptor is OK even where the counter is over its limit. A limit of the policy
// gives nothing back, and then nothing else in the request is counted.
func TestNegativeHits(t *testing.T) {
	s := &service{t: t, folder: t.TempDir(), registry: prometheus.NewRegistry()}
	s.write(`
domain: d
descriptors:
  - { key: k, rate_limit: { unit: year, requests_per_unit: 5 } }
  - { key: free, rate_limit: { unlimited: true } }
  - { key: user, limit: per-user }
`)
	s.open("listen: { rls: { address: \"127.0.0.1:0\", envoy: rules.yaml } }" + limits)
	ask := func(want string, hits uint64, back bool, descriptors ...string) {
		t.Helper()
		r := requestOf("d", descriptors...)
		r.Descriptors[0].HitsAddend, r.Descriptors[0].IsNegativeHits = wrapperspb.UInt64(hits), back
		s.expect(want, r)
	}
	ask("OK: OK 1/5", 4, false, "k=1")
	ask("OK: OK 4/5", 3, true, "k=1")
	ask("OK: OK 5/5", 100, true, "k=1")
	ask("OVER_LIMIT: OVER_LIMIT 0/5", 9, false, "k=1")
	ask("OK: OK 0/5", 1, true, "k=1") // 8 of 5
	ask("OVER_LIMIT: OVER_LIMIT 0/5", 0, false, "k=1")
	ask("OK: OK 5/5", 1<<64-1, true, "k=1")
	ask("OK: OK 5/5", 0, true, "k=1")
	ask("OK: OK 5/5", 7, true, "k=new")
	ask("OK: OK 5/5, OK 4/5", 1, true, "k=new", "k=1")
	ask("OK: OK unlimited", 1, true, "free=1")
	ask("OK: OK", 1, true, "none=1")
	ask("Unimplemented", 1, true, "user=ann", "k=1")
	ask("OK: OK 4/5", 0, false, "k=1")
	ask("OK: OK 3/3", 0, false, "user=ann")
	request := requestOf("d", "k=1")
	request.Descriptors[0].IsNegativeHits = true
	request.HitsAddend = 1
	s.expect("OK: OK 5/5", request) // the hits of the request
	if of := s.metrics.of("d.k"); of.given.Load() == 0 || of.total.Load() != 14 {
		t.Errorf("counted: %d given back, %d in all", of.given.Load(), of.total.Load())
	}
}

// TestSettleInFiles: a descriptor of Envoy's files may charge the cost of work that is done.
func TestSettleInFiles(t *testing.T) {
	s := withLimits(t, "domain: d\ndescriptors:\n  - { key: user, limit: per-user }\n  - { key: done, value: tokens, descriptors: [{ key: user, settle: per-user }] }\n")
	done := requestOf("d", "done=tokens,user=ann")
	done.HitsAddend = 5
	looking := requestOf("d", "user=bob")
	looking.Descriptors[0].HitsAddend = wrapperspb.UInt64(0)
	s.expect("OK: OK 3/3", looking)
	if got := s.ask(done); got[:6] != "OK: OK" {
		t.Error(got)
	}
	s.expect("OVER_LIMIT: OVER_LIMIT 0/3", requestOf("d", "user=ann"))
	s.expect("OK: OK 2/3", requestOf("d", "user=bob"))
}

// TestRuleMetadata: metadata of rules with quota_mode is in the response while a descriptor is within
// them, and the service's own fields keep their names.
func TestRuleMetadata(t *testing.T) {
	s := serve(t, `
domain: d
descriptors:
  - { key: near, quota_mode: true, metadata: { backend: near, tries: 2, domain: stolen, deep: { list: [true, x] } }, rate_limit: { unit: year, requests_per_unit: 1 } }
  - { key: far, quota_mode: true, metadata: { backend: far }, rate_limit: { unit: year, requests_per_unit: 9 } }
  - { key: plain, metadata: { hidden: 1 }, rate_limit: { unit: year, requests_per_unit: 9 } }
`, ", dynamic_metadata: true")
	for _, want := range []string{
		"near map[list:[true x]] 2 d <nil> <nil>", "far <nil> <nil> d <nil> [0]",
	} {
		descriptors := []string{"near=1", "plain=1"}
		if want[:3] == "far" {
			descriptors = append(descriptors, "far=1")
		}
		out, err := s.RateLimitServiceClient.ShouldRateLimit(t.Context(), requestOf("d", descriptors...))
		if err != nil {
			t.Fatal(err)
		}
		m := out.DynamicMetadata.AsMap()
		if got := fmt.Sprint(m["backend"], " ", m["deep"], " ", m["tries"], " ", m["domain"], " ", m["hidden"], " ", m["quotaModeViolations"]); got != want {
			t.Errorf("%s, not %s", got, want)
		}
	}
}
