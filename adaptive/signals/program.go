package signals

import (
	"math"
	"runtime/metrics"
	"time"
)

// program reads the Go runtime: how long goroutines waited to run, and what the garbage collector
// took.
type program struct {
	samples []metrics.Sample
	counts  []uint64 // of the latencies, at the last reading
	ended   cycle    // when the runtime last updated the times of the garbage collector
	share   float64  // of the collector between that and the update before
	all     float64  // CPU seconds of everything between them
	known   bool
}

// A cycle has the CPU times, in seconds, at the end of a garbage collection.
type cycle struct {
	gc, all float64
	at      time.Duration
}

const (
	schedulerLatencies = "/sched/latencies:seconds"
	gcTime             = "/cpu/classes/gc/total:cpu-seconds"
	gcIdle             = "/cpu/classes/gc/mark/idle:cpu-seconds" // on CPUs that had nothing else to do
	allTime            = "/cpu/classes/total:cpu-seconds"
	threads            = "/sched/gomaxprocs:threads"
)

func newProgram() *program {
	p := &program{}
	for _, name := range []string{schedulerLatencies, gcTime, gcIdle, allTime, threads} {
		p.samples = append(p.samples, metrics.Sample{Name: name})
	}
	return p
}

func (p *program) sampler() sampler {
	return sampler{[]Signal{SchedulerLatency, GC}, 1, p.sample}
}

func (p *program) sample(at time.Duration, r *Reading) {
	metrics.Read(p.samples)
	for _, s := range p.samples {
		if s.Value.Kind() == metrics.KindBad {
			r.SetAbsent(SchedulerLatency, "the Go runtime has no "+s.Name)
			r.SetAbsent(GC, "the Go runtime has no "+s.Name)
			return
		}
	}
	latency := p.latency(p.samples[0].Value.Float64Histogram())
	now := cycle{p.samples[1].Value.Float64() - p.samples[2].Value.Float64(), p.samples[3].Value.Float64(), at}
	if !p.known {
		p.ended, p.known = now, true
		r.SetAbsent(SchedulerLatency, schedulerLatencies+twoReadings)
		r.SetAbsent(GC, gcTime+twoReadings)
		return
	}
	r.Set(SchedulerLatency, latency, schedulerLatencies)
	if all := now.all - p.ended.all; all > 0 {
		p.share, p.all, p.ended = min(max(now.gc-p.ended.gc, 0)/all, 1), all, now
	}
	r.Set(GC, p.since(at), gcTime+" beside "+allTime)
}

// since returns the share of the collector from the collection before the latest until now. The
// runtime updates the times when a collection ends, and in the time after the latest it took none.
func (p *program) since(at time.Duration) float64 {
	after := (at - p.ended.at).Seconds() * float64(p.samples[4].Value.Uint64())
	if p.all+after <= 0 {
		return 0
	}
	return p.share * p.all / (p.all + after)
}

// latency returns the 99th percentile of the latencies since the last reading, and 0 if nothing
// waited.
func (p *program) latency(h *metrics.Float64Histogram) float64 {
	if len(p.counts) != len(h.Counts) {
		p.counts = make([]uint64, len(h.Counts))
	}
	total := uint64(0)
	for i, n := range h.Counts {
		total += n - p.counts[i]
		p.counts[i], h.Counts[i] = n, n-p.counts[i]
	}
	rest := total / 100 // so many may be longer
	for i := len(h.Counts) - 1; i >= 0; i-- {
		if n := h.Counts[i]; n > rest {
			if upper := h.Buckets[i+1]; !math.IsInf(upper, 0) {
				return upper
			}
			return h.Buckets[i]
		}
		rest -= h.Counts[i]
	}
	return 0
}
