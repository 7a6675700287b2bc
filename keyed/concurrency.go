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
	"github.com/weirflow/weir/internal/held"
)

// A Concurrency limits for each key how much is in flight at once. Each key with holders or waiters
// has a weir.ConcurrencyLimiter; all other keys take no memory. All methods are safe for concurrent
// use.
//
// A key is removed when its last hold has ended or expired. An expired key is removed at the next
// call for that key, when room is needed, or by a timer that Close stops.
//
// Keys are compared themselves, never by a hash alone. A key takes about 1900 bytes, and what
// weir.ConcurrencyLimiter takes for each hold beyond 20 and for each waiter. A few states are kept
// for reuse.
//
// A seeded hash spreads keys over stripes. Entering and leaving take the short lock of one stripe.
// No lock is held over a wait.
type Concurrency[K comparable] struct {
	opts   Options
	clock  func() int64
	times  func() int64 // wall time, for fences
	timers func(time.Duration, func()) weir.Timer
	seed   maphash.Seed
	text   bool // K is string
	loose  bool // K can hold invalid keys

	shift   uint8 // the hash's bits above shift choose the stripe
	stripes []stripe[K]

	_       [64]byte     // the fields below are written
	count   atomic.Int64 // keys, including those that are being added
	refused atomic.Uint64

	// Lock order: changing, the lock of a stripe and within it that of a limiter, janitor.
	changing sync.Mutex // serialises SetLimit
	janitor  sync.Mutex // guards timer and closed
	// the time that the timer is set for; the end of the clock if it is not set
	armed  atomic.Int64
	timer  weir.Timer
	closed bool
}

// ConcurrencyStats is the present state of a Concurrency, and what it has counted since it was
// made.
type ConcurrencyStats struct {
	Keys     int           // kept now
	Waiting  int           // callers that wait for a place, over all keys
	Holding  int64         // how much is held, over all keys
	Refused  uint64        // calls for a new key that were refused for lack of room
	Outcomes weir.Outcomes // of the holds that have ended, over all keys
}

