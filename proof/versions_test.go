package proof

import (
	"flag"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/weirflow/weir"
	"github.com/weirflow/weir/internal/raced"
	"github.com/weirflow/weir/internal/seeds"
	"github.com/weirflow/weir/weirtest"
)

var fleets = flag.Int("fleets", 1, "how many random fleets of each pair of algorithms")

// A fleet is callers of one key that have different versions of its limit, and their requests.
type fleet struct {
	versions []weir.Limit
	requests []fleetRequest
}

type fleetRequest struct {
	at      int64 // milliseconds
	version int
	cost    int64
}

func (f fleet) String() string {
	var b strings.Builder
	for i, l := range f.versions {
		fmt.Fprintf(&b, "%c = %s%+v\n", 'A'+i, weir.Algorithm(l), l)
	}
	fmt.Fprintf(&b, "%d requests in %v", len(f.requests), time.Duration(f.requests[len(f.requests)-1].at-f.requests[0].at)*time.Millisecond)
	return b.String()
}

// versionKinds draw limits with a period of about the given number of milliseconds.
var versionKinds = []struct {
	name string
	draw func(r *rand.Rand, span, size int64) weir.Limit
}{
	{"TokenBucket", func(r *rand.Rand, span, size int64) weir.Limit {
		return weir.TokenBucket{Rate: weir.Rate{N: size, Per: ms(span)}, Burst: 1 + r.Int64N(2*size)}
	}},
	{"LeakyBucket", func(r *rand.Rand, span, size int64) weir.Limit {
		queue := r.Int64N(size)
		return weir.LeakyBucket{Rate: weir.Rate{N: size, Per: ms(span)}, Queue: queue, DelayAfter: r.Int64N(queue + 1)}
	}},
	{"IntervalBucket", func(r *rand.Rand, span, size int64) weir.Limit {
		return weir.IntervalBucket{Burst: size, Refill: 1 + r.Int64N(size), Every: ms(1 + span/(1+r.Int64N(4)))}
	}},
	{"FixedWindow", func(r *rand.Rand, span, size int64) weir.Limit {
		return weir.FixedWindow{Limit: size, Window: ms(span), Align: []weir.Align{weir.AlignEpoch, weir.AlignFirst}[r.IntN(2)]}
	}},
	{"SlidingWindow", func(r *rand.Rand, span, size int64) weir.Limit {
		slots := 2 + r.Int64N(9)
		return weir.SlidingWindow{Limit: size, Window: ms((span + slots) / slots * slots), Slots: int(slots)}
	}},
	{"SlidingCounter", func(_ *rand.Rand, span, size int64) weir.Limit {
		return weir.SlidingCounter{Limit: size, Window: ms(span)}
	}},
	{"SlidingLog", func(_ *rand.Rand, span, size int64) weir.Limit {
		return weir.SlidingLog{Limit: size, Window: ms(span)}
	}},
	{"SmoothBursty", func(_ *rand.Rand, span, size int64) weir.Limit {
		return weir.SmoothBursty{Rate: weir.Rate{N: size, Per: ms(span)}, MaxBurst: ms(span)}
	}},
	{"WarmUp", func(_ *rand.Rand, span, size int64) weir.Limit {
		return weir.WarmUp{Rate: weir.Rate{N: size, Per: ms(span)}, Period: ms(span)}
	}},
	{"All", func(r *rand.Rand, span, size int64) weir.Limit {
		return weir.All(
			weir.TokenBucket{Rate: weir.Rate{N: size, Per: ms(span)}, Burst: 1 + r.Int64N(size)},
			weir.FixedWindow{Limit: 3 * size, Window: ms(4 * span)},
		)
	}},
}

func ms(n int64) time.Duration { return time.Duration(n) * time.Millisecond }

// drawFleet draws versions of some algorithms, the version of each caller over time, and a load.
func drawFleet(r *rand.Rand, saturated bool, kinds ...int) fleet {
	var f fleet
	span := []int64{200, 1000, 10_000, 60_000}[r.IntN(4)]
	for _, k := range kinds {
		s := span
		if r.IntN(2) == 0 {
			s = max(span*(1+r.Int64N(60))/(1+r.Int64N(8)), 50)
		}
		size := 2 + r.Int64N(60)
		if r.IntN(3) == 0 {
			size = 1 + size*s/span
		}
		f.versions = append(f.versions, versionKinds[k].draw(r, s, size))
	}
	n := 1000 + r.IntN(500)
	gap := float64(span) / float64(1+r.IntN(100))
	if saturated {
		fastest := 0.0
		for _, l := range f.versions {
			fastest = max(fastest, paceOf(l))
		}
		gap = 1 / fastest / (1.5 + 4*r.Float64())
	}
	who := drawShares(r, len(kinds), n)
	now := float64(1_000_000_000 + r.IntN(100_000))
	for i := range n {
		switch r.IntN(12) {
		case 0, 1, 2, 4, 5:
		case 3:
			now += r.ExpFloat64() * gap * 8
		default:
			now += r.ExpFloat64() * gap
		}
		cost := int64(1)
		f.requests = append(f.requests, fleetRequest{int64(now), who(i), cost})
	}
	return f
}

