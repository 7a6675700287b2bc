// Package keyed keeps one limit for each of many keys (addresses, users, items), in bounded memory.
//
//	l, err := keyed.New[netip.Addr](weir.TokenBucket{Rate: weir.PerSecond(10), Burst: 20}, keyed.Options{MaxKeys: 1_000_000})
//	...
//	if !l.Allow(addr) { ... }
//
// A key that was never seen, and one that has not been for so long that its state equals an untouched one, takes no memory. As long as
// there is room no other key is ever forgotten; where there is none, Options.Full says what happens, and Stats counts it.
package keyed

import (
	"errors"
	"fmt"
	"hash/maphash"
	"reflect"
	"sync"
	"sync/atomic"
	"time"
	"unsafe"

	"github.com/weirflow/weir"
	"github.com/weirflow/weir/internal/claim"
)

// DefaultMaxKeys is the ceiling where Options does not name one.
const DefaultMaxKeys = 1 << 20

// ErrKey is found by errors.Is where a key is no key: one that does not equal itself, like NaN, or that cannot be hashed, like an
// interface that holds a slice.
var ErrKey = errors.New("weir: the key does not equal itself or cannot be hashed")

// ErrFull is found by errors.Is where there was no room for a new key and the options say Refuse. errors.Is finds weir.ErrLimited too.
var ErrFull = fmt.Errorf("weir: no room for another key: %w", weir.ErrLimited)

// Full says what becomes of a new key when MaxKeys others are limited.
type Full uint8

const (
	// Forget makes room by forgetting the least restricted key: the one whose state would equal an untouched one the soonest. What is
	// forgotten may be admitted again at once, up to one burst. It is the default: a flood of new keys then cannot lock out the others.
	Forget Full = iota
	// Refuse refuses the new key, with a RetryAfter of the soonest time at which there is room.
	Refuse
)

// Options are the settings of a Limiter. The zero value is ready to use.
type Options struct {
	MaxKeys int    // how many keys may be kept at once, the ceiling of the memory; 0 means DefaultMaxKeys
	Keys    bool   // keep the keys too, and tell them apart by themselves, at the price of their size for each slot
	Full    Full   // what happens to a new key beyond that
	Name    string // becomes Decision.By
	Top     int    // how many counters Heaviest and MostLimited have, each, for each core; 0 for none

	// Clock, WallClock and Timers replace the clocks, for virtual time, as weir.WithClock, WithWallClock and WithTimers do.
	Clock     func() int64
	WallClock func() int64
	Timers    func(time.Duration, func()) weir.Timer
}

// validate says what is wrong with the options.
func (o Options) validate() error {
	switch {
	case o.MaxKeys < 0:
		return fmt.Errorf("weir: keyed.Options.MaxKeys: %d is not a number of keys: it must be at least 1, or 0 for %d", o.MaxKeys, DefaultMaxKeys)
	case o.Full > Refuse:
		return fmt.Errorf("weir: keyed.Options.Full: %d is neither Forget nor Refuse", o.Full)
	}
	return o.validateTop()
}

// A Limiter is one limit with a state for each key. All methods are safe for concurrent use.
//
// States lie side by side in a table that grows by small parts: 16 bytes for a limit whose state is one word, with the key's fingerprint
// and 2 to 6 bytes of room between them, and no pointer. A decision about a key that has a state takes no lock but that of its slot, and
// allocates nothing. A key for which someone waits, or has reserved, takes about 1000 bytes more until its state is as good as new; so
// does, with less, one whose state has no fixed length, as that of SlidingLog.
//
// Keys are told apart by 64 bits of a seeded hash, unless Options.Keys is set. Among 10 million keys the chance that any two share a state
// is 3 in a million; who does not know the seed, which is drawn by New, cannot make it larger.
type Limiter[K comparable] struct {
	opts   Options
	clock  func() int64
	times  func() int64 // wall time
	timers func(time.Duration, func()) weir.Timer
	seed   maphash.Seed
	hasher func(K) uint64 // replaces the hash, in tests
	text   bool           // K is string
	loose  bool           // K can hold values that are no keys
	top    *tops[K]       // nil without Options.Top

	era       atomic.Pointer[era]
	directory atomic.Pointer[directory[K]]
	_         [64]byte // what follows is written

	count    atomic.Int64 // keys, and those that room is set aside for
	stats    counters
	shelves  atomic.Pointer[[]*shelf[K]]
	segments int

	// Locks are taken in this order, and each segment's between the first and the second.
	room      sync.Mutex // of who makes room at the ceiling
	structure sync.Mutex // of directory, shelves and segments
	marking   sync.Mutex
	marks     claim.Marks

	changing sync.Mutex  // of who changes the limit; before all other locks
	waking   atomic.Bool // the janitor's timer is set
	janitor  sync.Mutex  // of timer and closed
	timer    weir.Timer
	closed   bool
}

