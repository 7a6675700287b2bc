package weirtest

import (
	"fmt"
	"math"
	"math/big"
	"time"

	"github.com/weirflow/weir"
)

// bucket is the model of TokenBucket and LeakyBucket: one token comes in t
// clock units, and states count in n-ths of a clock unit.
type bucket struct {
	tick       time.Duration
	t          *big.Rat
	n          *big.Int
	full       int64
	delayAfter int64 // leaky: units of work that may be ahead of one that is not delayed
	leaky      bool
	initial    int64

	z *big.Rat // when the bucket is full again; nil while untouched
	x *big.Rat // all that was ever given back, in clock units

	blind bool
	list  *listed // of a store whose states hold their reservations, which are blind for all others
	// of a list: the next charge is not remembered
	forgetful bool
	open      reserved // in clock units
	ids       int
}

// bucketMark has z and x just after a charge, the id of the outstanding reservation, and when its work
// goes.
type bucketMark struct {
	z, x   *big.Rat
	id     int
	listed bool
	goes   *big.Rat
}

func newBucket(r weir.Rate, tick time.Duration, size, initial int64) *bucket {
	switch initial {
	case 0:
		initial = size
	case weir.InitialEmpty:
		initial = 0
	}
	t := perToken(r, tick)
	return &bucket{tick: tick, t: t, n: t.Denom(), full: size, delayAfter: size, initial: initial, x: new(big.Rat)}
}

func (b *bucket) size() int64        { return b.full }
func (b *bucket) largest() int64     { return b.full }
func (b *bucket) chargesAhead() bool { return true }
func (b *bucket) turnsMove() bool    { return true }
func (b *bucket) touched() bool      { return b.z != nil }
func (b *bucket) String() string     { return fmt.Sprint(b.z, b.x, b.open, b.list) }

// clone is a shallow copy: fractions are never changed in place.
func (b *bucket) clone() algorithm {
	c := *b
	return &c
}

// cost returns the clock units in which c tokens come.
func (b *bucket) cost(c int64) *big.Rat { return mul(b.t, whole(c)) }

// most returns the largest x that a state can hold: 127 bits of n-ths.
func (b *bucket) most() *big.Rat {
	parts := new(big.Int).Lsh(big.NewInt(1), 127)
	return new(big.Rat).SetFrac(parts.Sub(parts, big.NewInt(1)), b.n)
}

func (b *bucket) plan(now int64, ahead *big.Int, cost int64) (wait, room *big.Rat) {
	return b.planAt(add(b.level(whole(now)), mul(b.t, exact(ahead))), whole(now), cost)
}

// planAt is plan for a given z, which is not below now.
func (b *bucket) planAt(before, now *big.Rat, cost int64) (wait, room *big.Rat) {
	after := add(before, b.cost(cost))
	if after.Cmp(whole(math.MaxInt64)) > 0 {
		return nil, nil // a state past the end of the clock cannot be held
	}
	fits := named(sub(sub(after, b.cost(b.full)), now), b.tick)
	if !b.leaky {
		return fits, new(big.Rat)
	}
	return named(sub(sub(before, b.cost(b.delayAfter)), now), b.tick), fits
}

// level returns max(z, now). For an untouched bucket, z is what it would start with.
func (b *bucket) level(now *big.Rat) *big.Rat {
	if b.z != nil {
		return largest(b.z, now)
	}
	return smallest(add(now, b.cost(b.full-b.initial)), whole(math.MaxInt64))
}

func (b *bucket) contact(now int64) {
	if b.z == nil && b.initial < b.full {
		b.z = b.level(whole(now))
	}
}

func (b *bucket) charge(at *big.Rat, cost int64) { b.chargeFor(0, at, at, cost) }

// chargeFor charges at a time what goes at another one.
func (b *bucket) chargeFor(id int, at, goes *big.Rat, cost int64) (entered bool) {
	z := b.level(at)
	switch beyond := add(z, b.cost(cost)).Cmp(whole(math.MaxInt64)) > 0; {
	case b.list != nil && beyond:
		b.list = new(listed)
	case b.list != nil:
		b.list, entered = b.list.charged(id, z, at, goes, b.cost(cost), b.tick)
	case beyond:
		b.open = reserved{} // z cannot hold the whole debt, so nothing can be given back exactly
	default:
		b.open = b.open.charged(id, z, at, goes, b.cost(cost))
	}
	if b.z == nil || b.z.Cmp(at) < 0 {
		b.z = at
	}
	b.z = smallest(add(b.z, b.cost(cost)), whole(math.MaxInt64))
	return entered
}

