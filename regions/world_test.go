package regions

import (
	"cmp"
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/weirflow/weir"
	"github.com/weirflow/weir/weirtest"
)

const (
	ms  = time.Millisecond
	sec = time.Second
)

var errCut = errors.New("the home cannot be reached")

// A world is the nodes of some regions, in virtual time and in one goroutine, so that all events
// depend on the seed alone. Each region has a store; the home is that of the first one, or a store of
// its own kind with the clock of the first one.
type world struct {
	t       *testing.T
	random  *rand.Rand
	clock   weirtest.Clock
	limit   weir.Limit
	options Options
	home    *place
	regions []*region
	delay   [][]time.Duration // between two regions, in one direction
	cut     [][]bool          // two regions do not reach each other
	took    []admission
	called  func(cost int64) // is told of each call
	exact   bool             // the stores are weirtest.Stores
	extra   float64          // what the bound has in addition, for what was lost and for clocks that stepped
}

// A place is a store with a clock that may step.
type place struct {
	store weir.Store
	step  int64 // how far its clock is ahead
	down  bool
}

func (w *world) newPlace() *place {
	p := new(place)
	p.lose(w)
	return p
}

// lose replaces the store by an empty one.
func (p *place) lose(w *world) {
	now := func() int64 { return w.clock.Now() + p.step }
	if p.store = weir.Store(&quick{now, map[string]*weir.Limiter{}}); w.exact {
		p.store = weirtest.NewStore(now)
	}
}

// A region is its nodes, and the store that they share.
type region struct {
	w     *world
	index int
	name  string
	place *place
	nodes []*node
	rate  float64 // calls in a second, of all nodes
	calls int64
	got   int64
}

// An admission is an admitted cost, its key and its time.
type admission struct {
	at, cost int64
	key      string
}

// A node is one process.
type node struct {
	r    *region
	s    *Store
	dead bool
}

func newWorld(t *testing.T, seed uint64, l weir.Limit, guaranteed []int, nodes []int, o Options) *world {
	t.Helper()
	w := &world{t: t, limit: l, random: rand.New(rand.NewPCG(seed, 9)), options: o}
	w.clock.Set(int64(1000*time.Hour) + w.random.Int64N(int64(time.Hour)))
	names := []string{"eu", "us", "ap", "sa"}
	for i, g := range guaranteed {
		w.options.Regions = append(w.options.Regions, Region{names[i], g})
		w.regions = append(w.regions, &region{w: w, index: i, name: names[i], place: w.newPlace()})
		w.delay, w.cut = append(w.delay, make([]time.Duration, len(guaranteed))), append(w.cut, make([]bool, len(guaranteed)))
	}
	w.home = w.regions[0].place
	for i, r := range w.regions {
		for j := range i {
			d := 25*ms + time.Duration(w.random.Int64N(int64(125*ms))) // a round trip takes 50 to 300 ms
			w.delay[i][j], w.delay[j][i] = d, d
		}
		for range nodes[i] {
			r.start()
		}
	}
	return w
}

// lose makes the region's store empty, as after a failover to a server without its data.
func (r *region) lose() { r.place.lose(r.w) }

// start starts a node.
func (r *region) start() {
	w, n := r.w, &node{r: r}
	o := w.options
	o.Here = r.name
	ahead := w.random.Int64N(int64(time.Hour))
	o.Clock = func() int64 { return w.clock.Now() + ahead } // the nodes' clocks differ
	o.Timers = func(d time.Duration, f func()) weir.Timer {
		return w.clock.AfterFunc(d, func() {
			if !n.dead {
				f()
			}
		})
	}
	var err error
	if n.s, err = New(r.place.store, w.home.store, o); err != nil {
		w.t.Fatal(err)
	}
	term := int64(n.s.opts.Term)
	n.s.reportAt, n.s.claimAt = term*3/16+w.random.Int64N(term*3/16), term/2+w.random.Int64N(term/16)
	n.s.run = n.exchange
	r.nodes = append(r.nodes, n)
}

