// Package policymetrics exports the counters of the active policy to Prometheus.
package policymetrics

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/weirflow/weir"
	"github.com/weirflow/weir/policy"
	"github.com/weirflow/weir/server/active"
	"github.com/weirflow/weir/server/decisions"
)

// A Collector exports the counters of the active policy as metrics. Labels are names of limits
// and stores, and outcomes; never a key, so their number is bounded by the policy.
type Collector struct{ *active.Policy }

var (
	limitRequests = prometheus.NewDesc("weir_limit_requests_total",
		"Requests by limit and outcome. A refused request counts only for the limit that refused it (limited).",
		[]string{"limit", "outcome"}, nil)
	shadowRequests = prometheus.NewDesc("weir_shadow_requests_total",
		"Requests by shadow limit, and by the outcome that they would have had.", []string{"limit", "outcome"}, nil)
	limitWaiting = prometheus.NewDesc("weir_limit_waiting", "Requests waiting in the queues of a limit.", []string{"limit"}, nil)
	limitEnded   = prometheus.NewDesc("weir_limit_ended_total",
		"Requests that had a place in a concurrency limit and have ended: ok, ignored (the client disconnected), dropped (the upstream was overloaded or did not respond), expired (after max_hold).",
		[]string{"limit", "outcome"}, nil)
	limitCosts = prometheus.NewDesc("weir_limit_cost_total",
		"The costs of requests to a limit whose costs are known only afterwards: estimated, as charged before, and actual, as charged afterwards.", []string{"limit", "kind"}, nil)
	limitUnknown = prometheus.NewDesc("weir_limit_cost_unknown_total",
		"Requests to a limit whose costs could not be read in their responses, so that if_unknown decided.", []string{"limit"}, nil)
	limitKeys    = prometheus.NewDesc("weir_limit_keys", "Keys that a limit keeps a state for.", []string{"limit"}, nil)
	limitEvicted = prometheus.NewDesc("weir_limit_keys_evicted_total",
		"Keys that were evicted: idle (at full capacity, free of charge), or full (still limited, because there were more than max_keys).", []string{"limit", "reason"}, nil)
	limitOverMax = prometheus.NewDesc("weir_limit_keys_over_max_total",
		"New keys beyond max_keys: refused, or decided by a shared state (counted for each request).", []string{"limit", "handling"}, nil)
	limitDecisions = prometheus.NewDesc("weir_limit_decisions_total",
		"Decisions about a limit in a store, by source: store, lease, or the fallback: share, allow, deny.", []string{"limit", "source"}, nil)
	limitErrors = prometheus.NewDesc("weir_limit_store_errors_total",
		"Requests that neither the store nor its fallback could decide, so that on_failure did.", []string{"limit"}, nil)
	limitUndecidable = prometheus.NewDesc("weir_limit_store_undecidable_total",
		"Requests that were refused because the store, which works, could not decide about their key: what it holds is damaged, or not the store's own. The log has the error.", []string{"limit"}, nil)
	limitLost         = prometheus.NewDesc("weir_limit_not_returned_total", "Charges that could not be given back, and costs of done work that could not be charged: the store was unavailable, or the reservation had expired.", []string{"limit"}, nil)
	shadowMissed      = prometheus.NewDesc("weir_shadow_missed_total", "Requests that a shadow limit in a store skipped because too many were in flight.", []string{"limit"}, nil)
	storeUp           = prometheus.NewDesc("weir_store_up", "Whether all of a store is used: 0 while it, or one of its shards, is unavailable and limits use their fallback.", []string{"store"}, nil)
	storeShards       = prometheus.NewDesc("weir_store_shards", "Shards of a store by state: up, or down (limits use their fallback for its keys). A store that is no cluster is one shard.", []string{"store", "state"}, nil)
	storeNodes        = prometheus.NewDesc("weir_store_nodes", "Nodes that share a store, as far as known.", []string{"store"}, nil)
	storeInexact      = prometheus.NewDesc("weir_store_reservations_inexact_total", "Reservations of this process that were too many for the state of their key in a store: giving them back may give back less than was charged.", []string{"store"}, nil)
	storeSteps        = prometheus.NewDesc("weir_store_clock_steps_total", "Times that a key in a store went on by a clock of its own, because the store's clock had stepped back.", []string{"store"}, nil)
	storeTransitions  = prometheus.NewDesc("weir_store_transitions_total", "State changes of a store's circuit breakers, of which each shard has one, by new state: open, half_open, closed.", []string{"store", "to"}, nil)
	storeCalls        = prometheus.NewDesc("weir_store_calls_total", "Calls of a store: answered, late, failed, skipped (not made, because the breakers of all its shards were open), left (the caller did not wait).", []string{"store", "outcome"}, nil)
	webhookCalls      = prometheus.NewDesc("weir_webhook_warnings_total", "Warnings of limits for the webhook: sent, failed (after all retries), dropped (too many were waiting).", []string{"result"}, nil)
	limitWarnings     = prometheus.NewDesc("weir_limit_warnings_total", "Keys that have reached warn_at of a limit, once in each window.", []string{"limit"}, nil)
	apiKeys           = prometheus.NewDesc("weir_api_keys", "API keys that are valid; of keys in a store, those that are remembered.", nil, nil)
	apiKeyReloads     = prometheus.NewDesc("weir_api_keys_reloads_total", "Changes of the files with API keys, by result.", []string{"result"}, nil)
	apiKeyLookups     = prometheus.NewDesc("weir_api_keys_lookups_total", "Lookups of API keys in a store, by result: found, unknown, failed, refused (there were too many).", []string{"result"}, nil)
	candidateRequests = prometheus.NewDesc("weir_candidate_requests_total",
		"Requests that the candidate policy has decided about, by the outcome under the active policy (live) and under the candidate.", []string{"live", "candidate"}, nil)
	reloads = prometheus.NewDesc("weir_reloads_total", "Reloads of the policy file, by result.", []string{"result"}, nil)
)

