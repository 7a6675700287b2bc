package rules

import (
	"math"
	"math/big"
	"time"

	"github.com/weirflow/weir/internal/u128"
)

// gcraRule is the rule of TokenBucket, LeakyBucket and SmoothBursty, which differ in when an accepted charge may go, and in what is accepted.
//
// It is the generic cell rate algorithm (ITU-T I.371) on exact numbers. The rate is reduced so that one clock unit brings n ticks and
// one token costs p ticks, both whole; all sums are in ticks, in 128 bits. The state is Z, the time at which the bucket is full
// again, as whole clock units and a remainder of ticks below n:
//
//	tokens(t) = size - max(0, Z-t)/T        with T = p/n clock units, the time that brings one token
//	a charge of c sets Z to max(Z, t) + c*T, and fits while that is at most t + size*T
//
// A state has two words, or four once something was given back: then the total ever given back follows, which refund needs. It is in
// ticks, as it outgrows any clock: at 6/h, whoever reserves and cancels a hundred times a second gives back 292 years in two days.
type gcraRule struct {
	ruleBasics
	kind    string
	n, p    uint64
	size    int64     // Burst, or Queue+1
	full    u128.Uint // size in ticks
	passes  u128.Uint // leaky, owing: how many ticks of work may be ahead of a charge that is not delayed
	leaky   bool
	owing   bool      // no charge is too large: the next one waits for it
	missing u128.Uint // at first contact, in ticks; 0 for a bucket that starts full
}

// Words of a state.
const (
	wordZ   = iota // whole clock units of Z
	wordRem        // ticks of Z beyond them
	wordX          // the total given back in ticks: the high 63 bits
	wordXLo        // and the low 64
	bucketWords
)

// newGCRA compiles what the three limits have in common. The parameters have been validated.
func newGCRA(kind string, r Rate, size int64, unit time.Duration) (*gcraRule, error) {
	n, p, err := r.ticks(unit)
	if err != nil {
		return nil, &FieldError{"Rate", err}
	}
	b := &gcraRule{ruleBasics: basicsFor(unit), kind: kind, n: uint64(n), p: uint64(p), size: size}
	b.full = b.cost(size)
	b.passes = b.full
	return b, nil
}

func (b *gcraRule) Kind() string { return b.kind }

// Words is that of a state of which nothing was given back.
func (b *gcraRule) Words() int          { return 2 }
func (b *gcraRule) StoresPermits() bool { return b.owing }
func (b *gcraRule) MovesPromises() bool { return true }
func (b *gcraRule) StartsFull() bool    { return b.missing.IsZero() }
func (b *gcraRule) TicksPerUnit() int64 { return int64(b.n) }
func (b *gcraRule) Capacity() int64     { return b.size }

func (b *gcraRule) LargestCost() int64 {
	if !b.owing || b.p == 0 {
		return b.size
	}
	q, _, fits := u128.Mul(uint64(b.horizon), b.n).Div(b.p) // what can be waited for
	if !fits || q > math.MaxInt64 {
		return math.MaxInt64
	}
	return int64(q)
}

// cost is c tokens in ticks.
func (b *gcraRule) cost(c int64) u128.Uint { return u128.Mul(uint64(c), b.p) }

func (b *gcraRule) Valid(s []int64) bool {
	below := func(rem int64) bool { return rem >= 0 && uint64(rem) < b.n }
	switch len(s) {
	case 0:
		return true
	case 2:
		return below(s[wordRem])
	case bucketWords:
		return below(s[wordRem]) && s[wordX] >= 0
	}
	return false
}

// used is how far Z lies ahead of now, in ticks: 0 for a full bucket.
func (b *gcraRule) used(s []int64, now int64) u128.Uint {
	if len(s) == 0 {
		return u128.Uint{}
	}
	return b.ticksAhead(s[wordZ], s[wordRem], now)
}

func (b *gcraRule) ticksAhead(units, rem, now int64) u128.Uint {
	if units < now {
		return u128.Uint{}
	}
	return u128.Mul(uint64(units)-uint64(now), b.n).Add(u128.From(uint64(rem)))
}

// until is how many clock units bring the given ticks; never where that is beyond the horizon.
func (b *gcraRule) until(ticks u128.Uint) int64 {
	if ticks.IsZero() {
		return 0
	}
	units := ticks.DivCeil(b.n)
	if units > uint64(b.horizon) {
		return Never
	}
	return int64(units)
}

