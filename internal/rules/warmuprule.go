package rules

import (
	"math"
	"math/big"

	"github.com/weirflow/weir/internal/outstanding"
)

// warmUpRule is the rule of WarmUp, which is Guava's SmoothWarmingUp in exact arithmetic.
//
// Let T be the stable interval, c the ColdFactor and P the Period. Guava stores up to max = P/2T +
// 2P/(T+cT) permits, refilled over P. A stored permit below thr = P/2T costs T. One above thr costs
// the area under a line that climbs from T to cT.
//
// The state keeps stored permits as the time u that they took to come, from 0 to P. With c = k/K
// and T = p/n that is exact in ticks, of which a clock unit brings d = n*(5K+k):
//
//	a permit is p*2(K+k) ticks, thr is P*n*(K+k), max is P*d
//	what taking from u1 to u2, both above thr, costs beyond T each is (x1^2-x2^2)*(k-K) / (16*n^2*K^2*(K+k)*P) clock units, x = u-thr
//
// So a wait is a whole number of parts of a clock unit, and the state keeps it exactly: waits are
// not rounded, and no errors add up. The only rounding is of idle time that begins within a clock
// unit: its ticks are rounded up to the next tick, once for each idle time. One tick too many
// delays later work by at most 1/(2n) of a clock unit, once.
type warmUpRule struct {
	ruleBasics
	pool ScratchPool
	free bool // the rate is Unlimited

	period int64 // in clock units
	limit  int64
	most   int64 // the largest cost

	ticks     *big.Int // d
	full      *big.Int // max
	threshold *big.Int // thr
	permit    *big.Int // a permit
	climb     *big.Int // k-K, in parts of a clock unit
	each      *big.Int // T, in parts
	parts     *big.Int // how many of them make a clock unit
	perUnit   *big.Int // n
	restWords int      // how many words of a state the parts take

	ticksLess, partsLess *big.Int // by 1, to round up with
}

// compute fills in the constants.
func (w *warmUpRule) compute(n, p, period, k, one int64) {
	product := func(factors ...int64) *big.Int {
		v := big.NewInt(1)
		for _, f := range factors {
			v.Mul(v, big.NewInt(f))
		}
		return v
	}
	w.perUnit = big.NewInt(n)
	w.ticks = product(n, 5*one+k)
	w.full = new(big.Int).Mul(w.ticks, big.NewInt(period))
	w.threshold = product(period, n, one+k)
	w.permit = product(p, 2, one+k)
	w.climb = big.NewInt(k - one)
	w.parts = product(16, n, n, one, one, one+k, period)
	w.each = product(16, n, one, one, one+k, period, p)
	w.ticksLess = new(big.Int).Sub(w.ticks, big.NewInt(1))
	common := new(big.Int).GCD(nil, nil, w.parts, w.each)
	if w.climb.Sign() > 0 {
		common.GCD(nil, nil, common, w.climb)
	}
	for _, v := range []*big.Int{w.climb, w.each, w.parts} {
		v.Quo(v, common)
	}
	w.partsLess = new(big.Int).Sub(w.parts, big.NewInt(1))
	w.restWords = (w.partsLess.BitLen() + 63) / 64
	w.limit = whole(new(big.Int).Quo(w.full, w.permit))
	w.most = whole(new(big.Int).Quo(product(w.horizon, n), big.NewInt(p)))
}

// whole is v as an int64, saturated.
func whole(v *big.Int) int64 {
	if v.IsInt64() {
		return v.Int64()
	}
	return math.MaxInt64
}

// Words of a state of warmUpRule. They are followed by restWords words, the highest first: the
// parts of a clock unit by which the next charge may go later than wordNext.
const (
	wordNext     = iota // when the next charge may go, in whole clock units
	wordStored          // what is stored in ticks: the high 63 bits
	wordStoredLo        // and the low 64
	// at most 4: of 16*n^2*K^2*(K+k)*P, 126 bits are n*P*(5K+k), and 99 are 16*n*K^2
	wordRest
)

