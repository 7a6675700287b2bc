package redis

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/rueidis"

	"github.com/weirflow/weir"
	"github.com/weirflow/weir/group"
	"github.com/weirflow/weir/internal/seeds"
	"github.com/weirflow/weir/proof/servers"
	"github.com/weirflow/weir/weirredis"
)

// TestOutstandingInACluster: on all shards of a real cluster, and while slots move between them, two
// nodes make reservations that overlap and settle those of each other, in any order. Each key is then
// charged exactly what its work has cost.
func TestOutstandingInACluster(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	c, err := servers.Cluster(ctx, servers.ClusterOptions{NodeTimeout: patience})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := c.Stop(); err != nil {
			t.Error(err)
		}
	})
	var nodes [2]*weirredis.Store
	for i := range nodes {
		client, err := rueidis.NewClient(rueidis.ClientOption{InitAddress: c.Addrs(), DisableCache: true})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(client.Close)
		nodes[i] = open(t, client, weirredis.Options{Timeout: patience})
	}
	const keys, burst = 12, 800_000
	limit := weir.TokenBucket{Rate: weir.PerHour(1), Burst: burst}
	var used [keys]atomic.Int64
	var stop atomic.Bool
	var callers sync.WaitGroup
	for i := range 6 {
		callers.Go(func() {
			r := rand.New(rand.NewPCG(seeds.Seed(), uint64(i)))
			type made struct {
				weir.Charge
				key int
			}
			var open []made
			for n := 0; n < 300 || !stop.Load() || len(open) > 0; n++ {
				if len(open) < 8 && (n < 300 || !stop.Load()) {
					k := r.IntN(keys)
					charge := weir.Charge{Name: "api", Key: fmt.Sprint("k", k), Limit: limit, Cost: 1 + r.Int64N(50), Keep: true, Estimate: true}
					if r.IntN(2) == 0 {
						charge.Op, charge.Keep = weir.OpReserve, false
					}
					batch := []weir.Charge{charge}
					if err := nodes[n%2].Do(ctx, batch, make([]weir.Decision, 1)); err != nil {
						t.Error(err)
						return
					}
					open = append(open, made{batch[0], k})
				}
				if len(open) == 8 || r.IntN(2) == 0 && len(open) > 0 {
					j := r.IntN(len(open))
					m := open[j]
					open = slices.Delete(open, j, j+1)
					m.Op, m.Cost = weir.OpSettle, []int64{0, m.Cost, r.Int64N(m.Cost + 1), m.Cost + 5}[r.IntN(4)]
					if err := nodes[r.IntN(2)].Do(ctx, []weir.Charge{m.Charge}, make([]weir.Decision, 1)); err != nil {
						t.Error(err)
						return
					}
					used[m.key].Add(m.Cost)
				}
			}
		})
	}
	defer callers.Wait()
	defer stop.Store(true)
	for k := range keys / 2 { // half of the keys move while they are in use
		slot, err := c.Slot(ctx, fmt.Sprint("{k", k, "}"))
		if err != nil {
			t.Fatal(err)
		}
		owner, err := c.Owner(ctx, slot)
		if err != nil {
			t.Fatal(err)
		}
		to := c.Masters[(slices.Index(c.Masters, owner)+1)%len(c.Masters)]
		if err := c.MoveSlot(ctx, slot, owner, to); err != nil {
			t.Fatal(err)
		}
	}
	stop.Store(true)
	callers.Wait()
	for k := range keys {
		d := do(t, nodes[0], weir.Charge{Name: "api", Key: fmt.Sprint("k", k), Limit: limit, Op: weir.OpPeek}).decision
		if n := used[k].Load(); burst-d.Remaining != n {
			t.Errorf("k%d: %d are charged, and its work has cost %d", k, burst-d.Remaining, n)
		}
	}
	if n := nodes[0].Inexact() + nodes[1].Inexact(); n > 0 {
		t.Errorf("%d reservations were too many", n)
	}
}

