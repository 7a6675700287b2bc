package regions

import (
	"testing"
	"time"

	"github.com/weirflow/weir"
	"github.com/weirflow/weir/internal/raced"
)

// TestSharesFollowDemand: what is not guaranteed to a region is where the demand is, two terms after
// it has moved.
func TestSharesFollowDemand(t *testing.T) {
	raced.Skip(t)
	l := weir.TokenBucket{Rate: weir.PerSecond(300), Burst: 300}
	w := newWorld(t, 1, l, []int{10, 10, 10}, []int{4, 4, 4}, Options{Term: 20 * sec})
	for _, r := range w.regions {
		r.offer(1, 1)
	}
	for _, busy := range []int{0, 2, 1} {
		for i, r := range w.regions {
			r.rate = 3
			if i == busy {
				r.rate = 400
			}
		}
		w.run(3 * 20 * sec)
		for _, r := range w.regions {
			now, next := r.nodes[0].s.Share("l")
			t.Log(r.name, now, next, r.calls, r.got, r.nodes[0].s.Stats())
			if r.index == busy && now < 700 || r.index != busy && now > 120 {
				t.Errorf("%s has %d thousandths", r.name, now)
			}
			r.calls, r.got = 0, 0
		}
	}
	w.checkBucket()
	t.Log(w.excess(300/1e9), time.Duration(w.clock.Now()))
}
