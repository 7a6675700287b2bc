package adaptive

import (
	"errors"
	"math"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirflow/weir"
)

// ms is a sample with its latency in milliseconds.
func ms(latency float64, inFlight int64) sample {
	return sample{latency: int64(latency * 1e6), inFlight: inFlight}
}

func lost(s sample) sample {
	s.dropped = true
	return s
}

func times(n int, s sample) []sample { return slices.Repeat([]sample{s}, n) }

// limits returns the limit after each sample, as the limiter would have it with batches of 1.
func limits(a Algorithm, samples []sample) (all []int64) {
	c, _ := a.begin(func() float64 { return 0.5 })
	for i := range samples {
		all = append(all, c.next(&period{samples: samples[i : i+1]}).limit)
	}
	return all
}

// TestPeers compares AIMD, Vegas and Gradient2 with known numbers of concurrency-limits: those of
// its own tests, and others that follow from its formulas.
func TestPeers(t *testing.T) {
	join := func(all ...[]sample) []sample { return slices.Concat(all...) }
	for name, c := range map[string]struct {
		algorithm Algorithm
		samples   []sample
		want      []int64
	}{
		"AIMD, more":     {AIMD{}, times(1, ms(1, 10)), []int64{21}},
		"AIMD, unused":   {AIMD{}, times(2, ms(1, 9)), []int64{20, 20}},
		"AIMD, a drop":   {AIMD{Initial: 30}, times(1, lost(ms(1, 0))), []int64{27}},
		"AIMD, slow":     {AIMD{Initial: 30}, times(1, ms(5001, 30)), []int64{27}},
		"AIMD, not slow": {AIMD{Initial: 30}, times(1, ms(5000, 30)), []int64{31}},
		"AIMD, most":     {AIMD{Initial: 21, Max: 21}, times(1, ms(1, 10)), []int64{21}},
		"AIMD, least":    {AIMD{}, times(1, lost(ms(1, 10))), []int64{20}},

		"Vegas, more":             {Vegas{Initial: 10, Max: 20}, []sample{ms(10, 10), ms(10, 11)}, []int64{10, 16}},
		"Vegas, less":             {Vegas{Initial: 10, Max: 20}, []sample{ms(10, 10), ms(50, 11)}, []int64{10, 9}},
		"Vegas, as before":        {Vegas{Initial: 10, Max: 20}, []sample{ms(10, 10), ms(14, 14)}, []int64{10, 10}},
		"Vegas, large":            {Vegas{Initial: 10000, Max: 20000}, []sample{ms(10000, 5000), ms(10000, 6000)}, []int64{10000, 10024}},
		"Vegas, the same latency": {Vegas{}, times(6, ms(10, 30)), []int64{20, 26, 32, 38, 44, 50}},
		"Vegas, a queue": {
			Vegas{}, []sample{ms(10, 20), ms(11, 20), ms(12, 20), ms(13, 20), ms(15, 20), ms(20, 20), ms(40, 20)},
			[]int64{20, 21, 21, 21, 20, 19, 18},
		},
		"Vegas, drops":  {Vegas{}, []sample{ms(10, 20), lost(ms(10, 20)), lost(ms(10, 20))}, []int64{20, 19, 18}},
		"Vegas, unused": {Vegas{}, []sample{ms(10, 9), ms(10, 9)}, []int64{20, 20}},
		// with a jitter of 0.75 and a limit of 20, the 450th sample is the new least latency
		"Vegas, probe": {
			Vegas{}, join(times(1, ms(10, 20)), times(449, ms(12.5, 20)), times(1, ms(12.5, 20))),
			slices.Concat(slices.Repeat([]int64{20}, 450), []int64{26}),
		},

		"Gradient2": {
			Gradient2{}, join(times(10, ms(10, 20)), times(5, ms(40, 20))),
			[]int64{20, 21, 22, 23, 24, 24, 25, 26, 27, 28, 26, 24, 22, 21, 20},
		},
		"Gradient2, unused": {Gradient2{}, times(2, ms(10, 5)), []int64{20, 20}},
		"Gradient2, drops":  {Gradient2{}, times(2, lost(ms(10, 20))), []int64{20, 21}},
	} {
		if got := limits(c.algorithm, c.samples); !slices.Equal(got, c.want) {
			t.Errorf("%s: %v, want %v", name, got, c.want)
		}
	}
}

