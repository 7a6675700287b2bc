package weircaddy

import (
	"log/slog"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"
	"go.uber.org/zap/exp/zapslog"

	"github.com/weirflow/weir/server/policymetrics"
)

// metrics exports the counters of a process from the time on when it has a policy.
type metrics struct{ process *process }

// Describe implements prometheus.Collector.
func (m metrics) Describe(to chan<- *prometheus.Desc) { policymetrics.Collector{}.Describe(to) }

// Collect implements prometheus.Collector.
func (m metrics) Collect(to chan<- prometheus.Metric) {
	if now := m.process.policy.Load(); now != nil {
		policymetrics.Collector{Policy: now}.Collect(to)
	}
}

// zapped returns a logger for slog that writes to one of zap.
func zapped(log *zap.Logger) *slog.Logger {
	return slog.New(zapslog.NewHandler(log.Core(), zapslog.WithName(log.Name()), zapslog.AddStacktraceAt(slog.Level(127))))
}
