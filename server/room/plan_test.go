package room

import (
	"math"
	"testing"
	"time"

	"github.com/weirflow/weir"
)

// TestPlan: the wait is exact, the polls are those of the rules on the page (510 per second for 10,000 visitors,
// about 3500 for 100,000), and the sizes are those of a page and of a short poll.
func TestPlan(t *testing.T) {
	for visitors, polls := range map[int64]float64{10_000: 510, 100_000: 3510} {
		p, err := PlanFor(visitors, weir.PerSecond(20))
		if err != nil {
			t.Fatal(err)
		}
		if p.Wait != time.Duration(visitors)*50*time.Millisecond || math.Abs(p.PeakPolls-polls) > polls/100 {
			t.Errorf("%d visitors: %v, %.0f polls per second", visitors, p.Wait, p.PeakPolls)
		}
		if p.PageBytes < 4000 || p.PageBytes > 20_000 || p.PollBytes < 1000 || p.PollBytes > 2500 {
			t.Errorf("page %d, poll %d bytes", p.PageBytes, p.PollBytes)
		}
	}
	if p, err := PlanFor(0, weir.PerSecond(1)); err != nil || p.Wait != 0 || p.Bytes != 0 {
		t.Errorf("%+v %v", p, err)
	}
}
