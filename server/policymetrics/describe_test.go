package policymetrics_test

import (
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/weirflow/weir/server/policymetrics"
)

// TestDescribeWithoutPolicy: a program that registers the metrics before it has a policy, as the module for Caddy
// does, was ended by a panic.
func TestDescribeWithoutPolicy(t *testing.T) {
	described := make(chan *prometheus.Desc, 1000)
	policymetrics.Collector{}.Describe(described)
	if len(described) < 30 {
		t.Errorf("%d metrics are described", len(described))
	}
}
