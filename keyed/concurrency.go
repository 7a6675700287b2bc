package keyed

import (
	"context"
	"errors"
	"hash/maphash"
	"math"
	"math/bits"
	"reflect"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weirflow/weir"
)

// A Concurrency limits for each key how much may be going on at once: a weir.ConcurrencyLimiter for each key that has holders or waiters,
// and nothing for all others. All methods are safe for concurrent use.
//
// A key is let go when the last has left it, or when the last hold of it has expired: at the next call for that key, when room is needed, or
// by a timer that Close ends. Keys are told apart by themselves, never by a hash alone. A key takes some 1900 bytes, and what
// weir.ConcurrencyLimiter takes for each hold beyond 20 and for each who waits; some few states are kept to be used again.
//
// Keys are spread over stripes by a seeded hash. Entering and leaving take the short lock of one stripe. No lock is held over a wait.
type Concurrency[K comparable] struct {
	opts   Options
	clock  func() int64
	times  func() int64 // wall time, for fences
	timers func(time.Duration, func()) weir.Timer
	seed   maphash.Seed
	text   bool // K is string
	loose  bool // K can hold values that are no keys

	shift   uint8 // the stripe is in the hash's bits above
	stripes []stripe[K]

	_       [64]byte     // what follows is written
	count   atomic.Int64 // keys, and those that are about to be
	refused atomic.Uint64

	// Locks are taken in this order, a stripe's between the first and the second, and a limiter's within that.
	changing sync.Mutex   // of who changes the limit
	janitor  sync.Mutex   // of timer and closed
	armed    atomic.Int64 // what the timer is set for; the end of the clock where it is not
	timer    weir.Timer
	closed   bool
}

// ConcurrencyStats is how things are at a Concurrency, and what it has counted since it was made.
type ConcurrencyStats struct {
	Keys     int           // kept now
	Waiting  int           // callers that wait for a place, over all keys
	Holding  int64         // how much is held, over all keys
	Refused  uint64        // calls for a new key that were refused for want of room
	Outcomes weir.Outcomes // of the holds that have ended, over all keys
}

// NewConcurrency returns a limiter at which each key has l for itself. Of the options MaxKeys, Name and the clocks mean what they mean for
// New; MaxBytes is refused, and the others say nothing here: who holds a place cannot be forgotten, so that beyond MaxKeys a new key is
// always refused. The error says which number is wrong.
func NewConcurrency[K comparable](l weir.Concurrency, o Options) (*Concurrency[K], error) {
	if err := o.validate(); err != nil {
		return nil, err
	}
	if err := l.Validate(); err != nil {
		return nil, err
	}
	if o.MaxBytes != 0 {
		return nil, errors.New("weir: keyed.Options.MaxBytes: what the holders of a key take is not known ahead: give a Concurrency its ceiling by MaxKeys")
	}
	if o.MaxKeys == 0 {
		o.MaxKeys = DefaultMaxKeys
	}
	log := bits.Len(uint(min(4*runtime.GOMAXPROCS(0), 256)) - 1)
	c := &Concurrency[K]{
		opts:    o,
		clock:   o.Clock,
		timers:  o.Timers,
		seed:    maphash.MakeSeed(),
		loose:   holdsLoose(reflect.TypeFor[K]()),
		shift:   uint8(64 - log),
		stripes: make([]stripe[K], 1<<log),
	}
	_, c.text = any(*new(K)).(string)
	start := time.Now()
	switch {
	case o.WallClock != nil:
		c.times = o.WallClock
	case o.Clock != nil:
		c.times = o.Clock
	default:
		wall := start.UnixNano() // the system's clock may be set back; what has gone by is not
		c.times = func() int64 { return wall + int64(time.Since(start)) }
	}
	if c.clock == nil {
		c.clock = func() int64 { return int64(time.Since(start)) }
	} else {
		c.clock = forward(c.clock)
	}
	if c.timers == nil {
		c.timers = func(d time.Duration, f func()) weir.Timer { return time.AfterFunc(d, f) }
	}
	c.armed.Store(math.MaxInt64)
	for i := range c.stripes {
		s := &c.stripes[i]
		s.c, s.limit, s.keys = c, l, map[K]*state[K]{}
		s.due.Store(math.MaxInt64)
	}
	return c, nil
}

// forward returns a clock that never goes back: a hold would otherwise outlive the time that is noted for its key.
func forward(clock func() int64) func() int64 {
	var latest atomic.Int64
	latest.Store(math.MinInt64)
	return func() int64 {
		now := clock()
		for {
			last := latest.Load()
			if now <= last {
				return last
			}
			if latest.CompareAndSwap(last, now) {
				return now
			}
		}
	}
}

// stripe finds where a key is kept. It returns nil for a key that is none.
func (c *Concurrency[K]) stripe(key K) *stripe[K] {
	h, ok := hashOf(c.seed, key, c.text, c.loose)
	if !ok {
		return nil
	}
	return &c.stripes[h>>c.shift]
}

// Enter waits for a place for the key and returns it held, as weir.ConcurrencyLimiter.Enter does: in the order of arrival for each key.
// Without room for a new key it returns ErrFull at once, and ErrKey for a key that is none.
func (c *Concurrency[K]) Enter(ctx context.Context, key K) (Hold[K], error) {
	return c.EnterCost(ctx, key, 1)
}

