package admin

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/weirflow/weir/server/upstream"
)

// Labels are the names of upstreams in the policy, and the hosts and ports of its URLs.
var (
	upstreamRequests = prometheus.NewDesc("weir_upstream_requests_total", "Requests that a target was sent, each retry as one more.", []string{"upstream", "target"}, nil)
	upstreamFailures = prometheus.NewDesc("weir_upstream_failures_total",
		"Requests that a target did not answer, or not to the end, for a reason of its own.", []string{"upstream", "target"}, nil)
	upstreamInFlight = prometheus.NewDesc("weir_upstream_in_flight", "Requests that are under way at a target now.", []string{"upstream", "target"}, nil)
	upstreamUp       = prometheus.NewDesc("weir_upstream_up", "Whether a target is in: 0 while it is given no requests.", []string{"upstream", "target"}, nil)
	upstreamRetries  = prometheus.NewDesc("weir_upstream_retries_total",
		"Requests that were to be sent to another target: sent, or spared as the budget was spent.", []string{"upstream", "outcome"}, nil)
	gatewayHeld       = prometheus.NewDesc("weir_gateway_held", "Requests that wait in queues now.", nil, nil)
	gatewayTurnedAway = prometheus.NewDesc("weir_gateway_turned_away_total",
		"Requests, among the limited, that would have waited while as many did as may.", nil, nil)
	gatewayStale = prometheus.NewDesc("weir_gateway_stale_total", "Answers that were given once more, in place of a refusal or a failure.", nil, nil)
)

// upstreamDescs are all that collectUpstreams collects.
var upstreamDescs = []*prometheus.Desc{upstreamRequests, upstreamFailures, upstreamInFlight, upstreamUp, upstreamRetries, gatewayHeld, gatewayTurnedAway, gatewayStale}

func collectUpstreams(all []upstream.Stats, counter func(*prometheus.Desc, uint64, ...string), gauge func(*prometheus.Desc, int, ...string)) {
	for _, u := range all {
		counter(upstreamRetries, u.Retries, u.Name, "sent")
		counter(upstreamRetries, u.Spared, u.Name, "spared")
		for _, t := range u.Targets {
			counter(upstreamRequests, t.Requests, u.Name, t.Target)
			counter(upstreamFailures, t.Failures, u.Name, t.Target)
			gauge(upstreamInFlight, t.InFlight, u.Name, t.Target)
			up := 0
			if t.Up {
				up = 1
			}
			gauge(upstreamUp, up, u.Name, t.Target)
		}
	}
}
