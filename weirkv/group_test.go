package weirkv_test

import (
	"testing"

	"github.com/weirflow/weir"
	"github.com/weirflow/weir/weirkv"
	"github.com/weirflow/weir/weirtest"
)

// TestGroupFirstCall: a bucket that starts empty fills from its first call on, also if that call is
// refused in a group. Each refusal forgot the state, and the key was refused for ever.
func TestGroupFirstCall(t *testing.T) {
	var clock weirtest.Clock
	s, err := weirkv.New(&weirkv.Memory{}, weirkv.Options{Clock: clock.Now})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	full := weir.TokenBucket{Rate: weir.PerHour(1), Burst: 5}
	empty := weir.TokenBucket{Rate: weir.PerSecond(100), Burst: 5, Initial: weir.InitialEmpty}
	for tries := range 100 {
		batch := []weir.Charge{{Name: "full", Key: "k", Limit: full, Cost: 1, Group: 1}, {Name: "empty", Key: "k", Limit: empty, Cost: 2, Group: 1}}
		out := make([]weir.Decision, 2)
		if err := s.Do(t.Context(), batch, out); err != nil {
			t.Fatal(err)
		}
		if out[1].Allowed {
			if tries == 0 || out[0].Remaining != 4 {
				t.Errorf("after %d refusals: %+v", tries, out)
			}
			return
		}
		clock.Set(clock.Now() + int64(out[1].RetryAfter))
	}
	t.Error("refused for ever")
}
