package regions

import (
	"fmt"
	"math"
	"testing"
	"time"

	"github.com/weirflow/weir"
	"github.com/weirflow/weir/internal/raced"
	"github.com/weirflow/weir/internal/rules"
	"github.com/weirflow/weir/internal/seeds"
)

// TestBoundInRandomWorlds: the sum over all regions stays within the limit's own bound, for each key:
// while demand moves, regions are cut off, the home is unavailable, nodes crash and start, calls are
// carried out late. A store that loses its data, or whose clock steps, adds what docs/regions.md says.
func TestBoundInRandomWorlds(t *testing.T) {
	raced.Skip(t)
	random := seeds.Of(t.Name())
	worlds := 1000
	if testing.Short() {
		worlds = 100
	}
	var nodes, admitted, faults int
	tightest := 0.0
	for range worlds {
		seed := random.Uint64()
		w := randomWorld(t, seed)
		for _, r := range w.regions {
			nodes += len(r.nodes)
		}
		faults += w.disturb()
		w.run(time.Duration(3+w.random.IntN(4)) * w.options.Term)
		admitted += len(w.took)
		tightest = max(tightest, w.check())
		if t.Failed() {
			t.Fatalf("the world of seed %d: %+v, %+v", seed, w.limit, w.options)
		}
	}
	t.Logf("%d worlds, %d nodes, %d admitted, %d faults; the most admitted was %.3f of the bound", worlds, nodes, admitted, faults, tightest)
}

// randomWorld returns three regions with 2 to 200 nodes each.
func randomWorld(t *testing.T, seed uint64) *world {
	random := seeds.Of(fmt.Sprint(seed))
	term := time.Duration(8+random.IntN(25)) * sec
	var l weir.Limit
	switch rate, span := 2+random.Int64N(8), term/time.Duration(4+random.IntN(20)); random.IntN(4) {
	case 0:
		window := (span / 2).Truncate(8 * ms)
		l = weir.FixedWindow{Limit: max(25, int64(float64(rate)*window.Seconds())), Window: window}
	case 1:
		window := (span / 2).Truncate(8 * ms)
		l = weir.SlidingWindow{Limit: max(25, int64(float64(rate)*window.Seconds())), Window: window, Slots: 8}
	default:
		l = weir.TokenBucket{Rate: weir.PerSecond(rate), Burst: max(3, int64(float64(rate)*span.Seconds()))}
	}
	var guaranteed, nodes []int
	for range 3 {
		guaranteed = append(guaranteed, 4+random.IntN(29))
		nodes = append(nodes, int(2*math.Pow(100, math.Pow(random.Float64(), 3))))
	}
	w := newWorld(t, seed, l, guaranteed, nodes, Options{Term: term})
	for _, r := range w.regions {
		r.place.step = w.random.Int64N(int64(time.Minute))
		r.offer(1+w.random.IntN(3), 1+w.random.Int64N(3))
	}
	return w
}

// perSecond is about what the limit brings in a second.
func (w *world) perSecond() float64 {
	switch l := w.limit.(type) {
	case weir.TokenBucket:
		return float64(l.Rate.N)
	case weir.FixedWindow:
		return float64(l.Limit) / l.Window.Seconds()
	case weir.SlidingWindow:
		return float64(l.Limit) / l.Window.Seconds()
	}
	return 0
}

// capacity is that of the limit.
func (w *world) capacity() float64 {
	most, _ := rules.ParamsOf(w.limit).MostPerRequest()
	return float64(most)
}

// disturb sets the demand, and lets it move and things fail from time to time. It returns how many
// kinds of faults the world has.
func (w *world) disturb() (faults int) {
	n := len(w.regions)
	faulty := w.random.IntN(4) > 0
	var next func()
	next = func() {
		r := w.regions[w.random.IntN(n)]
		some := time.Duration(w.random.Int64N(int64(2 * w.options.Term)))
		kind := w.random.IntN(4)
		if faulty && w.random.IntN(2) == 0 {
			kind = 4 + w.random.IntN(6)
		}
		switch kind {
		default: // demand moves
			r.rate = w.perSecond() * []float64{0, 0.02, 0.3, 1, 2, 3}[w.random.IntN(6)]
		case 4: // two regions do not reach each other
			o := w.regions[w.random.IntN(n)]
			w.cut[r.index][o.index], w.cut[o.index][r.index] = true, true
			w.clock.AfterFunc(some, func() { w.cut[r.index][o.index], w.cut[o.index][r.index] = false, false })
		case 5: // a store is unavailable
			r.place.down = true
			w.clock.AfterFunc(some/2, func() { r.place.down = false })
		case 6: // a store fails over to one without its data
			if w.random.IntN(3) > 0 {
				break
			}
			r.lose()
			w.extra += w.capacity()
			if r.index == 0 {
				w.extra += w.perSecond() * w.options.Term.Seconds() // and with the home's counts
			}
		case 7: // a clock steps
			if w.random.IntN(3) > 0 {
				break
			}
			r.place.step += w.random.Int64N(int64(w.options.Term)) - int64(w.options.Term)/2
			w.extra += w.capacity()
			if r.index == 0 {
				w.extra += w.perSecond() * w.options.Term.Seconds()
			}
		case 8: // a node crashes
			if len(r.nodes) > 1 {
				r.nodes[0].dead = true
				r.nodes = r.nodes[1:]
			}
		case 9:
			r.start()
		}
		faults += kind / 4
		w.clock.AfterFunc(time.Duration(w.random.Int64N(int64(w.options.Term/2))), next)
	}
	for _, r := range w.regions {
		r.rate = w.perSecond() * w.random.Float64() * 2
	}
	next()
	return faults
}

// check compares the admissions with the bound of the limit, and returns the highest part of it that
// they came to.
func (w *world) check() (part float64) {
	w.t.Helper()
	switch l := w.limit.(type) {
	case weir.TokenBucket:
		return w.checkBucket()
	case weir.FixedWindow:
		for k := int64(1); k <= 4; k++ {
			part = max(part, w.atMost(k*int64(l.Window), float64(l.Limit*(k+1))))
		}
	case weir.SlidingWindow:
		slot := int64(l.Window) / int64(l.Slots)
		part = max(w.atMost(int64(l.Window)-slot, float64(l.Limit)), w.atMost(int64(l.Window), float64(2*l.Limit)))
	}
	return part
}

// atMost checks what was admitted of a key in any interval of a length.
func (w *world) atMost(length int64, bound float64) (part float64) {
	w.t.Helper()
	w.sort()
	byKey := map[string][]admission{}
	for _, a := range w.took {
		byKey[a.key] = append(byKey[a.key], a)
	}
	for _, took := range byKey {
		sum, first := int64(0), 0
		for _, a := range took {
			for sum += a.cost; a.at-took[first].at > length; first++ {
				sum -= took[first].cost
			}
			part = max(part, float64(sum)/(bound+w.extra))
		}
	}
	if part > 1 {
		w.t.Errorf("in %v, %.3f of the bound of %.0f and %.0f was admitted", time.Duration(length), part, bound, w.extra)
	}
	return part
}
