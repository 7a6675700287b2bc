package keyed

import (
	"fmt"
	"time"

	"github.com/weirflow/weir"
)

// Parameters replace the parameters of a Limiter for some of its keys, such as those of a
// customer's plan: see Charge.Parameters. They do not change, and are safe for concurrent use.
type Parameters struct{ prepared weir.Prepared }

// Parameters prepares a limit of the same algorithm with other parameters. Its windows must be
// counted by the same clock: see weir.Prepared.Wall.
func (k *Limiter[K]) Parameters(l weir.Limit) (*Parameters, error) {
	p, err := weir.Prepare(l, time.Nanosecond)
	if err != nil {
		return nil, err
	}
	of := k.version.Load().prepared
	if was, is := weir.Algorithm(of.Limit()), weir.Algorithm(l); was != is {
		return nil, fmt.Errorf("weir: keyed.Parameters: the limit is a %s, and not a %s", was, is)
	}
	if p.Wall() != of.Wall() {
		return nil, fmt.Errorf("weir: keyed.Parameters: align: its windows are not counted by the same clock as those of the limit")
	}
	return &Parameters{p.Named(k.opts.Name)}, nil
}

// Limit returns the limit with these parameters.
func (p *Parameters) Limit() weir.Limit { return p.prepared.Limit() }

// adopt makes a key decide by parameters of its own from now on; nil is those of the limiter. What
// the key has used stays used, as with SetLimit. A key with an override keeps the limit of the
// override.
func (g *grip[K]) adopt(want *Parameters) {
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
