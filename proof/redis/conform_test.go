package redis

import (
	"flag"
	"math/rand/v2"
	"testing"
	"time"
	_ "time/tzdata"

	"github.com/weirflow/weir"
	"github.com/weirflow/weir/proof/servers"
	"github.com/weirflow/weir/weirtest"
)

// walks is how many random walks there are for each limit, and seed where they begin.
var (
	walks = flag.Int("walks", 0, "how many random walks of each limit; 0 for the few of a short run")
	seed  = flag.Uint64("seed", 0, "of the random walks; 0 draws one")
)

// TestConform holds the scripts to the reference model.
func TestConform(t *testing.T) {
	w := &world{client: connect(t, start(t, servers.RedisOptions{}).Addr)}
	s := weirtest.Subject{Tick: time.Microsecond, Latest: 1 << 52, Open: w.open, Limits: limits(), Seed: *seed, Walks: *walks}
	weirtest.Conform(t, s)
	weirtest.Vectors(t, s)
}

// limits are the generators of what Redis keeps.
func limits() []func(*rand.Rand) weir.Limit {
	var singles []func(*rand.Rand) weir.Limit
	for _, i := range []int{0, 1, 4, 6, 7, 8} {
		singles = append(singles, weirtest.Limits()[i])
	}
	singles = append(singles, longWindow, longLog, unlimited)
	return append(singles, func(r *rand.Rand) weir.Limit {
		parts := make([]weir.Limit, 1+r.IntN(4))
		for i := range parts {
			parts[i] = singles[r.IntN(len(singles))](r)
		}
		return weir.All(parts...)
	})
}

// unlimited draws one of those that may have a rate without end.
func unlimited(r *rand.Rand) weir.Limit {
	if r.IntN(2) == 0 {
		return weir.SmoothBursty{Rate: weir.Unlimited, MaxBurst: []time.Duration{0, -1, time.Minute}[r.IntN(3)]}
	}
	return weir.WarmUp{Rate: weir.Unlimited, Period: time.Second}
}

// longWindow draws one of many slots.
func longWindow(r *rand.Rand) weir.Limit {
	l := weir.SlidingWindow{Limit: 1 + r.Int64N(100), Slots: []int{7, 60, 4096}[r.IntN(3)]}
	l.Window = time.Duration(l.Slots) * []time.Duration{time.Microsecond, 100 * time.Microsecond, time.Second}[r.IntN(3)]
	if r.IntN(2) == 0 {
		l.SlotLimit = 1 + r.Int64N(min(l.Limit, 5))
	}
	return l
}

// longLog draws one of many entries.
func longLog(r *rand.Rand) weir.Limit {
	return weir.SlidingLog{
		Limit:      1 + r.Int64N(300),
		Window:     []time.Duration{3 * time.Microsecond, 300 * time.Microsecond, time.Second, time.Hour}[r.IntN(4)],
		MaxEntries: []int{0, 0, 7, 20}[r.IntN(4)],
	}
}
