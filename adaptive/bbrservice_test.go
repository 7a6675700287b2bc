package adaptive_test

import (
	"math"
	"testing"
	"time"

	"github.com/weirflow/weir"
	"github.com/weirflow/weir/adaptive"
	"github.com/weirflow/weir/adaptive/signals"
	"github.com/weirflow/weir/internal/overload"
	"github.com/weirflow/weir/internal/raced"
	"github.com/weirflow/weir/internal/seeds"
)

// A busy is the CPU signal of a simulated service, whose workers are its CPUs. It is read every 250
// ms and smoothed, as a Monitor does it. The machine may be busy with something else, too.
type busy struct {
	sim     *overload.Simulation
	l       *adaptive.Limiter
	workers int
	other   func(time.Duration) float64 // the share of the CPUs that others take
	now     int64
	level   float64
}

func (b *busy) Reading() *signals.Reading {
	for ; b.now+int64(sec/4) <= b.sim.Now(); b.now += int64(sec / 4) {
		cpu := math.Min(1, float64(b.l.InFlight())/float64(b.workers))
		if b.other != nil {
			cpu = math.Max(cpu, b.other(time.Duration(b.now)))
		}
		b.level += (cpu - b.level) * (1 - math.Exp(-0.25))
	}
	r := &signals.Reading{}
	r.Set(signals.CPU, b.level, "the simulation")
	return r
}

// guardService runs BBR before a simulated service whose CPUs are its workers.
func guardService(t *testing.T, s overload.Scenario, other func(time.Duration) float64) []overload.Bin {
	t.Helper()
	sim := overload.New(s)
	b := &busy{sim: sim, workers: s.At(0).Workers, other: other}
	l, err := adaptive.New(adaptive.Options{Algorithm: adaptive.BBR{}, Signals: b, Clock: sim.Now})
	if err != nil {
		t.Fatal(err)
	}
	b.l = l
	return sim.Run(overload.Limiter{Limit: l.Limit, Enter: func() (func(weir.Outcome), bool) {
		h, ok := l.TryEnter()
		return h.Done, ok
	}})
}

// TestBBROverload: with three times the capacity, and a tenth more than it, requests hardly wait, and
// the service does most of what it can: with BBR's limit all of it, and as much as the threshold
// allows while the CPUs are at it.
func TestBBROverload(t *testing.T) {
	raced.Skip(t)
	r := seeds.Of(t.Name())
	for load, want := range map[float64]float64{3: 0.85, 1.1: 0.7} {
		sum, runs := 0.0, 0.0
		for _, kind := range kinds {
			for _, workers := range []int{4, 20, 100, 100} {
				seed := r.Uint64()
				bins := guardService(t, overload.Scenario{For: 70 * sec, Seed: seed, Work: kind.work, At: func(d time.Duration) overload.Service {
					s := overload.Service{Workers: workers, Rate: 5 * float64(workers)}
					if d >= 10*sec {
						s.Rate = load * 10 * float64(workers)
					}
					return s
				}}, nil)
				before, got := overload.Between(bins, 2*sec, 10*sec), overload.Between(bins, 15*sec, 70*sec)
				good := float64(got.Good) / 55 / 10 / float64(workers)
				sum, runs = sum+good, runs+1
				if good < 0.55 || got.P99 > 4*before.P99 {
					t.Errorf("load %.1f, %s, %d workers, seed %d: %.0f %% of what is possible, p99 %v (%v without overload)",
						load, kind.name, workers, seed, 100*good, got.P99, before.P99)
				}
			}
		}
		if sum/runs < want {
			t.Errorf("load %.1f: on average, %.1f %% of what is possible is served", load, 100*sum/runs)
		}
	}
}

// TestBBRLongOverload: when something else takes the CPUs for ten minutes, the limit neither grows
// with the queue that it allows, nor falls with the throughput that it allows.
func TestBBRLongOverload(t *testing.T) {
	raced.Skip(t)
	for _, kind := range kinds {
		bins := guardService(t, overload.Scenario{For: 600 * sec, Seed: seeds.Seed(), Work: kind.work, At: func(d time.Duration) overload.Service {
			s := overload.Service{Workers: 50, Rate: 250}
			if d >= 10*sec {
				s.Rate = 1500
			}
			return s
		}}, func(d time.Duration) float64 {
			if d >= 10*sec {
				return 0.95
			}
			return 0
		})
		for from := 20 * sec; from < 600*sec; from += 20 * sec {
			got := overload.Between(bins, from, from+20*sec)
			if good := float64(got.Good) / 20 / 500; got.Limit < 30 || got.Limit > 120 || good < 0.7 {
				t.Errorf("%s: from %v on, the limit is %.0f, and %.0f %% of what is possible is served", kind.name, from, got.Limit, 100*good)
			}
		}
	}
}
