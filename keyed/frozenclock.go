package keyed

import "sync/atomic"

// A frozenClock is what the clocks of a key's own limiter say while a group decides.
type frozenClock struct {
	on        atomic.Bool
	now, wall atomic.Int64
}

// freeze makes the key's own limiter decide as of the grip's reading until release. A group looks
// at all limits first and charges them afterwards. If a clock stepped back in between, a limit
// could refuse that had admitted, when others are already charged.
func (g *grip[K]) freeze() {
	g.freezes = true
	if x := g.entry(); x != nil {
		g.freezeEntry(x)
	}
}

func (g *grip[K]) freezeEntry(x *entry[K]) {
	now, wall := g.now, g.now
	if x.over != nil { // the override's limit may read the other clock
		now, wall = g.k.clock(), g.k.times()
	}
	x.frozen.now.Store(now)
	x.frozen.wall.Store(wall)
	x.frozen.on.Store(true)
}

// thaw ends freeze.
func (g *grip[K]) thaw() {
	if x := g.entry(); x != nil {
		x.frozen.on.Store(false)
	}
	g.freezes = false
}

// clock returns the clock of the entry's limiter.
func (x *entry[K]) clock(k *Limiter[K]) func() int64 {
	return func() int64 {
		if x.frozen.on.Load() {
			return x.frozen.now.Load()
		}
		return k.clock()
	}
}

// wallClock returns the wall clock of the entry's limiter.
func (x *entry[K]) wallClock(k *Limiter[K]) func() int64 {
	return func() int64 {
		if x.frozen.on.Load() {
			return x.frozen.wall.Load()
		}
		return k.times()
	}
}
