package redis

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/redis/rueidis"

	"github.com/weirflow/weir"
	"github.com/weirflow/weir/internal/seeds"
	"github.com/weirflow/weir/proof/servers"
	"github.com/weirflow/weir/weirredis"
)

// clustered opens a client of a new cluster.
func clustered(t *testing.T) rueidis.Client {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	c, err := servers.Cluster(ctx, servers.ClusterOptions{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := c.Stop(); err != nil {
			t.Error(err)
		}
	})
	client, err := rueidis.NewClient(rueidis.ClientOption{InitAddress: c.Addrs(), DisableCache: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(client.Close)
	return client
}

func oneTag(string, string) string { return "together" }

// TestGroupsAreAllOrNothing: many callers charge groups concurrently, and most groups are refused
// in the end. Each key was charged for the admitted groups alone.
func TestGroupsAreAllOrNothing(t *testing.T) {
	single, cluster := connect(t, servers.StartRedis(t, servers.RedisOptions{}).Addr), clustered(t)
	for name, c := range map[string]struct {
		client rueidis.Client
		o      weirredis.Options
		atomic bool
	}{
		"one server":             {single, weirredis.Options{}, true},
		"a cluster, one slot":    {cluster, weirredis.Options{Prefix: "one:", Tag: oneTag}, true},
		"a cluster, three nodes": {cluster, weirredis.Options{Prefix: "many:"}, false},
	} {
		t.Run(name, func(t *testing.T) {
			g := &groups{store: open(t, c.client, c.o), charged: map[string]*atomic.Int64{}, random: seeds.Of(t.Name())}
			for n := range 6 {
				g.keys = append(g.keys, fmt.Sprint("g", n))
				g.charged[g.keys[n]] = new(atomic.Int64)
			}
			g.run(t, c.atomic)
			for n, key := range g.keys {
				if got, want := used(t, g.store, "api", key, g.limit(n)), g.charged[key].Load(); got != want {
					t.Errorf("%s: the server charged %d, and groups of %d were admitted", key, got, want)
				}
			}
			t.Logf("%d groups admitted, %d refused", g.admitted.Load(), g.refused.Load())
			if g.admitted.Load() == 0 || g.refused.Load() == 0 {
				t.Error("this shows little")
			}
		})
	}
}

type groups struct {
	store             weir.Store
	keys              []string
	charged           map[string]*atomic.Int64
	random            *rand.Rand
	admitted, refused atomic.Int64
}

// limit has a different size for each key, so that groups are refused by any of their parts.
func (g *groups) limit(n int) weir.TokenBucket { return slow(200 + 40*int64(n)) }

func (g *groups) run(t *testing.T, together bool) {
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for range 100 {
				if err := g.charge(ctx); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	over := make(chan struct{})
	var watch sync.WaitGroup
	watch.Go(func() {
		for n := 0; together; n++ {
			select {
			case <-over:
				return
			default:
				g.pair(ctx, t, n)
			}
		}
	})
	wg.Wait()
	close(over)
	watch.Wait()
}

// charge makes a batch of two groups, whose numbers other callers use too, and one charge that is
// in none.
func (g *groups) charge(ctx context.Context) error {
	var batch []weir.Charge
	for _, group := range []int{1, 0, 2} {
		for range min(1+group*(1+g.random.IntN(2)), 4) {
			n := g.random.IntN(len(g.keys))
			batch = append(batch, weir.Charge{Name: "api", Key: g.keys[n], Limit: g.limit(n), Cost: 1 + g.random.Int64N(3), Group: group})
		}
	}
	g.random.Shuffle(len(batch), func(i, j int) { batch[i], batch[j] = batch[j], batch[i] })
	out := make([]weir.Decision, len(batch))
	if err := g.store.Do(ctx, batch, out); err != nil {
		return err
	}
	all := map[int]bool{0: true, 1: true, 2: true}
	for i, d := range out {
		all[batch[i].Group] = all[batch[i].Group] && d.Allowed
	}
	for i, d := range out {
		if c := batch[i]; c.Group == 0 && d.Allowed || c.Group > 0 && all[c.Group] {
			g.charged[c.Key].Add(c.Cost)
		}
	}
	for _, group := range []int{1, 2} {
		if all[group] {
			g.admitted.Add(1)
		} else {
			g.refused.Add(1)
		}
	}
	return nil
}

// pair charges two keys in a group, and checks that an observer never sees one without the other.
func (g *groups) pair(ctx context.Context, t *testing.T, n int) {
	var both sync.WaitGroup
	name := fmt.Sprint("pair", n)
	both.Go(func() {
		var batch []weir.Charge
		for _, key := range g.keys[:2] {
			batch = append(batch, weir.Charge{Name: name, Key: key, Limit: slow(5), Cost: 2, Group: 1})
		}
		if err := g.store.Do(ctx, batch, make([]weir.Decision, 2)); err != nil {
			t.Error(err)
		}
	})
	batch, out := []weir.Charge{}, make([]weir.Decision, 2)
	for _, key := range g.keys[:2] {
		batch = append(batch, weir.Charge{Name: name, Key: key, Limit: slow(5), Op: weir.OpPeek})
	}
	if err := g.store.Do(ctx, batch, out); err != nil || out[0].Remaining != out[1].Remaining {
		t.Errorf("%+v, %v", out, err)
	}
	both.Wait()
}

// TestGroupFirstCall: a bucket that starts empty fills from its first call on, also if that call is
// refused in a group. Each refusal forgot the state, and the key was refused for ever.
func TestGroupFirstCall(t *testing.T) {
	s := open(t, connect(t, servers.StartRedis(t, servers.RedisOptions{}).Addr), weirredis.Options{})
	empty := weir.TokenBucket{Rate: weir.PerSecond(100), Burst: 5, Initial: weir.InitialEmpty}
	for tries := range 100 {
		batch := []weir.Charge{{Name: "full", Key: "k", Limit: slow(5), Cost: 1, Group: 1}, {Name: "empty", Key: "k", Limit: empty, Cost: 2, Group: 1}}
		out := make([]weir.Decision, 2)
		if err := s.Do(t.Context(), batch, out); err != nil {
			t.Fatal(err)
		}
		if out[1].Allowed {
			if tries == 0 || used(t, s, "full", "k", slow(5)) != 1 {
				t.Errorf("after %d refusals, %d are used", tries, used(t, s, "full", "k", slow(5)))
			}
			return
		}
		pass(t.Context(), out[1].RetryAfter)
	}
	t.Error("refused for ever")
}
