package redis

import (
	"context"
	"fmt"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/weirflow/weir"
	"github.com/weirflow/weir/group"
	"github.com/weirflow/weir/keyed"
	"github.com/weirflow/weir/proof/servers"
	"github.com/weirflow/weir/weirtest"
)

// TestGroupOfAnything holds package group to its definition, with limits of this process, places,
// and limits in two stores of a real server. A call that is refused leaves each limit of this
// process and each place as if it had never come, in all fields of all later decisions. In stores it
// leaves what their rule leaves.
func TestGroupOfAnything(t *testing.T) {
	w := &world{client: connect(t, servers.StartRedis(t, servers.RedisOptions{}).Addr)}
	rapid.Check(t, func(t *rapid.T) {
		g := newMixed(t, w)
		defer g.close()
		for range rapid.IntRange(1, 25).Draw(t, "calls") {
			g.now += rapid.SampledFrom([]int64{0, 0, 1, 1000, int64(g.retry / time.Microsecond), 3_000_000}).Draw(t, "later")
			g.clock.Set(g.now * int64(time.Microsecond))
			g.setClock()
			if n := len(g.open); n > 0 && rapid.IntRange(0, 2).Draw(t, "end") == 0 {
				g.end(t, rapid.IntRange(0, n-1).Draw(t, "which"))
			} else {
				g.call(t)
			}
		}
	})
}

// mixed is limits of all kinds, each with its model.
type mixed struct {
	clock   *weirtest.Clock
	now     int64 // in microseconds
	retry   time.Duration
	clocked *subject
	close   func()
	limits  []modelled
	open    []admitted
}

// modelled is a limit for one key. Its model counts in ticks.
type modelled struct {
	name   string
	stage  int // 0: this process; 1: places; 2 and 3: the stores
	charge func(cost int64) group.Charge
	model  *weirtest.Model // nil for places
	tick   time.Duration
	free   *int64 // of places
	size   int64
	source weir.Source
}

// admitted is a reservation, and what the models hold for it.
type admitted struct {
	res   *group.Reservation
	costs []int64 // in the order of the charges
	of    []int   // their limits
	ids   map[int]int
	taken map[int]int64
	ended bool // costs are final
	left  bool // places are left
}

func newMixed(t *rapid.T, w *world) *mixed {
	g := &mixed{clock: new(weirtest.Clock), now: 1_700_000_000_000_000}
	g.clock.Set(g.now * int64(time.Microsecond))
	options := func(name string) []weir.Option {
		return []weir.Option{weir.Named(name), weir.WithClock(g.clock.Now), weir.WithTimers(g.clock.AfterFunc)}
	}
	for i := range 2 {
		l := small(t, true)
		one := must(weir.New(l, options(fmt.Sprint("one ", i))...))
		m := weirtest.NewModel(l, time.Nanosecond)
		m.Contact(g.clock.Now())
		g.add(modelled{name: fmt.Sprint("one ", i), charge: func(c int64) group.Charge { return group.One(one, c) }, model: m, tick: time.Nanosecond})
	}
	l := small(t, true)
	per := must(keyed.New[string](l, keyed.Options{Name: "keyed", Clock: g.clock.Now, Timers: g.clock.AfterFunc}))
	for _, key := range []string{"a", "b"} {
		g.add(modelled{name: "keyed", charge: func(c int64) group.Charge { return group.Keyed(per, key, c) }, model: weirtest.NewModel(l, time.Nanosecond), tick: time.Nanosecond})
	}
	free := int64(3)
	places := must(weir.NewConcurrency(weir.Concurrency{Limit: free}, options("places")...))
	g.add(modelled{name: "places", stage: 1, charge: func(c int64) group.Charge { return group.InFlight(places, c) }, free: &free, size: free})
	var closes []func() error
	for i := range 2 {
		var store weir.Store
		for j := range 2 {
			l := small(t, false)
			taker := must(w.open(l, g.clock))
			s := taker.(*subject)
			closes, g.clocked = append(closes, s.Close), s
			if j == 0 {
				store = s.store
			}
			name := fmt.Sprintf("shared %d %d", i, j)
			shared := must(weir.NewShared(l, store, weir.Named(name)))
			g.add(modelled{name: name, stage: 2 + i, charge: func(c int64) group.Charge { return group.Shared(shared, "k", c) }, model: weirtest.NewBlindModel(l, time.Microsecond), tick: time.Microsecond, source: weir.SourceStore})
		}
	}
	g.close = func() {
		for _, c := range closes {
			if err := c(); err != nil {
				panic(err)
			}
		}
	}
	return g
}

