// Costs simulates limits on costs that are known only afterwards, in virtual time, and prints the
// table of docs/costs.md:
//
//	go run ./docs/costs
package main

import (
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"os"
	"time"

	"github.com/weirflow/weir"
	"github.com/weirflow/weir/internal/heap"
)

func main() {
	if err := table(os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// The limit: 100,000 tokens a minute, with a burst of as many.
const (
	perMinute = 100_000
	burst     = 100_000
	perNano   = perMinute / float64(time.Minute)
	hours     = 2 * time.Hour // of virtual time
	meanCost  = 1000
)

var (
	loads     = []float64{0.3, 1, 3} // offered tokens, in multiples of the limit
	latencies = []time.Duration{100 * time.Millisecond, time.Second, 10 * time.Second, time.Minute}
	estimates = []float64{0.5, 1, 2, 8} // in multiples of the true cost
)

// table writes the table. It fails if the bound was exceeded.
func table(to io.Writer) error {
	fmt.Fprint(to, "| offered | latency |")
	for _, e := range estimates {
		fmt.Fprintf(to, " estimate x%g |", e)
	}
	fmt.Fprint(to, " counted afterwards |\n|---|---|---|---|---|---|---|\n")
	for _, load := range loads {
		for _, latency := range latencies {
			all := arrivals(load, latency)
			oracle := simulate(all, knowing{}).admitted
			fmt.Fprintf(to, "| %g | %v |", load, latency)
			for _, e := range estimates {
				o := simulate(all, &estimating{factor: e})
				if o.broken > 0 {
					return fmt.Errorf("load %g, latency %v, estimates x%g: %g tokens over the bound", load, latency, e, o.broken)
				}
				fmt.Fprintf(to, " %s |", o.against(oracle))
			}
			fmt.Fprintf(to, " %s |\n", simulate(all, counting{}).against(oracle))
		}
	}
	return nil
}

// arrival is a request.
type arrival struct {
	at, latency time.Duration
	cost        int64
}

// arrivals draws requests: at random times, with costs from 100 to several thousand tokens.
func arrivals(load float64, latency time.Duration) (all []arrival) {
	rnd := rand.New(rand.NewPCG(1, 2))
	mean := float64(time.Minute) / (perMinute / meanCost * load)
	for at := time.Duration(0); at < hours; at += time.Duration(rnd.ExpFloat64() * mean) {
		all = append(all, arrival{
			at: at, latency: time.Duration((0.5 + rnd.Float64()) * float64(latency)),
			cost: 100 + int64(rnd.ExpFloat64()*(meanCost-100)),
		})
	}
	return all
}

// A policy decides about requests. done is nil if the request is refused.
type policy interface {
	admit(l *weir.Limiter, a *arrival) (estimate int64, done func())
}

// knowing is the oracle: it knows each cost beforehand.
type knowing struct{}

func (knowing) admit(l *weir.Limiter, a *arrival) (int64, func()) {
	if !l.Take(a.cost).Allowed {
		return 0, nil
	}
	return a.cost, func() {}
}

// estimating charges an estimate, and settles it.
type estimating struct{ factor float64 }

func (e *estimating) admit(l *weir.Limiter, a *arrival) (int64, func()) {
	estimate := int64(math.Ceil(float64(a.cost) * e.factor))
	r, ok := l.Reserve(estimate, 0)
	if !ok {
		return 0, nil
	}
	return estimate, func() { r.Settle(a.cost) }
}

// counting admits while anything is left, and charges when the response has come.
type counting struct{}

func (counting) admit(l *weir.Limiter, a *arrival) (int64, func()) {
	if !l.Peek(1).Allowed {
		return 0, nil
	}
	return 0, func() {
		r, _ := l.Reserve(a.cost, -1)
		r.Settle(a.cost)
	}
}

// outcome is what became of all requests.
type outcome struct {
	admitted int64   // tokens
	over     float64 // the most tokens beyond the limit's bound, in any interval
	broken   float64 // the same, beyond what requests in flight were estimated too low
}

// against compares an outcome with the oracle's.
func (o outcome) against(oracle int64) string {
	text := fmt.Sprintf("%.0f %%", 100*float64(o.admitted)/float64(oracle))
	if o.over > 0 {
		text += fmt.Sprintf(", %.0f over", math.Ceil(o.over))
	}
	return text
}

// simulate runs a policy. What is admitted in any interval of length D is within burst + rate * D if a
// bucket that leaks at the rate never holds more than the burst.
func simulate(all []arrival, p policy) (o outcome) {
	var now time.Duration
	l, err := weir.New(weir.TokenBucket{Rate: weir.PerMinute(perMinute), Burst: burst}, weir.WithClock(func() int64 { return int64(now) }))
	if err != nil {
		panic(err) // the limit is a constant
	}
	var inFlight heap.Heap[end]
	var level, low float64 // of that bucket; what requests in flight were estimated too low
	var last time.Duration
	for i := range all {
		a := &all[i]
		for e := inFlight.Due(int64(a.at)); e != nil; e = inFlight.Due(int64(a.at)) {
			now = time.Duration(inFlight.Key(&e.node))
			inFlight.Remove(&e.node)
			e.done()
			low -= e.low
		}
		now = a.at
		estimate, done := p.admit(l, a)
		if done == nil {
			continue
		}
		o.admitted += a.cost
		level = max(0, level-float64(a.at-last)*perNano) + float64(a.cost)
		last = a.at
		under := max(0, float64(a.cost-estimate))
		low += under
		e := &end{low: under, done: done}
		inFlight.Push(&e.node, e, int64(a.at+a.latency))
		o.over = max(o.over, level-burst)
		o.broken = max(o.broken, level-burst-low-1e-3) // float64 has 12 digits here
	}
	return o
}

// end is the end of a response.
type end struct {
	node heap.Node[end]
	low  float64 // what the request was estimated too low
	done func()
}
