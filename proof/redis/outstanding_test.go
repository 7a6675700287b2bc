package redis

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/weirflow/weir"
	"github.com/weirflow/weir/internal/raced"
	"github.com/weirflow/weir/internal/rules"
	"github.com/weirflow/weir/internal/seeds"
	"github.com/weirflow/weir/proof/servers"
	"github.com/weirflow/weir/weirredis"
	"github.com/weirflow/weir/weirtest"
)

// drawListed draws a limit whose states hold their outstanding reservations.
func drawListed(r *rand.Rand) weir.Limit {
	rate := []weir.Rate{weir.PerSecond(1 + r.Int64N(1000)), weir.PerSecond(1), {N: 1, Per: 7 * time.Microsecond}, {N: 3, Per: 7 * time.Microsecond}}[r.IntN(4)]
	n := 1 + r.Int64N(12)
	switch r.IntN(8) {
	case 6, 7:
		factor := []float64{0, 1, 1.3}[r.IntN(3)]
		return weir.WarmUp{Rate: rate, Period: []time.Duration{time.Millisecond, 100 * time.Microsecond, time.Second}[r.IntN(3)], ColdFactor: factor}
	case 0:
		return weir.LeakyBucket{Rate: rate, Queue: n, DelayAfter: r.Int64N(n + 1)}
	case 1:
		return weir.SmoothBursty{Rate: rate, MaxBurst: []time.Duration{0, -1, 10 * time.Millisecond}[r.IntN(3)]}
	case 2, 3:
		return weir.IntervalBucket{Burst: n, Refill: 1 + r.Int64N(n+2), Every: []time.Duration{time.Millisecond, 7 * time.Microsecond, time.Second}[r.IntN(3)]}
	}
	return weir.TokenBucket{Rate: rate, Burst: n}
}

// stepOf is how long a few tokens take, in microseconds.
func stepOf(l weir.Limit) int64 {
	rate := map[bool]weir.Rate{}
	switch l := l.(type) {
	case weir.TokenBucket:
		rate[true] = l.Rate
	case weir.LeakyBucket:
		rate[true] = l.Rate
	case weir.SmoothBursty:
		rate[true] = l.Rate
	case weir.WarmUp:
		rate[true] = l.Rate
	case weir.IntervalBucket:
		return max(l.Every.Microseconds(), 2)
	}
	return max(4*int64(rate[true].Per)/rate[true].N/1000, 2)
}

// A listedWalk is charges of one key, in Redis and in the model, in the order in which they were made.
type listedWalk struct {
	r       *rand.Rand
	limit   weir.Limit
	clock   *weirtest.Clock
	subject *subject
	model   *weirtest.Versions
	process *weirtest.Model // the same limit in a process, which knows all that is outstanding
	now     int64
	made    []*listedCharge
	open    []*listedCharge
	delays  bool
	cold    bool // a WarmUp was idle for so long that a store may have dropped its state
	history strings.Builder
}

type listedCharge struct {
	weirtest.Reservation
	model, process int
	at, goes, cost int64
}

func (w *world) listedWalk(t *testing.T, r *rand.Rand, l weir.Limit, delays bool) *listedWalk {
	t.Helper()
	p := &listedWalk{r: r, limit: l, clock: new(weirtest.Clock), model: weirtest.NewVersions(time.Microsecond), process: weirtest.NewModel(l, time.Microsecond), now: 1_000_000, delays: delays}
	opened, err := w.open(l, p.clock)
	if err != nil {
		t.Fatal(err)
	}
	p.subject = opened.(*subject)
	t.Cleanup(func() { p.subject.Close() })
	fmt.Fprintf(&p.history, "%T%+v\n", l, l)
	return p
}