// fill charges what another version of the limit admitted, so its work goes now.
func (b *bucket) fill(now, cost int64, keeps bool) mark {
	id := 0
	if b.ids++; keeps {
		id = b.ids
	}
	entered := b.chargeFor(id, whole(now), whole(now), cost)
	return bucketMark{b.z, b.x, b.ids, entered, whole(now)}
}

// reserve charges at now: the state says by itself when what it holds is due.
func (b *bucket) reserve(now int64, due *big.Rat, cost int64) mark {
	room := b.cost(b.full - cost) // what may be ahead when the work goes
	if b.leaky {
		room = b.cost(b.delayAfter)
	}
	b.ids++
	id := b.ids
	if b.blind && (b.list == nil || b.forgetful) {
		id = 0
	}
	goes := goesAt(sub(b.level(whole(now)), room), whole(now), due)
	entered := b.chargeFor(id, whole(now), goes, cost)
	return bucketMark{b.z, b.x, b.ids, entered, goes}
}

func (b *bucket) reserveAt(at *big.Rat, cost int64) mark {
	b.ids++
	b.chargeFor(b.ids, at, at, cost)
	return bucketMark{b.z, b.x, b.ids, false, at}
}

// goesAt is when work goes that a state lets go at a time: now at the earliest, and when it is due
// if that is not only rounded up.
func goesAt(exactly, now, due *big.Rat) *big.Rat {
	goes := largest(exactly, now)
	if due.Cmp(whole(math.MaxInt64)) < 0 && due.Cmp(add(goes, whole(1))) >= 0 {
		return due
	}
	return goes
}

func (b *bucket) drop(m mark) {
	c := m.(bucketMark)
	if b.open = b.open.without(c.id); c.listed {
		b.list, _ = b.list.without(c.id, new(big.Rat), new(big.Rat), b.tick)
	}
}

func (b *bucket) expired(now int64, m mark) bool {
	c := m.(bucketMark)
	return c.listed && expired(promisedCharge{goes: c.goes}, whole(now), b.tick) && b.level(whole(now)).Cmp(whole(now)) > 0
}

func (b *bucket) peek(now int64, ahead *big.Int) (remaining int64, reset *big.Int) {
	t := whole(now)
	level := add(b.level(t), mul(b.t, exact(ahead)))
	end := smallest(add(t, b.cost(b.full)), whole(math.MaxInt64))
	remaining = max(0, down(quo(sub(end, level), b.t)))
	if b.leaky && level.Cmp(add(t, b.cost(b.delayAfter))) > 0 {
		remaining = 0
	}
	return remaining, ceil(sub(level, t))
}

func (b *bucket) turn(seen *big.Rat, cost int64) *big.Rat {
	wait, _ := b.planAt(b.level(seen), seen, cost)
	if wait == nil {
		return nil
	}
	at := add(seen, wait)
	if up(at) == math.MaxInt64 || up(add(b.level(at), b.cost(cost))) == math.MaxInt64 {
		return nil // the end of the clock
	}
	return at
}

func (b *bucket) asOf(turn *big.Rat, now int64) *big.Rat { return late(turn, now, b.tick) }

