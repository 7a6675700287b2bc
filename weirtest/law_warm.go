package weirtest

import (
	"fmt"
	"math"
	"math/big"
	"time"

	"github.com/weirflow/weir"
)

// warm is the law of WarmUp (SEMANTICS 8), in the words of Guava: permits that are stored while nobody asks, and cost the more to take the
// more of them there are.
type warm struct {
	tick      time.Duration
	t         *big.Rat // clock units that bring a permit when warm; 0 for a rate without end
	period    *big.Rat // how long getting warm takes
	threshold *big.Rat // how many permits are stored when it is warm
	max       *big.Rat // and when it is cold
	slope     *big.Rat // by how much one more permit above the threshold makes the next one dearer

	stored *big.Rat // nil while untouched
	next   *big.Int // when the next charge may go
}

// warmMark is the state before a charge, and just after it.
type warmMark struct {
	cost, at              int64
	storedWas, storedThen *big.Rat
	nextWas, nextThen     *big.Int
}

func newWarm(l weir.WarmUp, tick time.Duration) *warm {
	w := &warm{tick: tick, t: new(big.Rat), period: whole(int64(l.Period / tick)), threshold: new(big.Rat), max: new(big.Rat), slope: new(big.Rat)}
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

func (w *warm) free() bool { return w.t.Sign() == 0 }

func (w *warm) size() int64 {
	if w.free() {
		return math.MaxInt64
	}
	return down(w.max)
}

func (w *warm) largest() int64 {
	if w.free() {
		return math.MaxInt64
	}
	return max(1, down(quo(whole(int64(century/w.tick)), w.t)))
}

func (w *warm) books() bool    { return true }
func (w *warm) moves() bool    { return false }
func (w *warm) contact(int64)  {}
func (w *warm) touched() bool  { return w.stored != nil }
func (w *warm) clone() law     { c := *w; return &c }
func (w *warm) String() string { return fmt.Sprint(w.stored, w.next) }

// at is the state at a reading: permits are stored from when the next charge might have gone.
func (w *warm) at(now int64) (stored *big.Rat, next *big.Int) {
	t := big.NewInt(now)
	switch {
	case w.stored == nil:
		return w.max, t
	case w.next.Cmp(t) >= 0:
		return w.stored, w.next
	case w.free():
		return w.stored, t
	}
	idle := exact(new(big.Int).Sub(t, w.next))
	return smallest(w.max, add(w.stored, quo(mul(idle, w.max), w.period))), t
}

// costs is how long the charge after one waits for it.
func (w *warm) costs(stored, cost *big.Rat) (left *big.Rat, wait *big.Int) {
	taken := smallest(stored, cost)
	left = sub(stored, taken)
	price := func(s *big.Rat) *big.Rat { // of one permit
		return add(w.t, mul(w.slope, largest(new(big.Rat), sub(s, w.threshold))))
	}
	dear := smallest(taken, largest(new(big.Rat), sub(stored, w.threshold)))
	sum := quo(mul(dear, add(price(stored), price(sub(stored, dear)))), whole(2))
	return left, ceil(add(sum, mul(sub(cost, dear), w.t)))
}

func (w *warm) plan(now int64, ahead *big.Int, cost int64) (wait, room *big.Rat) {
	stored, next := w.at(now)
	if ahead.Sign() > 0 {
		left, more := w.costs(stored, exact(ahead))
		stored, next = left, new(big.Int).Add(next, more)
	}
	until := new(big.Int).Sub(next, big.NewInt(now))
	_, own := w.costs(stored, whole(cost))
	if until.Cmp(big.NewInt(int64(century/w.tick))) > 0 || own.Add(own, next).Cmp(big.NewInt(math.MaxInt64)) > 0 {
		return nil, nil // not within a century, or past the end of the clock
	}
	return exact(until), new(big.Rat)
}

func (w *warm) look(now int64, ahead *big.Int) (remaining int64, reset *big.Int) {
	stored, next := w.at(now)
	if ahead.Sign() > 0 {
		left, more := w.costs(stored, exact(ahead))
		stored, next = left, new(big.Int).Add(next, more)
	}
	reset = new(big.Int).Sub(next, big.NewInt(now))
	switch {
	case reset.Sign() > 0:
	case w.free():
		remaining = math.MaxInt64
	default:
		remaining = min(down(stored), w.largest())
	}
	if !w.free() {
		reset = new(big.Int).Add(reset, ceil(quo(mul(sub(w.max, stored), w.period), w.max)))
	}
	return remaining, reset
}

func (w *warm) charge(at *big.Rat, cost int64) {
	stored, next := w.at(down(at))
	left, wait := w.costs(stored, whole(cost))
	w.stored, w.next = left, big.NewInt(clamp(new(big.Int).Add(next, wait)))
}

func (w *warm) book(now int64, _ *big.Rat, cost int64) mark {
	m := warmMark{cost: cost, at: now, storedWas: w.stored, nextWas: w.next}
	if w.stored == nil {
		m.storedWas, m.nextWas = w.max, big.NewInt(now)
	}
	w.charge(whole(now), cost)
	m.storedThen, m.nextThen = w.stored, w.next
	return m
}

// giveBack makes the state what it would be, had the actual cost been charged at first, where nothing was charged since.
func (w *warm) giveBack(_ int64, m mark, amount int64) {
	c := m.(warmMark)
	if w.stored.Cmp(c.storedThen) != 0 || w.next.Cmp(c.nextThen) != 0 {
		return
	}
	w.stored, w.next = c.storedWas, c.nextWas
	if actual := c.cost - amount; actual > 0 {
		w.charge(whole(c.at), actual)
	}
}

func (w *warm) turn(seen *big.Rat, cost int64) *big.Rat {
	wait, _ := w.plan(up(seen), new(big.Int), cost)
	if wait == nil || up(add(seen, wait)) == math.MaxInt64 {
		return nil
	}
	return add(whole(up(seen)), wait)
}

func (w *warm) asOf(turn *big.Rat, now int64) *big.Rat { return late(turn, now, w.tick) }

func (w *warm) same(o law) bool {
	c, ok := o.(*warm)
	return ok && w.t.Cmp(c.t) == 0 && w.max.Cmp(c.max) == 0 && w.period.Cmp(c.period) == 0 && w.slope.Cmp(c.slope) == 0
}

// become is Guava's setRate: the time of the next charge stays, and which part of all that can be stored is. What cannot be written in the
// parts of a state is rounded to the colder side.
func (w *warm) become(now int64, o law) law {
	next, ok := o.(*warm)
	switch {
	case !ok:
		return transfer(now, w, o)
	case w.stored == nil:
		return next
	}
	stored, at := w.at(now)
	next.next = at
	if w.free() || next.free() {
		next.stored = new(big.Rat)
		return next
	}
	parts := mul(next.period, exact(next.denominator()))
	part := quo(stored, w.max)
	next.stored = mul(quo(exact(ceil(mul(part, parts))), parts), next.max)
	return next
}

// denominator is how many parts of a state the time of one clock unit is: those of the rate, times those of the cold factor.
func (w *warm) denominator() *big.Int {
	// max*t = period*(1/2 + 2/(1+c)), so c = 4/(2*max*t/period - 1) - 1
	c := sub(quo(whole(4), sub(quo(mul(whole(2), mul(w.max, w.t)), w.period), whole(1))), whole(1))
	five := new(big.Int).Mul(big.NewInt(5), c.Denom())
	return new(big.Int).Mul(w.t.Denom(), five.Add(five, c.Num()))
}

func (w *warm) remark(int64, mark, law) mark { return nil }

func (w *warm) spent(now int64) *big.Int {
	if w.free() {
		return new(big.Int)
	}
	stored, next := w.at(now)
	used := new(big.Int).Sub(floor(w.max), floor(stored))
	return used.Add(used, ceil(quo(exact(new(big.Int).Sub(next, big.NewInt(now))), w.t)))
}

func (w *warm) counted() *big.Int { return new(big.Int) }

func (w *warm) load(now int64, spent *big.Int) { w.charge(whole(now), clamp(spent)) }