// small draws a limit that a few calls use up.
func small(t *rapid.T, inProcess bool) weir.Limit {
	n, some := rapid.Int64Range(1, 8).Draw(t, "size"), rapid.Int64Range(1, 4).Draw(t, "rate")
	rate := weir.Rate{N: some, Per: rapid.SampledFrom([]time.Duration{time.Millisecond, time.Second, 7 * time.Second}).Draw(t, "per")}
	limits := []weir.Limit{
		weir.TokenBucket{Rate: rate, Burst: n},
		weir.LeakyBucket{Rate: rate, Queue: n},
		weir.LeakyBucket{Rate: rate, Queue: n, DelayAfter: n},
		weir.IntervalBucket{Burst: n, Refill: min(some, n), Every: rate.Per},
		weir.FixedWindow{Limit: n, Window: rate.Per},
		weir.FixedWindow{Limit: n, Window: rate.Per, Align: weir.AlignFirst},
		weir.SlidingWindow{Limit: n, Window: rate.Per, Slots: 5},
		weir.SlidingCounter{Limit: n, Window: rate.Per},
		weir.SlidingLog{Limit: n, Window: rate.Per},
		weir.SmoothBursty{Rate: rate, MaxBurst: 2 * rate.Per},
		weir.WarmUp{Rate: rate, Period: rate.Per},
		weir.NginxBucket{Rate: weir.PerSecond(some), Queue: n}, // no store keeps it
	}
	if !inProcess {
		limits = limits[:len(limits)-1]
	}
	return rapid.SampledFrom(limits).Draw(t, "limit")
}

func (g *mixed) add(m modelled) { g.limits = append(g.limits, m) }
func (g *mixed) setClock()      { g.clocked.setClock("k") }
func (m *modelled) at(now int64) int64 {
	return now * int64(time.Microsecond/m.tick)
}

// peek returns the decision of the model.
func (m *modelled) peek(now, cost int64) (d weir.Decision) {
	if m.model == nil {
		d = weir.Decision{Allowed: cost <= *m.free, Limit: m.size, Remaining: *m.free}
		if !d.Allowed {
			d.RetryAfter = weir.Never
		}
		if *m.free < m.size {
			d.ResetAfter = weir.Never
		}
	} else if m.tick == time.Nanosecond {
		_, _, d = m.model.Clone().Reserve(m.at(now), cost, 0)
	} else {
		d = m.model.Clone().Take(m.at(now), cost)
	}
	return m.sign(d)
}

// take charges the model.
func (m *modelled) take(now, cost int64) (id int, d weir.Decision) {
	if m.model != nil {
		id, _, d = m.model.Reserve(m.at(now), cost, 0)
		return id, m.sign(d)
	}
	*m.free -= cost
	d = weir.Decision{Allowed: true, Limit: m.size, Remaining: *m.free}
	if *m.free < m.size {
		d.ResetAfter = weir.Never
	}
	return 0, m.sign(d)
}

func (m *modelled) sign(d weir.Decision) weir.Decision {
	if d.By == "" {
		d.By = m.name
	}
	d.Source = m.source
	return d
}

