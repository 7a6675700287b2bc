package keyed

import (
	"math"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weirflow/weir"
	"github.com/weirflow/weir/internal/list"
)

// maxSpares is how many states a stripe keeps for reuse: making one costs more than entering.
const maxSpares = 4

// A stripe is a part of the keys of a Concurrency.
type stripe[K comparable] struct {
	c     *Concurrency[K]
	fence atomic.Int64 // the last fence given out
	due   atomic.Int64 // no key can be removed by expiry before this time; read without the lock

	mu       sync.Mutex
	limit    weir.Concurrency
	keys     map[K]*state[K]
	most     int                  // the most keys that this map has held
	expiring list.List[state[K]]  // the states with holds that expire, ordered by due
	spares   list.Stack[state[K]] // for reuse
	ended    weir.Outcomes        // the outcomes of removed limiters
	_        [64]byte
}

// A state is a key with holders or waiters. It belongs to one stripe forever, and to one key after
// another. A hold of an earlier key finds that it has ended, as the limiter distinguishes its
// holds. The stripe's lock guards everything but the limiter.
type state[K comparable] struct {
	s     *stripe[K]
	lim   *weir.ConcurrencyLimiter
	key   K
	calls int   // callers that may be about to hold or wait: the key must stay
	kept  bool  // the state is in use for a key
	due   int64 // all holds that expire have expired by then
	// the largest earlier MaxHold since the state is in use for this key
	longest time.Duration
	node    list.Node[state[K]] // in expiring while kept, in spares otherwise
}

// open returns the key's state, and makes one if it has none. It returns nil if there is no room.
func (s *stripe[K]) open(key K) *state[K] {
	if x := s.keys[key]; x != nil {
		return x
	}
	if !s.room() {
		return nil
	}
	x := s.keys[key] // another caller may have added the key, as the lock was released meanwhile
	if x != nil {
		return x
	}
	if s.c.count.Add(1) > int64(s.c.opts.MaxKeys) {
		s.c.count.Add(-1)
		return nil
	}
	if x = s.spares.Pop(); x == nil {
		x = s.newState()
	}
	x.key, x.kept = key, true
	s.keys[key] = x
	s.most = max(s.most, len(s.keys))
	return x
}

func (s *stripe[K]) newState() *state[K] {
	c := s.c
	lim, err := weir.NewConcurrency(s.limit, weir.Named(c.opts.Name), weir.WithClock(c.clock), weir.WithWallClock(s.wall), weir.WithTimers(c.timers))
	if err != nil {
		panic(err) // the numbers are valid
	}
	return &state[K]{s: s, lim: lim}
}

// wall is the clock of a limiter's fences: wall time, but each reading is at least a microsecond
// later. So a key that was removed and is entered again, with another limiter, gets a larger fence
// than before, whatever the clock does.
func (s *stripe[K]) wall() int64 {
	now := s.c.times() / 1000
	for {
		last := s.fence.Load()
		next := max(last+1, now)
		if s.fence.CompareAndSwap(last, next) {
			return next * 1000
		}
	}
}

// room reports whether there is room for a new key, after removing expired ones. It may release the
// lock meanwhile.
func (s *stripe[K]) room() bool {
	if s.c.count.Load() < int64(s.c.opts.MaxKeys) {
		return true
	}
	s.mu.Unlock()
	defer s.mu.Lock()
	s.c.clean()
	return s.c.count.Load() < int64(s.c.opts.MaxKeys)
}

// fits reports whether a key without a state would need one for a cost.
func (s *stripe[K]) fits(cost int64) bool { return cost > 0 && cost <= s.limit.Limit }

// unusedDecision is the decision about a key without a state.
func (s *stripe[K]) unusedDecision(cost int64) weir.Decision {
	d := weir.Decision{Allowed: cost >= 0 && cost <= s.limit.Limit, Limit: s.limit.Limit, Remaining: s.limit.Limit, By: s.c.opts.Name}
	if !d.Allowed {
		d.RetryAfter = weir.Never
	}
	return d
}

// full is the decision about a new key without room. It is Never, as nobody knows when a holder
// leaves.
func (s *stripe[K]) full() weir.Decision {
	return weir.Decision{Limit: s.limit.Limit, RetryAfter: weir.Never, By: s.c.opts.Name}
}

// refused is the decision about an invalid key.
func (s *stripe[K]) refused() weir.Decision {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.full()
}

// enter takes a place if one is free now. Otherwise it returns the key's state, which stays until
// back is called.
func (s *stripe[K]) enter(key K, cost int64) (x *state[K], h Hold[K], err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.keys[key] == nil && !s.fits(cost) {
		return nil, h, &weir.LimitedError{Decision: s.unusedDecision(cost)}
	}
	if x = s.open(key); x == nil {
		s.c.refused.Add(1)
		return nil, h, ErrFull
	}
	h, d := x.tryEnter(cost)
	if d.Allowed {
		return nil, h, nil
	}
	x.calls++
	return x, h, nil
}

// leave ends what enter began. If a place is held, it records the expiry.
func (s *stripe[K]) leave(x *state[K], held bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	x.calls--
	if held {
		x.note()
	}
	s.settle(x)
}

func (x *state[K]) tryEnter(cost int64) (h Hold[K], d weir.Decision) {
	if h.held, d = x.lim.TryEnterCost(cost); d.Allowed && cost > 0 {
		h.x = x
		x.note()
	}
	return h, d
}

