package failover

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirflow/weir"
)

// sluggish is a store that takes a second.
type sluggish struct{ weir.Store }

func (sluggish) Do(context.Context, []weir.Charge, []weir.Decision) error {
	time.Sleep(time.Second)
	return nil
}

// TestOnCall: each call is measured to its end, also where its caller has left before.
func TestOnCall(t *testing.T) {
	for _, direct := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			var took []time.Duration
			s, err := New(sluggish{}, Options{OnFailure: Allow, Direct: direct, Deadline: 20 * time.Millisecond, OnCall: func(d time.Duration) { took = append(took, d) }})
			if err != nil {
				t.Fatal(err)
			}
			defer s.Close()
			batch := []weir.Charge{{Name: "a", Key: "k", Limit: weir.TokenBucket{Rate: weir.PerSecond(1), Burst: 1}, Cost: 1}}
			_ = s.Do(t.Context(), batch, make([]weir.Decision, 1))
			time.Sleep(2 * time.Second)
			synctest.Wait()
			if len(took) != 1 || took[0] != time.Second {
				t.Errorf("direct=%v: %v", direct, took)
			}
		})
	}
}
