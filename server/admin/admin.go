// Package admin is what operators and their tools see of a server: whether it lives, whether it is ready, its metrics, and an API that changes it.
package admin

import (
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/weirflow/weir"
	"github.com/weirflow/weir/failover"
	"github.com/weirflow/weir/lease"
	"github.com/weirflow/weir/policy"
	"github.com/weirflow/weir/server/gateway"
)

// An Admin answers /healthz, /readyz and /metrics, and once it has a Control /v1/. Everything else is 404.
type Admin struct {
	mux      *http.ServeMux
	ready    atomic.Bool
	reloads  *prometheus.CounterVec
	registry *prometheus.Registry
	guard    *guard // nil without a Control
}

// A Store is what is known of a store.
type Store struct {
	Name      string
	Connected bool // it has been, once
	failover.Stats
	Lease *lease.Stats // nil for a store without leases
}

// New returns the admin pages of a gateway, and of the stores in force. It is not ready until SetReady. A store that is out makes nothing less
// ready: limits go on without it, as the policy says.
func New(g *gateway.Gateway, stores func() []Store) *Admin {
	a := &Admin{
		mux:      http.NewServeMux(),
		registry: prometheus.NewRegistry(),
		reloads: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "weir_reloads_total", Help: "How often the policy file was read again, by what came of it.",
		}, []string{"result"}),
	}
	a.reloads.WithLabelValues("ok")
	a.reloads.WithLabelValues("failed")
	a.registry.MustRegister(a.reloads, &collector{g, stores}, &roomCollector{g}, collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	a.mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, "ok") })
	a.mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, _ *http.Request) {
		if !a.ready.Load() {
			http.Error(w, "not ready", http.StatusServiceUnavailable)
			return
		}
		fmt.Fprintln(w, "ready")
	})
	a.mux.Handle("GET /metrics", promhttp.HandlerFor(a.registry, promhttp.HandlerOpts{}))
	return a
}

// Register adds metrics of others to the page.
func (a *Admin) Register(c prometheus.Collector) error { return a.registry.Register(c) }

// ServeHTTP serves a page. Whether a server lives and is ready everybody may know; the rest is guarded, and metrics only by the token.
func (a *Admin) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	open := r.URL.Path == "/healthz" || r.URL.Path == "/readyz"
	if a.guard != nil && !open && (strings.HasPrefix(r.URL.Path, "/v1/") || !a.guard.knows(r)) {
		if p := a.guard.refuse(r); p != nil {
			p.write(w)
			return
		}
	}
	a.mux.ServeHTTP(w, r)
}

// SetReady says whether requests are welcome.
func (a *Admin) SetReady(ready bool) { a.ready.Store(ready) }

// Reloaded counts an attempt to read the policy again.
func (a *Admin) Reloaded(err error) {
	result := "ok"
	if err != nil {
		result = "failed"
	}
	a.reloads.WithLabelValues(result).Inc()
}

// collector turns the counters of the engine into metrics when they are asked for. A label is a limit's name or an outcome, of which
// there are as many as the policy says; never a key.
type collector struct {
	g      *gateway.Gateway
	stores func() []Store
}

