package weirredis

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirflow/weir"
)

// mapped is a node of which it is known which slots it has, or who has them now.
type mapped struct {
	*node
	asked atomic.Int64
	mu    sync.Mutex
	all   []SlotRange
}

func (m *mapped) Eval(ctx context.Context, c Call) (string, error) {
	if len(c.Keys) == 1 { // a heartbeat
		return "1", nil
	}
	return m.node.Eval(ctx, c)
}

var threeNodes = []SlotRange{{0, 5460, "a:1"}, {5461, 10_922, "b:1"}, {10_923, 16_383, "c:1"}}

func (m *mapped) Slots(context.Context) ([]SlotRange, error) {
	m.asked.Add(1)
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.all == nil {
		return nil, errors.New("nobody answers")
	}
	return m.all, nil
}

// TestNodesHaveQueues: where it is known which node has which slots, a node that does not answer
// holds up no call of the others, from its first call on, and batches of several nodes have the
// answers that there are.
func TestNodesHaveQueues(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := &mapped{node: new(node), all: threeNodes}
		s, err := New(m, Options{Cluster: true, Prefix: "p:"})
		if err != nil {
			t.Fatal(err)
		}
		if err := s.ask(t.Context()); err != nil {
			t.Fatal(err)
		}
		s.clock.set(1e15)
		var wg sync.WaitGroup
		longest := atomic.Int64{}
		for i := range 4000 { // one each 500 us, for 2 s
			<-time.After(500 * time.Microsecond)
			wg.Go(func() {
				within := 50 * time.Millisecond
				if i%100 == 0 {
					within = time.Second
				}
				ctx, cancel := context.WithTimeout(t.Context(), within)
				defer cancel()
				key, began := fmt.Sprint("k", i%500), time.Now()
				if err := take(ctx, s, key); slotOf(s.key("api", key)) >= 5461 {
					if longest.Store(max(longest.Load(), int64(time.Since(began)))); err != nil {
						t.Errorf("%s: %v", key, err)
					}
				}
			})
		}
		wg.Wait()
		if got := time.Duration(longest.Load()); got > 5*time.Millisecond {
			t.Errorf("a call of a node that answers within 1 ms took %v", got)
		}
		if n := m.asked.Load(); n < 2 || n > 2+4*4 {
			t.Errorf("in 4 s of failures it was asked %d times who has which slots", n)
		}

		ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
		defer cancel()
		var batch []weir.Charge
		for i := range 20 {
			batch = append(batch, weir.Charge{Name: "api", Key: fmt.Sprint("k", i), Limit: weir.TokenBucket{Rate: weir.PerSecond(1), Burst: 9}, Cost: 1})
		}
		out := make([]weir.Decision, len(batch))
		if err := s.Do(ctx, batch, out); err == nil {
			t.Error("a node does not answer")
		}
		for i, c := range batch {
			if lost := s.Shard(c.Name, c.Key) == "a:1"; lost != (c.Err != nil) || lost == out[i].Allowed {
				t.Errorf("%s on %s: %+v, %v", c.Key, s.Shard(c.Name, c.Key), out[i], c.Err)
			}
		}
		if m.all = threeNodes[1:]; s.ask(t.Context()) != nil {
			t.Error("it is not asked")
		}
		if s.queues.nodes["a:1"] != nil || s.queues.nodes["b:1"] == nil {
			t.Error("the queue of a node that has no slots stays, or another's does not")
		}
		s.Close()
	})
}

// TestSlotMap: each slot has a shard, and each shard a tag in one of its slots.
func TestSlotMap(t *testing.T) {
	many := []SlotRange{{0, 0, "one"}}
	for i := range 500 {
		many = append(many, SlotRange{uint16(1 + i*32), uint16(32 + i*32), fmt.Sprint("n", i)})
	}
	for _, ranges := range [][]SlotRange{threeNodes, {{3, 9000, "x"}}, {{0, 16_383, "x"}}, many} {
		m := newSlotMap(ranges)
		seen := map[string]bool{}
		for slot, n := range m.of {
			i := slices.IndexFunc(ranges, func(r SlotRange) bool { return int(r.First) <= slot && slot <= int(r.Last) })
			want := noNode
			if i >= 0 {
				want = ranges[i].Node
			}
			if m.names[n] != want {
				t.Fatalf("slot %d is on %s, want %s", slot, m.names[n], want)
			}
			seen[want] = true
		}
		if len(m.names) != len(seen) {
			t.Errorf("%d shards, want %d", len(m.names), len(seen))
		}
		for i, tag := range m.tags {
			if int(m.of[slotOf("{"+tag+"}")]) != i || tag == "" && m.names[i] != "one" {
				t.Errorf("%q is no tag of %s", tag, m.names[i])
			}
		}
	}
}

// TestShardsAreUnknown: on a single server, without a Mapper, and before a node has answered, there
// is one shard without a name. It is asked again.
func TestShardsAreUnknown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := &mapped{node: new(node)}
		s, err := New(m, Options{Cluster: true, Prefix: "p:"})
		if err != nil {
			t.Fatal(err)
		}
		defer s.Close()
		single, err := New(m, Options{Prefix: "p:"})
		if err != nil {
			t.Fatal(err)
		}
		defer single.Close()
		other, err := New(m.node, Options{Cluster: true, Prefix: "p:"})
		if err != nil {
			t.Fatal(err)
		}
		defer other.Close()
		for _, s := range []*Store{s, single, other} {
			s.askAgain(0)
			if shard, all := s.Shard("api", "k"), s.Shards(); shard != "" || !slices.Equal(all, []string{""}) {
				t.Errorf("%q of %q", shard, all)
			}
		}
		synctest.Wait()
		m.mu.Lock()
		m.all = threeNodes
		m.mu.Unlock()
		<-time.After(time.Second)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_ = s.Ping(ctx) // which asks, in the background
		synctest.Wait()
		if all := s.Shards(); len(all) != 3 || !slices.Contains(all, s.Shard("api", "k")) {
			t.Errorf("%q of %q", s.Shard("api", "k"), all)
		}
		if err := s.PingShard(ctx, "d:1"); err == nil {
			t.Error("there is no such shard")
		}
	})
}