// EnterCost is Enter for work that takes up more than one unit, as weir.ConcurrencyLimiter.EnterCost.
func (c *Concurrency[K]) EnterCost(ctx context.Context, key K, cost int64) (h Hold[K], err error) {
	if err := ctx.Err(); err != nil {
		return h, err
	}
	s := c.stripe(key)
	switch {
	case s == nil:
		return h, ErrKey
	case cost < 0:
		return h, weir.ErrCost
	case cost == 0:
		return h, nil
	}
	x, h, err := s.call(key, cost)
	if x == nil {
		return h, err
	}
	defer func() { s.back(x, err == nil) }()
	h.x = x
	h.held, err = x.lim.EnterCost(ctx, cost)
	if err != nil {
		h.x = nil
	}
	return h, err
}

// TryEnter takes a place for the key if there is one now and nobody waits for it, as weir.ConcurrencyLimiter.TryEnter does. Without room
// for a new key, and for a key that is none, it is refused with Never.
func (c *Concurrency[K]) TryEnter(key K) (Hold[K], weir.Decision) { return c.TryEnterCost(key, 1) }

// TryEnterCost is TryEnter for work that takes up more than one unit, as weir.ConcurrencyLimiter.TryEnterCost.
func (c *Concurrency[K]) TryEnterCost(key K, cost int64) (h Hold[K], d weir.Decision) {
	return c.TryEnterSpare(key, cost, 0)
}

// TryEnterSpare is TryEnterCost for a caller with a smaller limit than the others: it enters only where cost and spare fit together, and
// takes up cost. The decision is for the limit without spare.
func (c *Concurrency[K]) TryEnterSpare(key K, cost, spare int64) (h Hold[K], d weir.Decision) {
	own := Charge[K]{Cost: cost, Spare: spare}
	h, d = c.tryEnter(key, cost, own.needs())
	return h, own.own(d)
}

// tryEnter takes up cost where as much as needs would fit.
func (c *Concurrency[K]) tryEnter(key K, cost, needs int64) (h Hold[K], d weir.Decision) {
	s := c.stripe(key)
	if s == nil {
		return h, c.stripes[0].refused()
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.keys[key] == nil && !s.takes(needs) {
		return h, s.fresh(needs)
	}
	x := s.open(key)
	if x == nil {
		c.refused.Add(1)
		return h, s.full()
	}
	if needs != cost {
		if d = x.lim.Peek(needs); !d.Allowed { // nobody else enters meanwhile: the stripe is locked
			s.settle(x)
			return h, d
		}
	}
	if h, d = x.try(cost); !d.Allowed {
		s.settle(x) // what was held may just have expired
	}
	return h, d
}

// Peek answers as TryEnterCost would and takes nothing.
func (c *Concurrency[K]) Peek(key K, cost int64) weir.Decision {
	s := c.stripe(key)
	if s == nil {
		return c.stripes[0].refused()
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if x := s.keys[key]; x != nil {
		defer s.settle(x)
		return x.lim.Peek(cost)
	}
	if s.takes(cost) && !s.room() {
		return s.full()
	}
	return s.fresh(cost)
}

// Do enters for the key, calls fn and leaves, as weir.ConcurrencyLimiter.Do does: also where fn panics. It returns Enter's error, in which
// case fn was not called, or fn's.
func (c *Concurrency[K]) Do(ctx context.Context, key K, fn func(context.Context) error) error {
	h, err := c.Enter(ctx, key)
	if err != nil {
		return err
	}
	outcome := weir.Dropped
	defer func() { h.Done(outcome) }()
	switch err = fn(ctx); {
	case err == nil:
		outcome = weir.OK
	case !errors.Is(err, context.DeadlineExceeded) && !errors.Is(err, weir.ErrLimited):
		outcome = weir.Ignore
	}
	return err
}

// SetLimit changes the numbers for all keys, as weir.ConcurrencyLimiter.SetLimit does: no place is taken away. It goes through the keys
// stripe by stripe, so that two keys may be under different numbers for a moment, and one key never is. On an error nothing has changed.
func (c *Concurrency[K]) SetLimit(next weir.Concurrency) error {
	if err := next.Validate(); err != nil {
		return err
	}
	c.changing.Lock()
	defer c.changing.Unlock()
	for i := range c.stripes {
		c.stripes[i].change(next)
	}
	return nil
}

// Limit returns the numbers in force.
func (c *Concurrency[K]) Limit() weir.Concurrency {
	s := &c.stripes[len(c.stripes)-1] // the last to be changed
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.limit
}

// Holding returns how much is held for a key: the sum of the costs of its holds.
func (c *Concurrency[K]) Holding(key K) (n int64) {
	c.look(key, func(x *state[K]) { n = x.lim.Holding() })
	return n
}

// Waiting returns how many callers wait for a place for a key.
func (c *Concurrency[K]) Waiting(key K) (n int) {
	c.look(key, func(x *state[K]) { n = x.lim.Waiting() })
	return n
}

// look calls fn with the state of a key that has one.
func (c *Concurrency[K]) look(key K, fn func(*state[K])) {
	s := c.stripe(key)
	if s == nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if x := s.keys[key]; x != nil {
		fn(x)
		s.settle(x)
	}
}

// Len returns how many keys are kept.
func (c *Concurrency[K]) Len() (n int) {
	for i := range c.stripes {
		s := &c.stripes[i]
		s.mu.Lock()
		n += len(s.keys)
		s.mu.Unlock()
	}
	return n
}

// Stats returns how things are. It looks at every key, stripe by stripe.
func (c *Concurrency[K]) Stats() (t ConcurrencyStats) {
	for i := range c.stripes {
		c.stripes[i].sum(&t)
	}
	t.Refused = c.refused.Load()
	return t
}
