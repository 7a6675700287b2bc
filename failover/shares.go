package failover

import (
	"errors"
	"fmt"
	"hash/maphash"
	"math"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weirflow/weir"
	"github.com/weirflow/weir/internal/rules"
	"github.com/weirflow/weir/keyed"
)

// maxNames bounds how many limits there can be: they come from a configuration, and not from
// clients.
const maxNames = 1024

// shares are the records of the limits, with their local states. The lock is held for writing to
// change a record and to set the clocks back, and for reading to decide. It is held over no wait,
// no callback and no I/O.
type shares struct {
	mu      sync.RWMutex
	records map[string]*record
	asOf    atomic.Pointer[reading] // what the clocks read while they are set back
	calls   atomic.Pointer[keyed.Backlogs]
}

// An outage of a shard lasts from the first call that fails until the breaker closes again. If the
// breaker does not open, it ends at the first failure after a second without any. A reading is one
// of both clocks.
type (
	outage struct {
		shard *shard
		began reading
	}
	reading struct{ mono, wall int64 }
)

// A record is one limit, and the local states of its keys.
type record struct {
	limit   weir.Limit // as it is in the store
	size    int64      // its capacity
	largest int64      // the most that one charge may take
	nodes   int        // that share the limit

	keys *keyed.Limiter[string] // nil unless it is Local

	starts map[*shard]*start // of the outages that last
	seed   maphash.Seed
}

// A start is how keys begin an outage: at its first charge in it, a key is emptied, so that nothing
// saved up before can be spent.
type start struct {
	of     *outage
	pieces []rules.Use // to charge to a key
	until  int64       // when a key emptied at the beginning would be full again
	seen   map[uint64]struct{}
}

// recordName returns the name of the record of a charge. The parameters of a limit differ by plan,
// and a record has one limit. No name or plan contains a 0.
func recordName(c *weir.Charge) string {
	if c.Plan == "" {
		return c.Name
	}
	return c.Name + "\x00" + c.Plan
}

var errNames = errors.New("weir: the failover store knows 1024 limits already: a name is to be that of a limit, and not of a client")

// Remove drops the fallback's record of a limit that is not used any more, with its local states. Later
// charges of that name begin with a new one.
func (s *Store) Remove(name string) {
	s.shares.mu.Lock()
	defer s.shares.mu.Unlock()
	for at, r := range s.shares.records {
		if of, _, _ := strings.Cut(at, "\x00"); of != name {
			continue
		}
		if r.keys != nil {
			_ = r.keys.Close() // which is never an error
		}
		delete(s.shares.records, at)
	}
}

// end drops what was for the outages of a shard. The latest outage itself stays until the next one
// begins, for fallbacks that are still deciding.
func (s *shares) end(d *shard) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, r := range s.records {
		delete(r.starts, d)
	}
}

// close ends the janitors.
func (s *shares) close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, r := range s.records {
		if r.keys != nil {
			_ = r.keys.Close() // which is never an error
		}
	}
	if b := s.calls.Load(); b != nil {
		_ = b.Close()
	}
}

// A need is what a decision in an outage needs: the record of a limit and, if keys is set, the local
// state of a key.
type need struct {
	charge *weir.Charge
	outage *outage
	keys   bool
	record *record
}

// lock readies what is needed, and returns with the lock held; unlock releases it.
func (s *Store) lock(needs ...*need) (exclusive bool, err error) {
	s.shares.mu.RLock()
	ready := true
	for _, n := range needs {
		if n.record = s.shares.records[recordName(n.charge)]; n.record == nil || !s.ready(n) {
			ready = false
			break
		}
	}
	if ready {
		return false, nil
	}
	s.shares.mu.RUnlock()
	s.shares.mu.Lock()
	for _, n := range needs {
		if err := s.prepare(n); err != nil {
			s.shares.mu.Unlock()
			return false, err
		}
	}
	return true, nil
}

func (s *Store) unlock(exclusive bool) {
	if exclusive {
		s.shares.mu.Unlock()
	} else {
		s.shares.mu.RUnlock()
	}
}

// ready reports whether a record serves a need. The lock is held.
func (s *Store) ready(n *need) bool {
	r := n.record
	if r.limit != n.charge.Limit {
		return false
	}
	return !n.keys || r.keys != nil && r.nodes == s.Nodes() && s.begun(n)
}