// NewConcurrency returns a limiter that gives each key its own l. It takes the options MaxKeys,
// Name and the clocks of New, and ignores the others; MaxBytes is an error. As a holder cannot be
// evicted, a new key beyond MaxKeys is always refused. The error says which parameter is invalid.
func NewConcurrency[K comparable](l weir.Concurrency, o Options) (*Concurrency[K], error) {
	if err := o.validate(); err != nil {
		return nil, err
	}
	if err := l.Validate(); err != nil {
		return nil, err
	}
	if o.MaxBytes != 0 {
		return nil, errors.New("weir: keyed.Options.MaxBytes: a Concurrency cannot bound it, as the memory for the holders of a key is not known ahead: set MaxKeys")
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
		loose:   mayNotHash(reflect.TypeFor[K]()),
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
		wall := start.UnixNano() // the system's clock may be set back; elapsed time is not
		c.times = func() int64 { return wall + int64(time.Since(start)) }
	}
	if c.clock == nil {
		c.clock = func() int64 { return int64(time.Since(start)) }
	} else {
		c.clock = monotonic(c.clock)
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

// monotonic returns a clock that never goes back: otherwise a hold could outlive the expiry that is
// recorded for its key.
func monotonic(clock func() int64) func() int64 {
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

// stripe returns the stripe of a key, or nil for an invalid key.
func (c *Concurrency[K]) stripe(key K) *stripe[K] {
	h, ok := hashOf(c.seed, key, c.text, c.loose)
	if !ok {
		return nil
	}
	return &c.stripes[h>>c.shift]
}

// Enter waits for a place for the key and returns it as a Hold, as weir.ConcurrencyLimiter.Enter
// does: in the order of arrival for each key. Without room for a new key it returns ErrFull at
// once. An invalid key is ErrKey.
func (c *Concurrency[K]) Enter(ctx context.Context, key K) (Hold[K], error) {
	return c.EnterCost(ctx, key, 1)
}

// EnterCost is Enter for work that takes up more than one unit, as
// weir.ConcurrencyLimiter.EnterCost.
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
	x, h, err := s.enter(key, cost)
	if x == nil {
		return h, err
	}
	defer func() { s.leave(x, err == nil) }()
	h.x = x
	h.held, err = x.lim.EnterCost(ctx, cost)
	if err != nil {
		h.x = nil
	}
	return h, err
}

// TryEnter takes a place for the key if one is free now and nobody waits for it, as
// weir.ConcurrencyLimiter.TryEnter does. A new key without room and an invalid key are refused with
// Never.
func (c *Concurrency[K]) TryEnter(key K) (Hold[K], weir.Decision) { return c.TryEnterCost(key, 1) }

// TryEnterCost is TryEnter for work that takes up more than one unit, as
// weir.ConcurrencyLimiter.TryEnterCost.
func (c *Concurrency[K]) TryEnterCost(key K, cost int64) (h Hold[K], d weir.Decision) {
	return c.TryEnterSpare(key, cost, 0)
}

// TryEnterSpare is TryEnterCost for a caller with a smaller limit than the others. It enters only
// if cost and spare fit together, and takes up cost. The decision describes the limit without
// spare.
func (c *Concurrency[K]) TryEnterSpare(key K, cost, spare int64) (h Hold[K], d weir.Decision) {
	own := Charge[K]{Cost: cost, Spare: spare}
	h, d = c.tryEnter(key, cost, own.cost())
	return h, own.withName(d)
}

// tryEnter takes up cost if needs would fit.
func (c *Concurrency[K]) tryEnter(key K, cost, needs int64) (h Hold[K], d weir.Decision) {
	s := c.stripe(key)
	if s == nil {
		return h, c.stripes[0].refused()
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.keys[key] == nil && !s.fits(needs) {
		return h, s.unusedDecision(needs)
	}
	x := s.open(key)
	if x == nil {
		c.refused.Add(1)
		return h, s.full()
	}
	if needs != cost {
		// no other caller can enter meanwhile: the stripe is locked
		if d = x.lim.Peek(needs); !d.Allowed {
			s.settle(x)
			return h, d
		}
	}
	if h, d = x.tryEnter(cost); !d.Allowed {
		s.settle(x) // the holds may just have expired
	}
	return h, d
}

// Peek returns the decision that TryEnterCost would return, and takes nothing.
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
	if s.fits(cost) && !s.room() {
		return s.full()
	}
	return s.unusedDecision(cost)
}

// Do enters for the key, calls fn and leaves, as weir.ConcurrencyLimiter.Do does, also if fn
// panics. If it cannot enter, it returns Enter's error and does not call fn; otherwise it returns
// fn's error.
func (c *Concurrency[K]) Do(ctx context.Context, key K, fn func(context.Context) error) error {
	h, err := c.Enter(ctx, key)
	if err != nil {
		return err
	}
	return held.Do[weir.Outcome](ctx, h, weir.ErrLimited, fn)
}

// SetLimit changes the parameters for all keys, as weir.ConcurrencyLimiter.SetLimit does: it takes
// no place away. It goes through the keys stripe by stripe. Two keys may have different parameters
// for a moment; one key never does. On an error nothing has changed.
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

// Limit returns the parameters in force.
func (c *Concurrency[K]) Limit() weir.Concurrency {
	s := &c.stripes[len(c.stripes)-1] // SetLimit changes it last
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.limit
}

// Holding returns the sum of the costs of a key's holds.
func (c *Concurrency[K]) Holding(key K) (n int64) {
	c.inspect(key, func(x *state[K]) { n = x.lim.Holding() })
	return n
}

// Waiting returns how many callers wait for a place for a key.
func (c *Concurrency[K]) Waiting(key K) (n int) {
	c.inspect(key, func(x *state[K]) { n = x.lim.Waiting() })
	return n
}

// inspect calls fn with the state of a key that has one.
func (c *Concurrency[K]) inspect(key K, fn func(*state[K])) {
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

// Stats returns the present state and the counters. It visits every key, stripe by stripe.
func (c *Concurrency[K]) Stats() (t ConcurrencyStats) {
	for i := range c.stripes {
		c.stripes[i].sum(&t)
	}
	t.Refused = c.refused.Load()
	return t
}
