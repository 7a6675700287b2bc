// Package keyed keeps one limit for each of many keys (addresses, users, items), in bounded memory.
//
//	l, err := keyed.New[string](weir.TokenBucket{Rate: weir.PerSecond(10), Burst: 20}, keyed.Options{MaxKeys: 1_000_000})
//	...
//	if !l.Allow(policy.ClientKey(addr)) { ... }
//
// ClientKey of package policy makes the /64 of an IPv6 address the key: with whole addresses, a client
// would have a new limit with each of its 2^64. For HTTP handlers, see package weirhttp.
//
// A new key takes no memory, and neither does an idle one, whose state equals an unused one. While
// there is room, no other key is evicted. Without room for a new key, Options.Full decides what
// happens, and Stats counts it.
package keyed

import (
	"errors"
	"fmt"
	"hash/maphash"
	"math"
	"reflect"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weirflow/weir"
	"github.com/weirflow/weir/internal/claim"
	"github.com/weirflow/weir/internal/rules"
)

// ErrKey means that a key is invalid: it does not equal itself, like NaN, or it cannot be hashed,
// like an interface that holds a slice. errors.Is finds it.
var ErrKey = errors.New("weir: the key does not equal itself or cannot be hashed")

// ErrFull means that there is no room for a new key, and Options.Full is Refuse. errors.Is finds
// it, and weir.ErrLimited too.
var ErrFull = fmt.Errorf("weir: no room for another key: %w", weir.ErrLimited)

// A Limiter is one limit with a state for each key. All methods are safe for concurrent use.
//
// States are stored in a table without pointers that grows in small parts. A limit whose state is
// one word takes 16 bytes per key, including the key's fingerprint, and 4 to 8 bytes of free space.
// A decision about a key with a state takes no lock but that of its slot, and allocates nothing.
//
// A key takes about 1000 bytes more from the time that a caller waits or reserves for it until it
// is idle, and about 700 more while reservations are outstanding. A key whose state has no fixed length, as with SlidingLog, takes more too, though less
// than that.
//
// Keys are identified by 64 bits of a seeded hash, unless Options.Keys is set. Among 10 million
// keys the chance that any two share a state is 3 in a million. New draws the seed, and an attacker
// who does not know it cannot raise the chance.
type Limiter[K comparable] struct {
	opts   Options
	clock  func() int64
	start  time.Time
	plain  bool         // the clock is the time since start
	times  func() int64 // wall time
	timers func(time.Duration, func()) weir.Timer
	seed   maphash.Seed
	hasher func(K) uint64 // replaces the hash, in tests

	mostLines uint64 // the most lines of a segment

	shared *Limiter[K] // decides about new keys beyond the ceiling, with Share
	group  func(K) K
	text   bool            // K is string
	loose  bool            // K can hold invalid keys
	top    *topCounters[K] // nil without Options.Top

	version   atomic.Pointer[version]
	directory atomic.Pointer[directory[K]]
	_         [64]byte // the fields below are written

	count    atomic.Int64 // keys, including reserved room for new ones
	limiters atomic.Int64 // limiters of keys that wait or have reserved
	most     int64        // the most of these limiters; 0 for as many as there are keys
	memory   *budget      // of outstanding reservations; nil without Options.MaxBytes
	stats    counters
	shelves  atomic.Pointer[[]*shelf[K]]
	ranked   atomic.Bool // segments keep bounds of ranks
	segments int

	// Lock order: room, the lock of a segment, structure, marking.
	room      sync.Mutex // serialises making room at the ceiling
	structure sync.Mutex // guards directory, shelves and segments
	marking   sync.Mutex
	marks     claim.Marks
	moving    sync.RWMutex                  // taken before all other locks; held by Settle and Move
	settled   func(key K, difference int64) // of Move; guarded by moving

	changing sync.Mutex   // serialises SetLimit; taken before all other locks
	due      atomic.Int64 // for when the janitor's timer is set; the end of the clock if it is not
	janitor  sync.Mutex   // guards timer and closed, and setting due
	timer    weir.Timer
	closed   bool
}

// counters are the counters of Stats.
type counters struct{ evictedIdle, evictedFull, refused, shared, inexact atomic.Uint64 }

// Stats counts what a Limiter has done since it was made.
type Stats struct {
	Keys        int    // kept now
	EvictedIdle uint64 // keys evicted because they were idle
	EvictedFull uint64 // keys evicted while limited, to make room
	Refused     uint64 // new keys refused for lack of room
	Shared      uint64 // decisions about new keys by a shared state, for lack of room
	// reservations that may give back less than was charged: see weir.Limiter.Inexact
	Inexact uint64
}

// New returns a limiter that keeps l for each key. The error says which parameter is invalid.
func New[K comparable](l weir.Limit, o Options) (*Limiter[K], error) {
	return NewSharing(l, o, func(K) (all K) { return all })
}