// step makes a random call, on both sides. It returns how the two differ.
func (p *listedWalk) step() string {
	r, step := p.r, stepOf(p.limit)
	switch n := r.IntN(20); {
	case n < 4:
		p.now += r.Int64N(step)
	case n < 5:
		p.now += r.Int64N(8 * step)
	}
	p.clock.Set(p.now * 1000)
	p.cold = p.cold || len(p.made) > 0 && (p.process.Peek(p.now, 0).ResetAfter == 0 || p.model.Peek(p.limit, p.now, 0).ResetAfter == 0)
	cost := 1 + r.Int64N(3)
	switch n := r.IntN(20); {
	case n < 4:
		fmt.Fprintf(&p.history, "%d at %d take %d\n", len(p.made), p.now, cost)
		got, want := p.subject.Take("k", cost), p.model.Take(p.limit, p.now, cost)
		p.process.Take(p.now, cost)
		if got.Allowed {
			p.made = append(p.made, &listedCharge{nil, 0, 0, p.now, p.now, cost})
		}
		return differ(got, want, 0, 0)
	case n < 12 || len(p.open) == 0:
		within := int64(0)
		if p.delays {
			within = []int64{0, step, -1}[r.IntN(3)]
		}
		fmt.Fprintf(&p.history, "%d at %d reserve %d within %d\n", len(p.made), p.now, cost, within)
		reserved, ok := p.subject.Reserve("k", cost, time.Duration(within)*time.Microsecond)
		id, delay, want := p.model.Reserve(p.limit, p.now, cost, within)
		other, _, _ := p.process.Reserve(p.now, cost, within)
		if ok && want.Allowed {
			c := &listedCharge{reserved, id, other, p.now, p.now + reserved.Delay().Microseconds(), cost}
			p.made, p.open = append(p.made, c), append(p.open, c)
		}
		return differ(reserved.Decision(), want, reserved.Delay(), delay)
	default:
		i := r.IntN(len(p.open))
		c := p.open[i]
		p.open = slices.Delete(p.open, i, i+1)
		actual := []int64{0, 0, r.Int64N(c.cost + 1)}[r.IntN(3)]
		fmt.Fprintf(&p.history, "at %d settle %d for %d\n", p.now, slices.Index(p.made, c), actual)
		c.Settle(actual)
		p.model.Settle(p.limit, p.now, c.model, actual)
		p.process.Settle(p.now, c.process, actual)
		if c.cost = actual; actual == 0 {
			p.made = slices.DeleteFunc(p.made, func(o *listedCharge) bool { return o == c })
		}
	}
	return differ(p.subject.Peek("k", 1), p.model.Peek(p.limit, p.now, 1), 0, 0)
}

func differ(got, want weir.Decision, delay, wanted time.Duration) string {
	if g, w := said(got, delay), said(want, wanted); g != w {
		return fmt.Sprintf("want %s\ngot  %s", w, g)
	}
	return ""
}

// afresh is the decision of a limit that was only charged what is left.
func (p *listedWalk) afresh() weir.Decision {
	m := weirtest.NewModel(p.limit, time.Microsecond)
	for _, c := range p.made {
		if d := m.Take(c.at, c.cost); !d.Allowed {
			m.Reserve(c.at, c.cost, -1) // a SmoothBursty stores permits from its first call on
		}
	}
	return m.Peek(p.now, 1)
}

// over returns an interval in which more work goes than the bound of a bucket.
func (p *listedWalk) over() string {
	var rate weir.Rate
	var burst int64
	largest := int64(0)
	for _, c := range p.made {
		largest = max(largest, c.cost)
	}
	switch l := p.limit.(type) {
	case weir.TokenBucket:
		rate, burst = l.Rate, l.Burst
	case weir.LeakyBucket:
		rate, burst = l.Rate, l.DelayAfter+3 // and the largest cost that was ever charged
	case weir.IntervalBucket:
		rate, burst = weir.Rate{N: l.Refill, Per: l.Every}, l.Burst+l.Refill // a step may come at both ends
	default:
		return ""
	}
	all := slices.Clone(p.made)
	slices.SortStableFunc(all, func(a, b *listedCharge) int { return int(a.goes - b.goes) })
	for i, from := range all {
		sum := int64(0)
		for _, to := range all[i:] {
			sum += to.cost
			// times are rounded up to a microsecond
			if d := to.goes - from.goes + 1; (sum-burst)*int64(rate.Per) > d*1000*rate.N {
				return fmt.Sprintf("%d go in %d us from %d on", sum, d, from.goes)
			}
		}
	}
	return ""
}

// inProcess reports whether the states equal those in a process: of an IntervalBucket the steps stay
// where a cancelled charge began them, and of a WarmUp the work that is left.
func (p *listedWalk) inProcess() (steps, warm bool) {
	_, steps = p.limit.(weir.IntervalBucket)
	_, warm = p.limit.(weir.WarmUp)
	return steps, warm
}

