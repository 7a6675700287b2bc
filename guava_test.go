package weir_test

import (
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/weirflow/weir"
	"github.com/weirflow/weir/weirtest"
)

// guava is a port of Guava's RateLimiter: permits are floating point, and waits are truncated to
// microseconds. (Recorded results of the original are in weirtest/testdata/guava.jsonl, which the
// conformance suite uses.)
type guava struct {
	interval, cold    float64 // microseconds per permit
	threshold, slope  float64 // of the warm-up; 0 for none
	stored, max, cool float64 // cool: microseconds to store a permit
	next              int64   // microseconds
}

func newGuava(l weir.Limit) *guava {
	switch l := l.(type) {
	case weir.SmoothBursty:
		interval := float64(l.Rate.Per.Microseconds()) / float64(l.Rate.N)
		most := l.MaxBurst.Seconds() * 1e6 / interval
		return &guava{interval: interval, threshold: math.Inf(1), max: most, cool: interval}
	case weir.WarmUp:
		interval, period := float64(l.Rate.Per.Microseconds())/float64(l.Rate.N), float64(l.Period.Microseconds())
		g := &guava{interval: interval, cold: interval * l.ColdFactor}
		g.threshold = 0.5 * period / interval
		g.max = g.threshold + 2*period/(interval+g.cold)
		g.slope = (g.cold - interval) / (g.max - g.threshold)
		g.stored, g.cool = g.max, period/g.max
		return g
	}
	panic("no RateLimiter of Guava")
}

// reserve is reserveEarliestAvailable: it returns when the charge may go.
func (g *guava) reserve(now int64, permits float64) (goes int64) {
	if now > g.next {
		g.stored = min(g.max, g.stored+float64(now-g.next)/g.cool)
		g.next = now
	}
	goes = g.next
	taken := min(permits, g.stored)
	wait := int64(0)
	if above := g.stored - g.threshold; !math.IsInf(g.threshold, 1) {
		left := taken
		if above > 0 {
			dear := min(above, taken)
			length := 2*g.interval + g.slope*(above+above-dear)
			wait, left = int64(dear*length/2), taken-dear
		}
		wait += int64(g.interval * left)
	}
	wait += int64((permits - taken) * g.interval)
	g.next += wait
	g.stored -= taken
	return goes
}

// TestGuavaTruncates: if waits are no whole microseconds, Weir's due times are at most 2 us per
// earlier charge after Guava's. (The reference model checks that none is earlier than exact
// arithmetic allows. Guava may also be later than that: the truncated part counts as idle time, and
// makes a cold limit colder.)
func TestGuavaTruncates(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 1))
	for range 2000 {
		rate := weir.Rate{N: 1 + r.Int64N(2000), Per: []time.Duration{time.Second, time.Minute}[r.IntN(2)]}
		var limit weir.Limit = weir.SmoothBursty{Rate: rate, MaxBurst: time.Duration(1+r.IntN(5)) * time.Second}
		if r.IntN(2) == 0 {
			limit = weir.WarmUp{Rate: rate, Period: time.Duration(1+r.IntN(9)) * time.Second, ColdFactor: []float64{1.5, 2, 3, 4.25}[r.IntN(4)]}
		}
		p, err := weir.Prepare(limit, 1)
		if err != nil {
			t.Fatal(err)
		}
		g := newGuava(limit)
		var clock weirtest.Clock
		l := newLimiter(t, limit, weir.WithClock(clock.Now))
		for charges := range int64(20) {
			permits := 1 + r.Int64N(min(max(p.Peek(nil, 0, 0).Limit, 2), 40))
			now := clock.Now() / 1000
			res, ok := l.Reserve(permits, -1)
			if !ok {
				t.Fatalf("%+v: refused: %+v", limit, res.Decision())
			}
			goes := time.Duration(max(g.reserve(now, float64(permits))-now, 0)) * time.Microsecond
			// Floating point may be wrong by a hundredth of a microsecond.
			if off := (res.Delay() - goes).Abs(); off > time.Duration(2*charges)*time.Microsecond+10*time.Nanosecond {
				t.Fatalf("%+v: charge %d is due in %v, Guava's in %v", limit, charges, res.Delay(), goes)
			}
			if r.IntN(3) > 0 { // go on at Weir's due time, which is not earlier
				clock.Set(clock.Now() + (int64(res.Delay())/1000+r.Int64N(500_000))*1000)
			}
		}
	}
}
