package failover

import (
	"errors"
	"hash/maphash"
	"math"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weirflow/weir"
	"github.com/weirflow/weir/internal/rules"
	"github.com/weirflow/weir/keyed"
)

// maxNames bounds how many limits there can be: they come from a configuration, and not from clients.
const maxNames = 1024

// shares are what is known of each limit here, and the local states. The lock is held for writing to change a record and to put what
// clocks read back, and for reading by all who go by them: it is held over no wait, no callback and no I/O.
type shares struct {
	mu      sync.RWMutex
	records map[string]*record
	outage  atomic.Pointer[outage]
	asOf    atomic.Pointer[reading] // what the clocks read, where that is not now
}

// An outage is one time that the breaker is open, and a reading is of both clocks.
type (
	outage  struct{ began reading }
	reading struct{ mono, wall int64 }
)

// A record is what is known of one limit.
type record struct {
	limit   weir.Limit // as it is in the store
	size    int64      // its capacity
	largest int64      // the most that one charge may take
	nodes   int        // that the share is for

	keys *keyed.Limiter[string] // nil unless it is Local

	// At its first charge in an outage, a key is made one that has saved up nothing.
	of     *outage
	pieces []rules.Use
	until  int64 // when all that is as good as undone
	seen   map[uint64]struct{}
	seed   maphash.Seed
}

var errNames = errors.New("weir: the failover store knows 1024 limits already: a name is to be that of a limit, and not of a client")

// begin notes that an outage begins.
func (s *shares) begin(mono, wall int64) { s.outage.Store(&outage{reading{mono, wall}}) }

// end notes that it has ended, and lets go of what was for it alone.
func (s *shares) end() {
	s.outage.Store(nil)
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, r := range s.records {
		r.of, r.pieces, r.seen = nil, nil, nil
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
}

// A need is what has to be ready before something is decided: the record of a limit and, where keys is set, the local state of a key.
type need struct {
	charge *weir.Charge
	keys   bool
	record *record
}

// lock gets ready what is needed, and returns with the lock held, as unlock gives it back.
func (s *Store) lock(needs ...*need) (exclusive bool, err error) {
	s.shares.mu.RLock()
	ready := true
	for _, n := range needs {
		if n.record = s.shares.records[n.charge.Name]; n.record == nil || !s.ready(n) {
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

// ready reports whether a record is what is needed. The lock is held.
func (s *Store) ready(n *need) bool {
	r := n.record
	if r.limit != n.charge.Limit {
		return false
	}
	return !n.keys || r.keys != nil && r.nodes == s.Nodes() && s.begun(r, n.charge.Key)
}

// begun reports whether a key has begun the outage, if there is one.
func (s *Store) begun(r *record, key string) bool {
	o := s.shares.outage.Load()
	if o == nil || s.opts.StartFull {
		return true
	}
	if r.of != o {
		return false
	}
	if s.now() >= r.until {
		return true
	}
	_, ok := r.seen[maphash.String(r.seed, key)]
	return ok
}

// prepare makes a record what is needed. The lock is held for writing.
func (s *Store) prepare(n *need) error {
	c := n.charge
	r := s.shares.records[c.Name]
	if r == nil {
		if len(s.shares.records) >= maxNames {
			return errNames
		}
		r = &record{seed: maphash.MakeSeed()}
	}
	if n.record = r; r.limit != c.Limit {
		p, err := weir.Prepare(c.Limit, time.Nanosecond)
		if err != nil {
			return err
		}
		r.limit, r.size, r.largest = c.Limit, p.Peek(nil, 0, 0).Limit, p.Largest()
		r.nodes = 0
		s.shares.records[c.Name] = r
	}
	if !n.keys {
		return nil
	}
	if err := s.divide(r, c.Name); err != nil {
		return err
	}
	if !s.begun(r, c.Key) {
		s.start(r, c.Key)
	}
	return nil
}

// divide makes the local limiter of a record one of this node's share.
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
		r.nodes, r.of = nodes, nil
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

// start has a key begin the outage with nothing saved up: it is charged, as of when the outage began and before, what it would have used had
// it used its share at the limit's pace. What it did use in earlier outages counts besides.
func (s *Store) start(r *record, key string) {
	o := s.shares.outage.Load()
	if o == nil { // it has just ended
		return
	}
	if r.of != o {
		s.follow(r, o)
	}
	if s.now() >= r.until {
		return
	}
	if len(r.seen) >= s.opts.MaxKeys {
		clear(r.seen) // who comes again is made to start again
	}
	r.seen[maphash.String(r.seed, key)] = struct{}{}
	for _, p := range r.pieces {
		s.shares.asOf.Store(&reading{o.began.mono - int64(p.Before), o.began.wall - int64(p.Before)})
		if cost := costOf(p, r.keys.Peek(key, 0)); cost > 0 {
			r.keys.Take(key, cost)
		}
	}
	s.shares.asOf.Store(nil)
}

// follow works out what keys of a limit have used when an outage begins, and for how long that matters.
func (s *Store) follow(r *record, o *outage) {
	limit := r.keys.Limit()
	r.of, r.pieces, r.until = o, limits(limit, o.began.wall), math.MinInt64
	if r.seen == nil {
		r.seen = map[uint64]struct{}{}
	}
	p, err := weir.Prepare(limit, time.Nanosecond)
	if err != nil || len(r.pieces) == 0 {
		return // there is no error: it is in force
	}
	began := o.began.mono
	if p.Wall() {
		began = o.began.wall
	}
	state := used(p, began, r.pieces)
	if r.until = o.began.mono + int64(p.Peek(state, began, 0).ResetAfter); r.until < o.began.mono {
		r.until = math.MaxInt64
	}
}
