package policymetrics

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/weirflow/weir/server/active"
)

var (
	regionShare  = prometheus.NewDesc("weir_region_share", "This region's share of a limit that is divided between regions, from 0 to 1.", []string{"limit"}, nil)
	regionHomeUp = prometheus.NewDesc("weir_region_home_up", "Whether the latest call of the home by which a store's regions divide their limits was answered.", []string{"store"}, nil)
)

// regional exports what a store with regions has.
func regional(s active.Store, ch chan<- prometheus.Metric) {
	up := 1.0
	if s.Regions.HomeError != nil {
		up = 0
	}
	ch <- prometheus.MustNewConstMetric(regionHomeUp, prometheus.GaugeValue, up, s.Name)
	for limit, thousandths := range s.Regions.Shares {
		ch <- prometheus.MustNewConstMetric(regionShare, prometheus.GaugeValue, float64(thousandths)/1000, limit)
	}
}
