package weirtest

import (
	"fmt"
	"math"
	"math/big"
	"time"

	"github.com/weirflow/weir"
)

// slidingCounter is the model of SlidingCounter. The current window counts fully, and
// the previous one with the part that a sliding window still covers.
type slidingCounter struct {
	tick   time.Duration
	limit  int64
	window int64 // clock units

	now *counts // nil while untouched
}

// counts has the number of a window, its count, and the count of the previous window. It is
// immutable.
type counts struct {
	number            *big.Int
	current, previous *big.Int
}

func newCounter(l weir.SlidingCounter, tick time.Duration) *slidingCounter {
	return &slidingCounter{tick: tick, limit: l.Limit, window: int64(l.Window / tick)}
}

func (c *slidingCounter) size() int64        { return c.limit }
func (c *slidingCounter) largest() int64     { return c.limit }
func (c *slidingCounter) chargesAhead() bool { return false }
func (c *slidingCounter) turnsMove() bool    { return false }
func (c *slidingCounter) contact(int64)      {}
func (c *slidingCounter) touched() bool      { return c.now != nil }
func (c *slidingCounter) clone() algorithm   { d := *c; return &d }
func (c *slidingCounter) String() string     { return fmt.Sprint(c.now) }
func (s *counts) String() string             { return fmt.Sprint(s.number, s.current, s.previous) }
func (c *slidingCounter) length() *big.Int   { return big.NewInt(c.window) }

// reached: the window has begun.
func (c *slidingCounter) reached() *big.Int {
	if c.now == nil {
		return nil
	}
	return c.starts(c.now.number)
}

// numberOf returns the number of the window that contains a time.
// Euclidean: rounds down
func (c *slidingCounter) numberOf(t *big.Int) *big.Int { return new(big.Int).Div(t, c.length()) }

// starts returns the start of a window.
func (c *slidingCounter) starts(number *big.Int) *big.Int {
	return new(big.Int).Mul(number, c.length())
}

// at returns the counts at a time, and how far into the window it is. A clock reading before the
// window counts as the start of the window.
func (c *slidingCounter) at(t *big.Int) (s counts, into *big.Int) {
	s = counts{c.numberOf(t), new(big.Int), new(big.Int)}
	if c.now != nil {
		switch passed := new(big.Int).Sub(s.number, c.now.number); {
		case passed.Sign() <= 0:
			s = *c.now
		case passed.IsInt64() && passed.Int64() == 1:
			s.previous = c.now.current
		}
	}
	into = new(big.Int).Sub(t, c.starts(s.number))
	if into.Sign() < 0 {
		into = new(big.Int)
	}
	return s, into
}

// fits is the condition previous*(W-e) + (current+c)*W <= L*W.
func (c *slidingCounter) fits(s counts, into *big.Int, cost int64) bool {
	old := new(big.Int).Mul(s.previous, new(big.Int).Sub(c.length(), into))
	all := new(big.Int).Mul(new(big.Int).Add(s.current, big.NewInt(cost)), c.length())
	return all.Add(all, old).Cmp(new(big.Int).Mul(big.NewInt(c.limit), c.length())) <= 0
}

// when returns the first time from t on at which a cost fits.
func (c *slidingCounter) when(t *big.Int, cost int64) *big.Int {
	s, into := c.at(t)
	if c.fits(s, into, cost) {
		return t
	}
	number, old, room := s.number, s.previous, new(big.Int).Sub(big.NewInt(c.limit-cost), s.current)
	if room.Sign() < 0 {
		number, old, room = new(big.Int).Add(number, big.NewInt(1)), s.current, big.NewInt(c.limit-cost)
	}
	into = new(big.Int)
	if old.Sign() > 0 {
		covered := new(big.Int).Div(new(big.Int).Mul(room, c.length()), old)
		if into.Sub(c.length(), covered); into.Sign() < 0 {
			into.SetInt64(0)
		}
	}
	return into.Add(into, c.starts(number))
}