// TestSettledAtItsCostIsForgotten: a reservation whose work cost exactly what was reserved left its
// entry in the state, for as long as the bucket was not full, or 15 minutes. Limits without such a
// list are not called.
func TestSettledAtItsCostIsForgotten(t *testing.T) {
	server := servers.StartRedis(t, servers.RedisOptions{})
	client := connect(t, server.Addr)
	store := open(t, client, weirredis.Options{Timeout: patience, Tag: func(string, string) string { return "t" }})
	bucket := weir.TokenBucket{Rate: weir.PerDay(1), Burst: 1000}
	plain := map[string]int64{}
	for name, limit := range map[string]weir.Limit{
		"bucket": bucket,
		"window": weir.FixedWindow{Limit: 1000, Window: 24 * time.Hour},
		"all":    weir.All(weir.FixedWindow{Limit: 1000, Window: 24 * time.Hour}, bucket),
	} {
		lists := name != "window"
		shared, err := weir.NewShared(limit, store, weir.Named(name))
		if err != nil {
			t.Fatal(err)
		}
		length := func() int64 { return redis(t, client, "STRLEN", "weir:{t}:"+name+":a").(int64) }
		if _, err := shared.Take(t.Context(), "a", 10); err != nil {
			t.Fatal(err)
		}
		plain[name] = length()
		for range 3 { // the first loads the script
			reserved, ok, err := shared.Reserve(t.Context(), "a", 5, 0)
			if err != nil || !ok {
				t.Fatal(ok, err)
			}
			taken, d, err := group.Take(t.Context(), group.Shared(shared, "a", 5).Estimated())
			if err != nil || !d.Allowed {
				t.Fatal(d, err)
			}
			if lists && length() < plain[name]+50 {
				t.Errorf("%s: %d bytes with two reservations, %d without", name, length(), plain[name])
			}
			before := commands(t, server)
			if err := errors.Join(reserved.Settle(t.Context(), 5), taken.Settle(t.Context(), 5)); err != nil {
				t.Error(err)
			}
			after := commands(t, server)
			if calls := after["evalsha"] + after["eval"] - before["evalsha"] - before["eval"]; lists != (calls >= 2) {
				t.Errorf("%s: %d calls", name, calls)
			}
			if n := length(); n > plain[name] {
				t.Errorf("%s: %d bytes after two reservations, %d before", name, n, plain[name])
			}
		}
	}
}

// TestLateSettleSaysSo: a reservation that is settled more than 15 minutes after its work may go stays
// charged, and the caller gets an error.
func TestLateSettleSaysSo(t *testing.T) {
	client := connect(t, servers.StartRedis(t, servers.RedisOptions{}).Addr)
	store := open(t, client, weirredis.Options{ClockKey: "clock", Timeout: patience})
	const begin = 1_700_000_000 * time.Second
	bucket := weir.TokenBucket{Rate: weir.PerDay(24), Burst: 1000}
	for name, limit := range map[string]weir.Limit{"bucket": bucket, "all": weir.All(weir.FixedWindow{Limit: 1000, Window: 24 * time.Hour}, bucket)} {
		shared, err := weir.NewShared(limit, store, weir.Named(name))
		if err != nil {
			t.Fatal(err)
		}
		for _, c := range []struct {
			key    string
			after  time.Duration
			actual int64
			used   int64
			late   bool
		}{
			{"in time", 15 * time.Minute, 10, 110, false},
			{"late", 15*time.Minute + time.Millisecond, 10, 200, true},
			{"late, and as estimated", 16 * time.Minute, 100, 200, false},
			{"late, and more", 16 * time.Minute, 150, 250, false},
			{"late, but full since", 12 * 24 * time.Hour, 10, 0, false},
		} {
			clockAt(t, client, begin)
			reserve := func() *weir.SharedReservation {
				r, ok, err := shared.Reserve(t.Context(), c.key, 100, 0)
				if err != nil || !ok {
					t.Fatal(ok, err)
				}
				return r
			}
			first := reserve()
			reserve()
			clockAt(t, client, begin+c.after)
			err := first.Settle(t.Context(), c.actual)
			if c.late != errors.Is(err, weir.ErrExpired) || c.late != errors.Is(err, weir.ErrCharge) || !c.late && err != nil {
				t.Errorf("%s, %s: %v", name, c.key, err)
			}
			clockAt(t, client, begin+max(c.after, 24*time.Hour-time.Hour)) // the window is open
			if name != "bucket" {
				continue
			}
			d, err := shared.Peek(t.Context(), c.key, 0)
			if drained := int64((max(c.after, 23*time.Hour)) / time.Hour); err != nil || d.Remaining != min(1000-c.used+drained, 1000) {
				t.Errorf("%s: %d remain after %d hours, %v", c.key, d.Remaining, drained, err)
			}
		}
	}
}

