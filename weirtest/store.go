package weirtest

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"sync"
	"time"

	"github.com/weirflow/weir"
	"github.com/weirflow/weir/internal/rules"
)

// A Store is a weir.Store in memory, for tests of programs that use a weir.Store, and the reference
// for other stores: it is made of the models of this package. Several nodes in one process can share
// it. It is exact to a nanosecond, all charges of a batch have the same time, and a group is one
// atomic step, whatever its keys.
//
// A key has a state for each of the last two versions of its limit, and a clock that goes on where the
// Store's steps back: see Versions. As in other stores, cancelling a reservation may give back less
// than it took ("Cancelling a reservation" in docs/guarantees.md).
//
// A Store is safe for concurrent use. Batches run one after the other. It keeps at most 65,536
// keys. When room is needed, it evicts idle keys, and never others. Without room, a charge of a new
// key fails with ErrFull. It keeps as many charges that may be settled. Beyond that, it drops the
// charge for which giving back ends first.
type Store struct {
	mu       sync.Mutex
	clock    func() int64
	now      int64 // of the batch
	closed   bool
	keys     map[storeKey]*stored
	full     int // how many keys there may be before idle keys are evicted
	receipts receipts
	once     map[string]int64 // the settlements that were carried out, and until when they are remembered
}

// storeMost limits the keys, and the receipts. storeFew is how many keys are kept before any is
// evicted.
const (
	storeMost = 1 << 16
	storeFew  = 1 << 10
)

// ErrFull is the error for a charge of a new key without room: use errors.Is on the Err of the
// charge's decision. Like all errors about a charge, it is also a weir.ErrCharge.
var ErrFull = errors.New("weirtest: the store has no room for another key: all that it has are limited")

// ErrClosed is the error of a closed Store.
var ErrClosed = errors.New("weirtest: the store is closed")

type storeKey struct{ name, key string }

// stored is the states of a key.
type stored struct {
	*Versions
	limit weir.Limit // of the latest call
}

// NewStore returns an empty store. now returns the time in nanoseconds, since 1970 if windows are
// aligned to dates: use the Now of a Clock; default: the real time.
func NewStore(now func() int64) *Store {
	if now == nil {
		now = func() int64 { return time.Now().UnixNano() }
	}
	return &Store{clock: now, keys: map[storeKey]*stored{}, full: storeFew}
}

// Close makes all further calls fail with ErrClosed.
func (s *Store) Close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
	s.keys, s.receipts = nil, receipts{}
	return nil
}

// Len returns how many keys are kept.
func (s *Store) Len() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.keys)
}

// Do carries out a batch, as weir.Store specifies. If the context has ended before, it charges
// nothing.
func (s *Store) Do(ctx context.Context, batch []weir.Charge, out []weir.Decision) (err error) {
	if len(out) < len(batch) {
		return fmt.Errorf("weirtest: %d charges, and room for %d decisions", len(batch), len(out))
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case ctx.Err() != nil:
		return ctx.Err()
	case s.closed:
		return ErrClosed
	}
	s.now = s.clock()
	groups := map[int][]int{}
	for i := range batch {
		batch[i].Err = nil
		if g := batch[i].Group; g > 0 {
			groups[g] = append(groups[g], i)
		}
	}
	for i := range batch {
		c := &batch[i]
		switch members := groups[c.Group]; {
		case c.Group <= 0:
			out[i], c.Err = s.one(c)
		case members[0] == i:
			s.group(batch, out, members)
		}
	}
	for i := range batch {
		if c := &batch[i]; c.Err != nil {
			c.Err = fmt.Errorf("%w: %w", weir.ErrCharge, c.Err)
			err = cmp.Or(err, c.Err)
		}
	}
	return err
}

// one carries out a charge outside of groups.
func (s *Store) one(c *weir.Charge) (d weir.Decision, err error) {
	if c.Op == weir.OpReset {
		delete(s.keys, storeKey{c.Name, c.Key})
	}
	k, err := s.of(c, c.Op == weir.OpPeek || c.Op == weir.OpReset)
	if err != nil {
		return d, err
	}
	switch c.Op {
	case weir.OpTake:
		d = s.take(k, c)
	case weir.OpPeek:
		d = k.Peek(c.Limit, s.now, c.Cost)
		if c.Used = 0; c.Usage {
			c.Used = k.Used(c.Limit, s.now)
		}
	case weir.OpReserve:
		d, c.Delay = s.reserve(k, c, c.Cost, max(c.Within, -1), true)
	case weir.OpSettle:
		d, err = s.settle(k, c)
	case weir.OpTakeSome:
		d = s.takeSome(k, c)
	case weir.OpCarry:
		k.Carry(c.Limit, s.now)
		d = k.Peek(c.Limit, s.now, 0)
	case weir.OpReset:
		d = k.Peek(c.Limit, s.now, 0)
	case weir.OpGiveBack:
		err = k.GiveBack(c.Limit, s.now, c.Cost)
		d = k.Peek(c.Limit, s.now, 0)
	default:
		err = fmt.Errorf("weirtest: a store knows no operation %d", c.Op)
	}
	return completed(d, c), err
}

// completed is a decision of a model, with the name of the limit.
func completed(d weir.Decision, c *weir.Charge) weir.Decision {
	switch {
	case c.Name == "":
	case d.By == "":
		d.By = c.Name
	default:
		d.By = c.Name + "/" + d.By
	}
	d.Source = weir.SourceStore
	return d
}