// exchange carries out a call of the home, which is delayed in both directions, or lost.
func (n *node) exchange(x *exchange) {
	w, at := n.r.w, n.r.index
	way := func() time.Duration {
		d := w.delay[at][0]
		return d + ms/2 + time.Duration(w.random.Int64N(int64(d/8+ms)))
	}
	lost := func(after time.Duration) {
		w.clock.AfterFunc(after, func() {
			if !n.dead {
				x.err = errCut
				n.s.receive(x)
			}
		})
	}
	there, back := way(), way()
	if w.cut[at][0] || w.home.down {
		lost(n.s.opts.Timeout)
		return
	}
	w.clock.AfterFunc(there, func() {
		if !w.home.down && there < n.s.opts.Timeout {
			x.err = w.home.store.Do(context.Background(), x.batch, x.out)
		}
		if w.cut[at][0] || w.home.down || there+back >= n.s.opts.Timeout {
			lost(n.s.opts.Timeout - there)
			return
		}
		w.clock.AfterFunc(back, func() {
			if !n.dead {
				n.s.receive(x)
			}
		})
	})
}

// call is a caller's call: what Do does, with a delay before the region's store carries it out, up to
// nearly the timeout.
func (n *node) call(key string, cost int64) {
	w, r := n.r.w, n.r
	c := weir.Charge{Name: "l", Key: key, Limit: w.limit, Cost: cost}
	part, err := n.s.partOf(&c, n.s.clock())
	if err != nil {
		w.t.Fatal(err)
	}
	c.Limit = part
	if r.calls += cost; w.called != nil {
		w.called(cost)
	}
	late := time.Duration(w.random.Int64N(int64(2 * ms)))
	if w.random.IntN(50) == 0 {
		late = time.Duration(w.random.Int64N(int64(n.s.opts.Timeout)))
	}
	w.clock.AfterFunc(late, func() {
		if r.place.down {
			return
		}
		batch, out := []weir.Charge{c}, make([]weir.Decision, 1)
		if err := r.place.store.Do(context.Background(), batch, out); err != nil {
			w.t.Fatal(err)
		}
		if out[0].Allowed {
			r.got += cost
			w.took = append(w.took, admission{w.clock.Now(), cost, key})
		}
	})
}

// offer makes calls come at random, at the region's rate, for some keys with costs up to the given
// one.
func (r *region) offer(keys int, largest int64) {
	w := r.w
	var next func()
	next = func() {
		gap := 20 * ms
		if r.rate > 0 {
			gap = min(time.Duration(w.random.ExpFloat64()/r.rate*float64(sec)), 5*sec)
		}
		calls := r.rate > 0
		w.clock.AfterFunc(gap, func() {
			if calls {
				key := string(rune('a' + w.random.IntN(keys)))
				if n := r.nodes[w.random.IntN(len(r.nodes))]; !n.dead {
					n.call(key, 1+w.random.Int64N(largest))
				}
			}
			next()
		})
	}
	next()
}

// run lets time pass.
func (w *world) run(d time.Duration) {
	for end := w.clock.Now() + int64(d); w.clock.Now() < end; {
		w.clock.Set(min(w.clock.Now()+int64(50*ms), end))
	}
}

// sort puts the admissions in the order of their times.
func (w *world) sort() {
	slices.SortStableFunc(w.took, func(a, b admission) int { return cmp.Compare(a.at, b.at) })
}

// excess returns the most by which the admissions of a key in any interval exceed what the rate
// brings in it.
func (w *world) excess(perNano float64) (worst float64) {
	w.sort()
	least, sum := map[string]float64{}, map[string]float64{}
	for _, a := range w.took {
		drift := sum[a.key] - perNano*float64(a.at)
		if l, ok := least[a.key]; !ok || drift < l {
			least[a.key] = drift
		}
		sum[a.key] += float64(a.cost)
		worst = max(worst, sum[a.key]-perNano*float64(a.at)-least[a.key])
	}
	return worst
}

// checkBucket compares all admissions with Burst + rate*D, and returns the part of the bound that they
// came to.
func (w *world) checkBucket() (part float64) {
	w.t.Helper()
	l := w.limit.(weir.TokenBucket)
	worst, bound := w.excess(float64(l.Rate.N)/float64(l.Rate.Per)), float64(l.Burst)+w.extra
	if worst > bound+1e-2 {
		w.t.Errorf("%.2f above the rate, and the bound is %d and %.2f", worst, l.Burst, w.extra)
	}
	return worst / bound
}
