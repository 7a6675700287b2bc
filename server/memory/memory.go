// Package memory is a weir.Store in the memory of this process, for limits that clients of a service
// bring with their calls. It keeps a weir.Limiter for each key, so its decisions are those of the
// library.
package memory

import (
	"context"
	"errors"
	"fmt"
	"hash/maphash"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weirflow/weir"
)

// Options bound a Store. Zero means the default.
type Options struct {
	MaxKeys     int  // default: 100,000
	Refuse      bool // a new key beyond MaxKeys fails; default: the key of a sample that resets first is evicted
	MaxReceipts int  // estimates that may be settled, and as many other charges; beyond it, the oldest stays charged; default: 100,000

	// Clock replaces all clocks, for virtual time: nanoseconds of Unix time. default: the real ones
	Clock func() int64
}

const (
	defaultMaxKeys     = 100_000
	defaultMaxReceipts = 100_000
	mostShards         = 64
	mostPrepared       = 1024 // limits that are kept compiled
)

// Errors of charges. errors.Is finds them, and weir.ErrCharge.
var (
	ErrFull    = errors.New("there is no room for another key")
	ErrReceipt = errors.New("no such charge can be settled: it was settled before, is too old, or is of another key")
)

// A Store keeps states by name and key. It is safe for concurrent use, and has no goroutine.
type Store struct {
	o        Options
	began    time.Time
	seed     maphash.Seed
	shards   []shard
	prepared prepared
	receipts receipts
	evicted  atomic.Uint64 // keys in use
}

// A shard is a part of the keys, under one lock.
type shard struct {
	mu   sync.Mutex
	keys map[id]*entry
}

type id struct{ name, key string }

// New returns an empty store.
func New(o Options) *Store {
	if o.MaxKeys == 0 {
		o.MaxKeys = defaultMaxKeys
	}
	if o.MaxReceipts == 0 {
		o.MaxReceipts = defaultMaxReceipts
	}
	n := min(mostShards, max(o.MaxKeys/100, 1))
	s := &Store{o: o, began: time.Now(), seed: maphash.MakeSeed(), shards: make([]shard, n)}
	for i := range s.shards {
		s.shards[i].keys = map[id]*entry{}
	}
	s.receipts.byID = map[weir.Receipt]*receipt{}
	s.receipts.most = o.MaxReceipts
	return s
}

// Close has nothing to end.
func (s *Store) Close() error { return nil }

// Len returns how many keys are kept.
func (s *Store) Len() (n int) {
	for i := range s.shards {
		s.shards[i].mu.Lock()
		n += len(s.shards[i].keys)
		s.shards[i].mu.Unlock()
	}
	return n
}

// Evicted returns how many keys were evicted that were in use.
func (s *Store) Evicted() uint64 { return s.evicted.Load() }

// now is the time of limits that read no wall time.
func (s *Store) now() int64 {
	if s.o.Clock != nil {
		return s.o.Clock()
	}
	return int64(time.Since(s.began))
}

func (s *Store) wall() int64 {
	if s.o.Clock != nil {
		return s.o.Clock()
	}
	return time.Now().UnixNano()
}

// Do carries out a batch, as weir.Store specifies. If the context has ended before, it charges nothing.
func (s *Store) Do(ctx context.Context, batch []weir.Charge, out []weir.Decision) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	var first error
	var done []int // groups
	for i := range batch {
		c := &batch[i]
		switch c.Err = nil; {
		case c.Group <= 0:
			out[i], c.Err = s.one(c)
		case !slices.Contains(done, c.Group):
			done = append(done, c.Group)
			s.group(batch, out, c.Group)
		}
	}
	for i := range batch {
		if c := &batch[i]; c.Err != nil {
			c.Err = fmt.Errorf("%w: %w", weir.ErrCharge, c.Err)
			if first == nil {
				first = c.Err
			}
		}
	}
	return first
}

