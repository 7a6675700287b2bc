package keyed

import (
	"math"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weirflow/weir"
)

// maxSpares is how many states a stripe keeps to be used again: making one costs more than entering.
const maxSpares = 4

// A stripe is some of the keys of a Concurrency.
type stripe[K comparable] struct {
	c     *Concurrency[K]
	fence atomic.Int64 // the last one given
	due   atomic.Int64 // no key whose holds expire can go before; for who has no lock

	mu          sync.Mutex
	limit       weir.Concurrency
	keys        map[K]*state[K]
	most        int       // how many keys there have been in this map
	first, last *state[K] // those whose holds expire, by due
	spare       *state[K] // linked by next
	spares      int
	ended       weir.Outcomes // of the limiters that are gone
	_           [64]byte
}

// A state is what a key has while somebody is there. It belongs to one stripe for good, and to one key after the other: a hold of an earlier
// one finds that it has ended, as the limiter tells its holds apart. All but the limiter is guarded by the stripe's lock.
type state[K comparable] struct {
	s          *stripe[K]
	lim        *weir.ConcurrencyLimiter
	key        K
	calls      int           // callers that may be about to hold or wait: the key stays
	kept       bool          // it is a key's
	listed     bool          // it is among those by due
	due        int64         // all holds that expire have done so by then
	longest    time.Duration // the largest MaxHold that was in force before, since it is the key's
	prev, next *state[K]
}