// group carries out the charges of a group, if each of them fits after those before it. If one is
// refused, the decisions about the others are what they would have been without a charge.
func (s *Store) group(batch []weir.Charge, out []weir.Decision, members []int) {
	keys := make([]*stored, len(members))
	fail := func(err error) {
		for _, i := range members {
			batch[i].Err = err
		}
	}
	for j, i := range members {
		c := &batch[i]
		if c.Op != weir.OpTake {
			fail(fmt.Errorf("weirtest: a charge of group %d is to %v: a group only takes", c.Group, c.Op))
			return
		}
		var err error
		if keys[j], err = s.of(c, false); err != nil {
			fail(err)
			return
		}
	}
	all, after := true, map[*stored]*Versions{}
	alone := map[*stored]int{}  // how many of the charges are for a key
	for j, i := range members { // the first pass charges nothing
		c, k := &batch[i], keys[j]
		alone[k]++
		if after[k] == nil {
			after[k] = k.Clone()
		}
		if out[i] = completed(after[k].Take(c.Limit, s.now, c.Cost), c); !out[i].Allowed {
			all = false
		}
	}
	for j, i := range members {
		c := &batch[i]
		switch {
		case all:
			out[i] = completed(s.take(keys[j], c), c)
		case !out[i].Allowed && alone[keys[j]] == 1: // it is refused again, and its state begins, as after any refusal
			out[i] = completed(keys[j].Take(c.Limit, s.now, c.Cost), c)
		case out[i].Allowed:
			out[i] = completed(keys[j].Peek(c.Limit, s.now, c.Cost), c)
		}
	}
}

// take implements OpTake.
func (s *Store) take(k *stored, c *weir.Charge) weir.Decision {
	if c.Keep {
		d, _ := s.reserve(k, c, c.Cost, 0, c.Estimate)
		return d
	}
	return k.Take(c.Limit, s.now, c.Cost)
}

// takeSome implements OpTakeSome: like weir.Limiter.TakeAtMost, with a receipt.
func (s *Store) takeSome(k *stored, c *weir.Charge) weir.Decision {
	cost := min(c.Cost, 1)
	if c.Cost > 1 {
		cost = max(min(c.Cost, k.Peek(c.Limit, s.now, 1).Remaining), 1)
	}
	d, _ := s.reserve(k, c, cost, 0, false)
	if c.Taken = 0; d.Allowed {
		c.Taken = cost
	}
	return d
}

// reserve charges ahead of time and keeps a receipt.
func (s *Store) reserve(k *stored, c *weir.Charge, cost int64, within time.Duration, outstanding bool) (weir.Decision, time.Duration) {
	charge, delay, d := k.reserve(c.Limit, s.now, cost, int64(within), outstanding)
	c.Receipt = ""
	if !d.Allowed {
		return d, 0
	}
	ends := s.now + min(int64(d.ResetAfter), math.MaxInt64-max(s.now, 0))
	c.Receipt = s.receipts.keep(&kept{of: k, charge: charge}, ends)
	return d, delay
}

// settle implements OpSettle.
func (s *Store) settle(k *stored, c *weir.Charge) (weir.Decision, error) {
	if c.Once != "" && c.OnceFor > 0 {
		if until, ok := s.once[c.Once]; ok && s.now < until {
			return k.Peek(c.Limit, s.now, 0), nil
		}
		if len(s.once) >= storeMost {
			s.once = nil
		}
		if s.once == nil {
			s.once = map[string]int64{}
		}
		s.once[c.Once] = s.now + int64(c.OnceFor)
	}
	var cost int64 // without a receipt, nothing was reserved
	var r *kept
	if c.Receipt != "" {
		var err error
		if cost, r, err = s.receipts.take(c.Receipt); err != nil {
			return weir.Decision{}, err
		}
	}
	charge := sharedCharge{cost: cost} // nothing can be given back
	if r != nil && r.of == k {
		charge = r.charge
	}
	if k.settle(c.Limit, s.now, charge, c.Cost) {
		return weir.Decision{}, weir.ErrExpired
	}
	return k.Peek(c.Limit, s.now, 0), nil
}

// of returns the states of a charge's key. With look, new states are not kept.
func (s *Store) of(c *weir.Charge, look bool) (*stored, error) {
	if err := storable(c.Limit); err != nil {
		return nil, err
	}
	at := storeKey{c.Name, c.Key}
	if k := s.keys[at]; k != nil {
		k.limit = c.Limit
		return k, nil
	}
	k := &stored{NewVersions(1), c.Limit}
	if look {
		return k, nil
	}
	if len(s.keys) >= s.full {
		s.makeRoom()
	}
	if len(s.keys) >= storeMost {
		return nil, ErrFull
	}
	s.keys[at] = k
	return k, nil
}

// storable returns why stores do not keep a limit; nil if they do.
func storable(l weir.Limit) error {
	if l == nil {
		return errors.New("weirtest: a charge without a limit")
	}
	if err := l.Validate(); err != nil {
		return err
	}
	for _, part := range weir.Parts(l) {
		if k := rules.KindOf(part); k != nil && k.NoStore != "" {
			return fmt.Errorf("weirtest: a store does not keep %s: %s", weir.Algorithm(part), k.NoStore)
		}
	}
	return nil
}

// makeRoom evicts idle keys.
func (s *Store) makeRoom() {
	for at, k := range s.keys {
		if returns(k.limit) && k.unused(s.now) {
			delete(s.keys, at)
		}
	}
	s.full = min(max(storeFew, 2*len(s.keys)), storeMost)
}

// returns reports whether a state becomes equal to an untouched one by itself. A state that starts
// with less than it can hold does not.
func returns(l weir.Limit) bool {
	for _, part := range weir.Parts(l) {
		switch part := part.(type) {
		case weir.TokenBucket:
			if part.Initial != 0 && part.Initial != part.Burst {
				return false
			}
		case weir.SmoothBursty:
			return false
		}
	}
	return true
}
