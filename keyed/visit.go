package keyed

import (
	"iter"
	"time"

	"github.com/weirflow/weir"
)

// Fingerprint returns a key's fingerprint in All: 64 bits of a hash with this limiter's own seed.
// It reports false for an invalid key.
func (k *Limiter[K]) Fingerprint(key K) (uint64, bool) { return k.hash(key) }

// All yields the fingerprint of each kept key, with the decision of a Peek of 0. It copies the
// table part by part, up to some thousands of keys at a time, and holds no lock while the loop body
// runs. A key that comes or goes meanwhile may be left out, and no key comes twice.
func (k *Limiter[K]) All() iter.Seq2[uint64, weir.Decision] {
	return func(yield func(uint64, weir.Decision) bool) {
		k.visit(func(v visited[K]) bool { return yield(v.h, v.d) })
	}
}

// Keys is All with the keys themselves. It yields nothing unless Options.Keys is set.
func (k *Limiter[K]) Keys() iter.Seq2[K, weir.Decision] {
	return func(yield func(K, weir.Decision) bool) {
		if k.opts.Keys {
			k.visit(func(v visited[K]) bool { return yield(v.key, v.d) })
		}
	}
}

// A Reading is the decision of a Peek of 0, and when it was made.
type Reading struct {
	weir.Decision
	At   time.Time // just before: ResetAfter and RetryAfter count from then
	Used int64     // as Limiter.Used returns it
}

// Readings is Keys with the time at which each state was read. A caller that is slow gets the later parts of
// the table as they are later.
func (k *Limiter[K]) Readings() iter.Seq2[K, Reading] {
	return func(yield func(K, Reading) bool) {
		if k.opts.Keys {
			k.visit(func(v visited[K]) bool { return yield(v.key, Reading{v.d, v.at, v.used}) })
		}
	}
}

// visited is a key of the table.
type visited[K comparable] struct {
	h   uint64
	key K
	d   weir.Decision
	at  time.Time

	used int64
}

// visit goes through the table in the order of the hashes. A segment that is split meanwhile
// becomes two that are visited one after the other.
func (k *Limiter[K]) visit(yield func(visited[K]) bool) {
	var copied []visited[K]
	for h := uint64(0); ; {
		s := k.lockSegment(h)
		copied = s.copy(copied[:0])
		h = (s.prefix + 1) << (64 - s.array.shift) // 0 after the last
		s.mu.Unlock()
		for _, v := range copied {
			if !yield(v) {
				return
			}
		}
		if h == 0 {
			return
		}
	}
}

// copy appends the keys of a segment.
func (s *segment[K]) copy(to []visited[K]) []visited[K] {
	a, at := s.array, time.Now()
	g := grip[K]{k: s.table, s: s, now: s.table.reading(a.version.wall)}
	for g.slot = 0; g.slot < len(a.slots); g.slot += a.size {
		var ok bool
		if g.head, ok = a.lockUsed(g.slot); !ok {
			continue
		}
		v := visited[K]{h: a.hash(g.slot, g.head, s.prefix), d: g.peek(0), at: at}
		v.used = g.used(v.d)
		if a.keys != nil {
			v.key = a.keys[g.slot/a.size]
		}
		a.unlock(g.slot, g.head)
		to = append(to, v)
	}
	return to
}

// Used returns how much of its limit a key has used. It is Decision.Limit less Decision.Remaining, unless
// nothing remains: work whose cost was known only afterwards may have used more than the limit.
func (k *Limiter[K]) Used(key K) int64 {
	h, ok := k.hash(key)
	if !ok {
		return 0
	}
	g := k.grip(key, h)
	defer g.release()
	if g.slot < 0 {
		return 0
	}
	return g.used(g.peek(0))
}

// used is Used, after a decision about 0.
func (g *grip[K]) used(d weir.Decision) int64 {
	used := max(d.Limit-d.Remaining, 0)
	if d.Remaining > 0 || g.fixed() {
		return used
	}
	saved, p := g.saved(), g.prepared()
	if !weir.Equal(saved.Limit, p.Limit()) {
		var err error
		if p, err = weir.Prepare(saved.Limit, time.Nanosecond); err != nil {
			return used // it was in force
		}
	}
	return max(used, p.Rule().Rule.Spent(saved.State, g.now))
}

// Reset makes the state of a key unused again: it starts over without counts. An override of the
// key stays. Its waiters stay in the queue, and go when they would have gone. Reset reports whether
// the key had a state.
func (k *Limiter[K]) Reset(key K) bool {
	h, ok := k.hash(key)
	if !ok {
		return false
	}
	g := k.grip(key, h)
	defer g.release()
	if g.slot < 0 {
		return false
	}
	if x := g.entry(); x != nil && x.over != nil {
		g.renew(x.over)
		return true
	}
	g.s.drop(g.slot, g.head, g.now)
	g.slot = absent
	return true
}

// renew gives the key a new entry, in the room of its entry, with that override.
func (g *grip[K]) renew(over *override) {
	x := g.entry()
	g.s.leaveFor(x)
	g.ahead = x.lim != nil
	g.s.enter(g.slot, &entry[K]{h: g.h, key: x.key})
	x, _ = g.promote() // it has room
	if x.over = over; over.Limit != nil {
		_ = x.lim.SetLimit(over.Limit) // cannot fail: the limit was in force
	}
	g.extendBound()
}