// TestOutstandingInRedis: where no work is delayed, the state in Redis after reservations were
// settled or cancelled in any order equals that of a limit that was only charged what is left. With
// delays, it equals the model, and what is left never exceeds the bound. An IntervalBucket equals one in
// a process, with and without delays; so does a WarmUp until it is cold, or has more charges than a
// state keeps.
func TestOutstandingInRedis(t *testing.T) {
	raced.Skip(t)
	w := &world{client: connect(t, servers.StartRedis(t, servers.RedisOptions{}).Addr)}
	settled, compared := 0, map[bool]int{}
	for walk := range max(80, *walks) {
		r := rand.New(rand.NewPCG(uint64(walk), seeds.Seed()))
		p := w.listedWalk(t, r, drawListed(r), walk%2 == 1)
		for range 70 {
			if wrong := p.step(); wrong != "" {
				t.Fatalf("walk %d: not as the model\n%s%s", walk, p.history.String(), wrong)
			}
			if over := p.over(); over != "" {
				t.Fatalf("walk %d: %s\n%s", walk, over, p.history.String())
			}
			if steps, warm := p.inProcess(); steps || warm {
				if warm && (p.cold || p.subject.store.Inexact() > 0) {
					break // as the model alone
				}
				if wrong := differ(p.subject.Peek("k", 1), p.process.Peek(p.now, 1), 0, 0); wrong != "" {
					t.Fatalf("walk %d: not as in a process\n%s%s", walk, p.history.String(), wrong)
				}
				compared[warm]++
				continue
			} else if _, bursty := p.limit.(weir.SmoothBursty); p.delays || bursty {
				continue
			}
			if wrong := differ(p.subject.Peek("k", 1), p.afresh(), 0, 0); wrong != "" {
				t.Fatalf("walk %d: not as if never charged\n%s%s", walk, p.history.String(), wrong)
			}
			settled++
		}
	}
	t.Logf("%d states compared with those of limits that were only charged what is left, %d of IntervalBuckets and %d of WarmUps with those in a process", settled, compared[false], compared[true])
	if settled < 500 || compared[false] < 500 || compared[true] < 60 {
		t.Error("too few states were compared")
	}
}

// TestManyOutstandingInRedis: more reservations than a state holds are counted, and give back by the
// state alone. Those that it holds count as final after 15 minutes.
func TestManyOutstandingInRedis(t *testing.T) {
	w := &world{client: connect(t, servers.StartRedis(t, servers.RedisOptions{}).Addr)}
	for _, c := range []struct {
		limit weir.Limit
		held  int
	}{
		{weir.TokenBucket{Rate: weir.PerHour(10), Burst: 1000}, 256},
		{weir.IntervalBucket{Burst: 1000, Refill: 5, Every: 30 * time.Minute}, 256},
		{weir.WarmUp{Rate: weir.PerSecond(1), Period: 2 * time.Second}, 64},
		{weir.WarmUp{Rate: weir.PerSecond(1), Period: 2 * time.Second, ColdFactor: 1.3}, 16},
	} {
		w.manyOutstanding(t, c.limit, c.held)
	}
}

func (w *world) manyOutstanding(t *testing.T, l weir.Limit, held int) {
	t.Helper()
	const more = 44
	r := seeds.Of(t.Name())
	p := w.listedWalk(t, r, l, false)
	p.clock.Set(p.now * 1000)
	for range held + more {
		reserved, _ := p.subject.Reserve("k", 2, -1)
		id, _, _ := p.model.Reserve(l, p.now, 2, -1)
		p.open = append(p.open, &listedCharge{reserved, id, 0, p.now, p.now, 2})
	}
	if n := p.subject.store.Inexact(); n != more {
		t.Errorf("%T: %d reservations are counted as too many, want %d", l, n, more)
	}
	for _, late := range []int64{0, 16 * 60 * 1_000_000} {
		p.now += late
		p.clock.Set(p.now * 1000)
		for range held / 2 {
			i := r.IntN(len(p.open))
			p.open[i].Cancel()
			p.model.Settle(l, p.now, p.open[i].model, 0)
			p.open = slices.Delete(p.open, i, i+1)
			if wrong := differ(p.subject.Peek("k", 1), p.model.Peek(l, p.now, 1), 0, 0); wrong != "" {
				t.Fatalf("%T: %d left: %s", l, len(p.open), wrong)
			}
		}
	}
}

