package weir

import (
	"fmt"
	"math"
	"math/big"
	"sync"
	"time"
)

// WarmUp is Guava's RateLimiter.create(rate, warmupPeriod), with the knob that is hidden there: a limit for what has to get warm, like a
// cache or a pool of connections. After an idle time permits come at Rate/ColdFactor, and at a rate that climbs from there to Rate over
// Period. As with SmoothBursty a request is never refused for its size, and the next one waits for what it cost.
//
// It starts cold. Waits are computed exactly and rounded up to the clock unit, once for each charge; Guava truncates their two parts to
// microseconds, and is up to 2 us a call shorter where they are no whole ones. State: three words.
type WarmUp struct {
	Rate       Rate          // how fast permits come once it is warm; may be Unlimited
	Period     time.Duration // how long getting warm takes; at least 1ns
	ColdFactor float64       // how much slower it is when cold; at least 1, to 1/65536; 0 means 3
}

// coldParts is what a ColdFactor is rounded to parts of.
const coldParts = 1 << 16

// Validate reports what is wrong with the numbers.
func (l WarmUp) Validate() error {
	const name = "WarmUp"
	if l.Rate != Unlimited {
		if err := l.Rate.validate(); err != nil {
			return field(name, "Rate", err)
		}
	}
	switch f := l.ColdFactor; {
	case l.Period < 1 || l.Period > maxSpan:
		return field(name, "Period", fmt.Errorf("%v is not within 1ns and 100 years (without a time to get warm, there is SmoothBursty)", l.Period))
	case f != 0 && !(f >= 1 && f <= coldParts):
		return field(name, "ColdFactor", fmt.Errorf("%v is not within 1 and %d", f, coldParts))
	}
	return nil
}

func (l WarmUp) compile(unit time.Duration) (rule, error) {
	if err := l.Validate(); err != nil {
		return nil, err
	}
	period, err := wholeUnits(l.Period, unit)
	if err != nil {
		return nil, field("WarmUp", "Period", err)
	}
	w := &warm{tick: unit, horizon: int64(maxSpan / unit), free: l.Rate == Unlimited, limit: math.MaxInt64}
	if w.free {
		w.full = new(big.Int)
		return w, nil
	}
	n, p, err := l.Rate.ticks(unit)
	if err != nil {
		return nil, field("WarmUp", "Rate", err)
	}
	k := int64(math.Round(l.normal().(WarmUp).ColdFactor * coldParts))
	g := gcd(k, coldParts)
	w.compute(n, p, period, k/g, coldParts/g)
	if w.full.BitLen() > 126 {
		return nil, field("WarmUp", "Rate", fmt.Errorf("%v over %v is too much to count in units of %v", l.Rate, l.Period, unit))
	}
	return w, nil
}

func (l WarmUp) normal() Limit {
	if l.ColdFactor == 0 {
		l.ColdFactor = 3
	}
	l.Rate = normalRate(l.Rate)
	return l
}

// warm is the rule of WarmUp.
//
// With T the stable interval, c the ColdFactor and P the Period, Guava stores up to max = P/2T + 2P/(T+cT) permits, refilled over P, and
// asks T for each of those below thr = P/2T, and for those above it what lies under a line that climbs from T to cT. What is stored is
// kept here as the time u that it took to come, from 0 to P. With c = k/K and T = p/n that is exact in ticks, of which a clock unit brings
// d = n*(5K+k):
//
//	a permit is p*2(K+k) ticks, thr is P*n*(K+k), max is P*d
//	what taking from u1 to u2, both above thr, costs beyond T each is (x1^2-x2^2)*(k-K) / (16*n^2*K^2*(K+k)*P) clock units, x = u-thr
type warm struct {
	tick    time.Duration
	horizon int64
	free    bool // the rate is Unlimited
	limit   int64
	most    int64 // the largest cost

	ticks     *big.Int // d
	full      *big.Int // max
	threshold *big.Int // thr
	permit    *big.Int // a permit
	climb     *big.Int // k-K
	each      *big.Int // T, in parts of a clock unit
	parts     *big.Int // how many of them make a clock unit
}

