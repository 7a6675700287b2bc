package redis

import (
	"math/rand/v2"
	"testing"
	"time"
	_ "time/tzdata"

	"github.com/weirflow/weir"
	"github.com/weirflow/weir/proof/servers"
	"github.com/weirflow/weir/weirtest"
)

// TestConform holds the scripts to the reference model. Every kind of limit is changed to every other one.
func TestConform(t *testing.T) {
	w := &world{client: connect(t, start(t, servers.RedisOptions{}).Addr)}
	weirtest.Conform(t, weirtest.Subject{Tick: time.Microsecond, Latest: 1 << 52, Open: w.open, Limits: kept()})
}

// kept is a generator for each kind of limit that is kept in Redis, and one for All of them.
func kept() []func(*rand.Rand) weir.Limit {
	const token, leaky, interval, fixed, counter, bursty = 0, 1, 2, 3, 5, 7
	all := weirtest.Limits()
	single := []func(*rand.Rand) weir.Limit{all[token], all[leaky], all[interval], all[fixed], all[counter], all[bursty], large}
	return append(single, func(r *rand.Rand) weir.Limit {
		parts := make([]weir.Limit, []int{1, 2, 2, 3, 3, 4, 8}[r.IntN(7)])
		for i := range parts {
			parts[i] = single[r.IntN(len(single))](r)
		}
		return weir.All(parts...)
	})
}

// large is a limit of which products are far beyond 2^53. Windows are no longer than lets the clock of a store reach the end of one that is booked
// ahead by a century.
func large(r *rand.Rand) weir.Limit {
	number := func() int64 {
		return []int64{1<<53 - 1 - r.Int64N(4), 1 + r.Int64N(1<<53-1), 1 + r.Int64N(1<<20)}[r.IntN(3)]
	}
	span := func() time.Duration {
		return time.Duration(1+r.Int64N([]int64{1 << 50, 1 << 36, 1 << 21}[r.IntN(3)])) * time.Microsecond
	}
	for {
		limits := []weir.Limit{
			weir.IntervalBucket{Burst: number(), Refill: number(), Every: span()},
			weir.FixedWindow{Limit: number(), Window: span(), Align: []weir.Align{weir.AlignEpoch, weir.AlignFirst}[r.IntN(2)]},
			weir.SlidingCounter{Limit: number(), Window: span()},
			weir.SlidingCounter{Limit: number(), Window: 36525*24*time.Hour - span().Truncate(time.Minute)},
		}
		if l := limits[r.IntN(len(limits))]; l.Validate() == nil {
			return l
		}
	}
}