// shardOf returns the number of a key's shard.
func (s *Store) shardOf(c *weir.Charge) int {
	if len(s.shards) == 1 {
		return 0
	}
	return int(maphash.Comparable(s.seed, id{c.Name, c.Key}) % uint64(len(s.shards)))
}

// one carries out a charge outside of groups.
func (s *Store) one(c *weir.Charge) (weir.Decision, error) {
	k := &s.shards[s.shardOf(c)]
	k.mu.Lock()
	defer k.mu.Unlock()
	if c.Op == weir.OpReset {
		delete(k.keys, id{c.Name, c.Key})
	}
	look := c.Op != weir.OpTake && c.Op != weir.OpReserve && c.Op != weir.OpTakeSome
	e, err := s.entry(k, c, look)
	if err != nil {
		return weir.Decision{}, err
	}
	var d weir.Decision
	switch c.Op {
	case weir.OpTake:
		d = s.take(e, c)
	case weir.OpPeek:
		d = e.peek(c.Cost)
		if c.Used = 0; c.Usage {
			c.Used = e.spent(s)
		}
	case weir.OpReserve:
		d = s.reserve(e, c, c.Cost, c.Within)
	case weir.OpTakeSome:
		d = s.takeSome(e, c)
	case weir.OpSettle:
		d, err = s.settle(e, c)
	case weir.OpCarry:
		if err = e.carry(s, c.Limit); err == nil {
			d = e.peek(0)
		}
	case weir.OpReset:
		d = e.peek(0)
	default:
		err = fmt.Errorf("a store knows no operation %d", c.Op)
	}
	d.Source = weir.SourceStore
	return d, err
}

// group carries out the charges of a group: all or none. The shards of all its keys are locked, so no
// other caller sees what is given back.
func (s *Store) group(batch []weir.Charge, out []weir.Decision, group int) {
	var members, shards []int
	for i := range batch {
		if batch[i].Group == group {
			members, shards = append(members, i), append(shards, s.shardOf(&batch[i]))
		}
	}
	slices.Sort(shards)
	for _, n := range slices.Compact(shards) {
		s.shards[n].mu.Lock()
		defer s.shards[n].mu.Unlock()
	}
	entries := make([]*entry, len(members))
	for j, i := range members {
		c, err := &batch[i], error(nil)
		if c.Op != weir.OpTake {
			err = fmt.Errorf("a charge of group %d is to %v: a group only takes", group, c.Op)
		} else {
			entries[j], err = s.entry(&s.shards[s.shardOf(c)], c, false)
		}
		if err != nil {
			for _, i := range members {
				batch[i].Err = err
			}
			return
		}
	}
	s.takeAll(batch, out, members, entries)
}

// takeAll takes for the members of a group, in order. If one is refused, the others are given back, and
// their decisions are what they would have been without a charge.
func (s *Store) takeAll(batch []weir.Charge, out []weir.Decision, members []int, entries []*entry) {
	made := make([]charge, len(members))
	refused := -1
	for j, i := range members {
		var ok bool
		if made[j], out[i], ok = entries[j].reserve(s, batch[i].Limit, batch[i].Cost, 0); !ok {
			refused = j
			break
		}
	}
	for j, i := range members {
		c := &batch[i]
		switch {
		case refused < 0 && c.Keep:
			c.Receipt = s.receipts.keep(c, made[j])
		case refused < 0:
			made[j].keep()
		case j < refused:
			made[j].settle(0)
		}
	}
	if refused >= 0 {
		for j, i := range members {
			if j != refused {
				out[i] = entries[j].version(s, batch[i].Limit).lim.Peek(batch[i].Cost)
			}
		}
	}
	for _, i := range members {
		out[i].Source = weir.SourceStore
	}
}

// take implements OpTake.
func (s *Store) take(e *entry, c *weir.Charge) weir.Decision {
	if c.Keep || len(e.versions) > 1 {
		made, d, ok := e.reserve(s, c.Limit, c.Cost, 0)
		if c.Receipt = ""; ok && c.Keep {
			c.Receipt = s.receipts.keep(c, made)
		} else {
			made.keep()
		}
		return d
	}
	return e.versions[0].lim.Take(c.Cost)
}