// Scratch is the variables of one computation, so that it allocates nothing.
type Scratch struct {
	stored, left, cost, low, x, y, sum, rest big.Int
	late                                     big.Int // parts of a clock unit beyond a time
}

func (w *warmUpRule) Kind() string    { return "warm_up" }
func (w *warmUpRule) Words() int      { return wordRest + w.restWords }
func (w *warmUpRule) Capacity() int64 { return w.limit }

func (w *warmUpRule) LargestCost() int64 {
	if w.free {
		return math.MaxInt64
	}
	return max(w.most, 1)
}

func (w *warmUpRule) Valid(s []int64) bool {
	if len(s) == 0 || len(s) != w.Words() || s[wordStored] < 0 {
		return len(s) == 0
	}
	c := w.pool.Get().(*Scratch)
	defer w.pool.Put(c)
	c.read(s)
	return c.stored.Cmp(w.full) <= 0 && c.late.Cmp(w.parts) < 0
}

// read reads a state: what is stored, and by how many parts the next charge may go later.
func (c *Scratch) read(s []int64) {
	c.stored.SetUint64(uint64(s[wordStored]))
	c.stored.Lsh(&c.stored, 64)
	c.stored.Add(&c.stored, c.low.SetUint64(uint64(s[wordStoredLo])))
	c.readLate(s[wordRest:])
}

// readLate reads parts of a clock unit from words.
func (c *Scratch) readLate(words []int64) {
	c.late.SetInt64(0)
	for _, word := range words {
		c.x.Lsh(&c.late, 64)
		c.late.Or(&c.x, c.low.SetUint64(uint64(word)))
	}
}

// writeLate appends them to words.
func (w *warmUpRule) writeLate(c *Scratch, words []int64) []int64 {
	for i := w.restWords - 1; i >= 0; i-- {
		c.x.Rsh(&c.late, uint(64*i))
		c.y.And(c.low.SetUint64(math.MaxUint64), &c.x)
		words = append(words, int64(c.y.Uint64()))
	}
	return words
}

// write encodes a state: what is stored, and when the next charge may go.
func (w *warmUpRule) write(c *Scratch, s []int64, next int64) []int64 {
	hi := c.x.Rsh(&c.stored, 64).Uint64()
	lo := c.x.And(c.low.SetUint64(math.MaxUint64), &c.stored).Uint64()
	return w.writeLate(c, append(s[:0], next, int64(hi), int64(lo)))
}

// at computes what is stored at now, and returns when the next charge may go, which is c.late parts
// later. While that lies ahead, nothing more is stored.
func (w *warmUpRule) at(c *Scratch, s []int64, now int64) (next int64) {
	if len(s) == 0 {
		c.stored.Set(w.full)
		c.late.SetInt64(0)
		return now
	}
	c.read(s)
	if s[wordNext] >= now {
		return s[wordNext]
	}
	c.y.SetInt64(0)
	w.store(c, s[wordNext], now)
	return now
}

// store adds what idle time stores, from a time and c.late parts until another time and c.y parts.
// It rounds up to the next tick, and sets c.late to c.y.
func (w *warmUpRule) store(c *Scratch, from, to int64) {
	c.low.SetUint64(uint64(to) - uint64(from))
	switch {
	case w.free:
	case c.late.Sign() == 0 && c.y.Sign() == 0:
		c.stored.Add(&c.stored, c.x.Mul(&c.low, w.ticks))
	default:
		c.sum.Mul(&c.low, w.parts)
		c.sum.Add(&c.sum, &c.y)
		c.sum.Sub(&c.sum, &c.late)
		c.low.Mul(&c.sum, w.ticks)
		c.stored.Add(&c.stored, c.divide(c.low.Add(&c.low, w.partsLess), w.parts))
	}
	if c.stored.Cmp(w.full) > 0 {
		c.stored.Set(w.full)
	}
	c.late.Set(&c.y)
}

