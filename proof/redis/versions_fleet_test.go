package redis

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/rueidis"

	"github.com/weirflow/weir"
	"github.com/weirflow/weir/internal/seeds"
	leasing "github.com/weirflow/weir/lease"
	"github.com/weirflow/weir/proof/servers"
	"github.com/weirflow/weir/weirredis"
	"github.com/weirflow/weir/weirtest"
)

// Versions that share no state, and have windows that no test outlasts.
var (
	fixed100  = weir.FixedWindow{Limit: 100, Window: 1000 * time.Hour, Align: weir.AlignFirst}
	log60     = weir.SlidingLog{Limit: 60, Window: 1000 * time.Hour}
	counter80 = weir.SlidingCounter{Limit: 80, Window: 100_000 * time.Hour}
)

// TestReceiptOfAnEvictedVersion: a reservation is made while the versions A and B are in use. Then a
// third version C takes the place of A. What the reservation did not cost goes back to B, once, and not
// to C, which took it over from A. What it cost more counts for both. A store in memory does the same.
func TestReceiptOfAnEvictedVersion(t *testing.T) {
	client := connect(t, servers.StartRedis(t, servers.RedisOptions{}).Addr)
	const begin = 1_700_000_000 * time.Second
	clock := new(weirtest.Clock)
	for name, store := range map[string]weir.Store{
		"redis":  open(t, client, weirredis.Options{ClockKey: "clock", Timeout: patience}),
		"memory": weirtest.NewStore(clock.Now),
	} {
		for _, c := range []struct{ actual, ofB, ofC int64 }{{0, 56, 26}, {10, 46, 26}, {50, 6, 26}, {52, 4, 24}, {999, 0, 0}} {
			key := fmt.Sprint("settled for ", c.actual)
			at := func(d time.Duration) {
				clockAt(t, client, begin+d)
				clock.Set(int64(begin + d))
			}
			call := func(l weir.Limit, cost int64, op weir.Op, receipt weir.Receipt) (weir.Charge, weir.Decision) {
				t.Helper()
				batch, out := []weir.Charge{{Name: "api", Key: key, Limit: l, Cost: cost, Op: op, Keep: op == weir.OpTake, Receipt: receipt}}, make([]weir.Decision, 1)
				if err := store.Do(t.Context(), batch, out); err != nil {
					t.Fatalf("%s: %v", name, err)
				}
				return batch[0], out[0]
			}
			at(0)
			call(fixed100, 1, weir.OpTake, "") // A
			call(log60, 1, weir.OpTake, "")    // B
			made, d := call(fixed100, 50, weir.OpTake, "")
			if !d.Allowed || made.Receipt == "" {
				t.Fatalf("%s: %+v", name, d)
			}
			at(30 * time.Second)
			call(log60, 1, weir.OpTake, "")
			at(61 * time.Second) // A has rested, and B has not
			call(counter80, 1, weir.OpTake, "")
			call(fixed100, c.actual, weir.OpSettle, made.Receipt)
			if c.actual < made.Cost { // the first settlement wins
				call(fixed100, 0, weir.OpSettle, made.Receipt)
			}
			_, b := call(log60, 0, weir.OpPeek, "")
			_, third := call(counter80, 0, weir.OpPeek, "")
			if b.Remaining != c.ofB || third.Remaining != c.ofC {
				t.Errorf("%s, %s: %d of B and %d of C remain, want %d and %d", name, key, b.Remaining, third.Remaining, c.ofB, c.ofC)
			}
		}
	}
}

