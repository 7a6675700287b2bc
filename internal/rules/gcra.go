package rules

import (
	"math"
	"math/big"
	"time"

	"github.com/weirflow/weir/internal/u128"
)

// gcraRule is the rule of TokenBucket, LeakyBucket and SmoothBursty. They differ in when an
// accepted charge may go, and in which charges are accepted.
//
// It is the generic cell rate algorithm (GCRA, ITU-T I.371) in exact arithmetic. The rate is
// reduced so that one clock unit brings n ticks and one token costs p ticks, both whole numbers.
// All sums are in ticks, in 128 bits. The state is Z, the time at which the bucket is full again,
// as whole clock units and a remainder of ticks below n:
//
//	tokens(t) = size - max(0, Z-t)/T        with T = p/n clock units, the time that brings one token
//	a charge of c sets Z to max(Z, t) + c*T, and fits while that is at most t + size*T
//
// The holder's Memory, and not the state, records what each outstanding reservation can still give
// back.
type gcraRule struct {
	ruleBasics
	kind string
	n, p uint64
	size int64     // Burst, or Queue+1
	full u128.Uint // size in ticks
	// leaky, owing: how many ticks of work may be ahead of a charge without delaying it
	passes  u128.Uint
	leaky   bool
	owing   bool      // no charge is too large: the next charge waits for it
	missing u128.Uint // at first call, in ticks; 0 for a bucket that starts full
}

// Words of a state.
const (
	wordZ   = iota // whole clock units of Z
	wordRem        // ticks of Z beyond them
	bucketWords
)

// Words of a ticket.
const (
	ticketCost    = iota // in tokens
	ticketTicks          // and in ticks: the high 64 bits
	ticketTicksLo        // and the low ones
	ticketMark           // of outstanding.Bucket: the high 64 bits
	ticketMarkLo         // and the low ones
)

// newGCRA compiles the common part of the three limits. The parameters have been validated.
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

func (b *gcraRule) Words() int          { return bucketWords }
func (b *gcraRule) StoresPermits() bool { return b.owing }
func (b *gcraRule) MovesPromises() bool { return true }
func (b *gcraRule) StartsFull() bool    { return b.missing.IsZero() }
func (b *gcraRule) TicksPerUnit() int64 { return int64(b.n) }
func (b *gcraRule) Capacity() int64     { return b.size }

func (b *gcraRule) LargestCost() int64 {
	if !b.owing || b.p == 0 {
		return b.size
	}
	q, _, fits := u128.Mul(uint64(b.horizon), b.n).Div(b.p) // the most tokens that a wait can bring
	if !fits || q > math.MaxInt64 {
		return math.MaxInt64
	}
	return int64(q)
}

// cost is c tokens in ticks.
func (b *gcraRule) cost(c int64) u128.Uint { return u128.Mul(uint64(c), b.p) }

func (b *gcraRule) Valid(s []int64) bool {
	return len(s) == 0 || len(s) == bucketWords && s[wordRem] >= 0 && uint64(s[wordRem]) < b.n
}

// used is how far Z lies after now, in ticks; 0 for a full bucket.
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

// until is how many clock units bring the given ticks; Never if that is beyond the horizon.
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

func (b *gcraRule) FirstCall(s []int64, now int64) []int64 {
	if b.missing.IsZero() {
		return s
	}
	return b.advance(append(s[:0], now, 0), b.missing)
}

