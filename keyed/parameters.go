package keyed

import (
	"time"

	"github.com/weirflow/weir"
)

// Parameters replace the parameters of a Limiter for some of its keys, such as those of a
// customer's plan: see Charge.Parameters. They do not change, and are safe for concurrent use.
type Parameters struct{ prepared weir.Prepared }

// Parameters prepares a limit for some of the keys. Parameters whose windows are counted by another
// clock than those of the limiter are not used: see weir.Prepared.Wall.
func (k *Limiter[K]) Parameters(l weir.Limit) (*Parameters, error) {
	p, err := weir.Prepare(l, time.Nanosecond)
	if err != nil {
		return nil, err
	}
	return &Parameters{p.Named(k.opts.Name)}, nil
}

// Limit returns the limit with these parameters.
func (p *Parameters) Limit() weir.Limit { return p.prepared.Limit() }

// adopt makes a key decide by parameters of its own from now on; nil is those of the limiter. What
// the key has used stays used, as with SetLimit. A key with an override keeps the limit of the
// override.
func (g *grip[K]) adopt(want *Parameters) {
	if want != nil && want.prepared.Wall() != g.s.array.version.wall {
		want = nil
	}
	x := g.entry()
	switch {
	case g.slot < 0:
		g.own = want
	case x == nil && want != nil:
		x = &entry[K]{h: g.h}
		if g.k.opts.Keys {
			x.key = g.key
		}
		x.state = append(x.words[:0], g.state()...)
		g.s.enter(g.slot, x)
		g.head |= away
		g.convert(x, want)
	case x != nil && x.own != want:
		g.convert(x, want)
	}
}

// convert is adopt for a key that has an entry.
func (g *grip[K]) convert(x *entry[K], want *Parameters) {
	from := g.prepared()
	x.own = want
	to := g.prepared()
	if weir.Equal(from.Limit(), to.Limit()) && want != nil {
		return
	}
	switch {
	case x.over != nil && x.over.Limit != nil:
		return // Lift continues with the new parameters
	case x.lim != nil:
		if err := x.lim.SetLimit(to.Limit()); err != nil {
			panic(err) // cannot fail: the limit was prepared
		}
	default:
		x.state = from.Convert(x.state, g.now, to, g.now)
		if want == nil && g.s.pack(g.slot, x.state, g.now) {
			g.s.leave(x)
			x.gone = true
			g.head &^= away
		}
	}
	g.extendBound()
}

// preparedBy returns the parameters that an entry decides by.
func (x *entry[K]) preparedBy(ver *version) weir.Prepared {
	if x.own != nil {
		return x.own.prepared
	}
	return ver.prepared
}

// insertOwn is insert for a key with parameters of its own, whose state is never in a slot.
func (g *grip[K]) insertOwn(state []int64, free int64) {
	x := &entry[K]{h: g.h, own: g.own}
	if g.k.opts.Keys {
		x.key = g.key
	}
	x.state = append(x.words[:0], state...)
	g.s.enter(g.slot, x)
	g.enter(away, free)
}

// TakeBy is Take with the parameters of the key, as a Charge has them; nil for those of the limiter.
func (k *Limiter[K]) TakeBy(p *Parameters, key K, cost int64) (d weir.Decision) {
	h, ok := k.hash(key)
	if !ok {
		return k.refused(weir.Never)
	}
	g := k.grip(key, h)
	defer g.release()
	g.adopt(p)
	if d, ok = g.take(cost); !ok {
		if wait, room := g.makeRoom(); room {
			g.adopt(p)
			d, _ = g.take(cost)
		} else {
			d = g.decideWithoutRoom(wait, func(s *Limiter[K], key K) weir.Decision { return s.Take(key, cost) })
		}
	}
	if k.top != nil {
		k.top.note(key, h, cost, d.Allowed)
	}
	return d
}

// ReserveBy is Reserve with the parameters of the key, as a Charge has them; nil for those of the
// limiter.
func (k *Limiter[K]) ReserveBy(p *Parameters, key K, cost int64, maxDelay time.Duration) (r Reservation[K], ok bool) {
	h, ok := k.hash(key)
	if !ok {
		return Reservation[K]{decision: k.refused(weir.Never)}, false
	}
	if k.top != nil {
		defer func() { k.top.note(key, h, cost, ok) }()
	}
	g := k.grip(key, h)
	defer g.release()
	g.adopt(p)
	return g.reserve(cost, maxDelay)
}

// PeekBy is Peek with the parameters of a key without a state, as a Charge has them; nil for those of
// the limiter. A key with a state decides by those of its last charge.
func (k *Limiter[K]) PeekBy(p *Parameters, key K, cost int64) weir.Decision {
	h, ok := k.hash(key)
	if !ok {
		return k.refused(weir.Never)
	}
	g := k.grip(key, h)
	defer g.release()
	if g.slot < 0 {
		g.adopt(p)
	}
	return g.peek(cost)
}
