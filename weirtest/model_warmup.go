package weirtest

import (
	"fmt"
	"math"
	"math/big"
	"slices"
	"time"

	"github.com/weirflow/weir"
)

// warmUp is the model of WarmUp, in the words of Guava: permits are stored while
// there are no requests, and taking one takes the longer the more are stored.
type warmUp struct {
	tick      time.Duration
	t         *big.Rat // clock units per permit when warm; 0 for Unlimited
	period    *big.Rat // how long warming up takes
	threshold *big.Rat // how many permits are stored when it is warm
	max       *big.Rat // how many are stored when it is cold
	// how many clock units longer a permit takes for each permit stored above the threshold
	slope *big.Rat

	stored *big.Rat // nil while untouched
	next   *big.Rat // when the next charge may go on

	blind bool
	// of a store whose states hold their reservations, which are blind for all others
	list bool
	// of a list: the next charge is not remembered
	forgetful bool
	again     again
	ids       int
}

// warmMark has the state before a charge and just after it, and the id of the outstanding
// reservation.
type warmMark struct {
	cost, at              int64
	goes                  *big.Rat
	storedWas, storedThen *big.Rat
	nextWas, nextThen     *big.Rat
	id                    int
}

func newWarm(l weir.WarmUp, tick time.Duration, blind bool) *warmUp {
	w := &warmUp{tick: tick, blind: blind, t: new(big.Rat), period: whole(int64(l.Period / tick)), threshold: new(big.Rat), max: new(big.Rat), slope: new(big.Rat)}
	if l.Rate == weir.Unlimited {
		return w
	}
	factor := l.ColdFactor
	if factor == 0 {
		factor = 3
	}
	cold := big.NewRat(int64(math.Round(factor*65536)), 65536)
	w.t = perToken(l.Rate, tick)
	w.threshold = quo(w.period, mul(whole(2), w.t))
	w.max = add(w.threshold, quo(mul(whole(2), w.period), add(w.t, mul(cold, w.t))))
	w.slope = quo(sub(mul(cold, w.t), w.t), sub(w.max, w.threshold))
	return w
}

func (w *warmUp) free() bool { return w.t.Sign() == 0 }

func (w *warmUp) size() int64 {
	if w.free() {
		return math.MaxInt64
	}
	return down(w.max)
}

func (w *warmUp) largest() int64 {
	if w.free() {
		return math.MaxInt64
	}
	return max(1, down(quo(whole(int64(century/w.tick)), w.t)))
}

func (w *warmUp) chargesAhead() bool { return true }
func (w *warmUp) turnsMove() bool    { return false }
func (w *warmUp) contact(int64)      {}
func (w *warmUp) touched() bool      { return w.stored != nil }
func (w *warmUp) clone() algorithm   { c := *w; return &c }
func (w *warmUp) String() string     { return fmt.Sprint(w.stored, w.next, w.again.charges) }

// at returns the state at a time. Permits are stored from the time on at which the next charge
// could have gone on. What an idle time stores is rounded up to what a state can hold.
func (w *warmUp) at(t *big.Rat) (stored, next *big.Rat) {
	switch {
	case w.stored == nil:
		return w.max, t
	case w.next.Cmp(t) >= 0:
		return w.stored, w.next
	case w.free():
		return w.stored, t
	}
	parts := mul(w.period, exact(w.denominator())) // into which a state divides max
	filled := add(quo(w.stored, w.max), quo(sub(t, w.next), w.period))
	return smallest(w.max, mul(quo(exact(ceil(mul(filled, parts))), parts), w.max)), t
}

// costs returns how many permits a charge leaves, and how long the next charge waits for it.
func (w *warmUp) costs(stored, cost *big.Rat) (left, wait *big.Rat) {
	taken := smallest(stored, cost)
	left = sub(stored, taken)
	price := func(s *big.Rat) *big.Rat { // of one permit
		return add(w.t, mul(w.slope, largest(new(big.Rat), sub(s, w.threshold))))
	}
	dear := smallest(taken, largest(new(big.Rat), sub(stored, w.threshold)))
	sum := quo(mul(dear, add(price(stored), price(sub(stored, dear)))), whole(2))
	return left, add(sum, mul(sub(cost, dear), w.t))
}

func (w *warmUp) plan(now int64, ahead *big.Int, cost int64) (wait, room *big.Rat) {
	stored, next := w.at(whole(now))
	if ahead.Sign() > 0 {
		left, more := w.costs(stored, exact(ahead))
		stored, next = left, add(next, more)
	}
	_, own := w.costs(stored, whole(cost))
	if add(next, own).Cmp(whole(math.MaxInt64)) > 0 {
		return nil, nil // past the end of the clock
	}
	return named(sub(next, whole(now)), w.tick), new(big.Rat)
}