func (b *gcraRule) Plan(s []int64, now int64, ahead uint64, cost int64) Plan {
	before := b.used(s, now).Add(u128.Mul(ahead, b.p))
	after := before.Add(b.cost(cost))
	// there is at least one tick to a clock unit
	if left := ClockLeft(now); u128.From(left).Less(after) && after.DivCeil(b.n) > left {
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

// Book charges at now: Z itself says when charged work is due.
func (b *gcraRule) Book(s []int64, now, _, cost int64) ([]int64, Ticket) {
	ticks := b.cost(cost)
	return b.Charge(s, now, cost), Ticket{ticketCost: cost, ticketTicks: int64(ticks.Hi), ticketTicksLo: int64(ticks.Lo)}
}

func (b *gcraRule) TurnTime(due, now int64) int64 { return b.lateTurn(due, now) }

// advance moves Z forward by ticks, at most to the end of the clock.
func (b *gcraRule) advance(s []int64, ticks u128.Uint) []int64 {
	q, r, fits := ticks.Add(u128.From(uint64(s[wordRem]))).Div(b.n)
	if left := ClockLeft(s[wordZ]); !fits || q > left || q == left && r > 0 {
		s[wordZ], s[wordRem] = math.MaxInt64, 0
		return s
	}
	s[wordZ], s[wordRem] = s[wordZ]+int64(q), int64(r)
	return s
}

// Note records a charge with the time at which its work goes. That is when enough of what is ahead
// of it has drained: all but what passes, or, for a token bucket, all but what leaves room for the
// cost. It is later for work that must not overtake other work, which n.Due says.
func (b *gcraRule) Note(m *Memory, s []int64, n Note) {
	ahead := b.used(s, n.At)
	cost := b.cost(n.Cost)
	if ahead.Add(cost).DivCeil(b.n) > ClockLeft(n.At) {
		// Z stops at the end of the clock, which loses part of the debt: that cannot be tracked
		m.bucket.Reset()
		return
	}
	room := b.passes
	switch {
	case n.Debt:
		room = ahead
	case !b.leaky && !b.owing:
		room = b.full.Sub(cost)
	}
	now := b.ticks(n.At, 0)
	goes := now.Add(ahead.Sub(room))
	if n.Due > n.At && n.Due != Unnamed {
		if due := b.ticks(n.Due, 0); !due.Less(goes.Add(u128.From(b.n))) { // and not only rounded up
			goes = due
		}
	}
	m.bucket.Charged(n.ID, now.Add(ahead), now, goes, cost)
}

// mark completes the ticket of a charge that has just been made.
func (b *gcraRule) mark(m *Memory, s []int64, t *Ticket) {
	mark := m.bucket.Mark(b.ticks(s[wordZ], s[wordRem]))
	t[ticketMark], t[ticketMarkLo] = int64(mark.Hi), int64(mark.Lo)
}

// ticks is a time in ticks since the beginning of the clock.
func (b *gcraRule) ticks(units, rem int64) u128.Uint {
	return u128.Mul(uint64(units)^1<<63, b.n).Add(u128.From(uint64(rem)))
}

func (b *gcraRule) NeedsMemory() bool { return true }

func (b *gcraRule) Drop(m *Memory, t Ticket) { m.bucket.Drop(t.id()) }

func (b *gcraRule) Refund(m *Memory, s []int64, now int64, t Ticket, amount int64) []int64 {
	if m == nil {
		return s
	}
	if len(s) == 0 {
		m.bucket.Drop(t.id())
		return s
	}
	ticks := b.cost(amount)
	if b.owing { // a debt is a time, and stays the same time when the rate changes
		ticks = u128.Uint{Hi: uint64(t[ticketTicks]), Lo: uint64(t[ticketTicksLo])}
		ticks = rescale(ticks, uint64(t[ticketCost]), uint64(amount), false)
	}
	z := b.ticks(s[wordZ], s[wordRem])
	mark := u128.Uint{Hi: uint64(t[ticketMark]), Lo: uint64(t[ticketMarkLo])}
	if less := m.bucket.GiveBack(t.id(), ticks, mark, z, b.ticks(now, 0)); less.Less(z) {
		q, r, _ := less.Div(b.n)
		s[wordZ], s[wordRem] = int64(q^1<<63), int64(r)
	}
	return s
}

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
	// permits are stored as time, which may be more permits than an int64 holds
	if !fits || q > uint64(b.size) {
		return b.size, reset
	}
	return int64(q), reset
}

// Convert keeps the tokens used: Z' = now + (Z-now)/T1*T2. The capacity is not in the state, so
// raising it helps at once, and lowering it may leave a debt. Capping that debt would mint tokens
// for a caller that lowers and then raises the limit.
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
	return b.rescaled(s, now, next)
}

// repaid converts the state of a bucket that allows debt. The time until the next charge may go
// stays, and with it the debt. Of stored permits, the time that they took to come stays, up to the
// new capacity.
func (b *gcraRule) repaid(s []int64, now int64, next *gcraRule) []int64 {
	used := rescale(b.used(s, now), b.n, next.n, true).Add(next.passes).Sub(rescale(b.passes, b.n, next.n, true))
	return next.advance(append(s[:0], now, 0), used)
}

func (b *gcraRule) ConvertTicket(t Ticket, to Rule) (Ticket, bool) {
	next, ok := to.(*gcraRule)
	if !ok || next.owing != b.owing {
		return Ticket{}, false
	}
	if b.owing {
		ticks := rescale(u128.Uint{Hi: uint64(t[ticketTicks]), Lo: uint64(t[ticketTicksLo])}, b.n, next.n, false)
		t[ticketTicks], t[ticketTicksLo] = int64(ticks.Hi), int64(ticks.Lo)
	}
	return t, true
}

// ConvertMemory rescales the ledger as the state was rescaled, and rounds down. If the new limit
// stores less, permits beyond its capacity are lost, whatever is given back later.
func (b *gcraRule) ConvertMemory(m *Memory, now int64, to Rule, s []int64) {
	next, ok := to.(*gcraRule)
	if !ok || next.owing != b.owing || len(s) > 0 && s[wordZ] == math.MaxInt64 {
		m.Reset()
		return
	}
	from, into := b.p, next.p
	if b.owing {
		from, into = b.n, next.n
	}
	m.bucket.Rescale(func(v u128.Uint) u128.Uint { return rescale(v, from, into, false) })
	if b.owing {
		m.bucket.Limit(next.used(s, now))
	}
}

// rescaled converts a state to another bucket's ticks.
func (b *gcraRule) rescaled(s []int64, now int64, next *gcraRule) []int64 {
	used := rescale(b.used(s, now), b.p, next.p, true)
	s[wordZ], s[wordRem] = now, 0
	return next.advance(s, used)
}

func (b *gcraRule) Spent(s []int64, now int64) int64 {
	if b.p == 0 {
		return 0
	}
	return int64(min(b.used(s, now).DivCeil(b.p), math.MaxInt64))
}

func (b *gcraRule) Load(now, spent int64) []int64 {
	return b.Charge(b.FirstCall(nil, now), now, spent)
}

// rescale returns v*to/from, rounded up or down to a whole tick, or the largest int64 on overflow.
func rescale(v u128.Uint, from, to uint64, up bool) u128.Uint {
	if from == to {
		return v
	}
	if v.Hi == 0 {
		if q, r, fits := u128.Mul(v.Lo, to).Div(from); fits {
			if up && r > 0 {
				return u128.From(q).Add(u128.From(1))
			}
			return u128.From(q)
		}
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