// compute fills in the constants.
func (w *warm) compute(n, p, period, k, one int64) {
	product := func(factors ...int64) *big.Int {
		v := big.NewInt(1)
		for _, f := range factors {
			v.Mul(v, big.NewInt(f))
		}
		return v
	}
	w.ticks = product(n, 5*one+k)
	w.full = new(big.Int).Mul(w.ticks, big.NewInt(period))
	w.threshold = product(period, n, one+k)
	w.permit = product(p, 2, one+k)
	w.climb = big.NewInt(k - one)
	w.parts = product(16, n, n, one, one, one+k, period)
	w.each = product(16, n, one, one, one+k, period, p)
	w.limit = whole(new(big.Int).Quo(w.full, w.permit))
	w.most = whole(new(big.Int).Quo(product(w.horizon, n), big.NewInt(p)))
}

// whole is v, or the largest number where it does not fit.
func whole(v *big.Int) int64 {
	if v.IsInt64() {
		return v.Int64()
	}
	return math.MaxInt64
}

// Words of a state of warm. A ticket is those just after the charge, and those before.
const (
	wordNext     = iota // when the next charge may go
	wordStored          // what is stored in ticks: the high 63 bits
	wordStoredLo        // and the low 64
	warmWords

	ticketBefore     = warmWords
	ticketWarmCharge = 2 * warmWords
	ticketWarmAt     = ticketWarmCharge + 1 // when it was charged
)

// scratch is what one computation works on.
type scratch struct{ stored, left, x, y, sum big.Int }

var scratches = sync.Pool{New: func() any { return new(scratch) }}

func (w *warm) capacity() int64     { return w.limit }
func (w *warm) books() bool         { return true }
func (w *warm) wall() bool          { return false }
func (w *warm) unit() time.Duration { return w.tick }
func (w *warm) largest() int64 {
	if w.free {
		return math.MaxInt64
	}
	return max(w.most, 1)
}

func (w *warm) valid(s []int64) bool {
	return len(s) == 0 || len(s) == warmWords && s[wordStored] >= 0 && stored(new(big.Int), s).Cmp(w.full) <= 0
}

func (w *warm) contact(s []int64, _ int64) []int64 { return s }

// stored reads what a state stores.
func stored(v *big.Int, s []int64) *big.Int {
	v.SetUint64(uint64(s[wordStored]))
	v.Lsh(v, 64)
	var low big.Int
	return v.Or(v, low.SetUint64(uint64(s[wordStoredLo])))
}

// at is what is stored at now, and how long it is until the next charge may go. While that lies ahead, nothing more is stored.
func (w *warm) at(v *big.Int, s []int64, now int64) (wait int64) {
	if len(s) == 0 {
		v.Set(w.full)
		return 0
	}
	stored(v, s)
	if s[wordNext] >= now {
		return until(s[wordNext], now)
	}
	if !w.free {
		var idle big.Int
		idle.SetUint64(uint64(now) - uint64(s[wordNext]))
		if v.Add(v, idle.Mul(&idle, w.ticks)); v.Cmp(w.full) > 0 {
			v.Set(w.full)
		}
	}
	return 0
}

// take takes as many permits as there are of a cost out of c.stored, and returns how long the next charge waits for all of it.
func (w *warm) take(c *scratch, cost *big.Int) int64 {
	if w.free {
		return 0
	}
	above := func(x, u *big.Int) *big.Int {
		if x.Sub(u, w.threshold); x.Sign() < 0 {
			x.SetInt64(0)
		}
		return x.Mul(x, x)
	}
	if c.left.Sub(&c.stored, c.left.Mul(cost, w.permit)); c.left.Sign() < 0 {
		c.left.SetInt64(0)
	}
	c.sum.Sub(above(&c.x, &c.stored), above(&c.y, &c.left))
	c.sum.Mul(&c.sum, w.climb)
	c.sum.Add(&c.sum, c.x.Mul(cost, w.each))
	c.x.Sub(w.parts, c.y.SetInt64(1))
	c.sum.Quo(c.sum.Add(&c.sum, &c.x), w.parts) // rounded up
	c.stored.Set(&c.left)
	return whole(&c.sum)
}

func (w *warm) plan(s []int64, now int64, ahead uint64, _ int64) plan {
	c := scratches.Get().(*scratch)
	defer scratches.Put(c)
	wait := w.at(&c.stored, s, now)
	if ahead > 0 {
		var before big.Int
		wait = plus(wait, w.take(c, before.SetUint64(ahead)))
	}
	if wait > w.horizon || uint64(wait) > clockLeft(now) {
		return plan{never, never}
	}
	return plan{wait: wait}
}