// giveBack gives back as much of a charge as never admits too much.
func (b *bucket) giveBack(now int64, m mark, amount int64) {
	c, t := m.(bucketMark), whole(now)
	if !b.blind {
		b.open, b.z = b.open.giveBack(c.id, b.cost(amount), b.z, t)
		return
	}
	if c.listed {
		if list, z := b.list.without(c.id, b.cost(amount), t, b.tick); z != nil {
			z = returned(z, t, b.z)
			b.list, b.z, b.x = list, z, add(b.x, sub(b.z, z))
		}
		return
	}
	since := sub(add(b.z, b.x), add(c.z, c.x))
	if since.Sign() < 0 {
		return // possible only if z or x reached the end of the clock
	}
	// what the bucket has not refilled by itself
	give := smallest(b.cost(amount), sub(sub(c.z, sub(b.x, c.x)), t))
	promised := b.cost(b.full)
	if b.leaky {
		promised = b.cost(b.delayAfter + 1)
	}
	// later work may still be delayed, and cannot move up
	if since.Sign() > 0 && b.z.Cmp(add(t, promised)) > 0 {
		give = smallest(give, sub(smallest(b.cost(amount), promised), since))
	}
	// else the total cannot be held
	if total := add(b.x, give); give.Sign() > 0 && total.Cmp(b.most()) <= 0 {
		z := sub(b.z, give)
		if b.list != nil && len(b.list.charges) > 0 {
			b.list, z = b.list.less(give)
			z = returned(z, t, b.z)
		}
		b.z, b.x = z, add(b.x, sub(b.z, z))
	}
}

func (b *bucket) same(o algorithm) bool {
	c, ok := o.(*bucket)
	return ok && b.t.Cmp(c.t) == 0 && b.full == c.full && b.delayAfter == c.delayAfter && b.leaky == c.leaky && b.initial == c.initial
}

// changedTo keeps the tokens used, rounded up to an n-th of a clock unit of the new rate.
func (b *bucket) changedTo(now int64, o algorithm) algorithm {
	next, ok := o.(*bucket)
	if !ok {
		return transfer(now, b, o)
	}
	next.open, next.ids = b.open.scaled(func(v *big.Rat) *big.Rat { return b.rescaled(v, next, floor) }), b.ids
	next.z, next.x = b.moved(b.z, now, next, ceil), smallest(b.rescaled(b.x, next, ceil), next.most())
	if next.z != nil && next.z.Cmp(whole(math.MaxInt64)) == 0 {
		next.open = reserved{}
	}
	if next.list != nil && b.list != nil && b.t.Cmp(next.t) == 0 && b.z != nil && floor(b.z).Cmp(big.NewInt(now)) >= 0 {
		next.list = b.list
	}
	if b.blind && b.t.Cmp(next.t) != 0 { // a receipt from before gives nothing back: what it charged may have come back at the other rate
		span := new(big.Int).Lsh(big.NewInt(1), 52)
		high := new(big.Int).Add(new(big.Int).Div(floor(b.x), span), big.NewInt(1))
		next.x = exact(high.Mul(high, span))
	}
	return next
}

func (b *bucket) rescaled(v *big.Rat, next *bucket, round func(*big.Rat) *big.Int) *big.Rat {
	parts := exact(next.n)
	return quo(exact(round(mul(mul(quo(v, b.t), next.t), parts))), parts)
}

func (b *bucket) moved(z *big.Rat, now int64, next *bucket, round func(*big.Rat) *big.Int) *big.Rat {
	if z == nil {
		return nil
	}
	t := whole(now)
	return smallest(add(t, b.rescaled(largest(sub(z, t), new(big.Rat)), next, round)), whole(math.MaxInt64))
}

func (b *bucket) convertMark(now int64, m mark, o algorithm) mark {
	next, ok := o.(*bucket)
	if !ok {
		return nil
	}
	c := m.(bucketMark)
	if !b.blind {
		return c
	}
	z := b.moved(c.z, now, next, floor)
	// nothing is left to give back, also if the clock steps back later
	if z != nil && z.Cmp(whole(now)) == 0 {
		z = smallest(whole(now), exact(floor(c.z)))
	}
	return bucketMark{z, smallest(b.rescaled(c.x, next, floor), next.most()), c.id, c.listed, c.goes}
}

func (b *bucket) spent(now int64) *big.Int {
	return ceil(quo(sub(b.level(whole(now)), whole(now)), b.t))
}

func (b *bucket) counted() *big.Int { return new(big.Int) }

// reached: without debt, no more than the capacity is missing.
func (b *bucket) reached() *big.Int {
	if b.z == nil {
		return nil
	}
	return latest(ceil(sub(b.z, b.cost(b.full))), new(big.Int))
}

func (b *bucket) load(now int64, spent *big.Int) {
	b.contact(now)
	b.charge(whole(now), clamp(spent))
}
