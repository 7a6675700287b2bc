package weirtest

import (
	"fmt"
	"math"
	"math/big"
	"time"

	"github.com/weirflow/weir"
)

// An algorithm is the rule of a limit together with its state. The Model uses it to decide,
// to reserve and to keep a queue.
//
// Times are clock readings or durations in clock units, as exact fractions if the algorithm needs
// them. A nil time means never.
type algorithm interface {
	size() int64        // Decision.Limit
	largest() int64     // the most that one charge may take
	chargesAhead() bool // whether work can be charged ahead of its time

	// contact records the first call of a state whose start differs from its idle state.
	contact(now int64)
	touched() bool
	// plan returns how long from now a cost has to wait, and how long until there is a place for it
	// in the queue. Costs of ahead in total will be charged before it.
	plan(now int64, ahead *big.Int, cost int64) (wait, room *big.Rat)
	// peek returns the largest cost that a Take would admit, and how long until the state equals an
	// untouched one.
	peek(now int64, ahead *big.Int) (remaining int64, reset *big.Int)
	charge(at *big.Rat, cost int64)
	// reserve charges work ahead of time that is due at due. Its mark is for giveBack.
	reserve(now int64, due *big.Rat, cost int64) mark
	giveBack(now int64, m mark, amount int64)
	// drop ends a reservation without giving anything back.
	drop(m mark)

	// turn returns when a cost with no waiter before it may go, as seen from a reading.
	turn(seen *big.Rat, cost int64) *big.Rat
	// asOf returns the time as of which a turn is charged that is noticed at now.
	asOf(turn *big.Rat, now int64) *big.Rat

	// same reports whether another algorithm decides alike.
	same(algorithm) bool
	// changedTo returns the algorithm after a change of the limit, with the state carried over.
	changedTo(now int64, next algorithm) algorithm
	// convertMark returns the mark of a charge after that change, or nil if nothing can be given
	// back any more.
	convertMark(now int64, m mark, next algorithm) mark
	// spent returns what was used, with debt, rounded up. load charges that much to an untouched
	// state.
	spent(now int64) *big.Int
	load(now int64, spent *big.Int)
	// counted returns the largest number of tokens in the state, or 0 if the state consists of
	// times.
	counted() *big.Int
	// turnsMove reports whether times that were promised to waiters are computed again after a
	// change of the limit.
	turnsMove() bool

	// reached returns a time that the clock had reached at the latest charge, as far as the state
	// shows it, if nothing was in debt or promised then; nil while untouched.
	reached() *big.Int

	clone() algorithm
	String() string
}

// A mark identifies a charge that was made ahead of time.
type mark any

const (
	century = 36525 * 24 * time.Hour // the longest wait
	// up to this long after its turn, a waiter is charged as if noticed on time
	lateness = 10 * time.Millisecond
)

// algorithmOf returns an untouched algorithm. It panics for a limit without a model. A blind
// algorithm does not know which reservations are outstanding.
func algorithmOf(l weir.Limit, tick time.Duration, blind bool) algorithm {
	if parts := partsOf(l); parts != nil {
		return newAllOf(parts, tick, blind)
	}
	switch l := l.(type) {
	case weir.TokenBucket:
		b := newBucket(l.Rate, tick, l.Burst, l.Initial)
		b.blind = blind
		return b
	case weir.LeakyBucket:
		b := newBucket(l.Rate, tick, l.Queue+1, 0)
		b.leaky, b.delayAfter, b.blind = true, l.DelayAfter, blind
		return b
	case weir.IntervalBucket:
		return newInterval(l, tick, blind)
	case weir.FixedWindow:
		return newFixed(l, tick, blind)
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

// transfer carries the state over to an algorithm of another algorithm: it charges what was used,
// once, to an untouched state.
func transfer(now int64, old, next algorithm) algorithm {
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

// perToken returns how many clock units bring one token, as a fraction in lowest terms.
func perToken(r weir.Rate, tick time.Duration) *big.Rat {
	return new(big.Rat).SetFrac(big.NewInt(int64(r.Per)), new(big.Int).Mul(big.NewInt(r.N), big.NewInt(int64(tick))))
}

// named returns a duration: 0 if it is past, and nil if it is beyond a century.
func named(d *big.Rat, tick time.Duration) *big.Rat {
	if up(d) > int64(century/tick) {
		return nil
	}
	return largest(d, new(big.Rat))
}

// late implements asOf for an algorithm that compensates turns that are noticed late.
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

// up and down round to an int64, and clamp.
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
