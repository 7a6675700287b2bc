package redis

import (
	"container/heap"
	"flag"
	"fmt"
	"math"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/redis/rueidis"

	"github.com/weirflow/weir"
	"github.com/weirflow/weir/internal/raced"
	"github.com/weirflow/weir/internal/seeds"
	"github.com/weirflow/weir/proof/servers"
	"github.com/weirflow/weir/weirredis"
)

// costsFor is how long each run of TestEstimatesOfAFleet lasts, in virtual time: with it, the test prints
// the table of docs/costs.md.
var costsFor = flag.Duration("costs", 0, "how long each run of TestEstimatesOfAFleet lasts, in virtual time; default: a short version")

// The limit of TestEstimatesOfAFleet, and the mean cost of a request.
const (
	fleetPerMinute = 100_000
	fleetBurst     = 100_000
	fleetMean      = 1000
)

// costly is a request whose cost is known when its response has ended.
type costly struct {
	at, latency time.Duration
	cost        int64
}

// costlyRequests draws requests: at random times, with costs from 100 to several thousand tokens.
func costlyRequests(load float64, latency, length time.Duration) (all []costly) {
	rnd := rand.New(rand.NewPCG(seeds.Seed(), 2))
	mean := float64(time.Minute) / (fleetPerMinute / fleetMean * load)
	for at := time.Duration(0); at < length; at += time.Duration(rnd.ExpFloat64() * mean) {
		all = append(all, costly{
			at: at.Truncate(time.Microsecond), latency: time.Duration((0.5 + rnd.Float64()) * float64(latency)).Truncate(time.Microsecond),
			cost: 100 + int64(rnd.ExpFloat64()*(fleetMean-100)),
		})
	}
	return all
}

// A response that is on its way, and what its request was estimated too low.
type response struct {
	at   time.Duration
	low  float64
	done func()
}

type responses []response

func (h responses) Len() int           { return len(h) }
func (h responses) Less(i, j int) bool { return h[i].at < h[j].at }
func (h responses) Swap(i, j int)      { h[i], h[j] = h[j], h[i] }
func (h *responses) Push(x any)        { *h = append(*h, x.(response)) }
func (h *responses) Pop() any {
	old := *h
	last := old[len(old)-1]
	*h = old[:len(old)-1]
	return last
}

// fleetOutcome is what became of all requests: the tokens admitted; the most beyond the bound of the
// limit in any interval, and the most beyond what requests in flight were estimated too low, too.
type fleetOutcome struct{ admitted, over, broken float64 }

func (o fleetOutcome) against(oracle fleetOutcome) string {
	text := fmt.Sprintf("%.0f %%", 100*o.admitted/oracle.admitted)
	if o.over > 0 {
		text += fmt.Sprintf(", %.0f over", math.Ceil(o.over))
	}
	return text
}

// playCosts sends requests. admit decides about one; done is nil where it is refused.
func playCosts(all []costly, clock func(time.Duration), admit func(i int, c costly) (estimate int64, done func())) (o fleetOutcome) {
	var flight responses
	var level, low float64 // of a bucket that drains at the rate: above the burst, the bound is exceeded
	var last time.Duration
	for i, c := range all {
		for len(flight) > 0 && flight[0].at <= c.at {
			r := heap.Pop(&flight).(response)
			clock(r.at)
			r.done()
			low -= r.low
		}
		clock(c.at)
		estimate, done := admit(i, c)
		if done == nil {
			continue
		}
		o.admitted += float64(c.cost)
		level = max(0, level-float64(c.at-last)*fleetPerMinute/float64(time.Minute)) + float64(c.cost)
		last = c.at
		under := max(0, float64(c.cost-estimate))
		low += under
		heap.Push(&flight, response{c.at + c.latency, under, done})
		o.over = max(o.over, level-fleetBurst)
		o.broken = max(o.broken, level-fleetBurst-low-1e-3)
	}
	return o
}

// A costlyFleet is nodes with clients of their own over one server, on a virtual clock.
type costlyFleet struct {
	t      *testing.T
	client rueidis.Client
	stores []*weirredis.Store
	begin  time.Duration
	runs   int
}