// counters are what Stats is made of.
type counters struct{ released, forgotten, refused atomic.Uint64 }

// Stats is what a Limiter has counted since it was made.
type Stats struct {
	Keys      int    // kept now
	Released  uint64 // let go because their state equalled an untouched one
	Forgotten uint64 // let go while limited, to make room
	Refused   uint64 // new keys refused for want of room
}

// New returns a limiter that keeps l for each key. The error says which number is wrong.
func New[K comparable](l weir.Limit, o Options) (*Limiter[K], error) {
	if err := o.validate(); err != nil {
		return nil, err
	}
	p, err := weir.Prepare(l, time.Nanosecond)
	if err != nil {
		return nil, err
	}
	if o.MaxKeys == 0 {
		o.MaxKeys = DefaultMaxKeys
	}
	k := &Limiter[K]{
		opts:   o,
		clock:  o.Clock,
		timers: o.Timers,
		seed:   maphash.MakeSeed(),
		loose:  holdsLoose(reflect.TypeFor[K]()),
		top:    newTops[K](o.Top),
	}
	_, k.text = any(*new(K)).(string)
	if k.clock == nil {
		start := time.Now()
		k.clock = func() int64 { return int64(time.Since(start)) }
	}
	switch {
	case o.WallClock != nil:
		k.times = o.WallClock
	case o.Clock != nil:
		k.times = o.Clock
	default:
		k.times = func() int64 { return time.Now().UnixNano() }
	}
	if k.timers == nil {
		k.timers = func(d time.Duration, f func()) weir.Timer { return time.AfterFunc(d, f) }
	}
	p = p.Named(o.Name)
	e := newEra(p, k.reading(p.Wall()))
	k.era.Store(e)
	k.shelves.Store(new([]*shelf[K]))
	k.directory.Store(&directory[K]{shift: 64, arrays: make([]atomic.Pointer[array[K]], 1)})
	s := k.newSegment(0)
	s.array = newArray[K](e, e.layoutAt(k.reading(p.Wall())), firstLines, 0, o.Keys)
	s.array.owner = s
	s.bound(s.array)
	s.publish()
	s.mu.Unlock()
	return k, nil
}

// returns reports whether a state becomes equal to an untouched one by itself. A limit that starts with less than it holds does not: a
// full one, forgotten, would start again with less.
func returns(l weir.Limit) bool {
	for _, part := range weir.Parts(l) {
		switch part := part.(type) {
		case weir.TokenBucket:
			if part.Initial != 0 && part.Initial != part.Burst {
				return false
			}
		case weir.SmoothBursty:
			if part.MaxBurst >= 0 && part.Rate != weir.Unlimited {
				return false
			}
		}
	}
	return true
}

// now reads the clock that the limit goes by.
func (k *Limiter[K]) now() int64 { return k.reading(k.era.Load().wall) }

func (k *Limiter[K]) reading(wall bool) int64 {
	if wall {
		return k.times()
	}
	return k.clock()
}

// Allow reports whether one unit may go now for the key, and charges it if so.
func (k *Limiter[K]) Allow(key K) bool { return k.Take(key, 1).Allowed }