// upTo is the first clock reading that is not before a time and c.late parts.
func (c *Scratch) upTo(t int64) int64 {
	if c.late.Sign() > 0 && t < math.MaxInt64 {
		return t + 1
	}
	return t
}

// take takes permits for a cost out of c.stored, as far as there are any. It returns by how many
// whole clock units the next charge is delayed, for the whole cost and for c.late. c.late is then
// the rest.
func (w *warmUpRule) take(c *Scratch, cost uint64) uint64 {
	if w.free {
		return 0
	}
	c.cost.SetUint64(cost)
	if c.left.Sub(&c.stored, c.x.Mul(&c.cost, w.permit)); c.left.Sign() < 0 {
		c.left.SetInt64(0)
	}
	// x^2-y^2 is (x+y)*(x-y)
	w.above(&c.x, &c.stored)
	w.above(&c.y, &c.left)
	c.low.Add(&c.x, &c.y)
	c.rest.Sub(&c.x, &c.y)
	c.x.Mul(&c.low, &c.rest)
	c.sum.Mul(&c.x, w.climb)
	c.sum.Add(&c.sum, c.x.Mul(&c.cost, w.each))
	c.sum.Add(&c.sum, &c.late)
	c.stored.Set(&c.left)
	q := c.divide(&c.sum, w.parts)
	if c.late.Set(&c.rest); !q.IsUint64() {
		return math.MaxUint64
	}
	return q.Uint64()
}

// takeFrom is take for a time and c.late, which move by the wait. fits is false if that is beyond
// the end of the clock; the time is then that end.
func (w *warmUpRule) takeFrom(c *Scratch, next int64, cost uint64) (_ int64, fits bool) {
	units, left := w.take(c, cost), ClockLeft(next)
	if units > left || units == left && c.late.Sign() > 0 {
		c.late.SetInt64(0)
		return math.MaxInt64, false
	}
	return next + int64(units), true
}

// above sets x to the part of u above the threshold.
func (w *warmUpRule) above(x, u *big.Int) {
	if x.Sub(u, w.threshold); x.Sign() < 0 {
		x.SetInt64(0)
	}
}

// divide sets x to a/b, truncated. x must not be a or b: Quo would then allocate a remainder each
// time.
func (c *Scratch) divide(a, b *big.Int) *big.Int {
	c.x.QuoRem(a, b, &c.rest)
	return &c.x
}

func (w *warmUpRule) Plan(s []int64, now int64, ahead uint64, cost int64) Plan {
	c := w.pool.Get().(*Scratch)
	defer w.pool.Put(c)
	next, fits := w.at(c, s, now), true
	if ahead > 0 {
		next, fits = w.takeFrom(c, next, ahead)
	}
	wait := Until(c.upTo(next), now)
	if wait > w.horizon || !fits || !w.ends(c, next, cost) {
		return Plan{Never, Never}
	}
	return Plan{Wait: wait}
}

// ends reports whether the wait for a charge, with what is stored now, ends before the end of the
// clock. Otherwise charging it would make the wait at the end of the clock 0.
func (w *warmUpRule) ends(c *Scratch, at, cost int64) bool {
	if ClockLeft(at) > 3*uint64(w.horizon) {
		// the wait for the largest cost is within the horizon, and the warm-up takes a Period
		return true
	}
	_, fits := w.takeFrom(c, at, uint64(cost))
	return fits
}

func (w *warmUpRule) Charge(s []int64, now, cost int64) []int64 {
	c := w.pool.Get().(*Scratch)
	defer w.pool.Put(c)
	next, _ := w.takeFrom(c, w.at(c, s, now), uint64(cost))
	return w.write(c, s, next)
}

