package redis

import (
	"flag"
	"math/rand/v2"
	"testing"
	"time"
	_ "time/tzdata"

	"github.com/weirflow/weir"
	"github.com/weirflow/weir/internal/seeds"
	"github.com/weirflow/weir/policy"
	"github.com/weirflow/weir/proof/servers"
	"github.com/weirflow/weir/weirredis"
	"github.com/weirflow/weir/weirrueidis"
	"github.com/weirflow/weir/weirtest"
)

// walks is how many random walks there are for each limit.
var walks = flag.Int("walks", 60, "how many random walks of each limit")

// TestConform holds the scripts to the reference model. Every kind of limit is changed to every other one.
func TestConform(t *testing.T) {
	w := &world{client: connect(t, start(t, servers.RedisOptions{}).Addr)}
	s := weirtest.Subject{Blind: true, Tick: time.Microsecond, Latest: 1 << 52, Open: w.open, Limits: kept(), Seed: seeds.Seed(), Walks: *walks}
	s.Places = func() (policy.Holder, error) { return weirrueidis.New(w.client, weirredis.Options{}) }
	weirtest.Conform(t, s)
	weirtest.Vectors(t, s)
}

// TestUnchangedPartKeepsItsState is a walk that once went another way than the model: a limit of an All that stays as it was at a change of
// another one keeps its state to the last digit, also where the clock is set back after the change. One that is changed has nothing taken away
// again of what had come back by then.
func TestUnchangedPartKeepsItsState(t *testing.T) {
	w := &world{client: connect(t, start(t, servers.RedisOptions{}).Addr)}
	bucket := weir.TokenBucket{Rate: weir.PerSecond(1), Burst: 1}
	larger := weir.TokenBucket{Rate: weir.PerSecond(1), Burst: 2}
	endless := weir.SmoothBursty{Rate: weir.Unlimited, MaxBurst: -1}
	const begin, change, back = 305 * time.Hour, 4347226 * time.Microsecond, 1644478599 * time.Microsecond
	for name, c := range map[string]struct {
		from, to weir.Limit
		cost     int64
		retry    time.Duration
	}{
		"bursty stays":   {endless, endless, 1, back - change},
		"bucket stays":   {bucket, bucket, 1, back - change + time.Second},
		"bucket changes": {bucket, larger, 2, back},
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
		if d := taker.Take("a", c.cost); d.Allowed || d.RetryAfter != c.retry {
			t.Errorf("%s: %+v, want %v", name, d, c.retry)
		}
	}
}

// kept is a generator for each kind of limit, for long and large ones, and for All of them.
func kept() []func(*rand.Rand) weir.Limit {
	single := []func(*rand.Rand) weir.Limit{large, longWindow, longLog, unlimited}
	for _, draw := range weirtest.Limits() {
		switch l := draw(rand.New(rand.NewPCG(1, 1))); {
		case weir.PartNames(l) != nil: // there is one below, of all of these
		case isNginx(l): // which no store keeps: it is for those who come from one nginx
		default:
			single = append(single, draw)
		}
	}
	return append(single, func(r *rand.Rand) weir.Limit {
		parts := make([]weir.Limit, []int{1, 2, 2, 3, 3, 4, 8}[r.IntN(7)])
		for i := range parts {
			parts[i] = single[r.IntN(len(single))](r)
		}
		return weir.All(parts...)
	})
}

func isNginx(l weir.Limit) bool { _, ok := l.(weir.NginxBucket); return ok }

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
