package policymetrics

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/weirflow/weir/lease"
)

var (
	leaseKeys       = prometheus.NewDesc("weir_store_lease_keys", "Keys for which this node leases tokens from a store.", []string{"store"}, nil)
	leaseRoundTrips = prometheus.NewDesc("weir_store_lease_round_trips_total", "Round trips to a store for leases.", []string{"store"}, nil)
	leaseTokens     = prometheus.NewDesc("weir_store_lease_tokens_total",
		"Tokens leased from a store: taken, returned, and lost (or possibly lost, because a call had no response).", []string{"store", "event"}, nil)
)

// leased is for a store with leases.
func leased(store string, s *lease.Stats, counter func(*prometheus.Desc, uint64, ...string), gauge func(*prometheus.Desc, int, ...string)) {
	gauge(leaseKeys, s.Keys, store)
	counter(leaseRoundTrips, s.RoundTrips, store)
	for event, n := range map[string]uint64{"taken": s.Leased, "returned": s.Returned, "lost": s.Lost} {
		counter(leaseTokens, n, store, event)
	}
}