// call takes some of the limits, maybe one of them twice, and compares the decision.
func (g *mixed) call(t *rapid.T) {
	a := admitted{ids: map[int]int{}, taken: map[int]int64{}}
	var charges []group.Charge
	for range rapid.IntRange(1, 7).Draw(t, "charges") {
		i, cost := rapid.IntRange(0, len(g.limits)-1).Draw(t, "limit"), rapid.SampledFrom([]int64{0, 1, 1, 1, 2, 3, 100}).Draw(t, "cost")
		a.of, a.costs = append(a.of, i), append(a.costs, cost)
		a.taken[i] += cost
		charges = append(charges, g.limits[i].charge(cost))
	}
	res, got, err := group.Take(context.Background(), charges...)
	if err != nil {
		t.Fatal(err)
	}
	want, ok := g.expect(&a)
	g.retry = max(want.RetryAfter, 0)
	if got != want {
		t.Fatalf("costs %v of %v at %d:\n got %+v\nwant %+v", a.costs, g.names(a.of), g.now, got, want)
	}
	if a.res = res; ok {
		g.open = append(g.open, a)
	}
}

func (g *mixed) names(of []int) (names []string) {
	for _, i := range of {
		names = append(names, g.limits[i].name)
	}
	return names
}

// expect charges the models as package group says, and returns the decision.
func (g *mixed) expect(a *admitted) (d weir.Decision, ok bool) {
	var order []int // of the limits, by stage, and then by the first charge of each
	for stage := range 3 {
		for _, i := range a.of {
			if min(g.limits[i].stage, 2) == stage && !contains(order, i) {
				order = append(order, i)
			}
		}
	}
	refused := func(of func(stage int) bool) (found bool) {
		for _, i := range order {
			m := &g.limits[i]
			if !of(m.stage) {
				continue
			}
			if one := m.peek(g.now, a.taken[i]); !one.Allowed && (!found || longer(one.RetryAfter, d.RetryAfter)) {
				d, found = one, true
			}
		}
		return found
	}
	charge := func(stage func(int) bool, give bool) {
		for _, i := range order {
			m := &g.limits[i]
			if !stage(m.stage) {
				continue
			}
			id, one := m.take(g.now, a.taken[i])
			switch {
			case give && m.model == nil:
				*m.free += a.taken[i]
			case give:
				m.model.Cancel(m.at(g.now), id)
			default:
				a.ids[i] = id
				if first := i == order[0]; first || one.Remaining < d.Remaining {
					d = one
				}
			}
		}
	}
	local, stored := func(s int) bool { return s < 2 }, func(s int) bool { return s >= 2 }
	if refused(local) {
		return d, false // nothing was charged, not even for a moment
	}
	var before []int // the stores that have charged, in the order of the first charge of each
	for _, i := range a.of {
		store := g.limits[i].stage
		if local(store) || contains(before, store) {
			continue
		}
		if refused(func(s int) bool { return s == store }) {
			charge(local, true)
			charge(func(s int) bool { return contains(before, s) }, true)
			return d, false
		}
		before = append(before, store)
	}
	charge(local, false)
	charge(stored, false)
	return d, true
}

func contains(list []int, i int) bool {
	for _, j := range list {
		if i == j {
			return true
		}
	}
	return false
}

func longer(a, b time.Duration) bool { return b != weir.Never && (a == weir.Never || a > b) }

// end settles, cancels or ends a reservation; a call after the first of them changes nothing.
func (g *mixed) end(t *rapid.T, which int) {
	a := &g.open[which]
	actual := append([]int64(nil), a.costs...)
	how := rapid.SampledFrom([]string{"settle", "cancel", "done"}).Draw(t, "how")
	var err error
	switch how {
	case "settle":
		for i := range actual {
			if actual[i] = rapid.Int64Range(0, 4).Draw(t, "actual"); a.taken[a.of[i]] == 0 {
				actual[i] = 0 // no store remembers a charge of 0
			}
		}
		err = a.res.Settle(context.Background(), actual...)
	case "cancel":
		clear(actual)
		err = a.res.Cancel(context.Background())
	case "done":
		a.res.Done(weir.OK)
	}
	if err != nil {
		t.Fatal(err)
	}
	total := map[int]int64{}
	for k, i := range a.of {
		total[i] += actual[k]
	}
	for i := range total {
		switch m := &g.limits[i]; {
		case m.model == nil:
			if how != "settle" && !a.left {
				*m.free += a.taken[i]
			}
		case !a.ended:
			m.model.Settle(m.at(g.now), a.ids[i], total[i])
		}
	}
	a.ended, a.left = true, a.left || how != "settle"
}