// note records the expiry of a hold that was just given or extended: at most MaxHold from now.
func (x *state[K]) note() {
	s := x.s
	// a hold after a wait may have begun under an earlier MaxHold
	most := max(s.limit.MaxHold, x.longest)
	if most == 0 {
		return
	}
	due := later(s.c.clock(), most)
	if x.node.Listed() {
		due = max(due, x.due)
		s.unlist(x)
	}
	x.due = due
	// The state nearly always belongs at the end, except after MaxHold was lowered.
	at := s.expiring.Last()
	for at != nil && at.due > x.due {
		at = at.node.Prev()
	}
	if at != nil {
		s.expiring.InsertBehind(&at.node, &x.node, x)
	} else {
		s.expiring.PushFront(&x.node, x)
	}
	first := s.expiring.First().due
	s.due.Store(first)
	s.c.arm(first)
}

// unlist removes a state from the list ordered by due.
func (s *stripe[K]) unlist(x *state[K]) {
	if !x.node.Listed() {
		return
	}
	s.expiring.Remove(&x.node)
	if first := s.expiring.First(); first != nil {
		s.due.Store(first.due)
	} else {
		s.due.Store(math.MaxInt64)
	}
}

// settle removes the key if nobody holds or waits any more, and reports whether it did.
func (s *stripe[K]) settle(x *state[K]) bool {
	if !x.kept || x.calls > 0 || x.lim.Holding() > 0 {
		return false
	}
	s.unlist(x)
	delete(s.keys, x.key)
	s.c.count.Add(-1)
	var none K
	x.key, x.kept, x.longest = none, false, 0
	if s.spares.Len() < maxSpares {
		s.spares.Push(&x.node, x)
	} else {
		s.ended = plus(s.ended, x.lim.Outcomes())
	}
	s.shrink()
	return true
}

// shrink replaces the map, as a map keeps the memory of all keys that it ever had.
func (s *stripe[K]) shrink() {
	if s.most < 64 || 4*len(s.keys) > s.most {
		return
	}
	keys := make(map[K]*state[K], len(s.keys))
	for key, x := range s.keys {
		keys[key] = x
	}
	s.keys, s.most = keys, 2*len(keys)
}

// change puts new parameters in force. It drops the spare states, as they have the old ones.
func (s *stripe[K]) change(next weir.Concurrency) {
	s.mu.Lock()
	defer s.mu.Unlock()
	was := s.limit.MaxHold
	s.limit = next
	for x := s.spares.Pop(); x != nil; x = s.spares.Pop() {
		s.ended = plus(s.ended, x.lim.Outcomes())
	}
	for _, x := range s.keys {
		x.longest = max(x.longest, was)
		if err := x.lim.SetLimit(next); err != nil {
			panic(err) // the numbers are valid
		}
	}
}

// sum adds a stripe's state and counters to the totals.
func (s *stripe[K]) sum(t *ConcurrencyStats) {
	s.mu.Lock()
	defer s.mu.Unlock()
	t.Keys += len(s.keys)
	for _, x := range s.keys {
		t.Waiting += x.lim.Waiting()
		t.Holding += x.lim.Holding()
		t.Outcomes = plus(t.Outcomes, x.lim.Outcomes())
	}
	for x := s.spares.Top(); x != nil; x = x.node.Next() {
		t.Outcomes = plus(t.Outcomes, x.lim.Outcomes())
	}
	t.Outcomes = plus(t.Outcomes, s.ended)
}

func plus(a, b weir.Outcomes) weir.Outcomes {
	return weir.Outcomes{OK: a.OK + b.OK, Ignored: a.Ignored + b.Ignored, Dropped: a.Dropped + b.Dropped, Expired: a.Expired + b.Expired}
}

// clean removes the keys whose holds have all expired. It locks only stripes that may have some.
func (c *Concurrency[K]) clean() {
	now, read := int64(0), false
	for i := range c.stripes {
		s := &c.stripes[i]
		due := s.due.Load()
		if due == math.MaxInt64 {
			continue
		}
		if !read {
			now, read = c.clock(), true
		}
		if due <= now {
			s.clean(now)
		}
	}
}

func (s *stripe[K]) clean(now int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for x := s.expiring.First(); x != nil && x.due <= now; x = s.expiring.First() {
		s.unlist(x) // the holds that are left do not expire, or back records their expiry
		s.settle(x)
	}
}

// arm sets the janitor's timer for when a key can be removed, unless it is set for an earlier time.
func (c *Concurrency[K]) arm(due int64) {
	if due >= c.armed.Load() {
		return
	}
	c.janitor.Lock()
	defer c.janitor.Unlock()
	if c.closed || due >= c.armed.Load() {
		return
	}
	c.armed.Store(due)
	d := max(until(c.clock(), due), sweepEvery)
	if c.timer == nil {
		c.timer = c.timers(d, c.wake)
	} else {
		c.timer.Reset(d)
	}
}

func (c *Concurrency[K]) wake() {
	c.armed.Store(math.MaxInt64)
	c.clean()
	first := int64(math.MaxInt64)
	for i := range c.stripes {
		first = min(first, c.stripes[i].due.Load())
	}
	c.arm(first)
}

// Close stops the timer that removes keys whose holds have expired. The Concurrency still works:
// such keys are removed at the next call for them, or when room is needed. Close returns nil.
func (c *Concurrency[K]) Close() error {
	c.janitor.Lock()
	defer c.janitor.Unlock()
	c.closed = true
	if c.timer != nil {
		c.timer.Stop()
	}
	return nil
}
