package weirtest

import (
	"fmt"
	"math"
	"math/big"
	"time"

	"github.com/weirflow/weir"
)

// fixed is the law of FixedWindow (SEMANTICS 3): one window, and what is counted in it. Work that was promised a later window is counted
// there at once, and while that lies ahead nothing goes before it.
type fixed struct {
	tick   time.Duration
	limit  int64
	frames frames

	now *fixedState // nil while untouched
}

// fixedState is when the window starts, what is counted in it, and the latest time promised that lay ahead when it was. It is never changed.
type fixedState struct {
	starts, count int64
	promised      *int64
}

// fixedMark is a charge with the state before it, nil for none, and just after it.
type fixedMark struct {
	cost          int64
	before, after *fixedState
}

// frames says how windows lie in time.
type frames struct {
	length   int64 // clock units; 0 with a calendar
	first    bool  // windows begin with a charge
	calendar *calendarModel
}

func newFixed(l weir.FixedWindow, tick time.Duration) *fixed {
	f := &fixed{tick: tick, limit: l.Limit, frames: frames{length: int64(l.Window / tick), first: l.Align == weir.AlignFirst}}
	if l.Window == 0 {
		f.frames.calendar = newCalendarModel(string(l.Align), tick)
	}
	return f
}

func (f frames) same(o frames) bool {
	if f.calendar != nil && o.calendar != nil {
		return f.calendar.same(o.calendar)
	}
	return f == o
}

// starts is when the window starts that a time is in.
func (f frames) starts(t int64) int64 {
	switch {
	case f.calendar != nil:
		return f.calendar.starts(t)
	case f.first:
		return t
	}
	return clamp(new(big.Int).Mul(new(big.Int).Div(big.NewInt(t), big.NewInt(f.length)), big.NewInt(f.length)))
}

// ends is when the n-th window ends, from the one that starts at a time; nil beyond the end of the clock.
func (f frames) ends(starts int64, n *big.Int) *big.Int {
	var end *big.Int
	if f.calendar != nil {
		end = f.calendar.ends(starts, n)
	} else {
		end = new(big.Int).Add(big.NewInt(starts), new(big.Int).Mul(n, big.NewInt(f.length)))
	}
	if end == nil || end.Cmp(big.NewInt(math.MaxInt64)) >= 0 {
		return nil
	}
	return end
}

func (f *fixed) size() int64    { return f.limit }
func (f *fixed) largest() int64 { return f.limit }
func (f *fixed) books() bool    { return true }
func (f *fixed) moves() bool    { return false }
func (f *fixed) contact(int64)  {}
func (f *fixed) touched() bool  { return f.now != nil }
func (f *fixed) clone() law     { c := *f; return &c }
func (f *fixed) String() string {
	switch {
	case f.now == nil:
		return "untouched"
	case f.now.promised != nil:
		return fmt.Sprint(f.now.starts, f.now.count, *f.now.promised)
	}
	return fmt.Sprint(f.now.starts, f.now.count)
}

var one = big.NewInt(1)

// at is the window that counts at a reading, and how long until it does, where one was promised. An earlier reading counts in it too.
func (f *fixed) at(now int64) (starts, count int64, until *big.Int) {
	until = new(big.Int)
	if f.now == nil {
		return f.frames.starts(now), 0, until
	}
	t := now
	if p := f.now.promised; p != nil && *p > now {
		t = *p
		until.Sub(big.NewInt(t), big.NewInt(now))
	}
	if end := f.frames.ends(f.now.starts, one); f.now.count == 0 || end != nil && end.Cmp(big.NewInt(t)) <= 0 {
		return max(f.frames.starts(t), f.now.starts), 0, until
	}
	return f.now.starts, f.now.count, until
}

