package gateway

import "github.com/prometheus/client_golang/prometheus"

// edgeMetrics are the metrics of connections and requests, of certificates, and of the access log.
// No label names a client.
type edgeMetrics struct{ *edge }

var (
	connectionsOpen     = prometheus.NewDesc("weir_connections_open", "Open connections of clients.", nil, nil)
	connectionsAccepted = prometheus.NewDesc("weir_connections_accepted_total", "Accepted connections of clients.", nil, nil)
	connectionsRefused  = prometheus.NewDesc("weir_connections_refused_total",
		"Connections closed at once: full (max_connections), client (max_client_connections), untrusted (not in proxy_protocol), proxy_header (missing or invalid), descriptors (too few left).",
		[]string{"reason"}, nil)
	handshakesFailed = prometheus.NewDesc("weir_tls_handshake_failures_total", "Connections that ended before their TLS handshake was complete.", nil, nil)
	httpRequests     = prometheus.NewDesc("weir_http_requests_total", "Requests by protocol, including malformed ones.", []string{"protocol"}, nil)
	httpRefused      = prometheus.NewDesc("weir_http_refused_total",
		"Malformed requests that were refused: ambiguous (two readings), fields (more than max_fields).", []string{"reason"}, nil)
	certificateEnds = prometheus.NewDesc("weir_certificate_not_after_seconds", "Expiry of a certificate as Unix time, by file.", []string{"file"}, nil)
	logLost         = prometheus.NewDesc("weir_access_log_lost_total",
		"Losses of the access log since it was opened: lines for which the buffer had no room (dropped), and lines that could not be written, as on a full disk (failed).", []string{"reason"}, nil)
)

// Describe is of prometheus.Collector.
func (e edgeMetrics) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{connectionsOpen, connectionsAccepted, connectionsRefused, handshakesFailed, httpRequests, httpRefused, certificateEnds, logLost} {
		ch <- d
	}
}

// Collect is of prometheus.Collector.
func (e edgeMetrics) Collect(ch chan<- prometheus.Metric) {
	counter := func(d *prometheus.Desc, v uint64, labels ...string) {
		ch <- prometheus.MustNewConstMetric(d, prometheus.CounterValue, float64(v), labels...)
	}
	c := e.port.Counts()
	ch <- prometheus.MustNewConstMetric(connectionsOpen, prometheus.GaugeValue, float64(c.Open))
	counter(connectionsAccepted, c.Accepted)
	for reason, n := range map[string]uint64{"full": c.Full, "client": c.Client, "untrusted": c.Untrusted, "proxy_header": c.Header, "descriptors": c.Descriptors} {
		counter(connectionsRefused, n, reason)
	}
	counter(handshakesFailed, c.Handshake)
	for protocol, n := range map[string]uint64{"HTTP/1.0": c.HTTP10, "HTTP/1.1": c.HTTP11, "HTTP/2.0": c.HTTP2} {
		counter(httpRequests, n, protocol)
	}
	counter(httpRefused, c.Unclear, "ambiguous")
	counter(httpRefused, c.Fields, "fields")
	seen := map[string]bool{}
	for _, x := range e.expiries() {
		if !seen[x.File] {
			ch <- prometheus.MustNewConstMetric(certificateEnds, prometheus.GaugeValue, float64(x.NotAfter.Unix()), x.File)
		}
		seen[x.File] = true
	}
	lines, failures := e.lostLines()
	counter(logLost, lines, "dropped")
	counter(logLost, failures, "failed")
}
