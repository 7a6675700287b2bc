package admin

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/weirflow/weir"
	"github.com/weirflow/weir/failover"
	"github.com/weirflow/weir/policy"
	"github.com/weirflow/weir/server/active"
)

// policyMetrics turns the counters of the active policy into metrics when they are scraped. A label is the name of a limit or of a store, or an
// outcome, of which there are as many as the policy says; never a key.
type policyMetrics struct{ *active.Policy }

var (
	limitRequests = prometheus.NewDesc("weir_limit_requests_total",
		"Requests by the limit that was asked and its outcome: a refused request counts only for the limit that refused it.",
		[]string{"limit", "outcome"}, nil)
	shadowRequests = prometheus.NewDesc("weir_shadow_requests_total",
		"Requests by the shadow limit that was asked and the outcome that it would have had.", []string{"limit", "outcome"}, nil)
	limitWaiting = prometheus.NewDesc("weir_limit_waiting", "Requests that wait in a limit's queues now.", []string{"limit"}, nil)
	limitEnded   = prometheus.NewDesc("weir_limit_ended_total",
		"Requests that held a place of a limit of concurrency and have ended: ok, ignored (the client left), dropped (the upstream was overloaded or did not answer), expired (after max_hold).",
		[]string{"limit", "outcome"}, nil)
	limitKeys  = prometheus.NewDesc("weir_limit_keys", "Keys that a limit keeps a state for now.", []string{"limit"}, nil)
	limitLetGo = prometheus.NewDesc("weir_limit_keys_let_go_total",
		"Keys that were let go: free, as their state was as good as new, or full, as there were more than max_keys.", []string{"limit", "reason"}, nil)
	limitTurnedAway = prometheus.NewDesc("weir_limit_keys_turned_away_total",
		"New keys that there was no room for: refused, or, at each request, decided on by a shared state.", []string{"limit", "to"}, nil)
	limitDecisions = prometheus.NewDesc("weir_limit_decisions_total",
		"Decisions about a limit in a store, by where they were made: store, lease, or without the store: share, allow, deny.", []string{"limit", "source"}, nil)
	limitErrors = prometheus.NewDesc("weir_limit_store_errors_total",
		"Requests that neither the store decided nor what stands in for it, so that on_failure did.", []string{"limit"}, nil)
	limitLost    = prometheus.NewDesc("weir_limit_not_returned_total", "Charges that were to be given back, and were not, as the store did not answer.", []string{"limit"}, nil)
	shadowMissed = prometheus.NewDesc("weir_shadow_missed_total", "Requests that a shadow limit in a store was not asked about, as too many were.", []string{"limit"}, nil)
	storeUp      = prometheus.NewDesc("weir_store_up", "Whether a store is asked: 0 while it does not answer, and limits go on without it.", []string{"store"}, nil)
	storeNodes   = prometheus.NewDesc("weir_store_nodes", "How many nodes share a store, as far as is known.", []string{"store"}, nil)
	storeTurned  = prometheus.NewDesc("weir_store_transitions_total", "Changes of a store's breaker, by what it became: open, half_open, closed.", []string{"store", "to"}, nil)
	storeCalls   = prometheus.NewDesc("weir_store_calls_total", "Calls of a store: answered, late, failed, rejected (not made while the breaker was open), left by who asked.", []string{"store", "outcome"}, nil)
	reloads      = prometheus.NewDesc("weir_reloads_total", "Reloads of the policy file, by result.", []string{"result"}, nil)
)

// Describe is of prometheus.Collector.
func (m policyMetrics) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{reloads, limitRequests, shadowRequests, limitWaiting, limitEnded, limitKeys, limitLetGo, limitTurnedAway,
		limitDecisions, limitErrors, limitLost, shadowMissed, storeUp, storeNodes, storeTurned, storeCalls,
		leaseKeys, leaseRoundTrips, leaseTokens} {
		ch <- d
	}
}

// Collect is of prometheus.Collector.
func (m policyMetrics) Collect(ch chan<- prometheus.Metric) {
	counter := func(d *prometheus.Desc, v uint64, labels ...string) {
		ch <- prometheus.MustNewConstMetric(d, prometheus.CounterValue, float64(v), labels...)
	}
	gauge := func(d *prometheus.Desc, v int, labels ...string) {
		ch <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, float64(v), labels...)
	}
	succeeded, failed := m.Reloads()
	counter(reloads, succeeded, "ok")
	counter(reloads, failed, "failed")
	for _, l := range m.Engine().Counts() {
		collectLimit(l, counter, gauge)
	}
	for _, s := range m.StoreStats() {
		collectStore(s, counter, gauge)
	}
}

func collectStore(s active.Store, counter func(*prometheus.Desc, uint64, ...string), gauge func(*prometheus.Desc, int, ...string)) {
	up := 0
	if s.Connected && s.State == failover.Closed {
		up = 1
	}
	gauge(storeUp, up, s.Name)
	gauge(storeNodes, s.Nodes, s.Name)
	for to, n := range map[string]uint64{"open": s.Opened + s.Reopened, "half_open": s.Probed, "closed": s.Returned} {
		counter(storeTurned, n, s.Name, to)
	}
	for outcome, n := range map[string]uint64{
		"answered": s.Answered, "late": s.Late, "failed": s.Failed, "rejected": s.Rejected, "left": s.Left,
	} {
		counter(storeCalls, n, s.Name, outcome)
	}
	if s.Lease != nil {
		leased(s.Name, s.Lease, counter, gauge)
	}
}

func collectLimit(l policy.Count, counter func(*prometheus.Desc, uint64, ...string), gauge func(*prometheus.Desc, int, ...string)) {
	requests := limitRequests
	if l.Shadow {
		requests = shadowRequests
	}
	counter(requests, l.Allowed, l.Limit, "allowed")
	counter(requests, l.Limited, l.Limit, "limited")
	counter(requests, l.Delayed, l.Limit, "delayed")
	if l.Rest { // what else there is to say is said of the limit
		if l.Stored {
			counter(shadowMissed, l.Missed, l.Limit)
		}
		return
	}
	if !l.Shadow {
		counter(requests, l.Banned, l.Limit, "banned")
		counter(requests, l.Granted, l.Limit, "granted")
	}
	counter(requests, l.Exempt, l.Limit, "exempt")
	if l.Stored {
		stored(l, counter)
		return
	}
	gauge(limitWaiting, l.Waiting, l.Limit)
	if o := l.Outcomes; o != (weir.Outcomes{}) {
		for outcome, n := range map[string]uint64{"ok": o.OK, "ignored": o.Ignored, "dropped": o.Dropped, "expired": o.Expired} {
			counter(limitEnded, n, l.Limit, outcome)
		}
	}
	gauge(limitKeys, l.Keys.Keys, l.Limit)
	counter(limitLetGo, l.Keys.Released, l.Limit, "free")
	counter(limitLetGo, l.Keys.Forgotten, l.Limit, "full")
	counter(limitTurnedAway, l.Keys.Refused, l.Limit, "refused")
	counter(limitTurnedAway, l.Keys.Shared, l.Limit, "shared")
}

// stored is for a limit in a store.
func stored(l policy.Count, counter func(*prometheus.Desc, uint64, ...string)) {
	for source, n := range l.Sources {
		if s := weir.Source(source); s != weir.SourceLocal {
			counter(limitDecisions, n, l.Limit, s.String())
		}
	}
	counter(limitErrors, l.Failed, l.Limit)
	counter(limitLost, l.Lost, l.Limit)
	if l.Shadow {
		counter(shadowMissed, l.Missed, l.Limit)
	}
}