func (w *warmUp) peek(now int64, ahead *big.Int) (remaining int64, reset *big.Int) {
	stored, next := w.at(whole(now))
	if ahead.Sign() > 0 {
		left, more := w.costs(stored, exact(ahead))
		stored, next = left, add(next, more)
	}
	wait := sub(next, whole(now))
	switch {
	case wait.Sign() > 0:
	case w.free():
		remaining = math.MaxInt64
	default:
		remaining = min(down(stored), w.largest())
	}
	if w.free() {
		return remaining, ceil(wait)
	}
	// If all permits would be stored within a clock unit, they count as stored.
	tick := quo(whole(1), exact(w.denominator()))
	lacks := quo(mul(sub(w.max, stored), w.period), w.max)
	if lacks.Sign() == 0 {
		return remaining, ceil(wait)
	}
	full := add(wait, sub(lacks, tick))
	return remaining, new(big.Int).Add(floor(full), big.NewInt(1))
}

// reached: a permit takes no longer than the coldest one.
func (w *warmUp) reached() *big.Int {
	if w.stored == nil {
		return nil
	}
	coldest := add(w.t, mul(w.slope, sub(w.max, w.threshold)))
	return latest(new(big.Int).Sub(floor(w.next), ceil(coldest)), new(big.Int))
}

func (w *warmUp) charge(at *big.Rat, cost int64) { w.note(at, at, cost, 0) }

// note makes a charge, and remembers it. Charges from before it was last completely cold are
// dropped if it would also be cold without some of them, because they add nothing then. A store's
// state may be dropped once it is cold, so it drops them then.
func (w *warmUp) note(at, goes *big.Rat, cost int64, id int) {
	if w.cold(at) && w.stored != nil && (w.list || sub(at, exact(floor(w.next))).Cmp(w.coldIn()) > 0) {
		w.again = again{}
	}
	c := chargeAgain{id: id, cost: cost, goes: goes}
	if w.list && id != 0 {
		w.again = w.again.lasting(at, w.tick)
	}
	w.again = w.again.charged(w, c, w.mostAgain())
	w.make(c)
}

func (w *warmUp) cold(at *big.Rat) bool {
	stored, next := w.at(at)
	return stored.Cmp(w.max) == 0 && next.Cmp(at) == 0
}

// mostAgain limits how many charges are repeated: of a store's state fewer, where its numbers need
// more than doubles.
func (w *warmUp) mostAgain() int {
	if !w.list || w.free() {
		return maxAgain
	}
	above := mul(mul(whole(4), w.period), exact(new(big.Int).Mul(w.t.Denom(), w.factor().Denom()))) // the threshold
	climb := new(big.Int).Sub(w.factor().Num(), w.factor().Denom())
	if mul(mul(above, above), exact(climb)).Cmp(whole(mostInStore)) <= 0 {
		return maxAgain
	}
	return maxAgain / 4
}

// coldIn returns how long it is idle at most until it is completely cold, whatever is given back.
// Without a charge, later ones take up to a period longer, and another one for each earlier limit.
func (w *warmUp) coldIn() *big.Rat {
	sum := add(w.period, w.period)
	if w.again.before == nil {
		return sum
	}
	from := w.again.before.(*warmUp)
	for _, c := range w.again.charges {
		if c.to != nil {
			sum, from = add(sum, add(from.period, whole(1))), c.to.(*warmUp)
		}
	}
	return sum
}

func (w *warmUp) make(c chargeAgain) {
	stored, next := w.at(c.goes)
	left, wait := w.costs(stored, whole(c.cost))
	w.stored, w.next = left, smallest(add(next, wait), whole(math.MaxInt64))
}

func (w *warmUp) bare() algorithm {
	c := *w
	c.again = again{}
	return &c
}

func (w *warmUp) reserve(now int64, _ *big.Rat, cost int64) mark {
	return w.reserveFrom(now, whole(now), cost)
}

func (w *warmUp) reserveAt(at *big.Rat, cost int64) mark { return w.reserveFrom(down(at), at, cost) }

func (w *warmUp) reserveFrom(now int64, at *big.Rat, cost int64) mark {
	_, goes := w.at(at)
	return w.reserveFor(!w.blind || w.list && !w.forgetful, now, at, goes, cost)
}

// fill charges what another version of the limit admitted, so its work goes now.
func (w *warmUp) fill(now, cost int64, keeps bool) mark {
	return w.reserveFor(w.list && keeps, now, whole(now), whole(now), cost)
}

// reserveFor charges work that goes at a time; keeps is whether the charge is remembered.
func (w *warmUp) reserveFor(keeps bool, now int64, at, goes *big.Rat, cost int64) mark {
	m := warmMark{cost: cost, at: now, goes: goes, storedWas: w.stored, nextWas: w.next}
	if w.stored == nil {
		m.storedWas, m.nextWas = w.max, whole(now)
	}
	if w.list { // a store's states that are cold are states, too
		w.stored, w.next = m.storedWas, m.nextWas
	}
	if w.ids++; keeps {
		m.id = w.ids
	} else {
		goes = at
	}
	w.note(at, goes, cost, m.id)
	m.storedThen, m.nextThen = w.stored, w.next
	return m
}

func (w *warmUp) drop(m mark) { w.again = w.again.without(m.(warmMark).id) }