// DecideDirect computes what is stored once.
func (w *warmUpRule) DecideDirect(s []int64, now, cost int64, charge bool) (_ []int64, v DirectVerdict, ok bool) {
	if w.free {
		return s, v, false
	}
	c := w.pool.Get().(*Scratch)
	defer w.pool.Put(c)
	if ClockLeft(now) <= 4*uint64(w.horizon) {
		return s, v, false // near the end of the clock
	}
	next := w.at(c, s, now)
	switch wait := Until(c.upTo(next), now); {
	case wait > w.horizon:
		return s, v, false
	case wait > 0:
		v.Retry = wait
	case charge:
		next, _ = w.takeFrom(c, next, uint64(cost))
		s = w.write(c, s, next)
	}
	v.Remaining, v.Reset = w.see(c, Until(next, now))
	return s, v, true
}

// see returns the verdict for what is stored, if the next charge may go after the given clock units
// and c.late parts.
func (w *warmUpRule) see(c *Scratch, units int64) (remaining, reset int64) {
	wait := c.upTo(units)
	if wait == 0 {
		// at most half as much again is stored
		remaining = min(whole(c.divide(&c.stored, w.permit)), w.LargestCost())
	}
	// What fills up is stored from then on, and rounded up: the last tick takes only a part of its
	// time.
	c.y.Set(c.divide(c.sum.Mul(&c.late, w.ticks), w.parts))
	c.sum.Sub(w.full, &c.stored)
	c.sum.Add(&c.sum, &c.y)
	fills := whole(c.divide(c.sum.Add(&c.sum, w.ticksLess), w.ticks))
	return remaining, max(wait, plus(units, fills))
}

func (w *warmUpRule) Book(s []int64, now, _, cost int64) ([]int64, Ticket) {
	return w.Charge(s, now, cost), Ticket{}
}

// Note keeps the charge in the journal, with the time at which its work goes. A charge's price
// depends on how cold the limiter is then, so the remaining effect of an older charge is only known
// by making the later ones again. Work that was already done was not delayed.
func (w *warmUpRule) Note(m *Memory, s []int64, n Note) {
	c := w.pool.Get().(*Scratch)
	defer w.pool.Put(c)
	charge := outstanding.Charge{ID: n.ID, Cost: n.Cost, By: w}
	goes := w.at(c, s, n.At)
	if goes == n.At && c.stored.Cmp(w.full) == 0 && w.coldInAnyCase(m, s, n.At) {
		m.journal.Clear()
	}
	if n.Debt {
		goes = n.At
		c.late.SetInt64(0)
	}
	charge.Goes[0] = goes
	w.writeLate(c, charge.Goes[:1])
	m.journal.Charged(s, charge)
}

// coldInAnyCase reports whether a limiter that is fully cold at now would also be so if some charges
// of the journal had not been made: then no older charge has an effect any more. Without a charge,
// the limiter was colder, and later ones took longer: by less than one Period, over all of them, and
// one more for each rate that was in force since. Being cold by then takes a Period. A change of the
// limit rounds by less than a clock unit.
func (w *warmUpRule) coldInAnyCase(m *Memory, s []int64, now int64) bool {
	if len(s) == 0 {
		return false // it became unused when the rate became Unlimited; it might not have
	}
	takes := plus(w.period, w.period)
	for _, c := range m.journal.Charges() {
		if c, ok := c.By.(change); ok {
			takes = plus(takes, plus(c.from.(*warmUpRule).period, 1))
		}
	}
	return now > s[wordNext] && uint64(now)-uint64(s[wordNext]) > uint64(takes)
}

// Again repeats a charge of the journal. Its work goes when it was promised to, even if there is an
// earlier time by now.
func (w *warmUpRule) Again(s []int64, charge outstanding.Charge) []int64 {
	c := w.pool.Get().(*Scratch)
	defer w.pool.Put(c)
	goes := charge.Goes[0]
	c.readLate(charge.Goes[1 : 1+w.restWords])
	next := goes
	if c.y.Set(&c.late); len(s) == 0 {
		c.stored.Set(w.full)
	} else if c.read(s); s[wordNext] < goes || s[wordNext] == goes && c.late.Cmp(&c.y) < 0 {
		w.store(c, s[wordNext], goes)
	} else {
		next = s[wordNext]
	}
	next, _ = w.takeFrom(c, next, uint64(charge.Cost))
	return w.write(c, s, next)
}

