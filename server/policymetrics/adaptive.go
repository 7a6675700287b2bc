package policymetrics

import (
	"slices"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/weirflow/weir/adaptive"
)

// AdaptiveMetrics are the metrics of adaptive limits of one kind. Labels are names of the policy, priorities
// and reasons; never users.
type AdaptiveMetrics struct {
	limit, inFlight, queued, least, overload *prometheus.Desc
	requests, refused                        *prometheus.Desc
}

// NewAdaptiveMetrics returns the metrics whose names begin with a prefix, of what the help texts call of.
func NewAdaptiveMetrics(prefix, of string, labels ...string) AdaptiveMetrics {
	desc := func(name, help string, more ...string) *prometheus.Desc {
		return prometheus.NewDesc(prefix+name, help, slices.Concat(labels, more), nil)
	}
	return AdaptiveMetrics{
		limit:    desc("_limit", "The limit in force of the adaptive limit of "+of+"."),
		inFlight: desc("_in_flight", "Requests in flight by the adaptive limit of "+of+"."),
		queued:   desc("_queued", "Requests that wait for a place at the adaptive limit of "+of+"."),
		least:    desc("_least_latency_seconds", "What a request takes that does not wait for others, by the adaptive limit of "+of+"; missing while it does not know."),
		overload: desc("_overloaded", "Whether a signal of the machine limits "+of+" now: 1, or 0. Only of bbr."),
		requests: desc("_requests_total", "Requests by the adaptive limit of "+of+" and outcome: ok, ignored (they say nothing about the load), dropped (overloaded, or no response), refused (they found no place; of several targets, the nearest to having one counts).", "outcome"),
		refused: desc("_refused_total", "Requests that found no place at the adaptive limit of "+of+", by priority and reason: full, signal (as full, by bbr), kept (for more important ones), other_users (their priority did not fit, and other users had their turn), "+
			"queue_full, waited (for as long as the queue allows), codel (in a queue that did not get empty).", "priority", "reason"),
	}
}

// Describe sends the descriptions.
func (m *AdaptiveMetrics) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{m.limit, m.inFlight, m.queued, m.least, m.overload, m.requests, m.refused} {
		ch <- d
	}
}

// Collect sends the metrics of a limit. A priority and a reason for which no request was refused are missing.
func (m *AdaptiveMetrics) Collect(ch chan<- prometheus.Metric, s adaptive.Stats, labels ...string) {
	send := func(d *prometheus.Desc, kind prometheus.ValueType, v float64, more ...string) {
		ch <- prometheus.MustNewConstMetric(d, kind, v, slices.Concat(labels, more)...)
	}
	send(m.limit, prometheus.GaugeValue, float64(s.Limit))
	send(m.inFlight, prometheus.GaugeValue, float64(s.InFlight))
	send(m.queued, prometheus.GaugeValue, float64(s.Waiting))
	if s.LeastLatency > 0 {
		send(m.least, prometheus.GaugeValue, s.LeastLatency.Seconds())
	}
	if s.Signals {
		over := 0.0
		if s.Overload != "" {
			over = 1
		}
		send(m.overload, prometheus.GaugeValue, over)
	}
	for outcome, n := range map[string]uint64{"ok": s.Outcomes.OK, "ignored": s.Outcomes.Ignored, "dropped": s.Outcomes.Dropped, "refused": s.Outcomes.Refused} {
		send(m.requests, prometheus.CounterValue, float64(n), outcome)
	}
	for _, by := range s.Refused {
		for _, why := range by.Reasons.All() {
			if why.Refused > 0 {
				send(m.refused, prometheus.CounterValue, float64(why.Refused), by.Priority.String(), why.Name)
			}
		}
	}
}