// plan behind others fills window after window, as if costs could be divided.
func (f *fixed) plan(now int64, ahead *big.Int, cost int64) (wait, room *big.Rat) {
	starts, count, until := f.at(now)
	limit, c := big.NewInt(f.limit), big.NewInt(cost)
	taken := new(big.Int).Add(ahead, big.NewInt(count))
	if new(big.Int).Add(taken, c).Cmp(limit) > 0 {
		n := big.NewInt(1)
		over := new(big.Int).Sub(taken, limit) // of ahead, what does not go in this window
		if count > f.limit {
			over = ahead
		}
		if over.Sign() > 0 {
			whole, rest := new(big.Int).DivMod(over, limit, new(big.Int))
			n.Add(n, whole)
			if rest.Add(rest, c).Cmp(limit) > 0 {
				n.Add(n, one)
			}
		}
		end := f.frames.ends(starts, n)
		if end == nil {
			return nil, nil
		}
		until = new(big.Int).Sub(end, big.NewInt(now))
	}
	if until.Cmp(big.NewInt(int64(century/f.tick))) > 0 {
		return nil, nil
	}
	return exact(until), new(big.Rat)
}

func (f *fixed) look(now int64, ahead *big.Int) (remaining int64, reset *big.Int) {
	starts, count, until := f.at(now)
	reset = until
	if count > 0 || ahead.Sign() > 0 {
		n := new(big.Int).Add(one, new(big.Int).Div(ahead, big.NewInt(f.limit)))
		end := f.frames.ends(starts, n)
		if end == nil {
			end = big.NewInt(math.MaxInt64)
		}
		if end.Sub(end, big.NewInt(now)).Cmp(until) > 0 {
			reset = end
		}
	}
	if until.Sign() > 0 {
		return 0, reset
	}
	left := big.NewInt(f.limit - min(count, f.limit))
	return max(0, clamp(left.Sub(left, ahead))), reset
}

func (f *fixed) charge(at *big.Rat, cost int64) { f.book(down(at), at, cost) }

func (f *fixed) book(now int64, due *big.Rat, cost int64) mark {
	when := max(now, down(due))
	if f.now != nil && f.now.promised != nil {
		when = max(when, *f.now.promised)
	}
	m := fixedMark{cost: cost, before: f.now}
	if m.before == nil {
		m.before = &fixedState{starts: f.frames.starts(now)}
	}
	starts, count, _ := f.at(when)
	f.now = &fixedState{starts: starts, count: clamp(new(big.Int).Add(big.NewInt(count), big.NewInt(cost)))}
	if when > now {
		f.now.promised = &when
	}
	m.after = f.now
	return m
}

// giveBack makes the state what it was where nothing was charged since, and otherwise takes from the window of the charge while that is the
// latest.
func (f *fixed) giveBack(_ int64, m mark, amount int64) {
	c := m.(fixedMark)
	switch {
	case amount == c.cost && f.String() == (&fixed{now: c.after}).String():
		f.now = c.before
	case f.now.starts == c.after.starts:
		next := *f.now
		next.count = max(0, next.count-amount)
		f.now = &next
	}
}

func (f *fixed) turn(seen *big.Rat, cost int64) *big.Rat {
	wait, _ := f.plan(up(seen), new(big.Int), cost)
	if wait == nil || up(add(seen, wait)) == math.MaxInt64 {
		return nil
	}
	return add(whole(up(seen)), wait)
}

func (f *fixed) asOf(_ *big.Rat, now int64) *big.Rat { return whole(now) }

func (f *fixed) same(o law) bool {
	c, ok := o.(*fixed)
	return ok && f.limit == c.limit && f.frames.same(c.frames)
}

// become keeps the count, which in other windows counts in the one that holds now, or the latest time promised. Windows that begin with a
// charge are of another clock than all others.
func (f *fixed) become(now int64, o law) law {
	next, ok := o.(*fixed)
	switch {
	case !ok || next.frames.first != f.frames.first:
		return transfer(now, f, o)
	case f.now == nil:
	case next.frames.same(f.frames):
		next.now = f.now
	default:
		_, count, until := f.at(now)
		t := until.Add(until, big.NewInt(now)).Int64()
		next.now = &fixedState{starts: next.frames.starts(t), count: count, promised: f.now.promised}
	}
	return next
}

func (f *fixed) remark(_ int64, m mark, o law) mark {
	if next, ok := o.(*fixed); ok && next.frames.same(f.frames) {
		return m
	}
	return nil
}

func (f *fixed) spent(now int64) *big.Int {
	_, count, _ := f.at(now)
	return big.NewInt(count)
}

func (f *fixed) load(now int64, spent *big.Int) { f.charge(whole(now), min(clamp(spent), f.limit)) }
