package keyed

import (
	"time"

	"github.com/weirflow/weir"
)

// A grip is exclusive access to a key: its segment is locked, and its slot too. All methods work
// under a grip, except for the fast path of Take and Peek.
type grip[K comparable] struct {
	k     *Limiter[K]
	s     *segment[K]
	key   K
	h     uint64
	slot  int // below 0 if the key has no slot
	head  int64
	now   int64
	token bool        // room for a new key is reserved
	ahead bool        // room for a limiter of the key's own has been set aside
	own   *Parameters // of a key without a slot; nil for those of the limiter

	freezes bool // the clocks of the key's own limiter stand still until release
}

// grip locks a key, in a segment that has room for it.
func (k *Limiter[K]) grip(key K, h uint64) grip[K] {
	for {
		s := k.lockSegment(h)
		now := k.reading(s.array.version.wall)
		if l, ver := s.array.layout, s.array.version; l != nil && !l.Covers(now) && ver.layoutAt(now) != l {
			s.rebuild(int(s.array.lines), ver)
		}
		slot, head := s.array.acquire(h, key)
		if slot >= 0 {
			now = k.reading(s.array.version.wall) // while it waited for the slot, others may have charged by later readings
		}
		if slot >= 0 || s.hasRoom() {
			g := grip[K]{k: k, s: s, key: key, h: h, slot: slot, head: head, now: now}
			g.expire()
			return g
		}
		s.grow(now)
		s.mu.Unlock()
	}
}

func (g *grip[K]) release() {
	if g.freezes {
		g.thaw()
	}
	if g.slot >= 0 {
		g.s.array.unlock(g.slot, g.head)
	}
	g.s.mu.Unlock()
	if g.token {
		g.k.count.Add(-1)
		g.token = false
	}
	if g.ahead {
		g.k.limiters.Add(-1)
		g.ahead = false
	}
}

// entry returns the key's entry; nil if its state is in the slot.
func (g *grip[K]) entry() *entry[K] {
	if g.slot < 0 || g.head&away == 0 {
		return nil
	}
	return g.s.entry(g.slot)
}

// prepared returns the limit that the key decides by.
func (g *grip[K]) prepared() weir.Prepared {
	ver := g.s.array.version
	if g.slot < 0 {
		if g.own != nil {
			return g.own.prepared
		}
		return ver.prepared
	}
	if x := g.entry(); x != nil {
		return x.preparedBy(ver)
	}
	return ver.prepared
}

// state returns the state of a key that has no limiter.
func (g *grip[K]) state() []int64 {
	switch x := g.entry(); {
	case g.slot < 0:
		return nil
	case x != nil:
		return x.state
	}
	return g.s.unpack(g.slot)
}

// peek is Peek. It does not check whether there is room for a new key.
func (g *grip[K]) peek(cost int64) (d weir.Decision) {
	switch x := g.entry(); {
	case x != nil && x.fixed():
		return x.overridden(cost)
	case x != nil && x.lim != nil:
		return x.lim.Peek(cost)
	}
	return g.prepared().Peek(g.state(), g.now, cost)
}

// take is Take. It reports false and charges nothing if there is no room for a new key.
func (g *grip[K]) take(cost int64) (d weir.Decision, ok bool) {
	x := g.entry()
	switch {
	case x != nil && x.fixed():
		return x.overridden(cost), true
	case x != nil && x.lim != nil:
		return x.lim.Take(cost), true
	case x != nil:
		if x.state, d = g.prepared().Step(x.state, g.now, cost); x.own == nil && g.s.pack(g.slot, x.state, g.now) {
			g.s.leave(x)
			x.gone = true
			g.head &^= away
		}
		return d, true
	case g.slot >= 0:
		if !g.s.array.layout.Decide(&d, g.s.array.words(g.slot), g.now, cost, true) {
			var state []int64
			state, d = g.prepared().Step(g.state(), g.now, cost)
			g.storeState(state)
		}
		return d, true
	}
	return g.takeFirst(cost)
}

// storeState writes a changed state back to the slot, or to an entry if it no longer fits.
func (g *grip[K]) storeState(state []int64) {
	if len(state) > 0 {
		g.head = g.head&^away | g.s.store(g.slot, g.h, state, g.now)
	}
}