// Describe implements prometheus.Collector. It needs no Policy.
func (Collector) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{reloads, candidateRequests, limitRequests, shadowRequests, limitWaiting, limitEnded, limitCosts, limitUnknown, limitKeys, limitEvicted, limitOverMax,
		limitDecisions, limitErrors, limitUndecidable, limitLost, shadowMissed, storeUp, storeShards, storeNodes, storeInexact, storeSteps, storeTransitions, storeCalls,
		limitWarnings, webhookCalls, apiKeys, apiKeyReloads, apiKeyLookups, leaseKeys, leaseRoundTrips, leaseTokens, regionShare, regionHomeUp} {
		ch <- d
	}
	ofRoutes.Describe(ch)
	decisions.Describe(ch)
}

// ofRoutes are the metrics of the adaptive limits of routes.
var ofRoutes = NewAdaptiveMetrics("weir_adaptive", "a route", "limit")

// Collect implements prometheus.Collector.
func (m Collector) Collect(ch chan<- prometheus.Metric) {
	counter := func(d *prometheus.Desc, v uint64, labels ...string) {
		ch <- prometheus.MustNewConstMetric(d, prometheus.CounterValue, float64(v), labels...)
	}
	gauge := func(d *prometheus.Desc, v int, labels ...string) {
		ch <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, float64(v), labels...)
	}
	succeeded, failed := m.Reloads()
	counter(reloads, succeeded, "ok")
	counter(reloads, failed, "failed")
	c := m.Customers()
	if c.Stored {
		gauge(apiKeys, c.Keys)
		for result, n := range map[string]uint64{"found": c.Lookups.Found, "unknown": c.Lookups.Unknown, "failed": c.Lookups.Failed, "refused": c.Lookups.Refused} {
			counter(apiKeyLookups, n, result)
		}
	}
	if !c.Stored && (c.Keys > 0 || c.Reloaded+c.Failed > 0) {
		gauge(apiKeys, c.Keys)
		counter(apiKeyReloads, c.Reloaded, "ok")
		counter(apiKeyReloads, c.Failed, "failed")
	}
	if sent, failed, dropped := m.Webhook(); sent+failed+dropped > 0 {
		counter(webhookCalls, sent, "sent")
		counter(webhookCalls, failed, "failed")
		counter(webhookCalls, dropped, "dropped")
	}
	if t := m.Candidate(); t != nil {
		for _, c := range t.Counts() {
			counter(candidateRequests, c.Requests, c.Live.String(), c.Candidate.String())
		}
	}
	limits, stores := map[string]bool{}, map[string]bool{}
	for _, l := range m.Engine().Counts() {
		collectLimit(l, counter, gauge)
		limits[l.Limit] = true
	}
	for _, a := range m.Engine().AdaptiveCounts() {
		ofRoutes.Collect(ch, a.Stats, a.Name)
	}
	for _, s := range m.StoreStats() {
		collectStore(s, counter, gauge)
		stores[s.Name] = true
		if s.Regions != nil {
			regional(s, ch)
		}
	}
	m.Decisions().Durations.Collect(ch, func(name string) bool { return limits[name] }, func(name string) bool { return stores[name] })
}

func collectStore(s active.Store, counter func(*prometheus.Desc, uint64, ...string), gauge func(*prometheus.Desc, int, ...string)) {
	up, down := 0, s.Unavailable()
	if down == 0 {
		up = 1
	}
	gauge(storeUp, up, s.Name)
	gauge(storeShards, s.Shards-down, s.Name, "up")
	gauge(storeShards, down, s.Name, "down")
	gauge(storeNodes, s.Nodes, s.Name)
	counter(storeInexact, s.Inexact, s.Name)
	counter(storeSteps, s.ClockSteps, s.Name)
	for to, n := range map[string]uint64{"open": s.Opened + s.Reopened, "half_open": s.Probed, "closed": s.Returned} {
		counter(storeTransitions, n, s.Name, to)
	}
	for outcome, n := range map[string]uint64{
		"answered": s.Answered, "late": s.Late, "failed": s.Failed, "skipped": s.Skipped, "left": s.Left,
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
	if l.Rest { // the other counters belong to the limit
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
	if l.Warned > 0 {
		counter(limitWarnings, l.Warned, l.Limit)
	}
	if l.Settles {
		counter(limitCosts, l.Estimated, l.Limit, "estimated")
		counter(limitCosts, l.Actual, l.Limit, "actual")
		counter(limitUnknown, l.Unknown, l.Limit)
	}
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
	counter(limitEvicted, l.Keys.EvictedIdle, l.Limit, "idle")
	counter(limitEvicted, l.Keys.EvictedFull, l.Limit, "full")
	counter(limitOverMax, l.Keys.Refused, l.Limit, "refused")
	counter(limitOverMax, l.Keys.Shared, l.Limit, "shared")
}

// stored is for a limit in a store.
func stored(l policy.Count, counter func(*prometheus.Desc, uint64, ...string)) {
	for source, n := range l.Sources {
		if s := weir.Source(source); s != weir.SourceLocal {
			counter(limitDecisions, n, l.Limit, s.String())
		}
	}
	counter(limitErrors, l.Failed, l.Limit)
	counter(limitUndecidable, l.Undecidable, l.Limit)
	counter(limitLost, l.Lost, l.Limit)
	if l.Shadow {
		counter(shadowMissed, l.Missed, l.Limit)
	}
}
