package keyed

import (
	"hash/maphash"
	"time"
	"unsafe"

	"github.com/weirflow/weir"
)

// Allow reports whether one unit may go now for the key, and charges it if so.
func (k *Limiter[K]) Allow(key K) bool { return k.Take(key, 1).Allowed }

// Take decides about cost units for the key now, and charges them if they are allowed, as
// weir.Limiter.Take does. An invalid key (ErrKey) is refused with Never.
func (k *Limiter[K]) Take(key K, cost int64) (d weir.Decision) {
	h, ok := k.hash(key)
	if !ok {
		return k.refused(weir.Never)
	}
	if slot, ok := k.decide(&d, key, h, cost, true); !ok {
		d = k.take(key, h, cost, slot)
	}
	if k.top != nil {
		k.top.note(key, h, cost, d.Allowed)
	}
	return d
}

// Peek returns the decision that Take would return, and charges nothing.
func (k *Limiter[K]) Peek(key K, cost int64) (d weir.Decision) {
	if h, ok := k.hash(key); !ok {
		d = k.refused(weir.Never)
	} else if _, ok := k.decide(&d, key, h, cost, false); !ok {
		d = k.peek(key, h, cost)
	}
	return d
}

// TakeText is Take for a key in a buffer. It allocates nothing, unless Options.Keys is set, or the
// key gets a counter of Options.Top.
func TakeText(k *Limiter[string], key []byte, cost int64) (d weir.Decision) {
	view := unsafe.String(unsafe.SliceData(key), len(key)) // nothing keeps a reference to it
	h := maphash.Bytes(k.seed, key)
	if k.hasher != nil {
		h = k.hasher(string(key))
	}
	if slot, ok := k.decide(&d, view, h, cost, true); !ok {
		text := ""
		if k.opts.Keys || k.shared != nil {
			text = string(key)
		}
		d = k.take(text, h, cost, slot)
	}
	if k.top != nil {
		noteText(k.top, view, h, cost, d.Allowed)
	}
	return d
}

// decide is Take, or Peek without charge, for a key that has a state in its slot. It reports false
// for all other keys.
func (k *Limiter[K]) decide(d *weir.Decision, key K, h uint64, cost int64, charge bool) (slot int, ok bool) {
	a := k.array(h)
	prefetch(&a.slots[a.home(h)*perLine*a.size])
	var now int64 // k.reading, which the compiler does not inline
	if k.plain && !a.wall {
		now = int64(time.Since(k.start))
	} else {
		now = k.reading(a.wall)
	}
	return k.decideIn(a, d, key, h, now, cost, charge)
}

// decideIn is decide in an array where the key may be, by a reading of the clock.
func (k *Limiter[K]) decideIn(a *array[K], d *weir.Decision, key K, h uint64, now, cost int64, charge bool) (slot int, ok bool) {
	slot, head := a.acquire(h, key)
	if slot < 0 {
		return slot, false
	}
	ok = head&away == 0 && a.layout.Decide(d, a.words(slot), now, cost, charge)
	if ok && !d.Allowed && a.layout.IsAhead(d) {
		ok = k.decideAgain(d, a, slot, now, cost, charge)
	}
	a.unlock(slot, head)
	return slot, ok
}

// decideAgain decides about a locked slot by the time of now, where that is later than the reading by which
// a call was refused. Its goroutine may have stood still since it read the clock: others then charged by later
// readings, and what has come back since was hidden from it.
func (k *Limiter[K]) decideAgain(d *weir.Decision, a *array[K], slot int, read, cost int64, charge bool) bool {
	now := k.reading(a.wall)
	if now <= read {
		return true
	}
	*d = weir.Decision{}
	return a.layout.Decide(d, a.words(slot), now, cost, charge)
}

// take is Take by the general path, after decide could not decide. slot is what decide found.
func (k *Limiter[K]) take(key K, h uint64, cost int64, slot int) weir.Decision {
	room := false
	if ver := k.version.Load(); slot == absent && ver.welcomes && k.opts.Full == Evict && uint64(cost-1) < uint64(ver.largest) {
		// a new key will need room; makeRoom must be called without any lock held
		if n := k.count.Load(); n >= int64(k.opts.MaxKeys) {
			_, room = k.makeRoom(h, k.reading(ver.wall), ver.wall)
		}
	}
	g := k.grip(key, h)
	defer g.release()
	g.token = room
	d, ok := g.take(cost)
	if ok {
		return d
	}
	if wait, ok := g.makeRoom(); !ok {
		return g.decideWithoutRoom(wait, func(s *Limiter[K], key K) weir.Decision { return s.Take(key, cost) })
	}
	d, _ = g.take(cost) // room is reserved
	return d
}

// decideWithoutRoom returns the decision about a new key without room, while its grip is held.
func (g *grip[K]) decideWithoutRoom(wait time.Duration, shared func(s *Limiter[K], key K) weir.Decision) weir.Decision {
	k := g.k
	if k.shared == nil {
		return k.refused(wait)
	}
	k.stats.shared.Add(1)
	return shared(k.shared, k.group(g.key))
}

// makeRoom makes room for a new key and reserves it. It releases the grip meanwhile.
func (g *grip[K]) makeRoom() (wait time.Duration, ok bool) {
	k, own, wall := g.k, g.own, g.s.array.version.wall
	g.release()
	wait, ok = k.makeRoom(g.h, g.now, wall)
	if *g = k.grip(g.key, g.h); own != nil {
		g.adopt(own)
	}
	if g.token = ok; !ok && g.slot < 0 && k.shared == nil {
		k.stats.refused.Add(1)
	}
	return wait, ok || g.slot >= 0
}

// peek is Peek by the general path, after decide could not decide.
func (k *Limiter[K]) peek(key K, h uint64, cost int64) weir.Decision {
	g := k.grip(key, h)
	if g.slot >= 0 || g.needsNone(cost) || k.opts.Full == Evict || g.room() {
		defer g.release()
		return g.peek(cost)
	}
	wall := g.s.array.version.wall
	g.release()
	wait, ok := k.makeRoom(h, g.now, wall)
	switch {
	case ok:
		k.count.Add(-1)
		return k.peek(key, h, cost)
	case k.shared != nil:
		return k.shared.Peek(k.group(key), cost)
	}
	return k.refused(wait)
}

// TakeAtMost takes as much of n for the key as is available now, and returns how much that was, as
// weir.Limiter.TakeAtMost does.
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
		d = g.decideWithoutRoom(wait, func(s *Limiter[K], key K) (d weir.Decision) {
			taken, d = s.TakeAtMost(key, n)
			return d
		})
		return taken, d
	}
	taken, d, _ = g.takeAtMost(n)
	return taken, d
}

func (g *grip[K]) takeAtMost(n int64) (taken int64, d weir.Decision, ok bool) {
	if x := g.entry(); x != nil && x.lim != nil && !x.fixed() {
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