// giveBack computes the state as if the actual cost had been charged at first. A charge that is not
// remembered is given back only if nothing was charged since, and one in a store's state only until
// the limit is cold again.
func (w *warmUp) giveBack(now int64, m mark, amount int64) {
	c := m.(warmMark)
	remembered := c.id
	switch last := len(w.again.charges) - 1; {
	case c.id != 0 && w.list && w.cold(whole(now)):
		return
	case c.id != 0 && w.list && c.final(now, w.tick):
		w.drop(m)
		return
	case c.id != 0:
	case w.stored.Cmp(c.storedThen) != 0 || w.next.Cmp(c.nextThen) != 0:
		return
	case last >= 0:
		l := &w.again.charges[last]
		if l.id != 0 || l.cost != c.cost || l.goes.Cmp(whole(c.at)) != 0 {
			return
		}
		w.again.charges = slices.Clone(w.again.charges)
		remembered = -1
		w.again.charges[last].id = remembered
	default:
		w.stored, w.next = c.storedWas, c.nextWas
		if actual := c.cost - amount; actual > 0 {
			w.charge(whole(c.at), actual)
		}
		return
	}
	if was, left := w.again.giveBack(remembered, amount); was != nil {
		now := was.(*warmUp)
		w.stored, w.next, w.again = now.stored, now.next, left
	}
}

// final reports whether a charge is too old for a store's state to remember it.
func (c warmMark) final(now int64, tick time.Duration) bool {
	return expired(promisedCharge{goes: c.goes}, whole(now), tick)
}

func (w *warmUp) expired(now int64, m mark) bool {
	c := m.(warmMark)
	return c.id != 0 && c.final(now, w.tick) && !w.cold(whole(now))
}

func (w *warmUp) turn(seen *big.Rat, cost int64) *big.Rat {
	stored, next := w.at(seen)
	_, own := w.costs(stored, whole(cost))
	if named(sub(next, seen), w.tick) == nil || up(next) == math.MaxInt64 || up(add(next, own)) == math.MaxInt64 {
		return nil
	}
	return next
}

func (w *warmUp) asOf(turn *big.Rat, now int64) *big.Rat { return late(turn, now, w.tick) }

func (w *warmUp) same(o algorithm) bool {
	c, ok := o.(*warmUp)
	return ok && w.t.Cmp(c.t) == 0 && w.max.Cmp(c.max) == 0 && w.period.Cmp(c.period) == 0 && w.slope.Cmp(c.slope) == 0
}

// changedTo is Guava's setRate: the time of the next charge stays, and so does the ratio of stored
// permits to max. What a state cannot hold exactly is rounded to the colder side. A full state may
// have been dropped: so it becomes that of an unused limiter where the rate becomes Unlimited.
func (w *warmUp) changedTo(now int64, o algorithm) algorithm {
	next, ok := o.(*warmUp)
	if !ok {
		return transfer(now, w, o)
	}
	if !w.list { // a store's state begins without reservations
		next.ids, next.again = w.ids, w.again.changed(now, next.bare().(remade))
	}
	if w.stored == nil {
		return next
	}
	stored, at := w.at(whole(now))
	if next.free() && !w.free() && stored.Cmp(w.max) == 0 && at.Cmp(whole(now)) == 0 {
		return next
	}
	next.next = next.parts(at)
	if w.free() || next.free() {
		next.stored = new(big.Rat)
		return next
	}
	parts := mul(next.period, exact(next.denominator()))
	part := quo(stored, w.max)
	next.stored = mul(quo(exact(ceil(mul(part, parts))), parts), next.max)
	return next
}

// parts rounds a time up, at a change of the limit, to the fractions of the new rate.
func (w *warmUp) parts(t *big.Rat) *big.Rat {
	n := whole(1)
	if !w.free() {
		n = exact(w.t.Denom())
	}
	return quo(exact(ceil(mul(t, n))), n)
}

// denominator returns into how many parts a state divides a clock unit: the denominator of the
// rate, times that of the cold factor.
func (w *warmUp) denominator() *big.Int {
	c := w.factor()
	five := new(big.Int).Mul(big.NewInt(5), c.Denom())
	return new(big.Int).Mul(w.t.Denom(), five.Add(five, c.Num()))
}

// factor returns the cold factor.
func (w *warmUp) factor() *big.Rat {
	// max*t = period*(1/2 + 2/(1+c)), so c = 4/(2*max*t/period - 1) - 1
	return sub(quo(whole(4), sub(quo(mul(whole(2), mul(w.max, w.t)), w.period), whole(1))), whole(1))
}

func (w *warmUp) spent(now int64) *big.Int {
	if w.free() {
		return new(big.Int)
	}
	stored, next := w.at(whole(now))
	used := new(big.Int).Sub(floor(w.max), floor(stored))
	return used.Add(used, ceil(quo(sub(next, whole(now)), w.t)))
}

func (w *warmUp) counted() *big.Int { return new(big.Int) }

func (w *warmUp) load(now int64, spent *big.Int) { w.charge(whole(now), clamp(spent)) }

func (w *warmUp) convertMark(_ int64, m mark, o algorithm) mark {
	if _, ok := o.(*warmUp); !ok || w.blind {
		return nil
	}
	return m
}
