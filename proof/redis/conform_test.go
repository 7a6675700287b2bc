package redis

import (
	"flag"
	"math/rand/v2"
	"testing"
	"time"
	_ "time/tzdata"

	"github.com/weirflow/weir"
	"github.com/weirflow/weir/internal/raced"
	"github.com/weirflow/weir/internal/seeds"
	"github.com/weirflow/weir/policy"
	"github.com/weirflow/weir/proof/servers"
	"github.com/weirflow/weir/weirredis"
	"github.com/weirflow/weir/weirrueidis"
	"github.com/weirflow/weir/weirtest"
)

// walks is the number of random walks for each limit.
var walks = flag.Int("walks", 60, "how many random walks of each limit")

// TestConform compares the scripts with the reference model. Every algorithm is changed to every
// other one.
func TestConform(t *testing.T) {
	raced.Skip(t)
	w := &world{client: connect(t, servers.StartRedis(t, servers.RedisOptions{}).Addr)}
	s := weirtest.Subject{Blind: true, Tick: time.Microsecond, Latest: 1 << 52, Open: w.open, Limits: weirtest.StoredLimits(large, longWindow, longLog, unlimited), Seed: seeds.Seed(), Walks: *walks}
	s.Places = func() (policy.Holder, error) { return weirrueidis.New(w.client, patiently(weirredis.Options{})) }
	weirtest.Conform(t, s)
	weirtest.Vectors(t, s)
}

// TestUnchangedPartKeepsItsState is a walk that once differed from the model: a limit of an All
// that does not change while another one does keeps its exact state, also if the clock is set back
// after the change: the key's clock goes on from the charge. A limit that changes keeps what had
// refilled by then: its clock goes on from when it was last empty.
func TestUnchangedPartKeepsItsState(t *testing.T) {
	w := &world{client: connect(t, servers.StartRedis(t, servers.RedisOptions{}).Addr)}
	bucket := weir.TokenBucket{Rate: weir.PerSecond(1), Burst: 1}
	larger := weir.TokenBucket{Rate: weir.PerSecond(1), Burst: 2}
	endless := weir.SmoothBursty{Rate: weir.Unlimited, MaxBurst: -1}
	const begin, change, back = 305 * time.Hour, 4347226 * time.Microsecond, 1644478599 * time.Microsecond
	for name, c := range map[string]struct {
		from, to weir.Limit
		cost     int64
		retry    time.Duration
	}{
		"bursty stays":   {endless, endless, 1, 0},
		"bucket stays":   {bucket, bucket, 1, time.Second},
		"bucket changes": {bucket, larger, 2, 2 * time.Second},
	} {
		clock := new(weirtest.Clock)
		clock.Set(int64(begin))
		taker, err := w.open(weir.All(weir.SlidingLog{Limit: 58, Window: 24 * time.Hour}, c.from), clock)
		if err != nil {
			t.Fatal(err)
		}
		taker.Take("a", 1)
		clock.Set(int64(begin + change))
		if err := taker.(weirtest.Setter).SetLimit(weir.All(c.to, weir.SlidingLog{Limit: 78, Window: 24 * time.Hour})); err != nil {
			t.Fatal(err)
		}
		clock.Set(int64(begin + change - back))
		if d := taker.Take("a", c.cost); d.Allowed != (c.retry == 0) || d.RetryAfter != c.retry {
			t.Errorf("%s: %+v, want %v", name, d, c.retry)
		}
	}
}

// large draws a limit whose products are far beyond 2^53. Its windows are short enough for a
// store's clock to reach the end of one that is reserved a century ahead.
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

// unlimited draws a limit whose rate may be Unlimited.
func unlimited(r *rand.Rand) weir.Limit {
	if r.IntN(2) == 0 {
		return weir.SmoothBursty{Rate: weir.Unlimited, MaxBurst: []time.Duration{0, -1, time.Minute}[r.IntN(3)]}
	}
	return weir.WarmUp{Rate: weir.Unlimited, Period: time.Second}
}

// longWindow draws one with many slots.
func longWindow(r *rand.Rand) weir.Limit {
	l := weir.SlidingWindow{Limit: 1 + r.Int64N(100), Slots: []int{7, 60, 4096}[r.IntN(3)]}
	l.Window = time.Duration(l.Slots) * []time.Duration{time.Microsecond, 100 * time.Microsecond, time.Second}[r.IntN(3)]
	if r.IntN(2) == 0 {
		l.SlotLimit = 1 + r.Int64N(min(l.Limit, 5))
	}
	return l
}

// longLog draws one with many entries.
func longLog(r *rand.Rand) weir.Limit {
	return weir.SlidingLog{
		Limit:      1 + r.Int64N(300),
		Window:     []time.Duration{3 * time.Microsecond, 300 * time.Microsecond, time.Second, time.Hour}[r.IntN(4)],
		MaxEntries: []int{0, 0, 7, 20}[r.IntN(4)],
	}
}
