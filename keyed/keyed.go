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
	"container/heap"
	"errors"
	"fmt"
	"reflect"
	"sync"
	"time"

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
	Full    Full   // what happens to a new key beyond that
	Name    string // becomes Decision.By

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
	return nil
}

// A Limiter is one limit with a state for each key. All methods are safe for concurrent use.
//
// This first one is a map under one lock: a decision takes some 100 ns, a key some 150 bytes, and one for which someone waits, or has
// reserved, about 700 more. Callers that wait do not hold the lock.
type Limiter[K comparable] struct {
	opts   Options
	clock  func() int64
	times  func() int64 // wall time
	loose  bool         // K can hold values that are no keys
	timers func(time.Duration, func()) weir.Timer

	mu       sync.Mutex
	prepared weir.Prepared
	returns  bool // a state becomes equal to an untouched one by itself
	entries  map[K]*entry[K]
	order    byRelease[K] // a heap: the first is the first to be looked at when there is to be room
	marks    claim.Marks
	stats    Stats
	janitor  weir.Timer
	waking   bool // its timer is set
	peak     int  // the most entries since the map was made
	closed   bool
}

// entry is one key with its state. The state is in words, or in a limiter once someone reserved or waited.
type entry[K comparable] struct {
	key   K
	free  int64 // when the state equals an untouched one, as far as known: it is that time or later
	index int   // in order
	state []int64
	words [4]int64
	lim   *weir.Limiter
	pins  int // callers on their way into the limiter's line: it must stay
}

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
		opts:     o,
		clock:    o.Clock,
		timers:   o.Timers,
		loose:    holdsLoose(reflect.TypeFor[K]()),
		prepared: p,
		returns:  returns(l),
		entries:  map[K]*entry[K]{},
	}
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
	return k, nil
}

// returns reports whether a state becomes equal to an untouched one by itself. A bucket that starts with less than it holds does not:
// a full one, forgotten, would start again with less.
func returns(l weir.Limit) bool {
	b, ok := l.(weir.TokenBucket)
	return !ok || b.Initial == 0 || b.Initial == b.Burst
}

// now reads the clock that the limit goes by.
func (k *Limiter[K]) now() int64 { return k.reading(k.prepared) }

func (k *Limiter[K]) reading(p weir.Prepared) int64 {
	if p.Wall() {
		return k.times()
	}
	return k.clock()
}

// Allow reports whether one unit may go now for the key, and charges it if so.
func (k *Limiter[K]) Allow(key K) bool { return k.Take(key, 1).Allowed }

// Take asks for cost units for the key now and charges them if the answer is yes, as weir.Limiter.Take does. A key that is none
// (ErrKey) is refused with Never.
func (k *Limiter[K]) Take(key K, cost int64) (d weir.Decision) {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.take(key, cost)
}

func (k *Limiter[K]) take(key K, cost int64) (d weir.Decision) {
	now := k.now()
	e, err := k.find(key)
	switch {
	case err != nil:
		return k.refused(weir.Never)
	case e == nil:
		return k.first(key, now, cost)
	}
	return k.again(e, now, cost)
}

// again is take for a key with a state.
func (k *Limiter[K]) again(e *entry[K], now, cost int64) (d weir.Decision) {
	if e.lim != nil {
		return e.lim.Take(cost)
	}
	e.state, d = k.prepared.Step(e.state, now, cost)
	d.By = k.opts.Name
	return d
}

// TakeText is Take for a key that stands in a buffer. It returns the key as a string too, which is made for a key without a state alone:
// for all others it allocates nothing.
func TakeText(k *Limiter[string], key []byte, cost int64) (string, weir.Decision) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if e := k.entries[string(key)]; e != nil {
		return e.key, k.again(e, k.now(), cost)
	}
	text := string(key)
	return text, k.take(text, cost)
}

// first is take for a key without a state: it gets one only if that differs from an untouched one.
func (k *Limiter[K]) first(key K, now, cost int64) weir.Decision {
	e := &entry[K]{key: key}
	var d weir.Decision
	e.state, d = k.prepared.Step(e.words[:0], now, cost)
	d.By = k.opts.Name
	if len(e.state) == 0 {
		return d
	}
	if wait, ok := k.add(e, now, d.ResetAfter); !ok {
		return k.refused(wait)
	}
	return d
}

// Peek answers as Take would and charges nothing.
func (k *Limiter[K]) Peek(key K, cost int64) (d weir.Decision) {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.peek(key, cost)
}

func (k *Limiter[K]) peek(key K, cost int64) (d weir.Decision) {
	now := k.now()
	e, err := k.find(key)
	switch {
	case err != nil:
		return k.refused(weir.Never)
	case e == nil:
		if wait, ok := k.room(now); !ok && !k.needsNone(key, cost) {
			return k.refused(wait)
		}
		d = k.prepared.Peek(nil, now, cost)
	case e.lim != nil:
		return e.lim.Peek(cost)
	default:
		d = k.prepared.Peek(e.state, now, cost)
	}
	d.By = k.opts.Name
	return d
}

// refused is the decision about a key that there is no state for.
func (k *Limiter[K]) refused(wait time.Duration) weir.Decision {
	return weir.Decision{Limit: k.prepared.Peek(nil, 0, 0).Limit, RetryAfter: wait, By: k.opts.Name}
}

// find returns the key's entry, nil where there is none.
func (k *Limiter[K]) find(key K) (e *entry[K], err error) {
	if k.loose {
		defer func() {
			if recover() != nil { // only comparing or hashing the key can panic here
				e, err = nil, ErrKey
			}
		}()
	}
	if key != key {
		return nil, ErrKey
	}
	return k.entries[key], nil
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

// SetLimit changes the limit for all keys and keeps what each has used, as weir.Limiter.SetLimit does. It holds the lock while it goes
// through all of them.
func (k *Limiter[K]) SetLimit(next weir.Limit) error {
	p, err := weir.Prepare(next, time.Nanosecond)
	if err != nil {
		return err
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if weir.Equal(k.prepared.Limit(), next) {
		return nil
	}
	now, then := k.reading(k.prepared), k.reading(p)
	for _, e := range k.order {
		if e.lim != nil {
			if err := e.lim.SetLimit(next); err != nil {
				return err // it cannot fail: the limit was prepared above
			}
			e.free = later(then, e.lim.Peek(0).ResetAfter)
			continue
		}
		e.state = k.prepared.Convert(e.state, now, p, then)
		e.free = later(then, p.Peek(e.state, then, 0).ResetAfter)
	}
	k.prepared, k.returns = p, returns(next)
	heap.Init(&k.order)
	return nil
}

// Limit returns the limit in force.
func (k *Limiter[K]) Limit() weir.Limit {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.prepared.Limit()
}

// Len returns how many keys are kept.
func (k *Limiter[K]) Len() int {
	k.mu.Lock()
	defer k.mu.Unlock()
	return len(k.entries)
}

// Stats returns the counters.
func (k *Limiter[K]) Stats() Stats {
	k.mu.Lock()
	defer k.mu.Unlock()
	s := k.stats
	s.Keys = len(k.entries)
	return s
}

// Waiting returns how many callers wait in line, over all keys.
func (k *Limiter[K]) Waiting() (n int) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, e := range k.order {
		if e.lim != nil {
			n += e.lim.Waiting()
		}
	}
	return n
}
