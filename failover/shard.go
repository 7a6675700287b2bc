package failover

import (
	"context"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weirflow/weir"
)

// A Sharded is a store of several shards, each of which can fail while the others go on, such as
// the nodes of a cluster. A Store then has a circuit breaker for each shard: while one is down, the
// fallback decides about the keys of that shard, and the store about all others. A store that is
// not Sharded has one breaker.
//
// Shard and Shards are called often. They return at once with what is known, and start whatever has
// to be found out in the background.
type Sharded interface {
	// Shard returns the name of the shard that decides about a key now, as in Charge.Name and
	// Charge.Key. The name changes when the key moves. It is "" while it is not known.
	Shard(name, key string) string

	// Shards returns the names of all shards. A shard that is not among them is no longer probed,
	// and its breaker is dropped.
	Shards() []string

	// PingShard is Ping for one shard: see Pinger. The shard without a name is probed by Ping.
	PingShard(ctx context.Context, shard string) error
}

// maxShards bounds how many breakers there are. Further shards share the one without a name.
const maxShards = 1024

// A shard is a circuit breaker. A store that is not Sharded is one shard, without a name.
type shard struct {
	name     string
	state    atomic.Int32            // a State
	row      atomic.Int64            // failures since the last answer
	silent   atomic.Int64            // callers that left, since the last answer
	next     atomic.Int64            // when the next probe is due
	probes   atomic.Int32            // in flight: more than one only if the store does not return
	answered *atomic.Uint64          // calls that the shard answered
	outage   atomic.Pointer[outage]  // the latest; nil before the first failure
	failure  atomic.Pointer[failure] // for which the breaker has opened, or stays open

	// Guarded by the lock of shards:
	now, was   counted
	watched    bool // a goroutine probes it, or reports its transitions
	doubted    bool // callers left before it answered, so it must be probed
	dropped    bool // it is none of the store's shards any more
	unreported []transition
	interval   time.Duration // until the next probe
	closedAt   int64         // when the breaker was closed last
	returned   bool          // it was closed once
	trouble    trouble
}

// State returns the state of the breaker.
func (d *shard) State() State { return State(d.state.Load()) }

// heard notes an answer.
func (d *shard) heard() {
	if d.row.Load() != 0 {
		d.row.Store(0)
	}
	if d.silent.Load() != 0 {
		d.silent.Store(0)
	}
}

// shards are the breakers of a store.
type shards struct {
	sharded Sharded // nil for a store that fails as a whole
	whole   shard   // the shard of such a store

	mu     sync.Mutex                        // of what the breakers guard by it
	byName atomic.Pointer[map[string]*shard] // those that have failed; replaced by a copy, never changed
	down   atomic.Int32                      // how many breakers are not closed
}

// of returns the shard of a charge, or nil for one that has never failed.
func (all *shards) of(c *weir.Charge) *shard {
	if all.sharded == nil {
		return &all.whole
	}
	known := *all.byName.Load()
	if len(known) == 0 {
		return nil // and needs no name
	}
	return known[all.sharded.Shard(c.Name, c.Key)]
}

// failing returns the shard of a charge that has failed.
func (s *Store) failing(c *weir.Charge) *shard {
	if d := s.shards.of(c); d != nil {
		return d
	}
	s.shards.mu.Lock()
	defer s.shards.mu.Unlock()
	return s.add(s.shards.sharded.Shard(c.Name, c.Key))
}

// add returns the shard of that name, which may be new. The lock is held.
func (s *Store) add(name string) *shard {
	all := &s.shards
	known := *all.byName.Load()
	if d := known[name]; d != nil {
		return d
	}
	if len(known) >= maxShards {
		name = ""
		if d := known[name]; d != nil {
			return d
		}
	}
	d := &shard{name: name, answered: new(atomic.Uint64), interval: s.opts.Probe}
	more := maps.Clone(known)
	more[name] = d
	all.byName.Store(&more)
	return d
}

// live returns the shard itself or, if it has been dropped, the one that has its name now. The lock
// is held.
func (s *Store) live(d *shard) *shard {
	if d.dropped {
		return s.add(d.name)
	}
	return d
}

// isGone reports whether the store has a shard no more: its keys have moved to others.
func (all *shards) isGone(d *shard) bool {
	return all.sharded != nil && !slices.Contains(all.sharded.Shards(), d.name)
}

// drop forgets a shard that is gone. The lock is held.
func (s *Store) drop(d *shard) {
	fewer := maps.Clone(*s.shards.byName.Load())
	delete(fewer, d.name)
	s.shards.byName.Store(&fewer)
	d.dropped = true
}

// State returns the state of the breaker: Closed if the store is called, or all of its shards are;
// Open if one of them is not; and otherwise HalfOpen.
func (s *Store) State() State {
	if s.shards.down.Load() == 0 {
		return Closed
	}
	if s.shards.sharded == nil {
		return s.shards.whole.State()
	}
	worst := Closed
	for _, d := range *s.shards.byName.Load() {
		switch d.State() {
		case Open:
			return Open
		case HalfOpen:
			worst = HalfOpen
		}
	}
	return worst
}

// cause returns the latest error for which a breaker is open; nil if none is.
func (all *shards) cause() error {
	var latest failure
	add := func(d *shard) {
		if f := d.failure.Load(); f != nil && d.State() != Closed && (latest.err == nil || f.at > latest.at) {
			latest = *f
		}
	}
	add(&all.whole)
	for _, d := range *all.byName.Load() {
		add(d)
	}
	return latest.err
}

// downs returns the names of the shards that are not called, in order, with their latest errors, and how
// many shards there are.
func (all *shards) downs() (names []string, causes []error, total int) {
	if all.sharded == nil {
		if all.whole.State() != Closed {
			names, causes = []string{""}, []error{all.whole.cause()}
		}
		return names, causes, 1
	}
	known := *all.byName.Load()
	for _, d := range known {
		if d.State() != Closed {
			names = append(names, d.name)
		}
	}
	slices.Sort(names)
	for _, name := range names {
		causes = append(causes, known[name].cause())
	}
	return names, causes, max(len(all.sharded.Shards()), len(names))
}

// cause returns the latest error of a shard whose breaker is open; nil for none.
func (d *shard) cause() error {
	if f := d.failure.Load(); f != nil {
		return f.err
	}
	return nil
}