var (
	limitRequests = prometheus.NewDesc("weir_limit_requests_total",
		"Requests by the limit that was asked and its outcome: a refused request counts only for the limit that refused it.",
		[]string{"limit", "outcome"}, nil)
	shadowRequests = prometheus.NewDesc("weir_shadow_requests_total",
		"Requests by the shadow limit that was asked and the outcome that it would have had.", []string{"limit", "outcome"}, nil)
	limitWaiting = prometheus.NewDesc("weir_limit_waiting", "Requests that wait in a limit's queues now.", []string{"limit"}, nil)
	limitKeys    = prometheus.NewDesc("weir_limit_keys", "Keys that a limit keeps a state for now.", []string{"limit"}, nil)
	limitLetGo   = prometheus.NewDesc("weir_limit_keys_let_go_total",
		"Keys that were let go: free, as their state was as good as new, or full, as there were more than max_keys.", []string{"limit", "reason"}, nil)
	limitTurnedAway = prometheus.NewDesc("weir_limit_keys_turned_away_total",
		"New keys that there was no room for: refused, or, at each request, decided on by a shared state.", []string{"limit", "to"}, nil)
	gatewayRequests = prometheus.NewDesc("weir_gateway_requests_total", "Requests to the gateway by what became of them.", []string{"outcome"}, nil)
	limitDecisions  = prometheus.NewDesc("weir_limit_decisions_total",
		"Decisions about a limit in a store, by where they were made: store, lease, or without the store: share, allow, deny.", []string{"limit", "source"}, nil)
	limitErrors = prometheus.NewDesc("weir_limit_store_errors_total",
		"Requests that neither the store decided nor what stands in for it, so that on_failure did.", []string{"limit"}, nil)
	limitLost      = prometheus.NewDesc("weir_limit_not_returned_total", "Charges that were to be given back, and were not, as the store did not answer.", []string{"limit"}, nil)
	shadowMissed   = prometheus.NewDesc("weir_shadow_missed_total", "Requests that a shadow limit in a store was not asked about, as too many were.", []string{"limit"}, nil)
	storeUp        = prometheus.NewDesc("weir_store_up", "Whether a store is asked: 0 while it does not answer, and limits go on without it.", []string{"store"}, nil)
	storeNodes     = prometheus.NewDesc("weir_store_nodes", "How many nodes share a store, as far as is known.", []string{"store"}, nil)
	storeTurned    = prometheus.NewDesc("weir_store_transitions_total", "Changes of a store's breaker, by what it became: open, half_open, closed.", []string{"store", "to"}, nil)
	storeCalls     = prometheus.NewDesc("weir_store_calls_total", "Calls of a store: answered, late, failed, rejected (not made while the breaker was open), left by who asked.", []string{"store", "outcome"}, nil)
	upstreamFailed = prometheus.NewDesc("weir_gateway_upstream_failures_total", "Requests that were passed on and got no answer.", nil, nil)
)

func (c *collector) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{limitRequests, shadowRequests, limitWaiting, limitKeys, limitLetGo, limitTurnedAway, gatewayRequests, upstreamFailed,
		limitDecisions, limitErrors, limitLost, shadowMissed, storeUp, storeNodes, storeTurned, storeCalls,
		leaseKeys, leaseTrips, leaseTokens} {
		ch <- d
	}
	for _, d := range upstreamDescs {
		ch <- d
	}
}

func (c *collector) Collect(ch chan<- prometheus.Metric) {
	counter := func(d *prometheus.Desc, v uint64, labels ...string) {
		ch <- prometheus.MustNewConstMetric(d, prometheus.CounterValue, float64(v), labels...)
	}
	gauge := func(d *prometheus.Desc, v int, labels ...string) {
		ch <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, float64(v), labels...)
	}
	for _, l := range c.g.Engine().Counts() {
		c.limit(l, counter, gauge)
	}
	n := c.g.Counts()
	for outcome, v := range map[string]uint64{
		"allowed": n.Allowed, "delayed": n.Delayed, "limited": n.Limited, "no_route": n.NoRoute, "invalid": n.Invalid, "canceled": n.Canceled,
		"waiting": n.Waiting, "too_large": n.TooLarge, "bad_body": n.BadBody,
	} {
		counter(gatewayRequests, v, outcome)
	}
	counter(upstreamFailed, n.UpstreamFailed)
	counter(gatewayTurnedAway, n.TurnedAway)
	counter(gatewayStale, n.Stale)
	gauge(gatewayHeld, c.g.Held())
	collectUpstreams(c.g.Upstreams(), counter, gauge)
	for _, s := range c.stores() {
		s.collect(counter, gauge)
	}
}

func (s *Store) collect(counter func(*prometheus.Desc, uint64, ...string), gauge func(*prometheus.Desc, int, ...string)) {
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

func (c *collector) limit(l policy.Count, counter func(*prometheus.Desc, uint64, ...string), gauge func(*prometheus.Desc, int, ...string)) {
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