// Take asks for cost units for the key now and charges them if the answer is yes, as weir.Limiter.Take does. A key that is none
// (ErrKey) is refused with Never.
func (k *Limiter[K]) Take(key K, cost int64) (d weir.Decision) {
	h, ok := k.hash(key)
	if !ok {
		return k.refused(weir.Never)
	}
	if !k.decide(&d, key, h, cost, true) {
		d = k.take(key, h, cost)
	}
	if k.top != nil {
		k.top.note(key, h, cost, d.Allowed)
	}
	return d
}

// Peek answers as Take would and charges nothing.
func (k *Limiter[K]) Peek(key K, cost int64) (d weir.Decision) {
	if h, ok := k.hash(key); !ok {
		d = k.refused(weir.Never)
	} else if !k.decide(&d, key, h, cost, false) {
		d = k.peek(key, h, cost)
	}
	return d
}

// TakeText is Take for a key that stands in a buffer. It allocates nothing, unless keys are kept.
func TakeText(k *Limiter[string], key []byte, cost int64) (d weir.Decision) {
	view := unsafe.String(unsafe.SliceData(key), len(key)) // which nothing keeps
	h := maphash.Bytes(k.seed, key)
	if k.hasher != nil {
		h = k.hasher(string(key))
	}
	switch {
	case k.decide(&d, view, h, cost, true):
	case k.opts.Keys:
		d = k.take(string(key), h, cost)
	default:
		d = k.take("", h, cost)
	}
	if k.top != nil {
		noteText(k.top, view, h, cost, d.Allowed)
	}
	return d
}

// decide is Take, or Peek where nothing is to be charged, for a key that has a state in its slot. It reports false for all others.
func (k *Limiter[K]) decide(d *weir.Decision, key K, h uint64, cost int64, charge bool) bool {
	a := k.array(h)
	now := k.reading(a.era.wall)
	slot, head := a.acquire(h, key)
	if slot < 0 {
		return false
	}
	ok := head&away == 0 && a.layout.Decide(d, a.words(slot), now, cost, charge)
	a.unlock(slot, head)
	return ok
}

// hash is what the key is found by. It reports false for a key that is none.
func (k *Limiter[K]) hash(key K) (h uint64, ok bool) {
	switch {
	case k.hasher != nil:
		return k.hasher(key), true
	case k.text:
		return maphash.String(k.seed, any(key).(string)), true
	case k.loose:
		defer func() {
			if recover() != nil { // only hashing the key can panic here
				ok = false
			}
		}()
	}
	if key != key {
		return 0, false
	}
	return maphash.Comparable(k.seed, key), true
}

// take is Take where the short way did not lead to an answer.
func (k *Limiter[K]) take(key K, h uint64, cost int64) weir.Decision {
	g := k.grip(key, h)
	defer g.release()
	d, ok := g.take(cost)
	if ok {
		return d
	}
	if wait, ok := g.makeRoom(); !ok {
		return k.refused(wait)
	}
	d, _ = g.take(cost) // room is set aside
	return d
}

// makeRoom sets room aside for a new key where there is none. The key is let go meanwhile.
func (g *grip[K]) makeRoom() (wait time.Duration, ok bool) {
	k := g.k
	g.release()
	wait, ok = k.makeRoom(g.now)
	*g = k.grip(g.key, g.h)
	if g.token = ok; !ok {
		k.stats.refused.Add(1)
	}
	return wait, ok || g.slot >= 0
}

// peek is Peek where the short way did not lead to an answer.
func (k *Limiter[K]) peek(key K, h uint64, cost int64) weir.Decision {
	g := k.grip(key, h)
	if g.slot >= 0 || g.needsNone(cost) || k.opts.Full == Forget || g.room() {
		defer g.release()
		return g.peek(cost)
	}
	g.release()
	wait, ok := k.makeRoom(g.now)
	if !ok {
		return k.refused(wait)
	}
	k.count.Add(-1)
	return k.peek(key, h, cost)
}