// begun reports whether a key was emptied for the outage.
func (s *Store) begun(n *need) bool {
	if s.opts.StartFull {
		return true
	}
	st := n.record.starts[n.outage.shard]
	if st == nil || st.of != n.outage {
		return false
	}
	if s.now() >= st.until {
		return true
	}
	_, ok := st.seen[maphash.String(n.record.seed, n.charge.Key)]
	return ok
}

// prepare makes a record serve a need. The lock is held for writing.
func (s *Store) prepare(n *need) error {
	c := n.charge
	if c.EachCall {
		return fmt.Errorf("%w: a charge with parameters of its own is in a group", weir.ErrCharge)
	}
	name := recordName(c)
	r := s.shares.records[name]
	if r == nil {
		if len(s.shares.records) >= maxNames {
			return errNames
		}
		r = &record{seed: maphash.MakeSeed(), starts: map[*shard]*start{}}
	}
	if n.record = r; r.limit != c.Limit {
		p, err := weir.Prepare(c.Limit, time.Nanosecond)
		if err != nil {
			return err
		}
		r.limit, r.size, r.largest = c.Limit, p.Peek(nil, 0, 0).Limit, p.Largest()
		r.nodes = 0
		s.shares.records[name] = r
	}
	if !n.keys {
		return nil
	}
	if err := s.divide(r, name); err != nil {
		return err
	}
	if !s.begun(n) {
		s.start(r, c.Key, n.outage)
	}
	return nil
}

// divide gives a record a local limiter of this node's share.
func (s *Store) divide(r *record, name string) (err error) {
	nodes := s.Nodes()
	switch {
	case r.keys == nil:
		r.keys, err = keyed.New[string](Share(r.limit, nodes), keyed.Options{
			MaxKeys:   s.opts.MaxKeys,
			Full:      s.opts.Full,
			Name:      name,
			Clock:     s.mono,
			WallClock: s.wall,
		})
	case r.nodes != nodes:
		err = r.keys.SetLimit(Share(r.limit, nodes))
	default:
		return nil
	}
	if err == nil {
		r.nodes = nodes
		clear(r.starts)
	}
	return err
}

// mono and wall are the clocks of the local limiters.
func (s *Store) mono() int64 {
	if r := s.shares.asOf.Load(); r != nil {
		return r.mono
	}
	return s.now()
}

func (s *Store) wall() int64 {
	if r := s.shares.asOf.Load(); r != nil {
		return r.wall
	}
	return time.Now().UnixNano()
}

// start empties a key for an outage: it is charged what it would have used until then at the
// limit's full pace, as of the beginning of the outage and before. What it used in earlier outages
// counts besides.
func (s *Store) start(r *record, key string, o *outage) {
	st := r.starts[o.shard]
	if st == nil || st.of != o {
		st = s.follow(r, o)
		r.starts[o.shard] = st
	}
	if s.now() >= st.until {
		return
	}
	if len(st.seen) >= s.opts.MaxKeys {
		clear(st.seen) // keys that come again are emptied again
	}
	st.seen[maphash.String(r.seed, key)] = struct{}{}
	for _, p := range st.pieces {
		s.shares.asOf.Store(&reading{o.began.mono - int64(p.Before), o.began.wall - int64(p.Before)})
		if cost := costOf(p, r.keys.Peek(key, 0)); cost > 0 {
			r.keys.Take(key, cost)
		}
	}
	s.shares.asOf.Store(nil)
}

// follow works out what to charge to the keys of a limit when an outage begins, and for how long
// that matters.
func (s *Store) follow(r *record, o *outage) *start {
	limit := r.keys.Limit()
	st := &start{of: o, pieces: limits(limit, o.began.wall), until: math.MinInt64, seen: map[uint64]struct{}{}}
	p, err := weir.Prepare(limit, time.Nanosecond)
	if err != nil || len(st.pieces) == 0 {
		return st // there is no error: the limit is in use
	}
	began := o.began.mono
	if p.Wall() {
		began = o.began.wall
	}
	state := used(p, began, st.pieces)
	if st.until = o.began.mono + int64(p.Peek(state, began, 0).ResetAfter); st.until < o.began.mono {
		st.until = math.MaxInt64
	}
	return st
}
