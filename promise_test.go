package weir_test

import (
	"testing"
	"time"

	"github.com/weirflow/weir"
)

// TestASettlementKeepsWhatWasPromised: settling a charge upwards lets no caller go before one that
// was promised a time. (The conformance suite found that SlidingWindow did.)
func TestASettlementKeepsWhatWasPromised(t *testing.T) {
	for _, limit := range []weir.Limit{
		weir.IntervalBucket{Burst: 2, Refill: 2, Every: time.Minute},
		weir.FixedWindow{Limit: 2, Window: time.Minute},
		weir.SlidingWindow{Limit: 4, Window: 6 * time.Minute, Slots: 6, SlotLimit: 2},
		weir.SlidingLog{Limit: 2, Window: time.Minute},
	} {
		l, _ := onClock(t, limit)
		free, _ := l.Reserve(0, 0)
		l.Take(2)
		promised, ok := l.Reserve(1, -1)
		if !ok || promised.Delay() <= 0 {
			t.Fatalf("%+v: %v after %v", limit, ok, promised.Delay())
		}
		free.Settle(1)
		promised.Cancel()
		if d := l.Take(1); d.Allowed {
			t.Errorf("%T: %+v", limit, d)
		}
	}
}