// NewSharing is New for Options.Full = Share, with one shared state per group of keys beyond MaxKeys,
// such as the network of an address. It keeps at most one group for each 64 of MaxKeys, and evicts the
// least restricted group for a new one.
func NewSharing[K comparable](l weir.Limit, o Options, group func(K) K) (*Limiter[K], error) {
	k, err := newLimiter[K](l, o)
	if err != nil || o.Full != Share {
		return k, err
	}
	o.MaxKeys, o.MaxBytes, o.Full = max(1, k.opts.MaxKeys/64), 0, Evict
	o.Top = 0 // Top counts keys, and not their groups
	k.group = group
	if k.shared, err = newLimiter[K](l, o); err == nil && k.memory != nil {
		k.shareMemory()
	}
	return k, err
}

// shareMemory gives the shared states an eighth of the limiters that Options.MaxBytes allows, and
// the same budget for outstanding reservations.
func (k *Limiter[K]) shareMemory() {
	k.shared.most = max(1, k.most/8)
	k.most = max(1, k.most-k.shared.most)
	k.shared.memory = k.memory
}

func newLimiter[K comparable](l weir.Limit, o Options) (*Limiter[K], error) {
	if err := o.validate(); err != nil {
		return nil, err
	}
	p, err := weir.Prepare(l, time.Nanosecond)
	if err != nil {
		return nil, err
	}
	k := &Limiter[K]{
		opts:   o,
		clock:  o.Clock,
		timers: o.Timers,
		seed:   maphash.MakeSeed(),
		loose:  mayNotHash(reflect.TypeFor[K]()),
		top:    newTops[K](o.Top, o.TopOneIn),

		mostLines: mostLines,
	}
	k.due.Store(math.MaxInt64)
	_, k.text = any(*new(K)).(string)
	if k.clock == nil {
		k.start, k.plain = time.Now(), true
		k.clock = func() int64 { return int64(time.Since(k.start)) }
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
	ver := newVersion(p, k.reading(p.Wall()))
	k.version.Store(ver)
	k.ceiling(ver)
	k.shelves.Store(new([]*shelf[K]))
	k.directory.Store(&directory[K]{shift: 64, arrays: make([]atomic.Pointer[array[K]], 1)})
	s := k.newSegment(0)
	s.array = newArray[K](ver, ver.layoutAt(k.reading(p.Wall())), firstLines, 0, o.Keys)
	s.array.owner = s
	s.bound(s.array)
	s.order()
	s.publish()
	s.mu.Unlock()
	return k, nil
}

// becomesIdle reports whether a state becomes idle by itself. A limit that starts with less than it
// holds does not: a full state, evicted, would start again with less.
func becomesIdle(l weir.Limit) bool {
	for _, part := range weir.Parts(l) {
		if p := rules.ParamsOf(part); p != nil && !p.Resets() {
			return false
		}
	}
	return true
}

// now reads the limit's clock.
func (k *Limiter[K]) now() int64 { return k.reading(k.version.Load().wall) }

func (k *Limiter[K]) reading(wall bool) int64 {
	if wall {
		return k.times()
	}
	return k.clock()
}

// SetLimit changes the limit for all keys and keeps what each has used, as weir.Limiter.SetLimit
// does. It converts the table part by part: no caller waits for more than one part, and each key is
// always under exactly one of the two limits.
func (k *Limiter[K]) SetLimit(next weir.Limit) error {
	p, err := weir.Prepare(next, time.Nanosecond)
	if err != nil {
		return err
	}
	k.changing.Lock()
	defer k.changing.Unlock()
	if weir.Equal(k.version.Load().prepared.Limit(), next) {
		return nil
	}
	now := k.now()
	ver := newVersion(p.Named(k.opts.Name), now)
	if ver.was = now; ver.wall != k.version.Load().wall {
		ver.began = k.reading(ver.wall)
	}
	k.version.Store(ver)
	for s := range k.all {
		if s.array.version != ver {
			s.rebuild(int(s.array.lines), ver)
		}
		s.mu.Unlock()
	}
	k.forgetTimer() // it may be set by another clock
	if k.shared != nil {
		return k.shared.SetLimit(next)
	}
	return nil
}

// all yields each segment, locked; the loop must unlock it. A segment that a split creates
// meanwhile is yielded later.
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
func (k *Limiter[K]) Limit() weir.Limit { return k.version.Load().prepared.Limit() }

// Len returns how many keys are kept, including keys that are being added.
func (k *Limiter[K]) Len() int { return min(int(k.count.Load()), k.opts.MaxKeys) }

// Stats returns the counters.
func (k *Limiter[K]) Stats() Stats {
	inexact := k.stats.inexact.Load() // of evicted keys
	for s := range k.all {
		for _, x := range s.entries {
			if x != nil && x.lim != nil {
				inexact += x.lim.Inexact()
			}
		}
		s.mu.Unlock()
	}
	return Stats{
		Inexact:     inexact,
		Keys:        k.Len(),
		EvictedIdle: k.stats.evictedIdle.Load(),
		EvictedFull: k.stats.evictedFull.Load(),
		Refused:     k.stats.refused.Load(),
		Shared:      k.stats.shared.Load(),
	}
}

// Waiting returns how many callers wait in queues, over all keys.
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