// TakeAtMost takes as much of n for the key as there is now, as weir.Limiter.TakeAtMost does, and returns how much that was.
func (k *Limiter[K]) TakeAtMost(key K, n int64) (taken int64, d weir.Decision) {
	h, ok := k.hash(key)
	if !ok {
		return 0, k.refused(weir.Never)
	}
	if k.top != nil {
		defer func() { k.top.note(key, h, taken, d.Allowed) }()
	}
	g := k.grip(key, h)
	defer g.release()
	if taken, d, ok = g.takeAtMost(n); ok {
		return taken, d
	}
	if wait, ok := g.makeRoom(); !ok {
		return 0, k.refused(wait)
	}
	taken, d, _ = g.takeAtMost(n)
	return taken, d
}

func (g *grip[K]) takeAtMost(n int64) (taken int64, d weir.Decision, ok bool) {
	if x := g.entry(); x != nil && x.lim != nil && x.over == nil {
		taken, d = x.lim.TakeAtMost(n)
		return taken, d, true
	}
	cost := min(n, 1)
	if n > 1 {
		cost = max(min(n, g.peek(1).Remaining), 1)
	}
	if d, ok = g.take(cost); ok && d.Allowed {
		taken = cost
	}
	return taken, d, ok
}

// holdsLoose reports whether values of a type may be impossible to hash.
func holdsLoose(t reflect.Type) bool {
	switch t.Kind() {
	case reflect.Interface:
		return true
	case reflect.Array:
		return holdsLoose(t.Elem())
	case reflect.Struct:
		for i := range t.NumField() {
			if holdsLoose(t.Field(i).Type) {
				return true
			}
		}
	}
	return false
}

// SetLimit changes the limit for all keys and keeps what each has used, as weir.Limiter.SetLimit does. It goes through the table part by
// part: no caller waits for more than one of them, and each key is under one limit or the other.
func (k *Limiter[K]) SetLimit(next weir.Limit) error {
	p, err := weir.Prepare(next, time.Nanosecond)
	if err != nil {
		return err
	}
	k.changing.Lock()
	defer k.changing.Unlock()
	if weir.Equal(k.era.Load().prepared.Limit(), next) {
		return nil
	}
	now := k.now()
	e := newEra(p.Named(k.opts.Name), now)
	if e.was = now; e.wall != k.era.Load().wall {
		e.began = k.reading(e.wall)
	}
	k.era.Store(e)
	for s := range k.all {
		if s.array.era != e {
			s.rebuild(int(s.array.lines), e)
		}
		s.mu.Unlock()
	}
	return nil
}

// all goes through the segments, each of which is locked, and to be unlocked. One that comes to be by a split meanwhile comes later.
func (k *Limiter[K]) all(yield func(*segment[K]) bool) {
	for i := 0; ; i++ {
		shelves := *k.shelves.Load()
		if i/64 >= len(shelves) {
			return
		}
		s := shelves[i/64].segments[i%64].Load()
		if s == nil {
			return
		}
		if s.mu.Lock(); !yield(s) {
			return
		}
	}
}

// Limit returns the limit in force.
func (k *Limiter[K]) Limit() weir.Limit { return k.era.Load().prepared.Limit() }

// Len returns how many keys are kept.
func (k *Limiter[K]) Len() (n int) {
	for s := range k.all {
		n += s.count
		s.mu.Unlock()
	}
	return n
}

// Stats returns the counters.
func (k *Limiter[K]) Stats() Stats {
	return Stats{Keys: k.Len(), Released: k.stats.released.Load(), Forgotten: k.stats.forgotten.Load(), Refused: k.stats.refused.Load()}
}

// Waiting returns how many callers wait in line, over all keys.
func (k *Limiter[K]) Waiting() (n int) {
	for s := range k.all {
		for _, x := range s.entries {
			if x != nil && x.lim != nil {
				n += x.lim.Waiting()
			}
		}
		s.mu.Unlock()
	}
	return n
}
