package lease

import (
	"cmp"
	"context"
	"errors"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/weirflow/weir"
	"github.com/weirflow/weir/keyed"
	"github.com/weirflow/weir/weirtest"
)

const (
	ms  = time.Millisecond
	sec = time.Second
)

// A world is some nodes that lease from one store, in virtual time and in one goroutine, so that
// all events depend on the seed alone.
type world struct {
	t          *testing.T
	clock      weirtest.Clock
	random     *rand.Rand
	store      *weirtest.Store
	exact      *keyed.Limiter[string] // the same calls without leases
	limit      weir.Limit
	nodes      []*node
	took       []admission
	latest     time.Duration // the longest latency in one direction
	lossy      int           // one of this many replies is lost; 0: none
	roundTrips int
	most       int64 // the most tokens that all nodes were seen to hold at once
}

// An admission is an admitted cost and its time.
type admission struct{ at, cost int64 }

// A node is one of the nodes.
type node struct {
	w       *world
	s       *Store
	limit   weir.Limit // the node's version of it
	dead    bool
	stalled bool     // its process was stopped
	stuck   []func() // its events, delayed until it goes on
	waiting []attempt

	offered, admitted, exactly int64
}

// An attempt is a call that waits.
type attempt struct {
	turn
	tries int
}

func newWorld(t *testing.T, seed uint64, l weir.Limit, nodes int, o Options) *world {
	t.Helper()
	w := &world{t: t, limit: l, random: rand.New(rand.NewPCG(seed, 5)), latest: ms}
	w.clock.Set(int64(1000 * time.Hour))
	w.store = weirtest.NewStore(w.clock.Now)
	var err error
	if w.exact, err = keyed.New[string](l, keyed.Options{Clock: w.clock.Now}); err != nil {
		t.Fatal(err)
	}
	for range nodes {
		n := &node{w: w, limit: l}
		ahead := w.random.Int64N(int64(time.Hour))
		o.Clock = func() int64 { return w.clock.Now() + ahead } // the nodes' clocks differ
		o.Timers = func(d time.Duration, f func()) weir.Timer { return w.clock.AfterFunc(d, func() { n.alive(f) }) }
		s, err := New(w.store, o)
		if err != nil {
			t.Fatal(err)
		}
		n.s = s
		s.run = n.run
		w.nodes = append(w.nodes, n)
	}
	return w
}

// alive calls a function, unless the node has crashed; if the node is stalled, it does so later.
func (n *node) alive(f func()) {
	switch {
	case n.stalled:
		n.stuck = append(n.stuck, f)
	case !n.dead:
		f()
	}
}

// resume lets a stalled node go on. Its callers run before its delayed events.
func (n *node) resume() {
	n.stalled = false
	for range 200 {
		n.call(1)
	}
	stuck := n.stuck
	n.stuck = nil
	for _, f := range stuck {
		n.alive(f)
	}
}

var errLost = errors.New("the answer was lost")

// run makes a round trip with a latency in each direction.
func (n *node) run(t *roundTrip) {
	n.over(func() {
		sent := t.sent
		if err := n.s.transmit(context.Background(), t); err != nil {
			n.w.t.Fatal(err)
		}
		t.sent = sent
	}, func(lost bool) {
		if lost {
			t.err = errLost
		}
		n.s.receive(t)
		n.retry()
	})
	t.sent = n.s.now()
}

// over runs one function at the store, and then one at the node.
func (n *node) over(there func(), here func(lost bool)) {
	w := n.w
	w.roundTrips++
	way := func() time.Duration { return time.Duration(w.random.Int64N(int64(w.latest))) }
	w.clock.AfterFunc(way(), func() {
		there()
		back, lost := way(), w.lossy > 0 && w.random.IntN(w.lossy) == 0
		if lost {
			back = n.s.opts.Timeout
		}
		w.clock.AfterFunc(back, func() { n.alive(func() { here(lost) }) })
	})
}

// call is a caller's call in steps, because nothing can block in this simulation.
func (n *node) call(cost int64) {
	c := &weir.Charge{Name: "l", Key: "k", Limit: n.limit, Cost: cost}
	n.offered += cost
	n.exactly += n.w.exactly(*c)
	d := new(weir.Decision)
	if n.s.TryNow(c, d) {
		n.decided(d, cost)
		return
	}
	n.try(attempt{turn: turn{c: c, d: d}})
}

func (n *node) try(a attempt) {
	switch n.s.begin(&a.turn, a.tries) {
	case decided:
		if a.c.Err == nil {
			n.decided(a.d, a.c.Cost)
		}
	case waits:
		a.tries++
		n.waiting = append(n.waiting, a)
	case direct:
		t := n.s.own([]turn{a.turn})
		n.over(func() {
			if err := n.s.transmit(context.Background(), t); err != nil {
				n.w.t.Fatal(err)
			}
			if t.out[len(t.out)-1].Allowed {
				n.w.admit(a.c.Cost) // at the time of the store
			}
		}, func(lost bool) {
			if lost {
				t.err = errLost
			}
			n.s.receive(t)
			if a.c.Err == nil && a.d.Allowed {
				n.admitted += a.c.Cost
			}
		})
	}
}

