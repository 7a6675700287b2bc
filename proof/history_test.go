package proof

import (
	"fmt"
	"math/big"
	"slices"
	"time"

	"github.com/weirflow/weir"
)

// A history is the work that went on under a limit, in order, and the versions of the limit.
type history struct {
	tick     time.Duration
	versions []version
	runs     []run
}

// A version is a limit, and the reading from which it was in force.
type version struct {
	since int64
	limit weir.Limit
}

// A run is a piece of work that went on.
type run struct {
	at   int64
	cost int64 // the charge before it went on
	did  int64 // the settled cost, if it is less; 0 for a cancelled charge
	// from and to are the versions of the limit under which it may have gone on: two if a change of
	// the limit admitted it.
	from, to int
}

// over returns an interval between clock readings in which more ran than the bound of docs/guarantees.md, or
// "". Reserved work goes on up to one clock unit after its exact time, and a queue whose turns are
// noticed late makes up for some of the delay: slack is by how many units that may shorten an
// interval.
func (h *history) over(slack int64) string {
	for i := range h.runs {
		lo, hi, sum, largest := h.runs[i].at, h.runs[i].at, new(big.Int), int64(0)
		from, to := h.runs[i].from, h.runs[i].to
		for j := i; j < len(h.runs); j++ {
			r := h.runs[j]
			lo, hi, largest = min(lo, r.at), max(hi, r.at), max(largest, r.cost)
			from, to = min(from, r.from), max(to, r.to)
			sum.Add(sum, big.NewInt(r.did))
			if bound := boundOf(h.versions[0].limit, h.tick, lo, hi); bound != nil {
				if new(big.Rat).SetInt(sum).Cmp(bound) > 0 {
					return fmt.Sprintf("%v ran within [%d, %d], where the bound is %s\n%+v", sum, lo, hi, bound.FloatString(3), h.runs[i:j+1])
				}
				continue
			}
			bound := h.bound(h.versions[from:to+1], lo, hi, largest, slack)
			if bound == nil {
				break
			}
			if new(big.Rat).SetInt(sum).Cmp(bound) > 0 {
				return fmt.Sprintf("%v ran within [%d, %d], where the bound is %s\n%+v", sum, lo, hi, bound.FloatString(3), h.runs[i:j+1])
			}
		}
	}
	return ""
}

// bound returns the most that may run between two readings under some versions of a limit with a
// rate; nil if the rate is Unlimited.
func (h *history) bound(versions []version, lo, hi, largest, slack int64) *big.Rat {
	fastest, burst := new(big.Rat), new(big.Rat)
	for _, e := range versions {
		if r, _ := rateOf(e.limit); r == weir.Unlimited {
			return nil
		}
		if b := burstOf(e.limit, largest); b.Cmp(burst) > 0 {
			burst = b
		}
		if rate := perUnit(e.limit, h.tick); rate.Cmp(fastest) > 0 {
			fastest = rate
		}
	}
	late := new(big.Rat).Mul(fastest, new(big.Rat).SetInt64(slack))
	if len(versions) > 1 && owing(versions[0].limit) {
		return late.Add(late, owingBound(versions, h.tick, fastest, lo, hi, largest))
	}
	return late.Add(late, burst.Add(burst, h.brings(lo, hi)))
}

// burstOf returns what may run at one instant: Burst of a token bucket; DelayAfter and the largest
// cost of a leaky one.
func burstOf(l weir.Limit, largest int64) *big.Rat {
	if owing(l) {
		return owingBurst(l, largest)
	}
	burst := new(big.Rat).SetInt64(largest)
	if l, ok := l.(weir.LeakyBucket); ok {
		return burst.Add(burst, new(big.Rat).SetInt64(l.DelayAfter))
	}
	return burst.SetInt64(sizeOf(l))
}

// brings returns the integral of the rate between two readings.
func (h *history) brings(lo, hi int64) *big.Rat {
	sum := new(big.Rat)
	for i, e := range h.versions {
		from, to := lo, hi
		if i > 0 {
			from = max(from, e.since)
		}
		if i+1 < len(h.versions) {
			to = min(to, h.versions[i+1].since)
		}
		if from < to {
			d := new(big.Int).Sub(big.NewInt(to), big.NewInt(from))
			sum.Add(sum, new(big.Rat).Mul(perUnit(e.limit, h.tick), new(big.Rat).SetInt(d)))
		}
	}
	return sum
}