// plan behind others adds up the costs. Together they go on in this window no sooner than one cost
// of that size. If they do not fit there, each later window takes at most the limit.
func (c *slidingCounter) plan(now int64, ahead *big.Int, cost int64) (wait, room *big.Rat) {
	t := big.NewInt(now)
	at := c.when(t, cost)
	if ahead.Sign() > 0 {
		s, _ := c.at(t)
		over := new(big.Int).Add(ahead, big.NewInt(cost))
		over.Sub(over, latestOf(new(big.Int), new(big.Int).Sub(big.NewInt(c.limit), s.current)))
		if over.Sign() <= 0 {
			at = latestOf(at, c.when(t, ahead.Int64()+cost))
		} else {
			windows := ceil(new(big.Rat).SetFrac(over, big.NewInt(c.limit)))
			at = latestOf(at, c.starts(windows.Add(windows, s.number)))
		}
	}
	until := new(big.Int).Sub(at, t)
	if until.Cmp(big.NewInt(int64(century/c.tick))) > 0 || at.Cmp(big.NewInt(math.MaxInt64)) > 0 {
		return nil, nil
	}
	return exact(until), new(big.Rat)
}

func (c *slidingCounter) peek(now int64, ahead *big.Int) (remaining int64, reset *big.Int) {
	s, into := c.at(big.NewInt(now))
	windows := int64(0)
	switch {
	case s.current.Sign() > 0 || ahead.Sign() > 0:
		windows = 2
	case s.previous.Sign() > 0:
		windows = 1
	}
	reset = new(big.Int)
	if windows > 0 {
		reset.Sub(c.starts(new(big.Int).Add(s.number, big.NewInt(windows))), big.NewInt(now))
	}
	old := ceil(new(big.Rat).SetFrac(new(big.Int).Mul(s.previous, new(big.Int).Sub(c.length(), into)), c.length()))
	left := new(big.Int).Sub(big.NewInt(c.limit), s.current)
	left.Sub(left.Sub(left, old), ahead)
	return max(0, clamp(left)), reset
}

func (c *slidingCounter) charge(at *big.Rat, cost int64) {
	s, _ := c.at(floor(at))
	s.current = big.NewInt(clamp(new(big.Int).Add(s.current, big.NewInt(cost))))
	c.now = &s
}

// reserve marks a charge with its window's number, because giveBack lowers the count of that
// window.
func (c *slidingCounter) reserve(now int64, _ *big.Rat, cost int64) mark {
	c.charge(whole(now), cost)
	return c.now.number
}

func (c *slidingCounter) giveBack(now int64, m mark, amount int64) {
	s, _ := c.at(big.NewInt(now))
	less := func(v *big.Int) *big.Int {
		if v = new(big.Int).Sub(v, big.NewInt(amount)); v.Sign() < 0 {
			v.SetInt64(0)
		}
		return v
	}
	switch passed := new(big.Int).Sub(s.number, m.(*big.Int)); {
	case passed.Sign() == 0:
		s.current = less(s.current)
	case passed.IsInt64() && passed.Int64() == 1:
		s.previous = less(s.previous)
	default:
		return
	}
	c.now = &s
}

func (c *slidingCounter) turn(seen *big.Rat, cost int64) *big.Rat {
	wait, _ := c.plan(up(seen), new(big.Int), cost)
	if wait == nil || up(add(seen, wait)) == math.MaxInt64 {
		return nil
	}
	return add(whole(up(seen)), wait)
}

func (c *slidingCounter) asOf(_ *big.Rat, now int64) *big.Rat { return whole(now) }

func (c *slidingCounter) same(o algorithm) bool {
	d, ok := o.(*slidingCounter)
	return ok && c.limit == d.limit && c.window == d.window
}

// changedTo keeps both counts. If Window changes, they count in the new current and previous
// window.
func (c *slidingCounter) changedTo(now int64, o algorithm) algorithm {
	next, ok := o.(*slidingCounter)
	switch {
	case !ok:
		return transfer(now, c, o)
	case c.now == nil:
	case next.window == c.window:
		next.now = c.now
	default:
		s, _ := c.at(big.NewInt(now))
		next.now = &counts{next.numberOf(big.NewInt(now)), s.current, s.previous}
	}
	return next
}

func (c *slidingCounter) drop(mark) {}

func (c *slidingCounter) convertMark(_ int64, m mark, o algorithm) mark {
	if next, ok := o.(*slidingCounter); ok && next.window == c.window {
		return m
	}
	return nil
}

func (c *slidingCounter) spent(now int64) *big.Int {
	remaining, _ := c.peek(now, new(big.Int))
	return big.NewInt(c.limit - remaining)
}

func (c *slidingCounter) counted() *big.Int {
	if c.now == nil {
		return new(big.Int)
	}
	return latestOf(c.now.current, c.now.previous)
}

func (c *slidingCounter) load(now int64, spent *big.Int) {
	c.charge(whole(now), min(clamp(spent), c.limit))
}