// open returns the key's state, a new one where it has none. It returns nil where there is no room.
func (s *stripe[K]) open(key K) *state[K] {
	if x := s.keys[key]; x != nil {
		return x
	}
	if !s.room() {
		return nil
	}
	x := s.keys[key] // the lock was let go meanwhile, it may be
	if x != nil {
		return x
	}
	if s.c.count.Add(1) > int64(s.c.opts.MaxKeys) {
		s.c.count.Add(-1)
		return nil
	}
	if x = s.spare; x != nil {
		s.spare, s.spares = x.next, s.spares-1
		x.next = nil
	} else {
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

// wall is what a limiter takes its fences from: wall time, but each reading is another microsecond. So a key that was let go and is entered
// again, with another limiter, gets a larger fence than before, whatever the clock does.
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

// room reports whether there is room for a new key, after what has expired is let go. The lock may be let go meanwhile.
func (s *stripe[K]) room() bool {
	if s.c.count.Load() < int64(s.c.opts.MaxKeys) {
		return true
	}
	s.mu.Unlock()
	defer s.mu.Lock()
	s.c.clean()
	return s.c.count.Load() < int64(s.c.opts.MaxKeys)
}

// takes reports whether a key without a state would need one for a cost.
func (s *stripe[K]) takes(cost int64) bool { return cost > 0 && cost <= s.limit.Limit }

// fresh is the decision about a key without a state.
func (s *stripe[K]) fresh(cost int64) weir.Decision {
	d := weir.Decision{Allowed: cost >= 0 && cost <= s.limit.Limit, Limit: s.limit.Limit, Remaining: s.limit.Limit, By: s.c.opts.Name}
	if !d.Allowed {
		d.RetryAfter = weir.Never
	}
	return d
}

// full is the decision about a key that there is no room for. Nobody knows when there will be: a place is left when its holder likes.
func (s *stripe[K]) full() weir.Decision {
	return weir.Decision{Limit: s.limit.Limit, RetryAfter: weir.Never, By: s.c.opts.Name}
}

// refused is the decision about a key that is none.
func (s *stripe[K]) refused() weir.Decision {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.full()
}

// call takes a place if there is one now. Otherwise it returns the key's state, which stays until back is called.
func (s *stripe[K]) call(key K, cost int64) (x *state[K], h Hold[K], err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.keys[key] == nil && !s.takes(cost) {
		return nil, h, &weir.LimitedError{Decision: s.fresh(cost)}
	}
	if x = s.open(key); x == nil {
		s.c.refused.Add(1)
		return nil, h, ErrFull
	}
	h, d := x.try(cost)
	if d.Allowed {
		return nil, h, nil
	}
	x.calls++
	return x, h, nil
}

// back ends what call began. With a place held, its expiry is noted.
func (s *stripe[K]) back(x *state[K], held bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	x.calls--
	if held {
		x.note()
	}
	s.settle(x)
}

// try takes a place if there is one.
func (x *state[K]) try(cost int64) (h Hold[K], d weir.Decision) {
	if h.held, d = x.lim.TryEnterCost(cost); d.Allowed && cost > 0 {
		h.x = x
		x.note()
	}
	return h, d
}

// note notes that a hold was given or extended just before: if it expires, it has done so MaxHold from now.
func (x *state[K]) note() {
	s := x.s
	most := max(s.limit.MaxHold, x.longest) // what came of a wait may have begun under other numbers
	if most == 0 {
		return
	}
	due := later(s.c.clock(), most)
	if x.listed {
		due = max(due, x.due)
		s.unlist(x)
	}
	x.due, x.listed = due, true
	// Nearly always it is the last. It is not where MaxHold was made shorter.
	at := s.last
	for at != nil && at.due > x.due {
		at = at.prev
	}
	x.prev = at
	if at != nil {
		x.next, at.next = at.next, x
	} else {
		x.next, s.first = s.first, x
	}
	if x.next != nil {
		x.next.prev = x
	} else {
		s.last = x
	}
	s.due.Store(s.first.due)
	s.c.arm(s.first.due)
}

// unlist takes a state out of those by due.
func (s *stripe[K]) unlist(x *state[K]) {
	if !x.listed {
		return
	}
	if x.prev != nil {
		x.prev.next = x.next
	} else {
		s.first = x.next
	}
	if x.next != nil {
		x.next.prev = x.prev
	} else {
		s.last = x.prev
	}
	x.prev, x.next, x.listed = nil, nil, false
	if s.first != nil {
		s.due.Store(s.first.due)
	} else {
		s.due.Store(math.MaxInt64)
	}
}

// settle lets go of the key if nobody is there any more, and reports whether it did.
func (s *stripe[K]) settle(x *state[K]) bool {
	if !x.kept || x.calls > 0 || x.lim.Holding() > 0 {
		return false
	}
	s.unlist(x)
	delete(s.keys, x.key)
	s.c.count.Add(-1)
	var none K
	x.key, x.kept, x.longest = none, false, 0
	if s.spares < maxSpares {
		x.next, s.spare = s.spare, x
		s.spares++
	} else {
		s.ended = plus(s.ended, x.lim.Outcomes())
	}
	s.shrink()
	return true
}

// shrink gives memory back: a map keeps that of all that was ever in it.
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

// change puts other numbers in force. Spare states are not to come back with the old ones.
func (s *stripe[K]) change(next weir.Concurrency) {
	s.mu.Lock()
	defer s.mu.Unlock()
	was := s.limit.MaxHold
	s.limit = next
	for ; s.spare != nil; s.spare = s.spare.next {
		s.ended = plus(s.ended, s.spare.lim.Outcomes())
	}
	s.spares = 0
	for _, x := range s.keys {
		x.longest = max(x.longest, was)
		if err := x.lim.SetLimit(next); err != nil {
			panic(err) // the numbers are valid
		}
	}
}

// sum adds how things are in a stripe.
func (s *stripe[K]) sum(t *ConcurrencyStats) {
	s.mu.Lock()
	defer s.mu.Unlock()
	t.Keys += len(s.keys)
	for _, x := range s.keys {
		t.Waiting += x.lim.Waiting()
		t.Holding += x.lim.Holding()
		t.Outcomes = plus(t.Outcomes, x.lim.Outcomes())
	}
	for x := s.spare; x != nil; x = x.next {
		t.Outcomes = plus(t.Outcomes, x.lim.Outcomes())
	}
	t.Outcomes = plus(t.Outcomes, s.ended)
}

func plus(a, b weir.Outcomes) weir.Outcomes {
	return weir.Outcomes{OK: a.OK + b.OK, Ignored: a.Ignored + b.Ignored, Dropped: a.Dropped + b.Dropped, Expired: a.Expired + b.Expired}
}

// clean lets go of the keys whose holds have all expired. It takes the lock of a stripe only where there may be some.
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
	for s.first != nil && s.first.due <= now {
		x := s.first
		s.unlist(x) // what is still there does not expire, or is noted again when its call is back
		s.settle(x)
	}
}

// arm sets the janitor's timer for when a key can be let go, unless it is set for an earlier time.
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

// wake is what the janitor's timer calls.
func (c *Concurrency[K]) wake() {
	c.armed.Store(math.MaxInt64)
	c.clean()
	first := int64(math.MaxInt64)
	for i := range c.stripes {
		first = min(first, c.stripes[i].due.Load())
	}
	c.arm(first)
}

// Close ends the timer that lets go of keys whose holds have expired. All else goes on: such keys then go at the next call for them, or when
// room is needed. Close returns nil.
func (c *Concurrency[K]) Close() error {
	c.janitor.Lock()
	defer c.janitor.Unlock()
	c.closed = true
	if c.timer != nil {
		c.timer.Stop()
	}
	return nil
}