// TestEstimatesOverlap is a case that once failed: 20 overlapping estimates of 1,000 with a true cost
// of 10 left 3,140 used, where 200 are right. In groups too, and when a call is repeated. A key
// without reservations is as long as one that never had any, but for the total given back.
func TestEstimatesOverlap(t *testing.T) {
	server := servers.StartRedis(t, servers.RedisOptions{})
	client := connect(t, server.Addr)
	store := open(t, client, weirredis.Options{ClockKey: "clock", Timeout: patience, Tag: func(string, string) string { return "t" }})
	tokens := weir.TokenBucket{Rate: weir.PerMinute(1000), Burst: 30_000}
	requests := weir.FixedWindow{Limit: 1000, Window: time.Hour}
	now := 1_700_000_000 * time.Second
	clockAt(t, client, now)
	do(t, store, weir.Charge{Name: "plain", Key: "a", Limit: tokens, Cost: 1})
	plain := redis(t, client, "STRLEN", "weir:{t}:plain:a").(int64)
	var made []weir.Charge
	for range 20 {
		batch := []weir.Charge{
			{Name: "tokens", Key: "a", Limit: tokens, Cost: 1000, Group: 1, Keep: true, Estimate: true},
			{Name: "requests", Key: "a", Limit: requests, Cost: 1, Group: 1},
		}
		if err := store.Do(t.Context(), batch, make([]weir.Decision, 2)); err != nil {
			t.Fatal(err)
		}
		made = append(made, batch[0])
	}
	if long := redis(t, client, "STRLEN", "weir:{t}:tokens:a").(int64); long > plain+20*40 {
		t.Errorf("20 reservations take %d bytes", long-plain)
	}
	var before map[string]int
	for n, i := range seeds.Of(t.Name()).Perm(len(made)) {
		c := made[i]
		c.Op, c.Group, c.Cost = weir.OpSettle, 0, 10
		do(t, store, c)
		if n == 0 {
			before = commands(t, server) // the server has the script now
		}
	}
	after := commands(t, server)
	if n := after["evalsha"] + after["eval"] - before["evalsha"] - before["eval"]; n != len(made)-1 {
		t.Errorf("%d round trips for %d settlements", n, len(made))
	}
	before = after
	d := do(t, store, weir.Charge{Name: "tokens", Key: "a", Limit: tokens, Cost: 1}).decision
	if d.Remaining != 30_000-200-1 {
		t.Errorf("%d are left, want %d", d.Remaining, 30_000-200-1)
	}
	do(t, store, weir.Charge{Name: "tokens", Key: "a", Limit: tokens, Cost: 1000, Op: weir.OpReserve})
	do(t, store, weir.Charge{Name: "tokens", Key: "a", Limit: tokens, Cost: 1})
	after = commands(t, server)
	if n := after["evalsha"] + after["eval"] - before["evalsha"] - before["eval"]; n != 3 {
		t.Errorf("%d round trips for 3 calls", n)
	}
	clockAt(t, client, now+time.Hour)
	do(t, store, weir.Charge{Name: "tokens", Key: "a", Limit: tokens, Cost: 1})
	if length := redis(t, client, "STRLEN", "weir:{t}:tokens:a").(int64); length > plain+20 {
		t.Errorf("without reservations a key has %d bytes, a new one %d", length, plain)
	}
}

// TestRecallOfEveryKind: of two reservations that overlap, the first is cancelled a little later. That
// leaves what it leaves in a process.
func TestRecallOfEveryKind(t *testing.T) {
	client := connect(t, servers.StartRedis(t, servers.RedisOptions{}).Addr)
	store := open(t, client, weirredis.Options{ClockKey: "clock", Timeout: patience})
	const begin = 1_700_000_000 * time.Second
	for name, limits := range recordedCases {
		if rules.KindOf(limits[0]) == nil || len(limits) > 1 {
			continue // an All has the rules of its parts
		}
		alike := true
		for _, after := range []time.Duration{time.Millisecond, 10 * time.Millisecond, time.Second} {
			clockAt(t, client, begin)
			c := weir.Charge{Name: name, Key: "two" + after.String(), Limit: limits[0], Cost: 9, Op: weir.OpReserve, Within: -1}
			first := do(t, store, c)
			do(t, store, c)
			process := weirtest.NewModel(limits[0], time.Microsecond)
			id, _, _ := process.Reserve(begin.Microseconds(), 9, -1)
			process.Reserve(begin.Microseconds(), 9, -1)
			clockAt(t, client, begin+after)
			first.Op, first.Cost = weir.OpSettle, 0
			do(t, store, first.Charge)
			process.Cancel((begin + after).Microseconds(), id)
			c.Cost, c.Op = 20, weir.OpPeek
			got, want := do(t, store, c).decision, process.Peek((begin+after).Microseconds(), 20)
			alike = alike && differ(got, want, 0, 0) == ""
		}
		if !alike {
			t.Errorf("%s: the first of two is not given back exactly", name)
		}
	}
}

// TestWaitsLeaveNoList: a state remembers callers of Wait until their turn only, so a key whose callers
// always wait stays short.
func TestWaitsLeaveNoList(t *testing.T) {
	client := connect(t, servers.StartRedis(t, servers.RedisOptions{}).Addr)
	store := open(t, client, weirredis.Options{ClockKey: "clock", Timeout: patience})
	l := weir.TokenBucket{Rate: weir.PerSecond(10), Burst: 3}
	longest := map[bool]int64{}
	for _, settles := range []bool{false, true} {
		for i := range 60 {
			clockAt(t, client, 1_700_000_000*time.Second+time.Duration(i)*100*time.Millisecond)
			c := weir.Charge{Name: fmt.Sprint(settles), Key: "a", Limit: l, Cost: 1, Op: weir.OpReserve, Within: -1, Estimate: settles}
			do(t, store, c)
			for range max(0, 6-6*i) {
				do(t, store, c)
			}
			longest[settles] = max(longest[settles], redis(t, client, "STRLEN", at("a")[:len(at("a"))-3]+c.Name).(int64))
		}
	}
	if longest[false] > 250 || longest[true] < 1000 {
		t.Errorf("without and with settling, the longest state has %v bytes", longest)
	}
}
