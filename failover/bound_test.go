package failover

import (
	"cmp"
	"context"
	"flag"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/weirflow/weir"
	"github.com/weirflow/weir/internal/seeds"
)

var schedules = flag.Int("failover.schedules", 3, "how many schedules for each kind of limit TestBoundOfShares draws")

// bound returns the most that a limit admits in an interval of length D, ends included, as in
// docs/guarantees.md.
func bound(l weir.Limit, d time.Duration) int64 {
	windows := func(w time.Duration) int64 { return int64((d+w-1)/w) + 1 }
	switch l := l.(type) {
	case weir.TokenBucket:
		return l.Burst + int64(d)*l.Rate.N/int64(l.Rate.Per)
	case weir.LeakyBucket: // the bound of Take
		return l.DelayAfter + 1 + int64(d)*l.Rate.N/int64(l.Rate.Per)
	case weir.IntervalBucket:
		return l.Burst + l.Refill*(windows(l.Every)-1)
	case weir.FixedWindow:
		if d == 0 {
			return l.Limit
		}
		return l.Limit * windows(l.Window)
	case weir.SlidingCounter:
		return l.Limit + int64(d)*l.Limit/int64(l.Window)
	case weir.SlidingLog:
		return l.Limit * (int64(d/l.Window) + 1)
	case weir.SlidingWindow: // D up to Window - slot at a time
		return l.Limit * (int64(d/(l.Window-l.Window/time.Duration(l.Slots))) + 1)
	}
	panic(fmt.Sprintf("%T", l))
}

// An admission is an admitted cost, with its time and the Source of its decision.
type admission struct {
	at   time.Duration
	cost int64
	node int
	from weir.Source
}

// TestBoundOfShares: several nodes use one limit in one store. Each is cut off at random, in each
// way, and comes back. What is admitted to a key in any interval is within the bound of
// docs/guarantees.md, and what one node's share admits is within the share's bound.
func TestBoundOfShares(t *testing.T) {
	kinds := []weir.Limit{
		weir.TokenBucket{Rate: weir.PerSecond(20), Burst: 10},
		weir.TokenBucket{Rate: weir.Rate{N: 7, Per: 3 * time.Second}, Burst: 3},
		weir.LeakyBucket{Rate: weir.PerSecond(10), Queue: 7, DelayAfter: 7},
		weir.IntervalBucket{Burst: 12, Refill: 5, Every: 700 * time.Millisecond},
		weir.FixedWindow{Limit: 12, Window: 2 * time.Second},
		weir.FixedWindow{Limit: 12, Window: 2 * time.Second, Align: weir.AlignFirst},
		weir.SlidingWindow{Limit: 12, Window: 2 * time.Second, Slots: 4},
		weir.SlidingCounter{Limit: 12, Window: 2 * time.Second},
		weir.SlidingLog{Limit: 12, Window: 2 * time.Second},
	}
	for kind, l := range kinds {
		for i := range *schedules {
			seed := seeds.Seed() + uint64(i)
			full := i%3 == 2
			bubble(t, func(t *testing.T) {
				run := schedule{limit: l, random: rand.New(rand.NewPCG(seed, uint64(kind))), full: full}
				run.run(t)
				if wrong := run.check(); wrong != "" {
					t.Errorf("%T%+v: %s\nschedule %d", l, l, wrong, i)
				}
			})
		}
	}
}

// A schedule is one run.
type schedule struct {
	limit  weir.Limit
	random *rand.Rand
	full   bool // shares start full
	nodes  int
	began  time.Time

	mu       sync.Mutex
	admitted []admission
	outages  [][]time.Duration // when the outages of each node began
}

// heard records which Source decided a node's call. A share decides only in an outage.
func (s *schedule) heard(f *Store, node int, by weir.Source) {
	if by != weir.SourceShare {
		return
	}
	o := f.shards.whole.outage.Load()
	if o == nil {
		panic("a share decided without an outage")
	}
	began := f.base.Add(time.Duration(o.began.mono)).Sub(s.began)
	s.mu.Lock()
	defer s.mu.Unlock()
	if all := s.outages[node]; len(all) == 0 || all[len(all)-1] != began {
		s.outages[node] = append(all, began)
	}
}

// cut is the store as one node reaches it.
type cut struct {
	*fake // the store that is shared
	mu    sync.Mutex
	act   func(context.Context) error
}

