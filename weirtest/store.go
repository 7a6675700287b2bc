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
)

// A Store is a weir.Store in memory, for tests of programs that use a weir.Store, and as a
// reference for other stores. Several nodes in one process can share it. It is exact to a
// nanosecond: each key has a weir.Limiter, all charges of a batch have the same time, and a group
// is one atomic step, whatever its keys.
//
// A charge with another version of a limit changes the limit of its key, as SetLimit does. A store for a
// fleet keeps a state for each of two versions instead: Versions is the model of that.
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

// stored is the state of a key.
type stored struct {
	limit weir.Limit
	lim   *weir.Limiter
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
	defer func() { d.Source = weir.SourceStore }()
	switch c.Op {
	case weir.OpTake:
		return s.take(k, c), nil
	case weir.OpPeek:
		return k.lim.Peek(c.Cost), nil
	case weir.OpReserve:
		d, c.Delay = s.reserve(k, c, c.Cost, max(c.Within, -1))
		return d, nil
	case weir.OpSettle:
		return s.settle(k, c)
	case weir.OpTakeSome:
		return s.takeSome(k, c), nil
	case weir.OpCarry, weir.OpReset:
		return k.lim.Peek(0), nil
	}
	return d, fmt.Errorf("weirtest: a store knows no operation %d", c.Op)
}

// group carries out the charges of a group, if each of them fits after those before it.
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
	all := true
	for j, i := range members { // the first pass charges nothing
		out[i] = after(batch, keys, members, j)
		out[i].Source = weir.SourceStore
		all = all && out[i].Allowed
	}
	for j, i := range members {
		if all {
			out[i] = s.take(keys[j], &batch[i])
			out[i].Source = weir.SourceStore
		}
	}
}

// after returns the decision about a member of a group, after the previous members with the same
// key.
func after(batch []weir.Charge, keys []*stored, members []int, j int) weir.Decision {
	var limiters []*weir.Limiter
	var costs []int64
	for i := range j + 1 {
		if keys[i] == keys[j] {
			limiters = append(limiters, keys[i].lim)
			costs = append(costs, batch[members[i]].Cost)
		}
	}
	if len(limiters) == 1 {
		return keys[j].lim.Peek(costs[0])
	}
	return weir.NewGroup(limiters...).Peek(costs...)
}

// take implements OpTake.
func (s *Store) take(k *stored, c *weir.Charge) weir.Decision {
	if c.Keep {
		d, _ := s.reserve(k, c, c.Cost, 0)
		return d
	}
	return k.lim.Take(c.Cost)
}

// takeSome implements OpTakeSome: like weir.Limiter.TakeAtMost, with a receipt.
func (s *Store) takeSome(k *stored, c *weir.Charge) weir.Decision {
	cost := min(c.Cost, 1)
	if c.Cost > 1 {
		cost = max(min(c.Cost, k.lim.Peek(1).Remaining), 1)
	}
	d, _ := s.reserve(k, c, cost, 0)
	if c.Taken = 0; d.Allowed {
		c.Taken = cost
	}
	return d
}

// reserve charges ahead of time and keeps a receipt.
func (s *Store) reserve(k *stored, c *weir.Charge, cost int64, within time.Duration) (weir.Decision, time.Duration) {
	r, ok := k.lim.Reserve(cost, within)
	d := r.Decision()
	c.Receipt = ""
	if !ok {
		return d, 0
	}
	ends := s.now + min(int64(d.ResetAfter), math.MaxInt64-max(s.now, 0))
	c.Receipt = s.receipts.keep(&kept{of: k, limit: k.limit, r: r, cost: cost}, ends)
	return d, r.Delay()
}

// settle implements OpSettle.
func (s *Store) settle(k *stored, c *weir.Charge) (weir.Decision, error) {
	cost, r, err := s.receipts.take(c.Receipt)
	switch {
	case err != nil:
		return weir.Decision{}, err
	case r != nil && r.of == k && weir.Equal(r.limit, k.limit):
		r.r.Settle(c.Cost)
	case c.Cost > cost: // nothing can be given back, but a higher cost is charged
		late, _ := k.lim.Reserve(0, 0)
		late.Settle(c.Cost - cost)
	}
	return k.lim.Peek(0), nil
}

// of returns the state of a charge's key, with the limit of the charge. With look, a new state is
// not kept. A charge that is settled keeps its limit.
func (s *Store) of(c *weir.Charge, look bool) (*stored, error) {
	at := storeKey{c.Name, c.Key}
	k := s.keys[at]
	switch {
	case k != nil && (c.Op == weir.OpSettle || weir.Equal(k.limit, c.Limit)):
		return k, nil
	case k != nil:
		if err := k.lim.SetLimit(c.Limit); err != nil {
			return nil, err
		}
		k.limit = c.Limit
		return k, nil
	}
	lim, err := weir.New(c.Limit, weir.Named(c.Name), weir.WithClock(s.reading), weir.WithWallClock(s.reading))
	if err != nil {
		return nil, err
	}
	k = &stored{c.Limit, lim}
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

// reading is the clock of the limiters, so that all charges of a batch have the same time.
func (s *Store) reading() int64 { return s.now }

// makeRoom evicts idle keys.
func (s *Store) makeRoom() {
	for at, k := range s.keys {
		if returns(k.limit) && k.lim.Peek(0).ResetAfter == 0 {
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
