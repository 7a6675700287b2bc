package policymetrics_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/weirflow/weir"
	"github.com/weirflow/weir/adaptive"
	"github.com/weirflow/weir/server/policymetrics"
)

// of collects the metrics of an adaptive limit.
type of struct {
	policymetrics.AdaptiveMetrics
	limiter *adaptive.Limiter
}

// Collect is of prometheus.Collector.
func (o of) Collect(ch chan<- prometheus.Metric) {
	o.AdaptiveMetrics.Collect(ch, o.limiter.Stats(), "app")
}

// Describe is of prometheus.Collector.
func (o of) Describe(ch chan<- *prometheus.Desc) { o.AdaptiveMetrics.Describe(ch) }

// TestAdaptiveMetrics: each refusal counts once, by its priority and its reason.
func TestAdaptiveMetrics(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, err := adaptive.New(adaptive.Options{Algorithm: adaptive.Knee{Initial: 1, Max: 1}, Queue: adaptive.Queue{Length: 1, Wait: time.Second}})
		if err != nil {
			t.Fatal(err)
		}
		enter := func(p adaptive.Priority) { _, _ = l.EnterAs(t.Context(), adaptive.Request{Priority: p}) }
		h, err := l.Enter(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		done := make(chan bool)
		go func() { enter(adaptive.Sheddable); done <- true }()
		synctest.Wait()
		go func() { enter(adaptive.CriticalPlus); done <- true }() // takes its place in the queue
		synctest.Wait()
		enter(adaptive.Critical)
		<-done
		<-done
		_, _ = l.TryEnterAs(adaptive.Request{Priority: adaptive.SheddablePlus})
		h.Done(weir.OK)
		all := prometheus.NewPedanticRegistry()
		if err := all.Register(of{policymetrics.NewAdaptiveMetrics("weir_test", "a test", "limit"), l}); err != nil {
			t.Fatal(err)
		}
		families, err := all.Gather()
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, f := range families {
			for _, m := range f.GetMetric() {
				var labels []string
				for _, p := range m.GetLabel() {
					labels = append(labels, p.GetValue())
				}
				got = append(got, fmt.Sprintf("%s %s %g", strings.TrimPrefix(f.GetName(), "weir_test_"), strings.Join(labels, " "), m.GetCounter().GetValue()+m.GetGauge().GetValue()))
			}
		}
		slices.Sort(got)
		// labels are in the order of their names
		want := []string{
			"in_flight app 0", "limit app 1", "queued app 0",
			"refused_total app critical queue_full 1", "refused_total app critical_plus waited 1", "refused_total app sheddable queue_full 1", "refused_total app sheddable_plus full 1",
			"requests_total app dropped 0", "requests_total app ignored 0", "requests_total app ok 1", "requests_total app refused 4",
		}
		if !slices.Equal(got, want) {
			t.Errorf("%q\nwant %q", got, want)
		}
	})
}