func (c *cut) Do(ctx context.Context, batch []weir.Charge, out []weir.Decision) error {
	c.mu.Lock()
	act := c.act
	c.mu.Unlock()
	if act != nil {
		if err := act(ctx); err != nil {
			return err
		}
	}
	return c.fake.Do(ctx, batch, out)
}

func (s *schedule) run(t *testing.T) {
	store := newFake()
	s.nodes, s.began = 1+s.random.IntN(4), time.Now()
	s.outages = make([][]time.Duration, s.nodes)
	var nodes sync.WaitGroup
	for i := range s.nodes {
		view := &cut{fake: store}
		f := open(t, view, Options{OnFailure: Local, Nodes: s.nodes, StartFull: s.full})
		random := rand.New(rand.NewPCG(s.random.Uint64(), 0))
		nodes.Go(func() { s.use(f, view, i, random) })
	}
	nodes.Wait()
	wait(time.Second) // for calls that arrived too late
	slices.SortStableFunc(s.admitted, func(a, b admission) int { return cmp.Compare(a.at, b.at) })
}

// use makes the calls of one node, whose store is cut off and comes back.
func (s *schedule) use(f *Store, view *cut, node int, random *rand.Rand) {
	pace := time.Duration(1+random.IntN(80)) * time.Millisecond
	change := time.Duration(0)
	defer func() {
		view.mu.Lock()
		defer view.mu.Unlock()
		view.act = nil
	}()
	for time.Since(s.began) < 10*time.Second {
		if at := time.Since(s.began); at >= change {
			change = at + time.Duration(random.ExpFloat64()*float64(time.Second))
			view.mu.Lock()
			view.act = [...]func(context.Context) error{nil, nil, down, patient, slow(30 * time.Millisecond), late}[random.IntN(6)]
			view.mu.Unlock()
		}
		cost := 1 + random.Int64N(2)
		out := make([]weir.Decision, 1)
		batch := []weir.Charge{{Name: "shared", Key: "a", Limit: s.limit, Cost: cost}}
		asked := time.Since(s.began)
		if err := f.Do(context.Background(), batch, out); err != nil {
			panic(err)
		}
		s.heard(f, node, out[0].Source)
		if d := out[0]; d.Allowed {
			at := time.Since(s.began)
			if d.Source == weir.SourceStore {
				at = asked // it responded at once
			}
			s.mu.Lock()
			s.admitted = append(s.admitted, admission{at, cost, node, d.Source})
			s.mu.Unlock()
		}
		if random.IntN(3) == 0 {
			<-time.After(time.Duration(random.Int64N(int64(2 * pace))))
		}
	}
}

// late carries the charge out after the caller has left.
func late(context.Context) error {
	<-time.After(40 * time.Millisecond)
	return nil
}

// check returns what is wrong with the admissions.
func (s *schedule) check() string {
	share := Share(s.limit, s.nodes)
	own := make([]int64, s.nodes)
	for i, first := range s.admitted {
		all := int64(0)
		clear(own)
		for _, a := range s.admitted[i:] {
			d := a.at - first.at
			all += a.cost
			if limit := bound(s.limit, d) + int64(s.nodes)*bound(share, d); all > limit {
				return fmt.Sprintf("%d nodes: %d in %v from %v on, above %d", s.nodes, all, d, first.at, limit)
			}
			if a.from != weir.SourceShare {
				continue
			}
			if own[a.node] += a.cost; own[a.node] > bound(share, d) {
				return fmt.Sprintf("%d nodes: the share of node %d admitted %d in %v from %v on", s.nodes, a.node, own[a.node], d, first.at)
			}
		}
	}
	return s.checkOutages(share)
}

// checkOutages: at the start of an outage, buckets have nothing saved up.
func (s *schedule) checkOutages(share weir.Limit) string {
	l, ok := share.(weir.TokenBucket)
	if !ok || s.full {
		return ""
	}
	for node, outages := range s.outages {
		for i, began := range outages {
			sum := int64(0)
			for _, a := range s.admitted {
				if a.node != node || a.from != weir.SourceShare || a.at <= began || i+1 < len(outages) && a.at >= outages[i+1] {
					continue
				}
				if sum += a.cost; sum > bound(l, a.at-began)-l.Burst+1 {
					return fmt.Sprintf("%d nodes: an outage of node %d that began at %v gave %d by %v", s.nodes, node, began, sum, a.at)
				}
			}
		}
	}
	return ""
}
