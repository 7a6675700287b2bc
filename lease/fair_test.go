package lease

import (
	"testing"
	"time"

	"github.com/weirflow/weir"
	"github.com/weirflow/weir/internal/raced"
)

// TestEqualDemandGetsEqualShares: if all nodes have the same demand, together twice the limit, each gets
// about half of its demand, as without leases. No node stays ahead of another.
func TestEqualDemandGetsEqualShares(t *testing.T) {
	raced.Skip(t)
	for _, l := range append([]weir.Limit{
		weir.TokenBucket{Rate: weir.PerSecond(2000), Burst: 1000},
		weir.TokenBucket{Rate: weir.PerSecond(200), Burst: 100},
	}, windows...) {
		rate := 1000.
		switch l := l.(type) {
		case weir.TokenBucket:
			rate = 2 * float64(l.Rate.N)
		case weir.FixedWindow:
			rate = 2 * float64(l.Limit) / l.Window.Seconds()
		case weir.SlidingWindow:
			rate = 2 * float64(l.Limit) / l.Window.Seconds()
		case weir.SlidingCounter:
			rate = 2 * float64(l.Limit) / l.Window.Seconds()
		}
		w := newWorld(t, 8, l, 8, Options{Lifetime: 250 * ms, MaxOutstanding: 1 << 20})
		for _, n := range w.nodes {
			n.offer(steadily(rate/8), 1)
		}
		w.run(20 * time.Second)
		least, most := 1., 0.
		for _, n := range w.nodes {
			part := float64(n.admitted) / float64(n.offered)
			least, most = min(least, part), max(most, part)
		}
		if t.Logf("%T%v: from %.2f to %.2f of what a node asked for", l, l, least, most); least < .42 || most > .58 {
			t.Error("that is not the same")
		}
	}
}
