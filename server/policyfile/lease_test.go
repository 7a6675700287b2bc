package policyfile

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/weirflow/weir/lease"
	"github.com/weirflow/weir/policy"
)

// TestLeasedKinds: a policy may have a limit in a store with leases exactly where its tokens can be leased.
func TestLeasedKinds(t *testing.T) {
	fields := map[string]string{
		"fixed_window":    "limit: 5, window: 1s",
		"interval_bucket": "burst: 5, refill: 1, every: 1s",
		"leaky_bucket":    "rate: 1/s, queue: 5",
		"sliding_counter": "limit: 5, window: 1s",
		"sliding_log":     "limit: 5, window: 1s",
		"sliding_window":  "limit: 5, window: 1s, slots: 5",
		"smooth_bursty":   "rate: 1/s, max_burst: 1s",
		"token_bucket":    "rate: 1/s, burst: 5",
		"warm_up":         "rate: 1/s, period: 1s",
	}
	leased := 0
	for _, kind := range policy.Algorithms() {
		if kind == "concurrency" || kind == "nginx_bucket" {
			continue // no store can keep them
		}
		text := fmt.Sprintf("stores: {s: {url: 'redis://h', lease: LEASE}}\nlimits: {l: {%s: {%s}, store: s}}\nroutes: [{match: /, limits: [l]}]", kind, fields[kind])
		if f, err := Parse("x.yaml", []byte(strings.Replace(text, "LEASE", "false", 1))); err != nil || len(f.Problems) > 0 {
			t.Fatalf("%s without leases: %v", kind, f.Problems)
		}
		f, err := Parse("x.yaml", []byte(strings.Replace(text, "LEASE", "true", 1)))
		can := lease.Leasable(f.Policy.Limits[0].Limit) == nil
		if can {
			leased++
		}
		said := slices.ContainsFunc(f.Problems, func(p Problem) bool { return strings.Contains(p.Message, "cannot be leased") })
		if can != (err == nil) || can == said {
			t.Errorf("%s can be leased: %v; the file: %v", kind, can, err)
		}
	}
	if leased != 4 {
		t.Errorf("%d kinds can be leased", leased)
	}
}
