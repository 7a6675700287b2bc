package keyed

import (
	"hash/maphash"
	"time"
	"unsafe"

	"github.com/weirflow/weir"
)

// MaxBacklog is the longest backlog that Backlogs keep, about 36 years.
const MaxBacklog = time.Duration(1 << 60)

// Backlogs keep for each key how much work is still ahead of it, as time that goes by. They are the
// state of a rate limit (GCRA) whose parameters come with each call, such as redis-cell's: the work of
// a call is its cost divided by the rate, and the longest backlog is the burst divided by the rate. A
// key whose work is done takes no memory. All methods are safe for concurrent use.
type Backlogs struct{ table *Limiter[string] }

// NewBacklogs returns Backlogs without keys. Options.Full must be Evict, which evicts the key with the
// shortest backlog, or Refuse.
func NewBacklogs(o Options) (*Backlogs, error) {
	// one unit of this bucket is a nanosecond of work
	table, err := New[string](weir.TokenBucket{Rate: weir.PerSecond(int64(time.Second)), Burst: int64(MaxBacklog)}, o)
	if err != nil {
		return nil, err
	}
	return &Backlogs{table}, nil
}

// Add adds work to a key's backlog if the backlog is at most longest afterwards. It returns the
// backlog, with the work if it was added. work must not be negative; without work, Add only looks.
// It allocates nothing for a key that has a backlog.
//
// refused is not 0 if there is no room for a new key: it is how long until there is some, or
// weir.Never.
func (b *Backlogs) Add(key []byte, work, longest time.Duration) (backlog time.Duration, added bool, refused time.Duration) {
	return b.AddTo(0, key, work, longest)
}

// AddTo is Add for a key whose backlog counts as at least so long before the work is added.
func (b *Backlogs) AddTo(least time.Duration, key []byte, work, longest time.Duration) (backlog time.Duration, added bool, refused time.Duration) {
	k := b.table
	least = min(least, MaxBacklog)
	longest = max(min(longest, MaxBacklog), -1)            // so that differences do not overflow
	view := unsafe.String(unsafe.SliceData(key), len(key)) // nothing keeps a reference to it
	h := maphash.Bytes(k.seed, key)
	if k.hasher != nil {
		h = k.hasher(string(key))
	}
	a := k.array(h)
	slot, head := a.acquire(h, view)
	switch {
	case slot == absent && (work == 0 || work > longest-least):
		return least, work <= longest-least, 0
	case slot < 0:
		return b.addFirst(least, key, h, work, longest)
	}
	now := k.reading(a.wall)
	there, decided := a.layout.ResetAfter(a.words(slot), now)
	backlog = max(there, least)
	if decided && head&away == 0 {
		if added = work <= longest-backlog; added && work > 0 {
			var d weir.Decision
			backlog += work
			decided = a.layout.Decide(&d, a.words(slot), now, int64(backlog-there), true)
		}
	}
	a.unlock(slot, head)
	if !decided || head&away != 0 {
		return b.addFirst(least, key, h, work, longest)
	}
	return backlog, added, 0
}

// addFirst is AddTo by the general path, for a key without a backlog.
func (b *Backlogs) addFirst(least time.Duration, key []byte, h uint64, work, longest time.Duration) (backlog time.Duration, added bool, refused time.Duration) {
	text := ""
	if b.table.opts.Keys {
		text = string(key)
	}
	g := b.table.grip(text, h)
	defer g.release()
	for {
		there := g.peek(0).ResetAfter
		backlog = max(there, least)
		if work > longest-backlog || work == 0 {
			return backlog, work == 0 && backlog <= longest, 0
		}
		if _, ok := g.take(int64(backlog + work - there)); ok {
			return backlog + work, true, 0
		}
		if wait, ok := g.makeRoom(); !ok {
			return 0, false, wait
		}
	}
}

// Reset removes a key's backlog.
func (b *Backlogs) Reset(key []byte) {
	k := b.table
	h := maphash.Bytes(k.seed, key)
	g := k.grip(string(key), h)
	defer g.release()
	if g.slot >= 0 {
		g.s.drop(g.slot, g.head, g.now)
		g.slot = absent
	}
}

// Stats returns the counters.
func (b *Backlogs) Stats() Stats { return b.table.Stats() }

// Close stops the janitor.
func (b *Backlogs) Close() error { return b.table.Close() }
