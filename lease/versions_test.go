package lease

import (
	"math"
	"testing"
	"time"

	"github.com/weirflow/weir"
	"github.com/weirflow/weir/internal/raced"
)

// leasedVersions are limits of about 500 a second. No two of them share a state.
var leasedVersions = []weir.Limit{
	weir.TokenBucket{Rate: weir.PerSecond(500), Burst: 100},
	weir.FixedWindow{Limit: 500, Window: sec},
	weir.FixedWindow{Limit: 300, Window: 700 * ms, Align: weir.AlignFirst},
	weir.SlidingWindow{Limit: 500, Window: sec, Slots: 5},
	weir.SlidingCounter{Limit: 500, Window: sec},
}

// mostLeased is how much a limit admits in any interval of a length: its own bound, and what leases
// add to that of a bucket.
func mostLeased(l weir.Limit, d time.Duration, o Options) float64 {
	times := func(w time.Duration) float64 { return float64(d) / float64(w) }
	switch l := l.(type) {
	case weir.TokenBucket:
		return float64(l.Burst) + float64(l.Rate.N)*float64(d+o.Lifetime)/float64(l.Rate.Per)
	case weir.FixedWindow:
		return float64(l.Limit) * (1 + math.Ceil(times(l.Window)))
	case weir.SlidingWindow:
		return float64(l.Limit) * (1 + math.Ceil(times(l.Window)))
	case weir.SlidingCounter:
		return float64(l.Limit) * (1 + times(l.Window))
	}
	panic(l)
}

// TestTwoVersionsLeased: while a new version of a limit is rolled out and back over nodes that lease,
// all admissions stay within the bounds of both versions together. Callers who always wait are
// admitted at least 95 % of what the smaller version brings.
func TestTwoVersionsLeased(t *testing.T) {
	raced.Skip(t)
	for i, from := range leasedVersions {
		for j, to := range leasedVersions {
			if i == j {
				continue
			}
			o := Options{Lifetime: 100 * ms, MaxOutstanding: 1 << 20}
			w := newWorld(t, uint64(10*i+j), from, 6, o)
			for k, n := range w.nodes {
				n.offer(steadily(400), 1)
				w.clock.AfterFunc(time.Duration(300+200*k)*ms, func() { n.limit = to })
				w.clock.AfterFunc(time.Duration(1800+200*k)*ms, func() { n.limit = from })
			}
			const lasts = 4 * sec
			w.run(lasts)
			for _, d := range []time.Duration{10 * ms, 200 * ms, 690 * ms, sec, 2 * sec, lasts} {
				if n, most := w.within(int64(d)), mostLeased(from, d, o)+mostLeased(to, d, o); float64(n) > most {
					t.Errorf("%T%v and %T%v: %d admitted in %v, the bounds are %.0f together", from, from, to, to, n, d, most)
				}
			}
			_, admitted, _ := w.sums()
			t.Logf("%T and %T: %d admitted in %v, %d round trips", from, to, admitted, lasts, w.roundTrips)
			if least := .95 * 300 / .7 * lasts.Seconds(); float64(admitted) < least {
				t.Errorf("%T%v and %T%v: %d admitted in %v, want at least %.0f", from, from, to, to, admitted, lasts, least)
			}
		}
	}
}