// drawShares draws how versions are spread over callers as time goes by.
func drawShares(r *rand.Rand, versions, n int) func(i int) int {
	weights := func() []float64 {
		w := make([]float64, versions)
		for i := range w {
			w[i] = r.Float64()
			if r.IntN(3) == 0 {
				w[i] = 0
			}
		}
		w[r.IntN(versions)] += 0.01
		return w
	}
	pick := func(w []float64) int {
		sum := 0.0
		for _, v := range w {
			sum += v
		}
		x := r.Float64() * sum
		for i, v := range w {
			if x -= v; x < 0 {
				return i
			}
		}
		return slices.Index(w, slices.Max(w))
	}
	switch r.IntN(4) {
	case 0: // one deploy after another, and a rollback
		return func(i int) int {
			at := float64(i) / float64(n) * float64(2*versions-1)
			step, part := int(at), at-math.Floor(at)
			from, to := step, step+1
			if step >= versions-1 {
				from, to = max(0, 2*(versions-1)-step), max(0, 2*(versions-1)-step-1)
			}
			if r.Float64() < part {
				return to
			}
			return from
		}
	case 1: // flapping
		return func(int) int { return r.IntN(versions) }
	case 2: // taking turns
		return func(i int) int { return i % versions }
	}
	length := 1 + r.IntN(n/4)
	var w []float64
	return func(i int) int {
		if i%length == 0 {
			w = weights()
		}
		return pick(w)
	}
}

// An admission is an admitted cost, with its time and version.
type admission struct {
	at      int64
	version int
	cost    int64
}

// play sends the requests. alone sends all of them under one version.
func (f fleet) play(alone int) (admitted []admission, sum int64) {
	v := weirtest.NewVersions(time.Millisecond)
	for _, q := range f.requests {
		who := q.version
		if alone >= 0 {
			who = alone
		}
		if v.Take(f.versions[who], q.at, q.cost).Allowed {
			admitted, sum = append(admitted, admission{q.at, who, q.cost}), sum+q.cost
		}
	}
	return admitted, sum
}

// paceOf returns how many per millisecond a limit admits in the long run.
func paceOf(l weir.Limit) float64 {
	if parts := weir.Parts(l); len(parts) > 1 {
		return min(paceOf(parts[0]), paceOf(parts[1]))
	}
	per := func(n int64, d time.Duration) float64 { return float64(n) * float64(time.Millisecond) / float64(d) }
	if r, ok := rateOf(l); ok {
		return per(r.N, r.Per)
	}
	switch l := l.(type) {
	case weir.IntervalBucket:
		return per(l.Refill, l.Every)
	case weir.FixedWindow:
		return per(l.Limit, l.Window)
	case weir.SlidingWindow:
		return per(l.Limit, l.Window)
	case weir.SlidingCounter:
		return per(l.Limit, l.Window)
	}
	return per(l.(weir.SlidingLog).Limit, l.(weir.SlidingLog).Window)
}

// mostIn returns the most that a limit alone admits in a closed interval.
func mostIn(l weir.Limit) func(from, to int64) int64 {
	if parts := weir.Parts(l); len(parts) > 1 {
		first, second := mostIn(parts[0]), mostIn(parts[1])
		return func(from, to int64) int64 { return min(first(from, to), second(from, to)) }
	}
	units := func(d time.Duration) int64 { return d.Milliseconds() }
	up := func(a, b int64) int64 { return (a + b - 1) / b }
	if r, ok := rateOf(l); ok {
		extra := sizeOf(l)
		switch l.(type) {
		case weir.SmoothBursty:
			extra++
		case weir.WarmUp:
			extra = 1
		}
		return func(from, to int64) int64 { return (to-from)*r.N/units(r.Per) + extra }
	}
	switch l := l.(type) {
	case weir.IntervalBucket:
		return func(from, to int64) int64 { return l.Burst + l.Refill*up(to-from, units(l.Every)) }
	case weir.FixedWindow:
		w := units(l.Window)
		if l.Align == weir.AlignFirst {
			return func(from, to int64) int64 { return l.Limit * (1 + up(to-from, w)) }
		}
		return func(from, to int64) int64 { return l.Limit * (1 + to/w - from/w) }
	case weir.SlidingWindow:
		w, slot := units(l.Window), units(l.Window)/int64(l.Slots)
		return func(from, to int64) int64 {
			if d := to - from; d > w-slot && d <= w {
				return 2 * l.Limit
			}
			return l.Limit * up(to-from+1, w-slot+1)
		}
	case weir.SlidingCounter:
		return func(from, to int64) int64 { return l.Limit + l.Limit*(to-from)/units(l.Window) }
	}
	log := l.(weir.SlidingLog)
	return func(from, to int64) int64 { return log.Limit * (1 + (to-from)/units(log.Window)) }
}