// A recorder makes calls on a world, and records what ran.
type recorder struct {
	world
	history
	reserved []int // the run of each reservation
	settled  []bool
	places   []int64 // the cost of each place, or -1 after its turn or after the caller left
	kept     []keptRun
}

// A keptRun is the run of a kept place.
type keptRun struct {
	cost    int64
	run     int // -1 until its turn
	settled bool
}

func record(w world, l weir.Limit, tick time.Duration) *recorder {
	r := &recorder{world: w, history: history{tick: tick, versions: []version{{limit: l}}}}
	if w, ok := w.(*live); ok {
		w.watch = func() { r.noteServed(w, 0) }
	}
	return r
}

// ran records a run.
func (r *recorder) ran(at, cost int64) {
	now := len(r.versions) - 1
	r.runs = append(r.runs, run{at: at, cost: cost, did: cost, from: now, to: now})
}

// noteServed records the waiters whose turn has come. before is the number of earlier versions that
// may have admitted them.
func (r *recorder) noteServed(w *live, before int) {
	for i, cost := range r.places {
		if cost < 0 || w.waits(i) {
			continue
		}
		if w.places[i].Err() == nil {
			r.ran(w.clock.Now(), cost)
			r.runs[len(r.runs)-1].from -= before
		}
		r.places[i] = -1
	}
	for i := range r.kept {
		if k := &r.kept[i]; k.run < 0 && !k.settled && !w.kept[i].waits() {
			k.run = len(r.runs)
			r.ran(w.clock.Now(), k.cost)
			r.runs[k.run].from -= before
		}
	}
}

func (r *recorder) do(c call) outcome {
	w, alive := r.world.(*live)
	if alive && c.verb == set {
		// A waiter that is served during this call may be served under either version.
		watch := w.watch
		w.move(c.now)
		w.watch = func() {}
		o := w.do(c)
		r.versions = append(r.versions, version{c.now, c.limit})
		r.noteServed(w, 1)
		w.watch = watch
		return o
	}
	if c.verb == release {
		w.move(c.now)
		c = r.release(c)
	}
	o := r.world.do(c)
	switch {
	case c.verb == keep && o.ok:
		r.kept = append(r.kept, keptRun{cost: c.cost, run: -1})
	case c.verb == set:
		r.versions = append(r.versions, version{c.now, c.limit})
	case c.verb == settle:
		r.settle(c)
	case c.verb == reserve && o.ok:
		r.reserved, r.settled = append(r.reserved, len(r.runs)), append(r.settled, false)
		r.ran(c.now+int64(o.delay/r.tick), c.cost)
	case c.verb == join && o.place:
		r.places = append(r.places, c.cost)
	case (c.verb == take || c.verb == join) && o.d.Allowed:
		r.ran(c.now, c.cost)
	}
	if alive {
		r.noteServed(w, 0)
	}
	return o
}

// release records the actual cost of a kept place. One that still waits is cancelled: what it would
// be charged otherwise is work beyond the bound.
func (r *recorder) release(c call) call {
	k := &r.kept[c.ref]
	if k.run < 0 {
		c.cost = 0
	}
	if c.cost >= 0 && !k.settled {
		if k.settled = true; k.run >= 0 {
			run := &r.runs[k.run]
			run.did = min(run.cost, c.cost)
		}
	}
	return c
}

// settle records the actual cost of a reservation. The bound does not cover the part above the
// estimate.
func (r *recorder) settle(c call) {
	if c.cost < 0 || r.settled[c.ref] {
		return
	}
	r.settled[c.ref] = true
	run := &r.runs[r.reserved[c.ref]]
	run.did = min(run.cost, c.cost)
}

// inOrder is the history of the work by the time at which it ran, for clocks that only go forward: what was reserved may run after
// what came later.
func (r *recorder) inOrder() *history {
	h := r.history
	h.runs = slices.Clone(h.runs)
	slices.SortStableFunc(h.runs, func(a, b run) int {
		switch {
		case a.at < b.at:
			return -1
		case a.at > b.at:
			return 1
		}
		return 0
	})
	return &h
}