func (b *gcraRule) FirstContact(s []int64, now int64) []int64 {
	if b.missing.IsZero() {
		return s
	}
	return b.advance(append(s[:0], now, 0), b.missing)
}

func (b *gcraRule) Plan(s []int64, now int64, ahead uint64, cost int64) Plan {
	before := b.used(s, now).Add(u128.Mul(ahead, b.p))
	after := before.Add(b.cost(cost))
	if left := ClockLeft(now); u128.From(left).Less(after) && after.DivCeil(b.n) > left { // there is at least one tick to a clock unit
		return Plan{Never, Never} // Z would lie past the end of the clock
	}
	switch {
	case b.owing:
		return Plan{Wait: b.until(before.Sub(b.passes))}
	case b.leaky:
		return Plan{Wait: b.until(before.Sub(b.passes)), Room: b.until(after.Sub(b.full))}
	}
	return Plan{Wait: b.until(after.Sub(b.full))}
}

func (b *gcraRule) Charge(s []int64, now, cost int64) []int64 {
	switch {
	case len(s) == 0:
		s = append(s, now, 0)
	case s[wordZ] < now:
		s[wordZ], s[wordRem] = now, 0
	}
	return b.advance(s, b.cost(cost))
}

// Book charges at now: the state says by itself when what it holds is due. The Ticket is the state just after.
func (b *gcraRule) Book(s []int64, now, _, cost int64) ([]int64, Ticket) {
	s = b.Charge(s, now, cost)
	var t Ticket
	copy(t[:], s)
	return s, t
}

// ChargeTurn charges at the exact time at which the bucket had room, which lies within the clock unit before due: were it charged at due,
// the roundings would add up along the line. A turn that is noticed long after is charged as late as that takes.
func (b *gcraRule) ChargeTurn(s []int64, due, now, cost int64) []int64 {
	return b.Charge(s, b.TurnTime(due-1, now), cost)
}

func (b *gcraRule) TurnTime(due, now int64) int64 { return b.lateTurn(due, now) }

// advance moves Z forward by ticks; at the end of the clock it stays there.
func (b *gcraRule) advance(s []int64, ticks u128.Uint) []int64 {
	q, r, fits := ticks.Add(u128.From(uint64(s[wordRem]))).Div(b.n)
	if left := ClockLeft(s[wordZ]); !fits || q > left || q == left && r > 0 {
		s[wordZ], s[wordRem] = math.MaxInt64, 0
		return s
	}
	s[wordZ], s[wordRem] = s[wordZ]+int64(q), int64(r)
	return s
}

// Refund gives back what never admits too much, for one charge of which the Ticket holds Z and X just after it, X being the total
// given back so far:
//
//   - only what the bucket has not refilled by itself since: Zr - (X-Xr) - now;
//   - and while work promised later is still waiting for its time: only what is more than all that was charged since, as that work
//     cannot move up. Of a large charge, only what promised returns counts for this.
//
// The leaky bucket promises a time wherever the work ahead is more than what passes undelayed, which can be long before the bucket
// overflows. That is its condition for "still waiting", and its measure: as at least one was charged since, no more is given back than
// may pass undelayed, and what goes next stays behind the work that was promised. (For the bound and the search that supports it, see
// docs/guarantees.md and proof/.)
func (b *gcraRule) Refund(s []int64, now int64, t Ticket, amount int64) []int64 {
	used, then := b.used(s, now), b.ticksAhead(t[wordZ], t[wordRem], now)
	if amount <= 0 || used.IsZero() || then.IsZero() {
		return s
	}
	returned := u128.Uint{}
	if len(s) == bucketWords {
		returned = total(s)
	}
	returnedThen := total(t[:])
	sum, sumThen := used.Add(returned), then.Add(returnedThen)
	if sum.Less(sumThen) {
		return s // Z+X never falls, but where one of them met the end of the clock: then nothing is known
	}
	give := b.cost(amount).Min(then.Sub(returned.Sub(returnedThen)))
	if since := sum.Sub(sumThen); !since.IsZero() && b.promised().Less(used) {
		give = give.Min(b.cost(amount).Min(b.promised()).Sub(since))
	}
	x := returned.Add(give)
	if give.IsZero() || x.Hi > math.MaxInt64 {
		return s
	}
	if len(s) < bucketWords {
		s = append(s, 0, 0)
	}
	s[wordX], s[wordXLo] = int64(x.Hi), int64(x.Lo)
	q, r, _ := used.Sub(give).Div(b.n)
	s[wordZ], s[wordRem] = now+int64(q), int64(r)
	return s
}

