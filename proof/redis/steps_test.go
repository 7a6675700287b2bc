package redis

import (
	"fmt"
	"net"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/rueidis"

	"github.com/weirflow/weir"
	"github.com/weirflow/weir/proof/servers"
	"github.com/weirflow/weir/weirredis"
	"github.com/weirflow/weir/weirtest"
)

// steppedLimits are a limit of each algorithm, each of 20 at once and 20 in a second.
func steppedLimits() map[string]weir.Limit {
	rate := weir.PerSecond(20)
	return map[string]weir.Limit{
		"token_bucket":    weir.TokenBucket{Rate: rate, Burst: 20},
		"leaky_bucket":    weir.LeakyBucket{Rate: rate, Queue: 19, DelayAfter: 19},
		"interval_bucket": weir.IntervalBucket{Burst: 20, Refill: 20, Every: time.Second},
		"fixed_window":    weir.FixedWindow{Limit: 20, Window: time.Second},
		"sliding_window":  weir.SlidingWindow{Limit: 20, Window: time.Second, Slots: 10},
		"sliding_counter": weir.SlidingCounter{Limit: 20, Window: time.Second},
		"sliding_log":     weir.SlidingLog{Limit: 20, Window: time.Second},
		"smooth_bursty":   weir.SmoothBursty{Rate: rate, MaxBurst: time.Second},
		"warm_up":         weir.WarmUp{Rate: rate, Period: time.Second, ColdFactor: 1},
		"all":             weir.All(weir.TokenBucket{Rate: rate, Burst: 20}, weir.FixedWindow{Limit: 20, Window: time.Second}),
	}
}

// TestPromotedReplicaWithASlowerClock: a master is killed, and its replica, whose clock is five
// minutes behind, is promoted. Every key was used up at that moment. Each is admitted again within
// the time in which its limit comes back, and gets its rate, and no more than one capacity on top.
//
// The scripts read the clock of each server from a key of it, as redis-server does not run with a
// clock of its own: libfaketime and jemalloc call each other without end.
func TestPromotedReplicaWithASlowerClock(t *testing.T) {
	master := servers.StartRedis(t, servers.RedisOptions{})
	host, port, err := net.SplitHostPort(master.Addr)
	if err != nil {
		t.Fatal(err)
	}
	replica := servers.StartRedis(t, servers.RedisOptions{Config: []string{"replicaof " + host + " " + port}})
	const begin, behind, step = 1_700_000_000 * time.Second, 5 * time.Minute, 10 * time.Millisecond
	limits := steppedLimits()
	node := func(client rueidis.Client) *weirredis.Store {
		return open(t, client, weirredis.Options{ClockKey: "clock", Timeout: patience})
	}
	takes := func(s *weirredis.Store, n int) (admitted map[string]int64) {
		var batch []weir.Charge
		for name, l := range limits {
			for range n {
				batch = append(batch, weir.Charge{Name: name, Key: "a", Limit: l, Cost: 1})
			}
		}
		out := make([]weir.Decision, len(batch))
		if err := s.Do(t.Context(), batch, out); err != nil {
			t.Fatal(err)
		}
		admitted = map[string]int64{}
		for i, d := range out {
			if d.Allowed {
				admitted[batch[i].Name]++
			}
		}
		return admitted
	}
	client := connect(t, master.Addr)
	store := node(client)
	for i := range 200 {
		clockAt(t, client, begin+time.Duration(i)*step)
		takes(store, 3)
	}
	if n := redis(t, client, "WAIT", "1", fmt.Sprint(patience.Milliseconds())); n != int64(1) {
		t.Fatalf("%v replicas have it all", n)
	}
	master.Kill()
	if _, err := replica.Do(t.Context(), "REPLICAOF", "NO", "ONE"); err != nil {
		t.Fatal(err)
	}
	client = connect(t, replica.Addr)
	store = node(client)
	var calls atomic.Int64
	store.OnClockStep(func(time.Duration) { calls.Add(1) })
	first, sum := map[string]int{}, map[string]int64{}
	const steps = 500
	for i := range steps {
		clockAt(t, client, begin+200*step-behind+time.Duration(i)*step)
		for name, n := range takes(store, 3) {
			if sum[name] == 0 {
				first[name] = i
			}
			sum[name] += n
		}
	}
	for name := range limits {
		t.Logf("%s: first admitted after %v, then %d in %v", name, time.Duration(first[name])*step, sum[name], steps*step)
		if sum[name] == 0 || time.Duration(first[name])*step > time.Second {
			t.Errorf("%s: first admitted after %v", name, time.Duration(first[name])*step)
		}
		if most := 20 + 20*int64(steps*step/time.Second); sum[name] > most || sum[name] < most-50 {
			t.Errorf("%s: %d admitted in %v: from %d to %d may be", name, sum[name], steps*step, most-50, most)
		}
	}
	if seen := store.ClockSteps(); calls.Load() != 1 || seen.Keys != uint64(len(limits)) || seen.Last.IsZero() {
		t.Errorf("called %d times; %+v", calls.Load(), seen)
	}
}

