package keyed

import "github.com/weirflow/weir"

// GiveBack lowers what a key has used by amount, as weir.Limiter.GiveBack does.
func (k *Limiter[K]) GiveBack(key K, amount int64) (d weir.Decision, ok bool) {
	h, valid := k.hash(key)
	if !valid {
		return k.refused(weir.Never), false
	}
	g := k.grip(key, h)
	defer g.release()
	x := g.entry()
	switch {
	case x != nil && x.fixed():
		return x.overridden(0), false
	case x != nil && x.lim != nil:
		d, ok = x.lim.GiveBack(amount)
	case x != nil:
		x.state, ok = g.prepared().GiveBack(x.state, g.now, amount)
	case g.slot >= 0:
		var state []int64
		if state, ok = g.prepared().GiveBack(g.state(), g.now, amount); ok {
			g.storeState(state)
		}
	default: // the key has used nothing
		_, ok = g.prepared().GiveBack(nil, g.now, amount)
	}
	if x == nil || x.lim == nil {
		d = g.peek(0)
	}
	g.extendBound() // the key may be idle sooner than expected
	return d, ok
}
