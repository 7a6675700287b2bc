package weirredis

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/weirflow/weir"
)

// A Mapper is an Evaler of a Cluster that can ask which node serves which slots. A Store over it
// has a queue for each node, so that a node that does not answer delays no call for another one, and
// its shards are the nodes: see failover.Sharded. Without a Mapper, all nodes are one shard.
type Mapper interface {
	// Slots asks a node that answers. Slots that no node serves are left out.
	Slots(ctx context.Context) ([]SlotRange, error)
}

// A SlotRange says that the slots from First to Last are served by a master.
type SlotRange struct {
	First, Last uint16
	Node        string // its address
}

// noNode is the name of the shard of slots that no node serves.
const noNode = "no node"

// topology is which node serves which slots, as far as is known. Clients know it too, and do not
// tell. What is outdated here sends no call to a wrong node: it only lets calls wait in another
// queue, and counts a failure for another shard.
type topology struct {
	mapper  Mapper // nil if there is none
	current atomic.Pointer[slotMap]
	asked   atomic.Int64 // when a node was asked last, in nanoseconds since the clock's start
	asking  atomic.Bool
}

// A slotMap is one answer. It is not changed.
type slotMap struct {
	names []string      // of the shards
	tags  []string      // a tag in a slot of each
	of    [slots]uint16 // the shard of each slot, by its place in names
}

// How often a node is asked which node serves which slots: usually, and while calls fail.
const (
	askEvery  = 10 * time.Second
	askAtMost = 250 * time.Millisecond
)

// newSlotMap returns the map of some ranges.
func newSlotMap(ranges []SlotRange) *slotMap {
	m := &slotMap{}
	at := map[string]uint16{}
	number := func(name string) uint16 {
		n, ok := at[name]
		if !ok {
			n = uint16(len(m.names))
			at[name], m.names = n, append(m.names, name)
		}
		return n
	}
	var served [slots]bool
	for _, r := range ranges {
		for slot := int(r.First); slot <= int(r.Last) && slot < slots; slot++ {
			m.of[slot], served[slot] = number(r.Node), true
		}
	}
	for slot := range served {
		if !served[slot] {
			m.of[slot] = number(noNode)
		}
	}
	m.tags = make([]string, len(m.names))
	for n, left := 0, len(m.names); left > 0 && n < mostTags; n++ {
		tag := "shard" + strconv.Itoa(n)
		if i := m.of[slotOf("{"+tag+"}")]; m.tags[i] == "" {
			m.tags[i] = tag
			left--
		}
	}
	return m
}

// mostTags is how many tags are tried to find one in a slot of each shard: a shard with a single
// slot is missed once in 200,000 times.
const mostTags = 12 * slots

// shard returns the name of the shard of a slot; "" if it is not known.
func (t *topology) shard(slot uint16) string {
	if m := t.current.Load(); m != nil {
		return m.names[m.of[slot]]
	}
	return ""
}

// Shard returns the master that serves a key, as far as is known; "" if that is not known, or the
// server is no Cluster. It makes a Store a failover.Sharded.
func (s *Store) Shard(name, key string) string {
	if !s.opts.Cluster || s.topology.current.Load() == nil {
		return ""
	}
	return s.topology.shard(slotOf(s.key(name, key)))
}

// Shards returns all masters that serve slots. A single server is one shard, without a name.
func (s *Store) Shards() []string {
	if m := s.topology.current.Load(); m != nil {
		return m.names
	}
	return []string{""}
}

// PingShard is Ping for the slots that one master serves. If a Warm has been made, it is repeated
// there: a node that was restarted lacks the scripts.
func (s *Store) PingShard(ctx context.Context, shard string) error {
	s.askAgain(askAtMost) // its slots may be with another master by now
	m, i := s.topology.current.Load(), -1
	if m != nil {
		i = slices.Index(m.names, shard)
	}
	if i < 0 || m.tags[i] == "" {
		return fmt.Errorf("weirredis: no slot is known to be on %s", shard)
	}
	return s.ping(ctx, m.tags[i], func(tag string) bool { return m.of[slotOf("{"+tag+"}")] == uint16(i) })
}

// askAgain asks in the background which node serves which slots, unless that was asked not long ago.
func (s *Store) askAgain(after time.Duration) {
	t := &s.topology
	if t.mapper == nil {
		return
	}
	asked, now := t.asked.Load(), int64(time.Since(s.clock.start))
	if asked != 0 && now-asked < int64(after) || !t.asking.CompareAndSwap(false, true) {
		return
	}
	t.asked.Store(max(now, 1))
	if !s.queues.begin(s) {
		return
	}
	go func() {
		defer s.sending.Done()
		defer t.asking.Store(false)
		ctx, cancel := context.WithTimeout(s.ctx, s.opts.Timeout)
		defer cancel()
		_ = s.ask(ctx) // what was known stays; calls that fail ask again
	}()
}

// ask asks which node serves which slots.
func (s *Store) ask(ctx context.Context) error {
	ranges, err := s.topology.mapper.Slots(ctx)
	if err == nil && len(ranges) == 0 {
		err = errors.New("weirredis: no node serves any slot")
	}
	if err != nil {
		return err
	}
	m := newSlotMap(ranges)
	s.topology.current.Store(m)
	s.queues.prune(m.names)
	return nil
}

var _ interface { // failover.Sharded, which this package cannot name
	weir.Store
	Shard(name, key string) string
	Shards() []string
	PingShard(ctx context.Context, shard string) error
} = (*Store)(nil)