func (w *warm) charge(s []int64, now, cost int64) []int64 {
	c := scratches.Get().(*scratch)
	defer scratches.Put(c)
	next := now + w.at(&c.stored, s, now)
	var asked big.Int
	next = plus(next, w.take(c, asked.SetInt64(cost)))
	return append(s[:0], next, int64(c.left.Rsh(&c.stored, 64).Uint64()), int64(low64(&c.x, &c.stored)))
}

// low64 is the low 64 bits of v.
func low64(x, v *big.Int) uint64 {
	x.SetUint64(math.MaxUint64)
	return x.And(x, v).Uint64()
}

func (w *warm) book(s []int64, now, _, cost int64) ([]int64, ticket) {
	t := ticket{ticketWarmCharge: cost, ticketWarmAt: now}
	if len(s) == 0 {
		t[ticketBefore] = now
		t[ticketBefore+wordStored], t[ticketBefore+wordStoredLo] = w.words(w.full)
	} else {
		copy(t[ticketBefore:ticketWarmCharge], s)
	}
	s = w.charge(s, now, cost)
	copy(t[:ticketBefore], s)
	return s, t
}

func (w *warm) words(v *big.Int) (hi, lo int64) {
	return int64(new(big.Int).Rsh(v, 64).Uint64()), int64(low64(new(big.Int), v))
}

func (w *warm) serve(s []int64, due, now, cost int64) []int64 {
	return w.charge(s, w.asOf(due, now), cost)
}

// asOf keeps the pace of a line whose timer is late, as a bucket does.
func (w *warm) asOf(due, now int64) int64 {
	late := int64(lateness / w.tick)
	return max(due, max(now, math.MinInt64+late)-late)
}

// refund makes the state what it would be had the actual cost been charged at first, where nothing was charged since, and otherwise gives
// nothing back: what was charged later was charged by how cold it then was.
func (w *warm) refund(s []int64, _ int64, t ticket, amount int64) []int64 {
	if len(s) != warmWords || [warmWords]int64(s) != [warmWords]int64(t[:ticketBefore]) {
		return s
	}
	copy(s, t[ticketBefore:ticketWarmCharge])
	if actual := t[ticketWarmCharge] - amount; actual > 0 {
		return w.charge(s, t[ticketWarmAt], actual)
	}
	return s
}

func (w *warm) look(s []int64, now int64, ahead uint64) (remaining, reset int64) {
	c := scratches.Get().(*scratch)
	defer scratches.Put(c)
	wait := w.at(&c.stored, s, now)
	if ahead > 0 {
		var before big.Int
		wait = plus(wait, w.take(c, before.SetUint64(ahead)))
	}
	if w.free {
		if wait > 0 {
			return 0, wait
		}
		return math.MaxInt64, 0
	}
	if wait == 0 {
		remaining = whole(c.x.Quo(&c.stored, w.permit))
	}
	c.x.Sub(w.full, &c.stored)
	c.y.Sub(w.ticks, c.sum.SetInt64(1))
	return remaining, plus(wait, whole(c.x.Quo(c.x.Add(&c.x, &c.y), w.ticks)))
}

// convert is Guava's setRate: the time at which the next charge may go stays, and the part of what can be stored. After Unlimited nothing
// is stored.
func (w *warm) convert(s []int64, now int64, to rule, then int64) []int64 {
	next, ok := to.(*warm)
	switch {
	case !ok:
		return transfer(w, s, now, to, then)
	case len(s) == 0 && !w.free:
		return s
	}
	var v big.Int
	at := now + w.at(&v, s, now)
	if w.free {
		v.SetInt64(0)
	} else {
		v.Mul(&v, next.full)
		v.Add(&v, new(big.Int).Sub(w.full, big.NewInt(1)))
		v.Quo(&v, w.full) // rounded up: colder
	}
	hi, lo := w.words(&v)
	return append(s[:0], at, hi, lo)
}

func (w *warm) reticket(ticket, int64, rule) (ticket, bool) { return ticket{}, false }

func (w *warm) spent(s []int64, now int64) int64 {
	if w.free {
		return 0
	}
	var v, debt big.Int
	wait := w.at(&v, s, now)
	debt.Mul(big.NewInt(wait), w.parts)
	debt.Add(&debt, new(big.Int).Sub(w.each, big.NewInt(1)))
	return plus(w.limit-whole(v.Quo(&v, w.permit)), whole(debt.Quo(&debt, w.each)))
}

func (w *warm) load(now, spent int64) []int64 { return w.charge(nil, now, spent) }