// takeSome implements OpTakeSome, as weir.Limiter.TakeAtMost does, with a receipt.
func (s *Store) takeSome(e *entry, c *weir.Charge) weir.Decision {
	cost := min(c.Cost, 1)
	if c.Cost > 1 {
		cost = max(min(c.Cost, e.peek(1).Remaining), 1)
	}
	d := s.reserve(e, c, cost, 0)
	if c.Taken = 0; d.Allowed {
		c.Taken = cost
	}
	return d
}

// reserve charges, and keeps a receipt.
func (s *Store) reserve(e *entry, c *weir.Charge, cost int64, within time.Duration) weir.Decision {
	c.Receipt, c.Delay = "", 0
	made, d, ok := e.reserve(s, c.Limit, cost, within)
	if c.Delay = made.delay; ok {
		c.Receipt = s.receipts.keep(c, made)
	}
	return d
}

// settle implements OpSettle.
func (s *Store) settle(e *entry, c *weir.Charge) (weir.Decision, error) {
	r := s.receipts.take(id{c.Name, c.Key}, c.Receipt)
	if r == nil {
		return weir.Decision{}, ErrReceipt
	}
	if c.Cost >= 0 {
		r.charge.settle(c.Cost)
	}
	return e.version(s, c.Limit).lim.Peek(0), nil
}

// entry returns the state of a charge's key, with the charge's version of the limit first. With look,
// a new one is not kept. The shard is locked.
func (s *Store) entry(k *shard, c *weir.Charge, look bool) (*entry, error) {
	p, err := s.prepared.of(c.Limit)
	if err != nil {
		return nil, err
	}
	at := id{c.Name, c.Key}
	e := k.keys[at]
	switch {
	case e != nil && (c.Op == weir.OpCarry || c.Op == weir.OpSettle): // of a version that may not be there any more
		return e, nil
	case e != nil:
		return e, e.use(s, p, c.Name)
	}
	if e, err = s.newEntry(p, c.Name); err != nil || look {
		return e, err
	}
	if len(k.keys) >= max(s.o.MaxKeys/len(s.shards), 1) && !s.makeRoom(k) {
		return nil, ErrFull
	}
	k.keys[at] = e
	return e, nil
}

// evictOf is how many keys of a full shard are looked at for one to evict.
const evictOf = 32

// makeRoom evicts what is idle among a sample of a shard's keys, and otherwise the key that resets
// first.
func (s *Store) makeRoom(k *shard) bool {
	var first id
	var soonest time.Duration = -1
	looked, idle := 0, false
	for at, e := range k.keys { // in random order
		if looked++; looked > evictOf {
			break
		}
		reset := e.resetAfter()
		if reset == 0 {
			delete(k.keys, at)
			idle = true
		} else if soonest < 0 || reset < soonest {
			first, soonest = at, reset
		}
	}
	if idle || s.o.Refuse || soonest < 0 {
		return idle
	}
	delete(k.keys, first)
	s.evicted.Add(1)
	return true
}

// prepared is limits that are compiled.
type prepared struct {
	mu  sync.RWMutex
	all map[weir.Limit]weir.Prepared
}

func (p *prepared) of(l weir.Limit) (weir.Prepared, error) {
	if l == nil {
		return weir.Prepared{}, errors.New("there is no limit")
	}
	p.mu.RLock()
	known, ok := p.all[l]
	p.mu.RUnlock()
	if ok {
		return known, nil
	}
	known, err := weir.Prepare(l, time.Nanosecond)
	if err != nil {
		return known, err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.all == nil || len(p.all) >= mostPrepared {
		p.all = map[weir.Limit]weir.Prepared{}
	}
	p.all[l] = known
	return known, nil
}
