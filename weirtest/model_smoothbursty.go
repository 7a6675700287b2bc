package weirtest

import (
	"fmt"
	"math"
	"math/big"
	"time"

	"github.com/weirflow/weir"
)

// smoothBursty is the model of SmoothBursty. Its state is f: the time of the next
// free permit, minus the time in which the stored permits came. From f on a charge of any cost goes
// on, and the next one waits for it.
type smoothBursty struct {
	tick  time.Duration
	t     *big.Rat // clock units in which a permit comes; 0 for Unlimited
	store *big.Rat // the clock units whose permits can be stored

	f *big.Rat // nil while untouched
	x *big.Rat // all that was ever given back, in clock units

	blind bool
	list  *listed // of a store whose states hold their reservations, which are blind for all others
	// of a list: the next charge is not remembered
	forgetful bool
	open      reserved // in clock units
	ids       int
}

// burstyMark has f and x just after a charge, the id of the outstanding reservation, its cost in
// permits and in time, and when its work goes. A change of the rate does not change the cost in time.
type burstyMark struct {
	f, x   *big.Rat
	id     int
	cost   int64
	time   *big.Rat
	listed bool
	goes   *big.Rat
}

func newBursty(l weir.SmoothBursty, tick time.Duration, blind bool) *smoothBursty {
	b := &smoothBursty{tick: tick, t: new(big.Rat), x: new(big.Rat), blind: blind}
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

// permits returns how many whole permits come in a span.
func (b *smoothBursty) permits(span *big.Rat) int64 {
	if b.t.Sign() == 0 {
		return math.MaxInt64
	}
	return down(quo(span, b.t))
}

func (b *smoothBursty) size() int64        { return b.permits(b.store) }
func (b *smoothBursty) largest() int64     { return b.permits(whole(int64(century / b.tick))) }
func (b *smoothBursty) chargesAhead() bool { return true }
func (b *smoothBursty) turnsMove() bool    { return true }
func (b *smoothBursty) touched() bool      { return b.f != nil }
func (b *smoothBursty) clone() algorithm   { c := *b; return &c }
func (b *smoothBursty) String() string     { return fmt.Sprint(b.f, b.x, b.open, b.list) }

// contact starts the storing of permits.
func (b *smoothBursty) contact(now int64) {
	if b.f == nil && b.store.Sign() > 0 && b.t.Sign() > 0 {
		b.f = b.level(whole(now))
	}
}

// level returns f at a time, at least the time minus store, because no more permits are stored. At
// first nothing is stored; with an Unlimited rate everything is.
func (b *smoothBursty) level(at *big.Rat) *big.Rat {
	switch least := sub(at, b.store); {
	case b.f != nil:
		return largest(b.f, least)
	case b.t.Sign() == 0:
		return least
	}
	return smallest(at, sub(whole(math.MaxInt64), b.store))
}

func (b *smoothBursty) plan(now int64, ahead *big.Int, cost int64) (wait, room *big.Rat) {
	f := add(b.level(whole(now)), mul(b.t, exact(ahead)))
	if add(add(f, mul(b.t, whole(cost))), b.store).Cmp(whole(math.MaxInt64)) > 0 {
		return nil, nil // the end of the clock
	}
	return named(sub(f, whole(now)), b.tick), new(big.Rat)
}

func (b *smoothBursty) peek(now int64, ahead *big.Int) (remaining int64, reset *big.Int) {
	t := whole(now)
	f := add(b.level(t), mul(b.t, exact(ahead)))
	if f.Cmp(t) <= 0 {
		remaining = max(0, b.permits(sub(smallest(t, sub(whole(math.MaxInt64), b.store)), f)))
	}
	return remaining, ceil(sub(add(f, b.store), t))
}

// reached: a charge of one permit leaves no larger debt than itself.
func (b *smoothBursty) reached() *big.Int {
	if b.f == nil {
		return nil
	}
	return latest(ceil(sub(b.f, b.t)), new(big.Int))
}

func (b *smoothBursty) charge(at *big.Rat, cost int64) { b.chargeFor(0, at, at, cost) }

// fits reports whether f stays before the end of the clock after a charge.
func (b *smoothBursty) fits(at *big.Rat, cost int64) bool {
	return add(add(b.level(at), mul(b.t, whole(cost))), b.store).Cmp(whole(math.MaxInt64)) <= 0
}

// used returns how long it takes until the store is full.
func (b *smoothBursty) used(at *big.Rat) *big.Rat { return sub(add(b.level(at), b.store), at) }

// chargeFor charges at a time what goes at another one.
func (b *smoothBursty) chargeFor(id int, at, goes *big.Rat, cost int64) (entered bool) {
	z, fits := add(b.level(at), b.store), b.fits(at, cost)
	switch price := mul(b.t, whole(cost)); {
	case b.list != nil && price.Sign() == 0: // nothing to give back
	case b.list != nil && !fits:
		b.list = new(listed)
	case b.list != nil:
		b.list, entered = b.list.charged(id, z, at, goes, price, b.tick)
	case !fits:
		b.open = reserved{} // f cannot hold the whole debt, so nothing can be given back exactly
	default:
		b.open = b.open.charged(id, z, at, goes, price)
	}
	b.f = smallest(add(b.level(at), mul(b.t, whole(cost))), sub(whole(math.MaxInt64), b.store))
	return entered
}

// fill charges what another version of the limit admitted, so its work goes now.
func (b *smoothBursty) fill(now, cost int64, keeps bool) mark {
	id := 0
	if b.ids++; keeps {
		id = b.ids
	}
	entered := b.chargeFor(id, whole(now), whole(now), cost)
	return burstyMark{b.f, b.x, b.ids, cost, mul(b.t, whole(cost)), entered, whole(now)}
}

func (b *smoothBursty) reserve(now int64, due *big.Rat, cost int64) mark {
	b.ids++
	id := b.ids
	if b.blind && (b.list == nil || b.forgetful) {
		id = 0
	}
	goes := goesAt(b.level(whole(now)), whole(now), due)
	entered := b.chargeFor(id, whole(now), goes, cost)
	return burstyMark{b.f, b.x, b.ids, cost, mul(b.t, whole(cost)), entered, goes}
}

func (b *smoothBursty) reserveAt(at *big.Rat, cost int64) mark {
	b.ids++
	b.chargeFor(b.ids, at, at, cost)
	return burstyMark{b.f, b.x, b.ids, cost, mul(b.t, whole(cost)), false, at}
}

func (b *smoothBursty) drop(m mark) {
	c := m.(burstyMark)
	if b.open = b.open.without(c.id); c.listed {
		b.list, _ = b.list.without(c.id, new(big.Rat), new(big.Rat), b.tick)
	}
}

func (b *smoothBursty) expired(now int64, m mark) bool {
	c := m.(burstyMark)
	return c.listed && expired(promisedCharge{goes: c.goes}, whole(now), b.tick) && b.used(whole(now)).Sign() > 0
}

// parts rounds a span down to what a state can hold.
func (b *smoothBursty) parts(span *big.Rat) *big.Rat {
	n := whole(1)
	if b.t.Sign() > 0 {
		n = exact(b.t.Denom())
	}
	return quo(exact(floor(mul(span, n))), n)
}

// giveBack is that of a token bucket, which is full when f is now minus store. Later work may be
// delayed as soon as more than one permit is owed.
func (b *smoothBursty) giveBack(now int64, m mark, amount int64) {
	c, t := m.(burstyMark), whole(now)
	if !b.blind {
		var z *big.Rat
		b.open, z = b.open.giveBack(c.id, b.parts(quo(mul(b.parts(c.time), whole(amount)), whole(c.cost))), add(b.f, b.store), t)
		b.f = sub(z, b.store)
		return
	}
	if c.listed {
		z := add(b.f, b.store)
		if list, without := b.list.without(c.id, mul(b.t, whole(amount)), t, b.tick); without != nil {
			without = returned(without, t, z)
			b.list, b.f, b.x = list, sub(without, b.store), add(b.x, sub(z, without))
		}
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
		f := sub(b.f, give)
		if b.list != nil && len(b.list.charges) > 0 {
			b.list, f = b.list.less(give)
			f = sub(returned(f, t, add(b.f, b.store)), b.store)
		}
		b.f, b.x = f, add(b.x, sub(b.f, f))
	}
}

func (b *smoothBursty) turn(seen *big.Rat, cost int64) *big.Rat {
	at := largest(seen, b.level(seen))
	if named(sub(at, seen), b.tick) == nil || up(add(add(b.level(at), mul(b.t, whole(cost))), b.store)) == math.MaxInt64 {
		return nil
	}
	return at
}

func (b *smoothBursty) asOf(turn *big.Rat, now int64) *big.Rat { return late(turn, now, b.tick) }

func (b *smoothBursty) same(o algorithm) bool {
	c, ok := o.(*smoothBursty)
	return ok && b.t.Cmp(c.t) == 0 && b.store.Cmp(c.store) == 0
}

// changedTo is Guava's setRate: f stays, except for permits that no longer fit into the store.
func (b *smoothBursty) changedTo(now int64, o algorithm) algorithm {
	next, ok := o.(*smoothBursty)
	switch {
	case !ok:
		return transfer(now, b, o)
	case b.f == nil:
		return next
	}
	next.f = largest(b.level(whole(now)), sub(whole(now), next.store))
	if next.t.Sign() > 0 { // a state counts in these fractions of a clock unit
		parts := exact(next.t.Denom())
		next.f = smallest(quo(exact(ceil(mul(next.f, parts))), parts), sub(whole(math.MaxInt64), next.store))
	} else {
		next.f = smallest(exact(ceil(next.f)), sub(whole(math.MaxInt64), next.store))
	}
	next.open, next.ids = b.open.scaled(next.parts), b.ids
	next.open.open = next.open.open.charged(next.used(whole(now)))
	if add(next.f, next.store).Cmp(whole(math.MaxInt64)) == 0 {
		next.open = reserved{}
	}
	return next
}

// convertMark keeps the time, because a debt is a time. It is rounded when it is given back, by the
// limit of then, however often the limit has changed meanwhile.
func (b *smoothBursty) convertMark(_ int64, m mark, o algorithm) mark {
	if _, ok := o.(*smoothBursty); !ok || b.blind {
		return nil
	}
	return m
}

func (b *smoothBursty) spent(now int64) *big.Int {
	if b.t.Sign() == 0 {
		return new(big.Int)
	}
	return ceil(quo(sub(add(b.level(whole(now)), b.store), whole(now)), b.t))
}

func (b *smoothBursty) counted() *big.Int { return new(big.Int) }

func (b *smoothBursty) load(now int64, spent *big.Int) {
	b.contact(now)
	b.charge(whole(now), clamp(spent))
}
