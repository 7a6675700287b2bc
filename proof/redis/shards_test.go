package redis

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"github.com/weirflow/weir"
	"github.com/weirflow/weir/failover"
	"github.com/weirflow/weir/proof/servers"
	"github.com/weirflow/weir/weirgoredis"
	"github.com/weirflow/weir/weirredis"
	"github.com/weirflow/weir/weirrueidis"
)

// shardDeadline is the deadline of calls in these tests. After the same time without a response, the
// other masters give one up. It is longer than a busy machine stands still, also twice in a row: a
// master that only stood still must not count as down.
const shardDeadline = 12 * time.Second

// A shardNode is one of two processes that share limits in a cluster.
type shardNode struct {
	store *failover.Store
	warm  error // of Warm

	mu     sync.Mutex
	opened map[string]int // by shard
}

func openShardNode(t *testing.T, c *servers.RedisCluster) *shardNode {
	t.Helper()
	inner, err := weirrueidis.Open("redis+cluster://"+strings.Join(c.Addrs(), ","), weirredis.Options{Timeout: shardDeadline})
	if err != nil {
		t.Fatal(err)
	}
	return newShardNode(t, inner.Store, inner.Close, inner.Ready)
}

// openGoShardNode is openShardNode over go-redis.
func openGoShardNode(t *testing.T, c *servers.RedisCluster) *shardNode {
	t.Helper()
	client := goredis.NewClusterClient(&goredis.ClusterOptions{Addrs: c.Addrs(), ContextTimeoutEnabled: true})
	inner, err := weirgoredis.New(client, weirredis.Options{Timeout: shardDeadline})
	if err != nil {
		t.Fatal(err)
	}
	end := func() error { return errors.Join(inner.Close(), client.Close()) }
	return newShardNode(t, inner, end, func(ctx context.Context) error { return client.Ping(ctx).Err() })
}