func (w *warmUpRule) NeedsMemory() bool { return true }

func (w *warmUpRule) Drop(m *Memory, t Ticket) { m.journal.Drop(t.id()) }

func (w *warmUpRule) Refund(m *Memory, s []int64, _ int64, t Ticket, amount int64) []int64 {
	if m == nil {
		return s
	}
	return m.journal.GiveBack(s, t.id(), amount)
}

// TurnTime keeps the pace of a queue whose timer is late, as a bucket does.
func (w *warmUpRule) TurnTime(due, now int64) int64 { return w.lateTurn(due, now) }

func (w *warmUpRule) Look(s []int64, now int64, ahead uint64) (remaining, reset int64) {
	c := w.pool.Get().(*Scratch)
	defer w.pool.Put(c)
	units := Until(w.at(c, s, now), now)
	if ahead > 0 {
		units = plus(units, int64(min(w.take(c, ahead), math.MaxInt64)))
	}
	if w.free {
		if units > 0 {
			return 0, units
		}
		return math.MaxInt64, 0
	}
	return w.see(c, units)
}

// Convert is Guava's setRate: it keeps the time at which the next charge may go, and the stored
// fraction of the capacity. After an Unlimited rate, a used limiter is warm; an unused one is cold.
// A full state is that of an unused limiter, and holders may have dropped it: so it becomes unused
// where the rate becomes Unlimited, whether it was dropped or not.
func (w *warmUpRule) Convert(s []int64, now int64, to Rule, then int64) []int64 {
	next, ok := to.(*warmUpRule)
	switch {
	case !ok:
		return convertAcross(w, s, now, to, then)
	case len(s) == 0:
		return s // as cold as a limiter made with the new limit
	}
	var c Scratch
	at := w.at(&c, s, now)
	if next.free && !w.free && at == now && c.late.Sign() == 0 && c.stored.Cmp(w.full) == 0 {
		return s[:0]
	}
	if w.free {
		c.stored.SetInt64(0)
	} else {
		c.sum.Mul(&c.stored, next.full)
		c.sum.Add(&c.sum, new(big.Int).Sub(w.full, big.NewInt(1)))
		c.stored.Quo(&c.sum, w.full) // rounded up: colder
	}
	c.sum.Mul(&c.late, next.perUnit)
	c.sum.Add(&c.sum, new(big.Int).Sub(w.parts, big.NewInt(1)))
	c.late.Quo(&c.sum, w.parts) // rounded up, to what permits of the new rate come in
	if c.late.Mul(&c.late, new(big.Int).Quo(next.parts, next.perUnit)); c.late.Cmp(next.parts) == 0 {
		c.late.SetInt64(0)
		at = plus(at, 1)
	}
	return next.write(&c, s, at)
}

func (w *warmUpRule) ConvertTicket(t Ticket, to Rule) (Ticket, bool) {
	_, ok := to.(*warmUpRule)
	return t, ok
}

func (w *warmUpRule) ConvertMemory(m *Memory, now int64, to Rule, _ []int64) {
	_, ok := to.(*warmUpRule)
	m.changeJournal(ok, now, w, to)
}

func (w *warmUpRule) Spent(s []int64, now int64) int64 {
	if w.free {
		return 0
	}
	var c Scratch
	ahead := new(big.Int).Sub(big.NewInt(w.at(&c, s, now)), big.NewInt(now))
	owed := ahead.Add(ahead.Mul(ahead, w.parts), &c.late)
	owed.Add(owed, new(big.Int).Sub(w.each, big.NewInt(1)))
	used := owed.Quo(owed, w.each)
	used.Add(used, new(big.Int).Quo(w.full, w.permit))
	return whole(used.Sub(used, new(big.Int).Quo(&c.stored, w.permit)))
}

func (w *warmUpRule) Load(now, spent int64) []int64 { return w.Charge(nil, now, spent) }