// promised is how far Z lies ahead where the last charge may still be waiting for its time: any further, and it may.
func (b *gcraRule) promised() u128.Uint {
	if b.leaky || b.owing {
		return b.passes.Add(b.cost(1))
	}
	return b.full
}

// total is the total given back, of a state that has one.
func total(s []int64) u128.Uint { return u128.Uint{Hi: uint64(s[wordX]), Lo: uint64(s[wordXLo])} }

func (b *gcraRule) Look(s []int64, now int64, ahead uint64) (remaining, reset int64) {
	before := b.used(s, now).Add(u128.Mul(ahead, b.p))
	reset = int64(min(before.DivCeil(b.n), math.MaxInt64))
	if b.passes.Less(before) {
		return 0, reset
	}
	if b.p == 0 {
		return b.size, reset
	}
	room := b.full.Min(u128.Mul(ClockLeft(now), b.n)).Sub(before)
	q, _, fits := room.Div(b.p)
	if !fits || q > uint64(b.size) { // permits are stored by time, and may be more than can be counted
		return b.size, reset
	}
	return int64(q), reset
}

// Convert keeps the tokens used: Z' = now + (Z-now)/T1*T2. The capacity is not in the state, so a raise helps at once and a cut may
// leave a debt; capping that debt would mint tokens for whoever lowers and then raises.
func (b *gcraRule) Convert(s []int64, now int64, to Rule, then int64) []int64 {
	next, ok := to.(*gcraRule)
	switch {
	case !ok || next.owing != b.owing:
		return convertAcross(b, s, now, to, then)
	case len(s) == 0:
		return s
	case b.owing:
		return b.repaid(s, now, next)
	}
	return b.rescaled(s, now, next, true)
}

// repaid is the change of a bucket that knows debt: the time until the next charge may go stays, and with it the debt; of what is stored,
// the time that it took to come stays, as much as there is room for.
func (b *gcraRule) repaid(s []int64, now int64, next *gcraRule) []int64 {
	used := rescale(b.used(s, now), b.n, next.n, true).Add(next.passes).Sub(rescale(b.passes, b.n, next.n, true))
	return next.advance(append(s[:0], now, 0), used)
}

func (b *gcraRule) ConvertTicket(t Ticket, now int64, to Rule) (Ticket, bool) {
	next, ok := to.(*gcraRule)
	if !ok || next.owing || b.owing {
		return Ticket{}, false
	}
	words := t // a copy that may escape
	b.rescaled(words[:bucketWords], now, next, false)
	return words, true
}

// rescaled moves a state, or a Ticket where it is rounded down, to another bucket's ticks.
func (b *gcraRule) rescaled(s []int64, now int64, next *gcraRule, up bool) []int64 {
	used := rescale(b.used(s, now), b.p, next.p, up)
	if up || s[wordZ] > now {
		s[wordZ] = now // for a Ticket, an earlier Z stays: a later step back of the clock is not to bring back what was refilled
	}
	s[wordRem] = 0
	s = next.advance(s, used)
	if len(s) == bucketWords {
		x := rescale(total(s), b.p, next.p, up).Min(u128.Uint{Hi: math.MaxInt64, Lo: math.MaxUint64})
		s[wordX], s[wordXLo] = int64(x.Hi), int64(x.Lo)
	}
	return s
}

func (b *gcraRule) Spent(s []int64, now int64) int64 {
	if b.p == 0 {
		return 0
	}
	return int64(min(b.used(s, now).DivCeil(b.p), math.MaxInt64))
}

func (b *gcraRule) Load(now, spent int64) []int64 {
	return b.Charge(b.FirstContact(nil, now), now, spent)
}

// rescale returns v*to/from, rounded up or down to a whole tick, or the largest number where it does not fit.
func rescale(v u128.Uint, from, to uint64, up bool) u128.Uint {
	if from == to {
		return v
	}
	big64 := func(v uint64) *big.Int { return new(big.Int).SetUint64(v) }
	x := new(big.Int).Lsh(big64(v.Hi), 64)
	x.Or(x, big64(v.Lo)).Mul(x, big64(to))
	x, rem := x.QuoRem(x, big64(from), new(big.Int))
	if up && rem.Sign() > 0 {
		x.Add(x, big64(1))
	}
	if x.BitLen() > 128 {
		return u128.Max()
	}
	return u128.Uint{Hi: new(big.Int).Rsh(x, 64).Uint64(), Lo: new(big.Int).And(x, big64(math.MaxUint64)).Uint64()}
}
