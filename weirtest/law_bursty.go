package weirtest

import (
	"fmt"
	"math"
	"math/big"
	"time"

	"github.com/weirflow/weir"
)

// bursty is the law of SmoothBursty (SEMANTICS 8): one number, the time of the next free permit less the time that the stored ones took to
// come. A charge may go from then on, whatever its cost, and the next one waits for it.
type bursty struct {
	tick  time.Duration
	t     *big.Rat // clock units that bring a permit; 0 for a rate without end
	store *big.Rat // clock units whose permits are stored

	f *big.Rat // nil while untouched
	x *big.Rat // all that was ever given back, in clock units

	blind bool
	open  outstanding // in clock units
	ids   int
}

// burstyMark is f and x just after a charge, its id among those outstanding, and its cost in permits and in time, which stays where the rate
// changes.
type burstyMark struct {
	f, x *big.Rat
	id   int
	cost int64
	time *big.Rat
}

func newBursty(l weir.SmoothBursty, tick time.Duration, blind bool) *bursty {
	b := &bursty{tick: tick, t: new(big.Rat), x: new(big.Rat), blind: blind}
	if l.Rate != weir.Unlimited {
		b.t = perToken(l.Rate, tick)
	}
	switch {
	case l.MaxBurst == 0:
		b.store = whole(int64(time.Second / tick))
	default:
		b.store = whole(max(0, int64(l.MaxBurst/tick)))
	}
	return b
}

// permits is how many come in a span, a whole number.
func (b *bursty) permits(span *big.Rat) int64 {
	if b.t.Sign() == 0 {
		return math.MaxInt64
	}
	return down(quo(span, b.t))
}

func (b *bursty) size() int64    { return b.permits(b.store) }
func (b *bursty) largest() int64 { return b.permits(whole(int64(century / b.tick))) }
func (b *bursty) books() bool    { return true }
func (b *bursty) moves() bool    { return true }
func (b *bursty) touched() bool  { return b.f != nil }
func (b *bursty) clone() law     { c := *b; return &c }
func (b *bursty) String() string { return fmt.Sprint(b.f, b.x, b.open) }

// contact is when permits begin to be stored, where any are and they take time to come.
func (b *bursty) contact(now int64) {
	if b.f == nil && b.store.Sign() > 0 && b.t.Sign() > 0 {
		b.f = b.level(whole(now))
	}
}

// level is f at a time: no more than what is stored in the time of the store. Nothing is stored at first; of a rate without end all is.
func (b *bursty) level(at *big.Rat) *big.Rat {
	switch least := sub(at, b.store); {
	case b.f != nil:
		return largest(b.f, least)
	case b.t.Sign() == 0:
		return least
	}
	return smallest(at, sub(whole(math.MaxInt64), b.store))
}

func (b *bursty) plan(now int64, ahead *big.Int, cost int64) (wait, room *big.Rat) {
	f := add(b.level(whole(now)), mul(b.t, exact(ahead)))
	if add(add(f, mul(b.t, whole(cost))), b.store).Cmp(whole(math.MaxInt64)) > 0 {
		return nil, nil // the end of the clock
	}
	return named(sub(f, whole(now)), b.tick), new(big.Rat)
}

func (b *bursty) look(now int64, ahead *big.Int) (remaining int64, reset *big.Int) {
	t := whole(now)
	f := add(b.level(t), mul(b.t, exact(ahead)))
	if f.Cmp(t) <= 0 {
		remaining = max(0, b.permits(sub(smallest(t, sub(whole(math.MaxInt64), b.store)), f)))
	}
	return remaining, ceil(sub(add(f, b.store), t))
}

func (b *bursty) charge(at *big.Rat, cost int64) { b.chargeBehind(b.used(at), at, cost) }

// fits reports whether what is charged comes before the end of the clock.
func (b *bursty) fits(at *big.Rat, cost int64) bool {
	return add(add(b.level(at), mul(b.t, whole(cost))), b.store).Cmp(whole(math.MaxInt64)) <= 0
}

// used is how long it takes until all that can be stored is.
func (b *bursty) used(at *big.Rat) *big.Rat { return sub(add(b.level(at), b.store), at) }

// chargeBehind charges what goes when there is a backlog.
func (b *bursty) chargeBehind(backlog, at *big.Rat, cost int64) {
	if b.open = b.open.charged(backlog); !b.fits(at, cost) {
		b.open = nil // a debt that is too long is forgotten in part
	}
	b.f = smallest(add(b.level(at), mul(b.t, whole(cost))), sub(whole(math.MaxInt64), b.store))
}