// TestCostOfManyOutstanding measures what the most reservations of a key cost: the bytes of its state,
// and the server's time for a call. docs/guarantees.md has the figures of a run with -v.
func TestCostOfManyOutstanding(t *testing.T) {
	server := servers.StartRedis(t, servers.RedisOptions{})
	client := connect(t, server.Addr)
	store := open(t, client, weirredis.Options{Timeout: patience})
	for _, limit := range []weir.Limit{
		weir.TokenBucket{Rate: weir.Rate{N: 100_003, Per: time.Minute}, Burst: 1 << 40},
		weir.IntervalBucket{Burst: 1 << 40, Refill: 100_003, Every: time.Minute},
		weir.WarmUp{Rate: weir.PerSecond(100), Period: 10 * time.Second},
		weir.WarmUp{Rate: weir.PerSecond(333), Period: 10 * time.Second, ColdFactor: 1.3},
	} {
		costOfMany(t, server, client, store, limit)
	}
}

func costOfMany(t *testing.T, server *servers.RedisServer, client rueidis.Client, store *weirredis.Store, limit weir.Limit) {
	t.Helper()
	name := fmt.Sprintf("%T%v", limit, limit)
	within, cost := time.Duration(0), int64(1_000_000)
	if _, ok := limit.(weir.WarmUp); ok {
		within, cost = -1, 10 // all but the first are delayed, and all are cold
	}
	micros := func() (us int) {
		info, err := server.Info(t.Context(), "commandstats")
		if err != nil {
			t.Fatal(err)
		}
		for name, text := range info {
			var calls, spent int
			if _, err := fmt.Sscanf(text, "calls=%d,usec=%d,", &calls, &spent); err == nil && strings.HasPrefix(name, "cmdstat_eval") {
				us += spent
			}
		}
		return us
	}
	for _, outstanding := range []int{0, 1, 16, 64, 256} {
		key := fmt.Sprint(outstanding)
		reserve := weir.Charge{Name: name, Key: key, Limit: limit, Cost: cost, Op: weir.OpReserve, Within: within, Estimate: true}
		take := weir.Charge{Name: name, Key: key, Limit: limit, Cost: 1000}
		for range outstanding {
			do(t, store, reserve)
			do(t, store, take) // a charge after each reservation: the longest list
		}
		mean := func(call func()) float64 {
			const calls = 200
			call()
			before := micros()
			for range calls {
				call()
			}
			return float64(micros()-before) / calls
		}
		took := mean(func() { do(t, store, take) })
		length := redis(t, client, "STRLEN", strings.Replace(at(key), "api", name, 1))
		both := 0.0
		if outstanding < 256 {
			both = mean(func() {
				c := do(t, store, reserve).Charge
				c.Op, c.Cost = weir.OpSettle, cost/10
				do(t, store, c)
			})
		}
		t.Logf("%s, %d outstanding: %v bytes, %.0f us for a take, %.0f us for a reservation and its settling", name, outstanding, length, took, both)
		if n, _ := length.(int64); n > 100+int64(outstanding)*80 {
			t.Errorf("%s, %d outstanding: %d bytes", name, outstanding, n)
		}
	}
}
