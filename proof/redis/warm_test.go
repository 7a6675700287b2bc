package redis

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/redis/rueidis"

	"github.com/weirflow/weir"
	"github.com/weirflow/weir/proof/servers"
	"github.com/weirflow/weir/weirredis"
	"github.com/weirflow/weir/weirrueidis"
	"github.com/weirflow/weir/weirtest"
)

// TestWarmStore: after Warm, the first charge of each algorithm, and of a group of them, is one
// call, for any key. Warm itself writes nothing.
func TestWarmStore(t *testing.T) {
	limits := []weir.Limit{
		slow(1000),
		weir.IntervalBucket{Burst: 9, Refill: 1, Every: time.Hour},
		weir.FixedWindow{Limit: 9, Align: "day:Europe/Berlin"},
		weir.SlidingCounter{Limit: 9, Window: time.Hour},
		weir.SlidingWindow{Limit: 9, Window: time.Hour, Slots: 6},
		weir.SlidingLog{Limit: 9, Window: time.Hour},
		weir.WarmUp{Rate: weir.PerHour(1), Period: time.Hour},
	}
	cluster := clustered(t)
	for name, client := range map[string]rueidis.Client{"one server": connect(t, servers.StartRedis(t, servers.RedisOptions{}).Addr), "a cluster": cluster} {
		t.Run(name, func(t *testing.T) {
			e := &tally{Evaler: weirrueidis.Evaler(client), n: map[string]int{}}
			for _, warm := range []bool{true, false} { // the second time the server has the scripts, and only its clock is unknown
				store, err := weirredis.New(e, weirredis.Options{Cluster: client == cluster, Timeout: patience})
				if err != nil {
					t.Fatal(err)
				}
				if warm {
					if err := store.Warm(t.Context(), limits); err != nil {
						t.Fatal(err)
					}
					for _, node := range client.Nodes() {
						if left := node.Do(t.Context(), node.B().Dbsize().Build()); left.Error() != nil || must(left.AsInt64()) != 0 {
							t.Errorf("it left keys: %v", left)
						}
					}
				}
				e.since()
				for n := range 12 { // of all nodes
					l, key := limits[n%len(limits)], fmt.Sprint("k", n, warm)
					if d := do(t, store, weir.Charge{Name: "first", Key: key, Limit: l, Cost: 1}).decision; !d.Allowed {
						t.Errorf("%T: %+v", l, d)
					}
					if got := e.since(); warm && got != "map[ok:1]" || !warm && n == 0 && got == "map[ok:1]" {
						t.Errorf("warm %v, %T of %s: %s", warm, l, key, got)
					}
				}
				if err := store.Close(); err != nil {
					t.Error(err)
				}
			}
		})
	}
}

// TestWarmGroup: the same for a group of several algorithms.
func TestWarmGroup(t *testing.T) {
	e := &tally{Evaler: weirrueidis.Evaler(connect(t, servers.StartRedis(t, servers.RedisOptions{}).Addr)), n: map[string]int{}}
	store, err := weirredis.New(e, weirredis.Options{Timeout: patience})
	if err != nil {
		t.Fatal(err)
	}
	defer store.Close()
	group := []weir.Limit{slow(9), weir.SlidingLog{Limit: 9, Window: time.Hour}}
	if err := store.Warm(t.Context(), group); err != nil {
		t.Fatal(err)
	}
	e.since()
	batch := []weir.Charge{{Name: "a", Key: "k", Limit: group[0], Cost: 1, Group: 1}, {Name: "b", Key: "k", Limit: group[1], Cost: 1, Group: 1}}
	if err := store.Do(t.Context(), batch, make([]weir.Decision, 2)); err != nil {
		t.Fatal(err)
	}
	if got := e.since(); got != "map[ok:1]" {
		t.Errorf("%s", got)
	}
}

// TestAFullWarmUpThatBecomesUnlimited: Redis has dropped a full state, or keeps it for Grace, and
// the model has it. All three are cold when the rate is finite again. Of a state that is not full,
// the store keeps one for each of the two limits, so it is as if it had never been changed.
func TestAFullWarmUpThatBecomesUnlimited(t *testing.T) {
	w := &world{client: connect(t, servers.StartRedis(t, servers.RedisOptions{}).Addr)}
	finite, endless := weir.WarmUp{Rate: weir.PerSecond(5), Period: time.Second}, weir.WarmUp{Rate: weir.Unlimited, Period: time.Second}
	other := weir.TokenBucket{Rate: weir.PerSecond(9), Burst: 100}
	for _, limits := range [][2]weir.Limit{{finite, endless}, {weir.All(finite, other), weir.All(endless, other)}} {
		for _, idle := range []time.Duration{300 * time.Millisecond, 10 * time.Second} {
			clock := new(weirtest.Clock)
			clock.Set(int64(time.Hour))
			taker, err := w.open(limits[0], clock)
			if err != nil {
				t.Fatal(err)
			}
			limiter, err := weir.New(limits[0], weir.WithClock(clock.Now))
			if err != nil {
				t.Fatal(err)
			}
			if got, want := taker.Take("a", 1), limiter.Take(1); got.ResetAfter != want.ResetAfter {
				t.Errorf("%T: %+v, in process %+v", limits[0], got, want)
			}
			clock.Set(int64(time.Hour + idle))
			for _, next := range []weir.Limit{limits[1], limits[0]} {
				err := taker.(weirtest.Setter).SetLimit(next)
				if idle > time.Second { // it is full
					err = errors.Join(err, limiter.SetLimit(next))
				}
				if err != nil {
					t.Fatal(err)
				}
				taker.(weirtest.Peeker).Peek("a", 1) // the state is converted when the key is used
			}
			if got, want := taker.Take("a", 1), limiter.Take(1); got.Remaining != want.Remaining || got.ResetAfter != want.ResetAfter {
				t.Errorf("%T, idle for %v: %+v, in process %+v", limits[0], idle, got, want)
			}
		}
	}
}
