package weirtest

import (
	"fmt"
	"math"
	"math/big"
	"time"

	"github.com/weirflow/weir"
)

// A law is a limit's algorithm with its state, as SEMANTICS defines it: what a Model asks when it decides, reserves and keeps a line.
//
// Times are clock readings or spans in clock units, as exact fractions where the law needs them. A nil time is never.
type law interface {
	size() int64    // Decision.Limit
	largest() int64 // the most that one charge may take
	books() bool    // whether work can be charged ahead of its time

	// contact writes down the first contact of a state that does not start as it would become by itself.
	contact(now int64)
	touched() bool
	// plan says how long from now until a cost could go, and until there is a place for it to wait, behind costs of ahead that will be
	// charged before it.
	plan(now int64, ahead *big.Int, cost int64) (wait, room *big.Rat)
	// look is the largest cost that a Take would be given, and how long until the state equals an untouched one.
	look(now int64, ahead *big.Int) (remaining int64, reset *big.Int)
	charge(at *big.Rat, cost int64)
	// book charges ahead what is to go at due. What it returns is for giveBack.
	book(now int64, due *big.Rat, cost int64) mark
	giveBack(now int64, m mark, amount int64)
	// drop ends a reservation of which nothing is given back.
	drop(m mark)

	// turn is when a cost with nobody before it may go, seen from a reading.
	turn(seen *big.Rat, cost int64) *big.Rat
	// asOf is the time as of which a turn is charged that is noticed at now.
	asOf(turn *big.Rat, now int64) *big.Rat

	// same reports whether another law decides alike.
	same(law) bool
	// become is the law that takes over at a change of the limit, with the state carried along.
	become(now int64, next law) law
	// remark is the mark of a charge after that change; nil where nothing can be given back any more.
	remark(now int64, m mark, next law) mark
	// spent is what has been used, debt included, rounded up; load charges it to an untouched state.
	spent(now int64) *big.Int
	load(now int64, spent *big.Int)
	// counted is the largest number of tokens in the state, or 0 where that is of times.
	counted() *big.Int
	// moves reports whether times that were promised to a line are worked out anew at a change of the limit.
	moves() bool

	clone() law
	String() string
}

// A mark is what a charge made ahead is remembered by.
type mark any

const (
	century  = 36525 * 24 * time.Hour // no wait is longer
	lateness = 10 * time.Millisecond  // how long after its turn a waiter is charged as if noticed on time
)

// lawOf returns an untouched law. It panics for a limit that there is no model of. blind is a law that does not know which reservations are
// outstanding.
func lawOf(l weir.Limit, tick time.Duration, blind bool) law {
	if parts := joined(l); parts != nil {
		return newJoint(parts, tick, blind)
	}
	switch l := l.(type) {
	case weir.TokenBucket:
		b := newBucket(l.Rate, tick, l.Burst, l.Initial)
		b.blind = blind
		return b
	case weir.LeakyBucket:
		b := newBucket(l.Rate, tick, l.Queue+1, 0)
		b.leaky, b.passes, b.blind = true, l.DelayAfter, blind
		return b
	case weir.IntervalBucket:
		return newInterval(l, tick, blind)
	case weir.FixedWindow:
		return newFixed(l, tick)
	case weir.SlidingWindow:
		return newSlots(l, tick)
	case weir.SlidingCounter:
		return newCounter(l, tick)
	case weir.SlidingLog:
		return newList(l, tick)
	case weir.SmoothBursty:
		return newBursty(l, tick, blind)
	case weir.WarmUp:
		return newWarm(l, tick, blind)
	case weir.NginxBucket:
		return newNginx(l, tick, blind)
	}
	panic(fmt.Sprintf("weirtest: no model of %T", l))
}

// transfer carries over to a law of another kind: what has been used is charged once to an untouched state.
func transfer(now int64, old, next law) law {
	if !old.touched() {
		return next
	}
	if spent := old.spent(now); spent.Sign() > 0 {
		next.load(now, spent)
	} else {
		next.contact(now)
	}
	return next
}

// perToken is how many clock units bring one token, as a fraction in lowest terms.
func perToken(r weir.Rate, tick time.Duration) *big.Rat {
	return new(big.Rat).SetFrac(big.NewInt(int64(r.Per)), new(big.Int).Mul(big.NewInt(r.N), big.NewInt(int64(tick))))
}

// named is a span where it is ahead, 0 where it is past, and nil where it is beyond a century.
func named(d *big.Rat, tick time.Duration) *big.Rat {
	if up(d) > int64(century/tick) {
		return nil
	}
	return largest(d, new(big.Rat))
}

// late is asOf for a law that makes up for turns that are noticed late.
func late(turn *big.Rat, now int64, tick time.Duration) *big.Rat {
	return largest(turn, sub(whole(now), whole(int64(lateness/tick))))
}

func whole(v int64) *big.Rat     { return new(big.Rat).SetInt64(v) }
func exact(v *big.Int) *big.Rat  { return new(big.Rat).SetInt(v) }
func add(a, b *big.Rat) *big.Rat { return new(big.Rat).Add(a, b) }
func sub(a, b *big.Rat) *big.Rat { return new(big.Rat).Sub(a, b) }
func mul(a, b *big.Rat) *big.Rat { return new(big.Rat).Mul(a, b) }
func quo(a, b *big.Rat) *big.Rat { return new(big.Rat).Quo(a, b) }
func floor(v *big.Rat) *big.Int  { return new(big.Int).Div(v.Num(), v.Denom()) }
func ceil(v *big.Rat) *big.Int   { f := floor(new(big.Rat).Neg(v)); return f.Neg(f) }
func largest(a, b *big.Rat) *big.Rat {
	if a.Cmp(b) < 0 {
		return b
	}
	return a
}
func smallest(a, b *big.Rat) *big.Rat {
	if b.Cmp(a) < 0 {
		return b
	}
	return a
}

// up and down round to an int64; what does not fit becomes the nearest that does.
func up(v *big.Rat) int64   { return clamp(ceil(v)) }
func down(v *big.Rat) int64 { return clamp(floor(v)) }
func clamp(v *big.Int) int64 {
	switch {
	case v.IsInt64():
		return v.Int64()
	case v.Sign() < 0:
		return math.MinInt64
	}
	return math.MaxInt64
}