func (b *bursty) book(now int64, _ *big.Rat, cost int64) mark {
	fits := b.fits(whole(now), cost)
	b.chargeBehind(smallest(b.used(whole(now)), b.store), whole(now), cost)
	if b.ids++; !b.blind && fits {
		b.open = b.open.add(b.ids)
	}
	return burstyMark{b.f, b.x, b.ids, cost, mul(b.t, whole(cost))}
}

func (b *bursty) drop(m mark) { b.open = b.open.without(m.(burstyMark).id) }

// parts rounds a span down to what a state can hold.
func (b *bursty) parts(span *big.Rat) *big.Rat {
	n := whole(1)
	if b.t.Sign() > 0 {
		n = exact(b.t.Denom())
	}
	return quo(exact(floor(mul(span, n))), n)
}

// giveBack is that of a token bucket, which is full when f lies the store before now. Of later work some may wait for its time as soon as
// more than one permit is owed.
func (b *bursty) giveBack(now int64, m mark, amount int64) {
	c, t := m.(burstyMark), whole(now)
	if !b.blind {
		var give *big.Rat
		b.open, give = b.open.giveBack(c.id, b.parts(quo(mul(c.time, whole(amount)), whole(c.cost))), b.used(t))
		b.f = sub(b.f, give)
		return
	}
	full := sub(t, b.store)
	since := sub(add(b.f, b.x), add(c.f, c.x))
	give := smallest(mul(b.t, whole(amount)), sub(sub(c.f, sub(b.x, c.x)), full))
	promised := add(b.store, b.t)
	if since.Sign() < 0 {
		return
	}
	if since.Sign() > 0 && sub(b.f, full).Cmp(promised) > 0 {
		give = smallest(give, sub(smallest(mul(b.t, whole(amount)), promised), since))
	}
	if give.Sign() > 0 && b.f.Cmp(full) > 0 {
		b.f, b.x = sub(b.f, give), add(b.x, give)
	}
}

func (b *bursty) turn(seen *big.Rat, cost int64) *big.Rat {
	at := largest(seen, b.level(seen))
	if named(sub(at, seen), b.tick) == nil || up(add(add(b.level(at), mul(b.t, whole(cost))), b.store)) == math.MaxInt64 {
		return nil
	}
	return at
}

func (b *bursty) asOf(turn *big.Rat, now int64) *big.Rat { return late(turn, now, b.tick) }

func (b *bursty) same(o law) bool {
	c, ok := o.(*bursty)
	return ok && b.t.Cmp(c.t) == 0 && b.store.Cmp(c.store) == 0
}

// become is Guava's setRate: f stays, but for what the new store has no room for.
func (b *bursty) become(now int64, o law) law {
	next, ok := o.(*bursty)
	switch {
	case !ok:
		return transfer(now, b, o)
	case b.f == nil:
		return next
	}
	next.f = largest(b.level(whole(now)), sub(whole(now), next.store))
	if next.t.Sign() > 0 { // a state has so many parts to a clock unit
		parts := exact(next.t.Denom())
		next.f = smallest(quo(exact(ceil(mul(next.f, parts))), parts), sub(whole(math.MaxInt64), next.store))
	} else {
		next.f = smallest(exact(ceil(next.f)), sub(whole(math.MaxInt64), next.store))
	}
	next.open, next.ids = b.open.scaled(next.parts).charged(next.used(whole(now))), b.ids
	if add(next.f, next.store).Cmp(whole(math.MaxInt64)) == 0 {
		next.open = nil
	}
	return next
}

// remark: a debt is a time, and stays one.
func (b *bursty) remark(_ int64, m mark, o law) mark {
	next, ok := o.(*bursty)
	if !ok || b.blind {
		return nil
	}
	c := m.(burstyMark)
	c.time = next.parts(c.time)
	return c
}

func (b *bursty) spent(now int64) *big.Int {
	if b.t.Sign() == 0 {
		return new(big.Int)
	}
	return ceil(quo(sub(add(b.level(whole(now)), b.store), whole(now)), b.t))
}

func (b *bursty) counted() *big.Int { return new(big.Int) }

func (b *bursty) load(now int64, spent *big.Int) {
	b.contact(now)
	b.charge(whole(now), clamp(spent))
}