func newShardNode(t *testing.T, inner *weirredis.Store, end func() error, ready func(context.Context) error) *shardNode {
	t.Helper()
	n := &shardNode{opened: map[string]int{}}
	var err error
	n.store, err = failover.New(inner, failover.Options{
		OnFailure: failover.Local, Nodes: 2, Deadline: shardDeadline, Direct: true,
		OnTransition: func(shard string, from, _ failover.State, _ error) {
			if from == failover.Closed {
				n.mu.Lock()
				n.opened[shard]++
				n.mu.Unlock()
			}
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := n.store.Close(); err != nil {
			t.Error(err)
		}
		if err := end(); err != nil {
			t.Error(err)
		}
	})
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	if err := ready(ctx); err != nil {
		t.Fatal(err)
	}
	n.warm = inner.Warm(ctx, []weir.Limit{plentyOf})
	return n
}

// hasOpened returns the shards whose breakers have opened.
func (n *shardNode) hasOpened() (shards []string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for shard := range n.opened {
		shards = append(shards, shard)
	}
	return shards
}

var plentyOf = weir.TokenBucket{Rate: weir.PerHour(1), Burst: 500_000}

var (
	fewOf   = weir.TokenBucket{Rate: weir.PerHour(1), Burst: 10}
	quickOf = weir.TokenBucket{Rate: weir.PerSecond(100_000), Burst: 100_000}
)

// take takes 1 for keys, all or nothing if there are several.
func (n *shardNode) take(t *testing.T, l weir.TokenBucket, keys ...string) []weir.Decision {
	t.Helper()
	var batch []weir.Charge
	for _, key := range keys {
		batch = append(batch, weir.Charge{Name: fmt.Sprint("of", l.Burst), Key: key, Limit: l, Cost: 1, Group: 1})
	}
	if len(keys) == 1 {
		batch[0].Group = 0
	}
	out := make([]weir.Decision, len(keys))
	if err := n.store.Do(context.Background(), batch, out); err != nil {
		t.Errorf("%v: %v", keys, err)
	}
	return out
}

func (n *shardNode) used(t *testing.T, key string) int64 {
	t.Helper()
	out := make([]weir.Decision, 1)
	if err := n.store.Do(context.Background(), []weir.Charge{{Name: fmt.Sprint("of", plentyOf.Burst), Key: key, Limit: plentyOf, Op: weir.OpPeek}}, out); err != nil {
		t.Fatal(err)
	}
	return out[0].Limit - out[0].Remaining
}

// keysOf returns keys of each master.
func keysOf(ctx context.Context, t *testing.T, c *servers.RedisCluster, prefix string, each int) [][]string {
	t.Helper()
	keys := make([][]string, len(c.Masters))
	for n := 0; slices.ContainsFunc(keys, func(k []string) bool { return len(k) < each }); n++ {
		key := fmt.Sprint(prefix, n)
		slot, err := c.Slot(ctx, "{"+key+"}")
		if err != nil {
			t.Fatal(err)
		}
		owner, err := c.Owner(ctx, slot)
		if err != nil {
			t.Fatal(err)
		}
		if i := slices.Index(c.Masters, owner); len(keys[i]) < each {
			keys[i] = append(keys[i], key)
		}
	}
	return keys
}

// TestOneShardIsDown: while one master of a cluster is killed or stopped, the store decides about
// the keys of the others, without waiting for it, and both nodes in the same counts; local shares
// decide about the keys of that master alone, until it is back.
func TestOneShardIsDown(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(t.Context(), 4*patience)
	defer cancel()
	c, err := servers.Cluster(ctx, servers.ClusterOptions{Persist: true, NodeTimeout: shardDeadline, Config: []string{"cluster-require-full-coverage no", "cluster-allow-reads-when-down yes"}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := c.Stop(); err != nil {
			t.Error(err)
		}
	})
	// Some slots have moved from the master that goes down to another.
	slot, err := c.Slot(ctx, "{moved}")
	if err != nil {
		t.Fatal(err)
	}
	down, err := c.Owner(ctx, slot)
	if err != nil {
		t.Fatal(err)
	}
	sick := slices.Index(c.Masters, down)
	if err := c.MoveSlot(ctx, slot, down, c.Masters[(sick+1)%3]); err != nil {
		t.Fatal(err)
	}
	nodes := []*shardNode{openShardNode(t, c), openGoShardNode(t, c)}
	for _, fault := range []struct {
		name    string
		off, on func() error
	}{
		{"killed", func() error { down.Kill(); return nil }, func() error { return down.Start(ctx) }},
		{"stopped", func() error { return down.Pause() }, func() error { down.Resume(); return nil }},
	} {
		t.Run(fault.name, func(t *testing.T) {
			keys := keysOf(ctx, t, c, fault.name, 4)
			keys[(sick+1)%3][0] = "moved"
			l := useShards(t, nodes, keys, sick)
			outageUntil(t, "all keys are decided by the store", func() bool { return l.calls[0].Load() > 100 && l.calls[1].Load() > 100 && l.calls[2].Load() > 100 })
			if err := fault.off(); err != nil {
				t.Fatal(err)
			}
			before := [2]int64{l.calls[(sick+1)%3].Load(), l.calls[(sick+2)%3].Load()}
			outageUntil(t, "the breakers of that shard are open", func() bool {
				return nodes[0].store.State() != failover.Closed && nodes[1].store.State() != failover.Closed
			})
			began := time.Now()
			for i, b := range before {
				t.Logf("until the breakers opened, shard %d: %d calls", i, l.calls[(sick+1+i)%3].Load()-b)
			}
			for _, n := range nodes {
				if s := n.store.Stats(); !slices.Equal(s.Down, []string{down.Addr}) || s.Shards != 3 {
					t.Errorf("%d shards, down are %q", s.Shards, s.Down)
				}
			}
			shares := l.shares.Load()
			outageUntil(t, "shares decide", func() bool { return l.shares.Load() > shares+100 })
			live, dead := keys[(sick+1)%3][1], keys[sick][0]
			l.pause()
			used := nodes[0].used(t, live)
			if d := nodes[0].take(t, plentyOf, live, dead); d[0].Source != weir.SourceStore || d[1].Source != weir.SourceShare || d[1].Allowed {
				t.Errorf("a group that a share refuses: %+v", d)
			}
			if now := nodes[1].used(t, live); now != used {
				t.Errorf("a group that a share refuses: %d were used, and then %d", used, now)
			}
			for i := range int64(40) {
				d := nodes[i%2].take(t, fewOf, live)
				if d[0].Source != weir.SourceStore || d[0].Allowed != (i < fewOf.Burst) {
					t.Errorf("take %d of a limit of 10 on two nodes: %+v", i, d)
				}
			}
			quick := nodes[0].take(t, quickOf, live, dead)
			if !quick[0].Allowed || !quick[1].Allowed || quick[0].Source != weir.SourceStore || quick[1].Source != weir.SourceShare {
				t.Errorf("a group over both: %+v", quick)
			}
			late := openShardNode(t, c) // a node that starts now finds the masters that answer ready
			if late.warm == nil {
				t.Error("Warm does not say that a master does not answer")
			}
			for _, key := range slices.Concat(keys[(sick+1)%3], keys[(sick+2)%3]) {
				if d := late.take(t, quickOf, key)[0]; d.Source != weir.SourceStore {
					t.Errorf("a node that starts now decides about %s by %v", key, d.Source)
				}
			}
			l.resume()
			t.Logf("open for %v", time.Since(began))
			if err := fault.on(); err != nil {
				t.Fatal(err)
			}
			l.back.Store(true)
			outageUntil(t, "the store decides about all keys again", func() bool {
				return nodes[0].store.State() == failover.Closed && nodes[1].store.State() == failover.Closed
			})
			n := l.calls[sick].Load()
			outageUntil(t, "keys of the shard are decided by the store", func() bool { return l.calls[sick].Load() > n+100 })
			l.end()
			for i, n := range nodes {
				if opened := n.hasOpened(); !slices.Equal(opened, []string{down.Addr}) {
					t.Errorf("node %d: the breakers of %q have opened", i, opened)
				}
			}
			for i := range keys {
				if i == sick {
					continue
				}
				for _, key := range keys[i] {
					want := l.admitted(key)
					if got := nodes[0].used(t, key); got != want {
						t.Errorf("key %s of shard %d: %d were admitted, the store has %d", key, i, want, got)
					}
				}
			}
		})
	}
}

// shardUsers are callers of keys of each master, at two nodes.
type shardUsers struct {
	t       *testing.T
	gate    sync.RWMutex
	over    atomic.Bool
	back    atomic.Bool
	callers sync.WaitGroup
	calls   [3]atomic.Int64 // by master, that the store decided
	shares  atomic.Int64
	count   sync.Map // by key, *atomic.Int64
}

func useShards(t *testing.T, nodes []*shardNode, keys [][]string, sick int) *shardUsers {
	l := &shardUsers{t: t}
	for i, of := range keys {
		for _, key := range of {
			l.count.Store(key, new(atomic.Int64))
			start := nodes[0].used(t, key)
			l.add(key, start)
			for _, n := range nodes {
				l.callers.Go(func() { l.call(n, i, key, i == sick) })
			}
		}
	}
	t.Cleanup(l.end)
	return l
}

func (l *shardUsers) add(key string, n int64) {
	c, _ := l.count.Load(key)
	c.(*atomic.Int64).Add(n)
}

func (l *shardUsers) admitted(key string) int64 {
	c, _ := l.count.Load(key)
	return c.(*atomic.Int64).Load()
}

func (l *shardUsers) call(n *shardNode, shard int, key string, sick bool) {
	for !l.over.Load() {
		l.gate.RLock()
		d := n.take(l.t, plentyOf, key)[0]
		l.gate.RUnlock()
		switch {
		case d.Source == weir.SourceStore:
			if l.calls[shard].Add(1); d.Allowed {
				l.add(key, 1)
			}
		case !sick:
			l.t.Errorf("key %s of a master that answers was decided by %v", key, d.Source)
			return
		default:
			l.shares.Add(1)
		}
		<-time.After(time.Millisecond)
	}
}

func (l *shardUsers) pause()  { l.gate.Lock() }
func (l *shardUsers) resume() { l.gate.Unlock() }

func (l *shardUsers) end() {
	l.over.Store(true)
	l.callers.Wait()
}

// TestShardIsReplaced: a master stops for good. Its keys are decided by the store again when its
// replica is the master, and no breaker is left of it.
func TestShardIsReplaced(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(t.Context(), 4*patience)
	defer cancel()
	c, err := servers.Cluster(ctx, servers.ClusterOptions{Replicas: 1, NodeTimeout: shardDeadline, Config: []string{"cluster-require-full-coverage no", "cluster-allow-reads-when-down yes"}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := c.Stop(); err != nil {
			t.Error(err)
		}
	})
	nodes := []*shardNode{openShardNode(t, c), openGoShardNode(t, c)}
	keys := keysOf(ctx, t, c, "k", 4)
	l := useShards(t, nodes, keys, 0)
	outageUntil(t, "all keys are decided by the store", func() bool { return l.calls[0].Load() > 100 && l.calls[1].Load() > 100 && l.calls[2].Load() > 100 })
	if err := c.Masters[0].Pause(); err != nil {
		t.Fatal(err)
	}
	defer c.Masters[0].Resume()
	outageUntil(t, "a share decides", func() bool { return l.shares.Load() > 0 })
	began := time.Now()
	for _, n := range nodes {
		outageUntil(t, "the store decides about all keys, without that master", func() bool {
			s := n.store.Stats()
			return len(s.Down) == 0 && s.Shards == 3 && n.take(t, quickOf, keys[0][0])[0].Source == weir.SourceStore
		})
	}
	t.Logf("its replica decides after %v", time.Since(began))
	l.end()
	for i, n := range nodes {
		for _, shard := range n.hasOpened() {
			if shard == c.Masters[1].Addr || shard == c.Masters[2].Addr {
				t.Errorf("node %d: the breaker of %s has opened", i, shard)
			}
		}
	}
}