// takeFirst is take for a key without a state. The key gets one only if it differs from an unused
// state.
func (g *grip[K]) takeFirst(cost int64) (d weir.Decision, ok bool) {
	words, l := g.s.scratch[:1], g.s.array.layout
	if g.own == nil && l != nil && l.Fresh(words) && l.Decide(&d, words, g.now, cost, true) { // the fast path
		switch {
		case !d.Allowed || cost == 0:
			return d, true
		case !g.room():
			return d, false
		}
		g.slot, g.token = g.s.put(g.h), false
		g.s.array.words(g.slot)[0] = words[0]
		g.enter(0, later(g.now, d.ResetAfter))
		return d, true
	}
	state, d := g.prepared().Step(g.s.scratch[:0], g.now, cost)
	if len(state) == 0 {
		return d, true
	}
	if !g.room() {
		return d, false
	}
	g.insert(state, later(g.now, d.ResetAfter))
	return d, true
}

// room reserves room for a new key, unless it is reserved already.
func (g *grip[K]) room() bool {
	if !g.token && g.k.count.Add(1) > int64(g.k.opts.MaxKeys) {
		g.k.count.Add(-1)
		return false
	}
	g.token = true
	return true
}

// insert gives a new key a slot, in reserved room. Its state is idle from free on.
func (g *grip[K]) insert(state []int64, free int64) {
	if g.slot, g.token = g.s.put(g.h), false; g.own != nil {
		g.insertOwn(state, free)
		return
	}
	g.enter(g.s.store(g.slot, g.h, state, g.now), free)
}

// enter assigns the key a slot whose words are written.
func (g *grip[K]) enter(flags, free int64) {
	g.head = g.s.array.fill(g.slot, g.h, g.key, locked|flags)
	if g.s.lower(g.slot, free); g.s.array.version.returns {
		g.k.wakeJanitor(g.now, free)
	}
}

// promote gives the key an entry with its own limiter. It reports false if there is no room for a
// new key.
func (g *grip[K]) promote() (*entry[K], bool) {
	x := g.entry()
	if !g.limiterRoom() {
		return nil, false
	}
	if x == nil {
		if g.slot < 0 && !g.room() {
			return nil, false
		}
		x = &entry[K]{h: g.h}
		if g.k.opts.Keys {
			x.key = g.key
		}
		x.state = append(x.words[:0], g.state()...)
		if g.slot < 0 {
			g.insert(nil, g.now)
			x = g.entry()
		} else {
			g.s.enter(g.slot, x)
			g.head |= away
		}
	}
	if x.lim == nil {
		k, p := g.k, g.prepared()
		if x.memory.table = k.memory; k.memory != nil {
			p = p.Within(&x.memory)
		}
		if g.freezes {
			g.freezeEntry(x)
		}
		lim, err := p.New(x.state, weir.Named(k.opts.Name), weir.WithClock(x.clock(k)), weir.WithWallClock(x.wallClock(k)), weir.WithTimers(k.timers))
		if err != nil {
			panic(err) // cannot fail: the state is the limit's, and the unit a nanosecond
		}
		x.lim, x.state, g.ahead = lim, nil, false
	}
	return x, true
}

// limiterRoom sets room aside for a limiter of the key's own, unless it has one or that has been
// done.
func (g *grip[K]) limiterRoom() bool {
	if x := g.entry(); g.ahead || x != nil && x.lim != nil {
		return true
	}
	k := g.k
	if n := k.limiters.Add(1); k.most > 0 && n > k.most {
		k.limiters.Add(-1)
		return false
	}
	g.ahead = true
	return true
}

// extendBound records that the key may be idle sooner than expected.
func (g *grip[K]) extendBound() {
	if g.slot >= 0 {
		g.s.lower(g.slot, g.s.freeAt(g.slot, g.head, g.now))
	}
}

// needsNone reports whether a key without a state needs none for a cost that is never charged. Such
// a call must not evict another key.
func (g *grip[K]) needsNone(cost int64) bool {
	return g.slot < 0 && (cost <= 0 || cost > g.prepared().Largest())
}

// refused is the decision about a key without a state that got no room.
func (k *Limiter[K]) refused(wait time.Duration) weir.Decision {
	return weir.Decision{Limit: k.version.Load().prepared.Peek(nil, 0, 0).Limit, RetryAfter: wait, By: k.opts.Name}
}
