package admin

import (
	"runtime/debug"

	"github.com/prometheus/client_golang/prometheus"
)

// buildInfo returns a gauge that is 1, and whose labels say which build this is.
func buildInfo() prometheus.Collector {
	version, revision, golang := "unknown", "unknown", "unknown"
	if info, ok := debug.ReadBuildInfo(); ok {
		version, golang = info.Main.Version, info.GoVersion
		for _, s := range info.Settings {
			if s.Key == "vcs.revision" {
				revision = s.Value
			}
		}
	}
	g := prometheus.NewGauge(prometheus.GaugeOpts{
		Name: "weir_build_info", Help: "1; the labels say which build this is.",
		ConstLabels: prometheus.Labels{"version": version, "revision": revision, "goversion": golang},
	})
	g.Set(1)
	return g
}
