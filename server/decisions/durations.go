package decisions

import (
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
)

// Durations are histograms of how long decisions, calls of stores and waits in queues took. Each has
// classic buckets, and native ones for a Prometheus that scrapes those.
type Durations struct {
	decision     prometheus.Histogram
	store, queue named
}

// named is a histogram for each limit or store.
type named struct {
	*prometheus.HistogramVec
	known *sync.Map   // of prometheus.Observer, by name: each call of a store finds its own here, without a lock
	mu    *sync.Mutex // held while known changes
}

func newNamed(o prometheus.HistogramOpts, label string) named {
	return named{prometheus.NewHistogramVec(o, []string{label}), new(sync.Map), new(sync.Mutex)}
}

// Bounds of native histograms: neighbouring buckets differ by 10 %, and there are at most 160 of them.
const (
	bucketFactor = 1.1
	mostBuckets  = 160
)

func newDurations() *Durations {
	options := func(name, help string, buckets ...float64) prometheus.HistogramOpts {
		return prometheus.HistogramOpts{Name: name, Help: help, Buckets: buckets, NativeHistogramBucketFactor: bucketFactor,
			NativeHistogramMaxBucketNumber: mostBuckets, NativeHistogramMinResetDuration: time.Hour}
	}
	return &Durations{
		decision: prometheus.NewHistogram(options("weir_decision_seconds", "How long decisions took, stores included and queues not. One of 32 is measured.",
			500e-9, 1e-6, 2e-6, 5e-6, 10e-6, 25e-6, 50e-6, 100e-6, 250e-6, 500e-6, 1e-3, 2.5e-3, 5e-3, 10e-3, 25e-3, 100e-3, 1)),
		store: newNamed(options("weir_store_call_seconds", "How long calls of a store took, those that failed included.",
			50e-6, 100e-6, 250e-6, 500e-6, 1e-3, 2.5e-3, 5e-3, 10e-3, 20e-3, 50e-3, 100e-3, 250e-3, 1), "store"),
		queue: newNamed(options("weir_queue_wait_seconds", "How long requests waited in the queue of a limit, those that gave up included.",
			1e-3, 5e-3, 10e-3, 25e-3, 50e-3, 100e-3, 250e-3, 500e-3, 1, 2.5, 5, 10, 30, 60, 300), "limit"),
	}
}

// observe adds a duration.
func (n *named) observe(name string, d time.Duration) {
	known, ok := n.known.Load(name)
	if !ok {
		n.mu.Lock()
		known, _ = n.known.LoadOrStore(name, n.WithLabelValues(name))
		n.mu.Unlock()
	}
	known.(prometheus.Observer).Observe(d.Seconds())
}

// keep drops the names that keep does not report: those of limits and stores that are no longer there.
func (n *named) keep(keep func(string) bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.known.Range(func(name, _ any) bool {
		if !keep(name.(string)) {
			n.DeleteLabelValues(name.(string))
			n.known.Delete(name)
		}
		return true
	})
}

// A Latency is how many durations were at most as long as each of some bounds, and how many there were in all.
type Latency struct {
	Bounds []float64 // in seconds, ascending
	Counts []uint64  // one more than Bounds: the last is of all
}

// Decisions returns how long decisions took, of which one in policy.TimedOneIn is measured.
func (d *Durations) Decisions() Latency { return latencyOf(d.decision) }

// StoreCalls returns how long the calls of a store took; ok is false if there was none.
func (d *Durations) StoreCalls(store string) (l Latency, ok bool) {
	h, ok := d.store.known.Load(store)
	if !ok {
		return l, false
	}
	m, ok := h.(prometheus.Metric)
	if !ok {
		return l, false
	}
	return latencyOf(m), true
}

// latencyOf reads the classic buckets of a histogram.
func latencyOf(m prometheus.Metric) (l Latency) {
	var out dto.Metric
	if err := m.Write(&out); err != nil {
		return l
	}
	h := out.GetHistogram()
	for _, b := range h.GetBucket() {
		l.Bounds, l.Counts = append(l.Bounds, b.GetUpperBound()), append(l.Counts, b.GetCumulativeCount())
	}
	l.Counts = append(l.Counts, h.GetSampleCount())
	return l
}

// Describe describes the histograms of all Durations, for a collector that has none yet.
func Describe(ch chan<- *prometheus.Desc) { newDurations().Describe(ch) }

// Describe is that of a prometheus.Collector.
func (d *Durations) Describe(ch chan<- *prometheus.Desc) {
	d.decision.Describe(ch)
	d.store.Describe(ch)
	d.queue.Describe(ch)
}

// Collect is that of a prometheus.Collector, for the limits and stores that are there.
func (d *Durations) Collect(ch chan<- prometheus.Metric, isLimit, isStore func(name string) bool) {
	d.store.keep(isStore)
	d.queue.keep(isLimit)
	d.decision.Collect(ch)
	d.store.Collect(ch)
	d.queue.Collect(ch)
}