// TestClockStepInOneRoundTrip: a key whose clock goes on admits again within two seconds, and costs
// no more round trips than before, also by the short script.
func TestClockStepInOneRoundTrip(t *testing.T) {
	server := servers.StartRedis(t, servers.RedisOptions{})
	client := connect(t, server.Addr)
	store := open(t, client, weirredis.Options{ClockKey: "clock", Timeout: patience})
	for name, l := range steppedLimits() {
		c := weir.Charge{Name: name, Key: "a", Limit: l, Cost: 1}
		clockAt(t, client, 1_700_000_000*time.Second)
		for range 30 {
			do(t, store, c)
		}
		for i := range 3 {
			clockAt(t, client, 1_600_000_000*time.Second+time.Duration(i)*2*time.Second)
			before := commands(t, server)
			if d := do(t, store, c).decision; d.Allowed != (i > 0) || d.RetryAfter > 2*time.Second {
				t.Errorf("%s: %+v, %v after the step", name, d, time.Duration(i)*2*time.Second)
			}
			if after := commands(t, server); after["evalsha"]-before["evalsha"] != 1 {
				t.Errorf("%s: %d round trips, %v after the step", name, after["evalsha"]-before["evalsha"], time.Duration(i)*2*time.Second)
			}
		}
	}
}

// TestAHundredOfFifteen is a log of 15 in a window that once admitted 100, while the clock swung and
// what was reserved by the later time was cancelled.
func TestAHundredOfFifteen(t *testing.T) {
	client := connect(t, servers.StartRedis(t, servers.RedisOptions{}).Addr)
	store := open(t, client, weirredis.Options{ClockKey: "clock", Timeout: patience, Grace: time.Hour})
	c := weir.Charge{Name: "log", Key: "a", Limit: weir.SlidingLog{Limit: 15, Window: time.Second}, Cost: 1}
	const low = 1_700_000_000 * time.Second
	admitted := 0
	for i := range 20 {
		clockAt(t, client, low+time.Duration(i)*time.Millisecond)
		for range 5 {
			if do(t, store, c).decision.Allowed {
				admitted++
			}
		}
		clockAt(t, client, low+1500*time.Millisecond+time.Duration(i)*time.Millisecond)
		ahead := c
		ahead.Op, ahead.Within = weir.OpReserve, 0
		if made := do(t, store, ahead); made.decision.Allowed {
			made.Op, made.Cost = weir.OpSettle, 0
			do(t, store, made.Charge)
		}
	}
	if admitted > 2*15 { // one capacity comes on top, as after each first step forward
		t.Errorf("%d admitted in 20 ms", admitted)
	}
}

// TestKeysKnowHowFarTheClockIsBehind: a key is kept for as long as the server's clock is behind it, but
// no more than a day longer than its limit is in use.
func TestKeysKnowHowFarTheClockIsBehind(t *testing.T) {
	client := connect(t, servers.StartRedis(t, servers.RedisOptions{}).Addr)
	const grace = time.Hour
	store := open(t, client, weirredis.Options{ClockKey: "clock", Timeout: patience, Grace: grace})
	began := time.Now()
	for name, c := range map[string]struct {
		behind, kept time.Duration
	}{"an hour": {time.Hour, time.Hour + 5*time.Second + grace}, "a century": {36_500 * day, day + 5*time.Second + grace}} {
		take := weir.Charge{Name: "api", Key: name, Limit: weir.TokenBucket{Rate: weir.PerSecond(1), Burst: 5}, Cost: 5}
		clockAt(t, client, 5_000_000_000*time.Second)
		do(t, store, take)
		clockAt(t, client, 5_000_000_000*time.Second-c.behind)
		if d := do(t, store, take).decision; d.Allowed || d.RetryAfter != 5*time.Second {
			t.Errorf("%s: %+v", name, d)
		}
		clockAt(t, client, 5_000_000_005*time.Second-c.behind)
		d := do(t, store, take).decision
		if left := lives(t, client, "weir:{"+name+"}:api"); !d.Allowed || left > c.kept+2*time.Millisecond || left < c.kept-time.Since(began)-time.Second {
			t.Errorf("%s: kept for %v, want %v; %+v", name, left, c.kept, d)
		}
	}
}

// TestStepBackByLessThanARest: the short script, and not the other one, overlooked a step back of the
// server's clock to a time that lies before the latest charge by less than a clock unit.
func TestStepBackByLessThanARest(t *testing.T) {
	w := &world{client: connect(t, servers.StartRedis(t, servers.RedisOptions{}).Addr)}
	limit := weir.LeakyBucket{Rate: weir.Rate{N: 2, Per: 3 * time.Microsecond}, Queue: 3}
	const begin = 16777220 * time.Microsecond
	clock := new(weirtest.Clock)
	clock.Set(int64(begin))
	taker, err := w.open(limit, clock)
	if err != nil {
		t.Fatal(err)
	}
	model := weirtest.NewVersions(time.Microsecond)
	for _, at := range []time.Duration{begin, begin - 2*time.Microsecond} {
		clock.Set(int64(at))
		got, want := taker.Take("a", 3), model.Take(limit, at.Microseconds(), 3)
		if text := differ(got, want, 0, 0); text != "" {
			t.Errorf("at %v: %s", at, text)
		}
	}
}