// TestVegasSmoothing has the decrease of the original's test: to the half.
func TestVegasSmoothing(t *testing.T) {
	for smoothing, want := range map[float64][]int64{0.5: {100, 75, 56}, 1: {100, 50, 25}} {
		c, _ := Vegas{Initial: 100, Max: 200, Smoothing: smoothing}.begin(func() float64 { return 0.5 })
		v := &vegas{Vegas: Vegas{Min: 1, Max: 200, Alpha: 3, Beta: 6, Smoothing: smoothing, Probe: 30}, limit: 100, jitter: 0.75,
			decrease: func(limit float64) float64 { return limit / 2 }}
		var got []int64
		for _, latency := range []float64{10, 20, 20} {
			v.step(ms(latency, 100))
			got = append(got, int64(v.limit))
		}
		if !slices.Equal(got, want) || c == nil {
			t.Errorf("smoothing %g: %v, want %v", smoothing, got, want)
		}
	}
}

func TestAverage(t *testing.T) {
	a := average{window: 100, plain: 10}
	for i := range 10 {
		if got, want := a.add(float64(10+i)), 10+float64(i)/2; got != want {
			t.Errorf("after %d: %g, want %g", 10+i, got, want)
		}
	}
	if got := a.add(100); math.Abs(got-16.2) > 0.01 {
		t.Errorf("after 100: %g, want 16.2", got)
	}
}

func TestInvalidParametersAreNamed(t *testing.T) {
	nan := math.NaN()
	for want, a := range map[string]Algorithm{
		"weir: adaptive.Knee.Min: -1 lets nothing pass: it must be at least 1":                   Knee{Min: -1},
		"weir: adaptive.Knee.Initial: -1 is not within Min (1) and Max (1000)":                   Knee{Initial: -1},
		"weir: adaptive.Knee.Max: -1 is not within Min (1) and 2097151":                          Knee{Max: -1},
		"weir: adaptive.Knee.Max: 5 is not within Min (6) and 2097151":                           Knee{Min: 6, Initial: 6, Max: 5},
		"weir: adaptive.Knee.Initial: 7 is not within Min (1) and Max (5)":                       Knee{Initial: 7, Max: 5},
		"weir: adaptive.Knee.Max: 2097152 is not within Min (1) and 2097151":                     Knee{Max: 1 << 21},
		"weir: adaptive.AIMD.Backoff: 1 is not from 0.5 up to but not including 1":               AIMD{Backoff: 1},
		"weir: adaptive.AIMD.Timeout: -1ns is not a duration above 0":                            AIMD{Timeout: -time.Nanosecond},
		"weir: adaptive.Vegas.Alpha: 9 is not above 0 and at most Beta (6)":                      Vegas{Alpha: 9},
		"weir: adaptive.Vegas.Beta: 1e+09 is not within Alpha (3) and 1,000,000":                 Vegas{Beta: 1e9},
		"weir: adaptive.Vegas.Smoothing: NaN is not above 0 and at most 1":                       Vegas{Smoothing: nan},
		"weir: adaptive.Vegas.Probe: 0.5 is not within 1 and 1,000,000,000":                      Vegas{Probe: 0.5},
		"weir: adaptive.Gradient2.Smoothing: 2 is not above 0 and at most 1":                     Gradient2{Smoothing: 2},
		"weir: adaptive.Gradient2.Queue: -4 is not above 0 and at most 1,000,000":                Gradient2{Queue: -4},
		"weir: adaptive.Gradient2.Window: -1 is not a number of requests: it must be at least 1": Gradient2{Window: -1},
		"weir: adaptive.Gradient2.Tolerance: 0.9 is not within 1 and 1,000,000":                  Gradient2{Tolerance: 0.9},
	} {
		l, err := New(Options{Algorithm: a})
		if err == nil || err.Error() != want || l != nil {
			t.Errorf("%v: %v, want %s", a, err, want)
		}
	}
	// a default gives way to what was set
	for want, a := range map[int64]Algorithm{3: AIMD{Max: 3}, 300: AIMD{Min: 300}, 2: Gradient2{Initial: 2}, 20: Knee{}} {
		l, err := New(Options{Algorithm: a})
		if err != nil || l.Limit() != want {
			t.Errorf("%v: a limit of %d, want %d (%v)", a, l.Limit(), want, err)
		}
	}
}

