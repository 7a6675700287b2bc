package adaptive_test

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/weirflow/weir"
	"github.com/weirflow/weir/adaptive"
	"github.com/weirflow/weir/internal/overload"
	"github.com/weirflow/weir/internal/raced"
	"github.com/weirflow/weir/internal/seeds"
)

// failing runs Knee before a service of which some requests fail within a millisecond, whatever the load: the
// share of them at a time. It returns the bins, in which Good has the others.
func failing(t *testing.T, s overload.Scenario, share func(time.Duration) float64) []overload.Bin {
	t.Helper()
	fails, work, r := false, s.Work, rand.New(rand.NewPCG(s.Seed, 3))
	s.Work = func(r *rand.Rand) time.Duration {
		if fails {
			return time.Millisecond
		}
		return work(r)
	}
	sim := overload.New(s)
	l, err := adaptive.New(adaptive.Options{Clock: sim.Now})
	if err != nil {
		t.Fatal(err)
	}
	failed := make([]int, int(s.For/overload.BinWidth)+1)
	bins := sim.Run(overload.Limiter{Limit: l.Limit, Enter: func() (func(weir.Outcome), bool) {
		h, ok := l.TryEnter()
		fails = r.Float64() < share(time.Duration(sim.Now()))
		this := fails
		return func(o weir.Outcome) {
			if this && o == weir.OK {
				o = weir.Dropped
				failed[sim.Now()/int64(overload.BinWidth)]++
			}
			h.Done(o)
		}, ok
	}})
	for i := range bins {
		bins[i].Good -= failed[i]
	}
	return bins
}

// TestAPathThatFails: an upstream that refuses the requests of one path on purpose, however few are in
// flight, lowered the limit of all others to 1.
func TestAPathThatFails(t *testing.T) {
	raced.Skip(t)
	r := seeds.Of(t.Name())
	all, cases := 0.0, 0.0
	for _, share := range []float64{0.01, 0.05, 0.3, 0.8} {
		for _, load := range []float64{0.5, 3} {
			for _, n := range []int{20, 50} {
				good := 0.0
				const runs = 3
				for range runs {
					s := overload.Scenario{For: 40 * sec, Seed: r.Uint64(), Work: overload.HeavyTail(mean), At: func(time.Duration) overload.Service {
						return overload.Service{Workers: n, Rate: load * 10 * float64(n) / (1 - share)}
					}}
					bins := failing(t, s, func(time.Duration) float64 { return share })
					good += float64(overload.Between(bins, 20*sec, 40*sec).Good) / 20 / (min(load, 1) * 10 * float64(n)) / runs
				}
				if good < 0.5 {
					t.Errorf("%g of the requests fail, %d workers, a load of %g: %.0f %% of the others are served", share, n, load, 100*good)
				}
				all, cases = all+good, cases+1
			}
		}
	}
	if all/cases < 0.9 {
		t.Errorf("on average, %.0f %% of what is possible is served", 100*all/cases)
	}
}

// TestOutage: a service that has refused all requests for a while is used again within three seconds. The limit
// was 1 for minutes.
func TestOutage(t *testing.T) {
	raced.Skip(t)
	r := seeds.Of(t.Name())
	all, cases, bad := 0.0, 0.0, 0
	for _, long := range []time.Duration{100 * time.Millisecond, 300 * time.Millisecond, sec, 3 * sec, 30 * sec} {
		for _, load := range []float64{0.5, 3} {
			for _, n := range []int{20, 50, 200} {
				end := 20*sec + long
				s := overload.Scenario{For: end + 6*sec, Seed: r.Uint64(), Work: overload.HeavyTail(mean), At: func(time.Duration) overload.Service {
					return overload.Service{Workers: n, Rate: load * 10 * float64(n)}
				}}
				bins := failing(t, s, func(d time.Duration) float64 {
					if d >= 20*sec && d < end {
						return 1
					}
					return 0
				})
				b := overload.Between(bins, end+3*sec, end+6*sec)
				good := float64(b.Good) / 3 / (min(load, 1) * 10 * float64(n))
				if all, cases = all+good, cases+1; good < 0.75 {
					bad++
					t.Logf("an outage of %v, %d workers, a load of %g: %.0f %% is served then", long, n, load, 100*good)
				}
			}
		}
	}
	if bad > int(cases)/10 || all/cases < 0.92 {
		t.Errorf("%d of %g times the limit stayed too low; on average, %.0f %% of what is possible is served", bad, cases, 100*all/cases)
	}
}

// TestDropsBesideAPathThatFails: where some requests fail on purpose, the drops of an overload are heard as well.
func TestDropsBesideAPathThatFails(t *testing.T) {
	raced.Skip(t)
	r := seeds.Of(t.Name())
	good, dropped, runs := 0.0, 0.0, 0.0
	for _, share := range []float64{0.05, 0.3} {
		for _, n := range []int{20, 50} {
			for range 6 {
				s := overload.Scenario{For: 40 * sec, Seed: r.Uint64(), Work: overload.HeavyTail(mean), At: func(time.Duration) overload.Service {
					return overload.Service{Workers: n, Queue: 1, Rate: 30 * float64(n) / (1 - share)}
				}}
				b := overload.Between(failing(t, s, func(time.Duration) float64 { return share }), 20*sec, 40*sec)
				good += float64(b.Good) / 200 / float64(n)
				dropped += float64(b.Dropped) / float64(b.Good)
				runs++
			}
		}
	}
	if good/runs < 0.8 || dropped/runs > 0.1 {
		t.Errorf("on average, %.0f %% of what is possible is served, and %.0f %% as many are dropped", 100*good/runs, 100*dropped/runs)
	}
}