// over looks at every interval. It returns one that has more than the bounds of all versions
// together, one in which a version's callers have more than its own bound, and the worst ratio to
// the largest of the bounds.
func over(f fleet, admitted []admission) (together, apart string, worst float64) {
	bounds, sums := make([]func(from, to int64) int64, len(f.versions)), make([]int64, len(f.versions))
	for v, l := range f.versions {
		bounds[v] = mostIn(l)
	}
	for i, first := range admitted {
		clear(sums)
		sum := int64(0)
		for j := i; j < len(admitted); j++ {
			last := admitted[j]
			sums[last.version] += last.cost
			sum += last.cost
			if j+1 < len(admitted) && admitted[j+1].at == last.at {
				continue
			}
			all, largest := int64(0), int64(0)
			for v, most := range bounds {
				n := most(first.at, last.at)
				all, largest = all+n, max(largest, n)
				if sums[v] > n {
					apart = fmt.Sprintf("version %c: %d admitted from %d to %d ms, where at most %d may be", 'A'+v, sums[v], first.at, last.at, n)
				}
			}
			worst = max(worst, float64(sum)/float64(largest))
			if sum > all {
				together = fmt.Sprintf("%d admitted from %d to %d ms, where at most %d may be", sum, first.at, last.at, all)
			}
		}
	}
	return together, apart, worst
}

// found is the worst that a search of fleets saw.
type found struct {
	most      float64 // admitted, relative to the largest bound
	saturated float64 // admitted, relative to the smallest version alone, while callers always wait
	any       float64 // the same for any load
}

// check plays a fleet. If no two versions share a state, each stays within its own bound.
func (f fleet) check(t *testing.T, saturated, apart bool, seen *found) {
	t.Helper()
	admitted, sum := f.play(-1)
	together, alone, ratio := over(f, admitted)
	if together != "" {
		t.Errorf("%v\n%s", f, together)
	}
	if apart && alone != "" {
		t.Errorf("%v\n%s", f, alone)
	}
	smallest, capacity := int64(math.MaxInt64), int64(0)
	for v, l := range f.versions {
		_, alone := f.play(v)
		smallest, capacity = min(smallest, alone), max(capacity, sizeOf(l))
	}
	share := float64(sum+capacity) / float64(smallest)
	seen.most, seen.any = max(seen.most, ratio), min(seen.any, share)
	if saturated {
		seen.saturated = min(seen.saturated, share)
	}
	if least := map[bool]float64{true: 0.95, false: 0.75}[saturated]; share < least {
		t.Errorf("%v\n%d admitted, and the smaller version alone admits %d", f, sum, smallest)
	}
}

// TestFleets searches fleets with two versions of a limit, of all pairs of algorithms. All their
// admissions stay within the bounds of both versions together, and those of one version's callers
// within its own. While callers always wait, at least 95 % of what the smaller version admits alone
// is admitted, less one capacity.
func TestFleets(t *testing.T) {
	raced.Skip(t)
	r := seeds.Of(t.Name())
	seen := found{any: math.Inf(1), saturated: math.Inf(1)}
	for a := range versionKinds {
		for b := range a + 1 {
			for i := range *fleets {
				saturated := (a+b+i)%2 == 0
				drawFleet(r, saturated, a, b).check(t, saturated, a != b && !(a < 2 && b < 2), &seen)
			}
		}
	}
	t.Logf("%+v", seen)
}

// TestFleetsOfThree is the same with three versions at once.
func TestFleetsOfThree(t *testing.T) {
	raced.Skip(t)
	r := seeds.Of(t.Name())
	seen := found{any: math.Inf(1), saturated: math.Inf(1)}
	for i := range 12 * *fleets {
		saturated := i%2 == 0
		n := len(versionKinds)
		drawFleet(r, saturated, r.IntN(n), r.IntN(n), r.IntN(n)).check(t, saturated, false, &seen)
	}
	t.Logf("%+v", seen)
}
