package gateway

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/weirflow/weir/server/policymetrics"
)

// requestMetrics are the metrics of what became of requests, and of upstreams. Labels are outcomes,
// the names of upstreams in the policy, and the hosts and ports of its URLs.
type requestMetrics struct{ *Gateway }

var (
	gatewayRequests = prometheus.NewDesc("weir_gateway_requests_total", "Requests to the gateway by outcome.", []string{"outcome"}, nil)
	upstreamFailed  = prometheus.NewDesc("weir_gateway_upstream_failures_total", "Requests that were passed on and got no response.", nil, nil)

	gatewayExhausted = prometheus.NewDesc("weir_gateway_not_sent_total",
		"Requests that were not sent because the gateway had no descriptors, ports or memory left. They count against no upstream.", nil, nil)
	gatewayAliases = prometheus.NewDesc("weir_gateway_alias_headers_total",
		"Headers like X_Api_Key that upstreams may take for one that matters: dropped, or requests refused for one.", []string{"outcome"}, nil)

	upstreamRequests = prometheus.NewDesc("weir_upstream_requests_total", "Requests sent to a target, retries included.", []string{"upstream", "target"}, nil)
	upstreamFailures = prometheus.NewDesc("weir_upstream_failures_total",
		"Requests to which a target did not respond completely, for a reason on its side.", []string{"upstream", "target"}, nil)
	upstreamInFlight = prometheus.NewDesc("weir_upstream_in_flight", "Requests in flight to a target.", []string{"upstream", "target"}, nil)
	upstreamUp       = prometheus.NewDesc("weir_upstream_up", "Whether a target is up: 0 while it gets no requests.", []string{"upstream", "target"}, nil)
	upstreamRetries  = prometheus.NewDesc("weir_upstream_retries_total",
		"Retries on another target: sent, or not sent because they were over_budget.", []string{"upstream", "outcome"}, nil)
	gatewayQueued    = prometheus.NewDesc("weir_gateway_queued", "Requests waiting in queues.", nil, nil)
	gatewayQueueFull = prometheus.NewDesc("weir_gateway_queue_full_total",
		"Requests refused because as many were waiting as may; they are also counted as limited.", nil, nil)
	bufferBytes = prometheus.NewDesc("weir_request_buffer_bytes", "Bytes of request bodies that are buffered, in memory and in files.", []string{"in"}, nil)
	bufferFull  = prometheus.NewDesc("weir_request_buffer_full_total",
		"Requests whose body found the bound of all buffers reached: of memory (they went to a file), of files (503), or of memory for a body that limits read (503).", []string{"in"}, nil)
	gatewayStale = prometheus.NewDesc("weir_gateway_stale_total", "Stale responses served in place of a refusal or a failure.", nil, nil)
)

// Describe is of prometheus.Collector.
func (m requestMetrics) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{gatewayRequests, upstreamFailed, gatewayExhausted, gatewayAliases, upstreamRequests, upstreamFailures, upstreamInFlight, upstreamUp, upstreamRetries,
		gatewayQueued, gatewayQueueFull, gatewayStale, bufferBytes, bufferFull} {
		ch <- d
	}
	ofTargets.Describe(ch)
}

// ofTargets are the metrics of the adaptive limits of targets.
var ofTargets = policymetrics.NewAdaptiveMetrics("weir_upstream_adaptive", "a target", "upstream", "target")

// Collect is of prometheus.Collector.
func (m requestMetrics) Collect(ch chan<- prometheus.Metric) {
	counter := func(d *prometheus.Desc, v uint64, labels ...string) {
		ch <- prometheus.MustNewConstMetric(d, prometheus.CounterValue, float64(v), labels...)
	}
	gauge := func(d *prometheus.Desc, v int, labels ...string) {
		ch <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, float64(v), labels...)
	}
	n := m.Counts()
	for outcome, v := range map[string]uint64{
		"allowed": n.Allowed, "delayed": n.Delayed, "limited": n.Limited, "no_route": n.NoRoute, "invalid": n.Invalid, "canceled": n.Canceled,
		"waiting": n.Waiting, "too_large": n.TooLarge, "bad_body": n.BadBody, "ambiguous": n.Ambiguous, "unknown_customer": n.UnknownCustomer,
		"unverified_customer": n.UnverifiedCustomer, "overloaded": n.Overloaded,
	} {
		counter(gatewayRequests, v, outcome)
	}
	counter(upstreamFailed, n.UpstreamFailed)
	counter(gatewayExhausted, n.Exhausted)
	counter(gatewayAliases, n.AliasesDropped, "dropped")
	counter(gatewayAliases, n.AliasesRefused, "refused")
	counter(gatewayQueueFull, n.QueueFull)
	counter(gatewayStale, n.Stale)
	gauge(gatewayQueued, m.Queued())
	b := m.Buffers()
	gauge(bufferBytes, int(b.Memory), "memory")
	gauge(bufferBytes, int(b.Files), "files")
	counter(bufferFull, b.NoMemory, "memory")
	counter(bufferFull, b.NoFileSpace, "files")
	counter(bufferFull, b.Undecided, "limits")
	for _, u := range m.Upstreams() {
		counter(upstreamRetries, u.Retries, u.Name, "sent")
		counter(upstreamRetries, u.Spared, u.Name, "over_budget")
		for _, t := range u.Targets {
			counter(upstreamRequests, t.Requests, u.Name, t.Target)
			counter(upstreamFailures, t.Failures, u.Name, t.Target)
			gauge(upstreamInFlight, t.InFlight, u.Name, t.Target)
			up := 0
			if t.Up {
				up = 1
			}
			gauge(upstreamUp, up, u.Name, t.Target)
			if t.Adaptive.On {
				ofTargets.Collect(ch, t.Adaptive.Stats, u.Name, t.Target)
			}
		}
	}
}