// TestTwoVersionsInACluster: on all shards of a real cluster, and while slots move between them, half
// of the nodes have another version of the limit. Each key admits what the two versions together
// bound, and what a refused group took is given back to both.
func TestTwoVersionsInACluster(t *testing.T) {
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
	nodes := make([]*weirredis.Store, 2) // neither knows the other's limit
	for i := range nodes {
		client, err := rueidis.NewClient(rueidis.ClientOption{InitAddress: c.Addrs(), DisableCache: true})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(client.Close)
		nodes[i] = open(t, client, weirredis.Options{Timeout: patience})
	}
	const keys = 24
	versions := [2]weir.Limit{fixed100, log60}
	var admitted [keys]atomic.Int64
	var stop atomic.Bool
	var callers sync.WaitGroup
	for i := range 8 {
		callers.Go(func() {
			r := rand.New(rand.NewPCG(seeds.Seed(), uint64(i)))
			for n := 0; n < 1500 || !stop.Load(); n++ {
				k := r.IntN(keys)
				charge := weir.Charge{Name: "api", Key: fmt.Sprint("k", k), Limit: versions[i%2], Cost: 1}
				batch, out := []weir.Charge{charge}, make([]weir.Decision, 2)
				if n%8 == 0 { // beside a limit of another shard that refuses: nothing may stay charged
					none := weir.Charge{Name: "none", Key: fmt.Sprint("other", n), Limit: slow(1), Cost: 2, Group: 1}
					batch[0].Group = 1
					batch = append(batch, none)
				}
				if err := nodes[i%2].Do(ctx, batch, out); err != nil {
					t.Error(err)
					return
				}
				if len(batch) == 1 && out[0].Allowed {
					admitted[k].Add(1)
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
		n := admitted[k].Load()
		if n < 60 || n > 160 {
			t.Errorf("k%d: %d admitted, where the versions admit 60 and 100", k, n)
		}
	}
}

// TestTwoVersionsThroughLeases: two nodes that lease from one server have two versions of a limit, and
// change them for each other's. Both versions together bound what they admit.
func TestTwoVersionsThroughLeases(t *testing.T) {
	server := servers.StartRedis(t, servers.RedisOptions{})
	versions := [2]weir.Limit{fixed100, counter80}
	var admitted atomic.Int64
	var callers sync.WaitGroup
	for i := range 2 {
		node, err := leasing.New(open(t, connect(t, server.Addr), weirredis.Options{Timeout: patience}), leasing.Options{Timeout: patience})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { node.Close() })
		for range 4 {
			callers.Go(func() {
				for n := range 400 {
					batch, out := []weir.Charge{{Name: "api", Key: "k", Limit: versions[(i+n/100)%2], Cost: 1}}, make([]weir.Decision, 1)
					if err := node.Do(t.Context(), batch, out); err != nil {
						t.Error(err)
						return
					}
					if out[0].Allowed {
						admitted.Add(1)
					}
				}
			})
		}
	}
	callers.Wait()
	if n := admitted.Load(); n < 80 || n > 180 {
		t.Errorf("%d admitted, where the versions admit 80 and 100", n)
	}
}

// TestWalksOfVersions: walks in which Redis once decided otherwise than the model. A refused call of a
// third version marked another one as just used, where the server's clock had stepped back before, so
// that it was not replaced for a minute. And an All of which nothing was used after a change, was
// stored with the time of the change, which a clock that steps back then went on from.
func TestWalksOfVersions(t *testing.T) {
	client := connect(t, servers.StartRedis(t, servers.RedisOptions{}).Addr)
	const day = 24 * time.Hour
	yearly := weir.IntervalBucket{Burst: 1, Refill: 4, Every: day}
	minutely := weir.IntervalBucket{Burst: 2, Refill: 1, Every: time.Minute}
	window := weir.FixedWindow{Limit: 983, Window: time.Minute}
	warm := weir.All(weir.WarmUp{Rate: weir.Rate{N: 12345, Per: 100 * time.Millisecond}, Period: 100 * time.Millisecond, ColdFactor: 2},
		weir.WarmUp{Rate: weir.Rate{N: 7, Per: 100 * time.Millisecond}, Period: time.Second, ColdFactor: 1}, weir.SlidingLog{Limit: 294, Window: time.Hour})
	buckets := weir.All(weir.LeakyBucket{Rate: weir.PerSecond(7), Queue: 4}, weir.IntervalBucket{Burst: 3, Refill: 4, Every: time.Second})
	type step struct {
		at    time.Duration
		limit weir.Limit
		op    weir.Op
		cost  int64
	}
	for i, walk := range [][]step{
		{
			{11627777, yearly, weir.OpTake, 1}, {11810890, window, weir.OpTake, 1}, {11654792, window, weir.OpPeek, 2}, {69319_131529, minutely, weir.OpReserve, 3},
			{69319_291993, window, weir.OpTake, 983}, {69319_464714, minutely, weir.OpPeek, 2},
		},
		{{101732, warm, weir.OpTake, 3}, {95_326169, buckets, weir.OpCarry, 0}, {95_108883, buckets, weir.OpTake, 2}, {95_702825, buckets, weir.OpTake, 0}},
	} {
		clock := new(weirtest.Clock)
		both := []weir.Store{open(t, client, weirredis.Options{Prefix: fmt.Sprintf("walk%d:", i), ClockKey: "clock", Timeout: patience}), weirtest.NewStore(clock.Now)}
		for j, s := range walk {
			at := 1_700_000_000*time.Second + s.at*time.Microsecond
			clockAt(t, client, at)
			clock.Set(int64(at))
			var said [2]weir.Decision
			for k, store := range both {
				batch := []weir.Charge{{Name: "api", Key: "k", Limit: s.limit, Op: s.op, Cost: s.cost}}
				if err := store.Do(t.Context(), batch, said[k:]); err != nil {
					t.Fatal(err)
				}
			}
			if said[0] != said[1] {
				t.Errorf("walk %d, step %d: redis %+v, the model %+v", i, j, said[0], said[1])
			}
		}
	}
}