// play sends requests to the nodes in turn. factor is the estimate in multiples of the true cost; 0
// counts afterwards, as others do: a request passes while anything is left.
func (f *costlyFleet) play(all []costly, nodes int, factor float64) fleetOutcome {
	f.runs++
	limit := weir.TokenBucket{Rate: weir.PerMinute(fleetPerMinute), Burst: fleetBurst}
	key := fmt.Sprint("run", f.runs)
	charge := func(node int, c weir.Charge) done {
		c.Name, c.Key, c.Limit = "tokens", key, limit
		return do(f.t, f.stores[node], c)
	}
	clock := func(at time.Duration) { clockAt(f.t, f.client, f.begin+at) }
	return playCosts(all, clock, func(i int, c costly) (int64, func()) {
		node := i % nodes
		if factor == 0 {
			if !charge(node, weir.Charge{Op: weir.OpPeek, Cost: 1}).decision.Allowed {
				return 0, nil
			}
			return 0, func() {
				made := charge(node, weir.Charge{Op: weir.OpReserve, Within: -1, Cost: c.cost})
				charge(node, weir.Charge{Op: weir.OpSettle, Cost: c.cost, Receipt: made.Receipt})
			}
		}
		estimate := int64(math.Ceil(float64(c.cost) * factor))
		made := charge(node, weir.Charge{Cost: estimate, Keep: true, Estimate: true})
		if !made.decision.Allowed {
			return 0, nil
		}
		return estimate, func() {
			charge((i+1)%nodes, weir.Charge{Op: weir.OpSettle, Cost: c.cost, Receipt: made.Receipt})
		}
	})
}

// inProcess is what one limiter in memory admits: by estimates, or with a factor of 0 as an oracle that
// knows the true costs beforehand.
func inProcess(t *testing.T, all []costly, factor float64) fleetOutcome {
	t.Helper()
	var now time.Duration
	l, err := weir.New(weir.TokenBucket{Rate: weir.PerMinute(fleetPerMinute), Burst: fleetBurst}, weir.WithClock(func() int64 { return int64(now) }))
	if err != nil {
		t.Fatal(err)
	}
	return playCosts(all, func(at time.Duration) { now = at }, func(_ int, c costly) (int64, func()) {
		estimate := c.cost
		if factor > 0 {
			estimate = int64(math.Ceil(float64(c.cost) * factor))
		}
		r, ok := l.Reserve(estimate, 0)
		if !ok {
			return 0, nil
		}
		return estimate, func() { r.Settle(c.cost) }
	})
}

// TestEstimatesOfAFleet: 1, 2 and 4 nodes with estimates over one redis-server admit nothing over the
// bound but what requests in flight were estimated too low, at least 99 % of what a limiter in memory admits
// with the same estimates, and at least 95 % of what an oracle admits wherever what is estimated too high fits into the burst. The clock is virtual, so that latencies of a
// minute take no time. Counting afterwards exceeds the bound.
func TestEstimatesOfAFleet(t *testing.T) {
	raced.Skip(t)
	server := servers.StartRedis(t, servers.RedisOptions{})
	f := &costlyFleet{t: t, client: connect(t, server.Addr), begin: 1_700_000_000 * time.Second}
	for range 4 {
		f.stores = append(f.stores, open(t, connect(t, server.Addr), weirredis.Options{ClockKey: "clock", Timeout: patience}))
	}
	loads, latencies, factors := []float64{0.3, 1, 3}, []time.Duration{100 * time.Millisecond, time.Second, 10 * time.Second, time.Minute}, []float64{0.5, 1, 2, 8}
	length, nodes := *costsFor, []int{1, 2, 4}
	if length == 0 {
		loads, latencies, factors = []float64{3}, []time.Duration{10 * time.Second, time.Minute}, []float64{1, 2}
		length, nodes = 3*time.Minute, []int{4}
	}
	var table strings.Builder
	for _, load := range loads {
		for _, latency := range latencies {
			all := costlyRequests(load, latency, length)
			oracle := inProcess(t, all, 0)
			for _, n := range nodes {
				fmt.Fprintf(&table, "| %g | %v | %d |", load, latency, n)
				for _, factor := range factors {
					o := f.play(all, n, factor)
					inFlight := fleetPerMinute * min(load, 1) * latency.Minutes()
					fits := inFlight*(factor-1) < 0.7*fleetBurst
					if o.broken > 0 || factor >= 1 && o.over > 0 || fits && o.admitted < 0.95*oracle.admitted {
						t.Errorf("load %g, latency %v, %d nodes, estimates x%g: %s", load, latency, n, factor, o.against(oracle))
					}
					if alone := inProcess(t, all, factor); o.admitted < 0.99*alone.admitted {
						t.Errorf("load %g, latency %v, %d nodes, estimates x%g: %.0f admitted, one process %.0f", load, latency, n, factor, o.admitted, alone.admitted)
					}
					fmt.Fprintf(&table, " %s |", o.against(oracle))
				}
				o := f.play(all, n, 0)
				if load > 1 && o.over < fleetMean {
					t.Errorf("load %g, latency %v, %d nodes, counted afterwards: %s: the test cannot see what is over", load, latency, n, o.against(oracle))
				}
				fmt.Fprintf(&table, " %s |\n", o.against(oracle))
			}
		}
	}
	inexact := uint64(0)
	for _, s := range f.stores {
		inexact += s.Inexact()
	}
	t.Logf("%d reservations were too many for a state\n%s", inexact, table.String())
}
