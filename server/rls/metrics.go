package rls

import (
	"log/slog"
	"sync"
	"sync/atomic"

	pb "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"github.com/prometheus/client_golang/prometheus"
)

// metrics are the counters of the service. Rules with detailed_metric or value_to_metric have a series
// for each value; beyond maxSeries, hits count for one series together.
type metrics struct {
	ok, over, failed, unknownDomain, unnamed, loads, badLoads atomic.Uint64

	checks *prometheus.CounterVec // requests of ext_authz, by their outcome

	series sync.Map // of *series, by the path of a rule
	count  atomic.Int64

	mu     sync.Mutex
	logged string // the error of the last load, which is logged once
}

// series is the hits of one rule.
type series struct{ total, over, shadow, given atomic.Uint64 }

const (
	maxSeries = 10_000
	theRest   = "(other)"
)

var (
	requestsTotal = prometheus.NewDesc("weir_rls_requests_total", "Requests of Envoy's rate limit service, by the code of the response: ok, over_limit, or error.", []string{"code"}, nil)
	hitsTotal     = prometheus.NewDesc("weir_rls_rule_hits_total", "Hits of a rule of Envoy's files: all, those over the limit, those over a limit in shadow_mode, and those that were given back (negative hits).", []string{"rule", "hits"}, nil)
	unknownTotal  = prometheus.NewDesc("weir_rls_unknown_domains_total", "Descriptors of a domain without rules.", nil, nil)
	unnamedTotal  = prometheus.NewDesc("weir_rls_unnamed_limits_total", "Descriptors whose first entry names no limit of the policy, where there are no files of Envoy.", nil, nil)
	loadsTotal    = prometheus.NewDesc("weir_rls_config_loads_total", "How often Envoy's files were read, by the result: success or error.", []string{"result"}, nil)
)

func newMetrics() *metrics {
	return &metrics{checks: prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "weir_ext_authz_requests_total", Help: "Requests of Envoy's external authorization (ext_authz) over gRPC, by the outcome: ok, refused, or invalid.",
	}, []string{"outcome"})}
}

// answered counts a response.
func (m *metrics) answered(r *pb.RateLimitResponse, err error) {
	switch {
	case err != nil:
		m.failed.Add(1)
	case r.OverallCode == pb.RateLimitResponse_OVER_LIMIT:
		m.over.Add(1)
	default:
		m.ok.Add(1)
	}
}

// counted counts the hits of a descriptor.
func (m *metrics) counted(d *descriptor, over bool) {
	s := m.of(d.metric)
	if d.gives {
		s.given.Add(d.hits)
		return
	}
	s.total.Add(d.hits)
	switch {
	case !over:
	case d.rule != nil && d.rule.Shadow:
		s.shadow.Add(d.hits)
	default:
		s.over.Add(d.hits)
	}
}

// of returns the series of a path.
func (m *metrics) of(path string) *series {
	if s, ok := m.series.Load(path); ok {
		return s.(*series)
	}
	if m.count.Load() >= maxSeries {
		path = theRest
	}
	s, known := m.series.LoadOrStore(path, new(series))
	if !known {
		m.count.Add(1)
	}
	return s.(*series)
}

// loaded counts that the files of rules were read.
func (m *metrics) loaded(err error) {
	if err != nil {
		m.badLoads.Add(1)
		return
	}
	m.loads.Add(1)
	m.mu.Lock()
	m.logged = ""
	m.mu.Unlock()
}

// stale logs that changed files are not valid, once for each error.
func (m *metrics) stale(log *slog.Logger, err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.logged == err.Error() {
		return
	}
	m.logged = err.Error()
	m.badLoads.Add(1)
	log.Error("rules not reloaded: the old ones stay in use", "listen", name, "error", err)
}

// Describe is of prometheus.Collector.
func (m *metrics) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{requestsTotal, hitsTotal, unknownTotal, unnamedTotal, loadsTotal} {
		ch <- d
	}
}

// Collect is of prometheus.Collector.
func (m *metrics) Collect(ch chan<- prometheus.Metric) {
	counter := func(d *prometheus.Desc, v uint64, labels ...string) {
		ch <- prometheus.MustNewConstMetric(d, prometheus.CounterValue, float64(v), labels...)
	}
	counter(requestsTotal, m.ok.Load(), "ok")
	counter(requestsTotal, m.over.Load(), "over_limit")
	counter(requestsTotal, m.failed.Load(), "error")
	counter(unknownTotal, m.unknownDomain.Load())
	counter(unnamedTotal, m.unnamed.Load())
	counter(loadsTotal, m.loads.Load(), "success")
	counter(loadsTotal, m.badLoads.Load(), "error")
	m.series.Range(func(path, s any) bool {
		one := s.(*series)
		counter(hitsTotal, one.total.Load(), path.(string), "all")
		counter(hitsTotal, one.over.Load(), path.(string), "over_limit")
		counter(hitsTotal, one.shadow.Load(), path.(string), "shadow")
		if n := one.given.Load(); n > 0 { // few rules have such hits
			counter(hitsTotal, n, path.(string), "given_back")
		}
		return true
	})
}
