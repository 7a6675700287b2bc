package weirkv

import (
	"context"
	"fmt"
	"math/rand/v2"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirflow/weir"
	"github.com/weirflow/weir/internal/seeds"
	"github.com/weirflow/weir/weirtest"
)

// TestSkew: nodes whose clocks differ by at most s admit no more than Burst + Rate*(D+s) in any time D, and
// as much as one clock would in the long run, also once the node with the fastest clock has stopped.
func TestSkew(t *testing.T) {
	const burst, rate = 20, 10 // each second
	limit := weir.TokenBucket{Rate: weir.PerSecond(rate), Burst: burst}
	for _, behind := range [][]time.Duration{
		{0, 300 * time.Millisecond}, {0, 5 * time.Second}, {0, time.Hour}, {0, time.Hour, time.Hour + 20*time.Second}, {0, 10 * time.Minute, 500 * time.Millisecond, time.Hour},
	} {
		t.Run(fmt.Sprint(behind), func(t *testing.T) {
			random := seeds.Of(fmt.Sprint("skew", behind))
			kv, skew := new(Memory), time.Duration(0)
			var clock weirtest.Clock
			var nodes []*Store
			for _, b := range behind {
				skew = max(skew, b)
				nodes = append(nodes, open(t, kv, Options{Clock: func() int64 { return clock.Now() - int64(b) }}))
			}
			start, now := int64(100*time.Hour), int64(100*time.Hour)
			var admitted []int64
			take := func(n *Store) {
				clock.Set(now)
				if _, d := do(t, n, weir.Charge{Limit: limit, Cost: 1}); d.Allowed {
					admitted = append(admitted, now)
				}
				item, _ := kv.Get(t.Context(), n.key("limit", "k"))
				if e, err := n.limits.readEntry(item.Value, 0); err != nil || e.clock.last > now/int64(unit) {
					t.Fatalf("the key's clock is ahead of all clocks: %v, %v", e, err)
				}
			}
			for now < start+int64(20*time.Second) { // all nodes, at random and in turn
				take(nodes[random.IntN(len(nodes))])
				now += random.Int64N(int64(40 * time.Millisecond))
			}
			both := len(admitted)
			stops := now
			for now < stops+int64(20*time.Second) { // the fastest has stopped
				take(nodes[1+random.IntN(len(nodes)-1)])
				now += random.Int64N(int64(40 * time.Millisecond))
			}
			for i := range admitted {
				for j := i; j < len(admitted); j++ {
					d := time.Duration(admitted[j]-admitted[i]) + skew
					if n := int64(j - i + 1); n > burst+int64(rate*d/time.Second) {
						t.Fatalf("%d were admitted within %v, which is over the bound of %d", n, d-skew, burst+int64(rate*d/time.Second))
					}
				}
			}
			if after := len(admitted) - both; both < 20*rate || after < 17*rate {
				t.Errorf("%d were admitted in the first 20 s, and %d in the next", both, after)
			}
			if keys, _ := nodes[1].ClockSteps(); (skew > time.Second) != (keys > 0) {
				t.Errorf("%d clock steps with a skew of %v", keys, skew)
			}
		})
	}
}

// TestSkewOfReaders: a node that is behind, and whose calls are all refused, waits no longer than it was told:
// the key's clock goes on, although a refusal charges nothing.
func TestSkewOfReaders(t *testing.T) {
	var clock weirtest.Clock
	clock.Set(int64(10 * time.Hour))
	kv := new(Memory)
	fast := open(t, kv, Options{Clock: clock.Now})
	slow := open(t, kv, Options{Clock: func() int64 { return clock.Now() - int64(time.Hour) }})
	limit := weir.TokenBucket{Rate: weir.PerSecond(1), Burst: 3}
	do(t, fast, weir.Charge{Limit: limit, Cost: 3})
	for range 10 {
		_, d := do(t, slow, weir.Charge{Limit: limit, Cost: 2})
		if d.Allowed {
			return
		}
		if d.RetryAfter > 2*time.Second {
			t.Fatalf("%+v", d)
		}
		clock.Set(clock.Now() + int64(300*time.Millisecond))
	}
	t.Error("refused for 3 s, with a wait of 2 s")
}

// clocked is a KV with a clock of its own, to which a trip takes some time.
type clocked struct {
	Memory
	ahead  time.Duration
	random *rand.Rand
}

func (k *clocked) Now(context.Context) (time.Time, error) {
	there, back := time.Duration(k.random.IntN(5000))*time.Microsecond, time.Duration(k.random.IntN(5000))*time.Microsecond
	<-time.After(there)
	now := time.Now().Add(k.ahead)
	<-time.After(back)
	return now, nil
}

// TestStoreClock: a node's clock is corrected by that of a store that tells the time, to half a round trip.
func TestStoreClock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := open(t, &clocked{ahead: time.Hour, random: seeds.Of("store clock")}, Options{})
		synctest.Wait()
		<-time.After(time.Second)
		off := time.Duration(s.clock.now())*unit - time.Duration(time.Now().UnixNano()) - time.Hour
		if off < -5*time.Millisecond || off > 5*time.Millisecond {
			t.Errorf("off by %v", off)
		}
		_ = s.Close()
	})
}