// retry continues the calls whose round trip has ended.
func (n *node) retry() {
	waiting := n.waiting
	n.waiting = nil
	for _, a := range waiting {
		select {
		case <-a.request.done:
			a.e.need -= a.c.Cost
			n.try(a)
		default:
			n.waiting = append(n.waiting, a)
		}
	}
}

func (n *node) decided(d *weir.Decision, cost int64) {
	if d.Source != weir.SourceLease {
		n.w.t.Errorf("%+v", d)
	}
	if d.Allowed != (d.RetryAfter == 0) || d.Remaining < 0 || d.Limit <= 0 {
		n.w.t.Errorf("%+v", d)
	}
	if d.Allowed {
		n.admitted += cost
		n.w.admit(cost)
	}
}

func (w *world) admit(cost int64) { w.took = append(w.took, admission{w.clock.Now(), cost}) }

// exactly returns how much of a call is admitted without leases and without latency.
func (w *world) exactly(c weir.Charge) int64 {
	if w.exact.Take(c.Key, c.Cost).Allowed {
		return c.Cost
	}
	return 0
}

// offer makes a node's callers come at random, at a rate per second that changes with time, with
// costs up to the given one.
func (n *node) offer(rate func(at time.Duration) float64, largest int64) {
	w, start := n.w, n.w.clock.Now()
	var next func()
	next = func() {
		r := rate(time.Duration(w.clock.Now() - start))
		if r <= 0 {
			w.clock.AfterFunc(5*ms, func() { n.alive(next) })
			return
		}
		gap := min(w.random.ExpFloat64()/r*float64(sec), float64(20*ms)+float64(sec)/r*3)
		w.clock.AfterFunc(time.Duration(gap), func() {
			n.alive(func() {
				n.call(1 + w.random.Int64N(largest))
				next()
			})
		})
	}
	next()
}

// steadily is a constant rate.
func steadily(r float64) func(time.Duration) float64 { return func(time.Duration) float64 { return r } }

// onOff is a rate with pauses.
func onOff(r float64, on, off, from time.Duration) func(time.Duration) float64 {
	return func(at time.Duration) float64 {
		if (at+from)%(on+off) < on {
			return r
		}
		return 0
	}
}

// run lets time pass, and records the tokens that the nodes hold.
func (w *world) run(d time.Duration) {
	for end := w.clock.Now() + int64(d); w.clock.Now() < end; {
		w.clock.Set(min(w.clock.Now()+int64(5*ms), end))
		w.most = max(w.most, w.held())
	}
}

// held returns the tokens of all nodes.
func (w *world) held() (held int64) {
	for _, n := range w.nodes {
		for _, e := range n.s.keys.all {
			held += e.left()
		}
	}
	return held
}

// sums adds up the counters of all nodes.
func (w *world) sums() (offered, admitted, exactly int64) {
	for _, n := range w.nodes {
		offered, admitted, exactly = offered+n.offered, admitted+n.admitted, exactly+n.exactly
	}
	return offered, admitted, exactly
}

// excess returns the most by which the admissions in any interval exceed what the rate brings in
// it.
func (w *world) excess(perNano float64) (worst float64) {
	least, sum := math.Inf(1), 0.0
	for _, a := range w.took {
		drift := sum - perNano*float64(a.at)
		least = min(least, drift)
		sum += float64(a.cost)
		worst = max(worst, sum-perNano*float64(a.at)-least)
	}
	return worst
}

// check compares all admissions with the bounds of docs/guarantees.md.
func (w *world) check(name string, o Options) {
	w.t.Helper()
	slices.SortStableFunc(w.took, func(a, b admission) int { return cmp.Compare(a.at, b.at) })
	switch l := w.limit.(type) {
	case weir.TokenBucket:
		perNano := float64(l.Rate.N) / float64(l.Rate.Per)
		q := float64(o.MaxOutstanding) * float64(len(w.nodes))
		late := min(q, perNano*float64(o.Lifetime))
		worst := w.excess(perNano)
		if bound := float64(l.Burst) + late; worst > bound+1e-3 {
			w.t.Errorf("%s: %.2f above the rate, the bound is %d + %.2f", name, worst, l.Burst, late)
		}
		return
	case weir.FixedWindow:
		for k := int64(1); k <= 4; k++ {
			if n := w.within(k * int64(l.Window)); n > l.Limit*(k+1) {
				w.t.Errorf("%s: %d admitted in %d windows", name, n, k)
			}
		}
		if l.Align == weir.AlignFirst {
			return // in the store, windows begin when a lease is charged, and in Step with the first use
		}
	}
	w.replay(name)
}

// within returns the most that was admitted in an interval of a given length.
func (w *world) within(length int64) (most int64) {
	sum, first := int64(0), 0
	for _, a := range w.took {
		for sum += a.cost; a.at-w.took[first].at > length; first++ {
			sum -= w.took[first].cost
		}
		most = max(most, sum)
	}
	return most
}

// replay has the limit itself decide about all admissions, at the times of their use.
func (w *world) replay(name string) {
	w.t.Helper()
	var state []int64
	var d weir.Decision
	for i, a := range w.took {
		if state, d = weir.Step(w.limit, state, a.at, a.cost, 1); !d.Allowed {
			w.t.Errorf("%s: admission %d of %d is one that the limit itself would refuse: %+v", name, i, len(w.took), d)
			return
		}
	}
}