// TestKneeAgreesWithFailsafe has the numbers of the tests of failsafe-go's adaptive limiter: the limit is 20 at first,
// rises while requests take as long as usual, falls when they take twice as long, and holds when they take 1.3 times
// as long.
func TestKneeAgreesWithFailsafe(t *testing.T) {
	for _, c := range []struct {
		times       float64
		least, most int64
	}{{1, 21, 30}, {1.3, 20, 21}, {2, 10, 19}} {
		k, p := Knee{}.begin(nil)
		if p.limit != 20 {
			t.Fatalf("the limit is %d at first", p.limit)
		}
		for i, latency := range []float64{1, c.times} {
			p = k.next(&period{limit: p.limit, samples: times(40, ms(1000*latency, p.limit)), refused: true, inFlight: int(p.limit)})
			if i == 0 && p.limit != 20 {
				t.Fatalf("the limit is %d before the latency is known", p.limit)
			}
		}
		if p.limit < c.least || p.limit > c.most {
			t.Errorf("%g times as long: the limit is %d, want %d to %d", c.times, p.limit, c.least, c.most)
		}
	}
	l, _ := clocked(t, Knee{Min: 1, Max: 10, Initial: 5})
	if l.Limit() != 5 {
		t.Errorf("the limit is %d, want 5", l.Limit())
	}
	// one permit, acquired and recorded
	l, _ = clocked(t, Knee{Min: 1, Max: 20, Initial: 1})
	h, ok := l.TryEnter()
	if _, again := l.TryEnter(); !ok || again || l.InFlight() != 1 || l.HasPlace(Request{}) {
		t.Errorf("%v %v, %d in flight", ok, again, l.InFlight())
	}
	if h.Done(weir.OK); l.InFlight() != 0 || !l.HasPlace(Request{}) {
		t.Errorf("%d in flight", l.InFlight())
	}
}

// TestQueueAgreesWithFailsafe: with a limit of 1 and a queue of 3, the fifth request is refused.
func TestQueueAgreesWithFailsafe(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, err := New(Options{Algorithm: Knee{Min: 1, Max: 1}, Queue: Queue{Length: 3, Wait: time.Hour}})
		if err != nil {
			t.Fatal(err)
		}
		h, _ := l.TryEnter()
		for i := range 3 {
			go func() {
				if h, err := l.Enter(t.Context()); err == nil {
					h.Done(weir.OK)
				}
			}()
			synctest.Wait()
			if l.Stats().Waiting != i+1 {
				t.Fatalf("%d wait, want %d", l.Stats().Waiting, i+1)
			}
		}
		if _, err := l.Enter(t.Context()); !errors.Is(err, weir.ErrLimited) {
			t.Errorf("beyond the queue: %v", err)
		}
		h.Done(weir.OK)
		synctest.Wait()
		if l.Stats().Waiting != 0 || l.InFlight() != 0 {
			t.Errorf("%d wait, %d in flight", l.Stats().Waiting, l.InFlight())
		}
	})
}
